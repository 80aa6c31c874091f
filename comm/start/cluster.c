/* SPDX-License-Identifier: Apache-2.0 */
/* Detection of the launcher and of this process's place in its job.
 *
 * Launchers set environment variables, and they nest: srun starts mpirun's daemons, torchrun may be
 * started by srun, and any of them may start actorrun, which starts its own processes. The
 * innermost launcher is the right one, so the table below goes from the inside out. Only torchrun's
 * plain names (RANK, WORLD_SIZE) come late, because people also set them by hand.
 *
 * Launchers other than actorrun provide neither the address of process 0 nor the job's key. The
 * host of process 0 is taken from the launcher's list, and process 0 checks that it runs there; the
 * port is derived from the job's number. SLUICE_ENDPOINT overrides both. The key is derived from
 * the user's secret and the job's name; see secret.c. */
#include "comm/start/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/start/hostlist.h"

typedef const char *getter(const char *name);

enum { MOST_PROCESSES = 1 << 20, FIRST_PORT = 20000, PORTS = 12000 /* not ephemeral */ };

/* ---- values ------------------------------------------------------------------------------ */

static bool is_set(getter *get, const char *name) {
  const char *text = get(name);
  return text && *text;
}

static sl_status missing(const char *name, const char *starter) {
  return sl_fail(SL_E_INPUT, "%s is not set, but other variables of %s are", name, starter);
}

static sl_status read_number(getter *get, const char *starter, const char *name, long long low,
                             long long high, long long *out) {
  const char *text = get(name);
  if (!text || !*text) return missing(name, starter);
  char *end;
  long long v = strtoll(text, &end, 10);
  if (end == text || *end) return sl_fail(SL_E_INPUT, "%s=%s: not a whole number", name, text);
  if (v < low || v > high)
    return sl_fail(SL_E_INPUT, "%s=%s: must be between %lld and %lld", name, text, low, high);
  *out = v;
  return SL_OK;
}

static sl_status read_int(getter *get, const char *starter, const char *name, int low, int high,
                          int *out) {
  long long v = 0;
  sl_status status = read_number(get, starter, name, low, high, &v);
  if (!status) *out = (int)v;
  return status;
}

/* Reads a number. Leaves *out unchanged if the variable is not set. */
static sl_status read_int_if(getter *get, const char *name, int *out) {
  return is_set(get, name) ? read_int(get, "", name, 0, 1 << 30, out) : SL_OK;
}

/* Reads a job number, used only to tell jobs apart. */
static sl_status read_id(getter *get, const char *starter, const char *name, long long *out) {
  return read_number(get, starter, name, 0, INT64_C(1) << 40, out);
}

/* A launcher's variable names. The local ones may be NULL. */
typedef struct names {
  const char *starter, *process, *processes, *local, *locals;
} names;

static sl_status read_places(getter *get, const names *n, sli_cluster *c) {
  c->starter = n->starter;
  sl_status status = read_int(get, n->starter, n->processes, 1, MOST_PROCESSES, &c->nprocesses);
  if (!status) status = read_int(get, n->starter, n->process, 0, c->nprocesses - 1, &c->process);
  c->nlocal = 1;
  if (status || !n->local || (!is_set(get, n->local) && !is_set(get, n->locals))) return status;
  status = read_int(get, n->starter, n->locals, 1, c->nprocesses, &c->nlocal);
  return status ? status : read_int(get, n->starter, n->local, 0, c->nlocal - 1, &c->local);
}

/* ---- endpoints --------------------------------------------------------------------------- */

sl_status sli_cluster_check_endpoint(const char *name, const char *endpoint) {
  const char *colon = strrchr(endpoint, ':');
  char *end = NULL;
  long port = colon ? strtol(colon + 1, &end, 10) : 0;
  if (!colon || colon == endpoint || port < 1 || port > 65535 || *end)
    return sl_fail(SL_E_INPUT, "%s %s: not HOST:PORT", name, endpoint);
  size_t host = (size_t)(colon - endpoint);
  bool bracketed = endpoint[0] == '[' && endpoint[host - 1] == ']';
  if (!bracketed && memchr(endpoint, ':', host))
    return sl_fail(SL_E_INPUT, "%s %s: put an IPv6 address in brackets: [ADDRESS]:PORT", name,
                   endpoint);
  if (strlen(endpoint) >= sizeof((sli_cluster *)0)->endpoint)
    return sl_fail(SL_E_INPUT, "%s %s: too long", name, endpoint);
  return SL_OK;
}

