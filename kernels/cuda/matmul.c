/* SPDX-License-Identifier: Apache-2.0 */
/* Batched matrix products, by cuBLASLt. One launch covers the last batch dim; other batch dims take
 * several launches. */
#include <cuda_runtime.h>
#include <stdlib.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"
#include "ops/matmul.h"

enum { WORKSPACE_BYTES = 32 << 20, A = 0, B, C, MATRICES };

typedef struct matmul {
  const sli_blas *blas;
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t layout[MATRICES];
  cublasLtMatmulAlgo_t algorithm;
  sli_matmul p;
  int64_t elements[MATRICES], bytes[MATRICES]; /* elements of one matrix; bytes of one element */
} matmul;

static const int array_of[MATRICES] = {0, 1, SLI_SPACE_OUT};

static cudaDataType_t type_of(sl_dtype dtype) {
  return dtype == SL_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t set_layout(const matmul *m, int which, cublasLtMatrixLayoutAttribute_t what,
                                 const void *value, size_t bytes) {
  return m->blas->cublasLtMatrixLayoutSetAttribute(m->layout[which], what, value, bytes);
}

/* Describes a stored row-major matrix [rows, columns], which is [columns, rows] to the library. */
static cublasStatus_t make_layout(matmul *m, int which, sl_dtype dtype, int64_t rows,
                                  int64_t columns) {
  const sli_space *s = &m->p.batch;
  int last = s->kept - 1;
  int32_t count = last < 0 ? 1 : (int32_t)s->dim[last];
  m->elements[which] = rows * columns;
  m->bytes[which] = (int64_t)sl_dtype_bytes(dtype);
  int64_t stride = last < 0 ? 0 : s->step[array_of[which]][last] * m->elements[which];
  cublasStatus_t status = m->blas->cublasLtMatrixLayoutCreate(
      &m->layout[which], type_of(dtype), (uint64_t)columns, (uint64_t)rows, columns);
  if (!status)
    status = set_layout(m, which, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (!status)
    status =
        set_layout(m, which, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  return status;
}

static cublasStatus_t make_layouts(matmul *m, const sl_call *call) {
  const sli_matmul *p = &m->p;
  cublasStatus_t status = make_layout(m, A, call->in_type[p->a].dtype,
                                      p->a_transposed ? p->k : p->m, p->a_transposed ? p->m : p->k);
  if (!status)
    status = make_layout(m, B, call->in_type[p->b].dtype, p->b_transposed ? p->n : p->k,
                         p->b_transposed ? p->k : p->n);
  if (!status) status = make_layout(m, C, call->out_type[0].dtype, p->m, p->n);
  return status;
}

static cublasStatus_t make_desc(matmul *m) {
  int32_t first = m->p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  int32_t second = m->p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasStatus_t status =
      m->blas->cublasLtMatmulDescCreate(&m->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (!status)
    status = m->blas->cublasLtMatmulDescSetAttribute(m->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                                     sizeof first);
  if (!status)
    status = m->blas->cublasLtMatmulDescSetAttribute(m->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                                     sizeof second);
  return status;
}

/* Returns the alignment common to all matrices: the largest power of two that divides all their
 * sizes. */
static uint32_t alignment_of(const matmul *m) {
  uint64_t all = 64;
  for (int which = 0; which < MATRICES && m->p.batch.total * m->p.batch.summed > 1; which++)
    all |= (uint64_t)(m->elements[which] * m->bytes[which]);
  return (uint32_t)(all & -all);
}

static cublasStatus_t choose_algorithm(matmul *m) {
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  cublasStatus_t status =
      sli_cuda_product_preference(m->blas, WORKSPACE_BYTES, alignment_of(m), &preference);
  if (!status)
    status = m->blas->cublasLtMatmulAlgoGetHeuristic(m->handle, m->desc, m->layout[B], m->layout[A],
                                                     m->layout[C], m->layout[C], preference, 1,
                                                     &found, &count);
  if (preference) m->blas->cublasLtMatmulPreferenceDestroy(preference);
  if (!status && !count) status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (!status) m->algorithm = found.algo;
  return status;
}

void sli_cuda_matmul_release(void *state) {
  matmul *m = state;
  if (!m) return;
  if (m->desc) m->blas->cublasLtMatmulDescDestroy(m->desc);
  for (int which = 0; which < MATRICES; which++)
    if (m->layout[which]) m->blas->cublasLtMatrixLayoutDestroy(m->layout[which]);
  free(m);
}

sl_status sli_cuda_matmul_prepare(const sl_call *call, void **state) {
  matmul *m = sli_calloc(1, sizeof *m);
  m->p = sli_matmul_of(call);
  sl_status status = sli_cuda_product_handle(&m->blas, &m->handle);
  cublasStatus_t why = CUBLAS_STATUS_SUCCESS;
  if (!status) why = make_desc(m);
  if (!status && !why) why = make_layouts(m, call);
  if (!status && !why) why = choose_algorithm(m);
  if (!status && why)
    status =
        sl_fail(SL_E_DEVICE, "cuBLASLt has no kernel for products [%lld, %lld] x [%lld, %lld]: %s",
                (long long)m->p.m, (long long)m->p.k, (long long)m->p.k, (long long)m->p.n,
                m->blas->cublasLtGetStatusString(why));
  if (status) sli_cuda_matmul_release(m);
  else *state = m;
  return status;
}

size_t sli_cuda_matmul_scratch(const sl_call *call) {
  (void)call;
  return WORKSPACE_BYTES;
}

/* Returns the address of matrix number `outer` of all dims but the last, and `summed` of the summed
 * dims. */
static char *matrix(const matmul *m, int which, const void *from, int64_t outer, int64_t summed) {
  const sli_space *s = &m->p.batch;
  const int64_t *step = s->step[array_of[which]];
  int64_t at = 0;
  for (int d = s->kept - 2; d >= 0; outer /= s->dim[d--]) at += outer % s->dim[d] * step[d];
  for (int d = s->ndim - 1; d >= s->kept; summed /= s->dim[d--]) at += summed % s->dim[d] * step[d];
  return (char *)from + at * m->elements[which] * m->bytes[which];
}

static void launch(const matmul *m, const sl_call *call, int64_t outer, int64_t summed,
                   void *stream) {
  const float one = 1, keep = summed || (call->accumulate & 1) ? 1 : 0;
  const void *a = matrix(m, A, call->in[m->p.a], outer, summed);
  const void *b = matrix(m, B, call->in[m->p.b], outer, summed);
  void *c = matrix(m, C, call->out[0], outer, 0);
  cublasStatus_t status = m->blas->cublasLtMatmul(
      m->handle, m->desc, &one, b, m->layout[B], a, m->layout[A], &keep, c, m->layout[C], c,
      m->layout[C], &m->algorithm, call->scratch, WORKSPACE_BYTES, (cudaStream_t)stream);
  if (status && !sli_cuda_capture_spoil())
    sli_cuda_launch_failed(m->blas->cublasLtGetStatusString(status));
}

void sli_cuda_matmul(const sl_call *call, void *stream) {
  const matmul *m = call->state;
  const sli_space *s = &m->p.batch;
  int64_t launches = s->kept ? s->total / s->dim[s->kept - 1] : 1;
  for (int64_t outer = 0; outer < launches; outer++)
    for (int64_t summed = 0; summed < s->summed; summed++) launch(m, call, outer, summed, stream);
}

void sli_cuda_matmul_left_b(const sl_call *call, void *stream) { sli_cuda_matmul(call, stream); }
void sli_cuda_matmul_right_b(const sl_call *call, void *stream) { sli_cuda_matmul(call, stream); }
