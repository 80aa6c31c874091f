#include "comm/cuda/library.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/base.h"

static sli_nccl_library loaded; /* written once, under the lock */
static bool is_loaded;

static void *open_library(void) {
  static const char *const names[] = {"libnccl.so.2", SLI_NCCL_PATH};
  void *opened = NULL;
  for (size_t i = 0; i < SLI_COUNT(names) && !opened; i++)
    opened = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  return opened;
}

static sl_status check_version(void) {
  int version = 0;
  loaded.ncclGetVersion(&version);
  if (version >= NCCL_VERSION_CODE) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "libnccl.so.2 has version %d, and this build was made with %d",
                 version, NCCL_VERSION_CODE);
}

static sl_status load(void) {
  void *opened = open_library();
  if (!opened)
    return sl_fail(SL_E_UNSUPPORTED, "libnccl.so.2 was not found: install it or name its folder in "
                   "LD_LIBRARY_PATH (%s)", dlerror());
#define X(name)                                                                      \
  if (!(loaded.name = (__typeof__(loaded.name))dlsym(opened, #name)))                \
    return sl_fail(SL_E_UNSUPPORTED, "libnccl.so.2 has no " #name);
  SLI_NCCL_FUNCTIONS(X)
#undef X
  return check_version();
}

sl_status sli_nccl_load(const sli_nccl_library **library) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  sl_status status = is_loaded ? SL_OK : load();
  is_loaded = !status;
  pthread_mutex_unlock(&lock);
  if (!status) *library = &loaded;
  return status;
}
