/* SPDX-License-Identifier: Apache-2.0 */
/* actortune: finds the fastest plan for each amount of memory.
 *
 * The stages are: command line, durations (given, modelled or measured), and a search over
 * schedules and quotas by simulation. The results are a picture, a table with each plan's
 * command, files, and real runs beside the predictions. Ctrl-C ends the search and shows the
 * results so far. */
#include "tools/actortune/actortune.h"
#include "tools/actortune/machine/machine.h"
#include "tools/actortune/ranges/ranges.h"
#include "tools/actortune/slo/slo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/atomic.h"

/* Checks before any work that the output files can be written. */
static sl_status check_files(const settings *s) {
  static const output written[] = {{"svg", NULL}, {"csv", NULL}, {"json", NULL}};
  const char *prefix = settings_text(s, "keep");
  char *kept = prefix ? sli_format("%stry", prefix) : NULL;
  sl_status status = outputs_try(s->run, written, SLI_COUNT(written), false);
  if (!status && kept) status = sli_atomic_check(kept);
  free(kept);
  return status;
}

static sl_status write_files(const tuning *t, const frontier *f) {
  static const struct {
    const char *option;
    sl_status (*write)(const char *path, const tuning *t, const frontier *f);
  } files[] = {{"svg", svg_write}, {"csv", csv_write}, {"json", json_write}};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(files) && !status; i++)
    if (settings_text(t->settings, files[i].option))
      status = files[i].write(settings_text(t->settings, files[i].option), t, f);
  return status;
}

/* Prints the requested combinations that are impossible, each reason once. */
static void print_left_out(const tuning *t) {
  for (int i = 0; i < t->nconfigs; i++) {
    const point *p = &t->points[i];
    const settings *s = &t->configs[i].settings;
    bool seen = !p->status || t->configs[i].tried;
    for (int j = 0; j < i && !seen; j++)
      seen = t->points[j].status && !strcmp(t->points[j].failure, p->failure);
    if (seen) continue;
    fprintf(stderr, "actortune: left out %s, %d chunks, %d microbatches: %s\n",
            s->lower.schedule.name, s->lower.schedule.chunks, s->microbatches, p->failure);
  }
}

static sl_status show(tuning *t) {
  const settings *s = t->settings;
  frontier f;
  sl_status status = frontier_confirm(t, (size_t)sl_arg_int(s->run, "points"), &f);
  if (status) return status;
  if (!sl_arg_flag(s->run, "quiet")) {
    print_left_out(t);
    plot_print(t, &f, stdout);
  }
  table_print(t, &f, stdout);
  fflush(stdout);
  status = write_files(t, &f);
  size_t verified = (size_t)sl_arg_int(s->run, "verify");
  if (!status && verified && !t->interrupted) status = verify(t, &f, verified);
  frontier_fini(&f);
  return status;
}

static sl_status tune(settings *s) {
  tuning t;
  sl_status status = check_files(s);
  if (!status) status = tuning_prepare(s, &t);
  if (status) return status;
  t.progress = isatty(STDERR_FILENO) && !sl_arg_flag(s->run, "quiet");
  status = search(&t);
  if (!status) status = show(&t);
  tuning_fini(&t);
  return status;
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "machine")) return machine_main(argc - 1, argv + 1);
  if (argc > 1 && !strcmp(argv[1], "compare")) return compare_main(argc - 1, argv + 1);
  if (argc > 1 && !strcmp(argv[1], "plan")) return planner_main(argc - 1, argv + 1);
  if (argc > 1 && !strcmp(argv[1], "serve")) return slo_main(argc - 1, argv + 1);
  if (argc > 1 && !strcmp(argv[1], "ranges")) return ranges_main(argc - 1, argv + 1);
  if (slo_asked(argc, argv)) return slo_main(argc, argv);
  settings s;
  interrupt_catch();
  sl_status status = settings_read(&actortune_tool, argc, argv, &s);
  if (!status && !s.done) settings_warn(&s), status = tune(&s);
  int exit_status = outputs_end("actortune", status, 0);
  settings_fini(&s);
  return exit_status;
}
