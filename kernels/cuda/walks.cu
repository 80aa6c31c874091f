/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of states along positions: linear attention and the delta rule (kernels/walks).
 *
 * A block walks 32 lanes of the states of a group's heads, one head after another. Each thread
 * holds every eighth row of one lane in registers. A position's sums over the rows are joined in
 * order through shared memory. In served graphs a block finds its sequence in the batch; a row's
 * sums do not depend on other rows, so it has the same bits in any batch. */
#include "kernels/cuda/served.cuh"
#include "kernels/walks/walks.h"

namespace {

using namespace sli;

constexpr int LANES = WARP, GROUPS = BLOCK / WARP;

__device__ inline bool walks_back(const sli_walk &w) {
  return w.kind == SLI_WALK_BACK || w.kind == SLI_WALK_DELTA_BACK ||
         w.kind == SLI_WALK_DELTA_KEYS_BACK;
}

/* Sequences of a tick and their slots of states; batch NULL: whole sequences. */
struct tick {
  const sl_batch *batch;
  float *states;
  int64_t numbers; /* of a sequence's states */
};

/* Rows of x that a block walks. */
struct stretch {
  int64_t row, positions;
  const float *from;
  float *to;                         /* states after the last position; may be NULL */
  const sl_batch_sequence *settings; /* have the slots of states; NULL: whole sequences */
};

__device__ inline stretch stretch_of(const sli_walk &w, const tick &t, int64_t i) {
  if (!t.batch) return {i * w.positions, w.positions, w.from, w.to, nullptr};
  const int32_t *sequence = sl_batch_sequence_of(t.batch);
  if (i && sequence[i - 1] == sequence[i]) return {};
  int64_t end = i;
  while (end < t.batch->rows && sequence[end] == sequence[i]) end++;
  const sl_batch_sequence *own = &sl_batch_settings(t.batch)[sequence[i]];
  return {i, end - i, own->from < 0 ? nullptr : t.states + own->from * t.numbers, nullptr, own};
}

/* Returns the numbers of a head at a row. */
__device__ inline const float *numbers_at(const sli_walked &o, int64_t row, int64_t head) {
  return o.x ? o.x + row * o.row + head / o.group * o.width : nullptr;
}

__device__ inline float gate_of(float g) { return g < -86.6f ? 0.0f : expf(g); }

/* Returns the sum over the block's rows of one lane, in order. Two arrays alternate, so that one
 * barrier is enough. */
__device__ inline float lane_sum(float part, int *turn) {
  __shared__ float parts[2][GROUPS][LANES];
  int lane = (int)threadIdx.x % LANES;
  float(*now)[LANES] = parts[ *turn ^= 1];
  now[threadIdx.x / LANES][lane] = part;
  __syncthreads();
  float sum = now[0][lane];
  for (int k = 1; k < GROUPS; k++) sum += now[k][lane];
  return sum;
}

__device__ inline void write_sum(const sli_walk_sum &s, const sli_walk &w, int64_t row, int64_t h,
                                 int64_t lane, float x) {
  if (!s.y || threadIdx.x >= LANES || lane >= w.lanes) return;
  float *y = s.y + row * s.row + h / s.group * w.lanes + lane;
  x *= s.factor;
  *y = s.onto || h % s.group ? *y + x : x;
}

/* The numbers of a position. */
struct position {
  const float *b, *d, *b2, *g;
  float c, c2, part;
};

__device__ inline position position_at(const sli_walk &w, int64_t row, int64_t h, int64_t lane) {
  const float *c = numbers_at(w.c, row, h), *c2 = numbers_at(w.c2, row, h);
  const float *part = numbers_at(w.part, row, h);
  bool here = lane < w.lanes;
  return {numbers_at(w.b, row, h), numbers_at(w.d, row, h),    numbers_at(w.b2, row, h),
          numbers_at(w.g, row, h), c && here ? c[lane] : 0.0f, c2 && here ? c2[lane] : 0.0f,
          part ? *part : 0.0f};
}

/* Returns the gate of a row of the block's lane. */
__device__ inline float gate_at(const sli_walk &w, const position &p, int64_t r, int64_t lane) {
  if (w.per_head) return gate_of(*p.g);
  if (!w.by_lane) return gate_of(p.g[r]);
  return lane < w.lanes ? gate_of(p.g[lane]) : 0.0f;
}

/* A block's part of a state: row i of a thread is row_of(i). */
template <int ROWS> struct rows { float x[ROWS]; };
__device__ inline int64_t row_of(int i) { return (int64_t)threadIdx.x / LANES + i * GROUPS; }

/* Calls f(x, r) with each of the thread's rows. */
template <int ROWS, typename F>
__device__ inline void each_row(const sli_walk &w, rows<ROWS> &s, F f) {
#pragma unroll
  for (int i = 0; i < ROWS; i++)
    if (row_of(i) < w.rows) f(s.x[i], row_of(i));
}

template <int ROWS> __device__ inline void walk_forth(const sli_walk &w, rows<ROWS> &s,
                                                      const position &p, int64_t row, int64_t h,
                                                      int64_t lane, int *turn) {
  float y = 0, z = 0;
  each_row(w, s, [&](float &x, int64_t r) {
    x *= gate_at(w, p, r, lane);
    if (p.b2) z += p.b2[r] * x;
    x += p.b[r] * p.c;
    if (p.d) y += p.d[r] * x;
  });
  if (p.b2) write_sum(w.z, w, row, h, lane, lane_sum(z, turn));
  if (p.d) write_sum(w.y, w, row, h, lane, lane_sum(y, turn));
}

template <int ROWS> __device__ inline void walk_back(const sli_walk &w, rows<ROWS> &s,
                                                     const position &p, int64_t row, int64_t h,
                                                     int64_t lane, int *turn) {
  float y = 0;
  each_row(w, s, [&](float &x, int64_t r) {
    x += p.b[r] * p.c;
    if (p.d) y += p.d[r] * x;
    if (p.b2) x -= p.b2[r] * p.c2;
    x *= gate_at(w, p, r, lane);
  });
  if (p.d) write_sum(w.y, w, row, h, lane, lane_sum(y, turn));
}

template <int ROWS> __device__ inline void walk_delta(const sli_walk &w, rows<ROWS> &s,
                                                      const position &p, int64_t row, int64_t h,
                                                      int64_t lane, int *turn) {
  float y = 0, z = 0;
  each_row(w, s, [&](float &x, int64_t r) {
    x *= gate_at(w, p, r, lane);
    z += p.b[r] * x;
  });
  z = p.c - lane_sum(z, turn);
  each_row(w, s, [&](float &x, int64_t r) {
    x += p.b[r] * (p.part * z);
    y += p.d[r] * x;
  });
  write_sum(w.z, w, row, h, lane, z);
  write_sum(w.y, w, row, h, lane, lane_sum(y, turn));
}

template <int ROWS> __device__ inline void walk_delta_back(const sli_walk &w, rows<ROWS> &s,
                                                           const position &p, int64_t row,
                                                           int64_t h, int64_t lane, int *turn) {
  float y = 0;
  each_row(w, s, [&](float &x, int64_t r) {
    x += p.b[r] * p.c;
    y += p.d[r] * x;
  });
  y = lane_sum(y, turn);
  each_row(w, s,
           [&](float &x, int64_t r) { x = gate_at(w, p, r, lane) * (x - p.d[r] * (p.part * y)); });
  write_sum(w.y, w, row, h, lane, y);
}

/* Walks a position by the walk's kind: one of these four. */
template <int ROWS> __device__ inline void walk_position(const sli_walk &w, rows<ROWS> &s,
                                                         int64_t row, int64_t h, int64_t lane,
                                                         int *turn) {
  position p = position_at(w, row, h, lane);
  if (w.kind == SLI_WALK_DELTA) walk_delta(w, s, p, row, h, lane, turn);
  else if (w.kind == SLI_WALK_DELTA_BACK) walk_delta_back(w, s, p, row, h, lane, turn);
  else if (walks_back(w)) walk_back(w, s, p, row, h, lane, turn);
  else walk_forth(w, s, p, row, h, lane, turn);
}

/* ---- states ---------------------------------------------------------------------------------- */

__device__ inline int64_t place_in_state(const sli_walk &w, int64_t r, int64_t lane) {
  return r * w.state_row + lane * w.state_lane;
}

template <int ROWS> __device__ inline void read_state(const sli_walk &w, rows<ROWS> &s,
                                                      const float *from, int64_t lane) {
#pragma unroll
  for (int i = 0; i < ROWS; i++)
    s.x[i] = from && row_of(i) < w.rows && lane < w.lanes ? from[place_in_state(w, row_of(i), lane)]
                                                          : 0.0f;
}

template <int ROWS> __device__ inline void write_state(const sli_walk &w, rows<ROWS> &s, float *to,
                                                       int64_t lane, bool add) {
  if (lane >= w.lanes) return;
  each_row(w, s, [&](float x, int64_t r) {
    float *at = to + place_in_state(w, r, lane);
    *at = add ? *at + x : x;
  });
}

/* Stores the state after position n of a served sequence in its slots, if they have any for it. */
template <int ROWS> __device__ inline void keep_state(const sli_walk &w, const tick &t,
                                                      const stretch &own, rows<ROWS> &s, int64_t n,
                                                      int64_t state, int64_t lane) {
  const sl_batch_sequence *settings = own.settings;
  int64_t behind = own.positions - 1 - n;
  if (!settings || behind > settings->drafted) return;
  int64_t slot = sl_batch_slot(settings, sl_batch_position(t.batch)[own.row + n]);
  write_state(w, s, t.states + slot * t.numbers + state, lane, false);
  if (settings->kept >= 0 && behind == settings->drafted)
    write_state(w, s, t.states + settings->kept * t.numbers + state, lane, false);
}

/* Block (sequence or row of the tick, group of heads, lanes). */
template <int ROWS> __global__ void walk_states(sli_walk w, tick t) {
  stretch own = stretch_of(w, t, blockIdx.x);
  if (!own.positions) return;
  int64_t heads = w.heads / w.groups, lane = (int64_t)blockIdx.z * LANES + threadIdx.x % LANES;
  int64_t b = t.batch ? 0 : blockIdx.x;
  bool back = walks_back(w);
  int turn = 0;
  for (int64_t h = blockIdx.y * heads; h < (blockIdx.y + 1) * heads; h++) {
    int64_t state =
        (b * w.states + h / w.state_group) * (w.rows * w.lanes + w.state_gap) + b * w.state_rest;
    bool first = h % w.state_group == 0, last = (h + 1) % w.state_group == 0;
    rows<ROWS> s;
    read_state(w, s, own.from && (first || !back) ? own.from + state : nullptr, lane);
    for (int64_t n = 0; n < own.positions; n++) {
      walk_position(w, s, own.row + (back ? own.positions - 1 - n : n), h, lane, &turn);
      if (last) keep_state(w, t, own, s, n, state, lane);
    }
    if (own.to && (last || back)) write_state(w, s, own.to + state, lane, back && !first);
  }
}

void launch_walk(const sli_walk &w, const tick &t, int64_t sequences, void *stream) {
  dim3 grid((unsigned)sequences, (unsigned)w.groups, (unsigned)chunks(w.lanes, LANES));
  if (!sequences) return;
  if (w.rows <= GROUPS) launch(stream, grid, BLOCK, 0, walk_states<1>, w, t);
  else if (w.rows <= 4 * GROUPS) launch(stream, grid, BLOCK, 0, walk_states<4>, w, t);
  else if (w.rows <= 16 * GROUPS) launch(stream, grid, BLOCK, 0, walk_states<16>, w, t);
  else launch(stream, grid, BLOCK, 0, walk_states<32>, w, t);
}

/* ---- gradients of gates ---------------------------------------------------------------------- */

/* Returns a position's term of the gradient of channel c of a key head's gates. */
__device__ inline double channel_term(const sli_gate_gradients &g, const float *q, const float *k,
                                      int64_t row, int64_t h, int64_t c) {
  const sli_linear_shape &s = g.shape;
  int64_t group = s.q_heads / s.k_heads, at = (row * s.k_heads + h) * s.dk + c;
  double term = 0;
  for (int64_t n = 0; n < group; n++) {
    int64_t q_at = (row * s.q_heads + h * group + n) * s.dk + c;
    term += (double)q[q_at] * (double)g.dq[q_at];
  }
  double dk = (double)g.dk[at] - (g.less ? 2 * (double)g.less[at] : 0);
  return term - (double)k[at] * dk;
}

/* Returns a position's term of the gradient of the gate of value head h, in every thread. */
__device__ inline double head_term(const sli_gate_gradients &g, const float *v, int64_t row,
                                   int64_t h) {
  const sli_linear_shape &s = g.shape;
  int64_t n = s.heads / s.v_heads * s.dv, o_at = (row * s.v_heads + h) * n;
  int64_t v_at = (row * s.v_heads + h) * s.dv;
  double term = 0;
  for (int64_t j = threadIdx.x; j < n; j += BLOCK)
    term += (double)g.o[o_at + j] * (double)g.dout[o_at + j];
  for (int64_t j = threadIdx.x; j < s.dv; j += BLOCK)
    term -= (double)v[v_at + j] * (double)g.dv[v_at + j];
  return block_sum(term);
}

/* Returns what the positions after a share add to the gates of a row of the state. */
__device__ inline double term_behind(const sli_gate_gradients &g, int64_t state, int64_t c,
                                     double scale) {
  int64_t at = state * g.shape.dk * g.shape.dv + c * g.shape.dv;
  double term = 0;
  for (int64_t j = 0; j < g.shape.dv; j++, at++) term += (double)g.end[at] * (double)g.behind[at];
  return scale * term;
}

struct gate_inputs {
  const float *q, *k, *v, *gates;
  double scale;
  int64_t carry; /* numbers of a sequence's gradient record */
};

/* Block (sequence, value head): sums over the positions from the last one. A thread has a channel,
 * or all of them the head. */
__global__ void sum_gates(sli_gate_gradients g, gate_inputs in) {
  const sli_linear_shape &s = g.shape;
  int64_t b = blockIdx.x, h = blockIdx.y, n = s.per_head ? 1 : s.dk, c = threadIdx.x;
  double sum = 0;
  double *carry = g.carry && c < n
                      ? (double *)(g.carry + b * in.carry + s.heads * s.dk * s.dv + 2 * h * n) + c
                      : nullptr;
  if (carry && !g.starts) memcpy(&sum, carry, sizeof sum);
  for (int64_t i = s.per_head ? 0 : c; g.behind && c < n && i < (s.per_head ? s.dk : c + 1); i++)
    sum += term_behind(g, b * s.v_heads + h, i, in.scale);
  for (int64_t t = s.positions - 1; t >= 0; t--) {
    int64_t row = b * s.positions + t, at = (row * s.v_heads + h) * n + c;
    double term = 0;
    if (s.per_head) term = head_term(g, in.v, row, h);
    else if (c < n) term = channel_term(g, in.q, in.k, row, h, c);
    if (c >= n) continue;
    sum += term;
    if (in.gates[at] < -86.6f) sum = 0;
    g.dgates[at] = (float)sum;
  }
  if (carry) memcpy(carry, &sum, sizeof sum);
}

/* ---- parts of the delta rule ----------------------------------------------------------------- */

__global__ void prepare_parts(sli_delta_parts p) {
  int64_t n = p.positions * p.heads * p.dv_width, at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (at >= n) return;
  p.u[at] = p.part[at / p.dv_width] * p.e[at];
  p.scaled[at] = p.dout[at] * p.scale;
}

/* One thread per position and head. */
__global__ void finish_parts(sli_delta_parts p) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= p.positions * p.heads) return;
  double sum = 0;
  for (int64_t at = i * p.dv_width; at < (i + 1) * p.dv_width; at++) {
    sum += (double)p.dv[at] * (double)p.e[at];
    p.dv[at] *= p.part[i];
  }
  if (p.dpart) p.dpart[i] = (float)sum;
}

