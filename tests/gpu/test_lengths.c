/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on a GPU whose row counts only the data determine: rows sent to experts' devices and back
 * have the bits and counts of the CPU. A reader in the same firing sees only valid rows, the count
 * is known when the firing completes, and a count beyond the room ends the run. */
#include <sluice/experts.h>
#include <sluice/plan.h>

#include "ops/facets.h"
#include "tests/gpu/device_call.h"

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)

enum { TOKENS = 50, EACH = 2, IDS = TOKENS * EACH, EXPERTS = 6, WIDTH = 12, ARGUMENTS = 6 };

/* Calls in one program, each argument in a separate base. */
typedef struct firing {
  int nbases;
  void *bases[ARGUMENTS];
  sl_type type[ARGUMENTS];
  int16_t valid_rows[ARGUMENTS + 1]; /* SL_NONE if full */
  int32_t rows[ARGUMENTS + 1];
  const char *failure;
  char why[500];
} firing;

static int add_base(firing *f, const sl_type *type, const void *data, int32_t rows) {
  int b = f->nbases++;
  f->type[b] = *type;
  f->rows[b] = rows;
  CHECK(!sl_cuda_memory_create(0, sl_type_bytes(type), &f->bases[b]), "%s", sl_detail());
  if (data) CHECK(!sl_cuda_copy(f->bases[b], data, sl_type_bytes(type)), "%s", sl_detail());
  return b;
}

/* Runs calls whose arguments are base numbers; the first `nread` are inputs. */
static void run(firing *f, sl_program_call *calls, int ncalls, int nread, int nlengths,
                const int32_t *room) {
  int32_t noted = 0, *to[ARGUMENTS + 1];
  for (int b = 0; b < f->nbases; b++) to[b] = f->valid_rows[b] >= 0 ? &f->rows[b] : NULL;
  to[f->nbases] = &noted;
  f->valid_rows[f->nbases] = SL_NONE;
  f->bases[f->nbases] = NULL;
  sl_program program = {.ncalls = ncalls,
                        .calls = calls,
                        .nbases = f->nbases + 1,
                        .nlengths = nlengths,
                        .nread = nread,
                        .length_rows = room,
                        .base_length = f->valid_rows};
  const sl_queue_ops *ops = &sl_queue_cuda;
  void *queue;
  CHECK(!ops->prepare(&program, 0), "%s", sl_detail());
  CHECK(!ops->open(&(sl_queue_config){.scratch_bytes = ops->scratch(&program, 1)}, &queue), "%s",
        sl_detail());
  sl_firing once = {.bases = f->bases, .first = (const uint8_t[ARGUMENTS + 1]){0}, .lengths = to};
  uint64_t fence;
  for (int again = 0; again < 2 && !f->failure; again++) {
    CHECK(!ops->launch(queue, &program, &once, 0, 0, &fence), "a launch is not complete on return");
    while (!ops->done(queue, fence, 0) && !(f->failure = ops->failure(queue))) sched_yield();
  }
  if (f->failure) snprintf(f->why, sizeof f->why, "%s", f->failure);
  CHECK(f->failure || f->valid_rows[f->nbases - 1] < 0 || noted == f->rows[f->nbases - 1],
        "%d rows are noted, not %d", (int)noted, (int)f->rows[f->nbases - 1]);
  ops->close(queue);
  ops->release(&program);
}

static void end(firing *f) {
  for (int b = 0; b < f->nbases; b++) sl_cuda_memory_destroy(f->bases[b]);
}

static int64_t rows_of(const sl_type *t) { return t->dim[t->ndim > 1 && t->dim[0] == 1]; }

