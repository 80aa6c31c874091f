/* What a step moves between devices is, to the byte, what each collective must move: for R
 * devices and an array of N bytes an all-reduce 2 N over all of them, a reduce-scatter
 * or an all-gather N, and where few numbers are read whole R N; also where N does
 * not divide by R. And between processes the data plane carries just that, and what aligns it. */
#include <string.h>

#include "base/base.h"
#include "tests/grids.h"
#include "tests/test.h"

enum { LAYERS = 2, MICROBATCHES = 2, STEPS = 2, SMALL_BYTES = 4096 };

typedef struct shape {
  uint64_t width, heads, context, vocab, batch;
} shape;

static const shape shapes[] = {
    {.width = 32, .heads = 4, .context = 16, .vocab = 256, .batch = 8},
    {.width = 33, .heads = 3, .context = 11, .vocab = 251, .batch = 10}, /* nothing divides */
};

/* ---- a GPT's parameters ------------------------------------------------------------- */

typedef struct param {
  const char *name;
  uint64_t elements;
  uint64_t uses;  /* that give it a gradient, each in a block of its own */
  uint64_t again; /* uses that read it on the way back too */
} param;

typedef void each_param(void *ctx, const param *p);

static void layer_params(const shape *s, each_param *fn, void *ctx) {
  uint64_t c = s->width;
  const param all[] = {
      {"ln_1.weight", c, 1, 1},          {"ln_1.bias", c, 1, 0},
      {"attn.c_attn.weight", 3 * c * c, 1, 1}, {"attn.c_attn.bias", 3 * c, 1, 0},
      {"attn.c_proj.weight", c * c, 1, 1}, {"attn.c_proj.bias", c, 1, 0},
      {"ln_2.weight", c, 1, 1},          {"ln_2.bias", c, 1, 0},
      {"mlp.c_fc.weight", 4 * c * c, 1, 1}, {"mlp.c_fc.bias", 4 * c, 1, 0},
      {"mlp.c_proj.weight", 4 * c * c, 1, 1}, {"mlp.c_proj.bias", c, 1, 0},
  };
  for (size_t i = 0; i < SLI_COUNT(all); i++) fn(ctx, &all[i]);
}

/* The table is looked up in, and read again as the classifier. */
static void gpt_params(const shape *s, each_param *fn, void *ctx) {
  fn(ctx, &(param){"wte.weight", s->vocab * s->width, 2, 1});
  fn(ctx, &(param){"wpe.weight", s->context * s->width, 1, 0});
  for (int i = 0; i < LAYERS; i++) layer_params(s, fn, ctx);
  fn(ctx, &(param){"ln_f.weight", s->width, 1, 1});
  fn(ctx, &(param){"ln_f.bias", s->width, 1, 0});
}

/* ---- collectives, over all devices -------------------------------------------------- */

static uint64_t all_gather(uint64_t ranks, uint64_t bytes) { return (ranks - 1) * bytes; }
static uint64_t reduce_scatter(uint64_t ranks, uint64_t bytes) { return (ranks - 1) * bytes; }
static uint64_t all_reduce(uint64_t ranks, uint64_t bytes) {
  return (bytes <= SMALL_BYTES ? ranks : 2) * (ranks - 1) * bytes;
}

/* ---- running ------------------------------------------------------------------------ */

typedef struct words {
  char *of[16];
  char number[5][16];
} words;

static grid_model gpt(const shape *s, words *w) {
  static const char *const names[] = {"--width", "--heads", "--context", "--vocab", "--batch"};
  const uint64_t values[] = {s->width, s->heads, s->context, s->vocab, s->batch};
  int n = 0;
  w->of[n++] = (char *)"--layers";
  w->of[n++] = (char *)"2";
  for (int i = 0; i < 5; i++) {
    snprintf(w->number[i], sizeof w->number[i], "%llu", (unsigned long long)values[i]);
    w->of[n++] = (char *)names[i];
    w->of[n++] = w->number[i];
  }
  w->of[n] = NULL;
  return (grid_model){"gpt", w->of, MICROBATCHES, 1};
}