/* ---- the engine ------------------------------------------------------------------------------ */

void run_walk(const sli_walk_engine *e, const sli_walk *w) {
  launch_walk(*w, tick{}, w->batch, e->on);
}

void run_gates(const sli_walk_engine *e, const sli_gate_gradients *g) {
  const sl_call *call = g->call;
  gate_inputs in = {(const float *)call->in[SLI_WALK_Q],
                    (const float *)call->in[SLI_WALK_K],
                    (const float *)call->in[SLI_WALK_V],
                    (const float *)call->in[SLI_WALK_GATES],
                    (double)sli_linear_scale(call->attrs, g->shape.dk),
                    sli_linear_carry(&g->shape)};
  launch(e->on, dim3((unsigned)g->shape.batch, (unsigned)g->shape.v_heads), BLOCK, 0, sum_gates, *g,
         in);
}

void run_first(const sli_walk_engine *e, const sli_delta_parts *p) {
  launch(e->on, grid_of(chunks(p->positions * p->heads * p->dv_width, BLOCK)), BLOCK, 0,
         prepare_parts, *p);
}

void run_last(const sli_walk_engine *e, const sli_delta_parts *p) {
  launch(e->on, grid_of(chunks(p->positions * p->heads, BLOCK)), BLOCK, 0, finish_parts, *p);
}

