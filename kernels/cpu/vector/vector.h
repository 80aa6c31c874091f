/* SPDX-License-Identifier: Apache-2.0 */
/* All chunk functions, for the level that the including file has switched on. The file is included
 * twice: first for the external headers, before the level; then with SLI_TABLE, the name of the
 * table to define. */
#ifndef SLI_TABLE
#include "kernels/cpu/vector/prelude.h"
#else
#include "kernels/cpu/vector/simd.h"

#include "kernels/cpu/vector/functions.h"
#include "kernels/cpu/vector/round.h"
#include "kernels/cpu/vector/turn.h"
#include "kernels/cpu/vector/tiles.h"
#include "kernels/cpu/vector/split.h"
#include "kernels/cpu/vector/attention_ahead.h"
#include "kernels/cpu/vector/attention_product.h"
#include "kernels/cpu/vector/gemm.h"
#include "kernels/cpu/vector/attention.h"
#include "kernels/cpu/vector/attention_b.h"
#include "kernels/cpu/vector/attention_choice.h"
#include "kernels/cpu/vector/linear_attention.h"
#include "kernels/cpu/vector/spikes.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/cpu/vector/loss.h"
#include "kernels/cpu/vector/weighted_loss.h"
#include "kernels/cpu/vector/norm.h"
#include "kernels/cpu/vector/batch_norm.h"
#include "kernels/cpu/vector/pool.h"
#include "kernels/cpu/vector/winograd.h"
#include "kernels/cpu/vector/rotary.h"
#include "kernels/cpu/vector/table.h"
#include "kernels/cpu/vector/storage.h"
#include "kernels/cpu/vector/served.h"
#include "kernels/cpu/vector/served_digits.h"
#include "kernels/cpu/vector/served_blocks.h"
#include "kernels/cpu/vector/served_product.h"
#include "kernels/cpu/vector/softmax.h"
#include "kernels/cpu/vector/unary.h"
#include "kernels/cpu/vector/fold.h"
#include "kernels/cpu/vector/update.h"

const sli_cpu_chunks SLI_TABLE = {
#define X(name) .name = name##_chunk,
    SLI_CHUNK_TABLE(X)
#undef X
        .unary = unary_chunks,
    .unary_b = unary_b_chunks,
    .binary = binary_rows,
    .where = where_rows,
#if (defined(__AVX2__) && !defined(__AVX512F__)) || (defined(__aarch64__) && defined(SLI_FUSED))
    .multiplies = true,
#endif
#if defined(__AMX_BF16__)
    .bf16 = "amx-bf16",
    .splits = true,
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    .bf16 = "bfmmla",
#endif
};
#endif
