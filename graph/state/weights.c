/* SPDX-License-Identifier: Apache-2.0 */
/* Weight files: maps names in a file to parameters in a runtime, and back. A parameter with a star
 * in its name is stored as one tensor per index of dim 0, with the index in place of the star. A
 * parameter whose name ends with a prime is stored with its last two dims transposed, or
 * untransposed in MXFP4 blocks. A file with a tensor of that very name, star or prime included,
 * holds the whole parameter as it is. */
#include <sluice/state.h>

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/job/job.h"
#include "io/shards/shards.h"
#include "ops/layout.h"
#include "ops/storage.h"
#include "graph/state/adapter.h"
#include "graph/state/parts.h"
#include "graph/state/scaled.h"
#include "graph/state/state.h"
#include "graph/state/stored_planes.h"
#include "graph/state/weights.h"

/* Finds a tensor by another name: in a model that is part of one with images, names begin
 * otherwise, and transformers names all halves of Kimi-Linear after the mixtures among them. */
static const sli_stored_tensor *find_renamed(const sli_shards *from, const char *name, int *file) {
  static const char *const parts[][2] = {{"model.", "model.language_model."},
                                         {"model.", "language_model.model."},
                                         {"lm_head.", "language_model.lm_head."},
                                         {".mlp.", ".block_sparse_moe."}};
  const sli_stored_tensor *t = NULL;
  for (size_t i = 0; i < SLI_COUNT(parts) && !t; i++) {
    const char *part = parts[i][0], *at = strstr(name, part);
    if (!at || (at > name && *part != '.')) continue;
    char *other = sli_format("%.*s%s%s", (int)(at - name), name, parts[i][1], at + strlen(part));
    t = sli_shards_find(from, other, file);
    free(other);
  }
  return t;
}

/* Finds the stored tensor of a parameter, and its file. Files saved from the model without its head
 * omit the first part of the names: "wte.weight" for "transformer.wte.weight". */
static const sli_stored_tensor *weights_find(const sli_shards *from, const char *name, int *file) {
  const sli_stored_tensor *t = sli_shards_find(from, name, file);
  const char *dot = strchr(name, '.');
  if (!t && dot) t = sli_shards_find(from, dot + 1, file);
  return t ? t : find_renamed(from, name, file);
}

/* Returns the name of a parameter in the model's files; frozen copies use the model's names. */
static const char *name_in_files(const sl_param_info *p) { return p->frozen ? p->frozen : p->name; }

/* Returns the number of tensors that store a parameter. */
static int members_of(const sl_param_info *p) {
  return strchr(p->name, '*') ? (int)p->type.dim[0] : 1;
}

static sl_type member_type(const sl_param_info *p) {
  if (!strchr(p->name, '*')) return p->type;
  return sl_type_make(p->type.dtype, p->type.ndim - 1, p->type.dim + 1);
}

/* True for a parameter stored with its last two dims transposed. */
static bool is_turned(const char *name) {
  size_t n = strlen(name);
  return n && name[n - 1] == '\'';
}

static sl_type turned_type(sl_type type) {
  int64_t last = type.dim[type.ndim - 1];
  type.dim[type.ndim - 1] = type.dim[type.ndim - 2];
  type.dim[type.ndim - 2] = last;
  return type;
}

/* Transposes the last two dims of `from`, a tensor of type `type`. */
static void turn(const sl_type *type, const float *from, float *to) {
  int64_t rows = type->dim[type->ndim - 2], columns = type->dim[type->ndim - 1];
  for (int64_t m = 0; m < sl_type_elements(type); m += rows * columns)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) to[m + j * rows + i] = from[m + i * columns + j];
}

/* Returns the name of a member; the caller frees it. */
static char *member_name(const char *name, int member) {
  const char *star = strchr(name, '*');
  if (!star) return sli_format("%.*s", (int)strlen(name) - is_turned(name), name);
  return sli_format("%.*s%d%s", (int)(star - name), name, member, star + 1);
}

/* Flags of used tensors over all files; the flags of files are concatenated. */
typedef struct found {
  bool *flags;
  int *begins; /* [files] */
  int count;
} found;

static found found_create(const sli_shards *from) {
  found f = {.begins = sli_calloc((size_t)sli_shards_count(from), sizeof(int))};
  for (int i = 0; i < sli_shards_count(from); i++) {
    f.begins[i] = f.count;
    f.count += sli_shards_tensors(from, i, &(const sli_stored_tensor *){NULL});
  }
  f.flags = sli_calloc((size_t)f.count, sizeof *f.flags);
  return f;
}

static void found_fini(found *f) {
  free(f->flags);
  free(f->begins);
}

static const char *name_of(const sli_shards *from, const found *f, int tensor) {
  int file = sli_shards_count(from) - 1;
  const sli_stored_tensor *tensors = NULL;
  while (f->begins[file] > tensor) file--;
  sli_shards_tensors(from, file, &tensors);
  return tensors[tensor - f->begins[file]].name;
}

/* Logs unused tensors. They are not an error (files hold masks and tied copies), but may mean that
 * the model is smaller than that in the file. */
static void mention_unused(const char *path, const sli_shards *from, const found *f) {
  int count = 0, first = 0;
  for (int i = f->count - 1; i >= 0; i--)
    if (!f->flags[i]) count++, first = i;
  if (count)
    sli_log("note: the model does not use %d of the %d tensors of %s (%s%s)", count, f->count, path,
            name_of(from, f, first), count > 1 ? ", ..." : "");
}

/* ---- unused tensors that matter -------------------------------------------------------------- */

/* True for masks, tables derived from the config, copies of the embedding, heads for other tasks,
 * multi-token prediction heads, and models of images and sounds beside the language model. */