void clear(const sli_walk_engine *e, void *to, size_t bytes) {
  cudaMemsetAsync(to, 0, bytes, (cudaStream_t)e->on);
}

void copy(const sli_walk_engine *e, void *to, const void *from, size_t bytes) {
  cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)e->on);
}

void run_on(const sl_call *call, void *stream, sli_walk_run *run) {
  const sli_walk_engine e = {run_walk, run_gates, run_first, run_last, clear, copy, stream};
  run(call, &e);
}

/* Walks the sequences of a tick; their states are output `states`. */
void walk_tick(const sl_call *call, const sli_linear_shape &s, const sli_walk &w, int states,
               void *stream) {
  tick t = {batch_of(call), (float *)call->out[states], s.v_heads * s.dk * s.dv};
  launch_walk(w, t, served_rows(call), stream);
}

/* ---- shares of positions (ops/linear_attention_share.c) ----------------------------------------
 */

/* Block (sequence, state): sums the logarithms of a share's gates behind the state in its record.
 */
__global__ void sum_logarithms(sli_linear_shape s, const float *gates, float *records) {
  int64_t b = blockIdx.x, h = blockIdx.y, n = s.per_head ? 1 : s.dk, state = s.dk * s.dv;
  int64_t c = threadIdx.x;
  double sum = 0;
  if (c >= n) return;
  for (int64_t t = 0; t < s.positions; t++)
    sum += (double)gates[((b * s.positions + t) * s.v_heads + h) * n + c];
  records[(b * s.v_heads + h) * (state + n) + state + c] = (float)sum;
}

