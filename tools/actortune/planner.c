/* The search of actortune plan.
 *
 * A plan is a number of stages, of devices that share tensors and rows, of microbatches and chunks, a
 * schedule, what is computed again and what is sharded. All that come out even are listed. Of each it is
 * known beforehand what it takes at least: a device's share of the passes of a step, by a plan of one
 * stage that as many devices share and that has as many rows a microbatch, and, where a schedule does
 * not fill it, the time in which the pipeline fills and drains. Plans are then made in the order of these
 * bounds, as actorrun would make them, and run on the virtual clock if their memory, which is exact,
 * is within the budget; the search ends when the next bound is above the best plan's time.
 *
 * Plans are made in rounds of as many, whatever the number of threads, so any number finds the same. */
#include "tools/actortune/planner.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/runtime.h>

#include "base/number.h"

enum { ROUND = 16, MOST_CHUNKS = 3 };

/* ---- words ------------------------------------------------------------------------------------- */

static const char *const names[PLAN_DIMS] = {"stages", "tensor", "data", "microbatches",
                                             "chunks", "schedule", "recompute", "shard"};

/* Those of quick come first. */
typedef struct word_list {
  int quick, count;
  const char *of[8];
} word_list;

static const word_list words_of[PLAN_DIMS] = {
    [PLAN_SCHEDULE] = {3, 4, {"1f1b", "interleaved", "zb-h1", "zb-v"}},
    [PLAN_RECOMPUTE] = {2, 3, {"none", "full", "selective"}},
    [PLAN_SHARD] = {2, 4, {"nothing", "optimizer", "gradients", "parameters"}}};

const char *plan_word(plan_dim dim, int value) {
  return words_of[dim].count ? words_of[dim].of[value] : NULL;
}

/* ---- what is fixed ------------------------------------------------------------------------------ */

static sl_status fix_one(planner *p, const char *text, const char *word) {
  const char *equals = strchr(word, '='), *at = equals ? equals + 1 : word;
  for (int d = 0; d < PLAN_DIMS && equals; d++) {
    if (strlen(names[d]) != (size_t)(equals - word) || strncmp(word, names[d], strlen(names[d]))) continue;
    int value = -1;
    for (int w = 0; w < words_of[d].count; w++)
      if (!strcmp(words_of[d].of[w], at)) value = w;
    if (!words_of[d].count && (!sli_number_read(&at, 1, 1 << 20, &value) || *at)) value = -1;
    if (value < 0) return sl_fail(SL_E_USAGE, "--fix %s: %s is no %s", text, word, names[d]);
    if (p->fixed[d] >= 0 && p->fixed[d] != value)
      return sl_fail(SL_E_USAGE, "--fix %s: %s is said twice, and not the same", text, names[d]);
    p->fixed[d] = value;
    return SL_OK;
  }
  return sl_fail(SL_E_USAGE, "--fix %s: %s is not one of stages=N, tensor=N, data=N, microbatches=N, "
                 "chunks=N, schedule=NAME, recompute=WHAT, shard=WHAT", text, word);
}

static sl_status check_fixed(const planner *p, const char *text) {
  int64_t product = 1;
  for (int d = PLAN_STAGES; d <= PLAN_DATA; d++) product *= p->fixed[d] > 0 ? p->fixed[d] : 1;
  if (p->devices % product)
    return sl_fail(SL_E_USAGE, "--fix %s: %lld devices cannot be some of %d", text, (long long)product,
                   p->devices);
  bool all = p->fixed[PLAN_STAGES] > 0 && p->fixed[PLAN_TENSOR] > 0 && p->fixed[PLAN_DATA] > 0;
  if (all && product != p->devices)
    return sl_fail(SL_E_USAGE, "--fix %s: that is %lld devices, not %d", text, (long long)product, p->devices);
  return SL_OK;
}

sl_status planner_fix(planner *p, const char *text) {
  char *copy = sli_strdup(text), *state = NULL;
  sl_status status = SL_OK;
  for (int d = 0; d < PLAN_DIMS; d++) p->fixed[d] = -1;
  for (char *word = strtok_r(copy, ",", &state); word && !status; word = strtok_r(NULL, ",", &state))
    status = fix_one(p, text, word);
  free(copy);
  return status ? status : check_fixed(p, text);
}

