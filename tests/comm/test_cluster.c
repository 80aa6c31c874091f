/* SPDX-License-Identifier: Apache-2.0 */
/* A process's place in its job follows from the launcher's environment, as set by Slurm 22.05, Open
 * MPI 4.1.4 and torchrun. Incomplete or invalid environments are errors that name the variable.
 * labels: random unthreaded */
#include "comm/start/start.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/control/control.h"
#include "comm/start/hostlist.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

/* ---- made-up environments ---------------------------------------------------------------- */

/* Two lists "NAME=VALUE NAME=VALUE": `now`, and `always` for variables that `now` does not set. */
static char now[4096], always[4096];

static const char *find(char *words, const char *name) {
  static char values[8][1024];
  static int turn;
  size_t n = strlen(name);
  for (char *at = words; at; at = strchr(at, ' ')) {
    at += strspn(at, " ");
    if (strncmp(at, name, n) || at[n] != '=') continue;
    char *to = values[turn++ % 8];
    snprintf(to, 1024, "%.*s", (int)strcspn(at + n + 1, " "), at + n + 1);
    return to;
  }
  return NULL;
}

static const char *get(const char *name) {
  const char *value = find(now, name);
  return value ? value : find(always, name);
}

static void set(const char *words) { snprintf(now, sizeof now, "%s", words); }

#define SLURM                                                                                \
  "SLURM_JOB_ID=41 SLURM_JOB_NODELIST=n[1-2] SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NODEID=1 " \
  "SLURM_NTASKS=4 SLURM_PROCID=3 SLURM_STEPID=2 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=n[1-2] " \
  "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=3,1 "             \
  "SLURM_TASKS_PER_NODE=3,1"
#define OMPI(rank, size, local, locals)                                                           \
  "OMPI_COMM_WORLD_RANK=" rank " OMPI_COMM_WORLD_SIZE=" size " OMPI_COMM_WORLD_LOCAL_RANK=" local \
  " OMPI_COMM_WORLD_LOCAL_SIZE=" locals " PMIX_NAMESPACE=1319763969 PMIX_HOSTNAME=vm "
#define OMPI5(rank, size, local, locals, daemon)                                                  \
  "OMPI_COMM_WORLD_RANK=" rank " OMPI_COMM_WORLD_SIZE=" size " OMPI_COMM_WORLD_LOCAL_RANK=" local \
  " OMPI_COMM_WORLD_LOCAL_SIZE=" locals                                                           \
  " PMIX_NAMESPACE=prterun-a-b.c-29573@1 PMIX_HOSTNAME=vm "                                       \
  "PMIX_SERVER_URI2=prterun-a-b.c-29573@0." daemon ";tcp4://192.0.2.2:36901 "
#define DAEMON(n) "OMPI_MCA_orte_local_daemon_uri=1319763968." n ";tcp://192.0.2.2:47959 "
#define TORCH                                                                           \
  "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 MASTER_ADDR=node7 " \
  "MASTER_PORT=29500 "
#define OURS                                                                             \
  "SLUICE_PROCESS=1 SLUICE_PROCESSES=4 SLUICE_LOCAL=1 SLUICE_LOCALS=4 SLUICE_JOB=run-7 " \
  "SLUICE_ENDPOINT=127.0.0.1:4711 "

#define HYDRA "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 PMI_FD=9 "

typedef struct seen {
  const char *what, *words;
  const char *starter;
  int process, nprocesses, local, nlocal, incarnation;
  const char *endpoint, *job; /* NULL if any */
} seen;

