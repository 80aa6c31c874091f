/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU may run several calls of a program as one launch if the results match those of single
 * launches. The project's kernels must give the same bits, the library's the same values within the
 * precision of the types. Random small programs with a reused workspace check that, and that the
 * shipped models fuse what they should.
 *
 *   test_fuse [SEED] */
#include <string.h>
#include <unistd.h>

#include <sluice/plan.h>

#include "kernels/cuda/fuse.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/program.h"
#include "tests/gpu/device_call.h"
#include "tests/support/schedules.h"
#include "tests/support/seeds.h"

#ifdef SLUICE_EMULATED
extern int emulated_backwards, emulated_live;
#else
static int emulated_backwards; /* order of emulated threads; unused on a GPU */
#endif

/* Bases: inputs, outputs, optional outputs, the workspace. */
enum { GIVEN, MADE, WISHED, WORKSPACE, BASES };
enum { MOST_ARRAYS = 1200, MOST_CALLS = 300, MOST_ARGS = 6 };

typedef struct array {
  sl_type type;
  sl_place place;
  int first, last; /* calls between which it is in use, in the workspace */
  int alias;       /* the array whose memory it reuses, or -1 */
} array;

typedef struct little {
  sl_program program;
  sl_program_call calls[MOST_CALLS];
  sl_type in_type[MOST_CALLS][MOST_ARGS], out_type[MOST_CALLS][MOST_ARGS];
  sl_place in[MOST_CALLS][MOST_ARGS], out[MOST_CALLS][MOST_ARGS];
  int in_array[MOST_CALLS][MOST_ARGS], out_array[MOST_CALLS][MOST_ARGS];
  sl_call_time times[MOST_CALLS];
  array arrays[MOST_ARRAYS];
  int narrays;
  size_t bytes[BASES];
  unsigned char *initial[BASES];
} little;

static int below(int n) { return (int)(random_bits() % (uint64_t)n); }

/* ---- building ------------------------------------------------ */

static size_t place_bytes(const sl_type *type) { return (sl_type_bytes(type) + 63) / 64 * 64; }

static int add_array(little *l, sl_type type, int base) {
  CHECK(l->narrays < MOST_ARRAYS, "too many arrays");
  array *a = &l->arrays[l->narrays];
  *a = (array){type, {base, l->bytes[base]}, -1, -1, -1};
  if (base != WORKSPACE) l->bytes[base] += place_bytes(&type);
  return l->narrays++;
}

/* ABSENT: an optional input that is left out. */
enum { ABSENT = -1 };

static sl_program_call *add_call(little *l, const sl_op *op, int nin, const int *in, int nout,
                                 const int *out) {
  int at = l->program.ncalls++;
  CHECK(at < MOST_CALLS && nin <= MOST_ARGS && nout <= MOST_ARGS, "too many calls");
  sl_program_call *c = &l->calls[at];
  *c = (sl_program_call){.op = op,
                         .name = op->name,
                         .nin = nin,
                         .nout = nout,
                         .in_type = l->in_type[at],
                         .out_type = l->out_type[at],
                         .in = l->in[at],
                         .out = l->out[at]};
  for (int i = 0; i < nin; i++) {
    l->in_array[at][i] = in[i];
    l->in_type[at][i] = in[i] == ABSENT ? (sl_type){SL_F32, -1, {0}} : l->arrays[in[i]].type;
    if (in[i] != ABSENT) l->arrays[in[i]].last = at;
  }
  for (int o = 0; o < nout; o++) {
    array *a = &l->arrays[out[o]];
    l->out_array[at][o] = out[o];
    l->out_type[at][o] = a->type;
    a->last = at;
    if (a->first < 0) a->first = at;
  }
  return c;
}

/* Returns the array whose memory this one ends up in. */
static int root_of(const little *l, int i) {
  while (l->arrays[i].alias >= 0) i = l->arrays[i].alias;
  return i;
}

static bool in_each_others_way(const array *a, const array *b) {
  size_t a_end = a->place.offset + place_bytes(&a->type);
  size_t b_end = b->place.offset + place_bytes(&b->type);
  return a->first <= b->last && b->first <= a->last && a->place.offset < b_end &&
         b->place.offset < a_end;
}

/* Places each workspace array, in random order, at the lowest offset that no live array
 * occupies. */
