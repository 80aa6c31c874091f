/* SPDX-License-Identifier: Apache-2.0 */
/* Error for features that a build lacks because an optional library was left out. */
#ifndef SLUICE_BASE_LEFT_OUT_H
#define SLUICE_BASE_LEFT_OUT_H

#include <sluice/status.h>

/* Fails: `what` needs a library that this build lacks. The message names the CMake option and the
 * Debian package. All arguments but `what` are literals. */
#define SLI_LEFT_OUT(what, library, option, package)                                   \
  sl_fail(SL_E_UNSUPPORTED,                                                            \
          "%s: this build of Sluice has no " library " (CMake's option SLUICE_" option \
          ", Debian: " package ")",                                                    \
          what)

#endif
