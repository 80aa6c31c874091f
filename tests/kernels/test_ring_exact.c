/* SPDX-License-Identifier: Apache-2.0 */
/* Exact ring attention has the bits of attention to the whole sequence, forward and backward: for
 * runs of any number of query tiles, with windows, without a causal mask, with separate documents,
 * and with grouped key/value heads. The test prints its seed.
 * labels: unthreaded */
#include "ops/attention_step.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/seeds.h"

enum { TILE = 32, MOST_RUNS = 8, B = 2 };

/* A case: sizes, and the positions at which runs begin. */
typedef struct shape {
  sl_attrs attrs;
  int64_t length, q_row, kv_row; /* kv_row: keys and values together */
  int runs;
  int64_t begin[MOST_RUNS + 1];
  bool documents;
} shape;

/* Arrays of the whole sequences. */
typedef struct arrays {
  float *q, *kv, *dout, *o, *lse, *dq, *dkv;
  int32_t *ids;
} arrays;

static sl_type rows_of(const shape *s, int64_t rows, int64_t width) {
  (void)s;
  return SL_TYPE(SL_F32, B, rows, width);
}

static sl_type lse_of(const shape *s, int64_t rows, int times) {
  return SL_TYPE(SL_F32, B, s->attrs.attention.heads, times * rows);
}

static const sl_type none = {.ndim = -1};

static sl_type ids_of(const shape *s) {
  return s->documents ? SL_TYPE(SL_I32, B, s->length) : none;
}

static int64_t count_of(const shape *s, int run) { return s->begin[run + 1] - s->begin[run]; }

/* Copies a run's rows between a whole array and a separate one. */
static void move(const shape *s, float *whole, int run, int64_t width, void *there, bool put) {
  sl_type type = rows_of(s, s->length, width);
  copy_rows(&type, s->begin[run], count_of(s, run), (char *)whole, there, put);
}