static sl_status set_endpoint(const char *host, int port, sli_cluster *c) {
  bool bare = strchr(host, ':') && host[0] != '[';
  int n = snprintf(c->endpoint, sizeof c->endpoint, bare ? "[%s]:%d" : "%s:%d", host, port);
  if (n < (int)sizeof c->endpoint) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: too long for a host name", host);
}

static int port_of(uint64_t number) { return FIRST_PORT + (int)(number % PORTS); }

/* Takes SLUICE_ENDPOINT, if it is set. It is valid under any launcher. */
static sl_status given_endpoint(getter *get, sli_cluster *c) {
  const char *text = get("SLUICE_ENDPOINT");
  if (!text || !*text) return SL_OK;
  sl_status status = sli_cluster_check_endpoint("SLUICE_ENDPOINT", text);
  if (!status) snprintf(c->endpoint, sizeof c->endpoint, "%s", text);
  return status;
}

static sl_status misplaced(const sli_cluster *c, const char *host) {
  return sl_fail(
      SL_E_INPUT,
      "process 0 does not run on the job's first host, %s; set SLUICE_ENDPOINT=HOST:PORT for all "
      "processes to say where it runs (%s)",
      host, c->starter);
}

/* ---- actorrun ---------------------------------------------------------------------------- */

static bool by_actorrun(getter *get) {
  return is_set(get, "SLUICE_PROCESS") || is_set(get, "SLUICE_PROCESSES");
}

static sl_status read_actorrun(getter *get, sli_cluster *c) {
  static const names n = {"actorrun", "SLUICE_PROCESS", "SLUICE_PROCESSES", "SLUICE_LOCAL",
                          "SLUICE_LOCALS"};
  sl_status status = read_places(get, &n, c);
  if (!status) status = read_int_if(get, "SLUICE_INCARNATION", &c->incarnation);
  if (!status) status = given_endpoint(get, c);
  if (status) return status;
  if (c->nprocesses > 1 && !*c->endpoint) return missing("SLUICE_ENDPOINT", n.starter);
  const char *job = is_set(get, "SLUICE_JOB") ? get("SLUICE_JOB") : c->endpoint;
  if (snprintf(c->job, sizeof c->job, "%s", job) >= (int)sizeof c->job)
    return sl_fail(SL_E_INPUT, "SLUICE_JOB=%s: longer than %zu characters", job, sizeof c->job - 1);
  return SL_OK;
}

/* ---- Open MPI ---------------------------------------------------------------------------- */

static bool by_open_mpi(getter *get) {
  return is_set(get, "OMPI_COMM_WORLD_RANK") || is_set(get, "OMPI_COMM_WORLD_SIZE");
}

/* Returns the number of the mpirun daemon that started this process, or -1 if it is unknown; mpirun
 * itself is 0. It is the 2 of "1319763968.2;tcp://...", or in Open MPI 5 of
 * "prterun-vm-29573@0.2;tcp4://...". */
static int open_mpi_daemon(getter *get) {
  const char *uri = get("OMPI_MCA_orte_local_daemon_uri");
  if (!uri) uri = get("PMIX_SERVER_URI2");
  const char *at = uri ? strchr(uri, '@') : NULL, *dot = uri ? strchr(at ? at : uri, '.') : NULL;
  char *end;
  long v = dot ? strtol(dot + 1, &end, 10) : -1;
  return dot && end > dot + 1 && *end == ';' ? (int)v : -1;
}

