/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of actortune --slo, which finds a server that meets given latencies. */
#include "tools/actortune/slo/slo.h"

#include <string.h>
#include <unistd.h>

#include "graph/devices/devices.h"
#include "tools/actortune/slo/slo_inner.h"

/* clang-format off */
static const tool_option options[] = {
    {"slo", SL_OPTION_TEXT, "", "`LEVELS` to meet, such as ttft=500ms,tpot@90=50ms: time to first "
     "token and time per further token, for that percentage of requests [99 %]", 0, 0, GROUP_SEARCH},
    {"goodput", SL_OPTION_FLAG, "0", "find the highest request rate that meets the levels, instead "
     "of the most tokens per second at the rate of --arrivals", 0, 0, GROUP_SEARCH},
    SERVING_OPTIONS,
    SERVING_WORKLOAD_OPTIONS,
    {"rows", SL_OPTION_TEXT, "", "`LIST` of maximum tokens per tick, such as 16,64,256; powers of "
     "two if not given", 0,
     0, GROUP_SERVING},
    {"sequences", SL_OPTION_TEXT, "", "`LIST` of maximum concurrent answers; as many as rows, at "
     "most 64, and a quarter and a 16th of that, if not given", 0, 0, GROUP_SERVING},
    {"groups", SL_OPTION_TEXT, "", "`LIST` of maximum ticks in flight; 1, and about the number of "
     "stages, if not given", 0, 0, GROUP_SERVING},
    {"quota", SL_OPTION_TEXT, "", "`kv=N` KV cache pages per stage; may be repeated to try several; "
     "if not given, from the pages for one sequence to those for all", 0, 0, GROUP_MEMORY},
    {"admit", SL_OPTION_TEXT, "", "`LIST` of reserve and recompute; both if not given", 0, 0, GROUP_SERVING},
    {"points", SL_OPTION_INT, "5", "maximum number of servers to show", 1, 1000, GROUP_SEARCH},
    {"threads", SL_OPTION_INT, "0", "threads of the search; 0: one per core", 0, 4096, GROUP_SEARCH},
    {0}};
/* clang-format on */

static const char *const shared[] = {"devices", "stages",  "memory", "seed",
                                     "machine", "adapter", "config", "print-config",
                                     "version", "help",    NULL};

static sl_status read_settings(settings *s) {
  if (!settings_text(s, "arrivals")) return sl_fail(SL_E_USAGE, "--slo: needs --arrivals FILE");
  if (sl_arg_int(s->run, "concurrency") || settings_text(s, "lengths"))
    return sl_fail(SL_E_USAGE, "--slo: searches the rate of --arrivals, not a closed loop");
  if (!settings_text(s, "tick") && !settings_text(s, "machine"))
    return sl_fail(SL_E_USAGE, "--slo: needs --tick or --machine for the durations of ticks");
  s->lower.devices.kind = "timed";
  return SL_OK;
}

static const tool slo_tool = {
    .name = "actortune --slo",
    .usage = "       with --slo LEVELS and --arrivals FILE\n",
    .purpose =
        "Finds the server settings that answer within given times: stages, ticks in\n"
        "flight, rows, concurrent answers, pages and admission, on the virtual clock.",
    .options = options,
    .shared = shared,
    .takes_weights = true,
    .read = read_settings,
    .serves = true};

static sl_status slo_main_find(settings *s) {
  hunt h = {.settings = s,
            .goodput = sl_arg_flag(s->run, "goodput"),
            .points = (int)sl_arg_int(s->run, "points")};
  int threads = (int)sl_arg_int(s->run, "threads");
  words_model(s, &h.model); /* as given: weights specify the rest */
  sl_status status = levels_read(sl_arg_text(s->run, "slo"), &h.levels);
  if (!status) status = serving_read(s);
  h.budget = s->lower.devices.budget_bytes;
  if (!status) status = serving_arrivals(s, &h.came);
  if (!status) status = serving_cost(s, &h.cost, &h.costed, &h.whole);
  if (!status) status = space_read(&h);
  if (!status) hunt_search(&h, threads ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN));
  if (!status) status = hunt_show(&h, stdout);
  hunt_fini(&h);
  return status;
}

bool slo_asked(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], "--slo") || !strncmp(argv[i], "--slo=", 6)) return true;
  return false;
}

int slo_main(int argc, char **argv) {
  settings s;
  interrupt_catch();
  sl_status status = settings_read(&slo_tool, argc, argv, &s);
  if (!status && !s.done) status = slo_main_find(&s);
  int exit_status = outputs_end("actortune", status, 0);
  settings_fini(&s);
  return exit_status;
}
