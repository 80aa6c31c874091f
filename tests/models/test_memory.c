/* SPDX-License-Identifier: Apache-2.0 */
/* Sharding reduces memory by exactly the documented bytes. Each device's parameters, gradients and
 * optimizer state follow from the parameter shapes, the grid sizes D and T, and the tensors that
 * are sharded. Logits are checked too: they are the activations as wide as the vocabulary, and
 * their gradient replaces them in memory. docs/parallel.md gives the formulas in words.
 * labels: unthreaded numbers */
#include <string.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/test.h"

enum { MICROBATCHES = 2, SMALL_BYTES = 4096, LANE_SLOTS = 2 };

typedef enum sharing { NOTHING, OPTIMIZER, GRADIENTS, PARAMETERS, SHARINGS } sharing;
static const char *const sharing_names[] = {"nothing", "optimizer", "gradients", "parameters"};

static const gpt_shape shapes[] = {
    {.width = 32, .heads = 4, .context = 16, .vocab = 256, .batch = 8},
    {.width = 33, .heads = 3, .context = 11, .vocab = 251, .batch = 12}, /* uneven sizes */
};

/* ---- a device's part of a parameter ---------------------------------------------------- */

typedef struct place {
  int data, tensor; /* D, T */
  int d, t;         /* the device's place on each axis */
  sharing sharing;
  bool sequences; /* norms are split along the sequence */
} place;

static int64_t share_of(int64_t n, int size, int member) {
  return n * (member + 1) / size - n * member / size;
}

/* Returns a member's part of a parameter along the tensor axis. */
static void tensor_part(const gpt_param *p, const place *at, int member, int64_t dim[2]) {
  memcpy(dim, p->dim, 2 * sizeof *dim);
  if (at->tensor == 1) return;
  if (p->lies == GPT_ON_THE_FIRST && member) dim[0] = 0;
  if (p->lies != GPT_BY_DIM_0 && p->lies != GPT_BY_DIM_1) return;
  int split = p->lies == GPT_BY_DIM_1;
  dim[split] = dim[split] / p->units * share_of(p->units, at->tensor, member);
}

/* Returns the first dim of which every device has at least one element. */
static int shard_dim(const gpt_param *p, const place *at) {
  for (int i = 0; i < 2; i++) {
    bool enough = true;
    for (int t = 0; t < at->tensor; t++) {
      int64_t dim[2];
      tensor_part(p, at, p->lies == GPT_ON_THE_FIRST ? 0 : t, dim);
      enough &= dim[i] >= at->data;
    }
    if (enough) return i;
  }
  CHECK(false, "a parameter too small for %d devices", at->data);
  return 0;
}

static int64_t aligned_bytes(int64_t elements) { return (elements * 4 + 63) / 64 * 64; }

/* Returns the elements that the data axis shares, and those of one device's shard. */
static int64_t local_elements(const gpt_param *p, const place *at) {
  int64_t dim[2];
  tensor_part(p, at, at->t, dim);
  return dim[0] * dim[1];
}

static int64_t shard_elements(const gpt_param *p, const place *at) {
  int64_t dim[2];
  tensor_part(p, at, at->t, dim);
  if (at->sharing == NOTHING || at->data == 1 || !dim[0]) return dim[0] * dim[1];
  int split = shard_dim(p, at);
  dim[split] = share_of(dim[split], at->data, at->d);
  return dim[0] * dim[1];
}

/* ---- the budget of a device -------------------------------------------------------------- */

typedef struct budget {
  place at;
  int64_t param, gather, grad, reduce, state;
  int64_t forth[GPT_BLOCKS], back[GPT_BLOCKS], grads[GPT_BLOCKS]; /* whole tensors per block */
  int64_t sums[GPT_BLOCKS], parts[GPT_BLOCKS]; /* reduced over the data axis, once per step: tensors
                                                  of a block's parameters */
} budget;

/* Counts the sums over the data axis, once per step: a part of each sum, and the joined parts in
 * place of the device's own summand. Small tensors (by their size on the first device) are summed
 * whole on every device. */
