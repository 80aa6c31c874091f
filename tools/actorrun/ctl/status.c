/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/ctl/status.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/json.h"
#include "base/json_text.h"
#include "tools/actorrun/ctl/client.h"
#include "tools/cli/cli.h"
#include "tools/control/control.h"

/* Timeout, longer than a process waits for other processes of its job. */
enum { PATIENCE_SECONDS = 3 };

static status_style choose_style(void) {
  struct winsize size;
  bool terminal = isatty(STDOUT_FILENO);
  bool known = terminal && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col;
  return (status_style){.width = known      ? size.ws_col
                                 : terminal ? 80
                                            : 0,
                        .colour = terminal && !getenv("NO_COLOR")};
}

static sl_status check_items(const sli_json *answer, const cJSON *list, sli_json_kind kind) {
  sl_status status = SL_OK;
  for (const cJSON *at = list ? list->child : NULL; at && !status; at = at->next)
    status = sli_json_is(answer, at, kind);
  return status;
}

static sl_status check_process(const sli_json *answer, const cJSON *process) {
  const cJSON *devices = NULL;
  const char *host = NULL;
  double pid = 0;
  const sli_json_field fields[] = {{"host", SLI_JSON_TEXT, &host, 0, 0, false},
                                   {"pid", SLI_JSON_NUMBER, &pid, 0, 1e10, false},
                                   {"devices", SLI_JSON_ARRAY, &devices, 0, 0, false}};
  sl_status status = sli_json_pick(answer, process, fields, SLI_COUNT(fields));
  return status ? status : check_items(answer, devices, SLI_JSON_TEXT);
}

/* Checks the parts of an answer that are accessed without further checks. */
static sl_status check_answer(const sli_json *answer) {
  const cJSON *processes = NULL, *devices = NULL, *serving = NULL, *limits = NULL;
  const char *job = NULL;
  const sli_json_field fields[] = {{"job", SLI_JSON_TEXT, &job, 0, 0, false},
                                   {"processes", SLI_JSON_ARRAY, &processes, 0, 0, false},
                                   {"devices", SLI_JSON_ARRAY, &devices, 0, 0, false},
                                   {"serving", SLI_JSON_OBJECT, &serving, 0, 0, false}};
  sl_status status = sli_json_pick(answer, answer->root, fields, SLI_COUNT(fields));
  for (const cJSON *at = processes ? processes->child : NULL; at && !status; at = at->next)
    status = check_process(answer, at);
  if (!status && serving)
    status = sli_json_member(answer, serving, "limits", SLI_JSON_OBJECT, false, &limits);
  return status ? status : check_items(answer, limits, SLI_JSON_NUMBER);
}

/* Removes control characters from names in an answer, which are shown on a terminal. */
static void make_plain(cJSON *item) {
  if (cJSON_IsString(item)) {
    char *plain = client_plain(item->valuestring);
    cJSON_SetValuestring(item, plain);
    free(plain);
  }
  cJSON *child;
  cJSON_ArrayForEach(child, item) make_plain(child);
}

static sl_status ask(pid_t pid, cJSON **out) {
  char *text, name[64];
  sli_json answer = {0};
  sl_status status = client_ask(pid, "status", PATIENCE_SECONDS, &text);
  if (status) return status;
  snprintf(name, sizeof name, "process %ld has answered", (long)pid);
  status = sli_json_read(name, text, strlen(text), 0, &answer);
  free(text);
  if (!status) status = check_answer(&answer);
  *out = status ? NULL : answer.root;
  if (!status) make_plain(answer.root), answer.root = NULL;
  sli_json_fini(&answer);
  return status ? SL_E_PEER : SL_OK;
}

static void print_json(const cJSON *json) {
  char *text = sli_json_mend(cJSON_Print(json));
  SLI_CHECK(text, "no memory for the answer");
  puts(text);
  cJSON_free(text);
}

/* Returns whether one of the jobs includes this process, as reported by a process on this
 * machine. */