static const seen cases[] = {
    {"nothing set", "PATH=/bin", NULL, 0, 1, 0, 1, 0, "", ""},
    {"actorrun", OURS "SLUICE_INCARNATION=2", "actorrun", 1, 4, 1, 4, 2, "127.0.0.1:4711", "run-7"},
    {"actorrun inside everything", OURS SLURM " " TORCH, "actorrun", 1, 4, 1, 4, 0,
     "127.0.0.1:4711", "run-7"},
    {"variables by hand", "SLUICE_PROCESS=1 SLUICE_PROCESSES=2 SLUICE_ENDPOINT=[fd00::2]:99",
     "actorrun", 1, 2, 0, 1, 0, "[fd00::2]:99", "[fd00::2]:99"},
    {"srun", SLURM, "Slurm's srun", 3, 4, 0, 1, 0, "n1:22503", "slurm-41.2"},
    {"srun, the second run of a job", SLURM " SLURM_RESTART_COUNT=1", "Slurm's srun", 3, 4, 0, 1, 1,
     NULL, NULL},
    {"srun with an endpoint", "SLUICE_ENDPOINT=head:5 " SLURM, "Slurm's srun", 3, 4, 0, 1, 0,
     "head:5", "slurm-41.2"},
    {"srun on one host",
     "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_NODEID=0 "
     "SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=n1",
     "Slurm's srun", 1, 2, 1, 2, 0, "127.0.0.1:20061", "slurm-1.0"},
    {"srun -n1", "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1",
     "Slurm's srun", 0, 1, 0, 1, 0, "", ""},
    {"a batch script, which is no step",
     "SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NTASKS=3 SLURM_LOCALID=0 SLURM_NODEID=0", NULL, 0, 1, 0,
     1, 0, "", ""},
    {"mpirun on one host", OMPI("3", "4", "3", "4") DAEMON("0"), "Open MPI's mpirun", 3, 4, 3, 4, 0,
     NULL, "mpirun-1319763969"},
    {"mpirun inside srun", OMPI("3", "4", "3", "4") SLURM, "Open MPI's mpirun", 3, 4, 3, 4, 0, NULL,
     "mpirun-1319763969"},
    {"mpirun over two hosts, with its daemons, not on its own",
     OMPI("3", "4", "1", "2") DAEMON("2") "OMPI_MCA_orte_num_nodes=2 "
                                          "OMPI_MCA_orte_node_regex=vm,n[1:1-2]@0(3) " SLURM,
     "Open MPI's mpirun", 3, 4, 1, 2, 0, "n1:28339", NULL},
    {"the same, process 0",
     OMPI("0", "4", "0", "2") DAEMON("1") "OMPI_MCA_orte_num_nodes=2 "
                                          "OMPI_MCA_orte_node_regex=vm,n[1:1-2]@0(3)",
     "Open MPI's mpirun", 0, 4, 0, 2, 0, "n1:28339", NULL},
    {"mpirun's own host takes part, seen from another",
     OMPI("3", "4", "1", "2") DAEMON("1") "OMPI_MCA_orte_num_nodes=2 "
                                          "OMPI_MCA_orte_node_regex=vm,hostb@0(2)",
     "Open MPI's mpirun", 3, 4, 1, 2, 0, "vm:28339", NULL},
    {"and seen from itself", OMPI("1", "4", "1", "2") DAEMON("0") "OMPI_MCA_orte_num_nodes=2",
     "Open MPI's mpirun", 1, 4, 1, 2, 0, "vm:28339", NULL},
    {"Open MPI 5, seen from another host", OMPI5("3", "4", "1", "2", "2"), "Open MPI's mpirun", 3,
     4, 1, 2, 0, "a-b.c:27243", "mpirun-prterun-a-b.c-29573@1"},
    {"and from mpirun's own", OMPI5("1", "4", "1", "2", "0"), "Open MPI's mpirun", 1, 4, 1, 2, 0,
     "vm:27243", NULL},
    {"Open MPI 5 on one host", OMPI5("3", "4", "3", "4", "0"), "Open MPI's mpirun", 3, 4, 3, 4, 0,
     "127.0.0.1:27243", NULL},
    {"mpirun with an endpoint", OMPI("3", "4", "1", "2") "SLUICE_ENDPOINT=a:1", "Open MPI's mpirun",
     3, 4, 1, 2, 0, "a:1", NULL},
    {"mpirun -n 1", OMPI("0", "1", "0", "1"), "Open MPI's mpirun", 0, 1, 0, 1, 0, "", ""},
    {"torchrun, whose store has the port",
     TORCH "TORCHELASTIC_RUN_ID=abc "
           "TORCHELASTIC_RESTART_COUNT=3 TORCHELASTIC_USE_AGENT_STORE=True",
     "torchrun", 5, 8, 1, 4, 3, "node7:29501", NULL},
    {"torchrun started by srun", TORCH "TORCHELASTIC_RUN_ID=abc " SLURM, "torchrun", 5, 8, 1, 4, 0,
     "node7:29500", NULL},
    {"torchrun's names by hand", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=fd00::2 MASTER_PORT=1",
     "torchrun", 0, 2, 0, 1, 0, "[fd00::2]:1", NULL},
    {"torchrun's names exported to srun", "WORLD_SIZE=4 MASTER_ADDR=x MASTER_PORT=1 " SLURM,
     "Slurm's srun", 3, 4, 0, 1, 0, "n1:22503", NULL},
    {"MPICH's mpiexec with an endpoint", HYDRA "SLUICE_ENDPOINT=head:5",
     "MPICH's or Intel MPI's mpiexec", 2, 4, 0, 2, 0, "head:5", "head:5"},
    {"the same on Slurm's hosts", HYDRA "SLUICE_ENDPOINT=head:5 SLUICE_JOB=x " SLURM,
     "MPICH's or Intel MPI's mpiexec", 2, 4, 0, 2, 0, "head:5", "x"},
    {"MPICH's mpiexec -n 1", "PMI_RANK=0 PMI_SIZE=1 PMI_FD=7", "MPICH's or Intel MPI's mpiexec", 0,
     1, 0, 1, 0, "", ""},
    {"srun that has PMI too", "PMI_RANK=3 PMI_SIZE=4 PMI_FD=7 " SLURM, "Slurm's srun", 3, 4, 0, 1,
     0, "n1:22503", NULL},
    {"torchrun inside mpiexec", HYDRA TORCH "TORCHELASTIC_RUN_ID=abc", "torchrun", 5, 8, 1, 4, 0,
     "node7:29500", NULL},
    {"actorrun inside mpiexec", HYDRA OURS, "actorrun", 1, 4, 1, 4, 0, "127.0.0.1:4711", "run-7"},
    {"torchrun's names set from PMI's", HYDRA "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1",
     "torchrun", 0, 2, 0, 1, 0, "a:1", NULL},
    {"Flux", "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 SLUICE_ENDPOINT=a:9", "Flux", 1, 2, 0, 1, 0, "a:9",
     "a:9"},
    {"one of Flux", "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1", "Flux", 0, 1, 0, 1, 0, "", ""},
    {"alone inside what is not known", "PMIX_RANK=3 SLUICE_PROCESS=0 SLUICE_PROCESSES=1",
     "actorrun", 0, 1, 0, 1, 0, "", ""}};

