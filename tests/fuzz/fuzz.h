/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz targets; the head of fuzz_main.c says how to add one. */
#ifndef SLUICE_TESTS_FUZZ_FUZZ_H
#define SLUICE_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Tests one input; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Optional words of a target from which inputs are built, ended by NULL. */
extern const char *const fuzz_words[] __attribute__((weak));

#endif