/* ---- what there is ------------------------------------------------------------------------------- */

void planner_apply(const planner *p, const plan_choice *c, settings *to) {
  *to = *p->settings;
  to->stages = c->at[PLAN_STAGES];
  to->grid.tensor = c->at[PLAN_TENSOR];
  to->grid.data = c->at[PLAN_DATA];
  to->microbatches = c->at[PLAN_MICROBATCHES];
  to->chunks = c->at[PLAN_CHUNKS];
  to->schedule = plan_word(PLAN_SCHEDULE, c->at[PLAN_SCHEDULE]);
  to->kept.recompute = plan_word(PLAN_RECOMPUTE, c->at[PLAN_RECOMPUTE]);
  to->kept.shard = plan_word(PLAN_SHARD, c->at[PLAN_SHARD]);
  to->devices.count = to->stages * to->grid.tensor * to->grid.data;
  to->devices.budget_bytes = 0;
}

static bool is_free(const planner *p, plan_dim dim, int value) {
  return p->fixed[dim] < 0 || p->fixed[dim] == value;
}

static int words_tried(const planner *p, plan_dim dim) {
  return p->effort || p->fixed[dim] >= 0 ? words_of[dim].count : words_of[dim].quick;
}

static void add(planner *p, plan_choice c) {
  for (int d = 0; d < PLAN_DIMS; d++)
    if (!is_free(p, (plan_dim)d, c.at[d])) return;
  c.seconds = INFINITY;
  SLI_GROW(p->choices, p->count, p->capacity);
  p->choices[p->count++] = c;
}

/* What is sharded and computed again, of a schedule. */
static void add_kept(planner *p, plan_choice c) {
  int shards = c.at[PLAN_DATA] > 1 ? words_tried(p, PLAN_SHARD) : 1;
  for (c.at[PLAN_RECOMPUTE] = 0; c.at[PLAN_RECOMPUTE] < words_tried(p, PLAN_RECOMPUTE); c.at[PLAN_RECOMPUTE]++)
    for (c.at[PLAN_SHARD] = 0; c.at[PLAN_SHARD] < shards; c.at[PLAN_SHARD]++) add(p, c);
}

/* With one stage all schedules are the same. */
static void add_schedules(planner *p, plan_choice c) {
  int count = c.at[PLAN_STAGES] > 1 || p->fixed[PLAN_SCHEDULE] >= 0 ? words_tried(p, PLAN_SCHEDULE) : 1;
  for (int w = 0; w < count; w++) {
    int own = sl_schedule_chunks(plan_word(PLAN_SCHEDULE, w));
    bool more = !strcmp(plan_word(PLAN_SCHEDULE, w), "interleaved");
    c.at[PLAN_SCHEDULE] = w;
    for (c.at[PLAN_CHUNKS] = own; c.at[PLAN_CHUNKS] <= (more ? MOST_CHUNKS : own); c.at[PLAN_CHUNKS]++)
      add_kept(p, c);
  }
}

/* Of very many devices quick looks at microbatches of a few rows only. */
static bool is_usual(const planner *p, int rows) {
  enum { MANY_DEVICES = 64, MOST_ROWS = 8 };
  return p->effort || p->devices <= MANY_DEVICES || (rows <= MOST_ROWS && (rows & (rows - 1)) == 0);
}

/* As many as leave each device whole rows; where the batch is not known, powers of two. */
static void add_microbatches(planner *p, plan_choice c) {
  enum { MOST = 64 };
  int rows = p->batch / c.at[PLAN_DATA];
  if (p->batch && p->batch % c.at[PLAN_DATA]) return;
  for (int m = 1; m <= (p->batch ? rows : MOST); m++) {
    bool even = p->batch ? rows % m == 0 : (m & (m - 1)) == 0;
    if (p->batch && even && is_free(p, PLAN_MICROBATCHES, -1)) even = is_usual(p, rows / m);
    if (!even || (m < c.at[PLAN_STAGES] && m != rows && is_free(p, PLAN_MICROBATCHES, -1))) continue;
    c.at[PLAN_MICROBATCHES] = m;
    add_schedules(p, c);
  }
}

