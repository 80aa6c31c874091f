/* SPDX-License-Identifier: Apache-2.0 */
/* All external headers that vector/ needs. Included before a level is switched on, so that no
 * foreign inline function is compiled for that level. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <sluice/ops.h>
#include <sluice/optimizer.h>

#include "base/base.h"
#include "io/half.h"
#include "io/small.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/room.h"
#include "kernels/cpu/served.h"
#include "kernels/cpu/stored.h"
#include "ops/attention_blocks.h"
#include "ops/attention_shape.h"
#include "ops/leaves.h"
#include "ops/storage.h"
#include "ops/rotary.h"
#include "ops/target.h"
#include "ops/spikes.h"