static bool is_harmless(const char *name) {
  static const char *const known[] = {"*.attn.bias",
                                      "*.attn.masked_bias",
                                      "*rotary_emb.inv_freq",
                                      "*rotary_emb.*_cached",
                                      "*position_ids",
                                      "lm_head.weight",
                                      "rope_freqs.weight",
                                      "rope_factors_*.weight",
                                      "blk.*.nextn.*",
                                      "blk.*.attn_rot_embd.weight",
                                      "score.weight",
                                      "v_head.*",
                                      "*multiple_choice_head.*",
                                      "mtp.*",
                                      "model.layers.*.embed_tokens.weight",
                                      "model.layers.*.shared_head.head.weight",
                                      "language_model.lm_head.weight",
                                      "*visual.*",
                                      "*vision_tower.*",
                                      "*audio_tower.*",
                                      "*.embed_vision.*",
                                      "*.embed_audio.*",
                                      "*multi_modal_projector.*"};
  for (size_t i = 0; i < SLI_COUNT(known); i++)
    if (!fnmatch(known[i], name, 0)) return true;
  return false;
}

/* Returns the length of the layer prefix, such as "model.layers.3.", or 0 if the tensor is not in a
 * layer. */
static size_t layer_of(const char *name) {
  for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
    size_t digits = strspn(at + 1, "0123456789");
    if (digits && at[1 + digits] == '.') return (size_t)(at - name) + digits + 2;
  }
  return 0;
}

/* True if a used tensor's name begins with the first `bytes` characters of `name`; `last`: and only
 * one word follows. */
static bool is_used(const sli_shards *from, const found *f, const char *name, size_t bytes,
                    bool last) {
  for (int i = 0; i < f->count; i++) {
    const char *other = name_of(from, f, i);
    if (f->flags[i] && !strncmp(other, name, bytes) && !(last && strchr(other + bytes, '.')))
      return true;
  }
  return false;
}

/* True for keys and values of a layer that has queries, but takes its keys from another layer. */
static bool is_of_shared(const sli_shards *from, const found *f, const char *name) {
  static const char *const known[] = {"self_attn.k_proj.weight", "self_attn.v_proj.weight",
                                      "self_attn.k_norm.weight"};
  char part[2][96];
  size_t layer = layer_of(name), i = 0;
  while (i < SLI_COUNT(known) && strcmp(known[i], name + layer)) i++;
  if (i == SLI_COUNT(known) || !layer) return false;
  for (int k = 0; k < 2; k++)
    snprintf(part[k], sizeof part[k], "%.*sself_attn.%c_proj.", (int)layer, name, "qk"[k]);
  return is_used(from, f, part[0], strlen(part[0]), false) &&
         !is_used(from, f, part[1], strlen(part[1]), false);
}

/* True if the model should have used a tensor: a bias next to a used weight or, if the file holds
 * only the model, any other tensor of a layer. */
static bool is_missed(const sli_shards *from, const found *f, const char *name, bool whole) {
  const char *dot = strrchr(name, '.');
  size_t layer = layer_of(name);
  if (sli_scaled_beside(name)) return false;
  if (dot && is_used(from, f, name, (size_t)(dot + 1 - name), true)) return true;
  if (is_harmless(name) || is_of_shared(from, f, name)) return false;
  return whole && (!layer || !strncmp(name, "blk.", 4) || is_used(from, f, name, layer, false));
}

static sl_status check_unused(const char *path, const sli_shards *from, const found *f,
                              bool whole) {
  for (int i = 0; i < f->count; i++)
    if (!f->flags[i] && is_missed(from, f, name_of(from, f, i), whole))
      return sl_fail(SL_E_INPUT,
                     "%s: tensor %s would change the results, but the model has no place for it",
                     path, name_of(from, f, i));
  mention_unused(path, from, f);
  return SL_OK;
}

/* Buffer for the values of the current parameter, if they are not contiguous in memory. */
typedef struct scratch {
  float *values;
  size_t bytes;
} scratch;

static sl_status scratch_take(scratch *s, const char *name, const sl_type *type, float **out) {
  size_t bytes = sl_type_bytes(type);
  if (bytes > s->bytes) {
    free(s->values);
    s->bytes = 0;
    SLI_TRY(SLI_ALLOCATE(s->values, (size_t)sl_type_elements(type), name));
    s->bytes = bytes;
  }
  *out = s->values;
  return SL_OK;
}

/* Part of the model to load: all but the teacher, the teacher, or parameters that stay in their
 * storage format. */
typedef enum part_of_model { MODEL, TEACHER, STORED } part_of_model;

typedef struct loading {
  const char *path;
  const sli_shards *from;
  const sl_lowered *lowered;
  sl_runtime *rt;
  found found;
  scratch room;
  sli_weights_lacks lacks;
  part_of_model what;
  int scaled;         /* matrices of small numbers with scales */
  const char *format; /* of the first of them */
} loading;

/* Copies the pattern at `at`, up to a comma; returns the start of the next one, or NULL. */
static const char *next_pattern(const char *at, char **out) {
  size_t n = strcspn(at, ",");
  *out = sli_format("%.*s", (int)n, at);
  return at[n] ? at + n + 1 : NULL;
}

static bool is_fresh(const char *patterns, const char *name) {
  bool match = false;
  for (char *pattern; patterns && !match; free(pattern)) {
    patterns = next_pattern(patterns, &pattern);
    match = !fnmatch(pattern, name, 0);
  }
  return match;
}

