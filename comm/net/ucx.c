/* SPDX-License-Identifier: Apache-2.0 */
/* Loading UCX has side effects. The library catches SIGSEGV and similar signals to print a
 * backtrace. It catches SIGHUP for debugging, so a process no longer ends with its terminal, and it
 * logs to stdout. That is unsuitable for a program that links Sluice and may never open a net. UCX
 * is therefore loaded when the first net opens, and configured not to handle signals. This is
 * possible only with environment variables, which UCX reads while it is loaded. Variables that the
 * user has set stay unchanged.
 *
 * Settings of single transports are applied later, per context. */
#include "comm/net/ucx.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

sli_ucx_functions sli_ucx;

typedef struct variable {
  const char *name, *value;
  bool ours; /* set by this file, temporarily */
} variable;

/* Sets the variables that the user has not set. */
static void set_variables(variable *v, size_t count) {
  for (size_t i = 0; i < count; i++) {
    v[i].ours = !getenv(v[i].name);
    if (v[i].ours) setenv(v[i].name, v[i].value, 1);
  }
}

static void unset_variables(const variable *v, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (v[i].ours) unsetenv(v[i].name);
}

static sl_status find_functions(void *library) {
  sli_ucx_functions found;
#define X(function)                                                   \
  found.function = (__typeof__(function) *)dlsym(library, #function); \
  if (!found.function) return sl_fail(SL_E_UNSUPPORTED, "UCX has no " #function);
  SLI_UCX_FUNCTIONS(X)
#undef X
  sli_ucx = found;
  return SL_OK;
}

sl_status sli_ucx_load(void) {
  variable at_load[] = {
      {"UCX_HANDLE_ERRORS", "none", false}, /* no signal handlers */
      {"UCX_DEBUG_SIGNO", "0", false},      /* no SIGHUP handler either */
      {"UCX_LOG_LEVEL", "fatal", false},    /* a peer that closes first is not an error to report */
#ifdef __SANITIZE_THREAD__
      {"UCX_MEM_EVENTS", "n", false}, /* UCX patches mmap, which the sanitizer has replaced */
#endif
  };
  if (sli_ucx.ucp_config_read) return SL_OK;
  set_variables(at_load, SLI_COUNT(at_load));
  void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  unset_variables(at_load, SLI_COUNT(at_load));
  if (!library) return sl_fail(SL_E_UNSUPPORTED, "UCX cannot be loaded: %s", dlerror());
  return find_functions(library);
}

typedef struct setting {
  const char *user; /* the user's variable, which takes precedence, or NULL */
  const char *name, *value;
} setting;

/* Applies settings. A setting unknown to this UCX version is ignored. */
static void ucx_apply(ucp_config_t *config, const setting *s) {
  for (; s->name; s++)
    if (!s->user || !getenv(s->user)) (void)sli_ucx.ucp_config_modify(config, s->name, s->value);
}

/* Detects a dead peer within a second. */
static const setting for_all[] = {{"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "200ms"}, {0}};

static const setting by_kind[][4] = {
    [SLI_UCX_MEMORY] = {{NULL, "TLS", "sm,self"},
                        /* Required for shared memory with peers that may die. */
                        {"UCX_MM_ERROR_HANDLING", "MM_ERROR_HANDLING", "y"}},
    [SLI_UCX_FABRIC] = {{"UCX_TLS", "TLS", "^tcp"},
                        {"UCX_MM_ERROR_HANDLING", "MM_ERROR_HANDLING", "y"}},
};

/* Fails, with a hint about /dev/shm, which is small in many containers and from which both kinds
 * allocate memory. */
sl_status sli_ucx_fail(const char *what, ucs_status_t status) {
  enum { LEAST_BYTES = 16 << 20 };
  const char *why = sli_ucx.ucs_status_string(status);
  struct statvfs shm;
  char free_text[32];
  if (statvfs("/dev/shm", &shm))
    return sl_fail(SL_E_IO, "no shared memory between processes: /dev/shm: %s", strerror(errno));
  double bytes = (double)shm.f_bavail * (double)shm.f_frsize;
  if (bytes < LEAST_BYTES)
    return sl_fail(
        SL_E_IO,
        "too little shared memory between processes: /dev/shm has %s left, but each process "
        "takes some MiB (use docker run --shm-size, or SLUICE_TRANSPORTS=tcp)",
        sli_format_bytes(free_text, bytes));
  return sl_fail(SL_E_IO, "UCX %s: %s (UCX_LOG_LEVEL=info says more)", what, why);
}

sl_status sli_ucx_open(int nprocesses, sli_ucx_kind kind, const char *folder, ucp_context_h *out) {
  sl_status status = sli_ucx_load();
  if (status) return status;
  ucp_config_t *config;
  /* An environment variable is UCX's only interface for this. */
  variable dir = {"UCX_POSIX_DIR", folder, false};
  set_variables(&dir, 1);
  ucs_status_t ucs = sli_ucx.ucp_config_read(NULL, NULL, &config);
  if (!ucs) {
    ucx_apply(config, for_all);
    ucx_apply(config, by_kind[kind]);
    ucs = sli_ucx.ucp_init_version(
        UCP_API_MAJOR, UCP_API_MINOR,
        &(ucp_params_t){.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                        .estimated_num_eps = (size_t)nprocesses},
        config, out);
    sli_ucx.ucp_config_release(config);
  }
  unset_variables(&dir, 1);
  return ucs ? sli_ucx_fail("does not start", ucs) : SL_OK;
}
