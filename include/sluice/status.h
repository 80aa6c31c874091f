/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes: 0 is success, everything else names a kind of failure.
 *
 * The code gives the kind of failure and the exit status of the tools; the text names the op,
 * register, file or option. The function that detects a failure writes the text with sl_fail();
 * callers pass the code on. The text belongs to the calling thread and stays valid until its next
 * sl_fail(). */
#ifndef SLUICE_STATUS_H
#define SLUICE_STATUS_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

/*   code          exit  meaning                                            */
/* clang-format off */
#define SL_STATUS_TABLE(X)                                                      \
  X(OK,            0,   "success")                                              \
  X(E_USAGE,       2,   "the command line is wrong")                            \
  X(E_INPUT,       2,   "an input is missing or malformed")                     \
  X(E_SHAPE,       2,   "shapes or types do not fit")                           \
  X(E_MEMORY,      1,   "out of memory")                                        \
  X(E_IO,          1,   "reading or writing failed")                            \
  X(E_DEVICE,      1,   "a device failed")                                      \
  X(E_NUMERIC,     1,   "a value is not finite")                                \
  X(E_STUCK,       3,   "the plan cannot finish")                               \
  X(E_BUDGET,      3,   "the plan does not fit in memory")                      \
  X(E_STOPPED,     1,   "stopped before the end")                               \
  X(E_UNSUPPORTED, 2,   "not supported here")                                   \
  X(E_PEER,        1,   "a process of the job failed")                          \
  X(E_BUSY,        1,   "there is no room just now")
/* clang-format on */

typedef enum sl_status {
#define X(code, exit, text) SL_##code,
  SL_STATUS_TABLE(X)
#undef X
      SL_STATUS_COUNT
} sl_status;

/* Returns the description of a code: "SL_E_SHAPE" -> "shapes or types do not fit". Never NULL. */
const char *sl_status_text(sl_status status);

/* Returns the exit status of a tool that ends with `status`: 0, 1, 2 or 3. */
int sl_status_exit(sl_status status);

/* Records the detail text of a failure for this thread and returns `status`,
 * so that the detector can write `return sl_fail(SL_E_INPUT, "...", ...)`. */
sl_status sl_fail(sl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the text of this thread's last failure, or "" if there was none. */
const char *sl_detail(void);

#ifdef __cplusplus
}
#endif
#endif