static sl_status check_fresh(const char *patterns, int n, const sl_param_info *params) {
  sl_status status = SL_OK;
  for (char *pattern; patterns && !status; free(pattern)) {
    patterns = next_pattern(patterns, &pattern);
    bool match = false;
    for (int i = 0; i < n && !match; i++) match = !fnmatch(pattern, name_in_files(&params[i]), 0);
    if (!match)
      status = sl_fail(SL_E_USAGE, "%s, which may be absent from the weights, matches no parameter",
                       pattern);
  }
  return status;
}

/* Returns the name of the dense tensor from which an expert's tensor starts, or NULL if `name` is
 * not an expert's; the caller frees it. "model.layers.3.mlp.experts.5.up_proj.weight" starts from
 * "model.layers.3.mlp.up_proj.weight". */
static char *dense_name(const char *name) {
  static const char *const experts[] = {".experts.", ".shared_expert."};
  for (size_t i = 0; i < SLI_COUNT(experts); i++) {
    const char *at = strstr(name, experts[i]);
    if (!at) continue;
    const char *rest = at + strlen(experts[i]);
    if (!i) rest += strspn(rest, "0123456789");
    return sli_format("%.*s.%s", (int)(at - name), name, rest + (*rest == '.'));
  }
  return NULL;
}

/* Finds the dense tensor from which an expert starts, if upcycling is requested. */
static const sli_stored_tensor *find_dense(const loading *l, const char *name, int *file) {
  char *dense = l->lacks.upcycled > 0 ? dense_name(name) : NULL;
  const sli_stored_tensor *t = dense ? weights_find(l->from, dense, file) : NULL;
  free(dense);
  return t;
}

static void scale(float *values, const sl_type *type, float by) {
  for (int64_t i = 0; i < sl_type_elements(type); i++) values[i] *= by;
}

static void mark_found(loading *l, int file, const sli_stored_tensor *t) {
  const sli_stored_tensor *first = t;
  sli_shards_tensors(l->from, file, &first);
  l->found.flags[l->found.begins[file] + (t - first)] = true;
}

/* Finds a parameter's matrix that is stored as small numbers with scales. */
static sli_scaled find_scaled(const sli_shards *from, const char *name) {
  int file = 0;
  const sli_stored_tensor *t = weights_find(from, name, &file);
  char *packed = t ? NULL : sli_format("%s_packed", name);
  if (packed) t = weights_find(from, packed, &file);
  free(packed);
  return sli_scaled_find(from, t, file);
}

static void mark_scaled(loading *l, const sli_scaled *s) {
  const sli_stored_tensor *const all[] = {s->numbers, s->scales, s->second};
  for (int i = 0; i < 3; i++)
    if (all[i]) mark_found(l, s->file[i], all[i]);
}

/* Loads small numbers with scales. values NULL: another process loads them. */
static sl_status load_scaled(loading *l, const sli_scaled *s, const sl_type *type, float *values) {
  SLI_TRY(sli_scaled_check(l->from, s, type));
  mark_scaled(l, s);
  if (!l->scaled++) l->format = sli_scaled_format(s, type);
  return values ? sli_scaled_read(l->from, s, type, values) : SL_OK;
}

/* Reads a stored tensor. values NULL: another process loads it. */
static sl_status read_stored(loading *l, int file, const sli_stored_tensor *t, const sl_type *type,
                             float *values) {
  sli_scaled scaled = sli_scaled_find(l->from, t, file);
  if (scaled.numbers) return load_scaled(l, &scaled, type, values);
  return values ? sli_shards_read(l->from, file, t, values) : SL_OK;
}

/* Loads a matrix that the file has in planes. */
static sl_status load_unpacked(loading *l, const sli_stored_planes *planes, const sl_type *type,
                               float *values) {
  mark_found(l, planes->file, planes->tensor);
  return values ? sli_stored_planes_values(l->from, planes, type, values)
                : sli_stored_planes_check(l->from, planes, type);
}

/* Loads one tensor of a parameter, which must exist in the file. values NULL: another process loads
 * it. */
static sl_status load_member(loading *l, const char *name, const sl_type *type, float *values) {
  int file;
  const sli_stored_tensor *t = weights_find(l->from, name, &file);
  const sli_stored_planes planes = sli_stored_planes_find(l->from, name);
  const sli_scaled scaled = find_scaled(l->from, name);
  if (!t && planes.tensor) return load_unpacked(l, &planes, type, values);
  if (scaled.numbers) return load_scaled(l, &scaled, type, values);
  bool dense = !t && (t = find_dense(l, name, &file));
  sl_status status = sli_stored_check(t ? sli_shards_path(l->from, file) : l->path, name, type, t);
  if (status) return status;
  mark_found(l, file, t);
  status = read_stored(l, file, t, type, values);
  if (values && !status && dense) scale(values, type, l->lacks.upcycled);
  return status;
}

/* Loads a parameter from MXFP4 blocks. */
static sl_status load_packed(loading *l, const sli_packed *packed, const sl_type *type,
                             float *values) {
  mark_found(l, packed->file[0], packed->blocks);
  mark_found(l, packed->file[1], packed->scales);
  return values ? sli_shards_read_packed(l->from, packed, type->dim, values) : SL_OK;
}

/* Loads a parameter that files store transposed, or in MXFP4 blocks. */
static sl_status load_turned(loading *l, const char *name, const sl_type *type, float *values) {
  sl_type stored = turned_type(*type);
  sli_packed packed = sli_shards_packed(l->from, name);
  if (packed.blocks && type->ndim == 3) return load_packed(l, &packed, type, values);
  float *turned = NULL;
  if (values) SLI_TRY(SLI_ALLOCATE(turned, (size_t)sl_type_elements(type), name));
  sl_status status = load_member(l, name, &stored, turned);
  if (!status && values) turn(&stored, turned, values);
  free(turned);
  return status;
}

