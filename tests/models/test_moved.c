/* SPDX-License-Identifier: Apache-2.0 */
/* A step moves between devices exactly the bytes that each collective must move. For R devices and
 * an array of N bytes, an all-reduce moves 2 N in total, a reduce-scatter or an all-gather
 * N, and a small array that is read whole R N; also where R does not divide N. Between
 * processes the data plane carries exactly these bytes plus alignment.
 * labels: numbers */
#include <string.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/test.h"

enum { MICROBATCHES = 2, STEPS = 2, SMALL_BYTES = 4096 };

static const gpt_shape shapes[] = {
    {.width = 32, .heads = 4, .context = 16, .vocab = 256, .batch = 8},
    {.width = 33, .heads = 3, .context = 11, .vocab = 251, .batch = 10}, /* uneven sizes */
};

/* ---- collectives, over all devices -------------------------------------------------- */

static uint64_t all_gather(uint64_t ranks, uint64_t bytes) { return (ranks - 1) * bytes; }
static uint64_t reduce_scatter(uint64_t ranks, uint64_t bytes) { return (ranks - 1) * bytes; }
static uint64_t all_reduce(uint64_t ranks, uint64_t bytes) {
  return (bytes <= SMALL_BYTES ? ranks : 2) * (ranks - 1) * bytes;
}

/* ---- running ------------------------------------------------------------------------ */

/* Returns the bytes of a step; checks that the plan's figure and the firings agree. */
static uint64_t moved(const gpt_shape *s, const grid *g, sl_traffic traffic) {
  gpt_words w;
  char name[GRID_TEXT];
  grid_model m = gpt_model(s, MICROBATCHES, &w);
  grid given = *g;
  given.steps = STEPS;
  grid_losses l = grid_train(&m, &given);
  lowered_model x;
  grid_lower(&x, &m, &given, NULL);
  uint64_t(*to)[SL_TRAFFIC_COUNT] = sli_calloc((size_t)x.plan->ndevices, sizeof *to);
  sl_plan_moved(x.plan, to);
  for (int t = 0; t < SL_TRAFFIC_COUNT; t++) {
    uint64_t sum = 0;
    for (int32_t d = 0; d < x.plan->ndevices; d++) sum += to[d][t];
    CHECK(l.counts.moved_bytes[t] == STEPS * sum, "%s: %d steps move %llu bytes for %s, each %llu",
          grid_format(name, &m, g), STEPS, (unsigned long long)l.counts.moved_bytes[t],
          sl_traffic_name((sl_traffic)t), (unsigned long long)sum);
  }
  free(to);
  lowered_model_fini(&x);
  return l.counts.moved_bytes[traffic] / STEPS;
}

static void check(const char *what, const gpt_shape *s, const grid *g, sl_traffic traffic,
                  uint64_t want) {
  uint64_t got = moved(s, g, traffic);
  CHECK(got == want, "%s, width %lld, %d x %d, shard %s: %llu bytes of a step move, not %llu", what,
        (long long)s->width, g->data, g->tensor, g->shard ? g->shard : "nothing",
        (unsigned long long)got, (unsigned long long)want);
}

/* ---- data --------------------------------------------------------------------------- */

typedef struct volume {
  uint64_t ranks, bytes;
  int sharding;
  bool apart; /* one process per device: data read once per step is sent once */
} volume;

/* Gradients: all of each to every device once per step, or a part to each device once per step or
 * in every microbatch. Parameters: to each block that reads them, once per step or at each read. */
static void add_param(void *ctx, const gpt_param *p) {
  volume *v = ctx;
  uint64_t n = (uint64_t)gpt_elements(p) * sizeof(float), ticks = MICROBATCHES;
  uint64_t uses = (uint64_t)p->nuses, reads = uses, scattered = reduce_scatter(v->ranks, n);
  for (int u = 0; u < p->nuses; u++) reads += p->use[u].again;
  uint64_t gathers = v->sharding == 3 ? ticks * reads : v->apart ? 1 : uses;
  switch (v->sharding) {
  case 0: v->bytes += uses * all_reduce(v->ranks, n); break;
  case 1: v->bytes += uses * scattered + gathers * all_gather(v->ranks, n); break;
  default: v->bytes += ticks * uses * scattered + gathers * all_gather(v->ranks, n);
  }
}

