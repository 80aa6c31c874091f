/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of cuBLASLt. */
#include "kernels/cuda/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/base.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static sli_blas loaded; /* written once, under the lock */
static void *library;

static void *open_library(void) {
  static const char *const names[] = {"libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), SLI_CUBLASLT_PATH};
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    void *opened = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (opened) return opened;
  }
  return NULL;
}

static sl_status blas_load(void) {
  void *opened = open_library();
  if (!opened)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "libcublasLt.so.%d, which GPUs need, was not found: install it or add its folder to "
        "LD_LIBRARY_PATH (%s)",
        CUBLAS_VER_MAJOR, dlerror());
#define X(name)                                                       \
  if (!(loaded.name = (__typeof__(loaded.name))dlsym(opened, #name))) \
    return sl_fail(SL_E_UNSUPPORTED, "libcublasLt has no " #name);
  SLI_BLAS_FUNCTIONS(X)
#undef X
  library = opened;
  return SL_OK;
}

sl_status sli_blas_load(const sli_blas **blas) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  sl_status status = library ? SL_OK : blas_load();
  pthread_mutex_unlock(&lock);
  if (!status) *blas = &loaded;
  return status;
}
