/* SPDX-License-Identifier: Apache-2.0 */
/* Attention that receives keys and values piece by piece matches the CPU on a GPU, for any lengths
 * of pieces. Where pieces begin at tiles of keys, it has the bits of attention with the full
 * record.
 * labels: unthreaded */
#include <math.h>

#include "base/base.h"
#include "ops/ops.h"
#include "ops/layout.h"
#include "tests/gpu/device_call.h"
#include "tests/support/kernel_call.h"

enum { MOST_PIECES = 5 };

typedef struct shape {
  int heads, kv_heads, pieces;
  bool ids;
  int64_t batch, dim, window, starts[MOST_PIECES + 1];
} shape;

static const shape shapes[] = {
    {2, 1, 3, false, 1, 16, 0, {0, 5, 65, 73}}, {4, 2, 4, true, 2, 9, 0, {0, 70, 71, 100, 140}},
    {3, 3, 2, false, 1, 72, 0, {0, 40, 61}},    {2, 1, 3, true, 1, 24, 30, {0, 33, 70, 90}},
    {2, 2, 2, false, 1, 136, 0, {0, 50, 81}},   {2, 1, 3, true, 2, 16, 50, {0, 64, 128, 170}},
};

static int64_t rows(const shape *s, int k) { return s->starts[k + 1] - s->starts[k]; }

static sl_type of_q(const shape *s, int k) {
  return SL_TYPE(SL_F32, s->batch, rows(s, k), s->heads * s->dim);
}

static sl_type of_kv(const shape *s, int k) {
  return SL_TYPE(SL_F32, s->batch, rows(s, k), 2 * s->kv_heads * s->dim);
}

/* ---- a call on CPU and GPU ------------------------------------------------------------------- */

/* Calls with separate but equal inputs. */
typedef struct both {
  kernel cpu, gpu;
} both;

static void begin(const shape *s, const sl_attrs *attrs, const sl_op *op, int k, int nin,
                  const sl_type *types, both *b) {
  kernel *all[] = {&b->cpu, &b->gpu};
  for (int i = 0; i < 2; i++) {
    *all[i] = kernel_create(op, *attrs, nin, types, sli_op_outputs(op, attrs, nin));
    all[i]->tick = (sl_tick){.piece = k, .row = s->starts[k], .rows = rows(s, k)};
  }
}

static void fill(both *b, int input, int most) {
  const sl_type *type = &b->cpu.in_type[input];
  array_random(b->cpu.in[input], type, most);
  memcpy(b->gpu.in[input], b->cpu.in[input], sl_type_bytes(type));
}

static void carry(kernel *to, const kernel *from) {
  for (int o = 0; from->op && o < to->nout; o++)
    if (sli_op_memory(to->op)->updates >> o & 1 &&
        sl_type_equal(&to->out_type[o], &from->out_type[o]))
      memcpy(to->out[o], from->out[o], sl_type_bytes(&to->out_type[o]));
}

static void run_on_device(kernel *k) {
  device_call d;
  device_call_create(&d, k);
  device_call_run(&d, k, k->out, k->out);
  device_call_destroy(&d);
}

/* Attends to the keys of each piece up to the own one; with `falls`, from the own one down. */
static void sweep(const shape *s, both *b, int k, bool falls, bool first, uint32_t updates,
                  both *kv) {
  for (int i = 0; i <= k; i++) {
    int j = falls ? k - i : i;
    kernel cpu = b->cpu, gpu = b->gpu;
    cpu.in[1] = gpu.in[1] = kv[j].cpu.in[1];
    cpu.in_type[1] = gpu.in_type[1] = of_kv(s, j);
    cpu.accumulate = gpu.accumulate = first && !i ? 0 : updates;
    kernel_run(&cpu, NULL);
    run_on_device(&gpu);
  }
}

static void close_to(const both *b, int o, int k) {
  const float *want = b->cpu.out[o], *got = b->gpu.out[o];
  for (int64_t i = 0, n = sl_type_elements(&b->cpu.out_type[o]); i < n; i++)
    CHECK(fabsf(got[i] - want[i]) <= 2e-5f * (1 + fabsf(want[i])),
          "%s, piece %d: %g, not %g at %lld of %d", b->cpu.op->name, k, (double)got[i],
          (double)want[i], (long long)i, o);
}

/* ---- with the full record -------------------------------------------------------------------- */

static bool by_tiles(const shape *s) {
  for (int k = 0; k < s->pieces; k++)
    if (s->starts[k] % 64) return false;
  return true;
}

/* Compares with q of piece k, and the keys and values up to and including that piece. */
static void same_as_whole(const shape *s, const sl_attrs *attrs, const both *b, int k,
                          const both *all, kernel *before) {
  sl_type half = SL_TYPE(SL_F32, s->batch, rows(s, k), s->kv_heads * s->dim);
  sl_type types[] = {of_q(s, k), half, half, SL_TYPE(SL_I32, s->batch, rows(s, k))};
  kernel w = kernel_create(&sl_op_attention_piece, *attrs, 3 + s->ids, types,
                           sli_op_outputs(&sl_op_attention_piece, attrs, 3 + s->ids));
  w.tick = b->gpu.tick;
  memcpy(w.in[0], b->gpu.in[0], sl_type_bytes(&types[0]));
  int64_t width = half.dim[2];
  const float *kv = all[k].cpu.in[1];
  for (int64_t r = 0; r < s->batch * rows(s, k); r++)
    for (int i = 0; i < 2; i++)
      memcpy((float *)w.in[1 + i] + r * width, kv + (2 * r + i) * width,
             (size_t)width * sizeof *kv);
  if (s->ids) memcpy(w.in[3], b->gpu.in[2], sl_type_bytes(&types[3]));
  carry(&w, before);
  run_on_device(&w);
  for (int o = 0; o < 2; o++)
    CHECK(!memcmp(w.out[o], b->gpu.out[o], sl_type_bytes(&w.out_type[o])), "piece %d: other bits",
          k);
  if (before->op) kernel_destroy(before);
  *before = w;
}