/* Of a step; and what the plan says is what has fired. */
static uint64_t moved(const shape *s, const grid *g, sl_traffic traffic) {
  words w;
  char name[GRID_TEXT];
  grid_model m = gpt(s, &w);
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

static void check(const char *what, const shape *s, const grid *g, sl_traffic traffic,
                  uint64_t want) {
  uint64_t got = moved(s, g, traffic);
  CHECK(got == want, "%s, width %llu, %d x %d, shard %s: %llu bytes of a step move, not %llu", what,
        (unsigned long long)s->width, g->data, g->tensor, g->shard ? g->shard : "nothing",
        (unsigned long long)got, (unsigned long long)want);
}

/* ---- data --------------------------------------------------------------------------- */

typedef struct volume {
  uint64_t ranks, bytes;
  int sharding;
  bool apart; /* in processes of their own: what does not change within a step comes once */
} volume;

/* Gradients: all of each, once a step, for everyone; or a part for each, once a step or in every
 * microbatch. Parameters: for each block that reads them, once a step or whenever it does. */
static void add_param(void *ctx, const param *p) {
  volume *v = ctx;
  uint64_t n = p->elements * sizeof(float), ticks = MICROBATCHES;
  uint64_t gathers = v->sharding < 3 ? p->uses : ticks * (p->uses + p->again);
  uint64_t scattered = reduce_scatter(v->ranks, n);
  if (v->apart) gathers = 1;
  switch (v->sharding) {
    case 0: v->bytes += p->uses * all_reduce(v->ranks, n); break;
    case 1: v->bytes += p->uses * scattered + gathers * all_gather(v->ranks, n); break;
    default: v->bytes += ticks * p->uses * scattered + gathers * all_gather(v->ranks, n);
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

typedef struct lying {
  int n;
  sl_given_sbp all[16 * LAYERS + 16];
  char names[16 * LAYERS + 16][64];
} lying;

static void lie(lying *l, const char *block, const char *name, sl_sbp sbp) {
  snprintf(l->names[l->n], sizeof l->names[0], "%s%s", block, name);
  l->all[l->n] = (sl_given_sbp){l->names[l->n], 1, sbp};
  l->n++;
}

/* Matrices in pairs, by columns and by rows; the vocabulary too. Norms and residuals lie
 * `between` these. */
static void lie_in_pairs(lying *l, sl_sbp between) {
  const sl_sbp columns = {SL_SPLIT, 2}, sum = {SL_PARTIAL, 0};
  l->n = 0;
  lie(l, "transformer.wte", ".weight", (sl_sbp){SL_SPLIT, 0});
  lie(l, "embedding", "/embedding.1", sum);
  lie(l, "embedding", "/position.1", between);
  for (int i = 0; i < LAYERS; i++) {
    char block[16];
    snprintf(block, sizeof block, "h.%d", i);
    lie(l, block, "/layernorm.1", between);
    lie(l, block, "/linear.1", columns);
    lie(l, block, "/attention_packed.1", columns);
    lie(l, block, "/linear.2", sum);
    lie(l, block, "/add.1", between);
    lie(l, block, "/layernorm.2", between);
    lie(l, block, "/linear.3", columns);
    lie(l, block, "/gelu.1", columns);
    lie(l, block, "/linear.4", sum);
    lie(l, block, "/add.2", between);
  }
  lie(l, "head", "/layernorm.1", between);
  lie(l, "head", "/linear.1", columns);
  lie(l, "head", "/cross_entropy.1", (sl_sbp){SL_BROADCAST, 0});
}

/* In every microbatch, of activations: forward after each pair and after the embedding, back
 * before each pair and before the classifier; and three numbers a token for the loss. */
static uint64_t pairs_volume(const shape *s, uint64_t ranks) {
  uint64_t tokens = s->batch / MICROBATCHES * s->context, each = tokens * s->width * sizeof(float);
  return MICROBATCHES * ((4 * LAYERS + 2) * all_reduce(ranks, each) +
                         all_gather(ranks, ranks * tokens * 3 * sizeof(float)));
}

/* Along the sequence each of these is a reduce-scatter and an all-gather, forward and back, and
 * what a matrix's gradient reads is gathered again. Gradients of norms and of the table of
 * positions are sums over the devices' positions, once a step. */
static uint64_t sequence_volume(const shape *s, uint64_t ranks) {
  uint64_t tokens = s->batch / MICROBATCHES * s->context, each = tokens * s->width * sizeof(float);
  uint64_t turn = reduce_scatter(ranks, each) + all_gather(ranks, each);
  uint64_t step = 2 * (2 * LAYERS + 1) * all_reduce(ranks, s->width * sizeof(float)) +
                  all_reduce(ranks, s->context * s->width * sizeof(float));
  return MICROBATCHES * ((4 * LAYERS + 2) * turn + (2 * LAYERS + 1) * all_gather(ranks, each) +
                         all_gather(ranks, ranks * tokens * 3 * sizeof(float))) + step;
}

static void tensors_move_activations(void) {
  static lying l;
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int ranks = 2; ranks <= 3; ranks++) {
      grid g = {.data = 1, .tensor = ranks, .given = l.all};
      lie_in_pairs(&l, (sl_sbp){SL_BROADCAST, 0});
      g.ngiven = l.n;
      check("pairs", &shapes[i], &g, SL_TRAFFIC_TENSOR, pairs_volume(&shapes[i], (uint64_t)ranks));
      lie_in_pairs(&l, (sl_sbp){SL_SPLIT, 1});
      g.ngiven = l.n;
      check("sequences", &shapes[i], &g, SL_TRAFFIC_TENSOR,
            sequence_volume(&shapes[i], (uint64_t)ranks));
    }
}

/* ---- between processes -------------------------------------------------------------- */

/* Bytes of all slots that links fill in a step. */
static uint64_t linked_bytes(const sl_plan *plan) {
  uint64_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    if (plan->queues[a->queue].ops != &sl_queue_link) continue;
    sum += plan->regs[a->out[0].reg].slot_bytes * (uint64_t)a->firings_per_step;
  }
  return sum;
}

/* Each device a process of its own, and no tensor that has to be filled up to be aligned but
 * losses and norms: links carry what is moved, and those. */
static void processes_send_what_is_moved(void) {
  static const char *const shardings[] = {NULL, "optimizer", "gradients", "parameters"};
  for (int i = 0; i < 4; i++) {
    words w;
    char name[GRID_TEXT];
    grid g = {.data = 2, .shard = shardings[i], .processes = 2, .steps = STEPS};
    grid_model m = gpt(&shapes[0], &w);
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

/* On to the next stage go activations and what they are to become, back come gradients; and a
 * table that both ends use, with its gradient. */
static void pipelines_pass_activations_on(void) {
  for (size_t i = 0; i < SLI_COUNT(shapes); i++) {
    const shape *s = &shapes[i];
    uint64_t tokens = s->batch / MICROBATCHES * s->context;
    uint64_t each = tokens * s->width * sizeof(float);
    grid g = {.data = 1, .tensor = 1, .stages = 2, .processes = 2};
    check("pipeline", s, &g, SL_TRAFFIC_PIPELINE,
          MICROBATCHES * (2 * each + tokens * sizeof(int32_t)) +
              2 * s->vocab * s->width * sizeof(float));
  }
}

int main(void) {
  data_moves_gradients_and_parameters();
  tensors_move_activations();
  processes_send_what_is_moved();
  pipelines_pass_activations_on();
  return 0;
}
