/* SPDX-License-Identifier: Apache-2.0 */
/* Text about a plan, and about a run at its end. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/compile/compile.h"
#include "tools/actorrun/actorrun.h"

/* Prints the quotas in force, "act.b@0=2  fwd@0=4 (evaluation)", and ends the line. */
static void print_quotas(const job *j) {
  sl_quota q;
  const char *part;
  for (int i = 0; i < sli_lowered_quota(j->lowered, i, &q, &part); i++) {
    printf("  %s", q.name);
    if (q.stage != SL_NONE) printf("@%d", q.stage);
    printf("=%d", q.slots);
    if (part) printf(" (%s)", part);
  }
  printf("\n");
}

static void warn_of_filling(const settings *s) {
  if (s->lower.parallel.stages < 2 || s->process ||
      strcmp(sl_arg_text(s->run, "piece-order"), "layers"))
    return;
  sli_log(
      "warning: with --piece-order layers a stage sends its first piece only from its last block: the pipeline fills %d times more slowly",
      s->pieces);
}

/* Prints the placement that --home auto found, as options. */
static void print_homes_found(const job *j) {
  const solved *x = &j->homes;
  if (!x->said) return;
  char seconds[32], bytes[32];
  printf("homes auto: %s\n", *x->said ? x->said : "everything stays where it is made");
  printf("  the best of %d plans: %s a step, %s of a device", x->tried,
         sli_format_seconds(seconds, x->seconds),
         sli_format_bytes(bytes, (double)x->bytes[SL_SPACE_DEVICE]));
  for (int s = 0; s < SL_SPACE_COUNT; s++)
    if (s != SL_SPACE_DEVICE && x->bytes[s])
      printf(", %s of %s", sli_format_bytes(bytes, (double)x->bytes[s]),
             sl_space_name((sl_space)s));
  printf("\n");
}

/* Prints the paths that --skip found, in the format of --paths. */
static void print_paths_found(const job *j) {
  const char *paths = sl_lowered_paths(j->lowered);
  if (paths)
    printf("paths found for --skip %g:\n%s", sl_arg_float(j->settings->run, "skip"), paths);
}

void print_plan(const job *j) {
  print_begin(j);
  printf("plan %016" PRIx64
         ": schedule %s, %d device%s, %d actors, %d registers\n"
         "made and proved in %.1f ms\n",
         j->plan->hash, sl_lowered_schedule(j->lowered), j->plan->ndevices,
         j->plan->ndevices == 1 ? "" : "s", j->plan->nactors, j->plan->nregs,
         (double)j->plan_ns * 1e-6);
  const int64_t *lengths;
  int pieces = sl_graph_pieces(j->made.graph, &lengths);
  for (int k = 0; lengths && k < pieces; k++)
    printf("%s%lld%s", k ? " " : "pieces of ", (long long)lengths[k],
           k + 1 < pieces ? "" : " positions\n");
  warn_of_filling(j->settings);
  job_note_delays(j);
  print_homes_found(j);
  print_paths_found(j);
  printf("quotas:");
  print_quotas(j);
  printf("\n");
  sl_plan_print_memory(j->plan, stdout);
  printf("\nThe plan finishes, whatever the timing.\n");
}

void print_found(const job *j) {
  const settings *s = j->settings;
  job_note_delays(j);
  if (!j->progress.quiet) warn_of_filling(s);
  if (!j->progress.quiet && !s->process) {
    print_homes_found(j);
    print_paths_found(j);
  }
  if (strcmp(s->lower.schedule.name, "auto") || s->process || j->progress.quiet) return;
  printf("schedule %s:", sl_lowered_schedule(j->lowered));
  print_quotas(j);
}

static void print_devices(const job *j, const sl_statistics *stats) {
  enum { most_lines = 16, first_lines = 6 };
  int32_t n = j->plan->ndevices;
  for (int32_t d = 0; d < n; d++) {
    if (n > most_lines && d == first_lines) {
      printf("  ... %d devices\n", n - 2 * first_lines);
      d = n - first_lines;
    }
    const sl_device_statistics *f = &stats->devices[d];
    char busy[32], span[32], memory[32], idle[32] = "";
    if (n > 1) snprintf(idle, sizeof idle, "bubble %.1f %%, ", 100 * f->bubble_fraction);
    double held = sl_runtime_peak_activations(j->rt, d);
    printf("  %-8s busy %s of %s, %s%.4g activation%s, %s\n", j->plan->devices[d].name,
           sli_format_seconds(busy, f->busy_seconds), sli_format_seconds(span, f->span_seconds),
           idle, held, held == 1 ? "" : "s",
           sli_format_bytes(memory, (double)sl_device_bytes(&j->plan->devices[d])));
  }
}

