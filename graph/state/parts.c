/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/state/parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/layout.h"

static bool same_shape(const sli_stored_tensor *t, const sl_type *type) {
  bool same = t->ndim == type->ndim;
  for (int i = 0; same && i < t->ndim; i++) same = t->dim[i] == type->dim[i];
  return same;
}

sl_status sli_stored_check(const char *path, const char *name, const sl_type *type,
                           const sli_stored_tensor *t) {
  char wanted[SL_TYPE_TEXT], found[256];
  sl_type_format(wanted, type);
  if (!t)
    return sl_fail(SL_E_INPUT, "%s has no tensor %s, which the model needs as %s", path, name,
                   wanted);
  if (!same_shape(t, type))
    return sl_fail(SL_E_SHAPE, "%s: tensor %s is %s, but the model needs %s", path, t->name,
                   sli_stored_format(found, t), wanted);
  return SL_OK;
}

/* ---- names ------------------------------------------------------------------------- */

static void print_ranges(FILE *out, const sl_part *part) {
  for (int r = 0; r < part->nranges; r++)
    fprintf(out, "%s%lld:%lld", r ? "+" : "", (long long)part->begin[r],
            (long long)(part->begin[r] + part->count[r]));
  if (!part->nranges) fputs("0:0", out);
}

static void print_part(FILE *out, const sl_type *of, const sl_part *part) {
  if (part->axis == SL_PART_ALL) return;
  fputs(part->axis == SL_PART_FLAT ? "[flat " : "[", out);
  if (part->axis == SL_PART_FLAT) print_ranges(out, part);
  for (int d = 0; d < of->ndim && part->axis >= 0; d++) {
    if (d) fputc(',', out);
    if (d == part->axis) print_ranges(out, part);
    else fputc(':', out);
  }
  fputc(']', out);
}

char *sli_part_format(const char *name, const sl_shard *shard) {
  char *text = NULL;
  size_t bytes;
  FILE *out = sli_memory_stream(&text, &bytes);
  fprintf(out, "%s[", name);
  for (int d = 0; d < shard->whole.ndim; d++)
    fprintf(out, "%s%lld", d ? "," : "", (long long)shard->whole.dim[d]);
  fputc(']', out);
  sl_type type = shard->whole;
  for (int p = 0; p < SL_SHARD_PARTS; p++) {
    print_part(out, &type, &shard->parts[p]);
    type = sl_part_type(&type, &shard->parts[p]);
  }
  fclose(out);
  return text;
}

static bool parts_take(const char **at, const char *word) {
  size_t n = strlen(word);
  if (strncmp(*at, word, n)) return false;
  *at += n;
  return true;
}

static bool take_number(const char **at, int64_t *out) {
  *out = 0;
  const char *start = *at;
  for (; isdigit((unsigned char)**at); (*at)++)
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, **at - '0', out))
      return false;
  return *at > start;
}

static bool take_ranges(const char **at, sl_part *part) {
  do {
    int64_t begin, end;
    if (part->nranges == SL_PART_RANGES || !take_number(at, &begin) || !parts_take(at, ":") ||
        !take_number(at, &end) || end < begin)
      return false;
    part->begin[part->nranges] = begin;
    part->count[part->nranges++] = end - begin;
  } while (parts_take(at, "+"));
  return true;
}

/* Parses one slice of a tensor of type `of`. */
static bool take_part(const char **at, const sl_type *of, sl_part *out) {
  *out = (sl_part){.axis = SL_PART_ALL};
  if (parts_take(at, "[flat ")) {
    out->axis = SL_PART_FLAT;
    if (!take_ranges(at, out)) return false;
  } else {
    bool good = parts_take(at, "[");
    for (int d = 0; d < of->ndim && good; d++) {
      if (d) good = parts_take(at, ",");
      if (!good || parts_take(at, ":")) continue;
      good = out->axis == SL_PART_ALL && take_ranges(at, out);
      out->axis = d;
    }
    if (!good || out->axis == SL_PART_ALL) return false;
  }
  return parts_take(at, "]") && !sli_part_check(of, out);
}