static void each_starter_is_understood(void) {
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    const seen *x = &cases[i];
    sli_cluster c;
    set(x->words);
    CHECK(!sli_cluster_detect(get, &c), "%s: %s", x->what, sl_detail());
    CHECK(!strcmp(c.starter ? c.starter : "", x->starter ? x->starter : ""), "%s: starter %s",
          x->what, c.starter);
    CHECK(c.process == x->process && c.nprocesses == x->nprocesses, "%s: process %d of %d", x->what,
          c.process, c.nprocesses);
    CHECK(c.local == x->local && c.nlocal == x->nlocal, "%s: local %d of %d", x->what, c.local,
          c.nlocal);
    CHECK(c.incarnation == x->incarnation, "%s: incarnation %d", x->what, c.incarnation);
    CHECK(!x->endpoint || !strcmp(c.endpoint, x->endpoint), "%s: endpoint %s", x->what, c.endpoint);
    CHECK(!x->job || !strcmp(c.job, x->job), "%s: job %s", x->what, c.job);
    size_t key = c.nprocesses > 1 ? SLI_CONTROL_KEY_CHARS : 0;
    CHECK(strlen(c.key) == key, "%s: key of %zu characters", x->what, strlen(c.key));
  }
}

static void bad_ones_name_the_variable(void) {
  static const struct {
    const char *words, *text;
  } bad[] = {
      {"SLUICE_PROCESS=1", "SLUICE_PROCESSES is not set, but other variables of actorrun are"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=2", "SLUICE_PROCESS=2: must be between 0 and 1"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=x", "SLUICE_PROCESS=x: not a whole number"},
      {"SLUICE_PROCESSES=0 SLUICE_PROCESS=0", "SLUICE_PROCESSES=0: must be"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=1", "SLUICE_ENDPOINT is not set"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=1 SLUICE_ENDPOINT=a", "SLUICE_ENDPOINT a: not HOST:PORT"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=1 SLUICE_ENDPOINT=a:0", "not HOST:PORT"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=1 SLUICE_ENDPOINT=a:65536", "not HOST:PORT"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=1 SLUICE_ENDPOINT=:1", "not HOST:PORT"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=1 SLUICE_ENDPOINT=fd00::2:1", "in brackets"},
      {"SLUICE_PROCESSES=2 SLUICE_PROCESS=1 SLUICE_LOCAL=0 SLUICE_ENDPOINT=a:1",
       "SLUICE_LOCALS is not set"},
      {OURS "SLUICE_KEY=short", "SLUICE_KEY: not a key"},
      {OURS "SLUICE_KEY_FILE=/nowhere", "SLUICE_KEY_FILE: cannot read /nowhere"},
      {OURS "SLUICE_SECRET_FILE=/nowhere", "SLUICE_SECRET_FILE: cannot read /nowhere"},
      {"SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID is not set"},
      {"SLURM_STEP_ID=0 SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS is not set"},
      {"SLURM_STEP_NODELIST=n[1-] " SLURM, "SLURM_STEP_NODELIST=n[1-]: not a list of hosts"},
      {"SLURM_STEP_TASKS_PER_NODE=4 " SLURM, "no number of tasks for node 1"},
      {"SLURM_PROCID=0 " SLURM, "process 0 does not run on the job's first host, n1"},
      {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"},
      {OMPI("3", "4", "1", "2"), "does not say where process 0 is"},
      {OMPI("0", "4", "0", "2") DAEMON("2") "OMPI_MCA_orte_num_nodes=2 "
                                            "OMPI_MCA_orte_node_regex=vm,n[1:1-2]@0(3)",
       "not run on the job's first host, n1"},
      {OMPI5("0", "4", "0", "2", "1"), "not run on the job's first host, a-b.c"},
      {"PMI_RANK=1 PMI_SIZE=2",
       "MPICH's or Intel MPI's mpiexec has started 2 processes (PMI_RANK, PMI_SIZE), but does not say "
       "where they meet: set SLUICE_ENDPOINT=HOST:PORT"},
      {HYDRA SLURM, "mpiexec has started 4 processes"},
      {"PMI_RANK=1", "PMI_SIZE is not set"},
      {"PMI_SIZE=2", "PMI_RANK is not set"},
      {"PMI_RANK=2 PMI_SIZE=2 SLUICE_ENDPOINT=a:1", "PMI_RANK=2: must be between 0 and 1"},
      {"MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=3", "MVAPICH's mpirun has started 3 processes"},
      {"MVP_COMM_WORLD_RANK=0 MVP_COMM_WORLD_SIZE=3", "MVAPICH's mpirun has started 3 processes"},
      {"FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2", "Flux has started 2 processes"},
      {"JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_SIZE=2", "jsrun has started 2 processes"},
      {"HOROVOD_RANK=0 HOROVOD_SIZE=2", "horovodrun has started 2 processes"},
      {"JAX_PROCESS_ID=0 JAX_NUM_PROCESSES=2", "JAX has started 2 processes"},
      {"PMIX_RANK=0",
       "a launcher with PMIx has set PMIX_RANK, but not how many processes there are; set "
       "SLUICE_PROCESS"},
      {"PALS_RANKID=0", "HPE's PALS has set PALS_RANKID"},
      {"ALPS_APP_PE=0", "Cray's aprun has set ALPS_APP_PE"},
      {"PMI_ID=1", "has set PMI_ID"},
      {"RANK=0", "WORLD_SIZE is not set, but other variables of torchrun are"},
      {"WORLD_SIZE=2", "RANK is not set"},
      {"WORLD_SIZE=2 RANK=0", "MASTER_ADDR is not set"},
      {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT=0: must be"}};
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    sli_cluster c = {.process = 77};
    set(bad[i].words);
    CHECK(sli_cluster_detect(get, &c) == SL_E_INPUT, "%s is refused", bad[i].words);
    CHECK(strstr(sl_detail(), bad[i].text), "%s: %s", bad[i].words, sl_detail());
    CHECK(c.process == 77, "nothing is set by what is refused");
  }
}

/* ---- keys -------------------------------------------------------------------------------- */

static void key_of(const char *words, char key[48]) {
  sli_cluster c;
  set(words);
  CHECK(!sli_cluster_detect(get, &c), "%s: %s", words, sl_detail());
  memcpy(key, c.key, sizeof c.key);
}

static void the_secret_and_the_job_make_the_key(void) {
  char a[48], b[48], other[48];
  key_of(SLURM, a);
  key_of("SLURM_PROCID=2 SLURM_NODEID=0 SLURM_LOCALID=2 " SLURM, b);
  key_of("SLURM_STEP_ID=3 " SLURM, other);
  CHECK(!strcmp(a, b), "all processes of a job have the same key");
  CHECK(strcmp(a, other), "another job has another");
  key_of("SLUICE_KEY=0123456789abcdefghij0123456789abcdefghij " SLURM, b);
  CHECK(!strcmp(b, "0123456789abcdefghij0123456789abcdefghij"), "a given key is taken");
}

static void write_file(const char *path, const char *text, mode_t mode) {
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && !fclose(file) && !chmod(path, mode), "%s: %m", path);
}

static void refused(const char *words, const char *text) {
  sli_cluster c;
  set(words);
  CHECK(sli_cluster_detect(get, &c) == SL_E_INPUT && strstr(sl_detail(), text), "%s: %s", words,
        sl_detail());
}

static void a_file_that_others_can_read_is_no_secret(const char *folder) {
  char path[512], words[2048], key[48];
  snprintf(path, sizeof path, "%s/other", folder);
  snprintf(words, sizeof words, "SLUICE_SECRET_FILE=%s " SLURM, path);
  write_file(path, "0123456789abcdef0123456789abcdef", 0640);
  refused(words, "others can read it");
  chmod(path, 0600);
  key_of(words, key);
  write_file(path, "short", 0600);
  refused(words, "at least 16 bytes");
  snprintf(words, sizeof words, "SLUICE_KEY_FILE=%s " SLURM, path);
  refused(words, "not a key");
  write_file(path, "0123456789abcdefghij0123456789abcdefghij\n", 0600);
  key_of(words, key);
  CHECK(!strcmp(key, "0123456789abcdefghij0123456789abcdefghij"), "of the file: %s", key);
  chmod(path, 0644);
  refused(words, "others can read it");
  unlink(path);
}

/* Twelve processes that find no secret create a single one. */
static void the_secret_is_made_once(const char *folder) {
  char path[512], keys[12][48];
  int ends[2];
  snprintf(path, sizeof path, "%s/.config/sluice/secret", folder);
  unlink(path);
  CHECK(!pipe(ends), "pipe: %m");
  for (size_t i = 0; i < SLI_COUNT(keys); i++)
    if (fork() == 0) {
      char key[48];
      key_of(SLURM, key);
      _exit(write(ends[1], key, sizeof key) != sizeof key);
    }
  for (size_t i = 0; i < SLI_COUNT(keys); i++) {
    int status;
    CHECK(wait(&status) > 0 && !status, "a process failed");
    CHECK(read(ends[0], keys[i], sizeof keys[i]) == sizeof keys[i], "reading: %m");
    CHECK(!strcmp(keys[i], keys[0]), "all have the same key");
  }
  struct stat st;
  CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600 && st.st_size == 32, "%s is private", path);
  close(ends[0]);
  close(ends[1]);
}

