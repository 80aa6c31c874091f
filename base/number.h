/* Numbers in texts, each with its range. */
#ifndef SLUICE_BASE_NUMBER_H
#define SLUICE_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* A whole number, from `least` (0 or more) to `most`, at *at, which goes on behind it. False: there
 * is none, or it is another. */
bool sli_number_read(const char **at, int least, int most, int *out);
/* The same of bytes: "512M", "8G", "1.5GiB". */
bool sli_number_read_size(const char **at, size_t *out);

#endif
