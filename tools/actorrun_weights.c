/* Weight files: from names in a file to parameters in a runtime, and back. */
#include "tools/actorrun.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/safetensors.h"

/* The file's tensor for a parameter. A file of the bare network, without its
 * head, leaves out the first part of the names: "wte.weight" for
 * "transformer.wte.weight". */
static const sli_stored_tensor *find(const sli_safetensors *file, const char *name) {
  const sli_stored_tensor *t = sli_safetensors_find(file, name);
  const char *dot = strchr(name, '.');
  return t || !dot ? t : sli_safetensors_find(file, dot + 1);
}

bool stored_as(const sli_stored_tensor *t, const sl_type *type) {
  bool same = t->ndim == type->ndim;
  for (int i = 0; same && i < t->ndim; i++) same = t->dim[i] == type->dim[i];
  return same;
}

static sl_status check(const char *path, const sl_param_info *param, const sli_stored_tensor *t) {
  char wanted[SL_TYPE_TEXT], found[256];
  sl_type_format(wanted, &param->type);
  if (!t)
    return sl_fail(SL_E_INPUT, "%s has no tensor %s, which the model needs as %s", path,
                   param->name, wanted);
  if (!stored_as(t, &param->type))
    return sl_fail(SL_E_SHAPE, "%s: tensor %s is %s, but the model needs %s", path, t->name,
                   sli_stored_format(found, t), wanted);
  return SL_OK;
}

/* Tensors nobody asked for are no error (files hold masks and tied copies), but
 * may mean that the model is smaller than the file's. */
static void mention_unused(const char *path, const sli_safetensors *file, const bool *used) {
  int count = 0, first = 0;
  for (int i = sli_safetensors_count(file) - 1; i >= 0; i--)
    if (!used[i]) count++, first = i;
  if (count)
    sli_log("note: the model has no use for %d of the %d tensors of %s (%s%s)", count,
            sli_safetensors_count(file), path, sli_safetensors_at(file, first)->name,
            count > 1 ? ", ..." : "");
}

sl_status weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt) {
  sli_safetensors *file;
  sl_status status = sli_safetensors_open(path, &file);
  if (status) return status;
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  bool *used = sli_calloc((size_t)sli_safetensors_count(file), sizeof *used);
  for (int i = 0; i < n && !status; i++) {
    const sli_stored_tensor *t = find(file, params[i].name);
    status = check(path, &params[i], t);
    float *data = sl_param_data(lowered, rt, i);
    if (!status && data) status = sli_safetensors_read(file, t, data);
    if (t) used[t - sli_safetensors_at(file, 0)] = true;
  }
  if (!status) mention_unused(path, file, used);
  free(used);
  sli_safetensors_close(file);
  return status;
}

/* Every process writes its own into one file, which appears when all have. */
static sl_status save_together(const char *path, const sli_tensor_data *tensors, int n,
                               processes *others) {
  char *parts = sli_format("%s.parts", path);
  bool first = processes_self(others) == 0;
  sl_status status = first ? sli_safetensors_begin_parts(parts, tensors, n) : SL_OK;
  if (!status) status = processes_meet(others, "save", NULL, 0, NULL);
  if (!status) status = sli_safetensors_write_part(parts, tensors, n);
  if (!status) status = processes_meet(others, "saved", NULL, 0, NULL);
  if (!status && first) status = sli_safetensors_end_parts(parts, path);
  if (status && first) unlink(parts);
  free(parts);
  return status;
}

sl_status weights_save(const char *path, const sl_lowered *lowered, sl_runtime *rt,
                       processes *others) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  sli_tensor_data *tensors = sli_calloc((size_t)n, sizeof *tensors);
  for (int i = 0; i < n; i++)
    tensors[i] = (sli_tensor_data){.name = params[i].name, .ndim = params[i].type.ndim,
                                   .dim = params[i].type.dim,
                                   .data = sl_param_data(lowered, rt, i)};
  sl_status status = others ? save_together(path, tensors, n, others)
                            : sli_safetensors_write(path, tensors, n);
  free(tensors);
  return status;
}

void weights_copy(const sl_lowered *from, sl_runtime *from_rt, const sl_lowered *to,
                  sl_runtime *to_rt) {
  const sl_param_info *a, *b;
  int na = sl_lowered_params(from, &a), nb = sl_lowered_params(to, &b);
  for (int j = 0; j < nb; j++) {
    int i = 0;
    while (i < na && strcmp(a[i].name, b[j].name)) i++;
    SLI_CHECK(i < na && sl_type_equal(&a[i].type, &b[j].type), "parameter %s is in one model only",
              b[j].name);
    memcpy(sl_param_data(to, to_rt, j), sl_param_data(from, from_rt, i),
           sl_type_bytes(&b[j].type));
  }
}
