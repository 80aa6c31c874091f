/* SPDX-License-Identifier: Apache-2.0 */
/* actortune's options, and those that it takes as lists and ranges. */
#include "tools/actortune/actortune.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "graph/devices/devices.h"

/* clang-format off */
static const tool_option options[] = {
    {"chunks", SL_OPTION_TEXT, "", "`LIST` of numbers of chunks per device; the schedules' own if "
     "not given", 0, 0, GROUP_SCHEDULE},
    {"microbatches", SL_OPTION_TEXT, "1", "`LIST` of numbers of microbatches per step, such as "
     "4,8,16 or 4..8", 0, 0, GROUP_SCHEDULE},
    {"pieces", SL_OPTION_TEXT, "1", "`LIST` of numbers of pieces that the sequences of a microbatch "
     "are cut into, along their positions", 0, 0, GROUP_SCHEDULE},
    {"schedule", SL_OPTION_TEXT, "", "`NAMES` of the schedules to start from, such as "
     "1f1b,zb-h1; all those below if not given", 0, 0, GROUP_SCHEDULE},
    {"memory", SL_OPTION_TEXT, "", "memory budgets of a device, a `RANGE` such as 1G..8G, or the "
     "maximum, such as 8G; no limit if not given", 0, 0, GROUP_MEMORY},
    {"cost", SL_OPTION_TEXT, "", "seconds per pass of a chunk on timed devices, with the first "
     "--microbatches, a `LIST` such as F=1,B=1,W=1,comm=0; per pass of a device's whole share if plans differ in "
     "chunks; estimated from the ops if not given", 0, 0, GROUP_SCHEDULE},
    {"profile", SL_OPTION_TEXT, "", "`FILE` with measured op durations: the --report of an earlier "
     "run; may be repeated, one per microbatch size; CPU devices are measured if not given", 0, 0, GROUP_SCHEDULE},
    {"measure", SL_OPTION_INT, "5", "steps to run for measuring durations", 2, 1e6, GROUP_SEARCH},
    {"keep", SL_OPTION_TEXT, "", "save the measurements for --profile, in files whose names begin "
     "with `PREFIX`", 0, 0, GROUP_SEARCH},
    {"effort", SL_OPTION_INT, "1000", "maximum number of plans to try", 1, 1e9, GROUP_SEARCH},
    {"points", SL_OPTION_INT, "12", "maximum number of plans to show", 2, 1000, GROUP_SEARCH},
    {"threads", SL_OPTION_INT, "0", "threads of the search; 0: one per core", 0, 4096, GROUP_SEARCH},
    {"verify", SL_OPTION_INT, "0", "run the `N` fastest plans, and compare predicted with measured "
     "times", 0, 1000, GROUP_SEARCH},
    {"verify-steps", SL_OPTION_INT, "10", "steps of each --verify run", 2, 1e6, GROUP_SEARCH},
    {"svg", SL_OPTION_TEXT, "", "`FILE` for a plot of step time against memory", 0, 0, GROUP_OUTPUT},
    {"csv", SL_OPTION_TEXT, "", "`FILE` for the table of plans", 0, 0, GROUP_OUTPUT},
    {"json", SL_OPTION_TEXT, "", "`FILE` for the table with all details of each plan", 0,
     0, GROUP_OUTPUT},
    {"quiet", SL_OPTION_FLAG, "0", "print no progress and no plot in the terminal", 0, 0, GROUP_OUTPUT},
    {0}};
/* clang-format on */

/* ---- lists ----------------------------------------------------------------------------- */

void numbers_add(numbers *to, int value) {
  for (int i = 0; i < to->count; i++)
    if (to->values[i] == value) return;
  to->values = sli_realloc(to->values, (size_t)to->count + 1, sizeof *to->values);
  to->values[to->count++] = value;
}

/* Parses "4", "4,8,16", "4..8" and combinations. */
sl_status numbers_read(const settings *s, const char *option, numbers *out) {
  enum { MOST = 256, MOST_NUMBER = 1 << 20 };
  const char *text = sl_arg_text(s->run, option), *at = text;
  bool good = true;
  while (good && *at) {
    int first, last;
    good = sli_number_read(&at, 1, MOST_NUMBER, &first);
    last = first;
    if (good && !strncmp(at, "..", 2))
      at += 2, good = sli_number_read(&at, first, MOST_NUMBER, &last);
    good = good && last - first < MOST && (!*at || (*at == ',' && at[1]));
    for (int v = first; good && v <= last; v++) numbers_add(out, v);
    if (good && *at) at++;
  }
  if (good && out->count <= MOST) return SL_OK;
  return sl_fail(SL_E_USAGE, "--%s %s: not a list of numbers such as 4,8,16 or 4..8", option, text);
}