bool sli_part_parse(const char *text, const sl_type *whole, sl_shard *out) {
  bool good = parts_take(&text, "[");
  for (int d = 0; d < whole->ndim && good; d++) {
    int64_t dim;
    good = (!d || parts_take(&text, ",")) && take_number(&text, &dim) && dim == whole->dim[d];
  }
  good = good && parts_take(&text, "]") && *text;
  *out = (sl_shard){*whole, SL_ALL_PARTS};
  sl_type type = *whole;
  for (int p = 0; p < SL_SHARD_PARTS && good && *text; p++) {
    good = take_part(&text, &type, &out->parts[p]);
    if (good) type = sl_part_type(&type, &out->parts[p]);
  }
  return good && !*text;
}

/* ---- assembly -------------------------------------------------------------------------- */

/* Marks elements that no part has set; checkpoints hold only finite values. */
static const uint32_t nothing = 0xffffffff;

typedef struct assembly {
  const char *path, *name;
  const sl_type *whole;
  float *out;
  int64_t found; /* elements */
} assembly;

static sl_status put_part(assembly *a, const sli_safetensors *file, const sli_stored_tensor *t,
                          const sl_shard *shard) {
  sl_type type = sl_shard_type(shard);
  sl_status status = sli_stored_check(a->path, t->name, &type, t);
  if (status) return status;
  float *values;
  SLI_TRY(SLI_ALLOCATE(values, t->elements, t->name));
  status = sli_safetensors_read(file, t, values);
  if (!status) sl_shard_put(shard, values, a->out);
  free(values);
  a->found += (int64_t)t->elements;
  return status;
}

/* Adds all parts in one file. Their names begin with the tensor's name and "["; names of other
 * tensors may begin in the same way. */
static sl_status put_parts_of(assembly *a, const sli_safetensors *file, const char *prefix) {
  sl_status status = SL_OK;
  int n = sli_safetensors_count(file);
  for (int i = sli_safetensors_from(file, prefix); i < n && !status; i++) {
    const sli_stored_tensor *t = sli_safetensors_at(file, i);
    sl_shard shard;
    if (strncmp(t->name, prefix, strlen(prefix))) break;
    if (sli_part_parse(t->name + strlen(a->name), a->whole, &shard))
      status = put_part(a, file, t, &shard);
  }
  return status;
}

static bool is_missing(const assembly *a, int64_t i) {
  return !memcmp(&a->out[i], &nothing, sizeof nothing);
}

static sl_status check_complete(const assembly *a) {
  int64_t n = sl_type_elements(a->whole), first = 0;
  char wanted[SL_TYPE_TEXT];
  sl_type_format(wanted, a->whole);
  if (!a->found && n) return sli_stored_check(a->path, a->name, a->whole, NULL);
  while (first < n && !is_missing(a, first)) first++;
  int64_t end = first;
  while (end < n && is_missing(a, end)) end++;
  if (first < n)
    return sl_fail(SL_E_INPUT, "%s has only parts of tensor %s, %s: %s[flat %lld:%lld] is missing",
                   a->path, a->name, wanted, a->name, (long long)first, (long long)end);
  if (a->found > n)
    return sl_fail(SL_E_INPUT, "%s: parts of tensor %s, %s, overlap", a->path, a->name, wanted);
  return SL_OK;
}

sl_status sli_parts_assemble(const sli_checkpoint *c, const char *name, const sl_type *whole,
                             float *out) {
  assembly a = {sli_checkpoint_path(c), name, whole, out, 0};
  const sli_safetensors *file;
  const sli_stored_tensor *t = sli_checkpoint_tensor(c, name, &file);
  if (t) {
    sl_status status = sli_stored_check(a.path, name, whole, t);
    return status ? status : sli_safetensors_read(file, t, out);
  }
  memset(out, 0xff, sl_type_bytes(whole));
  char *prefix = sli_format("%s[", name);
  sl_status status = SL_OK;
  for (int i = 0; i < sli_checkpoint_shards(c) && !status; i++)
    status = put_parts_of(&a, sli_checkpoint_shard(c, i), prefix);
  free(prefix);
  return status ? status : check_complete(&a);
}

bool sli_all_finite(const void *values, int64_t count) {
  const uint32_t *bits = values, exponent = 0x7f800000; /* all ones: infinite or NaN */
  bool bad = false;
  for (int64_t i = 0; i < count; i++) bad |= (bits[i] & exponent) == exponent;
  return !bad;
}