static bool is_told_of(const cJSON *jobs, pid_t pid) {
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  const cJSON *job, *process;
  cJSON_ArrayForEach(job, jobs) cJSON_ArrayForEach(process, cJSON_GetObjectItem(job, "processes")) {
    const cJSON *where = cJSON_GetObjectItem(process, "host");
    const cJSON *who = cJSON_GetObjectItem(process, "pid");
    if (where && who && !strcmp(where->valuestring, host) && who->valuedouble == pid) return true;
  }
  return false;
}

static int count_silent(const cJSON *job) {
  int n = 0;
  const cJSON *process;
  cJSON_ArrayForEach(process, cJSON_GetObjectItem(job, "processes")) n +=
      cJSON_IsTrue(cJSON_GetObjectItem(process, "silent"));
  return n;
}

/* Adds a job, or replaces a less complete report of the same job. */
static void add_job(cJSON *jobs, cJSON *job) {
  const cJSON *name = cJSON_GetObjectItem(job, "job");
  for (int i = 0; name && i < cJSON_GetArraySize(jobs); i++) {
    cJSON *there = cJSON_GetArrayItem(jobs, i);
    const cJSON *other = cJSON_GetObjectItem(there, "job");
    if (!other || strcmp(other->valuestring, name->valuestring)) continue;
    if (count_silent(job) < count_silent(there)) cJSON_ReplaceItemInArray(jobs, i, job);
    else cJSON_Delete(job);
    return;
  }
  cJSON_AddItemToArray(jobs, job);
}

/* Asks all jobs that have a process here, each once, and names processes that do not answer. */
static cJSON *ask_all(void) {
  cJSON *jobs = cJSON_CreateArray(), *job;
  pid_t *pids;
  size_t n = socket_list(&pids);
  for (size_t i = 0; i < n; i++) {
    if (is_told_of(jobs, pids[i])) continue;
    sl_status status = ask(pids[i], &job);
    if (!status) add_job(jobs, job);
    else if (status == SL_E_PEER) fprintf(stderr, "actorrun: %s\n", sl_detail());
  }
  free(pids);
  return jobs;
}

static void show_all(bool json) {
  cJSON *jobs = ask_all();
  status_style style = choose_style();
  const cJSON *job;
  if (json) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddItemToObject(root, "jobs", jobs);
    print_json(root);
    cJSON_Delete(root);
    return;
  }
  if (!cJSON_GetArraySize(jobs)) printf("this user has no job running on this machine\n");
  cJSON_ArrayForEach(job, jobs) {
    if (job != jobs->child) printf("\n");
    status_show(job, false, &style, stdout);
  }
  cJSON_Delete(jobs);
}

static sl_status show_one(const char *word, bool json) {
  pid_t pid;
  cJSON *job;
  sl_status status = client_pid(word, &pid);
  if (!status) status = ask(pid, &job);
  if (status) return status;
  status_style style = choose_style();
  if (json) print_json(job);
  else status_show(job, true, &style, stdout);
  cJSON_Delete(job);
  return SL_OK;
}

static const sl_option options[] = {{"json", SL_OPTION_FLAG, "0", "print one JSON object", 0, 0},
                                    {"help", SL_OPTION_FLAG, "0", "show this", 0, 0},
                                    {0}};
static const manual_command command = {
    .name = "actorrun status",
    .usage = "actorrun status [--json] [PID]",
    .purpose =
        "Shows this user's running jobs on this machine, or the details of one job:\n"
        "its progress, its processes, and what each device runs or waits for. PID may\n"
        "be any process of the job, or the actorrun that started it.",
    .options = options,
    .words = ""};

static int help(FILE *out, int exit_status) {
  manual_command_help(&command, out);
  return outputs_end("actorrun", SL_OK, exit_status);
}

int status_main(int argc, char **argv) {
  bool json = false;
  const char *pid = NULL;
  if (manual_command_asked(&command, argc, argv)) return outputs_end("actorrun", SL_OK, 0);
  for (int i = 0; i < argc; i++) {
    if (!strcmp(argv[i], "--json")) json = true;
    else if (!strcmp(argv[i], "--help")) return help(stdout, 0);
    else if (!pid && argv[i][0] != '-') pid = argv[i];
    else return help(stderr, 2);
  }
  sl_status status = SL_OK;
  if (pid) status = show_one(pid, json);
  else show_all(json);
  return outputs_end("actorrun", status, 0);
}
