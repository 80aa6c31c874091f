/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz targets: how to add one is said at the head of fuzz_main.c. */
#ifndef SLUICE_TESTS_FUZZ_H
#define SLUICE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* One input; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Words that inputs of a target are made of, NULL behind the last; a target may have them. */
extern const char *const fuzz_words[] __attribute__((weak));

#endif