/* ---- lists of hosts ---------------------------------------------------------------------- */

static void lists_of_hosts_are_expanded(void) {
  static const struct {
    const char *list;
    size_t count, index;
    const char *host;
  } good[] = {{"n1", 1, 0, "n1"},
              {"n[1-3,7]", 4, 3, "n7"},
              {"n[1-3,7]", 4, 0, "n1"},
              {"n[08-11]", 4, 1, "n09"},
              {"n[08-11]", 4, 2, "n10"},
              {"login,n[1-2],gpu[003,010-012]-ib", 7, 0, "login"},
              {"login,n[1-2],gpu[003,010-012]-ib", 7, 4, "gpu010-ib"},
              {"login,n[1-2],gpu[003,010-012]-ib", 7, 6, "gpu012-ib"},
              {"r[0-1]n[1-8]", 16, 8, "r1n1"},
              {"r[0-1]n[1-8]", 16, 7, "r0n8"},
              {"h[2:7-9],x", 4, 0, "h07"},
              {"h[2:7-9],x", 4, 3, "x"},
              {"n[0-999999]", 1000000, 999999, "n999999"}};
  for (size_t i = 0; i < SLI_COUNT(good); i++) {
    char host[64];
    CHECK(sli_hostlist_count(good[i].list) == good[i].count, "%s: %zu hosts", good[i].list,
          sli_hostlist_count(good[i].list));
    CHECK(!sli_hostlist_at(good[i].list, good[i].index, host, sizeof host), "%s", sl_detail());
    CHECK(!strcmp(host, good[i].host), "%s: %zu is %s", good[i].list, good[i].index, host);
  }
}

