/* SPDX-License-Identifier: Apache-2.0 */
/* actorserve: serves a model over HTTP. The main thread handles connections, the session has its
 * own threads, and further threads read long bodies and tokenize texts. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/journal.h"
#include "tools/actorserve/videos.h"
#include "tools/actorserve/workload.h"

/* Prints the server's URL. */
static sl_status print_start(const settings *s, const served *served, const serving *server,
                             const char *host) {
  bool six = strchr(host, ':');
  if (sl_arg_flag(s->run, "quiet")) return SL_OK;
  bool good = printf("%s at http://%s%s%s:%d/v1\n", served->chat_format.name, six ? "[" : "", host,
                     six ? "]" : "", http_port(server->http)) > 0;
  return good && !fflush(stdout)
             ? SL_OK
             : sl_fail(SL_E_IO, "cannot write standard output: %s", strerror(errno));
}

/* Adds up the weights on all devices. */
static size_t weights_of(const sl_plan *plan) {
  size_t weights = 0;
  for (int32_t d = 0; d < plan->ndevices; d++)
    weights += sl_plan_memory(plan, d, SL_MEMORY_PARAMETERS);
  return weights;
}

static void print_draft(const served *served) {
  const sl_session *draft = sl_session_draft(served->session);
  if (!draft) return;
  sl_session_info a = sl_session_about(draft);
  char of_weights[32], of_device[32];
  sli_log(
      "%s: draft model %s: weights %s, context %lld tokens, KV cache %lld pages; %s on its device",
      served->chat_format.name, draft_model_path(served->draft),
      sli_format_bytes(of_weights, (double)weights_of(a.plan)), (long long)a.context,
      (long long)a.pages, sli_format_bytes(of_device, (double)a.device_bytes));
}

/* Prints what is served to standard error, because scripts read standard output. */
static void print_sizes(const served *served) {
  sl_session_info a = sl_session_about(served->session);
  char of_weights[32], of_device[32];
  sli_log(
      "%s: weights %s, context %lld tokens, KV cache %lld pages of %d tokens, up to %d concurrent answers; %s on the largest device",
      served->chat_format.name, sli_format_bytes(of_weights, (double)weights_of(a.plan)),
      (long long)a.context, (long long)a.pages, SL_SESSION_PAGE, a.sequences,
      sli_format_bytes(of_device, (double)a.device_bytes));
  print_draft(served);
  if (!a.state_bytes) return;
  sli_log("%s: states %s of each answer, times %d; %d more are kept beside pages, %s",
          served->chat_format.name, sli_format_bytes(of_weights, (double)a.state_bytes),
          a.state_slots, a.states,
          sli_format_bytes(of_device, (double)a.states * (double)a.state_bytes));
}

static sl_status open_access(const char *path, sli_journal **out) {
  *out = NULL;
  if (!path) return SL_OK;
  sl_status status = strcmp(path, "-") ? sli_journal_append(path, out)
                                       : sli_journal_to(STDERR_FILENO, "standard error", out);
  return status ? sl_fail(status, "--access-log: %s", sl_detail()) : SL_OK;
}

static sl_status serve_with(const settings *s, served *served, const char *key,
                            sli_journal *access) {
  const serve_options options = {.host = sl_arg_text(s->run, "host"),
                                 .port = (int)sl_arg_int(s->run, "port"),
                                 .key = key,
                                 .cors = sl_arg_text(s->run, "cors"),
                                 .most_held_bytes = access_bytes(s),
                                 .grace_seconds = sl_arg_float(s->run, "grace"),
                                 .adapter_dir = settings_text(s, "adapter-dir"),
                                 .stuck_seconds = sl_arg_float(s->run, "stuck"),
                                 .head_seconds = SERVE_HEAD_SECONDS,
                                 .body_seconds = SERVE_BODY_SECONDS,
                                 .idle_seconds = SERVE_IDLE_SECONDS,
                                 .stall_seconds = SERVE_STALL_SECONDS,
                                 .rates = &served->rates,
                                 .quiet = sl_arg_flag(s->run, "quiet"),
                                 .access = access};
  serving *server;
  sl_status status = serving_create(&options, &served->engine, &served->chat_format, &server);
  if (status) return status;
  access_warn(options.host, key);
  if (!options.quiet) print_sizes(served);
  status = print_start(s, served, server, options.host);
  if (!status) status = serving_run(server);
  serving_destroy(server);
  return status;
}

static sl_status serve(const settings *s, served *served) {
  char *key = NULL;
  sli_journal *access;
  sl_status status = open_access(settings_text(s, "access-log"), &access);
  if (!status) status = access_key(s, &key);
  if (!status) status = serve_with(s, served, key, access);
  free(key);
  return sli_journal_finish(access, "access-log", status);
}

/* Waits, in any process but the first. The first process handles requests and ends all
 * processes. */
static sl_status wait_for_first(const served *served) {
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  return sl_session_wait(served->session);
}

static sl_status serve_here(settings *s) {
  served m = {0};
  static const output written[] = {
      {"report", NULL}, {"log", NULL}, {"trace", NULL}, {"measure", NULL}, {"access-log", NULL}};
  const char *report = settings_text(s, "report");
  sl_status status = s->process ? SL_OK : outputs_try(s->run, written, SLI_COUNT(written), true);
  bool measures = settings_text(s, "measure"), bounded = measures || serving_has_arrivals(s);
  if (!status && videos_given(s)) return videos_serve(s);
  if (!status)
    status = measures ? measure(s, &m) : bounded ? workload_run(s, &m) : model_open(s, &m);
  if (!status && !bounded) status = s->process ? wait_for_first(&m) : serve(s, &m);
  if (!status && !bounded && report && !s->process) status = report_write(report, &m);
  char *detail = sli_strdup(status ? sl_detail() : "");
  sl_status closed = model_close(&m);
  if (status) sl_fail(status, "%s", detail);
  free(detail);
  return status ? status : closed;
}

/* Serves in this process, or starts processes that serve. */
static sl_status serve_or_launch(settings *s, int *exit_status) {
  static const launch_again again = {NULL, ""};
  sli_cluster cluster;
  bool launched = false;
  sl_status status = sli_cluster_detect((const char *(*)(const char *))getenv, &cluster);
  if (!status) status = launch_run(s, &cluster, &again, &launched, exit_status);
  return status || launched ? status : serve_here(s);
}

int main(int argc, char **argv) {
  settings s;
  int exit_status = 0;
  sl_status status = settings_read(&actorserve_tool, argc, argv, &s);
  if (!status && !s.done) status = serve_or_launch(&s, &exit_status);
  exit_status = outputs_end("actorserve", status, exit_status);
  settings_fini(&s);
  return exit_status;
}
