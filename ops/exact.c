/* SPDX-License-Identifier: Apache-2.0 */
/* Records of exact sums that several ops share (sl_op_exact). */
#include "ops/ops.h"

const sl_op_exact sli_exact_groups = {.groups = true};
const sl_op_exact sli_exact_scatters = {.scatters = true};
const sl_op_exact sli_exact_moves = {.moves = true};
const sl_op_exact sli_exact_by_leaf = {.by_leaf = true};
const sl_op_exact sli_exact_sum = {.total = SL_TOTAL_SUM};
const sl_op_exact sli_exact_mean = {.total = SL_TOTAL_MEAN_ELEMENTS};
