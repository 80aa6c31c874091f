/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that are unusual in one way each (tests/reference/pytorch_odd.py): they have PyTorch's
 * loss and gradients, or give a message that says what is not supported, where, and what to do.
 * labels: numbers
 * needs: libzip */
#include <string.h>

#include "base/base.h"
#include "tests/support/exported.h"
#include "tests/support/test.h"

static const struct refusal {
  const char *name, *message;
} refused[] = {
    {"float64",
     "parameter line.weight is float64; training computes in float32: call "
     "module.float() before the export"},
    {"complex_inside",
     "aten.view_as_complex.default makes a tensor of complex64 at "
     "pytorch_odd.py:74; complex numbers are not supported"},
    {"unknown_calls", "aten.fft_rfft.default makes a tensor of complex64 at pytorch_odd.py:82"},
    {"choice", "calls what is not supported: higher_order.cond (1 time, first at "},
    {"no_loss",
     "forward() returns no loss, a float without dims, but float32[4, 3]; wrap the "
     "module so that its forward() computes the loss"},
    {"wide_numbers",
     "wide_numbers.ids.npy: element 2 is 1099511627776, which does not fit 32 "
     "bits"},
    {"without_weights",
     "config.line.weight: data/weights/weight_0 has no numbers: the module was "
     "exported without its weights (fake or meta tensors)"},
    {"counter", "average is not known where it is read"}};

static const char *message_of(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(refused); i++)
    if (!strcmp(refused[i].name, name)) return refused[i].message;
  return NULL;
}

static void one(const exported_cases *c, const cJSON *of, double tolerance) {
  bool bf16 = !strcmp(of->string, "bfloat16"); /* computed in f32; PyTorch uses bf16 */
  exported_check(c, of, bf16 ? 5e-3 : tolerance, message_of(of->string));
}

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  exported_each("odd", 2e-6, one);
  return 0;
}
