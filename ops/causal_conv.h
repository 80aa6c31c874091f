/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the short causal convolution, for its rules and kernels. */
#ifndef SLUICE_OPS_CAUSAL_CONV_H
#define SLUICE_OPS_CAUSAL_CONV_H

#include <sluice/op.h>

enum { SLI_MOST_TAPS = 16 };

#endif
