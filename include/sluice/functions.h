/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that apply functions by number, computed in f64, and ops on integers. */
#ifndef SLUICE_FUNCTIONS_OPS_H
#define SLUICE_FUNCTIONS_OPS_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions whose number, as listed in ops/functions.def, is attrs.function.number, on f32 arrays.
 *   function(x) -> f(x), where f may depend on attrs.function.c and attrs.function.u;
 *   function_b(x, dy) -> dx.
 *   function2(a, b) -> f(a, b), broadcast by NumPy's rules;
 *   function2_b(a, b, dy) -> da (acc), db (acc): summed over the dims in which a, or b, is
 *     repeated. */
extern const sl_op sl_op_function, sl_op_function_b, sl_op_function2, sl_op_function2_b;

/* Functions of integers whose number is attrs.function.number, computed in 64 bits.
 * attrs.function.range is the range of the results, an sli_whole_range: they wrap around, or the
 * run ends if one does not fit. whole(a i32, b i32) -> i32, broadcast by NumPy's rules.
 *   whole_reduce(x i32) -> i32: combines elements over the dims of attrs.along.axes (none: all);
 * with attrs.along.keep the dims stay with length 1. */
extern const sl_op sl_op_whole, sl_op_whole_reduce;

#ifdef __cplusplus
}
#endif
#endif
