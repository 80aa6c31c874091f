/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of numbers with a range. */
#ifndef SLUICE_BASE_NUMBER_H
#define SLUICE_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the value of a hexadecimal digit, or -1. */
static inline int sli_hex_digit(int c) {
  int low = c | 0x20;
  return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* Reads a whole number from `least` (0 or more) to `most` at *at, and moves *at past it. Returns
 * false if there is no number, or it is out of range. */
bool sli_number_read(const char **at, int least, int most, int *out);
/* Reads a number of bytes in the same way: "512M", "8G", "1.5GiB". */
bool sli_number_read_size(const char **at, size_t *out);

#endif