static void count_all_reduced(budget *b, const gpt_param *p, int block) {
  int64_t n = local_elements(p, &b->at), first[2];
  tensor_part(p, &b->at, 0, first);
  if (first[0] * first[1] * 4 <= SMALL_BYTES) b->reduce += aligned_bytes(n);
  else b->parts[block] += aligned_bytes(share_of(n, b->at.data, b->at.d));
}

static void count_use(budget *b, const gpt_param *p, const gpt_use *use) {
  int64_t whole = aligned_bytes(local_elements(p, &b->at));
  int64_t shard = aligned_bytes(shard_elements(p, &b->at));
  bool at_once = b->at.data > 1 && b->at.sharing >= GRADIENTS;
  b->grad += at_once ? shard : whole;
  b->forth[use->block] += whole;
  b->back[use->block] += use->again ? whole : 0;
  b->grads[use->block] += whole;
  b->sums[p->use[0].block] += whole;
  if (b->at.tensor > 1 && b->at.sequences && p->lies == GPT_EVERYWHERE) b->reduce += whole;
  if (b->at.data == 1 || at_once) return;
  if (b->at.sharing == NOTHING) count_all_reduced(b, p, p->use[0].block);
  else b->reduce += shard;
}

static void count_param(void *ctx, const gpt_param *p) {
  budget *b = ctx;
  if (!local_elements(p, &b->at)) return; /* the first summing device adds it */
  int64_t shard = aligned_bytes(shard_elements(p, &b->at));
  b->param += shard;
  b->state += 2 * shard;
  for (int u = 0; u < p->nuses; u++) count_use(b, p, &p->use[u]);
}

/* Slots of a lane are as large as the largest block. */
static int64_t lane(const int64_t of[GPT_BLOCKS]) {
  int64_t most = 0;
  for (int i = 0; i < GPT_BLOCKS; i++) most = SLI_MAX(most, of[i]);
  return LANE_SLOTS * most;
}

static int64_t sum_of(const int64_t of[GPT_BLOCKS]) {
  int64_t sum = 0;
  for (int i = 0; i < GPT_BLOCKS; i++) sum += of[i];
  return sum;
}

static budget count_budget(const gpt_shape *s, place at) {
  budget b = {.at = at};
  gpt_params(s, count_param, &b);
  b.reduce += SLI_MIN(lane(b.parts), sum_of(b.parts));
  if (at.data == 1 || at.sharing == NOTHING) return b;
  if (at.sharing >= GRADIENTS) b.reduce += lane(b.grads);
  if (at.sharing == PARAMETERS) b.gather = lane(b.forth) + lane(b.back);
  else b.gather += sum_of(b.forth);
  return b;
}

/* ---- against plans ------------------------------------------------------------------------- */

static void check_one(const char *what, const sl_plan *plan, int32_t device, sl_memory memory,
                      int64_t want) {
  int64_t got = (int64_t)sl_plan_memory(plan, device, memory);
  CHECK(got == want, "%s, device %d: %lld bytes for %s, not %lld", what, device, (long long)got,
        sl_memory_name(memory), (long long)want);
}

/* With both axes, exchanges cut the passes of a block, and so the lanes. Only memory outside the
 * lanes is counted there. */
static int64_t outside_lanes(const sl_plan *plan, int32_t device, const char *quota) {
  int64_t sum = 0;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (r->device == device && !strcmp(r->quota_name, quota))
      sum += (int64_t)r->quota * (int64_t)r->slot_stride;
  }
  return sum;
}

static void check_parts(const char *what, const sl_plan *plan, int32_t device, const budget *b) {
  const struct {
    const char *quota;
    int64_t bytes;
  } all[] = {{"param", b->param}, {"grad", b->grad}, {"state", b->state}};
  for (size_t i = 0; i < SLI_COUNT(all); i++) {
    int64_t got = outside_lanes(plan, device, all[i].quota);
    CHECK(got == all[i].bytes, "%s, device %d: %lld bytes for %s, not %lld", what, device,
          (long long)got, all[i].quota, (long long)all[i].bytes);
  }
}

