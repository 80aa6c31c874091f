/* SPDX-License-Identifier: Apache-2.0 */
/* Text at the start of a run: what is trained, on how much data, and where each block is placed. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"
#include "graph/compile/compile.h"
#include "text/tokens/tokens.h"
#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/objective.h"
#include "tools/actorrun/samples.h"

static void begin_model(const job *j) {
  const sl_param_info *params;
  int n = sl_lowered_params(j->lowered, &params);
  double values = 0;
  char text[32];
  double frozen = 0;
  for (int i = 0; i < n; i++)
    *(params[i].frozen ? &frozen : &values) += (double)sl_type_elements(&params[i].type);
  printf("%s: %s parameters", j->settings->model->name, samples_grouped(text, values));
  if (frozen > 0) printf(", and %s of a frozen model", samples_grouped(text, frozen));
}

static void begin_pairs(int64_t pairs, int64_t dropped) {
  char text[32];
  printf("; %s preferences", samples_grouped(text, (double)pairs));
  if (dropped)
    printf(" (%s more are longer than the context)", samples_grouped(text, (double)dropped));
}

static void begin_data(const job *j) {
  int64_t dropped, pairs = objective_pairs(j->settings, &dropped);
  if (pairs) begin_pairs(pairs, dropped);
  int64_t context = 0, batch = 0;
  const sli_tokens *tokens = sli_graph_tokens(j->made.graph, &context, &batch);
  char text[32];
  if (!tokens) return;
  int files = sl_graph_files(j->made.graph, 0, NULL);
  int64_t sequences = sli_tokens_sequences(tokens);
  double steps = (double)sequences / (double)batch;
  if (sli_tokens_are_chats(tokens, NULL)) samples_count(tokens, context);
  else
    printf("; %s tokens in %d file%s, ", samples_grouped(text, (double)(sequences * context)),
           files, files == 1 ? "" : "s");
  if (steps < 10) printf("%.1f steps an epoch", steps);
  else printf("%s steps an epoch", samples_grouped(text, steps));
}

/* ---- blocks of a stage ---------------------------------------------------------------------- */

typedef struct name {
  const char *text;
  int length;
} name;

/* Splits off the number at a name's end, as 12 of "h.12". Returns -1 if there is none. */
static long number_of(name x, int *stem) {
  *stem = x.length;
  while (*stem && isdigit((unsigned char)x.text[*stem - 1])) --*stem;
  return *stem < x.length && x.length - *stem < 9 ? strtol(x.text + *stem, NULL, 10) : -1;
}

static bool follows(name a, name b) {
  int stem_a, stem_b;
  long first = number_of(a, &stem_a), second = number_of(b, &stem_b);
  return first >= 0 && second == first + 1 && stem_a == stem_b &&
         !memcmp(a.text, b.text, (size_t)stem_a);
}

static name take_name(const char **at, const char *end) {
  while (*at < end && **at == ' ') ++*at;
  name x = {*at, 0};
  while (*at < end && **at != ' ') ++*at;
  x.length = (int)(*at - x.text);
  return x;
}

/* Prints "embedding h.0..h.5" for "embedding h.0 h.1 h.2 h.3 h.4 h.5". */
static void print_blocks(const char *at, const char *end) {
  name first = take_name(&at, end), last = first;
  while (first.length) {
    name next = take_name(&at, end);
    if (next.length && follows(last, next)) {
      last = next;
      continue;
    }
    printf(" %.*s", first.length, first.text);
    if (last.text != first.text) printf("..%.*s", last.length, last.text);
    first = last = next;
  }
}

/* ---- devices of a stage --------------------------------------------------------------------- */

/* The first and last device that runs the forward pass of a stage; first < 0 if none does. */
typedef struct lying {
  int32_t first, last;
} lying;

static lying *find_devices(const sl_plan *plan, int stages) {
  lying *of = sli_calloc((size_t)stages, sizeof *of);
  for (int s = 0; s < stages; s++) of[s] = (lying){-1, -1};
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    if (a->cls != SL_CLASS_F || a->stage < 0 || a->stage >= stages) continue;
    lying *x = &of[a->stage];
    int32_t d = plan->queues[a->queue].device;
    x->first = x->first < 0 ? d : SLI_MIN(x->first, d);
    x->last = SLI_MAX(x->last, d);
  }
  return of;
}

static void print_devices_of(const job *j, lying x, int width) {
  char text[96], memory[32];
  const sl_plan *plan = j->plan;
  const char *first = plan->devices[x.first].name,
             *number = strrchr(plan->devices[x.last].name, ':');
  int count = sl_lowered_ranks(j->lowered);
  size_t bytes = sl_device_bytes(&plan->devices[x.first]);
  if (x.first == x.last) snprintf(text, sizeof text, "%s", first);
  else if (x.last - x.first + 1 == count && number)
    snprintf(text, sizeof text, "%s to %s", first, number + 1);
  else snprintf(text, sizeof text, "%s and %d more", first, count - 1);
  printf("  %-*s %10s%s ", width, text, sli_format_bytes(memory, (double)bytes),
         x.first < x.last ? " each" : "");
}

/* Returns the beginning of a stage in the cut, and its end in *end. */
static const char *part_of(const char *cut, int stage, const char **end) {
  for (; stage && (cut = strchr(cut, '|')); stage--) cut++;
  if (!cut) return *end = "";
  *end = cut + strcspn(cut, "|");
  return cut;
}

/* Prints the line of a stage's devices, with all stages placed on them. */
static void print_stage(const job *j, const lying *of, int stage, int stages, int width) {
  print_devices_of(j, of[stage], width);
  for (int s = stage; s < stages; s++) {
    const char *end, *at = part_of(sli_lowered_cut(j->lowered), s, &end);
    if (of[s].first != of[stage].first) continue;
    if (s > stage) printf(" |");
    print_blocks(at, end);
  }
  printf("\n");
}

/* Lists the stages that start a line: the first stage on each group of devices. Returns their
 * number. */
static int list_lines(const job *j, const lying *of, int stages, int *lines) {
  bool *seen = sli_calloc((size_t)j->plan->ndevices + 1, sizeof *seen);
  int n = 0;
  for (int s = 0; s < stages; s++) {
    if (of[s].first < 0 || seen[of[s].first]) continue;
    seen[of[s].first] = true;
    lines[n++] = s;
  }
  free(seen);
  return n;
}

void print_begin(const job *j) {
  enum { MOST = 8, FIRST = 5, LAST = 2, NARROW = 8, WIDE = 14 };
  int stages = sl_lowered_stages(j->lowered),
      *lines = sli_calloc((size_t)stages + 1, sizeof *lines);
  lying *of = find_devices(j->plan, stages);
  int n = list_lines(j, of, stages, lines),
      width = sl_lowered_ranks(j->lowered) > 1 ? WIDE : NARROW;
  begin_model(j);
  begin_data(j);
  printf("\n");
  for (int i = 0; i < n; i++) {
    if (n <= MOST || i < FIRST || i >= n - LAST) print_stage(j, of, lines[i], stages, width);
    else if (i == FIRST) printf("  ... %d more\n", n - FIRST - LAST);
  }
  free(lines);
  free(of);
}
