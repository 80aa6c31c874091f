/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of TOML, value by value. The library for it is written in C++; this is its face to C. */
#ifndef SLUICE_TOOLS_COMMON_TOML_H
#define SLUICE_TOOLS_COMMON_TOML_H

#include <stdbool.h>
#include <stddef.h>

#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum toml_kind { TOML_TEXT, TOML_INT, TOML_FLOAT, TOML_FLAG, TOML_OTHER } toml_kind;

/* A value of a key, at the top or in a table there. Each item of an array is a value of its own. */
typedef struct toml_value {
  const char *table, *key; /* table: NULL at the top */
  toml_kind kind;
  const char *text; /* of a flag "0" or "1" */
  bool listed;      /* an item of an array */
  int line;
} toml_value;

/* Takes a value; its texts live until it returns. */
typedef sl_status toml_reader(void *ctx, const toml_value *value);

/* Passes each value of a text, line by line, until the reader fails. SL_E_INPUT names the file and
 * the line of a text that is not TOML. */
sl_status toml_read(const char *path, const char *text, size_t bytes, toml_reader *read, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