static void check_grid(const gpt_shape *s, int data, int tensor, sharing sharing, bool sequences) {
  static gpt_lying lying;
  gpt_words words;
  char name[GRID_TEXT];
  grid_model m = gpt_model(s, MICROBATCHES, &words);
  grid g = {.data = data, .tensor = tensor, .shard = sharing_names[sharing]};
  if (data == 1 || sharing == NOTHING) g.shard = NULL;
  if (tensor > 1) {
    gpt_lie_in_pairs(&lying, sequences ? (sl_sbp){SL_SPLIT, 1} : (sl_sbp){SL_BROADCAST, 0});
    g.ngiven = lying.n;
    g.given = lying.all;
  }
  lowered_model x;
  grid_lower(&x, &m, &g, NULL);
  grid_format(name, &m, &g);
  for (int32_t i = 0; i < x.plan->ndevices; i++) {
    budget b = count_budget(s, (place){data, tensor, i / tensor, i % tensor, sharing, sequences});
    check_parts(name, x.plan, i, &b);
    check_one(name, x.plan, i, SL_MEMORY_OPTIMIZER, b.state);
    if (tensor > 1 && data > 1 && sharing >= GRADIENTS) continue;
    check_one(name, x.plan, i, SL_MEMORY_PARAMETERS, b.param + b.gather);
    check_one(name, x.plan, i, SL_MEMORY_GRADIENTS, b.grad + b.reduce);
  }
  lowered_model_fini(&x);
}

/* ---- between processes ----------------------------------------------------------------------- */

/* With one process per device, a device needs memory for sent and received data: slices of a
 * block's gradient, the slices of others, and parts of the sum. It also needs memory for other
 * devices' shards of a block, both ways. All of it is in lanes, except small sums and shards of
 * parameters that two blocks read once per step. */
static void check_processes(const gpt_shape *s, int data, sharing sharing) {
  gpt_words words;
  char name[GRID_TEXT];
  grid_model m = gpt_model(s, MICROBATCHES, &words);
  grid g = {.data = data,
            .tensor = 1,
            .shard = sharing ? sharing_names[sharing] : NULL,
            .processes = data};
  lowered_model x;
  grid_lower(&x, &m, &g, NULL);
  grid_format(name, &m, &g);
  int64_t table = aligned_bytes((int64_t)s->vocab * s->width);
  for (int32_t i = 0; i < data; i++) {
    budget b = count_budget(s, (place){data, 1, i, 0, sharing, false});
    int64_t block = SLI_MAX(lane(b.grads), lane(b.sums)),
            others = (block * (data - 1) + data - 1) / data;
    int64_t few = sharing ? 0 : b.reduce - SLI_MIN(lane(b.parts), sum_of(b.parts));
    int64_t grads = b.grad + b.reduce + block + (sharing ? 1 : 2) * others + (data - 1) * few;
    int64_t params = b.param + b.gather + (sharing == PARAMETERS ? 2 * others : 0);
    if (sharing == OPTIMIZER || sharing == GRADIENTS) params += others + table;
    int64_t got_grads = (int64_t)sl_plan_memory(x.plan, i, SL_MEMORY_GRADIENTS);
    int64_t got_params = (int64_t)sl_plan_memory(x.plan, i, SL_MEMORY_PARAMETERS);
    int64_t aligning = 64 * (int64_t)x.plan->nregs;
    CHECK(got_grads <= grads + aligning, "%s, device %d: %lld bytes for gradients, not %lld", name,
          i, (long long)got_grads, (long long)grads);
    CHECK(got_params <= params + aligning, "%s, device %d: %lld bytes for parameters, not %lld",
          name, i, (long long)got_params, (long long)params);
  }
  lowered_model_fini(&x);
}

/* ---- logits -------------------------------------------------------------------------------- */