/* Copies the columns of array [rows, from_width] to another array. */
static void columns(int64_t rows, int64_t width, const float *from, int64_t from_width, float *to,
                    int64_t to_width) {
  for (int64_t r = 0; r < rows; r++)
    memcpy(to + r * to_width, from + r * from_width, (size_t)width * sizeof *to);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Fills the keys and values, inputs i and i + 1 of a call. */
static void separate(const shape *s, const float *kv, void *const *in) {
  int64_t own = s->kv_row / 2;
  for (int i = 0; i < 2; i++) columns(B * s->length, own, kv + i * own, s->kv_row, in[i], own);
}

static void whole(const shape *s, arrays *x) {
  sl_type q = rows_of(s, s->length, s->q_row), kv = rows_of(s, s->length, s->kv_row / 2),
          lse = lse_of(s, s->length, 1);
  int64_t rows = B * s->length, own = s->kv_row / 2;
  const sl_type forth[] = {q, kv, kv, ids_of(s)}, back[] = {q, kv, kv, q, lse, q, ids_of(s)};
  kernel f = kernel_create(&sl_op_attention, s->attrs, 3 + s->documents, forth, 2);
  kernel b = kernel_create(&sl_op_attention_b, s->attrs, 6 + s->documents, back, 3);
  memcpy(f.in[0], x->q, sl_type_bytes(&q));
  separate(s, x->kv, f.in + 1);
  if (s->documents) memcpy(f.in[3], x->ids, (size_t)rows * sizeof *x->ids);
  kernel_run(&f, NULL);
  for (int i = 0; i < 3; i++) memcpy(b.in[i], f.in[i], sl_type_bytes(&f.in_type[i]));
  for (int o = 0; o < 2; o++) memcpy(b.in[3 + o], f.out[o], sl_type_bytes(&f.out_type[o]));
  memcpy(b.in[5], x->dout, sl_type_bytes(&q));
  if (s->documents) memcpy(b.in[6], x->ids, (size_t)rows * sizeof *x->ids);
  kernel_run(&b, NULL);
  memcpy(x->o, f.out[0], sl_type_bytes(&q));
  memcpy(x->lse, f.out[1], sl_type_bytes(&lse));
  memcpy(x->dq, b.out[0], sl_type_bytes(&q));
  for (int i = 0; i < 2; i++) columns(rows, own, b.out[1 + i], own, x->dkv + i * own, s->kv_row);
  kernel_destroy(&f);
  kernel_destroy(&b);
}

/* ---- chunk by chunk -------------------------------------------------------------------------- */

static bool sees(const shape *s, int queries, int chunk) {
  int64_t window = s->attrs.attention.window ? s->attrs.attention.window : s->length;
  int64_t first = SLI_MAX(s->begin[queries] - window + 1, 0) / 64 * 64;
  return s->begin[chunk + 1] > first &&
         (s->attrs.attention.full ? s->begin[chunk] < s->begin[queries + 1] + window - 1
                                  : chunk <= queries);
}

static sli_spans spans_of(const shape *s, int queries, int chunk) {
  return (sli_spans){.n = 1,
                     .length = s->length,
                     .items = {{.queries = count_of(s, queries),
                                .keys = count_of(s, chunk),
                                .at_query = s->begin[queries],
                                .at_key = s->begin[chunk]}}};
}

/* Returns how many keys of a chunk complete the last tile of the previous chunk. */
static int64_t tail_of(const shape *s, int chunk) {
  return chunk < s->runs ? (64 - s->begin[chunk] % 64) % 64 : 0;
}

static void copy_ids(const shape *s, const arrays *x, void *to) {
  if (s->documents) memcpy(to, x->ids, (size_t)(B * s->length) * sizeof *x->ids);
}

/* Runs one step of a run of queries with a chunk. `state`: o and the partial lse. */
static void step(const shape *s, arrays *x, int queries, int chunk, bool fresh, bool ends,
                 float *state[2]) {
  int64_t n = count_of(s, queries), tail = SLI_MIN(tail_of(s, chunk + 1), 64);
  sl_type q = rows_of(s, n, s->q_row), seen = lse_of(s, n, 2);
  const sl_type in[] = {q,
                        rows_of(s, count_of(s, chunk), s->kv_row),
                        ids_of(s),
                        fresh ? none : q,
                        fresh ? none : seen,
                        tail ? rows_of(s, tail, s->kv_row) : none};
  sli_spans spans = spans_of(s, queries, chunk);
  spans.items[0].fresh = fresh;
  spans.ends = ends;
  sl_attrs attrs = s->attrs;
  attrs.user = &spans;
  kernel k = kernel_create(&sl_op_attention_step, attrs, SLI_STEP_INPUTS, in, 2);
  move(s, x->q, queries, s->q_row, k.in[0], false);
  move(s, x->kv, chunk, s->kv_row, k.in[1], false);
  copy_ids(s, x, k.in[2]);
  for (int i = 0; i < 2 && !fresh; i++)
    memcpy(k.in[SLI_STEP_O + i], state[i], sl_type_bytes(&in[SLI_STEP_O + i]));
  sl_type all = rows_of(s, s->length, s->kv_row);
  if (tail) copy_rows(&all, s->begin[chunk + 1], tail, (char *)x->kv, k.in[SLI_STEP_TAIL], false);
  kernel_run(&k, NULL);
  for (int o = 0; o < 2; o++) {
    state[o] = realloc(state[o], sl_type_bytes(&k.out_type[o]));
    memcpy(state[o], k.out[o], sl_type_bytes(&k.out_type[o]));
  }
  kernel_destroy(&k);
}

/* Adds the gradients of a run of queries and a chunk to dq and dkv; `first` marks the chunk's first
 * step. */
static void step_back(const shape *s, arrays *x, const float *o, const float *lse, int queries,
                      int chunk, bool fresh, bool first) {
  int64_t n = count_of(s, queries);
  sl_type q = rows_of(s, n, s->q_row), kv = rows_of(s, count_of(s, chunk), s->kv_row);
  const sl_type in[] = {
      q, kv, q, lse_of(s, n, 1), q, ids_of(s), fresh ? none : q, first ? none : kv};
  sli_spans spans = spans_of(s, queries, chunk);
  sl_attrs attrs = s->attrs;
  attrs.user = &spans;
  kernel k = kernel_create(&sl_op_attention_step_b, attrs, SLI_STEP_BACK_INPUTS, in, 2);
  move(s, x->q, queries, s->q_row, k.in[0], false);
  move(s, x->kv, chunk, s->kv_row, k.in[1], false);
  memcpy(k.in[2], o, sl_type_bytes(&q));
  memcpy(k.in[3], lse, sl_type_bytes(&in[3]));
  move(s, x->dout, queries, s->q_row, k.in[4], false);
  copy_ids(s, x, k.in[5]);
  if (!fresh) move(s, x->dq, queries, s->q_row, k.in[6], false);
  if (!first) move(s, x->dkv, chunk, s->kv_row, k.in[7], false);
  kernel_run(&k, NULL);
  move(s, x->dq, queries, s->q_row, k.out[0], true);
  move(s, x->dkv, chunk, s->kv_row, k.out[1], true);
  kernel_destroy(&k);
}

/* Copies a run's part of the lse, which is stored head by head. */
static void put_lse(const shape *s, float *lse, int run, const float *own) {
  int64_t n = count_of(s, run);
  for (int64_t h = 0; h < B * s->attrs.attention.heads; h++)
    memcpy(lse + h * s->length + s->begin[run], own + h * n, (size_t)n * sizeof *lse);
}

static void chunks(const shape *s, arrays *x) {
  float *state[MOST_RUNS][2] = {{NULL}};
  for (int i = 0; i < s->runs; i++) {
    int top = s->runs - 1, last = 0;
    while (!sees(s, i, top)) top--;
    while (!sees(s, i, last)) last++;
    for (int c = top; c >= last; c--) step(s, x, i, c, c == top, c == last, state[i]);
    move(s, x->o, i, s->q_row, state[i][0], true);
    put_lse(s, x->lse, i, state[i][1]);
  }
  for (int i = s->runs - 1; i >= 0; i--) {
    bool fresh = true;
    for (int c = 0; c < s->runs; c++) {
      bool first = i == s->runs - 1 || !sees(s, i + 1, c);
      if (!sees(s, i, c)) continue;
      step_back(s, x, state[i][0], state[i][1], i, c, fresh, first);
      fresh = false;
    }
  }
  for (int i = 0; i < s->runs; i++) free(state[i][0]), free(state[i][1]);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static float *numbers(int64_t n) {
  float *p = calloc((size_t)n, sizeof *p);
  CHECK(p, "no memory");
  for (int64_t i = 0; i < n; i++) p[i] = 2 * (float)random_unit();
  return p;
}

static arrays arrays_of(const shape *s) {
  int64_t rows = B * s->length, q = rows * s->q_row, kv = rows * s->kv_row;
  arrays x = {numbers(q),
              numbers(kv),
              numbers(q),
              numbers(q),
              numbers(rows * s->attrs.attention.heads),
              numbers(q),
              numbers(kv),
              malloc((size_t)rows * sizeof(int32_t))};
  for (int64_t i = 0; i < rows; i++)
    x.ids[i] = random_below(40) ? i ? x.ids[i - 1] : 0 : (int32_t)random_below(4) - 1;
  return x;
}

static void check_equal(const shape *s, const char *what, const float *got, const float *want,
                        int64_t n) {
  for (int64_t i = 0; i < n; i++)
    CHECK(!memcmp(&got[i], &want[i], sizeof *got),
          "%s[%lld] is %a, not %a: %d runs of %lld positions, window %lld, %s%s", what,
          (long long)i, (double)got[i], (double)want[i], s->runs, (long long)s->length,
          (long long)s->attrs.attention.window, s->attrs.attention.full ? "full" : "causal",
          s->documents ? ", documents" : "");
}

static void check(const shape *s) {
  arrays want = arrays_of(s), got = want;
  int64_t q = B * s->length * s->q_row, kv = B * s->length * s->kv_row,
          lse = B * s->length * s->attrs.attention.heads;
  got.o = numbers(q), got.lse = numbers(lse), got.dq = numbers(q), got.dkv = numbers(kv);
  whole(s, &want);
  chunks(s, &got);
  check_equal(s, "o", got.o, want.o, q);
  check_equal(s, "lse", got.lse, want.lse, lse);
  check_equal(s, "dq", got.dq, want.dq, q);
  check_equal(s, "dkv", got.dkv, want.dkv, kv);
  float *all[] = {got.o,   got.lse,  got.dq, got.dkv, want.o,   want.lse,
                  want.dq, want.dkv, want.q, want.kv, want.dout};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  free(want.ids);
}

static shape draw(void) {
  int kv_heads = 1 + (int)random_below(3), heads = kv_heads * (1 + (int)random_below(3));
  int64_t dim = 1 + random_below(20);
  shape s = {
      .attrs = {.attention.heads = heads, .attention.kv_heads = kv_heads, .numbers.exact = true},
      .q_row = heads * dim,
      .kv_row = 2 * kv_heads * dim,
      .runs = 1 + (int)random_below(MOST_RUNS),
      .documents = !random_below(3)};
  for (int i = 0; i < s.runs; i++) s.begin[i + 1] = s.begin[i] + TILE * (1 + random_below(3));
  s.length = s.begin[s.runs];
  if (random_below(2)) s.attrs.attention.window = 1 + random_below(s.length + 10);
  s.attrs.attention.full = !random_below(3);
  return s;
}

int main(int argc, char **argv) {
  seeds of = seeds_of(argc, argv, 1, 40);
  for (uint64_t seed = of.first; seed < of.end; seed++) {
    seed_random(seed);
    shape s = draw();
    printf("seed %llu: %d runs\n", (unsigned long long)seed, s.runs);
    check(&s);
  }
  return 0;
}
