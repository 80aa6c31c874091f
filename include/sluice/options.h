/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering options by name, for setting sl_lower_options from command lines, files and other
 * languages. */
#ifndef SLUICE_OPTIONS_H
#define SLUICE_OPTIONS_H

#include <stddef.h>

#include <sluice/lower.h>
#include <sluice/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A field of sl_lower_options and the option that sets it. option.kind is the type of the field:
 * INT int, FLOAT double, FLAG bool, TEXT const char *. If option.help is NULL, the text is not the
 * field's value itself: a special reader or a callback sets the field. The library's help and
 * messages name fields ("parallel.data"); programs may substitute the option's name. */
typedef struct sl_lower_field {
  const char *field;        /* "parallel.data" */
  size_t offset;            /* in sl_lower_options */
  sl_option option;         /* its name is "data-parallel" */
  const char *const *words; /* allowed values of a text, NULL-terminated; NULL: any text */
} sl_lower_field;

/* Returns all fields, terminated by an entry without a name. */
const sl_lower_field *sl_lower_fields(void);

#ifdef __cplusplus
}
#endif
#endif
