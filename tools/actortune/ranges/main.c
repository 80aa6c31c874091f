/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of actortune ranges, and its output. */
#include <string.h>

#include "graph/devices/devices.h"
#include "tools/actortune/actortune.h"
#include "tools/actortune/ranges/ranges.h"

/* clang-format off */
static const tool_option options[] = {
    {"rows", SL_OPTION_INT, "2048", "rows of a tick", 2 * RANGES_GRAIN, 1 << 20, GROUP_SERVING},
    {"prompt", SL_OPTION_INT, "512", "tokens of a prompt", 1, 1 << 20, GROUP_SERVING},
    {"answer", SL_OPTION_INT, "1024", "tokens of an answer", 1, 1 << 20, GROUP_SERVING},
    {"measured", SL_OPTION_TEXT, "", "`LIST` of seconds that ops of all layers take alone, such as "
     "gate+up=0.07,down=0.035; from shapes if not given", 0, 0, GROUP_SERVING},
    {"parts", SL_OPTION_INT, "8", "maximum ranges of an op; 1: none is cut", 1, RANGES_MOST, GROUP_SEARCH},
    {"effort", SL_OPTION_INT, "2000", "cuts to try after those that are alike for all ops", 0, 1e9, GROUP_SEARCH},
    {"seed", SL_OPTION_INT, "1", "seed of the search", 0, 1e9, GROUP_SEARCH},
    {"trace", SL_OPTION_TEXT, "", "`FILE` for a trace of the cut that was found, for actortrace", 0, 0, GROUP_OUTPUT},
    {0}};
/* clang-format on */

static const char *const shared[] = {"devices", "machine", "config", "print-config",
                                     "version", "help",    "dtype",  NULL};

static sl_status read_settings(settings *s) {
  if (!settings_text(s, "machine"))
    return sl_fail(SL_E_USAGE, "actortune ranges: needs --machine for the rates of a device");
  s->lower.devices.kind = "timed";
  s->clock = SL_CLOCK_VIRTUAL;
  return SL_OK;
}

static const first_option first[] = {{"devices", "`SPEC`: timed:8, the devices of a stage"},
                                     {"machine", "`FILE` or name of modelled hardware"},
                                     {"rows", "rows of a tick"},
                                     {"prompt", "tokens of a prompt"},
                                     {"answer", "tokens of an answer"},
                                     {"measured", "`LIST` of measured seconds of ops"},
                                     {"parts", "maximum ranges of an op"},
                                     {"trace", "`FILE` for a trace of the cut that was found"},
                                     {0}};

static const tool ranges_tool = {
    .name = "actortune ranges",
    .purpose =
        "Cuts the rows of a server's tick into ranges, so that products, attention and\n"
        "exchanges run at once on shares of a device, and finds cut, shares and order.",
    .options = options,
    .first = first,
    .shared = shared,
    .takes_weights = true,
    .read = read_settings};

/* ---- output ---------------------------------------------------------------------------------- */

static void print_table(const range_work *w) {
  printf("%-12s %10s %10s %10s %10s  %s\n", "op", "compute", "memory", "network", "alone",
         "bound by");
  for (int i = 0; i < w->nops; i++) {
    const range_op *op = &w->ops[i];
    printf("%-12s", op->name);
    for (int r = 0; r <= SL_RESOURCE_NETWORK; r++)
      if (op->seconds[r] > 0) printf(" %7.2f ms", 1e3 * op->seconds[r]);
      else printf(" %10s", "");
    printf(" %7.2f ms  %s\n", 1e3 * range_seconds(op), sl_resource_name(op->resource));
  }
}

static double tokens(const range_work *w, double seconds) { return w->rows / seconds / w->devices; }

static void print_bounds(const range_work *w) {
  double sum = 0, bound = ranges_bound(w);
  for (int i = 0; i < w->nops; i++) sum += range_seconds(&w->ops[i]);
  printf(
      "\nOne after another they take %.2f ms, %.0f tokens/s on each device. With the shares of\n"
      "this machine no order is faster than %.2f ms (%.0f tokens/s); products alone would give\n"
      "%.0f tokens/s.\n",
      1e3 * sum, tokens(w, sum), 1e3 * bound, tokens(w, bound),
      w->hardware->flops_per_second / (2 * w->parameters));
}

/* Prints the ranges of each op, with the shares that most of their firings get. */
static void print_cut(const range_work *w, const range_found *f, const range_list *list) {
  printf("\nRows of each op's ranges, and mean shares of the device:\n");
  for (int i = 0; i < w->nops; i++) {
    printf("  %-12s", w->ops[i].name);
    for (int k = 0; k < f->cut.count[i]; k++) {
      double sum = 0;
      for (int n = 0; n < list->count; n++)
        if (list->firings[n].op == i && list->firings[n].part == k) sum += list->firings[n].share;
      printf("%s%.0f-%.0f at %.2f", k ? ", " : "", range_begin(w, &f->cut, i, k),
             range_end(w, &f->cut, i, k), sum / w->layers);
    }
    putchar('\n');
  }
}

/* Runs a tick of all layers on the clock. */
static sl_status show_found(const range_work *w, const range_found *f, const char *trace) {
  double seconds = 0;
  range_list list;
  ranges_list(w, &f->cut, w->layers, &list);
  sl_status status = ranges_tick(w, &f->cut, &list, w->layers, trace, &seconds);
  if (!status) print_cut(w, f, &list);
  range_list_fini(&list);
  if (status) return status;
  printf(
      "\nA tick takes %.2f ms: %.0f tokens/s on each device, %.1f %% above the bound. Tried %d\n"
      "cuts in %.1f s.\n",
      1e3 * seconds, tokens(w, seconds), 100 * (seconds / ranges_bound(w) - 1), f->tried,
      f->search_seconds);
  return SL_OK;
}

static sl_status find(const settings *s) {
  range_work w = {.hardware = &s->modelled.hardware,
                  .devices = SLI_MAX(s->lower.devices.count, 1),
                  .rows = (int)sl_arg_int(s->run, "rows"),
                  .prompt = (int)sl_arg_int(s->run, "prompt"),
                  .answer = (int)sl_arg_int(s->run, "answer")};
  static const output written[] = {{"trace", NULL}};
  w.prompt_rows = (double)w.rows * w.prompt / (w.prompt + w.answer);
  range_found found = {0};
  sl_status status = outputs_try(s->run, written, SLI_COUNT(written), false);
  if (!status) status = ranges_shapes(s, &w);
  if (!status) status = ranges_measured(&w, sl_arg_text(s->run, "measured"));
  if (status) return status;
  print_table(&w);
  print_bounds(&w);
  fflush(stdout);
  ranges_search(&w, (int)sl_arg_int(s->run, "effort"), (int)sl_arg_int(s->run, "parts"),
                (uint64_t)sl_arg_int(s->run, "seed"), &found);
  return show_found(&w, &found, settings_text(s, "trace"));
}

int ranges_main(int argc, char **argv) {
  settings s;
  interrupt_catch();
  sl_status status = settings_read(&ranges_tool, argc, argv, &s);
  if (!status && !s.done) settings_warn(&s), status = find(&s);
  int exit_status = outputs_end("actortune ranges", status, 0);
  settings_fini(&s);
  return exit_status;
}
