/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/nccl/cuda/library.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/base.h"

static sli_nccl_library loaded; /* written once, under the lock */
static bool is_loaded;

static sl_status check_version(const char *path) {
  int version = 0;
  loaded.ncclGetVersion(&version);
  if (version >= NCCL_VERSION_CODE) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "%s has version %d, but this build was made with %d", path,
                 version, NCCL_VERSION_CODE);
}

static sl_status find_functions(const char *path, void *library) {
#define X(name)                                                        \
  if (!(loaded.name = (__typeof__(loaded.name))dlsym(library, #name))) \
    return sl_fail(SL_E_UNSUPPORTED, "%s has no " #name, path);
  SLI_NCCL_FUNCTIONS(X)
#undef X
  return check_version(path);
}

static sl_status load_from(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "libnccl.so.2 was not found: install it or add its folder to LD_LIBRARY_PATH (%s)",
        dlerror());
  sl_status status = find_functions(path, library);
  if (status) dlclose(library);
  return status;
}

/* Loads the system's library, or, if that is missing or too old, the one this build was configured
 * with. */
static sl_status library_load(void) {
  return load_from("libnccl.so.2") ? load_from(SLI_NCCL_PATH) : SL_OK;
}

sl_status sli_nccl_load(const sli_nccl_library **library) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  sl_status status = is_loaded ? SL_OK : library_load();
  is_loaded = !status;
  pthread_mutex_unlock(&lock);
  if (!status) *library = &loaded;
  return status;
}
