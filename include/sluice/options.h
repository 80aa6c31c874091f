/* SPDX-License-Identifier: Apache-2.0 */
/* Options of lowering by name: from command lines, files and other languages to sl_lower_options.
 */
#ifndef SLUICE_OPTIONS_H
#define SLUICE_OPTIONS_H

#include <stddef.h>

#include <sluice/lower.h>
#include <sluice/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A field of sl_lower_options and the option that sets it. option.kind is the type of the field:
 * INT int, FLOAT double, FLAG bool, TEXT const char *. Without option.help no text is the field's
 * value: a reader of its own makes it, or a callback. Help and messages of the library name fields,
 * as "parallel.data"; programs may put the option's name in its place. */
typedef struct sl_lower_field {
  const char *field;        /* "parallel.data" */
  size_t offset;            /* in sl_lower_options */
  sl_option option;         /* its name is "data-parallel" */
  const char *const *words; /* what a text may say, NULL-terminated; NULL: anything */
} sl_lower_field;

/* All such fields, ended by one without a name. */
const sl_lower_field *sl_lower_fields(void);

#ifdef __cplusplus
}
#endif
#endif