static void add_grids(planner *p) {
  plan_choice c = {0};
  for (int stages = 1; stages <= p->devices; stages++)
    for (int tensor = 1; tensor <= p->devices / stages; tensor++) {
      int per_host = p->settings->modelled.hardware.devices_per_host;
      if (p->devices % (stages * tensor) || (per_host > 1 && tensor > per_host && !p->effort)) continue;
      c.at[PLAN_STAGES] = stages, c.at[PLAN_TENSOR] = tensor;
      c.at[PLAN_DATA] = p->devices / stages / tensor;
      add_microbatches(p, c);
    }
}

/* ---- bounds ------------------------------------------------------------------------------------------ */

/* A plan of one stage: what a device's passes take for a microbatch. */
typedef struct stage_time {
  int tensor, rows, recompute;
  double seconds; /* 0: no such plan */
} stage_time;

static double pass_seconds(const planned *made) {
  double sum = 0;
  for (int32_t i = 0; i < made->plan->nactors; i++) {
    const sl_actor *a = &made->plan->actors[i];
    bool pass = a->cls == SL_CLASS_F || a->cls == SL_CLASS_B || a->cls == SL_CLASS_W;
    if (pass && made->plan->queues[a->queue].device == 0) sum += a->seconds * a->firings_per_step;
  }
  return sum / made->plan->microbatches;
}

static double find_seconds(const planner *p, const plan_choice *of, int microbatches) {
  plan_choice c = *of;
  settings s;
  planned made;
  c.at[PLAN_STAGES] = c.at[PLAN_DATA] = c.at[PLAN_CHUNKS] = 1;
  c.at[PLAN_MICROBATCHES] = microbatches;
  c.at[PLAN_SCHEDULE] = c.at[PLAN_SHARD] = 0;
  planner_apply(p, &c, &s);
  if (plan_make(&s, NULL, &made)) return 0;
  double seconds = pass_seconds(&made);
  plan_free(&made);
  return seconds;
}

/* Devices that compute less again than all are bounded by those that compute nothing again. */
static int bound_recompute(const plan_choice *c) {
  return !strcmp(plan_word(PLAN_RECOMPUTE, c->at[PLAN_RECOMPUTE]), "full");
}

static double stage_seconds(planner *p, const plan_choice *c, stage_time **times, size_t *count, size_t *capacity) {
  int rows = p->batch ? p->batch / c->at[PLAN_DATA] / c->at[PLAN_MICROBATCHES]
                      : c->at[PLAN_DATA] * c->at[PLAN_MICROBATCHES];
  stage_time key = {c->at[PLAN_TENSOR], rows, bound_recompute(c), 0};
  for (size_t i = 0; i < *count; i++)
    if ((*times)[i].tensor == key.tensor && (*times)[i].rows == rows && (*times)[i].recompute == key.recompute)
      return (*times)[i].seconds;
  plan_choice of = *c;
  of.at[PLAN_RECOMPUTE] = key.recompute;
  key.seconds = find_seconds(p, &of, c->at[PLAN_DATA] * c->at[PLAN_MICROBATCHES]);
  SLI_GROW(*times, *count, *capacity);
  (*times)[(*count)++] = key;
  return key.seconds;
}

/* Blocks that come on none of the stages that are full make the mean what the busiest has at least. */
static double bound_of(const plan_choice *c, double microbatch) {
  double share = microbatch / c->at[PLAN_STAGES];
  bool fills = strncmp(plan_word(PLAN_SCHEDULE, c->at[PLAN_SCHEDULE]), "zb", 2) == 0;
  double bubble = fills ? 0 : (c->at[PLAN_STAGES] - 1) * share / c->at[PLAN_CHUNKS];
  return 0.98 * (c->at[PLAN_MICROBATCHES] * share + bubble);
}

static int by_bound(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->bound < y->bound || x->bound > y->bound) return x->bound < y->bound ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

