/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the op rules: shape checks, costs, gradient rules, and the ops that only compiler
 * passes insert. */
#ifndef SLUICE_OPS_OPS_H
#define SLUICE_OPS_OPS_H

#include <sluice/op.h>
#include <sluice/ops.h>

#include "base/base.h"
#include "ops/facets.h"
#include "ops/mask.h"

/* Fails with SL_E_SHAPE and the text "<what was expected>, got <type>". */
sl_status sli_misfit(const sl_type *got, const char *expected, ...)
    __attribute__((format(printf, 2, 3)));

/* Checks that the targets, input 1 beside the logits, are class ids, or equal *ignored if `ignored`
 * is not NULL. */
sl_status sli_check_targets(const sl_call *call, const int32_t *ignored);
/* Returns SL_OK if `got` is exactly `want`, otherwise fails with the misfit "<name> must be
 * <want>". */
sl_status sli_want(const char *name, const sl_type *got, const sl_type *want);

/* Returns SL_OK if `got` is a dtype array of `ndim` dims (-1: one or more) without an empty dim. */
sl_status sli_want_array(const char *name, const sl_type *got, sl_dtype dtype, int ndim);

/* Returns SL_OK for f32 of any shape, scalars included, and for an f64 scalar. */
sl_status sli_want_numbers(const char *name, const sl_type *got);

/* Return `type` with another last dim, or without its last dim. */
sl_type sli_type_with_last(const sl_type *type, int64_t last);
sl_type sli_type_without_last(const sl_type *type, sl_dtype dtype);

/* Returns the bytes of all present arguments. */
double sli_argument_bytes(int nin, const sl_type *in, int nout, const sl_type *out);

/* Returns the dtype of a gradient that may be an exact sum over rows: f64, else f32. */
static inline sl_dtype sli_sum_dtype(const sl_type *type) {
  return type->dtype == SL_F64 ? SL_F64 : SL_F32;
}
/* Records shared by ops. */
extern const sl_op_exact sli_exact_groups, sli_exact_scatters, sli_exact_moves, sli_exact_by_leaf,
    sli_exact_sum, sli_exact_mean;

/* Tests bit i of a mask in which bit 31 represents all bits from 31 on. */
static inline bool sli_bit_on(uint32_t mask, int i) { return sli_bit(mask, SLI_MIN(i, 31)); }

/* Returns the number of outputs of a call with nin inputs. */
static inline int sli_op_outputs(const sl_op *op, const sl_attrs *attrs, int nin) {
  return op->nout >= 0 ? op->nout : op->outputs(attrs, nin);
}

/* Returns the kernel that a user-defined op has for a backend, or NULL. */
const sl_kernel *sli_op_kernel(const sl_op *op, const char *backend);
/* Returns true if the op's kernels prepare for the types of a call. */
bool sli_op_fixed(const sl_op *op);

/* Expand a gradient rule for a call with nin inputs and nout outputs. In order: argument number a
 * (SL_ARG_NONE after the last), the number of arguments, the number of gradients, and the input
 * that gradient j belongs to. */
sl_grad_arg sli_rule_argument(const sl_grad_rule *rule, int nin, int nout, int a);
int sli_rule_arguments(const sl_grad_rule *rule, int nin, int nout);
static inline int sli_rule_gradients(const sl_grad_rule *rule, int nin) {
  int last = rule->wrt[rule->nwrt - 1];
  return rule->nwrt + (rule->rest ? SLI_MAX(nin - 1 - last, 0) : 0);
}
static inline int sli_rule_of(const sl_grad_rule *rule, int j) {
  return j < rule->nwrt ? rule->wrt[j] : rule->wrt[rule->nwrt - 1] + 1 + j - rule->nwrt;
}

/* Adds a type to a plan's hash. */
static inline uint64_t sli_hash_type(uint64_t hash, const sl_type *type) {
  hash = sli_hash_word(hash, (uint64_t)type->dtype);
  hash = sli_hash_word(hash, (uint64_t)type->ndim);
  for (int d = 0; d < type->ndim; d++) hash = sli_hash_word(hash, (uint64_t)type->dim[d]);
  return hash;
}

/* Continues a hash with the attributes of a call with nin inputs: the fields of its op's kinds and
 * of the groups that are set, and the op's record. */
uint64_t sli_hash_attrs(uint64_t hash, const sl_op *op, const sl_attrs *attrs, int nin);
/* Returns whether two calls of an op have the same attributes, apart from random numbers and
 * records. */
bool sli_attrs_equal(const sl_op *op, const sl_attrs *a, const sl_attrs *b);
/* Fails with the name of the first field that is set and belongs to no kind of the op. */
sl_status sli_attrs_check(const sl_op *op, const sl_attrs *attrs);

/* Make an entry of a signature. Unset entries are SL_BROADCAST. */
static inline sl_sbp sli_split(int dim) { return (sl_sbp){SL_SPLIT, dim}; }
static inline sl_sbp sli_split_last(const sl_type *type) { return sli_split(type->ndim - 1); }
static inline sl_sbp sli_partial(void) { return (sl_sbp){SL_PARTIAL, 0}; }
/* Fills the signatures of a mean over all elements. In a type of one dim, that dim counts as
 * rows. */
int sli_mean_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out);

/* Defines the cost rule of an op that does `flops_` operations per element of input `input_` and
 * streams its arguments once. */
#define SLI_COST(name, input_, nout_, flops_)                                             \
  static void name(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out, \
                   double *flops, double *bytes) {                                        \
    (void)attrs;                                                                          \
    *flops = (flops_) * (double)sl_type_elements(&in[input_]);                            \
    *bytes = sli_argument_bytes(nin, in, nout_, out);                                     \
  }

