/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of OpenBLAS, and its matrix product. */
#include "kernels/cpu/openblas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Values of the CBLAS standard (BLAS Technical Forum, 2001, appendix B). */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
typedef void cblas_sgemm_fn(int order, int a_transposed, int b_transposed, int m, int n, int k,
                            float alpha, const float *a, int a_row, const float *b, int b_row,
                            float beta, float *c, int c_row);

static cblas_sgemm_fn *cblas_sgemm;
static char name[64] = "OpenBLAS";

/* Address space that loading requires. Each multiplying thread takes 32 MiB, and the library ends
 * the process when none is left. */
static const size_t room = (size_t)1 << 30;

/* Returns true if several of our threads may multiply at once. A single-threaded build (0) gives
 * them the same buffer and computes wrong results; an OpenMP build (2) would start threads in each
 * of ours. */
static bool is_for_threads(void *library) {
  int (*parallel)(void) = (int (*)(void))dlsym(library, "openblas_get_parallel");
  return parallel && parallel() == 1;
}

/* Takes the first two words of "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...". */
static void take_name(void *library) {
  char *(*config)(void) = (char *(*)(void))dlsym(library, "openblas_get_config");
  const char *text = config ? config() : NULL, *end = text ? strchr(text, ' ') : NULL;
  if (end)
    snprintf(name, sizeof name, "%.*s", (int)(end + 1 - text + (ptrdiff_t)strcspn(end + 1, " ")),
             text);
}

/* Loads the library with one thread: its own would compete with ours. It starts its threads during
 * loading unless the environment says otherwise. */
static void *open_library(void) {
  static const char variable[] = "OPENBLAS_NUM_THREADS";
  const char *users = getenv(variable);
  char *before = users ? sli_strdup(users) : NULL;
  setenv(variable, "1", 1);
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (before) setenv(variable, before, 1);
  else unsetenv(variable);
  free(before);
  return library;
}

/* Loads OpenBLAS. Logs a failure, because other products have other bits. */
static void openblas_load(void) {
  const char *why = NULL;
  void *library = NULL;
  if (sli_address_room(room, "OpenBLAS")) why = sl_detail();
  else if (!(library = open_library())) why = dlerror();
  else if (!is_for_threads(library)) why = "it is not built for threads";
  else cblas_sgemm = (cblas_sgemm_fn *)dlsym(library, "cblas_sgemm");
  if (cblas_sgemm) take_name(library);
  else
    sli_log(
        "note: no OpenBLAS (%s): oneDNN or our own kernel multiplies in its place, which gives other bits",
        why ? why : "it lacks cblas_sgemm");
}

bool sli_openblas(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, openblas_load);
  return cblas_sgemm;
}

const char *sli_openblas_name(void) { return name; }

void sli_openblas_multiply(const sli_sgemm *s) {
  cblas_sgemm(ROW_MAJOR, s->a_transposed ? TRANSPOSED : PLAIN, s->b_transposed ? TRANSPOSED : PLAIN,
              (int)s->m, (int)s->n, (int)s->k, 1, s->a, (int)s->a_row, s->b, (int)s->b_row,
              s->add ? 1 : 0, s->c, (int)s->n);
}
