/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of actortune plan. */
#include <string.h>

#include "graph/devices/devices.h"
#include "tools/actortune/actortune.h"
#include "tools/actortune/planner_show.h"

/* clang-format off */
static const tool_option options[] = {
    {"fix", SL_OPTION_TEXT, "", "`LIST` of fixed choices, such as stages=8,recompute=full: stages, "
     "tensor, data, sequence, experts, expert-tensor, microbatches, pieces, chunks, schedule, recompute, "
     "quotas=own, home, shard", 0, 0, GROUP_SEARCH},
    {"effort", SL_OPTION_TEXT, "quick", "`HOW` much to search: quick, full (also more schedules, "
     "more ways to save memory, --sequence and --pieces), all (full, without pruning by bounds)", 0, 0, GROUP_SEARCH},
    {"memory", SL_OPTION_TEXT, "", "memory budget of each device, a `SIZE` such as 76G; the "
     "machine's if not given", 0, 0, GROUP_MEMORY},
    {"points", SL_OPTION_INT, "5", "maximum number of plans to show", 1, 1000, GROUP_SEARCH},
    {"json", SL_OPTION_TEXT, "", "`FILE` (JSON) for the plans, with the words of their commands", 0, 0, GROUP_OUTPUT},
    {"svg", SL_OPTION_TEXT, "", "`FILE` for a plot of the plans, with the cost of second choices", 0, 0, GROUP_OUTPUT},
    {"threads", SL_OPTION_INT, "0", "threads of the search; 0: one per core", 0, 4096, GROUP_SEARCH},
    {0}};
/* clang-format on */

static sl_status read_settings(settings *s) {
  if (sli_kind_find(s->lower.devices.kind)->modelled) s->clock = SL_CLOCK_VIRTUAL;
  return settings_read_budget(s);
}

static const first_option first[] = {
    {"devices", "`SPEC`, such as cpu:4 or timed:8 (modelled)"},
    {"machine", "`FILE` or name of modelled hardware, or here"},
    {"memory", "memory budget of each device, a `SIZE` such as 76G"},
    {"stages", "pipeline stages, if fixed"},
    {"microbatches", "microbatches per step, if fixed"},
    {"fix", "`LIST` of fixed choices, such as stages=8,shard=optimizer"},
    {"effort", "`HOW` much to search: quick, full or all"},
    {"points", "maximum number of plans to show"},
    {"json", "`FILE` for the plans, with their commands"},
    {"svg", "`FILE` for a plot of the plans"},
    {0}};

static const tool planner_tool = {
    .name = "actortune plan",
    .purpose =
        "Chooses stages, devices that share tensors, sequences, experts and rows,\n"
        "microbatches, chunks, a schedule, what is recomputed, offloaded and sharded,\n"
        "within the memory of the devices.",
    .options = options,
    .first = first,
    .read = read_settings};

/* ---- options --------------------------------------------------------------------------------- */

static sl_status read_effort(const settings *s, planner *p) {
  static const char *const words[] = {"quick", "full", "all", NULL};
  const char *text = sl_arg_text(s->run, "effort");
  p->effort = p->away = strcmp(text, "quick") != 0;
  p->all = !strcmp(text, "all");
  return options_check_word("effort", text, words);
}

static sl_status write_files(const planner *p) {
  const char *json = settings_text(p->settings, "json"), *svg = settings_text(p->settings, "svg");
  sl_status status = json ? planner_json_write(p, json) : SL_OK;
  return !status && svg ? planner_svg_write(p, svg) : status;
}

static sl_status plan(const settings *s) {
  static const output written[] = {{"json", NULL}, {"svg", NULL}};
  planner p;
  int threads = (int)sl_arg_int(s->run, "threads");
  sl_status status = outputs_try(s->run, written, SLI_COUNT(written), false);
  if (status) return status;
  status = planner_init(&p, s);
  p.points = (int)sl_arg_int(s->run, "points");
  p.interrupted = interrupted;
  if (threads) p.threads = threads;
  if (!status) status = read_effort(s, &p);
  if (!status) status = planner_fix(&p, sl_arg_text(s->run, "fix"));
  if (!status) status = planner_search(&p);
  if (!status) planner_show(&p, stdout);
  if (!status) status = write_files(&p);
  planner_fini(&p);
  return status;
}

int planner_main(int argc, char **argv) {
  settings s;
  interrupt_catch();
  sl_status status = settings_read(&planner_tool, argc, argv, &s);
  if (!status && !s.done) settings_warn(&s), status = plan(&s);
  int exit_status = outputs_end("actortune plan", status, 0);
  settings_fini(&s);
  return exit_status;
}