void make_record(const sl_call *call, const sli_linear_shape &s, sli_walk *w, void *stream) {
  float *record = (float *)call->out[0];
  sli_walk_by_values(&s, w);
  w->to = record;
  w->state_gap = sli_linear_gap(&s);
  launch_walk(*w, tick{}, w->batch, stream);
  launch(stream, dim3((unsigned)s.batch, (unsigned)s.v_heads), BLOCK, 0, sum_logarithms, s,
         (const float *)call->in[SLI_WALK_GATES], record);
}

constexpr int RECORDS = 64; /* most records that are joined */

struct joining {
  const float *records[RECORDS]; /* [states, all] */
  int count, first;              /* first: records before the device's own */
  int64_t all, gates, states;
  float *state, *end; /* end: states after all records, for pieces; NULL: none */
  bool starts;        /* end begins with zeros */
};

/* One thread per number of the states. */
__global__ void join_records(joining j) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n = j.all - j.gates;
  if (i >= j.states * n) return;
  int64_t at = i / n * j.all, number = i % n, gate = at + n + number / (n / j.gates);
  float x = j.end && !j.starts ? j.end[i] : 0.0f;
  for (int r = 0; r < (j.end ? j.count : j.first); r++) {
    if (r == j.first) j.state[i] = x;
    x = expf(j.records[r][gate]) * x + j.records[r][at + number];
  }
  if (!j.end || j.first == j.count) j.state[i] = x;
  if (j.end) j.end[i] = x;
}

} // namespace