/* Finds mpirun's own host in the job name of Open MPI 5: the vm of "prterun-vm-29573@1". */
static bool open_mpi_own(getter *get, char *host, size_t size) {
  static const char prefix[] = "prterun-";
  const char *name = get("PMIX_NAMESPACE");
  if (!name || strncmp(name, prefix, strlen(prefix))) return false;
  name += strlen(prefix);
  size_t n = strcspn(name, "@");
  while (n && name[n - 1] != '-') n--;
  if (n < 2) return false;
  snprintf(host, size, "%.*s", (int)n - 1, name);
  return true;
}

/* Finds the host of process 0 under the usual mappings: mpirun's own host if mpirun started
 * processes there, otherwise that of its first daemon. The list of hosts that daemons get
 * ("vm,n[1:1-2]@0(3)") begins with mpirun's own. Processes of mpirun itself get no list, but know
 * their host. Open MPI 5 provides mpirun's own host, but no list. */
static sl_status open_mpi_first(getter *get, const sli_cluster *c, char *host, size_t size,
                                int *daemon) {
  int nodes = 0, mine = open_mpi_daemon(get);
  const char *regex = get("OMPI_MCA_orte_node_regex"), *own = get("PMIX_HOSTNAME");
  if (mine == 0 && own && *own) {
    *daemon = 0;
    snprintf(host, size, "%s", own);
    return SL_OK;
  }
  *daemon = 0;
  if (mine > 0 && open_mpi_own(get, host, size)) return SL_OK;
  if (mine < 0 || !regex || read_int_if(get, "OMPI_MCA_orte_num_nodes", &nodes) || !nodes)
    return sl_fail(
        SL_E_INPUT,
        "%s does not say where process 0 is; set SLUICE_ENDPOINT=HOST:PORT for all processes "
        "(mpirun -x SLUICE_ENDPOINT)",
        c->starter);
  char *hosts = sli_format("%.*s", (int)strcspn(regex, "@"), regex);
  *daemon = sli_hostlist_count(hosts) > (size_t)nodes;
  sl_status status = sli_hostlist_at(hosts, (size_t)*daemon, host, size);
  if (status) status = sl_fail(SL_E_INPUT, "OMPI_MCA_orte_node_regex=%s", sl_detail());
  free(hosts);
  return status;
}

static sl_status open_mpi_endpoint(getter *get, uint64_t id, sli_cluster *c) {
  if (c->nlocal == c->nprocesses) return set_endpoint("127.0.0.1", port_of(id), c);
  char host[200];
  int daemon = 0;
  sl_status status = open_mpi_first(get, c, host, sizeof host, &daemon);
  if (status) return status;
  if (c->process == 0 && open_mpi_daemon(get) != daemon) return misplaced(c, host);
  return set_endpoint(host, port_of(id), c);
}

