/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt implemented plainly after its documentation: column-major matrices, operands that may be
 * transposed, alpha and beta, a bias along columns, GELU and its gradient. The gradient's input is
 * the auxiliary matrix, of the result's type. Shapes, alignments and workspaces that the library
 * would refuse are refused. */
#include "tests/emulated/cublasLt.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/blas.h"
#include "kernels/cuda/math.h"

struct emulated_handle {
  int unused;
};

struct emulated_desc {
  int32_t transposed_a, transposed_b, epilogue, bias_type;
  const void *bias;
  void *aux;
  int64_t aux_ld;
};

/* Bits of an epilogue. */
enum {
  WITH_BIAS = CUBLASLT_EPILOGUE_BIAS,
  WITH_GELU = CUBLASLT_EPILOGUE_GELU,
  WITH_AUX = 4,
  WITH_GRADIENT = 8
};

struct emulated_layout {
  cudaDataType_t type;
  int64_t rows, columns, ld;
  int32_t batch;
  int64_t stride;
};

struct emulated_preference {
  uint64_t workspace;
  uint32_t alignment; /* the least of all; 256 if unset */
};

static void *made(size_t bytes) {
  emulated_live++;
  return calloc(1, bytes);
}

static cublasStatus_t gone(void *object) {
  emulated_live--;
  free(object);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  *handle = calloc(1, sizeof **handle); /* never freed */
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : status ? "invalid" : "success";
}

