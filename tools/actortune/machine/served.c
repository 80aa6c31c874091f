/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actortune/machine/served.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/batch.h>
#include <sluice/program.h>

#include "base/base.h"
#include "graph/cost/cost.h"
#include "ops/ops.h"
#include "ops/storage.h"

/* ---- calls on busy devices ------------------------------------------------------------------- */

enum { MOST_ARGUMENTS = 5, ROUNDS = 5, WEIGHTS = 96 << 20 };

/* A call to time. Each device has its own arrays, but weights of all come from one large array:
 * the next call reads the next ones. */
typedef struct timed_call {
  const settings *settings;
  machine *machine;
  const sl_op *op;
  sl_attrs attrs;
  int nin, nout, streamed; /* streamed: input that advances in `weights`; -1: none */
  sl_type in_type[MOST_ARGUMENTS], out_type[MOST_ARGUMENTS];
  void (*fill)(const struct timed_call *t, int i, void *to); /* of input i; NULL: a constant */
  const void *ctx;
  const char *weights; /* [WEIGHTS] */
  double limit;        /* seconds that the rounds may take */
  atomic_int stop;
  double seconds; /* result */
} timed_call;

/* A device with a program of that call. Each argument is a base of its own. */
enum { MOST_BASES = 2 * MOST_ARGUMENTS + 1 };
typedef struct timed_device {
  timed_call *call;
  int device;
  pthread_t thread;
  sl_program program;
  sl_program_call one;
  sl_place places[MOST_BASES];
  void *bases[MOST_BASES], *queue;
  size_t offset;
  sl_status status;
} timed_device;

static double now(void) { return (double)sli_now_ns() * 1e-9; }

/* 0x3c00 is 1 as a half, and a small number as bf16 and, twice, as f32. */
static void fill_constant(void *to, size_t bytes) {
  for (size_t i = 0; i + 1 < bytes; i += 2) memcpy((char *)to + i, (uint16_t[]){0x3c00}, 2);
}

static void *allocate(size_t bytes) {
  void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
  SLI_CHECK(p, "no memory for %zu bytes", bytes);
  fill_constant(p, bytes);
  return p;
}

static void bind_thread(void *arg, int thread) {
  const timed_device *d = arg;
  machine_bind(d->call->machine, d->device, thread);
}

