/* SPDX-License-Identifier: Apache-2.0 */
/* The linear map and its gradients, by cuBLASLt.
 *
 * The library is column-major, so it sees a row-major matrix as its transpose. C = A B is therefore
 * requested as C^T = B^T A^T, with Sluice's B as the left operand. A bias along Sluice's rows is
 * the bias along columns that the library supports.
 *
 * A product is in float (in TF32 if the environment variable SLUICE_CUDA_TF32 is 1), or its
 * operands are bf16 and its sums float. For bf16 products, float operands are first rounded into
 * the scratch. The scratch after them is the library's workspace.
 *
 * prepare() chooses the library's kernel, among those that give the same bits every time. It
 * excludes kernels that add partial sums in the order of arrival.
 *
 * The fast kernels need every size to be a multiple of 8, and vocabulary sizes are odd. Rows of
 * logits are therefore padded (graph/passes/pad.c), weights in bf16 are padded with the same number
 * of zero rows, and products cover rows to their end. The gradient of the weight cannot be padded:
 * its last few rows are a separate product. */
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"

enum { WORKSPACE_BYTES = 32 << 20, ALIGNMENT = 256, PLACE_ALIGNMENT = 64 };
/* multiple that the fast kernels need */
enum { FAST = 8, FAST_ALIGNMENT = FAST * sizeof(uint16_t) };
enum { PACKED_ROWS = 64 };            /* packed weights have a multiple of this many rows */
enum { LEFT, RIGHT, BIAS, OPERANDS }; /* A, B */

typedef struct product {
  const sli_blas *blas;
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t left, right, result;
  cublasLtMatmulAlgo_t algorithm;
  uint32_t epilogue;
  int input[OPERANDS];        /* input number in the call, or -1 if there is none */
  size_t rounded[OPERANDS];   /* scratch bytes if it is first rounded to bf16; otherwise 0 */
  int64_t zeros;              /* zeros after a rounded right operand, in elements */
  struct product *rest;       /* product of the last rows, or NULL */
  int64_t rest_left, rest_to; /* offsets in bytes from the operands of this product */
} product;

/* Shape of a product: C[m, n] = op(A) op(B) [+ bias]. Rows of x and y may be longer than the
 * weight's width: the excess is set to zeros in y, and is zeros in dy. */
typedef struct shape {
  int64_t m, n, k;
  int64_t zero_rows;               /* rows of zeros after the stored weight */
  int64_t lda, ldb, ldc;           /* elements between stored rows */
  bool a_transposed, b_transposed; /* stored transposed */
  int input[OPERANDS];
  bool bf16;
} shape;

static bool has(const sl_call *call, int i) { return i < call->nin && call->in_type[i].ndim >= 0; }

/* Extends a product to the padding of rows of logits, which are `longer` than the stored weight has
 * rows; the weight is padded with zeros. */
static void go_to_the_end(shape *s, int64_t *rows, int64_t longer) {
  int64_t most = (*rows + PACKED_ROWS - 1) / PACKED_ROWS * PACKED_ROWS;
  s->zero_rows = SLI_MIN(longer, most) - *rows;
  *rows += s->zero_rows;
}

static shape shape_of(const sl_call *call) {
  const sl_op *op = call->op;
  const sl_type *in = call->in_type, *out = &call->out_type[0];
  bool transposed = call->attrs->product.transposed, is_bf16 = in[0].dtype == SL_BF16;
  if (op == &sl_op_linear_w) {
    int left = transposed ? 0 : 1;
    return (shape){.m = out->dim[0],
                   .n = out->dim[1],
                   .k = sl_type_rows(&in[0]),
                   .lda = sl_type_last(&in[left]),
                   .ldb = sl_type_last(&in[1 - left]),
                   .ldc = out->dim[1],
                   .a_transposed = true,
                   .input = {left, 1 - left, -1},
                   .bf16 = call->attrs->numbers.bf16 || is_bf16};
  }
  bool forward = op == &sl_op_linear, turned = transposed != forward;
  int packed = forward ? 3 : 2;
  shape s = {.m = sl_type_rows(&in[0]),
             .n = in[1].dim[turned ? 0 : 1],
             .k = in[1].dim[turned ? 1 : 0],
             .lda = sl_type_last(&in[0]),
             .ldb = in[1].dim[1],
             .ldc = sl_type_last(out),
             .b_transposed = turned,
             .input = {0, has(call, packed) ? packed : 1, forward && has(call, 2) ? 2 : -1},
             .bf16 = has(call, packed) || is_bf16 || in[1].dtype == SL_BF16};
  if (s.bf16 && !transposed && s.input[BIAS] < 0 && in[1].dtype == SL_F32)
    go_to_the_end(&s, forward ? &s.n : &s.k, forward ? s.ldc : s.lda);
  return s;
}

