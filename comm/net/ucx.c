/* Loading UCX is not without effects. Its library catches SIGSEGV and its like to
 * print a backtrace, and SIGHUP to become talkative, so that a process no longer
 * ends with its terminal; and it logs to stdout. All that is right for a job that
 * is about UCX, and wrong for every program that is linked to Sluice and may never
 * open a net. So the library is loaded when the first net is, and told to leave
 * signals alone, by the only way there is: its environment variables, which it
 * reads as it is loaded. Those the user has set stay as they are.
 *
 * What concerns single transports it takes later, as settings of a context. */
#include "comm/net/ucx.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

sli_ucx_functions sli_ucx;

static const char *const at_load[][2] = {
    {"UCX_HANDLE_ERRORS", "none"}, /* no signal handlers */
    {"UCX_DEBUG_SIGNO", "0"},      /* not for SIGHUP either */
    {"UCX_LOG_LEVEL", "fatal"},    /* a peer that closes before us is no error to tell of */
#ifdef __SANITIZE_THREAD__
    {"UCX_MEM_EVENTS", "n"}, /* it patches mmap, which the sanitizer has replaced */
#endif
};

static sl_status find_functions(void *library) {
  sli_ucx_functions found;
#define X(function)                                                                       \
  found.function = (__typeof__(function) *)dlsym(library, #function);                     \
  if (!found.function) return sl_fail(SL_E_UNSUPPORTED, "UCX has no " #function);
  SLI_UCX_FUNCTIONS(X)
#undef X
  sli_ucx = found;
  return SL_OK;
}

static sl_status load(void) {
  if (sli_ucx.ucp_config_read) return SL_OK;
  bool ours[SLI_COUNT(at_load)];
  for (size_t i = 0; i < SLI_COUNT(at_load); i++) {
    ours[i] = !getenv(at_load[i][0]);
    if (ours[i]) setenv(at_load[i][0], at_load[i][1], 1);
  }
  void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  for (size_t i = 0; i < SLI_COUNT(at_load); i++)
    if (ours[i]) unsetenv(at_load[i][0]);
  if (!library) return sl_fail(SL_E_UNSUPPORTED, "UCX cannot be loaded: %s", dlerror());
  return find_functions(library);
}

/* Is one of these transports wanted? UCX warns of settings that nothing uses. */
static bool is_wanted(const char *const *transports) {
  const char *chosen = getenv("UCX_TLS");
  if (!chosen || strstr(chosen, "all") || strchr(chosen, '^')) return true;
  for (; *transports; transports++)
    if (strstr(chosen, *transports)) return true;
  return false;
}

static void adjust(ucp_config_t *config) {
  static const struct {
    const char *variable, *name, *value, *transports[6];
  } settings[] = {
      /* To see within a second that a peer died. */
      {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "200ms", {""}},
      {"UCX_TCP_KEEPIDLE", "KEEPIDLE", "1s", {"tcp"}},
      {"UCX_TCP_KEEPINTVL", "KEEPINTVL", "1s", {"tcp"}},
      /* Else shared memory is not for peers that may die. */
      {"UCX_MM_ERROR_HANDLING", "MM_ERROR_HANDLING", "y", {"sm", "shm", "mm", "posix", "sysv"}},
  };
  for (size_t i = 0; i < SLI_COUNT(settings); i++) {
    if (getenv(settings[i].variable) || !is_wanted(settings[i].transports)) continue;
    /* A UCX that does not know one does without. */
    (void)sli_ucx.ucp_config_modify(config, settings[i].name, settings[i].value);
  }
}

sl_status sli_ucx_open(int nprocesses, ucp_context_h *out) {
  sl_status status = load();
  if (status) return status;
  ucp_config_t *config;
  ucs_status_t ucs = sli_ucx.ucp_config_read(NULL, NULL, &config);
  if (!ucs) {
    adjust(config);
    ucs = sli_ucx.ucp_init_version(
        UCP_API_MAJOR, UCP_API_MINOR,
        &(ucp_params_t){.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                        .estimated_num_eps = (size_t)nprocesses},
        config, out);
    sli_ucx.ucp_config_release(config);
  }
  if (!ucs) return SL_OK;
  return sl_fail(SL_E_IO, "UCX does not start: %s (UCX_LOG_LEVEL=info says more)",
                 sli_ucx.ucs_status_string(ucs));
}