static void run_once(timed_device *d) {
  const timed_call *t = d->call;
  const uint8_t first[MOST_BASES] = {0};
  const sl_firing firing = {.bases = d->bases, .first = first};
  uint64_t fence;
  if (t->streamed >= 0) {
    size_t bytes = (sl_type_bytes(&t->in_type[t->streamed]) + 63) / 64 * 64;
    if (d->offset + bytes > WEIGHTS) d->offset = 0;
    d->bases[t->streamed] = (char *)(uintptr_t)t->weights + d->offset;
    d->offset += bytes;
  }
  sl_queue_cpu.launch(d->queue, &d->program, &firing, 0, 0, &fence);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the seconds of a call in the median round: a server runs on the machine as it is. A round
 * takes at least a millisecond. */
static double time_rounds(timed_device *d) {
  double seconds[ROUNDS], until = now() + d->call->limit;
  int n = 0;
  run_once(d);
  while (n < ROUNDS && (n < 1 || now() < until)) {
    double begun = now(), end = begun;
    int calls = 0;
    for (; end - begun < 1e-3; end = now()) run_once(d), calls++;
    seconds[n++] = (end - begun) / calls;
  }
  qsort(seconds, (size_t)n, sizeof *seconds, by_size);
  return seconds[n / 2];
}

/* Opens the queue on its own thread, which it binds, and runs the call: until the first device has
 * its time. */
static void *run_device(void *arg) {
  timed_device *d = arg;
  timed_call *t = d->call;
  int threads = SLI_MAX(t->settings->lower.devices.threads, 1);
  const sl_queue_config config = {.threads = threads,
                                  .scratch_bytes = sl_program_scratch(&d->program, threads),
                                  .bind = bind_thread,
                                  .bind_arg = d};
  d->status = sl_queue_cpu.open(&config, &d->queue);
  if (!d->status && !d->device) t->seconds = time_rounds(d);
  while (!d->status && d->device && !atomic_load(&t->stop)) run_once(d);
  if (!d->device) atomic_store(&t->stop, 1);
  sl_queue_cpu.close(d->queue);
  return NULL;
}

static void set_argument(timed_device *d, int at, const sl_type *type, bool streamed) {
  d->places[at] = (sl_place){type->ndim < 0 ? -1 : at, 0};
  if (type->ndim >= 0 && !streamed) d->bases[at] = allocate(sl_type_bytes(type));
}

static sl_status prepare(timed_device *d) {
  const timed_call *t = d->call;
  for (int i = 0; i < t->nin; i++) {
    set_argument(d, i, &t->in_type[i], i == t->streamed);
    if (t->fill && d->bases[i]) t->fill(t, i, d->bases[i]);
  }
  for (int o = 0; o < t->nout; o++) set_argument(d, t->nin + o, &t->out_type[o], false);
  d->one = (sl_program_call){.op = t->op,
                             .name = t->op->name,
                             .attrs = t->attrs,
                             .nin = t->nin,
                             .nout = t->nout,
                             .in_type = t->in_type,
                             .out_type = t->out_type,
                             .in = d->places,
                             .out = d->places + t->nin};
  d->program = (sl_program){.ncalls = 1, .calls = &d->one, .nbases = t->nin + t->nout + 1};
  d->offset = (size_t)d->device * (WEIGHTS / 4) % WEIGHTS / 64 * 64;
  return sl_program_prepare(&d->program);
}

static void release(timed_device *d) {
  if (d->call->streamed >= 0) d->bases[d->call->streamed] = NULL;
  for (int b = 0; b < MOST_BASES; b++) free(d->bases[b]);
  sl_program_release(&d->program);
}

/* Sets the seconds of the call on the first of `busy` devices that all make it. */
static sl_status time_call(timed_call *t, int busy, double *seconds) {
  timed_device *devices = sli_calloc((size_t)busy, sizeof *devices);
  sl_status status = SL_OK;
  int prepared = 0;
  atomic_store(&t->stop, 0);
  for (; prepared < busy && !status; prepared++) {
    devices[prepared] = (timed_device){.call = t, .device = prepared};
    status = prepare(&devices[prepared]);
  }
  for (int i = status ? -1 : busy - 1; i >= 0; i--)
    SLI_CHECK(!pthread_create(&devices[i].thread, NULL, run_device, &devices[i]),
              "cannot start a thread");
  for (int i = 0; i < busy && !status; i++) pthread_join(devices[i].thread, NULL);
  for (int i = 0; i < prepared; i++) {
    status = status ? status : devices[i].status;
    release(&devices[i]);
  }
  free(devices);
  *seconds = t->seconds;
  return status;
}

/* ---- products -------------------------------------------------------------------------------- */

static const double product_m[] = {1, 2, 4, 8, 16, 32, 64, 256},
                    product_n[] = {192, 768, 3072, 24576}, product_k[] = {256, 1024, 4096};
enum { MS = SLI_COUNT(product_m), NS = SLI_COUNT(product_n), KS = SLI_COUNT(product_k) };

static const struct stored {
  sl_storage storage;
  const char *row;
} stored[] = {{SL_STORAGE_F32, "linear_served"},
              {SL_STORAGE_BF16, "linear_served.bf16"},
              {SL_STORAGE_Q8_0, "linear_served.Q8_0"},
              {SL_STORAGE_Q4_1, "linear_served.Q4_1"}};

typedef struct measures {
  const settings *settings;
  machine *machine;
  const char *weights;
  int devices;
  double limit; /* seconds for a call */
  double most;  /* multiplications of the largest product that is measured */
} measures;

static timed_call new_call(const measures *m, const sl_op *op, int nin, int nout) {
  return (timed_call){.settings = m->settings,
                      .machine = m->machine,
                      .op = op,
                      .nin = nin,
                      .nout = nout,
                      .streamed = -1,
                      .weights = m->weights,
                      .limit = m->limit};
}

static bool fits_weights(double n, double k) { return n * k * sizeof(float) <= WEIGHTS; }

static bool is_measured(const measures *all, double m, double n, double k) {
  return fits_weights(n, k) && m * n * k <= all->most;
}

static sl_status product_seconds(const measures *all, sl_storage storage, const int64_t *mnk,
                                 int busy, double *seconds) {
  timed_call t = new_call(all, &sl_op_linear_served, 5, 1);
  t.attrs.weight.storage = storage;
  const sl_type none = {.ndim = -1}, values = SL_TYPE(SL_F32, mnk[1], mnk[2]);
  const sl_type in[] = {SL_TYPE(SL_F32, 1, mnk[0], mnk[2]), sli_storage_type(storage, &values),
                        none, none, SL_TYPE(SL_I32, 16)};
  memcpy(t.in_type, in, sizeof in);
  t.streamed = 1;
  SLI_TRY(t.op->infer(&t.attrs, t.nin, t.in_type, t.out_type));
  return time_call(&t, busy, seconds);
}

/* Fills the points that were too large to measure, from the next smaller one along m, n or k. */
static void extend_products(const measures *all, double (*at)[NS][KS][2]) {
  for (int i = 0; i < MS * NS * KS * 2; i++) {
    int m = i / (2 * KS * NS), n = i / (2 * KS) % NS, k = i / 2 % KS, b = i % 2;
    if (is_measured(all, product_m[m], product_n[n], product_k[k])) continue;
    if (m && fits_weights(product_n[n], product_k[k]))
      at[m][n][k][b] = at[m - 1][n][k][b] * product_m[m] / product_m[m - 1];
    else if (n) at[m][n][k][b] = at[m][n - 1][k][b] * product_n[n] / product_n[n - 1];
    else at[m][n][k][b] = at[m][n][k - 1][b] * product_k[k] / product_k[k - 1];
  }
}

static void add_number(cJSON *list, double x) {
  char text[32];
  snprintf(text, sizeof text, "%.4g", x);
  cJSON_AddItemToArray(list, cJSON_CreateNumber(strtod(text, NULL)));
}

static void add_product_curve(cJSON *curves, const char *row, int devices,
                              double (*at)[NS][KS][2]) {
  cJSON *curve = cJSON_AddObjectToObject(curves, row), *seconds = cJSON_CreateArray();
  const double busy[] = {1, devices};
  int count = devices > 1 ? 2 : 1;
  cJSON_AddItemToObject(curve, "m", cJSON_CreateDoubleArray(product_m, MS));
  cJSON_AddItemToObject(curve, "n", cJSON_CreateDoubleArray(product_n, NS));
  cJSON_AddItemToObject(curve, "k", cJSON_CreateDoubleArray(product_k, KS));
  cJSON_AddItemToObject(curve, "devices", cJSON_CreateDoubleArray(busy, count));
  for (int i = 0; i < MS * NS * KS; i++)
    for (int b = 0; b < count; b++) add_number(seconds, (&at[0][0][0][0])[2 * i + b]);
  cJSON_AddItemToObject(curve, "seconds", seconds);
}

/* Devices that are busy together are never faster than one alone; if they seem so, something else
 * took the time of the one. */
static sl_status add_products(const measures *all, const struct stored *s, cJSON *curves) {
  double at[MS][NS][KS][2] = {0};
  sl_status status = SL_OK;
  for (int i = 0; i < MS * NS * KS && !status; i++) {
    const int64_t mnk[] = {(int64_t)product_m[i / (NS * KS)], (int64_t)product_n[i / KS % NS],
                           (int64_t)product_k[i % KS]};
    double *to = at[i / (NS * KS)][i / KS % NS][i % KS];
    if (!is_measured(all, (double)mnk[0], (double)mnk[1], (double)mnk[2])) continue;
    status = product_seconds(all, s->storage, mnk, 1, &to[0]);
    if (!status && all->devices > 1)
      status = product_seconds(all, s->storage, mnk, all->devices, &to[1]);
    if (all->devices > 1) to[0] = fmin(to[0], to[1]);
  }
  extend_products(all, at);
  if (!status) add_product_curve(curves, s->row, all->devices, at);
  return status;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Keys of 64 numbers in f32 have the bytes of a curve's positions: 128 numbers of 16 bits. */
enum { HEAD = 64 };

static const double answers[] = {1, 4, 16}, seen[] = {16, 128, 1024, 4096},
                    prompts[] = {16, 64, 128, 256, 512, 1024}, heads[] = {2, 8, 32},
                    key_heads[] = {1, 2, 8};

/* Sequences that attend: `rows` rows each, the last of which sees `positions`. */
typedef struct spans {
  int64_t sequences, positions, rows;
} spans;

static int64_t pages_each(const spans *s) { return (s->positions + SL_PAGE - 1) / SL_PAGE; }

static void fill_batch(const timed_call *t, int i, void *to) {
  const spans *s = t->ctx;
  if (i != t->nin - 1) return;
  sl_batch *b = to;
  memset(to, 0, sl_type_bytes(&t->in_type[i]));
  *b = (sl_batch){.rows = (int32_t)(s->sequences * s->rows),
                  .sequences = (int32_t)s->sequences,
                  .most_rows = (int32_t)(s->sequences * s->rows),
                  .most_sequences = (int32_t)s->sequences,
                  .pages = (int32_t)pages_each(s)};
  for (int32_t q = 0; q < b->sequences; q++) {
    for (int32_t p = 0; p < b->pages; p++)
      ((int32_t *)(uintptr_t)sl_batch_table(b, q))[p] = q * b->pages + p;
    for (int32_t r = 0; r < (int32_t)s->rows; r++) {
      int32_t row = q * (int32_t)s->rows + r;
      ((int32_t *)(uintptr_t)sl_batch_position(b))[row] = (int32_t)(s->positions - s->rows) + r;
      ((int32_t *)(uintptr_t)sl_batch_sequence_of(b))[row] = q;
    }
  }
}

static sl_status attention_seconds(const measures *all, const spans *s, int64_t count, int64_t kept,
                                   double *seconds) {
  timed_call t = new_call(all, &sl_op_attention_served, 5, 3);
  int64_t rows = s->sequences * s->rows;
  size_t bytes = sl_batch_bytes(rows, s->sequences, 0, pages_each(s));
  const sl_type none = {.ndim = -1}, keys = SL_TYPE(SL_F32, 1, rows, kept * HEAD);
  const sl_type in[] = {SL_TYPE(SL_F32, 1, rows, count * HEAD), keys, keys, none,
                        SL_TYPE(SL_I32, (int64_t)(bytes / 4 + 1))};
  memcpy(t.in_type, in, sizeof in);
  t.attrs = (sl_attrs){.attention.heads = (int)count,
                       .attention.kv_heads = (int)kept,
                       .pages.count = s->sequences * pages_each(s)};
  t.fill = fill_batch, t.ctx = s;
  SLI_TRY(t.op->infer(&t.attrs, t.nin, t.in_type, t.out_type));
  return time_call(&t, 1, seconds);
}

/* Measures answers over `sequences`, or prompts if `sequences` is NULL. */
static sl_status add_attention(const measures *all, const char *row, const double *sequences,
                               int nsequences, const double *positions, int npositions,
                               cJSON *curves) {
  enum { HEADS = SLI_COUNT(heads), KEPT = SLI_COUNT(key_heads) };
  cJSON *curve = cJSON_AddObjectToObject(curves, row), *list = cJSON_CreateArray();
  if (sequences)
    cJSON_AddItemToObject(curve, "sequences", cJSON_CreateDoubleArray(sequences, nsequences));
  cJSON_AddItemToObject(curve, "positions", cJSON_CreateDoubleArray(positions, npositions));
  cJSON_AddItemToObject(curve, "heads", cJSON_CreateDoubleArray(heads, HEADS));
  cJSON_AddItemToObject(curve, "key_heads", cJSON_CreateDoubleArray(key_heads, KEPT));
  sl_status status = SL_OK;
  for (int i = 0; i < nsequences * npositions * HEADS * KEPT && !status; i++) {
    int64_t count = (int64_t)heads[i / KEPT % HEADS], kept = (int64_t)key_heads[i % KEPT];
    int64_t p = (int64_t)positions[i / (HEADS * KEPT) % npositions];
    const spans s = {sequences ? (int64_t)sequences[i / (HEADS * KEPT * npositions)] : 1, p,
                     sequences ? 1 : p};
    double seconds = 1;
    status = attention_seconds(all, &s, count, SLI_MIN(kept, count), &seconds);
    add_number(list, seconds);
  }
  cJSON_AddItemToObject(curve, "seconds", list);
  return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

sl_status served_measure(const settings *s, int devices, double seconds, cJSON *curves) {
  enum { CALLS = 4 * 2 * MS * NS * KS + 200 };
  const double rate = 2e10, most = 4e8; /* multiplications: about those of a second, at most */
  settings own = *s;
  machine placed = {0};
  own.lower.devices.count = devices;
  sl_status status = machine_place(&own, &placed);
  char *weights = status ? NULL : allocate(WEIGHTS);
  const measures all = {&own,    &placed,         weights,
                        devices, seconds / CALLS, fmin(rate * seconds / CALLS, most)};
  for (size_t i = 0; i < SLI_COUNT(stored) && !status; i++)
    status = add_products(&all, &stored[i], curves);
  if (!status)
    status = add_attention(&all, "attention_served", answers, SLI_COUNT(answers), seen,
                           SLI_COUNT(seen), curves);
  if (!status)
    status = add_attention(&all, "attention_served.prompt", NULL, 1, prompts, SLI_COUNT(prompts),
                           curves);
  cJSON_AddStringToObject(curves, "attention_packed_served", "attention_served");
  cJSON_AddStringToObject(curves, "attention_packed_served.prompt", "attention_served.prompt");
  free(weights);
  machine_fini(&placed);
  return status;
}