/* ---- a sequence --------------------------------------------------------------------------- */

static void check_forward(const shape *s, const sl_attrs *attrs, both *all) {
  kernel none = {0}, whole = {0};
  for (int k = 0; k < s->pieces; k++) {
    sl_type types[] = {of_q(s, k), of_kv(s, k), SL_TYPE(SL_I32, s->batch, rows(s, k))};
    begin(s, attrs, &sl_op_attention_sweep, k, 2 + s->ids, types, &all[k]);
    fill(&all[k], 0, 0);
    fill(&all[k], 1, 0);
    if (s->ids) fill(&all[k], 2, 3);
    carry(&all[k].cpu, k ? &all[k - 1].cpu : &none);
    carry(&all[k].gpu, k ? &all[k - 1].gpu : &none);
    sweep(s, &all[k], k, true, !k, sli_op_memory(all[k].cpu.op)->updates, all);
    close_to(&all[k], 0, k);
    close_to(&all[k], 1, k);
    if (by_tiles(s)) same_as_whole(s, attrs, &all[k], k, all, &whole);
  }
  if (whole.op) kernel_destroy(&whole);
}

static void check_backward(const shape *s, const sl_attrs *attrs, both *all) {
  both later = {0};
  for (int k = s->pieces - 1; k >= 0; k--) {
    const kernel *f = &all[k].cpu, *last = &all[s->pieces - 1].cpu;
    sl_type types[] = {of_q(s, k),     of_kv(s, k),
                       f->out_type[0], f->out_type[1],
                       f->out_type[0], SL_TYPE(SL_I32, s->batch, attrs->place.length)};
    const void *given[] = {f->in[0],  f->in[1], f->out[0],
                           f->out[1], NULL,     s->ids ? last->out[4] : NULL};
    both b;
    begin(s, attrs, &sl_op_attention_sweep_b, k, 5 + s->ids, types, &b);
    fill(&b, 4, 0);
    for (int i = 0; i < 5 + s->ids; i++) {
      if (!given[i]) continue;
      memcpy(b.cpu.in[i], given[i], sl_type_bytes(&types[i]));
      memcpy(b.gpu.in[i], given[i], sl_type_bytes(&types[i]));
    }
    carry(&b.cpu, &later.cpu);
    carry(&b.gpu, &later.gpu);
    sweep(s, &b, k, false, k == s->pieces - 1, 4, all);
    close_to(&b, 0, k);
    close_to(&b, 1, k);
    if (later.cpu.op) kernel_destroy(&later.cpu), kernel_destroy(&later.gpu);
    later = b;
  }
  kernel_destroy(&later.cpu);
  kernel_destroy(&later.gpu);
}

static void check_shape(const shape *s) {
  both all[MOST_PIECES];
  sl_call_cut cut = {s->pieces, s->starts};
  sl_attrs attrs = {.attention.heads = s->heads,
                    .attention.kv_heads = s->kv_heads,
                    .place.length = s->starts[s->pieces],
                    .attention.window = s->window,
                    .user = &cut};
  check_forward(s, &attrs, all);
  check_backward(s, &attrs, all);
  for (int k = 0; k < s->pieces; k++) kernel_destroy(&all[k].cpu), kernel_destroy(&all[k].gpu);
}

/* ---- packed queries, keys and values --------------------------------------------------------- */

static void check_moves(const sl_op *op, sl_attrs attrs, int nin, const sl_type *types) {
  shape s = {.pieces = 1, .starts = {0, 7}};
  both b;
  begin(&s, &attrs, op, 0, nin, types, &b);
  for (int i = 0; i < nin; i++) fill(&b, i, 0);
  kernel_run(&b.cpu, NULL);
  run_on_device(&b.gpu);
  for (int o = 0; o < b.cpu.nout; o++)
    CHECK(!memcmp(b.cpu.out[o], b.gpu.out[o], sl_type_bytes(&b.cpu.out_type[o])), "%s: output %d",
          op->name, o);
  kernel_destroy(&b.cpu);
  kernel_destroy(&b.gpu);
}

int main(void) {
  need_gpu();
  const sl_attrs attrs = {.attention.heads = 4, .attention.kv_heads = 2};
  sl_type q = SL_TYPE(SL_F32, 2, 7, 20), half = SL_TYPE(SL_F32, 2, 7, 10),
          kv = SL_TYPE(SL_F32, 2, 7, 20);
  sl_type packed = SL_TYPE(SL_F32, 2, 7, 40);
  RUN(check_moves, &sl_op_attention_parts, attrs, 3, (sl_type[]){q, half, half});
  RUN(check_moves, &sl_op_attention_parts_b, attrs, 2, (sl_type[]){q, kv});
  RUN(check_moves, &sl_op_attention_packed_parts, attrs, 1, &packed);
  RUN(check_moves, &sl_op_attention_packed_parts_b, attrs, 2, (sl_type[]){q, kv});
  for (size_t i = 0; i < SLI_COUNT(shapes); i++) RUN(check_shape, &shapes[i]);
  return 0;
}