static void lay_out(little *l) {
  int order[MOST_ARRAYS], n = 0;
  for (int i = 0; i < l->narrays; i++) {
    array *a = &l->arrays[i], *root = &l->arrays[root_of(l, i)];
    if (a->place.base != WORKSPACE) continue;
    if (a != root) root->last = root->last > a->last ? root->last : a->last;
    else order[n++] = i;
  }
  for (int i = n - 1; i > 0; i--) {
    int j = below(i + 1), k = order[i];
    order[i] = order[j];
    order[j] = k;
  }
  for (int i = 0; i < n; i++) {
    array *a = &l->arrays[order[i]];
    a->place.offset = 0;
    for (int j = 0; j < i; j++)
      if (in_each_others_way(a, &l->arrays[order[j]])) a->place.offset += 64, j = -1;
    size_t end = a->place.offset + place_bytes(&a->type);
    if (end > l->bytes[WORKSPACE]) l->bytes[WORKSPACE] = end;
  }
}

static void fill_given(little *l) {
  for (int i = 0; i < l->narrays; i++) {
    const array *a = &l->arrays[i];
    unsigned char *to = l->initial[a->place.base] + a->place.offset;
    int64_t n = sl_type_elements(&a->type);
    for (int64_t k = 0; a->place.base != WORKSPACE && k < n; k++) {
      float x = 0.1f + fabsf((float)random_unit());
      if (a->type.dtype == SL_BF16) ((uint16_t *)to)[k] = sli_bf16_from_float(x);
      if (a->type.dtype == SL_F32) ((float *)to)[k] = x;
    }
  }
}

/* Gives calls their places and fills the bases; the workspace gets NaNs. */
static void finish(little *l) {
  lay_out(l);
  for (int c = 0; c < l->program.ncalls; c++) {
    for (int i = 0; i < l->calls[c].nin; i++) {
      int a = l->in_array[c][i];
      l->in[c][i] = a == ABSENT ? (sl_place){-1, 0} : l->arrays[root_of(l, a)].place;
    }
    for (int o = 0; o < l->calls[c].nout; o++)
      l->out[c][o] = l->arrays[root_of(l, l->out_array[c][o])].place;
  }
  for (int b = 0; b < BASES; b++) {
    l->bytes[b] += 256;
    l->initial[b] = malloc(l->bytes[b]);
    memset(l->initial[b], 0xff, l->bytes[b]);
  }
  fill_given(l);
  l->program.calls = l->calls;
  l->program.nbases = BASES;
}

static void destroy(little *l) {
  for (int b = 0; b < BASES; b++) free(l->initial[b]);
  free(l);
}

/* ---- running ------------------------------------------------ */

typedef struct result {
  unsigned char *base[BASES];
  int steps;
} result;

static void result_free(result *r) {
  for (int b = 0; b < BASES; b++) free(r->base[b]);
}