static void malformed_lists_are_refused(void) {
  static const char *const bad[] = {"",
                                    ",",
                                    "n1,",
                                    "n[",
                                    "n]",
                                    "n[1",
                                    "n[]",
                                    "n[1-]",
                                    "n[-1]",
                                    "n[2-1]",
                                    "n[1,]",
                                    "n[a]",
                                    "n[[1]]",
                                    "n[1]]",
                                    "n[1 ,2]",
                                    "n[1,,2]",
                                    "n[2:]",
                                    "n[0-999999999]",
                                    "a[0-9999]b[0-9999]",
                                    "n[99999999999]"};
  char host[64];
  for (size_t i = 0; i < SLI_COUNT(bad); i++)
    CHECK(
        sli_hostlist_at(bad[i], 0, host, sizeof host) == SL_E_INPUT && !sli_hostlist_count(bad[i]),
        "%s is refused", bad[i]);
  CHECK(sli_hostlist_at("n[1-2]", 2, host, sizeof host) == SL_E_INPUT, "beyond the end");
  CHECK(sli_hostlist_at("n[1-2]", 0, host, 2) == SL_E_INPUT, "no room");
}

/* Damaged lists cause no access outside of their buffers. */
static void damaged_lists_do_no_harm(void) {
  static const char letters[] = "n0129[]-,:(x)";
  unsigned seed = 20240607;
  printf("seed %u\n", seed);
  for (uint64_t i = 0; i < 200000 * seeds_times(); i++) {
    char *list = strdup(i % 2 ? "r[0-1]n[1-8],gpu[003,010-012]" : "2(x3),1,12(x100)"), host[16];
    size_t n = strlen(list), count;
    for (int k = rand_r(&seed) % 3; k >= 0; k--)
      list[(size_t)rand_r(&seed) % n] = letters[(size_t)rand_r(&seed) % (sizeof letters - 1)];
    if ((count = sli_hostlist_count(list)))
      sli_hostlist_at(list, (size_t)rand_r(&seed) % count, host, sizeof host);
    sli_hostlist_tasks(list, (size_t)rand_r(&seed) % 8);
    free(list);
  }
}