static void data_moves_gradients_and_parameters(void) {
  static const char *const shardings[] = {"nothing", "optimizer", "gradients", "parameters"};
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int ranks = 2; ranks <= 4; ranks++)
      for (int sharding = 0; sharding < 4; sharding++) {
        volume v = {.ranks = (uint64_t)ranks, .sharding = sharding};
        gpt_params(&shapes[i], add_param, &v);
        grid g = {.data = ranks, .tensor = 1, .shard = sharding ? shardings[sharding] : NULL};
        check("data", &shapes[i], &g, SL_TRAFFIC_DATA, v.bytes);
      }
}

/* ---- tensors ------------------------------------------------------------------------ */

/* Per microbatch, of activations: forward after each pair and after the embedding, backward before
 * each pair and before the classifier. The loss adds three values per token. */
static uint64_t pairs_volume(const gpt_shape *s, uint64_t ranks) {
  uint64_t tokens = s->batch / MICROBATCHES * s->context, each = tokens * s->width * sizeof(float);
  return MICROBATCHES * ((4 * GPT_LAYERS + 2) * all_reduce(ranks, each) +
                         all_gather(ranks, ranks * tokens * 3 * sizeof(float)));
}

/* Along the sequence, each of these is a reduce-scatter and an all-gather, forward and backward;
 * the input of a matrix's gradient is gathered again. Gradients of norms and of the position table
 * are summed over the devices' positions once per step. */
static uint64_t sequence_volume(const gpt_shape *s, uint64_t ranks) {
  uint64_t tokens = s->batch / MICROBATCHES * s->context, each = tokens * s->width * sizeof(float);
  uint64_t turn = reduce_scatter(ranks, each) + all_gather(ranks, each);
  uint64_t step = 2 * (2 * GPT_LAYERS + 1) * all_reduce(ranks, s->width * sizeof(float)) +
                  all_reduce(ranks, s->context * s->width * sizeof(float));
  return MICROBATCHES *
             ((4 * GPT_LAYERS + 2) * turn + (2 * GPT_LAYERS + 1) * all_gather(ranks, each) +
              all_gather(ranks, ranks * tokens * 3 * sizeof(float))) +
         step;
}

static void tensors_move_activations(void) {
  static gpt_lying l;
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int ranks = 2; ranks <= 3; ranks++) {
      grid g = {.data = 1, .tensor = ranks, .given = l.all};
      gpt_lie_in_pairs(&l, (sl_sbp){SL_BROADCAST, 0});
      g.ngiven = l.n;
      check("pairs", &shapes[i], &g, SL_TRAFFIC_TENSOR, pairs_volume(&shapes[i], (uint64_t)ranks));
      gpt_lie_in_pairs(&l, (sl_sbp){SL_SPLIT, 1});
      g.ngiven = l.n;
      check("sequences", &shapes[i], &g, SL_TRAFFIC_TENSOR,
            sequence_volume(&shapes[i], (uint64_t)ranks));
    }
}

/* ---- between processes -------------------------------------------------------------- */

/* Returns the bytes of all slots that links fill in a step. */
static uint64_t linked_bytes(const sl_plan *plan) {
  uint64_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    if (plan->queues[a->queue].ops != &sl_queue_link) continue;
    sum += plan->regs[a->out[0].reg].slot_bytes * (uint64_t)a->firings_per_step;
  }
  return sum;
}

/* With one process per device and no padding except for losses and norms, links carry the moved
 * bytes and those. */
