/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention and the delta rule as walks of states along sequences: what CPUs and GPUs share.
 * An engine runs walks on its kind of device. */
#ifndef SLUICE_KERNELS_WALKS_H
#define SLUICE_KERNELS_WALKS_H

#include "ops/linear_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Leading inputs of all these ops. */
enum { SLI_WALK_Q, SLI_WALK_K, SLI_WALK_V, SLI_WALK_GATES };

/* An operand of a walk: rows `row` floats apart, one per position. Head h has `width` numbers from
 * h / group * width on. */
typedef struct sli_walked {
  const float *x;
  int64_t row, group, width;
} sli_walked;

/* A result of a walk: `factor` times a sum, laid out like an operand. Heads of one group add to the
 * same numbers; with `onto`, they also add to the numbers already stored. */
typedef struct sli_walk_sum {
  float *y; /* NULL if not needed */
  int64_t row, group;
  float factor;
  bool onto;
} sli_walk_sum;

/* Updates that a position makes to a state X [rows, lanes]; kernels/cpu/vector/linear_attention.h
 * has the formulas. */
typedef enum sli_walk_kind {
  SLI_WALK_FORTH,
  SLI_WALK_BACK,
  SLI_WALK_DELTA,
  SLI_WALK_DELTA_BACK,
  SLI_WALK_DELTA_KEYS,
  SLI_WALK_DELTA_KEYS_BACK
} sli_walk_kind;

/* A walk of each head's state along the positions. b, b2 and d have a number for each row of the
 * state, c, c2 and the sums one for each lane, `part` one for each position. The gates g have one
 * for each row or, with by_lane, each lane. FORTH and BACK without d make no y, and go by rows. */
typedef struct sli_walk {
  sli_walk_kind kind;
  int64_t batch, positions, heads, groups, rows, lanes; /* heads of a group are adjacent */
  bool by_lane, per_head;
  sli_walked b, c, d, g, b2, c2, part;
  sli_walk_sum y, z;
  /* initial and final states; NULL: zeros, or not needed. A sequence has `states` of them,
   * `state_gap` numbers apart, and `state_rest` other numbers. state_group heads share one state;
   * in the backward direction it holds their sum. Strides are within a state. */
  float *from, *to;
  int64_t states, state_group, state_gap, state_rest, state_row, state_lane;
} sli_walk;

static inline bool sli_walks_back(sli_walk_kind kind) {
  return kind == SLI_WALK_BACK || kind == SLI_WALK_DELTA_BACK || kind == SLI_WALK_DELTA_KEYS_BACK;
}

/* Return the array [batch, positions, heads' numbers] as an operand or as a sum. */
sli_walked sli_walk_array(const sli_linear_shape *s, const float *x, int64_t heads, int64_t width);
sli_walk_sum sli_walk_sum_of(const sli_linear_shape *s, float *y, int64_t heads, int64_t width);
/* Returns input i of a call: q, k, v, or the gates. */
sli_walked sli_walk_input(const sl_call *call, const sli_linear_shape *s, int i);

/* Returns a walk with the call's gates, through states that the heads of o share. */
sli_walk sli_walk_of(const sl_call *call, const sli_linear_shape *s, sli_walk_kind kind);
/* Returns a walk of the gradients of states, one for each head of o, in a gradient record. */
sli_walk sli_walk_back_of(const sl_call *call, const sli_linear_shape *s, sli_walk_kind kind);

/* Set the direction of a walk of states [dk, dv]: by rows of keys, with lanes of values, or with
 * the roles exchanged. */
void sli_walk_by_values(const sli_linear_shape *s, sli_walk *w);
void sli_walk_by_keys(const sli_linear_shape *s, sli_walk *w);

/* Return the walks, by values, that compute o (and e). */
sli_walk sli_linear_attention_walk(const sl_call *call, const sli_linear_shape *s);
sli_walk sli_delta_rule_walk(const sl_call *call, const sli_linear_shape *s);

/* Arrays that give the gradients of gates: for gates of channels from q, dq, k, dk and `less`; for
 * gates of heads from o, do, v, dv. */
typedef struct sli_gate_gradients {
  const sl_call *call; /* q, k, v, gates, ... */
  sli_linear_shape shape;
  const float *dq, *dk, *dv, *o, *dout;
  const float *less; /* the part of dk that is subtracted twice (ops/delta_rule.c); NULL: none */
  float *dgates;
  float *carry; /* gradient record; NULL: sums start from 0 and are dropped */
  bool starts;
  /* for a share of the positions: states after it and their gradients, divided by the scale of the
   * scores, with which the sums begin; NULL: sums begin with zeros */
  const float *end, *behind;
} sli_gate_gradients;

/* Numbers of the delta rule's backward pass at each position, in arrays of v's shape: first u = b e
 * and do times the scale; at last du, which becomes dv, and the gradient of b. */
typedef struct sli_delta_parts {
  const float *part, *e, *dout; /* part [positions, heads] */
  float *u, *scaled;            /* first */
  float *dv, *dpart;            /* at last; dpart may be NULL */
  float scale;
  int64_t positions, heads, dv_width;
} sli_delta_parts;

/* Executor of walks and of the passes around them, on a team or a stream. */
typedef struct sli_walk_engine {
  void (*walk)(const struct sli_walk_engine *e, const sli_walk *w);
  void (*gates)(const struct sli_walk_engine *e, const sli_gate_gradients *g);
  void (*first_parts)(const struct sli_walk_engine *e, const sli_delta_parts *p);
  void (*last_parts)(const struct sli_walk_engine *e, const sli_delta_parts *p);
  void (*clear)(const struct sli_walk_engine *e, void *to, size_t bytes);
  void (*copy)(const struct sli_walk_engine *e, void *to, const void *from, size_t bytes);
  void *on; /* the engine's team or stream */
} sli_walk_engine;

/* Run the ops. */
typedef void sli_walk_run(const sl_call *call, const sli_walk_engine *e);
sli_walk_run sli_linear_attention_run, sli_linear_attention_piece_run,
    sli_linear_attention_step_run, sli_linear_attention_b_run, sli_linear_attention_piece_b_run,
    sli_linear_attention_step_b_run;
sli_walk_run sli_delta_rule_run, sli_delta_rule_piece_run, sli_delta_rule_b_run,
    sli_delta_rule_piece_b_run;

/* Return the scratch of their backward passes. */
size_t sli_linear_attention_b_scratch(const sl_call *call);
size_t sli_linear_attention_step_b_scratch(const sl_call *call);
size_t sli_delta_rule_b_scratch(const sl_call *call);

#ifdef __cplusplus
}
#endif
#endif