/* Warns if devices outnumber the cores: times then depend more on the machine than on the plan. */
static void print_cores(const job *j) {
  enum { WORTH_A_LINE = 5 }; /* percent */
  sl_runtime_counts counts = sl_runtime_count(j->rt);
  double wanted = (double)(counts.ran_ns + counts.coreless_ns);
  double share = wanted > 0 ? 100 * (double)counts.coreless_ns / wanted : 0;
  if (share < WORTH_A_LINE) return;
  printf(
      "devices had work but no core to run on for %.0f %% of the time: more threads want\n"
      "to run than cores are free, and the times%s above include the wait\n",
      share, j->plan->ndevices > 1 ? " and bubbles" : "");
}

/* Prints the bytes that a step of this run moved to and from offload targets. On the virtual
 * clock print_modelled() predicts them. */
static void print_homes(const job *j, double step_seconds) {
  static const sl_traffic homes[] = {SL_TRAFFIC_HOST, SL_TRAFFIC_DISK};
  const sl_home_options *o = &j->settings->lower.memory.homes;
  int64_t steps = sl_runtime_steps(j->rt) - sl_checkpoints_start(j->checkpoints);
  if ((!o->count && !o->update) || j->settings->clock == SL_CLOCK_VIRTUAL || steps < 1) return;
  sl_runtime_counts counts = sl_runtime_count(j->rt);
  for (size_t i = 0; i < SLI_COUNT(homes); i++) {
    double bytes = (double)counts.moved_bytes[homes[i]] / (double)steps;
    char text[32], rate[32];
    if (!(bytes > 0) || !(step_seconds > 0)) continue;
    printf("  to and from %s: %s a step, %s\n", sl_traffic_name(homes[i]),
           sli_format_bytes(text, bytes), sli_format_rate(rate, bytes / step_seconds, "B/s"));
  }
}

static void print_history(const progress *p) {
  enum { WIDTH = 60, FEWEST = 3 };
  if (!p->terminal || p->count < FEWEST) return;
  char *line = progress_history(p, WIDTH);
  printf("%s\n", line);
  free(line);
}

static const char *better(const evals *e) { return e->largest ? "larger" : "smaller"; }

void print_end(const job *j) {
  const progress *p = &j->progress;
  int64_t steps = sl_runtime_steps(j->rt);
  if (p->quiet || !steps) return;
  if (!job_steps_left(j))
    printf("step %lld of %lld: nothing left to do\n", (long long)steps, (long long)p->steps);
  if (j->stopped)
    printf("stopped after step %lld of %lld\n", (long long)steps, (long long)p->steps);
  if (j->evals.ended)
    printf("no %s %s in %lld evaluations: ended after step %lld of %lld\n", better(&j->evals),
           j->evals.names[j->evals.by], (long long)j->evals.without, (long long)steps,
           (long long)p->steps);
  sl_statistics stats = sl_runtime_statistics(j->rt);
  if (p->count)
    printf("loss %.4f -> %.4f in %lld steps\n", p->records[0].report.loss,
           p->records[p->count - 1].report.loss, (long long)p->count);
  print_history(p);
  const char *word;
  int64_t amount = sl_graph_evaluated(j->made.graph, &word);
  if (j->evals.count)
    printf("evaluated %zu times, %lld %s each, %s %s %.4f after step %lld\n", j->evals.count,
           (long long)amount, word, j->evals.largest ? "largest" : "smallest",
           j->evals.names[j->evals.by], j->evals.best, (long long)j->evals.best_step);
  print_step(j, &stats);
  print_homes(j, stats.step_seconds);
  print_devices(j, &stats);
  print_cores(j);
  if (j->settings->clock == SL_CLOCK_VIRTUAL) print_modelled(j, &stats);
  free(stats.devices);
}