/* ---- the scratch ------------------------------------------------ */

static size_t rounded_bytes(const sl_call *call, const shape *s, int operand) {
  int i = s->input[operand];
  bool to_bf16 = operand == BIAS ? call->out_type[0].dtype == SL_BF16 : s->bf16;
  if (i < 0 || !to_bf16 || call->in_type[i].dtype == SL_BF16) return 0;
  int64_t zeros = operand == RIGHT ? s->zero_rows * s->ldb : 0;
  size_t bytes = (size_t)(sl_type_elements(&call->in_type[i]) + zeros) * sizeof(uint16_t);
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t sli_cuda_linear_scratch(const sl_call *call) {
  shape s = shape_of(call);
  size_t bytes = WORKSPACE_BYTES;
  for (int operand = 0; operand < OPERANDS; operand++) bytes += rounded_bytes(call, &s, operand);
  return bytes;
}

/* ---- one handle per device ----------------------------------------------------- */

enum { MAX_DEVICES = 64 };

sl_status sli_cuda_product_handle(const sli_blas **library, cublasLtHandle_t *handle) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static cublasLtHandle_t handles[MAX_DEVICES]; /* live as long as the process */
  const sli_blas *blas;
  int device = 0;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  sl_status loaded = sli_blas_load(&blas);
  if (loaded) return loaded;
  *library = blas;
  cudaGetDevice(&device);
  if (device >= MAX_DEVICES)
    return sl_fail(SL_E_UNSUPPORTED, "GPU %d is beyond the supported number of GPUs", device);
  pthread_mutex_lock(&lock);
  if (!handles[device]) status = blas->cublasLtCreate(&handles[device]);
  *handle = handles[device];
  pthread_mutex_unlock(&lock);
  if (!status) return SL_OK;
  return sl_fail(SL_E_DEVICE, "cannot start cuBLASLt on GPU %d: %s", device,
                 blas->cublasLtGetStatusString(status));
}

/* ---- preparation ---------------------------------------------- */

static cudaDataType_t type_of(sl_dtype dtype) {
  return dtype == SL_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static bool wants_tf32(void) {
  const char *wanted = getenv("SLUICE_CUDA_TF32");
  return wanted && !strcmp(wanted, "1");
}

/* Describes a row-major [rows, columns] of Sluice to the library or, if `turned`, a matrix stored
 * as [columns, rows]. */
static cublasStatus_t linear_describe(const sli_blas *blas, cublasLtMatrixLayout_t *layout,
                                      cudaDataType_t type, bool turned, int64_t rows,
                                      int64_t columns, int64_t ld) {
  return blas->cublasLtMatrixLayoutCreate(layout, type, (uint64_t)(turned ? rows : columns),
                                          (uint64_t)(turned ? columns : rows), ld);
}

/* Returns true if the epilogue reads or writes the input of GELU. */
static bool has_aux(uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static cublasStatus_t set(product *p, cublasLtMatmulDescAttributes_t attribute, int32_t value) {
  return p->blas->cublasLtMatmulDescSetAttribute(p->desc, attribute, &value, sizeof value);
}

static cublasStatus_t set_pointer(const product *p, cublasLtMatmulDescAttributes_t attribute,
                                  const void *value) {
  return p->blas->cublasLtMatmulDescSetAttribute(p->desc, attribute, &value, sizeof value);
}

/* Sets the epilogue. The library's choice of kernels takes alignment from the pointers, so they
 * must be plausible. */
static cublasStatus_t make_epilogue(product *p, const sl_call *call, const shape *s) {
  const void *somewhere = (const void *)(uintptr_t)PLACE_ALIGNMENT;
  int64_t aux_ld = s->ldc;
  cublasStatus_t status = set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, (int32_t)p->epilogue);
  if (!status && p->input[BIAS] >= 0)
    status = set(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)type_of(call->out_type[0].dtype));
  if (!status && p->input[BIAS] >= 0)
    status = set_pointer(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere);
  if (status || !has_aux(p->epilogue)) return status;
  status = p->blas->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                                   &aux_ld, sizeof aux_ld);
  if (status) return status;
  return set_pointer(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, somewhere);
}

