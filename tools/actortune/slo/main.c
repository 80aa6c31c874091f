/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of actortune serve, which finds servers that meet given latencies. */
#include "tools/actortune/slo/slo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/devices/devices.h"
#include "tools/actortune/slo/slo_inner.h"

/* clang-format off */
static const tool_option options[] = {
    {"slo", SL_OPTION_TEXT, "", "`LEVELS` to meet, such as ttft=500ms,tpot@90=50ms: time to first "
     "token and time per further token, for that percentage of requests [99 %]; with energy the server that takes the "
     "fewest joules per token is the best", 0, 0, GROUP_SEARCH},
    {"goodput", SL_OPTION_FLAG, "0", "find the highest request rate per device that meets the levels, instead "
     "of the most tokens per second at the rate of --arrivals", 0, 0, GROUP_SEARCH},
    {"exhaustive", SL_OPTION_FLAG, "0", "simulate all servers, also those that cannot be the best", 0, 0, GROUP_SEARCH},
    SERVING_OPTIONS,
    SERVING_WORKLOAD_OPTIONS,
    {"stages", SL_OPTION_TEXT, "", "`LIST` of numbers of stages, such as 1,2,4; if not given, up to the number of "
     "devices", 0, 0, GROUP_PARALLEL},
    {"tensor", SL_OPTION_TEXT, "", "`LIST` of numbers of devices that share each stage; if not given, with --machine "
     "up to those of a host", 0, 0, GROUP_PARALLEL},
    {"replicas", SL_OPTION_TEXT, "", "`LIST` of numbers of servers that share the requests; if not given, with "
     "--machine up to what the devices hold", 0, 0, GROUP_SERVING},
    {"prefill", SL_OPTION_TEXT, "", "`LIST` of numbers of servers that compute prompts only, whose pages travel to "
     "the others; 0: none; if not given, with --machine none and up to what the devices hold", 0, 0, GROUP_SERVING},
    {"rows", SL_OPTION_TEXT, "", "`LIST` of maximum tokens per tick, such as 16,64,256; powers of "
     "two if not given", 0,
     0, GROUP_SERVING},
    {"sequences", SL_OPTION_TEXT, "", "`LIST` of maximum concurrent answers; if not given, as many as rows or open "
     "requests, and fractions of that", 0, 0, GROUP_SERVING},
    {"groups", SL_OPTION_TEXT, "", "`LIST` of maximum ticks in flight; 1, and about the number of "
     "stages, if not given", 0, 0, GROUP_SERVING},
    {"quota", SL_OPTION_TEXT, "", "`kv=N` KV cache pages per stage; may be repeated to try several; "
     "if not given, as many as are used and fit, and with --tick fewer", 0, 0, GROUP_MEMORY},
    {"admit", SL_OPTION_TEXT, "", "`LIST` of reserve and recompute; if not given, recompute, and with --tick both", 0, 0, GROUP_SERVING},
    {"points", SL_OPTION_INT, "5", "maximum number of servers to show", 1, 1000, GROUP_SEARCH},
    {"threads", SL_OPTION_INT, "0", "threads of the search; 0: one per core", 0, 4096, GROUP_SEARCH},
    {0}};
/* clang-format on */

static const char *const shared[] = {"devices", "memory",       "seed",    "machine", "adapter",
                                     "config",  "print-config", "version", "help",    NULL};

static sl_status read_settings(settings *s) {
  bool loop = sl_arg_int(s->run, "concurrency"),
       energy = strstr(sl_arg_text(s->run, "slo"), "energy");
  if (!settings_text(s, "arrivals") && !settings_text(s, "lengths"))
    return sl_fail(SL_E_USAGE, "--slo: needs --arrivals FILE, or --concurrency and --lengths");
  if (loop && sl_arg_flag(s->run, "goodput"))
    return sl_fail(SL_E_USAGE,
                   "--goodput: a closed loop has no rate: needs --arrivals without --concurrency");
  if (!settings_text(s, "tick") && !settings_text(s, "machine"))
    return sl_fail(SL_E_USAGE, "--slo: needs --tick or --machine for the durations of ticks");
  if (energy && sl_arg_flag(s->run, "goodput"))
    return sl_fail(SL_E_USAGE, "--goodput: cannot be combined with --slo energy");
  if (energy && !energy_is_known(&s->modelled.hardware))
    return sl_fail(SL_E_USAGE, "--slo energy: needs a --machine whose file has \"energy\"");
  s->lower.devices.kind = "timed";
  return SL_OK;
}

static const first_option first[] = {
    {"slo", "`LEVELS` to meet, such as ttft=500ms,tpot@90=50ms"},
    {"machine", "`FILE` or name of modelled hardware, or here"},
    {"devices", "`SPEC`: timed:8, all devices that may be used"},
    {"concurrency", "clients of a closed loop"},
    {"lengths", "`PROMPT,ANSWER` tokens of their requests"},
    {"arrivals", "`FILE` with requests that arrive at their times"},
    {"goodput", "find the highest rate of --arrivals"},
    {"dtype", "`TYPE` of weights: stored, fp32, bf16 or fp8; several to choose from: bf16,fp8"},
    {"kv", "`TYPE` of the KV cache: fp32, bf16, q8_0 or fp8; several: bf16,fp8"},
    {"points", "maximum number of servers to show"},
    {0}};

