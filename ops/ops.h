/* Shared by the rules of ops: checks of shapes, costs, gradient rules, and the ops that only passes apply. */
#ifndef SLUICE_OPS_OPS_H
#define SLUICE_OPS_OPS_H

#include <sluice/op.h>
#include <sluice/ops.h>

#include "base/base.h"
#include "ops/sight.h"

/* SL_E_SHAPE with "<what was expected>, got <type>". */
sl_status sli_misfit(const sl_type *got, const char *expected, ...)
    __attribute__((format(printf, 2, 3)));

/* SL_OK if `got` is exactly `want`, else the misfit "<name> must be <want>". */
sl_status sli_want(const char *name, const sl_type *got, const sl_type *want);

/* SL_OK if `got` is a dtype array of `ndim` dims (-1: one or more) without an
 * empty dim. */
sl_status sli_want_array(const char *name, const sl_type *got, sl_dtype dtype, int ndim);

/* SL_OK for f32 of any shape, a scalar too, and for an f64 scalar. */
sl_status sli_want_numbers(const char *name, const sl_type *got);

/* `type` with another last dim; with its last dim removed. */
sl_type sli_type_with_last(const sl_type *type, int64_t last);
sl_type sli_type_without_last(const sl_type *type, sl_dtype dtype);

/* Bytes of all present arguments. */
double sli_argument_bytes(int nin, const sl_type *in, int nout, const sl_type *out);

/* Bit i of a mask whose bit 31 stands for all from there on. */
static inline bool sli_bit_on(uint32_t mask, int i) { return sli_bit(mask, SLI_MIN(i, 31)); }

/* Of a call with so many inputs. */
static inline int sli_op_outputs(const sl_op *op, const sl_attrs *attrs, int nin) {
  return op->nout >= 0 ? op->nout : op->outputs(attrs, nin);
}

/* The kernel that an op of the user's brings for a backend, or NULL. */
const sl_kernel *sli_op_kernel(const sl_op *op, const char *backend);
/* Do its kernels prepare for the types of a call? */
bool sli_op_fixed(const sl_op *op);

/* A gradient rule of a call with nin inputs and nout outputs: its argument number a, one by one
 * (SL_ARG_NONE behind the last), how many it has, how many gradients it gives, and of which input
 * number j is. */
sl_grad_arg sli_rule_argument(const sl_grad_rule *rule, int nin, int nout, int a);
int sli_rule_arguments(const sl_grad_rule *rule, int nin, int nout);
static inline int sli_rule_gradients(const sl_grad_rule *rule, int nin) {
  int last = rule->of[rule->nof - 1];
  return rule->nof + (rule->rest ? SLI_MAX(nin - 1 - last, 0) : 0);
}
static inline int sli_rule_of(const sl_grad_rule *rule, int j) {
  return j < rule->nof ? rule->of[j] : rule->of[rule->nof - 1] + 1 + j - rule->nof;
}

/* What plans hash of a type. */
static inline uint64_t sli_hash_type(uint64_t hash, const sl_type *type) {
  hash = sli_hash_word(hash, (uint64_t)type->dtype);
  hash = sli_hash_word(hash, (uint64_t)type->ndim);
  for (int d = 0; d < type->ndim; d++) hash = sli_hash_word(hash, (uint64_t)type->dim[d]);
  return hash;
}

/* For signatures, where what is not set is SL_BROADCAST. */
static inline sl_sbp sli_split(int dim) {
  return (sl_sbp){SL_SPLIT, dim};
}
static inline sl_sbp sli_split_last(const sl_type *type) {
  return sli_split(type->ndim - 1);
}
static inline sl_sbp sli_partial(void) {
  return (sl_sbp){SL_PARTIAL, 0};
}
/* Of a mean over all elements: a dim that is alone is one of rows. */
int sli_mean_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out);

#define SLI_TRY(expression)                                                    \
  do {                                                                         \
    sl_status status_ = (expression);                                          \
    if (status_) return status_;                                               \
  } while (0)

/* Defines the cost rule of a row that does `flops_` per element of input
 * `input_` and streams its arguments once. */
#define SLI_COST(name, input_, nout_, flops_)                                  \
  static void name(const sl_attrs *attrs, int nin, const sl_type *in,          \
                   const sl_type *out, double *flops, double *bytes) {         \
    (void)attrs;                                                               \
    *flops = (flops_) * (double)sl_type_elements(&in[input_]);                 \
    *bytes = sli_argument_bytes(nin, in, nout_, out);                          \
  }

/* The gradient of what makes the logits, where the products come first and the lse of all columns later:
 * softmax_part(logits [..., v]) -> soft [..., v], the softmax of these columns alone; own [...], their lse
 * (of columns that are all masked: 0 and the least there is).
 * softmax_rescale(ahead [..., n], taken [..., n], own, lse, dloss scalar) -> [..., n], of R rows:
 * (exp(own - lse) ahead - taken) dloss / R. With ahead = soft W and taken the targets' rows of W, 0 where
 * those are not among the columns, that is the columns' summand of the gradient. */
extern const sl_op sl_op_softmax_part, sl_op_softmax_rescale;

/* Attention of some positions [B, n] of a sequence over those of others, one chunk of keys and values
 * [B, m, 2 Hkv*D] (k then v) after another: attention_step(q, kv, [ids], [o, lse]) -> o, lse goes on from
 * the step before; without it all that no span begins is 0. attrs.user points to sli_spans, ids
 * [B, length] are of the whole sequence.
 * attention_step_b(q, kv, o, lse, do, [ids], [dq]) -> dq, dkv, where o and lse are those of the last step,
 * adds to the dq of the step before; dkv is the chunk's alone. */
extern const sl_op sl_op_attention_step, sl_op_attention_step_b;

/* Attention of a device's share [B, n] of the queries of a piece, which attrs.first and attrs.dims tell where
 * they stand, over all keys and values kv [B, m, 2 Hkv*D] (k then v) of the piece and those of earlier ones, which
 * `record` keeps, as that of attention_piece (ops.h). What it sends back to the keys is a summand.
 * attention_share(q, kv, [ids]) -> o, lse, record, and with ids [B, m] all.
 * attention_share_b(q, record, o, lse, do, [all], kv) -> dq, dkv, and a record of what later pieces sent back; kv may be absent.
 * attention_share_again(q, kv, [ids], record, [all]) -> o, lse, absent, [absent]: kv may be absent. */
extern const sl_op sl_op_attention_share, sl_op_attention_share_b, sl_op_attention_share_again;

/* Rows of served graphs, which read the batch (batch.h) as their last input, behind all that the row
 * they stand for may have; what that was not given is absent. Of rows of x and of keys and values they
 * make those that there are.
 * attention_served(q, k, v, -, batch) -> o, -, pages; attention_packed_served(qkv, -, batch) likewise.
 * linear_served and embedding_served read weights however they lie (ops/rest.h); attrs.dims[0]: the table's width.
 * begin(tokens, batch) -> the tokens, as many as there are rows;
 * pick(x, batch) -> the rows to be sampled, attrs.count at most; sample(logits, batch) -> sl_sampled each. */
extern const sl_op sl_op_linear_served, sl_op_embedding_served, sl_op_rotary_served, sl_op_position_served,
    sl_op_attention_served, sl_op_attention_packed_served, sl_op_begin, sl_op_pick, sl_op_sample;

#endif
