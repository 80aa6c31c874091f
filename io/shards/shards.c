/* SPDX-License-Identifier: Apache-2.0 */
#include "io/shards/shards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "io/gguf/gguf.h"
#include "io/json.h"

/* One file: safetensors or GGUF. */
typedef struct shard {
  char *path;
  sli_safetensors *file;
  sli_gguf *gguf;
} shard;

struct sli_shards {
  shard *items;
  size_t count, capacity;
};

static sl_status shards_add(sli_shards *s, const char *path) {
  SLI_GROW(s->items, s->count, s->capacity);
  shard *item = &s->items[s->count];
  sl_status status = sli_gguf_is(path) ? sli_gguf_open(path, &item->gguf)
                                       : sli_safetensors_open(path, &item->file);
  if (!status) s->items[s->count++].path = sli_strdup(path);
  return status;
}

static const sli_stored_tensor *find_in(const shard *item, const char *name) {
  return item->gguf ? sli_gguf_find(item->gguf, name) : sli_safetensors_find(item->file, name);
}

/* ---- folders --------------------------------------------------------------------------- */

static int find_path(const sli_shards *s, const char *path) {
  for (size_t i = 0; i < s->count; i++)
    if (!strcmp(s->items[i].path, path)) return (int)i;
  return -1;
}

/* Adds one tensor of the index, and opens its file on first use. */
static sl_status add_entry(sli_shards *s, const char *folder, const sli_json *doc,
                           const cJSON *item) {
  sl_status status = sli_json_is(doc, item, SLI_JSON_TEXT);
  if (status) return status;
  const char *name = item->valuestring, *index = doc->name;
  if (!*name || strchr(name, '/') || !strcmp(name, ".."))
    return sl_fail(SL_E_INPUT, "%s: tensor %s is in \"%.80s\", which is not a file name", index,
                   item->string, name);
  char *path = sli_format("%s/%s", folder, name);
  int at = find_path(s, path);
  status = at < 0 ? shards_add(s, path) : SL_OK;
  if (!status && at < 0) at = (int)s->count - 1;
  if (!status && !find_in(&s->items[at], item->string))
    status = sl_fail(SL_E_INPUT, "%s says that tensor %s is in %s, which has none of that name",
                     index, item->string, name);
  free(path);
  return status;
}

static sl_status add_indexed(sli_shards *s, const char *folder, const char *index) {
  const cJSON *map = NULL;
  sli_json doc;
  sl_status status = sli_json_open(index, &doc);
  if (status) return status;
  status = sli_json_member(&doc, doc.root, "weight_map", SLI_JSON_OBJECT, false, &map);
  if (!status && (!map || !map->child))
    status = sl_fail(SL_E_INPUT, "%s: it has no weight_map", index);
  for (const cJSON *at = map ? map->child : NULL; at && !status; at = at->next)
    status = add_entry(s, folder, &doc, at);
  sli_json_fini(&doc);
  return status;
}

static sl_status add_folder(sli_shards *s, const char *folder) {
  char *whole = sli_format("%s/model.safetensors", folder);
  char *index = sli_format("%s.index.json", whole);
  sl_status status;
  if (!access(whole, F_OK)) status = shards_add(s, whole);
  else if (!access(index, F_OK)) status = add_indexed(s, folder, index);
  else
    status = sl_fail(SL_E_INPUT,
                     "%s has neither model.safetensors nor model.safetensors.index.json", folder);
  free(index);
  free(whole);
  return status;
}

/* ---- files and folders ------------------------------------------------------------------- */

sl_status sli_shards_open(const char *path, sli_shards **out) {
  sli_shards *s = sli_calloc(1, sizeof *s);
  struct stat info;
  bool folder = !stat(path, &info) && S_ISDIR(info.st_mode);
  sl_status status = folder ? add_folder(s, path) : shards_add(s, path);
  if (status) sli_shards_close(s);
  else *out = s;
  return status;
}

void sli_shards_close(sli_shards *s) {
  for (size_t i = 0; s && i < s->count; i++) {
    sli_safetensors_close(s->items[i].file);
    sli_gguf_close(s->items[i].gguf);
    free(s->items[i].path);
  }
  if (s) free(s->items);
  free(s);
}

int sli_shards_count(const sli_shards *s) { return (int)s->count; }

int sli_shards_tensors(const sli_shards *s, int file, const sli_stored_tensor **out) {
  const shard *item = &s->items[file];
  int n = item->gguf ? sli_gguf_count(item->gguf) : sli_safetensors_count(item->file);
  if (n) *out = item->gguf ? sli_gguf_at(item->gguf, 0) : sli_safetensors_at(item->file, 0);
  return n;
}

const char *sli_shards_path(const sli_shards *s, int file) { return s->items[file].path; }