static cublasStatus_t make_operation(product *p, const sl_call *call, const shape *s) {
  cublasComputeType_t compute =
      !s->bf16 && wants_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasStatus_t status = p->blas->cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F);
  if (!status)
    status = set(p, CUBLASLT_MATMUL_DESC_TRANSA, s->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (!status)
    status = set(p, CUBLASLT_MATMUL_DESC_TRANSB, s->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  return status ? status : make_epilogue(p, call, s);
}

static cublasStatus_t make_layouts(product *p, const sl_call *call, const shape *s) {
  cudaDataType_t type = s->bf16 ? CUDA_R_16BF : CUDA_R_32F;
  cublasStatus_t status =
      linear_describe(p->blas, &p->left, type, s->a_transposed, s->m, s->k, s->lda);
  if (!status)
    status = linear_describe(p->blas, &p->right, type, s->b_transposed, s->k, s->n, s->ldb);
  if (!status)
    status = linear_describe(p->blas, &p->result, type_of(call->out_type[0].dtype), false, s->m,
                             s->n, s->ldc);
  return status;
}

/* Sets the constraints on the choice of kernels. */
cublasStatus_t sli_cuda_product_preference(const sli_blas *blas, uint64_t workspace,
                                           uint32_t alignment, cublasLtMatmulPreference_t *made) {
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const struct {
    cublasLtMatmulPreferenceAttributes_t attribute;
    const void *value;
    size_t size;
  } settings[] = {
      {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment},
  };
  cublasStatus_t status = blas->cublasLtMatmulPreferenceCreate(made);
  for (size_t i = 0; i < SLI_COUNT(settings) && !status; i++)
    status = blas->cublasLtMatmulPreferenceSetAttribute(*made, settings[i].attribute,
                                                        settings[i].value, settings[i].size);
  return status;
}

static cublasStatus_t choose_algorithm(product *p, uint32_t alignment) {
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  cublasStatus_t status =
      sli_cuda_product_preference(p->blas, WORKSPACE_BYTES, alignment, &preference);
  if (!status)
    status = p->blas->cublasLtMatmulAlgoGetHeuristic(
        p->handle, p->desc, p->right, p->left, p->result, p->result, preference, 1, &found, &count);
  if (preference) p->blas->cublasLtMatmulPreferenceDestroy(preference);
  if (!status && !count) status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (!status) p->algorithm = found.algo;
  return status;
}

void sli_cuda_linear_release(void *state) {
  product *p = state;
  if (!p) return;
  sli_cuda_linear_release(p->rest);
  if (p->desc) p->blas->cublasLtMatmulDescDestroy(p->desc);
  if (p->left) p->blas->cublasLtMatrixLayoutDestroy(p->left);
  if (p->right) p->blas->cublasLtMatrixLayoutDestroy(p->right);
  if (p->result) p->blas->cublasLtMatrixLayoutDestroy(p->result);
  free(p);
}

/* Creates one product. On failure returns NULL and sets *why. */
static product *make_one(const sl_call *call, const shape *s, const product *common,
                         uint32_t alignment, cublasStatus_t *why) {
  product *p = sli_calloc(1, sizeof *p);
  *p = *common;
  for (int i = 0; i < OPERANDS; i++) {
    p->input[i] = s->input[i];
    p->rounded[i] = rounded_bytes(call, s, i);
  }
  p->zeros = s->zero_rows * s->ldb;
  *why = make_operation(p, call, s);
  if (!*why) *why = make_layouts(p, call, s);
  if (!*why) *why = choose_algorithm(p, alignment);
  if (!*why) return p;
  sli_cuda_linear_release(p);
  return NULL;
}

/* Returns the number of last rows of C to split off so that the rest is faster; A's columns are
 * contiguous. */
static int64_t rest_of(const shape *s) {
  return s->bf16 && s->a_transposed && s->m > FAST ? s->m % FAST : 0;
}

static product *make_product(const sl_call *call, const shape *s, const product *common,
                             cublasStatus_t *why) {
  shape first = *s, last = *s;
  last.m = rest_of(s);
  first.m -= last.m;
  product *p = make_one(call, &first, common, PLACE_ALIGNMENT, why);
  if (!p || !last.m) return p;
  p->rest = make_one(call, &last, common, FAST_ALIGNMENT, why);
  p->rest_left = first.m * (int64_t)sizeof(uint16_t);
  p->rest_to = first.m * s->ldc * (int64_t)sl_dtype_bytes(call->out_type[0].dtype);
  if (p->rest) return p;
  sli_cuda_linear_release(p);
  return NULL;
}

sl_status sli_cuda_linear_prepare(const sl_call *call, void **state) {
  shape s = shape_of(call);
  product common = {.epilogue =
                        s.input[BIAS] < 0 ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS};
  cublasStatus_t why;
  sl_status status = sli_cuda_product_handle(&common.blas, &common.handle);
  if (status) return status;
  product *p = make_product(call, &s, &common, &why);
  if (p) {
    *state = p;
    return SL_OK;
  }
  return sl_fail(SL_E_DEVICE, "cuBLASLt has no kernel for [%lld, %lld] x [%lld, %lld]%s%s: %s",
                 (long long)s.m, (long long)s.k, (long long)s.k, (long long)s.n,
                 s.bf16 ? " in bf16" : "", s.input[BIAS] < 0 ? "" : " with bias",
                 common.blas->cublasLtGetStatusString(why));
}

/* ---- with GELU ------------------------------------------------
 *
 * The library's GELU has the tanh form, like Sluice's, but is computed from the sums before they
 * are rounded to bf16; its auxiliary output is rounded. */

/* Rows of the auxiliary array must be multiples of this many elements. */
enum { AUX_MULTIPLE = 8 };

/* Returns false if the library has no such product. */
static bool prepare_with(const sl_call *call, uint32_t epilogue, void **state) {
  shape s = shape_of(call);
  product common = {.epilogue = epilogue};
  cublasStatus_t why;
  if (has_aux(epilogue) && s.ldc % AUX_MULTIPLE) return false;
  if (sli_cuda_product_handle(&common.blas, &common.handle)) return false;
  return (*state = make_product(call, &s, &common, &why));
}

bool sli_cuda_linear_gelu_prepare(const sl_call *calls, bool kept, void **state) {
  static const uint32_t epilogues[2][2] = {
      {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS},
      {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}};
  return prepare_with(calls, epilogues[kept][has(calls, 2)], state);
}

/* Fails if `kept`, because the library does not output the gradient of GELU's output. */
bool sli_cuda_linear_b_gelu_b_prepare(const sl_call *calls, bool kept, void **state) {
  return !kept && prepare_with(calls, CUBLASLT_EPILOGUE_DGELU, state);
}

/* ---- launching ------------------------------------------------ */

/* Returns the operand as the library reads it, and moves *scratch past the part it uses. */
static const void *operand(const sl_call *call, const product *p, int which, char **scratch,
                           void *stream) {
  int i = p->input[which];
  if (i < 0 || !p->rounded[which]) return i < 0 ? NULL : call->in[i];
  void *to = *scratch;
  sli_cuda_round(call->in[i], to, sl_type_elements(&call->in_type[i]),
                 which == RIGHT ? p->zeros : 0, stream);
  *scratch += p->rounded[which];
  return to;
}

static void linear_run(const product *p, const void *left, const void *right, float keep, void *to,
                       void *workspace, void *stream) {
  float one = 1;
  cublasStatus_t status = p->blas->cublasLtMatmul(
      p->handle, p->desc, &one, right, p->right, left, p->left, &keep, to, p->result, to, p->result,
      &p->algorithm, workspace, WORKSPACE_BYTES, (cudaStream_t)stream);
  if (status && !sli_cuda_capture_spoil())
    sli_cuda_launch_failed(p->blas->cublasLtGetStatusString(status));
}

/* aux: see has_aux(). */
static void multiply(const sl_call *call, const product *p, const void *aux, void *to,
                     void *stream) {
  char *scratch = call->scratch;
  const void *left = operand(call, p, LEFT, &scratch, stream);
  const void *right = operand(call, p, RIGHT, &scratch, stream);
  const void *bias = operand(call, p, BIAS, &scratch, stream);
  float keep = call->accumulate & 1 ? 1 : 0;
  if (bias) set_pointer(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (aux) set_pointer(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  linear_run(p, left, right, keep, to, scratch, stream);
  if (p->rest)
    linear_run(p->rest, (const char *)left + p->rest_left, right, keep, (char *)to + p->rest_to,
               scratch, stream);
}

void sli_cuda_linear(const sl_call *call, void *stream) {
  multiply(call, call->state, NULL, call->out[0], stream);
}

void sli_cuda_linear_gelu(const sli_cuda_fused *row, const sl_call *calls, int ncalls, void *state,
                          void *stream) {
  (void)row, (void)ncalls;
  multiply(&calls[0], state, calls[0].out[0], calls[1].out[0], stream);
}

void sli_cuda_linear_b_gelu_b(const sli_cuda_fused *row, const sl_call *calls, int ncalls,
                              void *state, void *stream) {
  (void)row, (void)ncalls;
  multiply(&calls[0], state, calls[1].in[0], calls[1].out[0], stream);
}