static bool is_of_teacher(const sl_param_info *p) {
  return p->frozen && !strncmp(p->name, "teacher.", strlen("teacher."));
}

/* True for an adapter or a fresh parameter that the file lacks. */
static bool is_left_out(const loading *l, const sl_param_info *p) {
  const char *name = name_in_files(p);
  if (!sli_is_adapter(p) && !is_fresh(l->lacks.fresh, name)) return false;
  char *first = member_name(name, 0);
  bool found = weights_find(l->from, name, &(int){0}) || weights_find(l->from, first, &(int){0});
  free(first);
  return !found;
}

/* True for a parameter that keeps the file's storage format. */
static bool stays(const loading *l, const sl_param_info *p) {
  if (p->storage != SL_STORAGE_BF16 && p->storage != SL_STORAGE_F16)
    return sli_storage_blocks(p->storage);
  const sli_stored_tensor *t = weights_find(l->from, name_in_files(p), &(int){0});
  return t && sli_storage_named(t->dtype) == p->storage;
}

/* Loads a parameter whose matrices stay small numbers with scales. */
static sl_status load_small(loading *l, int index, const sl_param_info *p) {
  bool whole = find_scaled(l->from, name_in_files(p)).numbers,
       here = sl_param_here(l->lowered, l->rt, index);
  sl_type type = whole ? p->type : member_type(p);
  int members = whole ? 1 : members_of(p);
  size_t bytes = (size_t)(sl_type_elements(&type) / sli_storage_block(p->storage) *
                          sli_storage_block_bytes(p->storage));
  char *blocks = NULL;
  sl_status status = here ? SLI_ALLOCATE(blocks, (size_t)members * bytes, p->name) : SL_OK;
  for (int m = 0; m < members && !status; m++) {
    char *name = member_name(name_in_files(p), m);
    const sli_scaled s = find_scaled(l->from, name);
    if (sli_scaled_storage(&s) != p->storage)
      status =
          sl_fail(SL_E_INPUT, "%s: tensor %s is not in the format it had when the plan was made",
                  l->path, name);
    if (!status) status = sli_scaled_check(l->from, &s, &type);
    if (!status) mark_scaled(l, &s);
    if (!status && here) status = sli_scaled_blocks(l->from, &s, &type, blocks + (size_t)m * bytes);
    free(name);
  }
  const sli_file_blocks from = {sli_storage_name(p->storage),
                                (size_t)sli_storage_block_bytes(p->storage), blocks};
  if (!status && here) status = sli_param_set_blocks(l->lowered, l->rt, index, &from);
  free(blocks);
  return status;
}

/* Loads a parameter that stays in MXFP4. */
static sl_status load_packed_blocks(loading *l, int index, const sl_param_info *p,
                                    const sli_packed *packed) {
  bool here = sl_param_here(l->lowered, l->rt, index);
  SLI_TRY(load_packed(l, packed, &p->type, NULL));
  if (!here) return SL_OK;
  unsigned char *blocks = sli_calloc(packed->scales->elements, SLI_MXFP4_BYTES);
  const sli_file_blocks from = {"MXFP4", SLI_MXFP4_BYTES, blocks};
  sl_status status = sli_shards_read_packed_blocks(l->from, packed, p->type.dim, blocks);
  if (!status) status = sli_param_set_blocks(l->lowered, l->rt, index, &from);
  free(blocks);
  return status;
}

static sli_packed packed_of(const sli_shards *from, const char *param) {
  char *name = member_name(param, 0);
  sli_packed packed = is_turned(param) ? sli_shards_packed(from, name) : (sli_packed){0};
  free(name);
  return packed;
}

/* Loads a parameter that keeps the file's format. */
static sl_status load_blocks(loading *l, int index, const sl_param_info *p) {
  int file;
  const sli_packed packed = packed_of(l->from, name_in_files(p));
  if (packed.blocks) return load_packed_blocks(l, index, p, &packed);
  if (sli_storage_small(p->storage)) return load_small(l, index, p);
  sl_status status = load_member(l, name_in_files(p), &p->type, NULL);
  if (status || !sl_param_here(l->lowered, l->rt, index)) return status;
  const sli_stored_tensor *t = weights_find(l->from, name_in_files(p), &file);
  if (!sli_storage_takes(p->storage, t->dtype))
    return sl_fail(SL_E_INPUT, "%s: tensor %s is %s, not the format it had when the plan was made",
                   l->path, t->name, t->dtype);
  void *blocks;
  SLI_TRY(SLI_ALLOCATE(blocks, t->bytes, t->name));
  status = sli_shards_blocks(l->from, file, t, blocks);
  size_t count = t->elements / (size_t)sli_storage_block(p->storage);
  const sli_file_blocks from = {t->dtype, t->bytes / count, blocks};
  if (!status) status = sli_param_set_blocks(l->lowered, l->rt, index, &from);
  free(blocks);
  return status;
}

/* Returns the storage format of a tensor, or of a matrix of small numbers with scales. */
static sl_storage storage_in_file(const sli_shards *from, const char *name, bool *there) {
  const sli_stored_tensor *t = weights_find(from, name, &(int){0});
  const sli_scaled scaled = find_scaled(from, name);
  *there = t || scaled.numbers;
  return scaled.numbers ? sli_scaled_storage(&scaled)
         : t            ? sli_storage_named(t->dtype)
                        : SL_STORAGE_F32;
}