static double number(const unsigned char *at, sl_dtype dtype, int64_t i) {
  if (dtype == SL_BF16) return (double)sli_bf16_to_float(((const uint16_t *)at)[i]);
  return dtype == SL_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

/* Makes all NaNs equal. */
static void settle_nans(const little *l, result *r) {
  for (int i = 0; i < l->narrays; i++) {
    const array *a = &l->arrays[i];
    unsigned char *at = r->base[a->place.base] + a->place.offset;
    for (int64_t k = 0; a->place.base != WORKSPACE && k < sl_type_elements(&a->type); k++) {
      if (!isnan(number(at, a->type.dtype, k))) continue;
      if (a->type.dtype == SL_BF16) ((uint16_t *)at)[k] = 0x7fff;
      else if (a->type.dtype == SL_F32) ((float *)at)[k] = NAN;
      else ((double *)at)[k] = (double)NAN;
    }
  }
}

static void prepare(sl_program *program, bool fused) {
  setenv("SLUICE_CUDA_FUSE", fused ? "1" : "0", 1);
  CHECK(!sl_queue_cuda.prepare(program, 0), "%s", sl_detail());
  unsetenv("SLUICE_CUDA_FUSE");
}

/* The queue of all programs. */
static void *queue;
static size_t queue_scratch;

static void need_queue(const sl_program *program) {
  sl_queue_config config = {.scratch_bytes = sl_queue_cuda.scratch(program, 1)};
  if (queue && config.scratch_bytes <= queue_scratch) return;
  if (queue) sl_queue_cuda.close(queue);
  queue_scratch = config.scratch_bytes;
  CHECK(!sl_queue_cuda.open(&config, &queue), "%s", sl_detail());
}

static result run(little *l, bool fused, const sl_tick *tick, bool wishes) {
  result r = {0};
  void *bases[BASES] = {0};
  static const uint8_t first[BASES] = {0};
  uint64_t fence = 0;
  prepare(&l->program, fused);
  r.steps = ((sli_cuda_program *)l->program.state)->variants[0].count;
  need_queue(&l->program);
  for (int b = 0; b < BASES; b++) {
    CHECK(!sl_cuda_memory_create(0, l->bytes[b], &bases[b]), "%s", sl_detail());
    CHECK(!sl_cuda_copy(bases[b], l->initial[b], l->bytes[b]), "%s", sl_detail());
  }
  void *in_firing[BASES];
  memcpy(in_firing, bases, sizeof bases);
  if (!wishes) in_firing[WISHED] = NULL;
  sl_firing firing = {.tick = *tick, .bases = in_firing, .first = first};
  sl_queue_cuda.launch(queue, &l->program, &firing, 0, 0, &fence);
  wait_for(queue, fence);
  for (int b = 0; b < BASES; b++) {
    r.base[b] = malloc(l->bytes[b]);
    CHECK(!sl_cuda_copy(r.base[b], bases[b], l->bytes[b]), "%s", sl_detail());
    sl_cuda_memory_destroy(bases[b]);
  }
  sl_queue_cuda.release(&l->program);
  settle_nans(l, &r);
  return r;
}

static void print_program(const little *l) {
  for (int c = 0; c < l->program.ncalls; c++) {
    fprintf(stderr, "%3d %s", c, l->calls[c].op->name);
    for (int i = 0; i < l->calls[c].nin; i++)
      fprintf(stderr, " %d:%zu", l->in[c][i].base, l->in[c][i].offset);
    fprintf(stderr, " ->");
    for (int o = 0; o < l->calls[c].nout; o++)
      fprintf(stderr, " %d:%zu", l->out[c][o].base, l->out[c][o].offset);
    fprintf(stderr, "\n");
  }
}

static void check_array(const little *l, const array *a, const result *want, const result *got,
                        double tolerance) {
  const unsigned char *w = want->base[a->place.base] + a->place.offset;
  const unsigned char *g = got->base[a->place.base] + a->place.offset;
  for (int64_t i = 0; i < sl_type_elements(&a->type); i++) {
    double x = number(w, a->type.dtype, i), y = number(g, a->type.dtype, i);
    if (x == y || fabs(x - y) <= tolerance * (1 + fabs(x)) || (isnan(x) && isnan(y))) continue;
    print_program(l);
    CHECK(false, "base %d, offset %zu, element %lld is %.9g fused, else %.9g", a->place.base,
          a->place.offset, (long long)i, y, x);
  }
}

/* Compares what is written to registers; tolerance 0 means bit by bit, including the bytes
 * around. */
static void check_same(const little *l, const result *want, const result *got, double tolerance) {
  for (int b = 0; b < WORKSPACE && tolerance == 0; b++) {
    if (!memcmp(want->base[b], got->base[b], l->bytes[b])) continue;
    print_program(l);
    for (int i = 0; i < l->narrays; i++)
      if (l->arrays[i].place.base == b) check_array(l, &l->arrays[i], want, got, 0);
    CHECK(false, "base %d differs in bits", b);
  }
  for (int i = 0; i < l->narrays; i++)
    if (l->arrays[i].place.base != WORKSPACE) check_array(l, &l->arrays[i], want, got, tolerance);
}

/* Runs with and without fusing; returns how many launches were saved. */
static int check_little(little *l, double tolerance, bool wishes) {
  sl_tick tick = {.step = 3};
  result want = run(l, false, &tick, wishes), got = run(l, true, &tick, wishes);
  CHECK(want.steps == l->program.ncalls, "SLUICE_CUDA_FUSE=0 fuses nothing");
  check_same(l, &want, &got, tolerance);
  emulated_backwards = 1;
  result again = run(l, true, &tick, wishes);
  emulated_backwards = 0;
  check_same(l, &got, &again, 0);
  int saved = want.steps - got.steps;
  result_free(&want);
  result_free(&got);
  result_free(&again);
  return saved;
}

/* ---- random programs ------------------------------------------------ */

typedef enum role { DATA, GAIN, STAT, WEIGHT } role;

typedef struct shape {
  int64_t rows, width;
  sl_dtype dtype;
} shape;

static sl_type role_type(const shape *s, role r) {
  if (r == GAIN) return SL_TYPE(SL_F32, s->width);
  if (r == STAT) return SL_TYPE(SL_F32, s->rows);
  if (r == WEIGHT) return SL_TYPE(s->dtype, s->width, s->width);
  return SL_TYPE(s->dtype, s->rows, s->width);
}

#define UNTIL 9
static const struct {
  const sl_op *op;
  bool products; /* for programs with these, whose bits may differ */
  bool norms;
  bool over;          /* an output may reuse the memory of an input of its type */
  role in[6], out[4]; /* ending with UNTIL */
} makers[] = {
    {&sl_op_add, true, true, true, {DATA, DATA, UNTIL}, {DATA, UNTIL}},
    {&sl_op_add, false, true, true, {DATA, DATA, UNTIL}, {DATA, UNTIL}},
    {&sl_op_mul, false, true, true, {DATA, DATA, UNTIL}, {DATA, UNTIL}},
    {&sl_op_copy, true, true, false, {DATA, UNTIL}, {DATA, UNTIL}},
    {&sl_op_layernorm, false, true, true, {DATA, GAIN, GAIN, UNTIL}, {DATA, STAT, STAT, UNTIL}},
    {&sl_op_rmsnorm, false, true, true, {DATA, GAIN, UNTIL}, {DATA, STAT, UNTIL}},
    {&sl_op_layernorm_b, false, true, true, {DATA, GAIN, STAT, STAT, DATA, UNTIL}, {DATA, UNTIL}},
    {&sl_op_rmsnorm_b, false, true, true, {DATA, GAIN, STAT, DATA, UNTIL}, {DATA, UNTIL}},
    {&sl_op_linear, true, false, false, {DATA, WEIGHT, UNTIL}, {DATA, UNTIL}},
    {&sl_op_linear, true, false, false, {DATA, WEIGHT, GAIN, UNTIL}, {DATA, UNTIL}},
    {&sl_op_gelu, true, false, true, {DATA, UNTIL}, {DATA, UNTIL}},
    {&sl_op_linear_b, true, false, false, {DATA, WEIGHT, UNTIL}, {DATA, UNTIL}},
    {&sl_op_gelu_b, true, false, true, {DATA, DATA, UNTIL}, {DATA, UNTIL}},
};

/* Picks an array with that role, preferably a late one, to form chains. */
static int pick(const little *l, const shape *s, role r) {
  sl_type type = role_type(s, r);
  int chosen = ABSENT;
  for (int i = l->narrays - 1; i >= 0; i--) {
    const array *a = &l->arrays[i];
    bool written = a->place.base == GIVEN || a->first >= 0;
    if (!written || a->place.base == WISHED || !sl_type_equal(&a->type, &type)) continue;
    chosen = i;
    if (below(2)) break;
  }
  return chosen;
}

static const sl_optimizer optimizer = {
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};

/* Adds sums of squares and updates, over arrays without other readers. */
static void add_update(little *l, const shape *s) {
  sl_type type = SL_TYPE(SL_F32, 1 + below(40));
  shape f32 = {.rows = s->rows, .width = s->width, .dtype = SL_F32};
  int scale = 0, parts[2];
  for (int p = 0; p < 2; p++) parts[p] = add_array(l, type, GIVEN);
  if (below(2)) {
    int in = s->dtype == SL_F32 && below(2) ? pick(l, &f32, DATA) : parts[0];
    int sum = add_array(l, SL_SCALAR(SL_F64), MADE), in2[] = {in, in};
    add_call(l, &sl_op_sumsq, 1 + below(2), in2, 1, &sum);
    return;
  }
  int in[] = {scale, parts[0], parts[1]}, out[3];
  for (int o = 0; o < 3; o++) out[o] = add_array(l, type, MADE);
  add_call(l, &sl_op_adamw, 2 + below(2), in, 3, out)->attrs.user = &optimizer;
}

/* Adds a call that accumulates into an existing array. */
static void add_to_made(little *l, const shape *s) {
  int in = pick(l, s, DATA), to = pick(l, s, DATA);
  if (l->arrays[to].place.base == GIVEN || to == in) return;
  sl_program_call *c = add_call(l, &sl_op_copy, 1, &in, 1, &to);
  if (below(2)) c->accumulate = 1;
  else c->accumulate_span = 1; /* this firing is not the first */
}

/* Returns the input whose memory the output may take over after its last reader, or -1. */
static int place_to_take(const little *l, int call, int out) {
  const array *a = &l->arrays[out];
  if (a->place.base != WORKSPACE || below(2)) return -1;
  for (int i = 0; i < l->calls[call].nin; i++) {
    int in = l->in_array[call][i];
    const array *x = in == ABSENT ? NULL : &l->arrays[in];
    if (x && x->place.base == WORKSPACE && sl_type_equal(&x->type, &a->type)) return in;
  }
  return -1;
}

static void add_maker(little *l, const shape *s, size_t m) {
  int in[MOST_ARGS], out[MOST_ARGS], nin = 0, nout = 0;
  for (; makers[m].in[nin] != (role)UNTIL; nin++) in[nin] = pick(l, s, makers[m].in[nin]);
  for (; makers[m].out[nout] != (role)UNTIL; nout++)
    out[nout] = add_array(l, role_type(s, makers[m].out[nout]),
                          (int[]){WORKSPACE, WORKSPACE, WORKSPACE, MADE, WISHED}[below(5)]);
  add_call(l, makers[m].op, nin, in, nout, out);
}

/* Reuses memory whose contents have no reader left; this is known only once all calls exist. */
static void take_over(little *l, const size_t *made_by) {
  for (int c = 0; c < l->program.ncalls; c++) {
    if (made_by[c] == (size_t)-1 || !makers[made_by[c]].over) continue;
    int out = l->out_array[c][0], in = place_to_take(l, c, out);
    if (in >= 0 && l->arrays[in].last == c) {
      int root = root_of(l, in);
      bool alone = true; /* no other user of the memory is left */
      for (int i = 0; i < l->narrays; i++)
        alone &= i == in || root_of(l, i) != root || l->arrays[i].last <= c;
      if (alone) l->arrays[out].alias = in;
    }
  }
}

static little *random_program(bool products) {
  little *l = calloc(1, sizeof *l);
  size_t made_by[MOST_CALLS];
  int calls = 3 + below(14);
  shape s = {.rows = 1 + below(5),
             .width = below(2) ? 8 * (1 + below(5)) : 1 + below(40),
             .dtype = products || below(2) ? SL_F32 : SL_BF16};
  add_array(l, SL_SCALAR(SL_F32), GIVEN);
  for (role r = DATA; r <= WEIGHT; r++)
    for (int i = 0; i < 3; i++) add_array(l, role_type(&s, r), GIVEN);
  while (l->program.ncalls < calls) {
    size_t m = (size_t)below((int)(sizeof makers / sizeof *makers));
    made_by[l->program.ncalls] = (size_t)-1; /* has no maker */
    if (below(6) == 0) add_update(l, &s);
    else if (below(6) == 0) add_to_made(l, &s);
    else if (products ? makers[m].products : makers[m].norms)
      made_by[l->program.ncalls] = m, add_maker(l, &s, m);
  }
  take_over(l, made_by);
  finish(l);
  return l;
}

static void check_random_programs(int n) {
  int saved = 0, calls = 0;
  for (int i = 0; i < n; i++) {
    bool products = i % 3 == 2;
    little *l = random_program(products);
    saved += check_little(l, products ? 1e-3 : 0, below(2));
    calls += l->program.ncalls;
    destroy(l);
  }
  printf("%d random programs: %d of %d calls go with others\n", n, saved, calls);
  CHECK(saved * 20 > calls, "too little is fused to judge by");
}

/* ---- pairs ------------------------------------------------ */

/* Checks two calls, plus a third that reads the array between them if `read`. */
static void check_pair(shape s, size_t first, size_t second, int input, int base, bool read,
                       bool fits) {
  little *l = calloc(1, sizeof *l);
  int in[2][MOST_ARGS], out[2][MOST_ARGS], n[2][2] = {{0}};
  const size_t m[] = {first, second};
  bool ours = makers[second].norms && makers[first].norms;
  for (int c = 0; c < 2; c++) {
    for (; makers[m[c]].in[n[c][0]] != (role)UNTIL; n[c][0]++)
      in[c][n[c][0]] = add_array(l, role_type(&s, makers[m[c]].in[n[c][0]]), GIVEN);
    for (; makers[m[c]].out[n[c][1]] != (role)UNTIL; n[c][1]++)
      out[c][n[c][1]] = add_array(l, role_type(&s, makers[m[c]].out[n[c][1]]), c ? MADE : base);
  }
  in[1][input] = out[0][0];
  for (int c = 0; c < 2; c++) add_call(l, makers[m[c]].op, n[c][0], in[c], n[c][1], out[c]);
  int copy = add_array(l, role_type(&s, DATA), MADE);
  if (read) add_call(l, &sl_op_copy, 1, out[0], 1, &copy);
  finish(l);
  int saved = check_little(l, ours ? 0 : s.dtype == SL_BF16 ? 0.03 : 1e-5, true);
  CHECK(saved == fits, "%s and %s, %lld columns, base %d: %s", makers[first].op->name,
        makers[second].op->name, (long long)s.width, base, saved ? "fused" : "not fused");
  destroy(l);
}

static size_t maker(const sl_op *op, int nin) {
  for (size_t m = 0; m < sizeof makers / sizeof *makers; m++)
    if (makers[m].op == op && makers[m].in[nin] == (role)UNTIL) return m;
  CHECK(false, "%s is not there", op->name);
  return 0;
}

static void check_pairs(shape s) {
  size_t add = maker(&sl_op_add, 2);
  size_t ln = maker(&sl_op_layernorm, 3), rms = maker(&sl_op_rmsnorm, 2);
  size_t ln_b = maker(&sl_op_layernorm_b, 5), rms_b = maker(&sl_op_rmsnorm_b, 4);
  size_t gelu = maker(&sl_op_gelu, 1), gelu_b = maker(&sl_op_gelu_b, 2);
  bool even = s.width % 8 == 0;
  for (int read = 0; read < 2; read++)
    for (int base = MADE; base <= WORKSPACE; base += WORKSPACE - MADE) {
      bool kept = read || base == MADE;
      check_pair(s, add, ln, 0, base, read, true);
      check_pair(s, add, rms, 0, base, read, true);
      for (int input = 0; input < 2; input++) {
        check_pair(s, ln_b, add, input, base, read, true);
        check_pair(s, rms_b, add, input, base, read, true);
      }
      if (s.width > 200) continue; /* emulated products are slow */
      check_pair(s, maker(&sl_op_linear, 2), gelu, 0, base, read, even || !kept);
      check_pair(s, maker(&sl_op_linear, 3), gelu, 0, base, read, even || !kept);
      check_pair(s, maker(&sl_op_linear_b, 2), gelu_b, 1, base, read, even && !kept);
      check_pair(s, maker(&sl_op_linear_b, 2), gelu_b, 0, base, read, false);
    }
}

/* ---- losses ------------------------------------------------ */

static void set_targets(little *l, const array *a, int vocab) {
  int32_t *to = (int32_t *)(l->initial[GIVEN] + a->place.offset);
  for (int64_t r = 0; r < sl_type_elements(&a->type); r++) to[r] = below(vocab);
}

/* Checks the loss of logits computed before it, and their gradient, in place or not. `other`: the
 * gradient reads other targets, so nothing can be fused. If the statistics are `read`, rows are
 * also longer than the vocabulary. `weighted`: rows have weights, some of them 0. */
static void check_loss(shape s, bool over, bool read, bool other, bool weighted) {
  little *l = calloc(1, sizeof *l);
  sl_type ids = SL_TYPE(SL_I32, s.rows);
  int given = add_array(l, role_type(&s, DATA), GIVEN), targets[2];
  for (int i = 0; i < 2; i++) targets[i] = add_array(l, ids, GIVEN);
  int logits = add_array(l, role_type(&s, DATA), MADE), copied[] = {given};
  int dlogits = over ? logits : add_array(l, role_type(&s, DATA), MADE);
  int loss[] = {add_array(l, SL_SCALAR(SL_F64), MADE),
                add_array(l, role_type(&s, STAT), WORKSPACE)};
  int dloss = add_array(l, SL_SCALAR(SL_F32), WORKSPACE);
  int kept = add_array(l, role_type(&s, STAT), MADE);
  int total = add_array(l, SL_SCALAR(SL_F64), GIVEN);
  int weights = add_array(l, SL_TYPE(SL_F32, s.width), GIVEN);
  const sl_attrs attrs = {.place.columns = read ? s.width - 2 : 0,
                          .loss.ignore = weighted,
                          .loss.smoothing = weighted ? 0.25f : 0,
                          .loss.spread = weighted ? 0.25f / 40 : 0};
  add_call(l, &sl_op_copy, 1, copied, 1, &logits);
  add_call(l, weighted ? &sl_op_weighted_cross_entropy : &sl_op_cross_entropy, weighted ? 4 : 2,
           (int[]){logits, targets[0], total, weights}, 2, loss)
      ->attrs = attrs;
  sl_program_call *fill = add_call(l, &sl_op_fill, 0, NULL, 1, &dloss);
  fill->attrs.loss.smoothing = 0.125f;
  fill->attrs.user = &l->arrays[dloss].type;
  int in[] = {logits, targets[other], loss[1], weighted ? total : dloss, dloss, weights};
  add_call(l, weighted ? &sl_op_weighted_cross_entropy_b : &sl_op_cross_entropy_b, weighted ? 6 : 4,
           in, 1, &dlogits)
      ->attrs = attrs;
  if (read) add_call(l, &sl_op_copy, 1, &loss[1], 1, &kept);
  finish(l);
  for (int i = 0; i < 2; i++) set_targets(l, &l->arrays[targets[i]], (int)s.width - 2);
  *(double *)(l->initial[GIVEN] + l->arrays[total].place.offset) = (double)s.rows;
  int saved = check_little(l, 0, true);
  CHECK(saved == !other, "a loss of %lld columns and its gradient: %s", (long long)s.width,
        saved ? "fused" : "not fused");
  destroy(l);
}

static void check_losses_of(sl_dtype dtype, bool weighted) {
  for (int over = 0; over < 2; over++)
    for (int read = 0; read < 2; read++) {
      check_loss((shape){.rows = 7, .width = 33, .dtype = dtype}, over, read, false, weighted);
      check_loss((shape){.rows = 3, .width = 1031, .dtype = dtype}, over, read, false, weighted);
      check_loss((shape){.rows = 2, .width = 8205, .dtype = dtype}, over, read, false, weighted);
      check_loss((shape){.rows = 3, .width = 40, .dtype = dtype}, over, read, true, weighted);
    }
}

static void check_losses(sl_dtype dtype) {
  check_losses_of(dtype, false);
  check_losses_of(dtype, true);
}

/* ---- runs ------------------------------------------------ */

/* Checks more gradients than one launch takes, some in parts, alternating with their updates. */
static void check_runs(int n, bool copies) {
  little *l = calloc(1, sizeof *l);
  int scale = add_array(l, SL_SCALAR(SL_F32), GIVEN);
  for (int i = 0; i < n; i++) {
    sl_type type = i % 3 ? SL_TYPE(SL_F32, 1 + below(300)) : SL_TYPE(SL_F32, 7, 1 + below(3000));
    int nparts = i % 5 == 0 ? 3 : 1, in[] = {scale, 0, 0, 0}, out[3];
    int sum = add_array(l, SL_SCALAR(SL_F64), MADE);
    for (int p = 1; p <= nparts; p++) in[p] = add_array(l, type, GIVEN);
    for (int o = 0; o < 3; o++) out[o] = add_array(l, type, MADE);
    int before = add_array(l, type, GIVEN);
    add_call(l, &sl_op_sumsq, nparts, in + 1, 1, &sum);
    if (copies) add_call(l, &sl_op_copy, 1, &before, 1, out);
    add_call(l, &sl_op_adamw, nparts + 1, in, 3, out)->attrs.user = &optimizer;
  }
  finish(l);
  int saved = check_little(l, 0, true);
  CHECK(saved == 2 * (n - 1), "%d sums and updates: %d saved", n, saved);
  destroy(l);
}

/* Two updates of one tensor do not form a run. */
static void check_no_run(void) {
  little *l = calloc(1, sizeof *l);
  int scale = add_array(l, SL_SCALAR(SL_F32), GIVEN), in[] = {scale, 0}, out[3];
  in[1] = add_array(l, SL_TYPE(SL_F32, 77), GIVEN);
  for (int o = 0; o < 3; o++) out[o] = add_array(l, SL_TYPE(SL_F32, 77), MADE);
  for (int i = 0; i < 2; i++) add_call(l, &sl_op_adamw, 2, in, 3, out)->attrs.user = &optimizer;
  finish(l);
  CHECK(check_little(l, 0, true) == 0, "two updates of one tensor go one after the other");
  destroy(l);
}

/* ---- measuring, pieces ------------------------------------------------ */

/* The first call of a fused step gets all of its time; the others get none. */
static void check_time(void) {
  little *l = calloc(1, sizeof *l);
  shape s = {.rows = 3, .width = 24, .dtype = SL_F32};
  int in[3], sum = add_array(l, role_type(&s, DATA), WORKSPACE), out[2];
  for (int i = 0; i < 3; i++) in[i] = add_array(l, role_type(&s, i < 2 ? DATA : GAIN), GIVEN);
  out[0] = add_array(l, role_type(&s, DATA), MADE);
  out[1] = add_array(l, role_type(&s, STAT), MADE);
  add_call(l, &sl_op_add, 2, in, 1, &sum);
  add_call(l, &sl_op_rmsnorm, 2, (int[]){sum, in[2]}, 2, out);
  for (int c = 0; c < 2; c++) l->calls[c].time = &l->times[c];
  finish(l);
  sl_tick tick = {0};
  for (int i = 0; i < 4; i++) {
    result r = run(l, true, &tick, true);
    CHECK(r.steps == 1, "one step");
    result_free(&r);
  }
  CHECK(
      l->times[0].calls == 4 && l->times[1].calls == 4 && l->times[0].ns > 0 && l->times[1].ns == 0,
      "the first of two calls has the time of both");
  destroy(l);
}

/* Variants are fused separately: the second has rows that the library's GELU refuses. */
static void check_variants(void) {
  little *l = calloc(1, sizeof *l);
  shape s[] = {{.rows = 4, .width = 16, .dtype = SL_F32},
               {.rows = 4, .width = 13, .dtype = SL_F32}};
  for (int v = 0; v < 2; v++) {
    int in[] = {add_array(l, role_type(&s[v], DATA), GIVEN),
                add_array(l, role_type(&s[v], WEIGHT), GIVEN)};
    int out[2];
    for (int o = 0; o < 2; o++) out[o] = add_array(l, role_type(&s[v], DATA), MADE);
    add_call(l, &sl_op_linear, 2, in, 1, &out[0]);
    add_call(l, &sl_op_gelu, 1, &out[0], 1, &out[1]);
  }
  finish(l);
  static const sl_program_piece pieces[] = {{0, 4, 0}, {4, 4, 1}};
  l->program.ncalls = l->program.nvariants = 2;
  l->program.pieces = pieces;
  prepare(&l->program, true);
  const sli_cuda_program *made = l->program.state;
  CHECK(made->nvariants == 2 && made->variants[0].count == 1 && made->variants[1].count == 2,
        "each variant has its own steps");
  sl_queue_cuda.release(&l->program);
  for (int piece = 0; piece < 2; piece++) {
    sl_tick tick = {.piece = piece};
    result want = run(l, false, &tick, true), got = run(l, true, &tick, true);
    check_same(l, &want, &got, 1e-5);
    CHECK(memcmp(want.base[MADE], l->initial[MADE], l->bytes[MADE]), "the piece is computed");
    result_free(&want);
    result_free(&got);
  }
  destroy(l);
}

/* ---- models ------------------------------------------------ */

/* Counts the launches that all programs of the model's GPUs save, and their calls. */
static int model_saves(const char *model, char *const *words, const sl_lower_options *options) {
  lowered_model x;
  int saved = 0, calls = 0;
  CHECK(!lowered_model_init(&x, model, words, 2, 1, options), "%s", sl_detail());
  for (int32_t a = 0; a < x.plan->nactors; a++) {
    const sl_actor *actor = &x.plan->actors[a];
    if (!actor->program || x.plan->queues[actor->queue].ops != &sl_queue_cuda) continue;
    prepare(actor->program, true);
    const sli_cuda_program *made = actor->program->state;
    calls += actor->program->ncalls;
    saved += actor->program->ncalls - made->variants[0].count;
    sl_queue_cuda.release(actor->program);
  }
  lowered_model_fini(&x);
  printf("%s, %d stages: %d of %d calls go with others\n", model, options->parallel.stages, saved,
         calls);
  return saved;
}

/* Per layer, these fuse: two adds with the following norm, two norm gradients with the following
 * add, and GPT's GELU with its product, forward and backward. So do the loss and its gradient, and
 * per stage all sums of squares and all updates. The last add of a stage has no following norm
 * except the head's; the stage's first norm gradient still has its add. */
static void check_models(void) {
  const char *source = getenv("SLUICE_SOURCE");
  char text[4096];
  snprintf(text, sizeof text, "%s/tests/reference/text.txt", source ? source : ".");
  char *words[] = {"--data", text,        "--layers", "2",       "--width", "16", "--heads",
                   "2",      "--context", "8",        "--batch", "2",       NULL};
  for (int bf16 = 0; bf16 < 2; bf16++)
    for (int stages = 1; stages <= 2; stages++) {
      sl_lower_options o = {.parallel.stages = stages,
                            .schedule.name = stages > 1 ? "zb-h1" : NULL,
                            .numbers.dtype = bf16 ? SL_BF16 : SL_F32,
                            .devices = {.kind = "cuda", .threads = 1}};
      int gpt = model_saves("gpt", words, &o), llama = model_saves("llama", words, &o);
      int norms = 2 * 2 + 2 * 2 - (stages - 1), gelus = 2 * 2;
      CHECK(gpt == norms + gelus + 1 + 2 * (28 - stages), "gpt saves %d launches", gpt);
      CHECK(llama == norms + 1 + 2 * (21 - stages), "llama saves %d launches", llama);
    }
}

int main(int argc, char **argv) {
  uint64_t seed = seed_of(argc, argv, 1);
  need_gpu();
  seed_random(seed);
  for (int bf16 = 0; bf16 < 2; bf16++) {
    sl_dtype dtype = bf16 ? SL_BF16 : SL_F32;
    RUN(check_pairs, (shape){.rows = 7, .width = 33, .dtype = dtype});
    RUN(check_pairs, (shape){.rows = 5, .width = 136, .dtype = dtype});
    RUN(check_pairs, (shape){.rows = 2, .width = bf16 ? 2088 : 1160, .dtype = dtype});
    RUN(check_losses, dtype);
  }
  RUN(check_random_programs, 200);
  RUN(check_runs, 3, false);
  RUN(check_runs, 61, true);
  RUN(check_no_run);
  RUN(check_time);
  RUN(check_variants);
  RUN(check_models);
  sl_queue_cuda.close(queue);
#ifdef SLUICE_EMULATED
  CHECK(!emulated_live, "%d things of the device are left", emulated_live);
#endif
  return 0;
}