void sli_cuda_linear_attention_share(const sl_call *call, void *stream) {
  sli_linear_shape s = sli_linear_shape_of(call->attrs, call->in_type);
  s.heads = s.v_heads;
  sli_walk w = sli_walk_of(call, &s, SLI_WALK_FORTH);
  w.b = sli_walk_input(call, &s, SLI_WALK_K);
  w.c = sli_walk_input(call, &s, SLI_WALK_V);
  make_record(call, s, &w, stream);
}

void sli_cuda_linear_attention_share_b(const sl_call *call, void *stream) {
  sli_linear_shape s = sli_linear_shape_of(call->attrs, call->in_type);
  sli_walk w = sli_walk_of(call, &s, SLI_WALK_BACK);
  w.b = sli_walk_input(call, &s, SLI_WALK_Q);
  w.c = sli_walk_array(&s, (const float *)call->in[SLI_WALK_GATES + 1], s.heads, s.dv);
  make_record(call, s, &w, stream);
}

sl_status sli_cuda_linear_attention_join_prepare(const sl_call *call, void **state) {
  *state = NULL;
  if (call->nin <= RECORDS) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "a GPU can join the states of at most %d devices, not %d",
                 RECORDS, call->nin);
}

void sli_cuda_linear_attention_join(const sl_call *call, void *stream) {
  const sl_type *record = &call->in_type[0], *state = &call->out_type[0];
  const sl_attrs *attrs = call->attrs;
  joining j = {};
  for (int r = 0; r < call->nin; r++) j.records[r] = (const float *)call->in[r];
  j.count = call->nin;
  j.first = (int)attrs->states.before;
  j.all = record->dim[2];
  j.gates = attrs->states.gates;
  j.states = state->dim[0] * state->dim[1];
  j.state = (float *)call->out[0];
  j.end = attrs->place.length ? (float *)call->out[1] : nullptr;
  j.starts = attrs->states.back ? call->tick.row + call->tick.rows == attrs->place.length
                                : !call->tick.row;
  launch(stream, grid_of(chunks(j.states * (j.all - j.gates), BLOCK)), BLOCK, 0, join_records, j);
}

#define WALK(name)                                          \
  void sli_cuda_##name(const sl_call *call, void *stream) { \
    run_on(call, stream, sli_##name##_run);                 \
  }
WALK(linear_attention)
WALK(linear_attention_b)
WALK(linear_attention_piece)
WALK(linear_attention_piece_b)
WALK(linear_attention_step)
WALK(linear_attention_step_b)
WALK(delta_rule)
WALK(delta_rule_b)
WALK(delta_rule_piece)
WALK(delta_rule_piece_b)

void sli_cuda_linear_attention_served(const sl_call *call, void *stream) {
  sli_linear_shape s = sli_linear_shape_of(call->attrs, call->in_type);
  walk_tick(call, s, sli_linear_attention_walk(call, &s), 1, stream);
}

void sli_cuda_delta_rule_served(const sl_call *call, void *stream) {
  sli_linear_shape s = sli_linear_shape_of(call->attrs, call->in_type);
  walk_tick(call, s, sli_delta_rule_walk(call, &s), 2, stream);
}