static sl_status add_schedule(sweep *w, const char *name, size_t length) {
  for (const char *const *at = sl_schedule_names(); *at; at++) {
    if (strlen(*at) != length || strncmp(*at, name, length)) continue;
    if (!strcmp(*at, "auto"))
      return sl_fail(SL_E_USAGE,
                     "--schedule auto: actortune is a search itself; name the "
                     "schedules it should start from, or none");
    w->schedules[w->nschedules++] = *at;
    return SL_OK;
  }
  char word[64];
  snprintf(word, sizeof word, "%.*s", (int)length, name);
  return options_check_word("schedule", word, sl_schedule_names());
}

/* Returns whether a schedule is worth trying. Without pieces seq1f1b is the same as 1f1b. */
static bool worth_it(const sweep *w, const char *name) {
  bool pieces = w->pieces.count > 1 || w->pieces.values[0] > 1;
  return strcmp(name, "auto") && (pieces || strcmp(name, "seq1f1b"));
}

static sl_status read_schedules(const settings *s, sweep *w) {
  const char *text = sl_arg_text(s->run, "schedule");
  size_t most = 1;
  for (const char *at = text; *at; at++) most += *at == ',';
  for (const char *const *at = sl_schedule_names(); *at; at++) most++;
  w->schedules = sli_calloc(most, sizeof *w->schedules);
  if (!*text)
    for (const char *const *at = sl_schedule_names(); *at; at++)
      if (worth_it(w, *at)) w->schedules[w->nschedules++] = *at;
  for (const char *at = text; *at;) {
    size_t n = strcspn(at, ",");
    sl_status status = add_schedule(w, at, n);
    if (status) return status;
    at += n + (at[n] == ',');
  }
  return SL_OK;
}

/* Reads "8G" or "1G..8G". Modelled hardware has its own budget. */
static sl_status read_budgets(const settings *s, sweep *w) {
  const char *text = settings_text(s, "memory"), *at = text;
  w->most_bytes = s->modelled.hardware.memory_bytes;
  if (!text) return SL_OK;
  bool good = sli_number_read_size(&at, &w->most_bytes);
  if (good && !strncmp(at, "..", 2)) {
    w->least_bytes = w->most_bytes;
    at += 2;
    good = sli_number_read_size(&at, &w->most_bytes) && w->most_bytes >= w->least_bytes;
  }
  if (good && !*at) return SL_OK;
  return sl_fail(SL_E_USAGE, "--memory %s: not a size such as 8G, nor a range such as 1G..8G",
                 text);
}

sl_status sweep_read(const settings *s, sweep *out) {
  sweep w = {0};
  sl_status status = numbers_read(s, "microbatches", &w.microbatches);
  if (!status) status = numbers_read(s, "pieces", &w.pieces);
  if (!status) status = numbers_read(s, "chunks", &w.chunks);
  if (!status && !w.microbatches.count) numbers_add(&w.microbatches, 1);
  if (!status && !w.pieces.count) numbers_add(&w.pieces, 1);
  if (!status) status = read_schedules(s, &w);
  if (!status) status = read_budgets(s, &w);
  if (status) sweep_fini(&w);
  else *out = w;
  return status;
}

void sweep_fini(sweep *w) {
  free(w->microbatches.values);
  free(w->pieces.values);
  free(w->chunks.values);
  free(w->schedules);
  *w = (sweep){0};
}

/* Reads the settings. Options with one value per plan are set for each configuration. */
static sl_status read(settings *s) {
  s->lower.devices.budget_bytes = 0;
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind);
  if (!kind->computes && !kind->modelled)
    return sl_fail(SL_E_USAGE, "--devices %s: %s devices take no time, so there is nothing to tune",
                   sl_arg_text(s->run, "devices"), kind->name);
  return SL_OK;
}

static const first_option first[] = {
    {"devices", "`SPEC`: cpu:4, cuda, or timed:8 (modelled)"},
    {"stages", "pipeline stages; one per device if not given"},
    {"microbatches", "`LIST` of microbatches per step, such as 4,8,16 or 4..8"},
    {"schedule", "`NAMES` to start from; all if not given"},
    {"memory", "`RANGE` of memory budgets of a device, such as 1G..8G"},
    {"machine", "`FILE` or name of modelled hardware, or here"},
    {"profile", "`FILE` with durations that an earlier run measured"},
    {"effort", "maximum number of plans to try; 1000 if not given"},
    {"verify", "run the `N` fastest plans"},
    {"svg", "`FILE` for a plot of step time against memory"},
    {0}};

const tool actortune_tool = {
    .name = "actortune",
    .usage = "       actortune plan | serve | ranges | machine | compare ...  (see its --help)\n",
    .purpose =
        "Searches schedules and quotas on the virtual clock, shows what each byte of\n"
        "memory buys in time, and prints the actorrun command of every plan worth having.",
    .options = options,
    .first = first,
    .commands = "plan serve ranges machine compare",
    .read = read};
