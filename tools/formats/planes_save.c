/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/planes_save.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/planes.h"

sl_status planes_read(const char *text, int *base, int *width, const char **routed) {
  static const char word[] = ",routed";
  int one = -1, two = -1;
  *base = *width = 0;
  sscanf(text, "%d%n..%d%n", base, &one, width, &two);
  if (one > 0 && strncmp(text + one, "..", 2)) *width = *base, two = one;
  const char *rest = two > 0 ? text + two : "?";
  *routed = strncmp(rest, word, strlen(word)) ? NULL : rest + strlen(word);
  bool ends = *routed ? !**routed || **routed == ':' : !*rest;
  bool fine = ends && isdigit((unsigned char)*text) && *base >= SLI_PLANES_LEAST &&
              *base <= *width && *width <= SLI_PLANES_MOST;
  if (fine) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "--planes %s: must be A..B, or B, with %d <= A <= B <= %d, and may end with ,routed "
      "or ,routed:KEY=VALUE,...",
      text, SLI_PLANES_LEAST, SLI_PLANES_MOST);
}

/* ---- the file ------------------------------------------------------------------------------ */

typedef struct saving {
  const char *path;
  int base, width;
  const sli_tensor_data *tensors;
  sli_tensor_values *values; /* of the model */
  void *of_values;
  uint32_t *planes; /* of one matrix */
  int matrices;
} saving;

/* Returns whether a tensor is a matrix of one expert, "...experts.3.w1.weight", and no bit
 * router. */
static bool is_expert(const sli_tensor_data *t) {
  const char *at = strstr(t->name, ".experts.");
  bool matrix = at && isdigit((unsigned char)at[strlen(".experts.")]) && t->ndim == 2;
  return matrix && !strstr(at, ".bits.weight");
}

static sl_type matrix_of(const sli_tensor_data *t) { return SL_TYPE(SL_F32, t->dim[0], t->dim[1]); }

/* Returns the values of a tensor of the file. */
static sl_status give_values(void *ctx, int index, const float **out) {
  saving *s = ctx;
  const sli_tensor_data *t = &s->tensors[index];
  sl_status status = s->values(s->of_values, index, out);
  if (status || !is_expert(t)) return status;
  const sl_type matrix = matrix_of(t);
  free(s->planes);
  s->planes = sli_calloc((size_t)s->width, sli_plane_bytes(&matrix));
  sli_planes_pack(&matrix, s->base, s->width, *out, s->planes);
  *out = (const float *)(const void *)s->planes;
  return SL_OK;
}

/* Describes the tensors of the file: planes in place of an expert's matrix. */
static void describe(saving *s, const sli_tensor_data *t, sli_tensor_data *out, int64_t *dim) {
  *out = *t;
  out->data = NULL;
  if (!is_expert(t)) return;
  dim[0] = s->width;
  dim[1] = t->dim[0];
  dim[2] = sli_plane_row(t->dim[1]);
  out->name = sli_format("%s.planes%d", t->name, s->base);
  out->ndim = 3;
  out->dim = dim;
  out->dtype = "U32";
  s->matrices++;
}

static sl_status write_tensors(void *ctx, const sli_tensor_data *tensors, int count,
                               sli_tensor_values *values, void *of_values) {
  saving *s = ctx;
  sli_tensor_data *stored = sli_calloc((size_t)count + 1, sizeof *stored);
  int64_t(*dims)[3] = sli_calloc((size_t)count + 1, sizeof *dims);
  s->tensors = tensors;
  s->values = values;
  s->of_values = of_values;
  for (int i = 0; i < count; i++) describe(s, &tensors[i], &stored[i], dims[i]);
  sl_status status = SL_OK;
  if (!s->matrices)
    status = sl_fail(SL_E_UNSUPPORTED, "--planes: the model has no matrices of experts");
  if (!status) status = sli_safetensors_write_each(s->path, stored, count, give_values, s);
  for (int i = 0; i < count; i++)
    if (stored[i].dtype) free((char *)stored[i].name);
  free(s->planes);
  free(dims);
  free(stored);
  return status;
}

sl_status planes_save(const char *path, int base, int width, const sl_lowered *lowered,
                      sl_runtime *rt) {
  saving s = {.path = path, .base = base, .width = width};
  return sli_weights_write(path, lowered, rt, false, write_tensors, &s);
}