sl_storage sli_weights_storage(const sli_shards *from, const char *param, sl_storage packed) {
  sl_storage storage = SL_STORAGE_F32;
  bool star = strchr(param, '*'), more = true, same = true;
  sl_storage whole = storage_in_file(from, param, &more);
  if (more) return is_turned(param) && sli_storage_small(whole) ? SL_STORAGE_F32 : whole;
  if (packed_of(from, param).blocks) return packed;
  more = true;
  for (int m = 0; more && same; m++) {
    char *name = member_name(param, m);
    bool there;
    sl_storage of = storage_in_file(from, name, &there);
    if (there && !m) storage = of;
    same = !there || of == storage;
    more = star && there;
    free(name);
  }
  bool turned = is_turned(param) && sli_storage_small(storage);
  return same && !turned ? storage : SL_STORAGE_F32;
}

/* ---- experts in one tensor ------------------------------------------------------------------- */

/* A parameter's experts as rows of a tensor [experts, parts * out, in] that holds all of them. */
typedef struct fused {
  const sli_stored_tensor *tensor;
  int file, part, parts;
} fused;

/* Finds the tensor that holds all experts of a parameter whose name has a star. Gate and up may
 * share one. */
static fused find_fused(const loading *l, const char *name) {
  static const struct {
    const char *member, *all;
    int part, parts;
  } kinds[] = {{".experts.*.gate_proj.weight", ".experts.gate_up_proj", 0, 2},
               {".experts.*.up_proj.weight", ".experts.gate_up_proj", 1, 2},
               {".experts.*.up_proj.weight", ".experts.up_proj", 0, 1},
               {".experts.*.down_proj.weight", ".experts.down_proj", 0, 1}};
  fused f = {0};
  for (size_t i = 0; i < SLI_COUNT(kinds) && !f.tensor; i++) {
    const char *at = strstr(name, kinds[i].member);
    if (!at) continue;
    char *all = sli_format("%.*s%s", (int)(at - name), name, kinds[i].all);
    f = (fused){.part = kinds[i].part, .parts = kinds[i].parts};
    f.tensor = weights_find(l->from, all, &f.file);
    free(all);
  }
  return f;
}

/* Loads all experts of a parameter [experts, out, in]. */
static sl_status load_fused(loading *l, const fused *f, const sl_type *type, float *values) {
  sl_type whole = *type;
  whole.dim[1] *= f->parts;
  SLI_TRY(sli_stored_check(sli_shards_path(l->from, f->file), f->tensor->name, &whole, f->tensor));
  mark_found(l, f->file, f->tensor);
  if (!values) return read_stored(l, f->file, f->tensor, &whole, NULL);
  float *all;
  SLI_TRY(SLI_ALLOCATE(all, (size_t)sl_type_elements(&whole), f->tensor->name));
  sl_status status = read_stored(l, f->file, f->tensor, &whole, all);
  size_t each = (size_t)(type->dim[1] * type->dim[2]);
  for (int64_t e = 0; e < type->dim[0] && !status; e++)
    memcpy(values + (size_t)e * each, all + ((size_t)e * (size_t)f->parts + (size_t)f->part) * each,
           each * sizeof *all);
  free(all);
  return status;
}

/* Loads the experts of a parameter from one tensor, if the file has no tensor per expert. *done
 * says whether it did. */
static sl_status try_fused(loading *l, const char *name, const sl_type *type, float *values,
                           bool *done) {
  char *first = member_name(name, 0);
  bool apart = !strchr(name, '*') || type->ndim != 3 || weights_find(l->from, first, &(int){0});
  free(first);
  fused f = apart ? (fused){0} : find_fused(l, name);
  *done = f.tensor;
  return *done ? load_fused(l, &f, type, values) : SL_OK;
}

/* Returns whether the file has the planes in which a parameter's experts are stored. */
static bool has_planes(const loading *l, const sl_param_info *p) {
  if (!sli_storage_in_planes(p->storage)) return false;
  char *name = member_name(name_in_files(p), 0);
  bool has = sli_stored_planes_find(l->from, name).tensor;
  free(name);
  return has;
}

/* Loads the planes of experts [experts, out, in] as they are in the file. */
static sl_status load_planes(loading *l, int index, const sl_param_info *p) {
  int base = sli_storage_base(p->storage), width = sli_storage_width(p->storage);
  const sl_type matrix = member_type(p);
  sl_type each = sli_storage_type(p->storage, &p->type);
  size_t bytes = sl_type_bytes(&each) / (size_t)p->type.dim[0];
  char *all;
  SLI_TRY(SLI_ALLOCATE(all, sl_type_bytes(&each), p->name));
  sl_status status = SL_OK;
  for (int m = 0; m < members_of(p) && !status; m++) {
    char *name = member_name(name_in_files(p), m);
    const sli_stored_planes planes = sli_stored_planes_find(l->from, name);
    if (!planes.tensor)
      status = sl_fail(SL_E_INPUT, "%s: no planes of %s, but of other experts", l->path, name);
    else {
      mark_found(l, planes.file, planes.tensor);
      status =
          sli_stored_planes_read(l->from, &planes, &matrix, base, width, all + (size_t)m * bytes);
    }
    free(name);
  }
  if (!status) status = sli_param_set_stored(l->lowered, l->rt, index, all);
  free(all);
  return status;
}

/* Loads a parameter from the tensor of its name. values NULL: another process loads it. */
static sl_status load_whole(loading *l, int index, const sl_param_info *p, float *values) {
  sl_status status = load_member(l, name_in_files(p), &p->type, values);
  return status || !values ? status : sl_param_set(l->lowered, l->rt, index, values);
}