/* Compares one call on CPU and GPU, with `valid` rows of each input (-1 for all). */
static void check(const sl_op *op, const sl_dispatch *route, int nin, const sl_type *in,
                  const int32_t *valid) {
  kernel k = kernel_create(op, (sl_attrs){.user = route}, nin, in, 1);
  for (int i = 0; i < nin; i++) array_random(k.in[i], &in[i], EXPERTS);
  for (int i = 0; i < nin; i++)
    for (int64_t e = 0; in[i].dtype == SL_I32 && e < sl_type_elements(&in[i]); e += 7)
      ((int32_t *)k.in[i])[e] = -1;
  sl_call call = kernel_call(&k, NULL);
  int32_t want = (int32_t)rows_of(&k.out_type[0]), room[ARGUMENTS];
  call.in_rows = valid;
  call.out_rows = &want;
  call.scratch = malloc(k.kernel->scratch ? k.kernel->scratch(&call, 1) + 1 : 1);
  k.kernel->run(&call);
  free(call.scratch);

  firing f = {0};
  sl_place places[ARGUMENTS];
  int n = 0;
  for (int a = 0; a <= nin; a++) {
    const sl_type *type = a < nin ? &in[a] : &k.out_type[0];
    bool has = a < nin ? valid[a] >= 0 : sli_op_rows(op)->fills & 1;
    places[a] =
        (sl_place){add_base(&f, type, a < nin ? k.in[a] : NULL, a < nin ? valid[a] : -1), 0};
    f.valid_rows[a] = has ? (int16_t)n : SL_NONE;
    if (has) room[n++] = (int32_t)rows_of(type);
  }
  sl_program_call one = {.op = op,
                         .name = op->name,
                         .attrs = k.attrs,
                         .nin = nin,
                         .nout = 1,
                         .in_type = in,
                         .out_type = k.out_type,
                         .in = places,
                         .out = places + nin,
                         .in_length = f.valid_rows,
                         .out_length = f.valid_rows + nin};
  run(&f, &one, 1, nin, n, room);
  CHECK(!f.failure, "%s: %s", op->name, f.why);
  CHECK(!(sli_op_rows(op)->fills & 1) || f.rows[nin] == want, "%s: %d rows, and %d on the CPU",
        op->name, (int)f.rows[nin], (int)want);
  size_t all = sl_type_bytes(&k.out_type[0]);
  size_t bytes =
      sli_op_rows(op)->fills & 1 ? all / (size_t)rows_of(&k.out_type[0]) * (size_t)want : all;
  void *got = malloc(all);
  CHECK(!sl_cuda_copy(got, f.bases[nin], all), "%s", sl_detail());
  CHECK(!memcmp(got, k.out[0], bytes), "%s: other rows than on the CPU", op->name);
  free(got);
  end(&f);
  kernel_destroy(&k);
}

static void check_routes(int64_t first, int64_t count) {
  const int32_t full[] = {-1, -1}, some[] = {-1, 17, 0, 30}, ten[] = {10, -1}, none[] = {0, -1},
                parts[] = {17, 0, 30};
  const sl_type ids = I32(TOKENS, EACH), rows = F32(1, IDS, WIDTH), part = F32(1, 40, WIDTH);
  sl_dispatch r = {.type = rows, .first = first, .count = count, .begin = 20, .end = 60};
  check(&sl_op_dispatch, &r, 2, (const sl_type[]){F32(TOKENS, WIDTH), ids}, full);
  check(&sl_op_dispatch, &r, 2, (const sl_type[]){F32(TOKENS, EACH, WIDTH), ids}, full);
  check(&sl_op_give_back, &r, 2, (const sl_type[]){rows, ids}, (const int32_t[]){90, -1});
  check(&sl_op_give_back, &r, 2, (const sl_type[]){rows, ids}, ten);
  check(&sl_op_give_back, &r, 2, (const sl_type[]){rows, ids}, none);
  check(&sl_op_collect, &r, 3, (const sl_type[]){part, part, part}, parts);
  r.type = I32(1, IDS);
  check(&sl_op_own_ids, &r, 1, &ids, full);
  r.count = EXPERTS;
  for (int summed = 0; summed < 2; summed++) {
    r.type = summed ? F32(TOKENS, WIDTH) : F32(TOKENS, EACH, WIDTH);
    check(&sl_op_restore, &r, 4, (const sl_type[]){ids, part, part, part}, some);
  }
}