const sli_stored_tensor *sli_shards_find(const sli_shards *s, const char *name, int *file) {
  for (*file = 0; *file < (int)s->count; (*file)++) {
    const sli_stored_tensor *t = find_in(&s->items[*file], name);
    if (t) return t;
  }
  return NULL;
}

sl_status sli_shards_read(const sli_shards *s, int file, const sli_stored_tensor *tensor,
                          float *out) {
  const shard *item = &s->items[file];
  return item->gguf ? sli_gguf_read(item->gguf, tensor, out)
                    : sli_safetensors_read(item->file, tensor, out);
}

sl_status sli_shards_blocks(const sli_shards *s, int file, const sli_stored_tensor *tensor,
                            void *out) {
  const shard *item = &s->items[file];
  if (item->gguf) return sli_gguf_blocks(item->gguf, tensor, out);
  memcpy(out, sli_safetensors_bytes(item->file, tensor), tensor->bytes);
  return SL_OK;
}

/* ---- MXFP4 --------------------------------------------------------------------------------- */

enum { PACKED_BLOCK = 32 };

sli_packed sli_shards_packed(const sli_shards *s, const char *name) {
  sli_packed p = {0};
  char *blocks = sli_format("%s_blocks", name), *scales = sli_format("%s_scales", name);
  p.blocks = sli_shards_find(s, blocks, &p.file[0]);
  p.scales = sli_shards_find(s, scales, &p.file[1]);
  if (p.blocks && (!p.scales || s->items[p.file[0]].gguf || s->items[p.file[1]].gguf))
    p.blocks = NULL;
  free(blocks);
  free(scales);
  return p;
}

static sl_status want_bytes(const sli_shards *s, int file, const sli_stored_tensor *t, int ndim,
                            const int64_t *dim) {
  bool fits = !strcmp(t->dtype, "U8") && t->ndim == ndim;
  char text[256];
  for (int d = 0; fits && d < ndim; d++) fits = t->dim[d] == dim[d];
  if (fits) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s: tensor %s is %s, not U8 blocks of 32 numbers in MXFP4 for %lld x %lld",
                 s->items[file].path, t->name, sli_stored_format(text, t), (long long)dim[0],
                 (long long)dim[1]);
}

/* Unpacks a block. The lower half of a byte comes first. */
static void unpack_block(const unsigned char *from, unsigned scale, float *out) {
  static const float values[] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                 -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (int i = 0; i < PACKED_BLOCK; i++)
    out[i] = ldexpf(values[from[i / 2] >> i % 2 * 4 & 15], (int)scale - 127);
}

/* Sets the addresses of a packed tensor's blocks and scales. */
static sl_status find_packed(const sli_shards *s, const sli_packed *p, const int64_t dim[3],
                             const unsigned char **blocks, const unsigned char **scales) {
  const int64_t want[] = {dim[0], dim[1], dim[2] / PACKED_BLOCK, PACKED_BLOCK / 2};
  sl_status status = want_bytes(s, p->file[0], p->blocks, 4, want);
  if (!status) status = want_bytes(s, p->file[1], p->scales, 3, want);
  if (status) return status;
  *blocks = sli_safetensors_bytes(s->items[p->file[0]].file, p->blocks);
  *scales = sli_safetensors_bytes(s->items[p->file[1]].file, p->scales);
  return SL_OK;
}

sl_status sli_shards_read_packed(const sli_shards *s, const sli_packed *p, const int64_t dim[3],
                                 float *out) {
  const unsigned char *blocks, *scales;
  sl_status status = find_packed(s, p, dim, &blocks, &scales);
  for (size_t b = 0; !status && b < p->scales->elements; b++)
    unpack_block(blocks + b * PACKED_BLOCK / 2, scales[b], out + b * PACKED_BLOCK);
  return status;
}

static unsigned four_bits(const unsigned char *from, int i) {
  return from[i / 2] >> i % 2 * 4 & 15;
}

/* Moves number i + 16 beside number i. */
sl_status sli_shards_read_packed_blocks(const sli_shards *s, const sli_packed *p,
                                        const int64_t dim[3], unsigned char *out) {
  const unsigned char *blocks, *scales;
  sl_status status = find_packed(s, p, dim, &blocks, &scales);
  for (size_t b = 0; !status && b < p->scales->elements; b++, out += SLI_MXFP4_BYTES) {
    const unsigned char *from = blocks + b * PACKED_BLOCK / 2;
    out[0] = scales[b];
    for (int i = 0; i < PACKED_BLOCK / 2; i++)
      out[1 + i] = (unsigned char)(four_bits(from, i) | four_bits(from, i + PACKED_BLOCK / 2) << 4);
  }
  return status;
}