static sl_status load_param(loading *l, int index) {
  SLI_TRY(sli_memory_check());
  const sl_param_info *p;
  sl_lowered_params(l->lowered, &p);
  p += index;
  if (is_of_teacher(p) != (l->what == TEACHER) || is_left_out(l, p)) return SL_OK;
  if (l->what == STORED && !p->storage) return SL_OK;
  if (stays(l, p)) return load_blocks(l, index, p);
  if (has_planes(l, p)) return load_planes(l, index, p);
  bool here = sl_param_here(l->lowered, l->rt, index);
  float *values = here ? sl_param_data(l->lowered, l->rt, index) : NULL;
  if (here && !values) SLI_TRY(scratch_take(&l->room, p->name, &p->type, &values));
  sl_type type = member_type(p);
  if (weights_find(l->from, name_in_files(p), &(int){0})) return load_whole(l, index, p, values);
  bool done = false;
  sl_status status = try_fused(l, name_in_files(p), &p->type, values, &done);
  for (int m = 0; m < members_of(p) && !status && !done; m++) {
    char *name = member_name(name_in_files(p), m);
    float *to = here ? values + m * sl_type_elements(&type) : NULL;
    status = (is_turned(name_in_files(p)) ? load_turned : load_member)(l, name, &type, to);
    free(name);
  }
  return status || !here ? status : sl_param_set(l->lowered, l->rt, index, values);
}

sl_status sl_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt) {
  return sli_weights_load(path, lowered, rt, false, NULL);
}

static bool has_bf16(int n, const sl_param_info *params) {
  bool any = false;
  for (int i = 0; i < n; i++) any |= params[i].storage == SL_STORAGE_BF16;
  return any;
}

static sl_status load_all(const char *path, const sl_lowered *lowered, sl_runtime *rt, bool whole,
                          const sli_weights_lacks *lacks, part_of_model what) {
  sli_shards *from;
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  sl_status status = lacks && lacks->fresh ? check_fresh(lacks->fresh, n, params) : SL_OK;
  if (!status) status = sli_shards_open(path, &from);
  if (status) return status;
  loading l = {.path = path,
               .from = from,
               .lowered = lowered,
               .rt = rt,
               .found = found_create(from),
               .lacks = lacks ? *lacks : (sli_weights_lacks){0},
               .what = what};
  for (int i = 0; i < n && !status; i++) status = load_param(&l, i);
  if (!status && what != STORED) status = check_unused(path, from, &l.found, whole);
  if (!status && l.scaled)
    sli_log("note: %d matrices of %s are stored in %s, with scales, and read into %s", l.scaled,
            path, l.format, has_bf16(n, params) ? "bf16" : "fp32");
  if (!status && what != STORED) status = sl_states_init(lowered, rt);
  free(l.room.values);
  found_fini(&l.found);
  sli_shards_close(from);
  return status;
}

sl_status sli_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt, bool whole,
                           const sli_weights_lacks *lacks) {
  return load_all(path, lowered, rt, whole, lacks, MODEL);
}

sl_status sli_weights_load_teacher(const char *path, const sl_lowered *lowered, sl_runtime *rt) {
  return load_all(path, lowered, rt, true, NULL, TEACHER);
}

sl_status sli_weights_load_stored(const char *path, const sl_lowered *lowered, sl_runtime *rt) {
  return load_all(path, lowered, rt, false, NULL, STORED);
}

/* ---- saving -------------------------------------------------------------------------- */

typedef struct saving {
  const char *path;
  const sl_lowered *lowered;
  sl_runtime *rt;
  const sl_param_info *params;
  int n;
  const sli_saved *list; /* [n] */
  sli_tensor_data *tensors;
  scratch room, turned;
  sli_tensor_parts *parts; /* file written jointly by several processes */
  int index;               /* tensor being written */
  const float *values;     /* values of one of its places */
  int held;                /* 1 + index of the parameter whose values are in the buffer */
  bool raw;                /* parameters are written whole, under their own names */
} saving;

static const sl_param_info *param_of(const saving *s, int index) {
  return &s->params[s->list[index].param];
}

/* Returns the offset of a listed tensor's first element in its parameter; sets *count to the number
 * of elements. */
static int64_t begin_of(const saving *s, int index, int64_t *count) {
  const sl_type *type = &param_of(s, index)->type;
  int member = s->list[index].member;
  *count = sl_type_elements(type) / (member ? type->dim[0] : 1);
  return member ? (member - 1) * *count : 0;
}

/* Rejects values that are not finite, as in checkpoints: the file would replace a good one. */
static sl_status check_finite(const saving *s, int index, const float *values, int64_t count) {
  if (sli_all_finite(values, count)) return SL_OK;
  return sl_fail(SL_E_NUMERIC, "tensor %s is not finite: %s is not written", s->list[index].name,
                 s->path);
}

/* Transposes the last two dims of a parameter's values. */
static sl_status turn_values(saving *s, int index, const float *values, const float **out) {
  const sl_param_info *p = param_of(s, index);
  float *turned;
  SLI_TRY(scratch_take(&s->turned, p->name, &p->type, &turned));
  turn(&p->type, values, turned);
  *out = turned;
  return SL_OK;
}

/* Returns a tensor's values for the writer. Tensors of one parameter are requested consecutively,
 * so the values are cached. */
static sl_status gather(void *ctx, int index, const float **out) {
  saving *s = ctx;
  const sli_saved *t = &s->list[index];
  const sl_param_info *p = param_of(s, index);
  float *values;
  SLI_TRY(scratch_take(&s->room, p->name, &p->type, &values));
  bool all = s->held == 1 + t->param;
  sl_status status = all ? SL_OK : sl_param_get(s->lowered, s->rt, t->param, values, &all);
  SLI_CHECK(status || all, "parameter %s is not all here", t->name);
  if (!status && t->merged) status = sli_adapter_merge(s->lowered, s->rt, t->param, values);
  s->held = t->merged ? 0 : 1 + t->param;
  int64_t count;
  *out = values + begin_of(s, index, &count);
  if (!status) status = check_finite(s, index, *out, count);
  return status || s->raw || !is_turned(p->name) ? status : turn_values(s, index, values, out);
}