static void lower_with(lowered_model *x, gpt_shape s, int64_t vocab, const grid *g) {
  gpt_words words;
  s.vocab = vocab;
  grid_model m = gpt_model(&s, MICROBATCHES, &words);
  grid_lower(x, &m, g, NULL);
}

/* Returns the bytes of a device's logits: its rows of a microbatch and its columns. */
static int64_t logits_bytes(const gpt_shape *s, int64_t vocab, const grid *g, int d, int t) {
  int64_t rows = share_of(s->batch / MICROBATCHES, g->data, d);
  return aligned_bytes(rows * s->context * share_of(vocab, g->tensor, t));
}

/* Apart from parameters, only `slots` arrays of logits on the last stage grow with the vocabulary.
 * The two vocabularies differ enough to detect this. */
static void check_logits(const gpt_shape *s, grid g, int slots) {
  static gpt_lying lying;
  enum { SMALL = 4096, LARGE = 8205 };
  lowered_model x, y;
  if (g.tensor > 1) {
    gpt_lie_in_pairs(&lying, (sl_sbp){SL_BROADCAST, 0});
    g.ngiven = lying.n;
    g.given = lying.all;
  }
  lower_with(&x, *s, SMALL, &g);
  lower_with(&y, *s, LARGE, &g);
  int ranks = g.data * g.tensor, first = x.plan->ndevices - ranks;
  for (int32_t i = first; i < x.plan->ndevices; i++) {
    int d = (i - first) / g.tensor, t = (i - first) % g.tensor;
    int64_t want = slots * (logits_bytes(s, LARGE, &g, d, t) - logits_bytes(s, SMALL, &g, d, t));
    int64_t got = (int64_t)sl_plan_memory(y.plan, i, SL_MEMORY_ACTIVATIONS) -
                  (int64_t)sl_plan_memory(x.plan, i, SL_MEMORY_ACTIVATIONS);
    CHECK(got == want, "%d x %d, %s, device %d: %lld bytes more for logits, not %lld", g.data,
          g.tensor, g.schedule, i, (long long)got, (long long)want);
    CHECK(x.plan->devices[i].room[SL_SPACE_DEVICE].workspace_bytes ==
              y.plan->devices[i].room[SL_SPACE_DEVICE].workspace_bytes,
          "%d x %d, %s, device %d: logits in the workspace", g.data, g.tensor, g.schedule, i);
  }
  lowered_model_fini(&x);
  lowered_model_fini(&y);
}

static void logits_are_there_once(const gpt_shape *s) {
  for (int data = 1; data <= 2; data++) {
    check_logits(s, (grid){.data = data, .tensor = 1, .stages = 1, .schedule = "1f1b"}, 1);
    check_logits(s, (grid){.data = data, .tensor = 1, .stages = 2, .schedule = "1f1b"}, 1);
    check_logits(s, (grid){.data = data, .tensor = 1, .stages = 2, .schedule = "gpipe"}, 2);
    check_logits(s, (grid){.data = data, .tensor = 1, .stages = 2, .schedule = "zb-h1"}, 2);
    /* Columns: the values exchanged before the gradient can be computed are stored separately. */
    check_logits(s, (grid){.data = data, .tensor = 2, .stages = 1, .schedule = "1f1b"}, 2);
  }
}

int main(void) {
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int data = 1; data <= 4; data++)
      for (int tensor = 1; tensor <= 3; tensor++)
        for (int what = NOTHING; what < (data > 1 ? SHARINGS : OPTIMIZER); what++) {
          RUN(check_grid, &shapes[i], data, tensor, (sharing)what, false);
          if (tensor > 1 && data == 1)
            RUN(check_grid, &shapes[i], data, tensor, (sharing)what, true);
        }
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int data = 2; data <= 4; data++)
      for (int what = NOTHING; what < SHARINGS; what++)
        RUN(check_processes, &shapes[i], data, (sharing)what);
  RUN(logits_are_there_once, &shapes[0]);
  return 0;
}