static void tasks_of_nodes_are_read(void) {
  CHECK(sli_hostlist_tasks("3,1", 0) == 3 && sli_hostlist_tasks("3,1", 1) == 1, "3,1");
  CHECK(sli_hostlist_tasks("2(x3),1", 2) == 2 && sli_hostlist_tasks("2(x3),1", 3) == 1, "2(x3),1");
  CHECK(!sli_hostlist_tasks("2(x3),1", 4) && !sli_hostlist_tasks("", 0), "beyond the end");
  CHECK(!sli_hostlist_tasks("2(x", 0) && !sli_hostlist_tasks("2x3", 0), "malformed");
}

int main(void) {
  char folder[] = "/tmp/test_comm_cluster.XXXXXX", command[64];
  CHECK(mkdtemp(folder), "mkdtemp: %m");
  snprintf(always, sizeof always, "HOME=%s", folder);
  RUN(the_secret_is_made_once, folder);
  RUN(each_starter_is_understood);
  RUN(bad_ones_name_the_variable);
  RUN(the_secret_and_the_job_make_the_key);
  RUN(a_file_that_others_can_read_is_no_secret, folder);
  RUN(lists_of_hosts_are_expanded);
  RUN(malformed_lists_are_refused);
  RUN(damaged_lists_do_no_harm);
  RUN(tasks_of_nodes_are_read);
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) != 0;
}
