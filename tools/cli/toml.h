/* SPDX-License-Identifier: Apache-2.0 */
/* TOML reader, value by value: the C interface to a C++ library. */
#ifndef SLUICE_TOOLS_CLI_TOML_H
#define SLUICE_TOOLS_CLI_TOML_H

#include <stdbool.h>
#include <stddef.h>

#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum toml_kind { TOML_TEXT, TOML_INT, TOML_FLOAT, TOML_FLAG, TOML_OTHER } toml_kind;

/* The value of a key, at the top level or in a table. Each item of an array is passed as a
 * value. */
typedef struct toml_value {
  const char *table, *key; /* table: NULL at the top level */
  toml_kind kind;
  const char *text; /* text: "0" or "1" for a flag */
  bool listed;      /* an item of an array */
  int line;
} toml_value;

/* Receives a value. Its texts are valid until the function returns. */
typedef sl_status toml_reader(void *ctx, const toml_value *value);

/* Passes each value of a text, line by line, until the reader fails. SL_E_INPUT names the file and
 * the line if the text is not TOML. */
sl_status toml_read(const char *path, const char *text, size_t bytes, toml_reader *read, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