/* Dispatches rows and applies gelu to those that arrived: the host has to wait between the two. */
static void check_used_at_once(int64_t count) {
  const sl_type x = F32(TOKENS, WIDTH), ids = I32(TOKENS, EACH), rows = F32(1, IDS, WIDTH);
  const sl_dispatch r = {.type = rows, .first = 1, .count = count};
  int32_t of[IDS], n = 0, room = IDS;
  float *numbers = array_create(&x), *got = array_create(&rows);
  array_random(numbers, &x, 0);
  for (int i = 0; i < IDS; i++) n += (of[i] = i % 3) == 1;
  if (!count) n = 0;
  firing f = {.valid_rows = {SL_NONE, SL_NONE, 0, 0}};
  sl_place places[4];
  for (int a = 0; a < 4; a++) places[a] = (sl_place){a, 0};
  add_base(&f, &x, numbers, -1);
  add_base(&f, &ids, of, -1);
  add_base(&f, &rows, NULL, -1);
  add_base(&f, &rows, NULL, -1);
  sl_program_call calls[] = {{.op = &sl_op_dispatch,
                              .name = "there",
                              .attrs = {.user = &r},
                              .nin = 2,
                              .nout = 1,
                              .in_type = (const sl_type[]){x, ids},
                              .out_type = &rows,
                              .in = places,
                              .out = places + 2,
                              .out_length = f.valid_rows + 2},
                             {.op = &sl_op_gelu,
                              .name = "gelu",
                              .nin = 1,
                              .nout = 1,
                              .in_type = &rows,
                              .out_type = &rows,
                              .in = places + 2,
                              .out = places + 3,
                              .in_length = f.valid_rows + 2,
                              .out_length = f.valid_rows + 3}};
  run(&f, calls, 2, 2, 1, &room);
  CHECK(!f.failure && f.rows[2] == n && f.rows[3] == n, "%d and %d rows, not %d", (int)f.rows[2],
        (int)f.rows[3], (int)n);
  CHECK(!sl_cuda_copy(got, f.bases[3], sl_type_bytes(&rows)), "%s", sl_detail());
  for (int i = 0; i < IDS * WIDTH; i++)
    CHECK((got[i] != 0) == (i < n * WIDTH), "element %d of %d rows is %g", i, (int)n,
          (double)got[i]);
  end(&f);
  free(numbers);
  free(got);
}

static void check_crowded(void) {
  const sl_type ids = I32(TOKENS, EACH), out = I32(1, 64);
  const sl_dispatch r = {.type = out, .first = 4, .count = 4, .expected = 50, .rank = 1};
  int32_t of[IDS], room = 64;
  for (int i = 0; i < IDS; i++) of[i] = i < 86 ? 4 + i % 4 : 0;
  firing f = {.valid_rows = {SL_NONE, 0}};
  add_base(&f, &ids, of, -1);
  add_base(&f, &out, NULL, -1);
  const sl_place places[] = {{0, 0}, {1, 0}};
  sl_program_call one = {.op = &sl_op_own_ids,
                         .name = "h.0/own_ids",
                         .attrs = {.user = &r},
                         .nin = 1,
                         .nout = 1,
                         .in_type = &ids,
                         .out_type = &out,
                         .in = places,
                         .out = places + 1,
                         .out_length = f.valid_rows + 1};
  run(&f, &one, 1, 1, 1, &room);
  CHECK(
      strstr(
          f.why,
          "op h.0/own_ids (own_ids): 86 rows come to device 1 of the stage for its experts 4 to 7, "
          "but it has room for 64: --expert-rows 1.72"),
      "the failure is %s", f.why);
  end(&f);
}

int main(void) {
  need_gpu();
  seed_random(1);
  RUN(check_routes, 2, 3);
  RUN(check_routes, 0, EXPERTS);
  RUN(check_routes, EXPERTS, 2);
  RUN(check_used_at_once, 1);
  RUN(check_used_at_once, 0);
  RUN(check_crowded);
  return 0;
}