/* ---- descriptions ------------------------------------------------ */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  (void)compute;
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = made(sizeof **desc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return gone(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  struct {
    void *to;
    size_t bytes;
  } fields[] = {[CUBLASLT_MATMUL_DESC_TRANSA] = {&desc->transposed_a, 4},
                [CUBLASLT_MATMUL_DESC_TRANSB] = {&desc->transposed_b, 4},
                [CUBLASLT_MATMUL_DESC_EPILOGUE] = {&desc->epilogue, 4},
                [CUBLASLT_MATMUL_DESC_BIAS_POINTER] = {&desc->bias, sizeof desc->bias},
                [CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE] = {&desc->bias_type, 4},
                [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER] = {&desc->aux, sizeof desc->aux},
                [CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD] = {&desc->aux_ld, 8}};
  if (bytes != fields[attribute].bytes) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(fields[attribute].to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = made(sizeof **layout);
  **layout = (struct emulated_layout){type, (int64_t)rows, (int64_t)columns, ld, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
  bool is_count = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  if (bytes != (is_count ? sizeof layout->batch : sizeof layout->stride))
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(is_count ? (void *)&layout->batch : (void *)&layout->stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return gone(layout); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  *preference = made(sizeof **preference);
  (*preference)->alignment = 256;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return gone(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
  bool is_workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (is_workspace ? sizeof(uint64_t) : sizeof(uint32_t)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (is_workspace) memcpy(&preference->workspace, value, bytes);
  else if (attribute != CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    memcpy(&preference->alignment, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ------------------------------------------------ */

/* Returns the number of rows of op(x); op_columns() likewise. */
static int64_t op_rows(const struct emulated_layout *x, bool transposed) {
  return transposed ? x->columns : x->rows;
}

static bool epilogue_fits(const struct emulated_desc *desc, const struct emulated_layout *d) {
  bool bias = desc->epilogue & WITH_BIAS, aux = desc->epilogue & WITH_AUX;
  if (bias && (desc->bias_type != (int)d->type || !desc->bias)) return false;
  return !aux || (desc->aux_ld % 8 == 0 && desc->aux_ld >= d->rows && desc->aux &&
                  (uintptr_t)desc->aux % 16 == 0);
}

static bool fits(const struct emulated_desc *desc, const struct emulated_layout *a,
                 const struct emulated_layout *b, const struct emulated_layout *d) {
  return a->type == b->type && a->batch == d->batch && b->batch == d->batch &&
         op_rows(a, desc->transposed_a) == d->rows &&
         op_rows(a, !desc->transposed_a) == op_rows(b, desc->transposed_b) &&
         op_rows(b, !desc->transposed_b) == d->columns && epilogue_fits(desc, d);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *found) {
  (void)c, (void)wanted;
  *found = handle && fits(desc, a, b, d) && preference->alignment <= 64;
  if (*found)
    results[0].algo = (cublasLtMatmulAlgo_t){preference->workspace, preference->alignment};
  return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static size_t element_bytes(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

static float get(const void *x, cudaDataType_t type, int64_t i) {
  return type == CUDA_R_16BF ? sli_bf16_to_float(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

static void put(void *x, cudaDataType_t type, int64_t i, float value) {
  if (type == CUDA_R_16BF) ((uint16_t *)x)[i] = sli_bf16_from_float(value);
  else ((float *)x)[i] = value;
}

/* Returns element (row, column) of op(x). */
static float element(const void *x, const struct emulated_layout *layout, bool transposed,
                     int64_t row, int64_t column) {
  return get(x, layout->type, transposed ? row * layout->ld + column : column * layout->ld + row);
}

/* The arguments of a product. */
typedef struct product {
  struct emulated_desc desc;
  struct emulated_layout a_layout, b_layout, d_layout;
  const void *a, *b, *c;
  void *d, *workspace;
  size_t workspace_bytes;
  float scale, keep;
} product;

static float dot(const product *p, int64_t row, int64_t column) {
  int64_t depth = op_rows(&p->a_layout, !p->desc.transposed_a);
  float total = 0;
  for (int64_t k = 0; k < depth; k++)
    total += element(p->a, &p->a_layout, p->desc.transposed_a, row, k) *
             element(p->b, &p->b_layout, p->desc.transposed_b, k, column);
  return total;
}

/* Applies the epilogue to a sum. */
static float finish(const product *p, int64_t row, int64_t column, float x) {
  const struct emulated_desc *desc = &p->desc;
  cudaDataType_t type = p->d_layout.type;
  int64_t at = column * desc->aux_ld + row;
  if (desc->epilogue & WITH_BIAS) x += get(desc->bias, (cudaDataType_t)desc->bias_type, row);
  if (desc->epilogue & WITH_GRADIENT) return sli_gelu_b(get(desc->aux, type, at), x);
  if (desc->epilogue & WITH_AUX) put(desc->aux, type, at, x);
  return desc->epilogue & WITH_GELU ? sli_gelu(x) : x;
}

static void run_one(const product *p) {
  const struct emulated_layout *d = &p->d_layout;
  for (int64_t column = 0; column < d->columns; column++)
    for (int64_t row = 0; row < d->rows; row++) {
      int64_t at = column * d->ld + row;
      float total = p->scale * dot(p, row, column);
      if (p->keep != 0) total += p->keep * get(p->c, d->type, at);
      put(p->d, d->type, at, finish(p, row, column, total));
    }
}

static const char *of_batch(const void *x, const struct emulated_layout *layout, int i) {
  return (const char *)x + (size_t)(i * layout->stride) * element_bytes(layout->type);
}

static void run(void *arg) {
  const product *p = arg;
  memset(p->workspace, 0xff, p->workspace_bytes < 4096 ? p->workspace_bytes : 4096);
  for (int i = 0; i < p->d_layout.batch; i++) {
    product one = *p;
    one.a = of_batch(p->a, &p->a_layout, i);
    one.b = of_batch(p->b, &p->b_layout, i);
    one.c = of_batch(p->c, &p->d_layout, i);
    one.d = (void *)of_batch(p->d, &p->d_layout, i);
    run_one(&one);
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  (void)c_layout;
  if (emulated_has_failed()) return CUBLAS_STATUS_EXECUTION_FAILED;
  uint32_t alignment = algorithm->alignment;
  bool aligned = !((uintptr_t)a % alignment | (uintptr_t)b % alignment | (uintptr_t)d % alignment |
                   (uintptr_t)workspace % 256);
  if (!handle || !aligned || !epilogue_fits(desc, d_layout) ||
      algorithm->workspace > workspace_bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  product p = {*desc,
               *a_layout,
               *b_layout,
               *d_layout,
               a,
               b,
               c,
               d,
               workspace,
               workspace_bytes,
               *(const float *)alpha,
               *(const float *)beta};
  emulated_call(stream, run, &p, sizeof p);
  return CUBLAS_STATUS_SUCCESS;
}

/* The functions that kernels/cuda/blas.c finds in the library. */
sl_status sli_blas_load(const sli_blas **blas) {
  static const sli_blas all = {
#define X(name) .name = name,
      SLI_BLAS_FUNCTIONS(X)
#undef X
  };
  *blas = &all;
  return SL_OK;
}