/* Writes `count` columns of `rows` rows, from element `from` on, of a parameter that the file
 * stores transposed. */
static void write_turned(saving *s, int64_t from, int64_t rows, int64_t count,
                         const float *values) {
  const sl_type *type = &param_of(s, s->index)->type;
  int64_t height = type->dim[type->ndim - 2], width = type->dim[type->ndim - 1];
  int64_t matrix = from / (height * width) * height * width, row = (from - matrix) / width,
          column = from % width;
  float *line = s->turned.values;
  for (int64_t j = 0; j < count; j++) {
    for (int64_t i = 0; i < rows; i++) line[i] = values[i * width + j];
    sli_safetensors_write_part(s->parts, s->index, matrix + (column + j) * height + row, rows,
                               line);
  }
}

/* Writes a range of elements of a transposed parameter, by runs of whole rows where possible. */
static void write_stretch_turned(saving *s, int64_t from, int64_t to, const float *values) {
  const sl_type *type = &param_of(s, s->index)->type;
  int64_t height = type->dim[type->ndim - 2], width = type->dim[type->ndim - 1];
  for (int64_t n; from < to; from += n, values += n) {
    int64_t left = height - from / width % height, rows = SLI_MIN((to - from) / width, left);
    bool whole = from % width == 0 && rows > 0;
    n = whole ? rows * width : SLI_MIN(width - from % width, to - from);
    write_turned(s, from, whole ? rows : 1, whole ? width : n, values);
  }
}

static void write_stretch(void *ctx, int64_t part, int64_t whole, int64_t bytes) {
  saving *s = ctx;
  int64_t each = sizeof(float), count, begin = begin_of(s, s->index, &count);
  int64_t from = SLI_MAX(whole / each, begin), to = SLI_MIN((whole + bytes) / each, begin + count);
  const float *values = s->values + part / each + from - whole / each;
  if (from < to && is_turned(param_of(s, s->index)->name))
    write_stretch_turned(s, from, to, values);
  else if (from < to)
    sli_safetensors_write_part(s->parts, s->index, from - begin, to - from, values);
}

/* Merges the adapter into the values at a place. */
static sl_status merge_place(saving *s, const sl_param_place *place, float *values) {
  const sl_type *type = &param_of(s, s->index)->type;
  if (!place->shard) return sli_adapter_merge(s->lowered, s->rt, s->list[s->index].param, values);
  float *whole;
  SLI_TRY(SLI_ALLOCATE(whole, (size_t)sl_type_elements(type), param_of(s, s->index)->name));
  sl_shard_put(place->shard, values, whole);
  sl_status status = sli_adapter_merge(s->lowered, s->rt, s->list[s->index].param, whole);
  if (!status) sl_shard_take(place->shard, whole, values);
  free(whole);
  return status;
}

static sl_status write_place(saving *s, const sl_param_place *place) {
  sl_type type = sli_param_values(param_of(s, s->index), place);
  float *values;
  SLI_TRY(scratch_take(&s->room, param_of(s, s->index)->name, &type, &values));
  sl_status status = sli_param_read(param_of(s, s->index), place, s->rt, values);
  if (!status && s->list[s->index].merged) status = merge_place(s, place, values);
  s->values = values;
  if (!status) status = check_finite(s, s->index, values, sl_type_elements(&type));
  if (status) return status;
  if (is_turned(param_of(s, s->index)->name))
    SLI_TRY(scratch_take(&s->turned, param_of(s, s->index)->name, &param_of(s, s->index)->type,
                         &(float *){NULL}));
  if (place->shard) sli_shard_walk(place->shard, write_stretch, s);
  else write_stretch(s, 0, 0, (int64_t)sl_type_bytes(&type));
  return SL_OK;
}

/* Writes this process's values into the common file. */
static sl_status write_places(saving *s, const char *path) {
  sl_status status = sli_safetensors_open_parts(path, s->tensors, s->n, &s->parts);
  if (status) return status;
  for (s->index = 0; s->index < s->n; s->index++) {
    const sl_param_info *p = param_of(s, s->index);
    for (int i = 0; i < p->nplaces && !status; i++)
      if (!p->places[i].replica && sl_runtime_newest(s->rt, p->places[i].reg))
        status = write_place(s, &p->places[i]);
  }
  sl_status closed = sli_safetensors_close_parts(s->parts);
  return status ? status : closed;
}

/* Returns a file name that only the processes of the job know: it is derived from the job's key. */
static char *parts_of(const char *path, const sl_job *job) {
  const sli_cluster *c = sli_job_cluster(job);
  uint64_t hash = sli_hash(SLI_HASH_SEED, c->key, strlen(c->key));
  hash = sli_hash(sli_hash_word(hash, (uint64_t)c->incarnation), c->job, strlen(c->job));
  return sli_format("%s.parts.%016" PRIx64, path, hash);
}

/* Saves one file jointly: every process writes its values, and the file appears once all have
 * finished. */
static sl_status save_together(const char *path, saving *s, sl_job *job) {
  char *parts = parts_of(path, job);
  bool first = sl_job_process(job) == 0;
  sl_status status = first ? sli_safetensors_begin_parts(parts, s->tensors, s->n) : SL_OK;
  if (!status) status = sl_job_meet(job, "save", NULL, 0, NULL);
  if (!status) status = write_places(s, parts);
  if (!status) status = sl_job_meet(job, "saved", NULL, 0, NULL);
  if (!status && first) status = sli_safetensors_end_parts(parts, path);
  if (status && first) unlink(parts);
  free(parts);
  return status;
}