static const tool slo_tool = {
    .name = "actortune serve",
    .usage = "       with --arrivals FILE, or --concurrency N --lengths PROMPT,ANSWER\n",
    .purpose =
        "Finds the servers that answer within given times with the most tokens per second and\n"
        "device: stages, tensor parallelism, replicas, servers for prompts, ticks in flight, rows,\n"
        "concurrent answers, pages, admission and types of weights and of keys and values, on the\n"
        "virtual clock.",
    .options = options,
    .first = first,
    .shared = shared,
    .takes_weights = true,
    .read = read_settings,
    .serves = true};

/* ---- formats --------------------------------------------------------------------------------- */

/* Finds the value of an option, in "--NAME VALUE" or "--NAME=VALUE"; returns its place, or 0. */
static int find_value(int argc, char **argv, const char *name, const char **value) {
  size_t n = strlen(name);
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--", 2) || strncmp(argv[i] + 2, name, n)) continue;
    const char *end = argv[i] + 2 + n;
    *value = *end == '=' ? end + 1 : !*end && i + 1 < argc ? argv[i + 1] : NULL;
    if (*value) return *end == '=' ? i : i + 1;
  }
  return 0;
}

/* Splits an option's words at commas; without the option there is one format. */
static int read_formats(int argc, char **argv, const char *name, formats *out) {
  const char *value = NULL;
  int place = find_value(argc, argv, name, &value);
  char *copy = sli_strdup(place ? value : ""), *state = NULL;
  for (char *word = strtok_r(copy, ",", &state); word; word = strtok_r(NULL, ",", &state)) {
    out->words = sli_realloc(out->words, (size_t)out->count + 1, sizeof *out->words);
    out->words[out->count++] = sli_strdup(word);
  }
  free(copy);
  if (out->count) return place;
  out->words = sli_realloc(out->words, 1, sizeof *out->words);
  out->words[out->count++] = sli_strdup("");
  return 0;
}

/* Reads the settings with one of the formats of each option. */
static sl_status read_format(hunt *h, int argc, char **argv, const int places[2], int format) {
  const char *names[] = {"dtype", "kv"}, *words[] = {h->dtypes.words[format / h->kvs.count],
                                                     h->kvs.words[format % h->kvs.count]};
  char *with[argc + 1], *made[2] = {NULL};
  memcpy(with, argv, ((size_t)argc + 1) * sizeof *with);
  for (int i = 0; i < 2; i++) {
    if (!places[i]) continue;
    bool apart = strncmp(argv[places[i]], "--", 2) != 0;
    made[i] = apart ? sli_strdup(words[i]) : sli_format("--%s=%s", names[i], words[i]);
    with[places[i]] = made[i];
  }
  settings *s = &h->of_formats[format];
  sl_status status = settings_read(&slo_tool, argc, with, s);
  if (!status && !s->done) status = serving_read(s);
  free(made[0]);
  free(made[1]);
  return status;
}

/* Reads the settings of all formats. */
static sl_status read_all(hunt *h, int argc, char **argv, int *nread) {
  const int places[] = {read_formats(argc, argv, "dtype", &h->dtypes),
                        read_formats(argc, argv, "kv", &h->kvs)};
  int count = h->dtypes.count * h->kvs.count;
  sl_status status = SL_OK;
  h->of_formats = sli_calloc((size_t)count, sizeof *h->of_formats);
  h->settings = h->of_formats;
  for (int f = 0; f < count && !status && !h->of_formats[0].done; f++) {
    status = read_format(h, argc, argv, places, f);
    *nread = f + 1;
  }
  return status;
}

/* ---- the search ------------------------------------------------------------------------------ */

static sl_status slo_main_find(hunt *h) {
  settings *s = h->of_formats;
  int threads = (int)sl_arg_int(s->run, "threads");
  h->goodput = sl_arg_flag(s->run, "goodput");
  h->all = sl_arg_flag(s->run, "exhaustive");
  h->points = (int)sl_arg_int(s->run, "points");
  words_model(s, &h->model); /* as given: weights specify the rest */
  bool levels = sl_arg_given(s->run, "slo", 0);
  sl_status status = levels ? levels_read(sl_arg_text(s->run, "slo"), &h->levels) : SL_OK;
  h->budget = s->lower.devices.budget_bytes;
  if (!status) status = serving_arrivals(s, &h->came);
  if (!status) status = serving_cost(s, &h->cost, &h->costed, &h->whole);
  if (!status) status = space_read(h);
  if (!status) hunt_search(h, threads ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN));
  return status ? status : hunt_show(h, stdout);
}

bool slo_asked(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], "--slo") || !strncmp(argv[i], "--slo=", 6)) return true;
  return false;
}

int slo_main(int argc, char **argv) {
  hunt h = {0};
  int nread = 0;
  interrupt_catch();
  sl_status status = read_all(&h, argc, argv, &nread);
  if (!status && !h.settings->done) status = slo_main_find(&h);
  int exit_status = outputs_end("actortune", status, 0);
  hunt_fini(&h);
  for (int f = 0; f < nread; f++) settings_fini(&h.of_formats[f]);
  free(h.of_formats);
  return exit_status;
}