static void processes_send_what_is_moved(void) {
  static const char *const shardings[] = {NULL, "optimizer", "gradients", "parameters"};
  for (int i = 0; i < 4; i++) {
    gpt_words w;
    char name[GRID_TEXT];
    grid g = {.data = 2, .shard = shardings[i], .processes = 2, .steps = STEPS};
    grid_model m = gpt_model(&shapes[0], MICROBATCHES, &w);
    grid_losses l = grid_train(&m, &g);
    lowered_model x;
    grid_lower(&x, &m, &g, NULL);
    uint64_t linked = linked_bytes(x.plan), data = l.counts.moved_bytes[SL_TRAFFIC_DATA] / STEPS;
    uint64_t aside = l.counts.moved_bytes[SL_TRAFFIC_ASIDE] / STEPS;
    lowered_model_fini(&x);
    grid_format(name, &m, &g);
    CHECK(l.carried_bytes == STEPS * linked, "%s: %llu bytes were carried, not %llu", name,
          (unsigned long long)l.carried_bytes, STEPS * (unsigned long long)linked);
    CHECK(l.counts.sent_bytes == l.carried_bytes, "%s: %llu bytes were sent, and %llu carried",
          name, (unsigned long long)l.counts.sent_bytes, (unsigned long long)l.carried_bytes);
    CHECK(linked > data + aside && (linked - data) % 64 == 0 && linked - data < 64 * aside,
          "%s: links carry %llu bytes of a step, for %llu and %llu that are moved", name,
          (unsigned long long)linked, (unsigned long long)data, (unsigned long long)aside);
    volume v = {.ranks = 2, .sharding = i, .apart = true};
    gpt_params(&shapes[0], add_param, &v);
    CHECK(data == v.bytes, "%s: %llu bytes of a step move, not %llu", name,
          (unsigned long long)data, (unsigned long long)v.bytes);
  }
}

/* The next stage gets activations and targets, the previous one gets gradients; a table used at
 * both ends moves with its gradient. Each counts once, in one process as in two. */
static void pipelines_pass_activations_on(void) {
  for (size_t i = 0; i < SLI_COUNT(shapes); i++) {
    const gpt_shape *s = &shapes[i];
    uint64_t tokens = s->batch / MICROBATCHES * s->context;
    uint64_t each = tokens * s->width * sizeof(float);
    for (int processes = 1; processes <= 2; processes++) {
      grid g = {.data = 1, .tensor = 1, .stages = 2, .processes = processes};
      check("pipeline", s, &g, SL_TRAFFIC_PIPELINE,
            MICROBATCHES * (2 * each + tokens * sizeof(int32_t)) +
                2 * s->vocab * s->width * sizeof(float));
    }
  }
}

/* A stage's input and its gradient, of `each` bytes, cross once and are then gathered, instead of
 * crossing once for each device. Links between processes carry a part in each slot. */
static void boundaries_are_crossed_in_parts(void) {
  static gpt_lying l;
  gpt_lie_in_pairs(&l, (sl_sbp){SL_BROADCAST, 0});
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int c = 0; c < 4; c++) {
      const gpt_shape *s = &shapes[i];
      int ranks = 2 + c / 2, processes = c % 2 ? 2 * ranks : 1;
      uint64_t each = s->batch / MICROBATCHES * s->context * s->width * sizeof(float);
      grid g = {.data = 1, .tensor = ranks, .stages = 2, .processes = processes, .given = l.all};
      g.ngiven = l.n;
      uint64_t pipeline = moved(s, &g, SL_TRAFFIC_PIPELINE),
               tensor = moved(s, &g, SL_TRAFFIC_TENSOR);
      g.boundary = "scattered";
      check("crossing", s, &g, SL_TRAFFIC_PIPELINE,
            pipeline - MICROBATCHES * 2 * (uint64_t)(ranks - 1) * each);
      check("gathering", s, &g, SL_TRAFFIC_TENSOR,
            tensor + MICROBATCHES * 2 * all_gather((uint64_t)ranks, each));
    }
}

int main(void) {
  RUN(data_moves_gradients_and_parameters);
  RUN(tensors_move_activations);
  RUN(processes_send_what_is_moved);
  RUN(pipelines_pass_activations_on);
  RUN(boundaries_are_crossed_in_parts);
  return 0;
}