sl_status sli_weights_save(const char *path, const sli_saved *list, int n,
                           const sl_lowered *lowered, sl_runtime *rt, sl_job *job) {
  saving s = {.path = path, .lowered = lowered, .rt = rt, .list = list, .n = n};
  sl_status status = SL_OK;
  sl_lowered_params(lowered, &s.params);
  s.tensors = sli_calloc((size_t)n, sizeof *s.tensors);
  sl_type *types = sli_calloc((size_t)n, sizeof *types);
  for (int i = 0; i < n && !status; i++) {
    int64_t begin, count;
    const float *data = list[i].merged ? NULL : sl_param_data(lowered, rt, list[i].param);
    bool member = list[i].member > 0, turned = is_turned(param_of(&s, i)->name);
    types[i] = param_of(&s, i)->type;
    if (turned) types[i] = turned_type(types[i]);
    begin = begin_of(&s, i, &count);
    s.tensors[i] = (sli_tensor_data){.name = list[i].name,
                                     .ndim = types[i].ndim - member,
                                     .dim = types[i].dim + member,
                                     .data = data && !turned ? data + begin : NULL};
    if (data) status = check_finite(&s, i, data + begin, count);
  }
  if (!status)
    status = sl_job_processes(job) > 1 ? save_together(path, &s, job)
                                       : sli_safetensors_write_each(path, s.tensors, n, gather, &s);
  free(s.room.values);
  free(s.turned.values);
  free(s.tensors);
  free(types);
  return status;
}

/* Lists a parameter's tensors, or raw the parameter; omits frozen models, and merges adapters into
 * their weights. */
static int list_param(const sl_param_info *params, int index, bool raw, sli_saved *list) {
  const sl_param_info *p = &params[index];
  int count = sli_is_adapter(p) || p->frozen ? 0 : raw ? 1 : members_of(p);
  for (int m = 0; m < count && list; m++)
    list[m] = (sli_saved){raw ? sli_strdup(p->name) : member_name(p->name, m), index,
                          p->adapter != NULL, strchr(p->name, '*') && !raw ? 1 + m : 0};
  return count;
}

/* Passes the listed parameters to a writer. */
static sl_status write_by(const sli_saved *list, int n, const sl_lowered *lowered, sl_runtime *rt,
                          const char *path, bool raw, sli_weights_writer *write, void *ctx) {
  saving s = {.path = path, .lowered = lowered, .rt = rt, .list = list, .n = n, .raw = raw};
  sl_lowered_params(lowered, &s.params);
  s.tensors = sli_calloc((size_t)n + 1, sizeof *s.tensors);
  for (int i = 0; i < n; i++) {
    const sl_type *type = &param_of(&s, i)->type;
    bool member = list[i].member > 0;
    s.tensors[i] = (sli_tensor_data){
        .name = list[i].name, .ndim = type->ndim - member, .dim = type->dim + member};
  }
  sl_status status = write(ctx, s.tensors, n, gather, &s);
  free(s.room.values);
  free(s.tensors);
  return status;
}

/* Lists all tensors of the model; returns their number. */
static int list_all(const sl_lowered *lowered, bool raw, sli_saved **out) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params), count = 0;
  for (int i = 0; i < n; i++) count += list_param(params, i, raw, NULL);
  *out = sli_calloc((size_t)count + 1, sizeof **out);
  for (int i = 0, at = 0; i < n; i++) at += list_param(params, i, raw, *out + at);
  return count;
}

static void free_list(sli_saved *list, int count) {
  for (int i = 0; i < count; i++) free((char *)list[i].name);
  free(list);
}

sl_status sli_weights_write(const char *path, const sl_lowered *lowered, sl_runtime *rt, bool raw,
                            sli_weights_writer *write, void *ctx) {
  sli_saved *list;
  int count = list_all(lowered, raw, &list);
  sl_status status = write_by(list, count, lowered, rt, path, raw, write, ctx);
  free_list(list, count);
  return status;
}

sl_status sl_weights_save(const char *path, const sl_lowered *lowered, sl_runtime *rt,
                          sl_job *job) {
  sli_saved *list;
  int count = list_all(lowered, false, &list);
  sl_status status = sli_weights_save(path, list, count, lowered, rt, job);
  free_list(list, count);
  return status;
}

/* ---- between runtimes ------------------------------------------------------------------ */

static sl_status copy(const sl_lowered *from, sl_runtime *from_rt, int i, const sl_lowered *to,
                      sl_runtime *to_rt, int j) {
  const sl_param_info *params;
  sl_lowered_params(to, &params);
  float *there = sl_param_data(to, to_rt, j), *values = there;
  if (!there)
    SLI_TRY(SLI_ALLOCATE(values, (size_t)sl_type_elements(&params[j].type), params[j].name));
  bool all = false;
  sl_status status = sl_param_get(from, from_rt, i, values, &all);
  SLI_CHECK(status || all, "parameter %s is not all here", params[j].name);
  if (!status) status = sl_param_set(to, to_rt, j, values);
  if (!there) free(values);
  return status;
}

sl_status sl_weights_copy(const sl_lowered *from, sl_runtime *from_rt, const sl_lowered *to,
                          sl_runtime *to_rt) {
  const sl_param_info *a, *b;
  int na = sl_lowered_params(from, &a), nb = sl_lowered_params(to, &b);
  sl_status status = SL_OK;
  for (int j = 0; j < nb && !status; j++) {
    int i = 0;
    while (i < na && strcmp(a[i].name, b[j].name)) i++;
    SLI_CHECK(i < na && sl_type_equal(&a[i].type, &b[j].type), "parameter %s is in one model only",
              b[j].name);
    status = copy(from, from_rt, i, to, to_rt, j);
  }
  return status;
}