/* The gradient of the op that computes the logits, for logits whose products run before the lse of
 * all columns is known:
 * softmax_part(logits [..., v]) -> soft [..., v], the softmax over these columns; own [...], their
 * lse (if all columns are masked: 0 and the lowest finite number).
 * softmax_rescale(ahead [..., n], taken [..., n], own, lse, dloss scalar) -> [..., n], for R rows:
 * (exp(own - lse) ahead - taken) dloss / R. With ahead = soft W and taken = the targets' rows of W
 * (0 for targets in other columns), this is the columns' partial sum of the gradient. */
extern const sl_op sl_op_softmax_part, sl_op_softmax_rescale;

/* Attention of queries at some positions [B, n] of a sequence, to one chunk of keys and values
 * [B, m, 2 Hkv*D] (k then v) after another:
 * attention_step(q, kv, [ids], [o, lse], [tail]) -> o, lse continues from the previous step. In the
 * first step, outputs that no span covers are 0. attrs.user points to sli_spans; ids [B, length]
 * cover the whole sequence.
 * With attrs.numbers.exact, chunks come in reverse order. Until the last step, o is not yet
 * divided, and lse [B, H, 2n] holds the largest score and the sum of each query. `tail` holds the
 * keys and values of the previous chunk that complete the last tile of this one.
 * attention_step_b(q, kv, o, lse, do, [ids], [dq], [dkv]) -> dq, dkv adds to the dq of the previous
 * step, and to the dkv that other queries produced for this chunk. o and lse are those of the last
 * step. */
extern const sl_op sl_op_attention_step, sl_op_attention_step_b;

/* Attention of a device's share [B, n] of a piece's queries, at the positions that
 * attrs.place.first and attrs.place.run give. The keys and values are kv [B, m, 2 Hkv*D] (k then v)
 * of the piece and those of earlier pieces, kept in `record` as in attention_piece
 * (<sluice/ops.h>). The gradient of the keys is a partial sum. attention_share(q, kv, [ids]) -> o,
 * lse, record, and with ids [B, m] also all. attention_share_b(q, record, o, lse, do, [all], kv) ->
 * dq, dkv, and a record of the gradients that later pieces sent back; kv may be absent.
 * attention_share_again(q, kv, [ids], record, [all]) -> o, lse, absent, [absent]: the recomputed
 * call; kv may be absent. */
extern const sl_op sl_op_attention_share, sl_op_attention_share_b, sl_op_attention_share_again;

/* Gated linear attention on devices that each hold a share of the positions. A record [B, heads of
 * v, dk dv + n] holds, for each state, its final value when it starts from zeros, and the sums of
 * the logarithms of its n gates; n is dk or 1.
 * linear_attention_share(q, k, v, g) -> record; q: type only.
 * linear_attention_share_b(q, k, v, g, do) -> record of the gradient of the state before the share
 * that comes from the share itself, divided by attrs.attention.scale; k and v: types only.
 * linear_attention_join(record, ...) -> state [B, heads of v, dk dv] after the first
 * attrs.states.before records, starting from zeros. attrs.states.gates = n. With
 * attrs.place.length, the records are those of all devices of a piece: -> state, end (updated),
 * starting from the end of the previous piece, or, with attrs.states.back, of the following piece.
 * linear_attention_step(q, k, v, g, before) -> o of a share, from the state before it.
 * linear_attention_step_b(q, k, v, g, o, before, do, behind) -> dq, dk, dv, dg; behind: the
 * gradient of the state after the share, divided by attrs.attention.scale. */
extern const sl_op sl_op_linear_attention_share, sl_op_linear_attention_share_b,
    sl_op_linear_attention_join, sl_op_linear_attention_step, sl_op_linear_attention_step_b;

/* Ops of served graphs. Each reads the batch (batch.h) as its last input, after all inputs of the
 * op that it replaces; omitted inputs are absent. They compute only the existing rows of x and of
 * the keys and values.
 * attention_served(q, k, v, -, batch) -> o, -, pages; attention_packed_served(qkv, -, batch)
 * likewise.
 * linear_served and embedding_served read weights in any storage format (ops/storage.h);
 * attrs.weight.width: the table's width. grouped_linear_served(x, ids, w, batch) -> y reads the
 * experts' weights in any storage format; loaded_experts(x, ids, levels, lent) -> y those that
 * load_experts lends (ops/expert_loads.h). begin(tokens, batch) -> the tokens of the tick's rows;
 * part_rows(x) -> the tick's rows of device attrs.members.own of attrs.members.count; join_rows(x,
 * ...) -> the rows of all devices, in order; pick(x, batch) -> the rows to be sampled,
 * attrs.sampling.picks at most; allow(batch) -> the tokens that may come next, i32
 * [attrs.sampling.picks, attrs.sampling.words]; attrs.user is an sl_serving; sample(logits, batch,
 * allowed) -> one sl_sampled each; allowed may be omitted. */
extern const sl_op sl_op_linear_served, sl_op_grouped_linear_served, sl_op_embedding_served,
    sl_op_rotary_served, sl_op_position_served, sl_op_attention_served,
    sl_op_attention_packed_served, sl_op_loaded_experts, sl_op_begin, sl_op_picks, sl_op_pick,
    sl_op_part_rows, sl_op_join_rows, sl_op_allow, sl_op_sample;

/* Ops for training with frozen weights in their storage format (ops/storage.h):
 * attrs.weight has the width of a row and its sl_storage.
 * linear_stored(x, w, [bias]) -> y; linear_b_stored(dy, w) -> dx;
 * embedding_stored(ids, table) -> y. */
extern const sl_op sl_op_linear_stored, sl_op_linear_b_stored, sl_op_embedding_stored;

#endif