static sl_status read_open_mpi(getter *get, sli_cluster *c) {
  static const names n = {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  sl_status status = read_places(get, &n, c);
  if (status || c->nprocesses == 1) return status;
  const char *id =
      is_set(get, "PMIX_NAMESPACE") ? get("PMIX_NAMESPACE") : get("OMPI_MCA_ess_base_jobid");
  if (!id || !*id) return missing("PMIX_NAMESPACE", n.starter);
  snprintf(c->job, sizeof c->job, "mpirun-%.50s", id);
  if ((status = given_endpoint(get, c)) || *c->endpoint) return status;
  return open_mpi_endpoint(get, sli_hash(SLI_HASH_SEED, id, strlen(id)), c);
}

/* ---- Slurm ------------------------------------------------------------------------------- */

/* Slurm sets SLURM_PROCID in batch scripts, too, but a script is not a step: its processes do not
 * form a job. */
static bool by_slurm(getter *get) { return is_set(get, "SLURM_STEP_ID"); }

static sl_status slurm_locals(getter *get, const char *starter, sli_cluster *c) {
  int node = 0;
  const char *tasks = get("SLURM_STEP_TASKS_PER_NODE");
  if (!tasks || !*tasks) return missing("SLURM_STEP_TASKS_PER_NODE", starter);
  sl_status status = read_int(get, starter, "SLURM_NODEID", 0, MOST_PROCESSES, &node);
  if (status) return status;
  c->nlocal = sli_hostlist_tasks(tasks, (size_t)node);
  if (c->nlocal < 1 || c->nlocal > c->nprocesses)
    return sl_fail(SL_E_INPUT, "SLURM_STEP_TASKS_PER_NODE=%s: has no number of tasks for node %d",
                   tasks, node);
  return read_int(get, starter, "SLURM_LOCALID", 0, c->nlocal - 1, &c->local);
}

static sl_status slurm_endpoint(getter *get, int port, sli_cluster *c) {
  if (c->nlocal == c->nprocesses) return set_endpoint("127.0.0.1", port, c);
  const char *list = get("SLURM_STEP_NODELIST");
  if (!list || !*list) return missing("SLURM_STEP_NODELIST", c->starter);
  char host[200];
  sl_status status = sli_hostlist_at(list, 0, host, sizeof host);
  if (status) return sl_fail(status, "SLURM_STEP_NODELIST=%s", sl_detail());
  if (c->process == 0 && strcmp(get("SLURM_NODEID"), "0")) return misplaced(c, host);
  return set_endpoint(host, port, c);
}

static sl_status read_slurm(getter *get, sli_cluster *c) {
  static const names n = {"Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL, NULL};
  long long job = 0, step = 0;
  sl_status status = read_places(get, &n, c);
  if (status || c->nprocesses == 1) return status;
  status = slurm_locals(get, n.starter, c);
  if (!status) status = read_id(get, n.starter, "SLURM_JOB_ID", &job);
  if (!status) status = read_id(get, n.starter, "SLURM_STEP_ID", &step);
  if (!status) status = read_int_if(get, "SLURM_RESTART_COUNT", &c->incarnation);
  if (!status) status = given_endpoint(get, c);
  if (status) return status;
  snprintf(c->job, sizeof c->job, "slurm-%lld.%lld", job, step);
  if (*c->endpoint) return SL_OK;
  return slurm_endpoint(get, port_of((uint64_t)job * 61 + (uint64_t)step), c);
}

/* ---- torchrun ---------------------------------------------------------------------------- */

static bool by_torchrun(getter *get) { return is_set(get, "TORCHELASTIC_RUN_ID"); }
static bool by_torchruns_names(getter *get) {
  return is_set(get, "RANK") || is_set(get, "WORLD_SIZE");
}

/* Derives the endpoint. torchrun's own store may hold MASTER_PORT; then the next port is used. */
static sl_status torchrun_endpoint(getter *get, sli_cluster *c) {
  const char *host = get("MASTER_ADDR"), *stored = get("TORCHELASTIC_USE_AGENT_STORE");
  int port = 0;
  if (!host || !*host) return missing("MASTER_ADDR", c->starter);
  sl_status status = read_int(get, c->starter, "MASTER_PORT", 1, 65535, &port);
  if (status) return status;
  if (stored && !strcmp(stored, "True")) port += port < 65535 ? 1 : -1;
  return set_endpoint(host, port, c);
}

static sl_status read_torchrun(getter *get, sli_cluster *c) {
  static const names n = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  sl_status status = read_places(get, &n, c);
  if (!status) status = read_int_if(get, "TORCHELASTIC_RESTART_COUNT", &c->incarnation);
  if (!status) status = given_endpoint(get, c);
  if (status || c->nprocesses == 1) return status;
  if (!*c->endpoint && (status = torchrun_endpoint(get, c))) return status;
  const char *id = is_set(get, "TORCHELASTIC_RUN_ID") ? get("TORCHELASTIC_RUN_ID") : "none";
  uint64_t hash = sli_hash(SLI_HASH_SEED, id, strlen(id));
  /* A run without an id is identified by its endpoint, too. */
  if (!strcmp(id, "none")) hash = sli_hash(hash, c->endpoint, strlen(c->endpoint));
  snprintf(c->job, sizeof c->job, "torchrun-%.30s-%016llx", id, (unsigned long long)hash);
  return SL_OK;
}

/* ---- others ------------------------------------------------------------------------------ */

/* Launchers that provide ranks, but neither the host of process 0 nor an identifier of the job. */
static const names others[] = {
    {"MPICH's or Intel MPI's mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS"},
    {"MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH's mpirun", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_RANK",
     "MVP_COMM_WORLD_LOCAL_SIZE"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", NULL, NULL},
    {"IBM's jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE"},
    {"horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"},
    {"a launcher of JAX", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", NULL, NULL}};

/* Launchers that do not even provide the number of processes. */
static const struct {
  const char *starter, *process;
} strange[] = {{"a launcher with PMIx", "PMIX_RANK"},
               {"HPE's PALS", "PALS_RANKID"},
               {"Cray's aprun", "ALPS_APP_PE"},
               {"a launcher with PMI", "PMI_ID"},
               {"a launcher with PMI", "PMI_FD"}};

static const names *find_other(getter *get) {
  for (size_t i = 0; i < SLI_COUNT(others); i++)
    if (is_set(get, others[i].process) || is_set(get, others[i].processes)) return &others[i];
  return NULL;
}

/* Detects Hydra, which starts its proxies with srun under Slurm, so that its processes have the
 * variables of both. */
static bool by_hydra(getter *get) {
  return by_slurm(get) && is_set(get, "PMI_RANK") &&
         (is_set(get, "MPI_LOCALRANKID") || is_set(get, "MPI_LOCALNRANKS"));
}

static bool by_others(getter *get) {
  bool is = find_other(get);
  for (size_t i = 0; i < SLI_COUNT(strange); i++) is |= is_set(get, strange[i].process);
  return is;
}

static sl_status refuse_strange(getter *get) {
  size_t i = 0;
  while (!is_set(get, strange[i].process)) i++;
  return sl_fail(SL_E_INPUT,
                 "%s has set %s, but not how many processes there are; set SLUICE_PROCESS and "
                 "SLUICE_PROCESSES, and SLUICE_ENDPOINT=HOST:PORT where they meet",
                 strange[i].starter, strange[i].process);
}

static sl_status read_others(getter *get, sli_cluster *c) {
  const names *n = find_other(get);
  if (!n) return refuse_strange(get);
  sl_status status = read_places(get, n, c);
  if (!status) status = given_endpoint(get, c);
  if (status || c->nprocesses == 1) return status;
  if (!*c->endpoint)
    return sl_fail(SL_E_INPUT,
                   "%s has started %d processes (%s, %s), but does not say where they meet: set "
                   "SLUICE_ENDPOINT=HOST:PORT for all of them, with the host of process 0",
                   n->starter, c->nprocesses, n->process, n->processes);
  const char *job = is_set(get, "SLUICE_JOB") ? get("SLUICE_JOB") : c->endpoint;
  if (snprintf(c->job, sizeof c->job, "%s", job) >= (int)sizeof c->job)
    return sl_fail(SL_E_INPUT, "SLUICE_JOB=%s: longer than %zu characters", job, sizeof c->job - 1);
  return SL_OK;
}

/* ---- detection --------------------------------------------------------------------------- */

static const struct {
  bool (*is)(getter *get);
  sl_status (*read)(getter *get, sli_cluster *c);
} starters[] = {{by_actorrun, read_actorrun}, {by_torchrun, read_torchrun},
                {by_open_mpi, read_open_mpi}, {by_hydra, read_others},
                {by_slurm, read_slurm},       {by_torchruns_names, read_torchrun},
                {by_others, read_others}};

sl_status sli_cluster_detect(getter *get, sli_cluster *out) {
  sli_cluster c = {.nprocesses = 1, .nlocal = 1};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(starters); i++)
    if (starters[i].is(get)) {
      status = starters[i].read(get, &c);
      break;
    }
  if (status) return status;
  if (c.nprocesses == 1) *c.endpoint = *c.job = 0;
  else if ((status = sli_cluster_key(get, c.job, c.key))) return status;
  *out = c;
  return SL_OK;
}