sl_status planner_list(planner *p) {
  stage_time *times = NULL;
  size_t count = 0, capacity = 0;
  add_grids(p);
  for (size_t i = 0; i < p->count && !interrupted(); i++) {
    plan_choice *c = &p->choices[i];
    c->bound = bound_of(c, stage_seconds(p, c, &times, &count, &capacity));
  }
  free(times);
  qsort(p->choices, p->count, sizeof *p->choices, by_bound);
  if (p->count) return SL_OK;
  return sl_fail(SL_E_USAGE, "no plan for %d devices comes out even: the batch of the model, --fix and the devices "
                 "must divide", p->devices);
}

/* ---- trying -------------------------------------------------------------------------------------------- */

static void try_choice(const planner *p, plan_choice *c) {
  settings s;
  planned made;
  sl_figures f;
  c->tried = true;
  planner_apply(p, c, &s);
  if (plan_make(&s, NULL, &made)) return;
  c->items = made.items;
  c->word = made.word;
  for (int32_t d = 0; d < made.plan->ndevices; d++)
    c->bytes = SLI_MAX(c->bytes, sl_device_bytes(&made.plan->devices[d]));
  bool fits = !p->budget || c->bytes <= p->budget;
  if (fits && !sl_plan_predict(made.plan, NULL, &f)) {
    c->seconds = f.step_seconds;
    free(f.devices);
  }
  plan_free(&made);
}

typedef struct round_of {
  planner *p;
  size_t end;
  atomic_size_t next;
} round_of;

static void *work(void *arg) {
  round_of *r = arg;
  while (!interrupted()) {
    size_t i = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
    if (i >= r->end) break;
    try_choice(r->p, &r->p->choices[i]);
  }
  return NULL;
}

static void try_round(planner *p, size_t from, size_t end) {
  round_of r = {p, end, from};
  pthread_t threads[ROUND];
  int n = SLI_MIN(p->threads, ROUND);
  for (int i = 0; i < n; i++)
    SLI_CHECK(!pthread_create(&threads[i], NULL, work, &r), "no thread for the search");
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

/* The fastest first; of two as fast that which takes less memory. */
static int by_worth(const void *a, const void *b) {
  const plan_choice *x = a, *y = b;
  if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

static sl_status nothing_fits(const planner *p) {
  const plan_choice *least = NULL;
  char needs[32], has[32];
  for (size_t i = 0; i < p->count; i++)
    if (p->choices[i].bytes && (!least || p->choices[i].bytes < least->bytes)) least = &p->choices[i];
  if (!least && p->interrupted) return sl_fail(SL_E_STOPPED, "stopped before any plan was made");
  if (!least) return sl_fail(SL_E_USAGE, "none of %zu plans can be: the last said: %s", p->count, sl_detail());
  const int *at = least->at;
  return sl_fail(SL_E_BUDGET, "nothing fits in %s: the smallest plan needs %s (--stages %d --tensor %d "
                 "--data-parallel %d --microbatches %d --schedule %s --recompute %s --shard %s)",
                 sli_format_bytes(has, (double)p->budget), sli_format_bytes(needs, (double)least->bytes),
                 at[PLAN_STAGES], at[PLAN_TENSOR], at[PLAN_DATA], at[PLAN_MICROBATCHES],
                 plan_word(PLAN_SCHEDULE, at[PLAN_SCHEDULE]), plan_word(PLAN_RECOMPUTE, at[PLAN_RECOMPUTE]),
                 plan_word(PLAN_SHARD, at[PLAN_SHARD]));
}

sl_status planner_search(planner *p) {
  uint64_t start = sli_now_ns();
  double best = INFINITY;
  while (p->tried < p->count && !interrupted() && (p->all || p->choices[p->tried].bound < best)) {
    size_t end = SLI_MIN(p->tried + ROUND, p->count);
    try_round(p, p->tried, end);
    for (; p->tried < end; p->tried++) best = SLI_MIN(best, p->choices[p->tried].seconds);
  }
  p->interrupted = interrupted();
  p->seconds = (double)(sli_now_ns() - start) * 1e-9;
  if (best == INFINITY) return nothing_fits(p);
  qsort(p->choices, p->count, sizeof *p->choices, by_worth);
  return SL_OK;
}

void planner_fini(planner *p) { free(p->choices); }
