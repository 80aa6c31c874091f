/* SPDX-License-Identifier: Apache-2.0 */
/* Names and layouts of an architecture's tensors, in GGUF and in Hugging Face's format: the rows of
 * architectures.json. Member `tensors` of a row maps names without ".weight" or ".bias", or with
 * it, to Hugging Face's. Names of a layer follow "blk.N." and, there, "model.layers.N." or what
 * `layers` says. A tensor is given as a name or as an object:
 *
 *   to      its name
 *   pairs   heads, the first of these formulas that has a value: numbers that rotate together are
 *           adjacent in each
 *   head    likewise, with the numbers of a head
 *   rows, columns   {first, groups, each, width}: see sli_gguf_runs
 *   part    this is part [i, n] of the rows of a tensor; "woven": rows of the parts take turns
 *   spread  of a part: {groups, period, pieces}; see sli_gguf_spread
 *   turned  the last two dims are exchanged
 *   is      values: "plus one", or "minus exp"
 *   shape   of Hugging Face's: "flat" [n], "row" [1, n], "channels" [c, 1, k], "joined" [a b, c]
 *   last    for "flat": the file's last dim
 *   if, unless   a key; an entry is written to files where it is not 0, or is
 *   old     the entry is only read
 *
 * Of several entries for one tensor, files are written with the first that is no part, or with all
 * parts. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/gguf/gguf_inner.h"
#include "io/rows.h"

extern const char architectures_json[]; /* architectures.json */

static struct {
  pthread_once_t once;
  cJSON *rows;
} table = {.once = PTHREAD_ONCE_INIT};

static void read_table(void) {
  table.rows = sli_rows_parse(architectures_json, "name", (const char *const[]){NULL});
}

static const cJSON *member(const cJSON *from, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);
  return item && !cJSON_IsNull(item) ? item : NULL;
}

static const char *text_at(const cJSON *from, const char *key) {
  const cJSON *item = member(from, key);
  return cJSON_IsString(item) ? item->valuestring : NULL;
}

const cJSON *sli_gguf_architecture(const char *name) {
  const cJSON *row;
  pthread_once(&table.once, read_table);
  cJSON_ArrayForEach(row, table.rows) if (name && !strcmp(text_at(row, "name"), name)) return row;
  return NULL;
}

const cJSON *sli_gguf_architectures(void) {
  pthread_once(&table.once, read_table);
  return table.rows;
}

static const cJSON *architecture_of(const cJSON *metadata) {
  return sli_gguf_architecture(text_at(metadata, "general.architecture"));
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Returns the Hugging Face name of an entry. */
static const char *target_of(const cJSON *entry) {
  return cJSON_IsString(entry) ? entry->valuestring : text_at(entry, "to");
}

static const char *layers_of(const cJSON *row) {
  const char *layers = text_at(row, "layers");
  return layers ? layers : "model.layers";
}

/* Returns the length of ".weight" or ".bias" at the end of a name, or 0. */
static size_t suffix_of(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && (!strcmp(dot, ".weight") || !strcmp(dot, ".bias")) ? strlen(dot) : 0;
}

/* Splits "PREFIX.N.rest". Returns the rest, or NULL if the name is no layer's. */
static const char *split_layer(const char *name, const char *prefix, const char **number,
                               int *digits) {
  size_t n = strlen(prefix);
  if (strncmp(name, prefix, n) || name[n] != '.') return NULL;
  *number = name + n + 1;
  *digits = (int)strspn(*number, "0123456789");
  return *digits && (*number)[*digits] == '.' ? *number + *digits + 1 : NULL;
}

/* Finds the entry of a name, whole or without its suffix. */
static const cJSON *entry_of(const cJSON *row, const char *name, size_t *suffix) {
  const cJSON *tensors = member(row, "tensors"), *entry = member(tensors, name);
  *suffix = 0;
  if (entry) return entry;
  *suffix = suffix_of(name);
  char *stem = sli_format("%.*s", (int)(strlen(name) - *suffix), name);
  entry = *suffix ? member(tensors, stem) : NULL;
  free(stem);
  return entry;
}

/* Returns whether an entry is written to files with these keys: its `if` names a key that is not 0,
 * its `unless` one that is absent or 0. */
static bool is_for(const cJSON *metadata, const cJSON *row, const cJSON *entry) {
  static const char *const words[] = {"if", "unless"};
  if (member(entry, "old")) return false;
  for (int i = 0; i < 2; i++) {
    const char *key = text_at(entry, words[i]);
    char *name = key ? sli_format("%s.%s", text_at(row, "name"), key) : NULL;
    const cJSON *value = name ? member(metadata, name) : NULL;
    free(name);
    if (key && (value && value->valuedouble != 0) == (i == 1)) return false;
  }
  return true;
}

int sli_gguf_own_names(const cJSON *metadata, const char *name, char *out[SLI_GGUF_PARTS]) {
  const cJSON *row = architecture_of(metadata), *entry;
  const char *number = "",
             *rest = row ? split_layer(name, layers_of(row), &number, &(int){0}) : NULL,
             *at = rest ? rest : name;
  size_t suffix = suffix_of(at), stem = strlen(at) - suffix;
  int count = 0;
  cJSON_ArrayForEach(entry, member(row, "tensors")) {
    const char *to = target_of(entry);
    bool part = member(entry, "part") != NULL;
    if (!to || strlen(to) != stem || strncmp(to, at, stem) || !is_for(metadata, row, entry))
      continue;
    if (!part)
      while (count) free(out[--count]);
    if (count < SLI_GGUF_PARTS)
      out[count++] = rest ? sli_format("blk.%.*s.%s%s", (int)(rest - 1 - number), number,
                                       entry->string, at + stem)
                          : sli_format("%s%s", entry->string, at + stem);
    if (!part) break;
  }
  if (!count && !rest) out[count++] = sli_strdup(name);
  return count;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Returns the value of the first formula of a list, or of one formula, that has one; else 0. */
static size_t first_of(const sli_formula_keys *keys, const cJSON *formulas) {
  const cJSON *item = cJSON_IsArray(formulas) ? formulas->child : formulas;
  for (; item; item = cJSON_IsArray(formulas) ? item->next : NULL) {
    double value = 0;
    if (cJSON_IsNumber(item)) value = item->valuedouble;
    else if (sli_formula(keys, item->valuestring, &value)) continue;
    if (value >= 1 && value < 1 << 30) return (size_t)value;
  }
  return 0;
}

static sli_gguf_runs runs_of(const sli_formula_keys *keys, const cJSON *from) {
  return (sli_gguf_runs){.first = first_of(keys, member(from, "first")),
                         .groups = first_of(keys, member(from, "groups")),
                         .each = first_of(keys, member(from, "each")),
                         .width = first_of(keys, member(from, "width"))};
}

static sli_gguf_spread spread_of(const sli_formula_keys *keys, const cJSON *from) {
  const cJSON *pieces = member(from, "pieces"), *piece;
  sli_gguf_spread s = {.groups = first_of(keys, member(from, "groups")),
                       .period = first_of(keys, member(from, "period"))};
  cJSON_ArrayForEach(piece, pieces) {
    if (s.count == SLI_GGUF_PIECES) break;
    s.piece[s.count].width = first_of(keys, cJSON_GetArrayItem(piece, 0));
    s.piece[s.count++].at = first_of(keys, cJSON_GetArrayItem(piece, 1));
  }
  return s;
}

static size_t spread_rows(const sli_gguf_spread *s) {
  size_t rows = 0;
  for (int i = 0; i < s->count; i++) rows += s->piece[i].width * s->groups;
  return rows;
}

size_t sli_gguf_spread_row(const sli_gguf_spread *s, size_t r) {
  int i = 0;
  while (i + 1 < s->count && r >= s->piece[i].width * s->groups)
    r -= s->piece[i++].width * s->groups;
  size_t width = s->piece[i].width;
  return r / width * s->period + s->piece[i].at + r % width;
}

/* Returns the order of rows: heads of `head` rows, in which rotating pairs are adjacent. */
static sli_gguf_runs pairs_of(size_t head) {
  return (sli_gguf_runs){.groups = head ? 2 : 0, .each = head / 2, .width = 1};
}

static void place_rows(const sli_formula_keys *keys, const cJSON *entry, size_t rows,
                       sli_gguf_place *out) {
  size_t heads = first_of(keys, member(entry, "pairs")),
         head = first_of(keys, member(entry, "head"));
  out->rows = runs_of(keys, member(entry, "rows"));
  if (heads) out->rows = pairs_of(rows % heads ? 1 : rows / heads), head = rows / heads;
  else if (head) out->rows = pairs_of(head);
  size_t period = out->rows.groups * out->rows.each * out->rows.width;
  out->uneven = (heads || head) && (!head || head % 2);
  if (out->rows.groups)
    out->uneven |= !period || rows < out->rows.first || (rows - out->rows.first) % period;
}

static void describe(const sli_formula_keys *keys, const cJSON *entry, size_t rows,
                     sli_gguf_place *out) {
  const cJSON *part = member(entry, "part");
  const char *is = text_at(entry, "is"), *shape = text_at(entry, "shape");
  place_rows(keys, entry, rows, out);
  out->columns = runs_of(keys, member(entry, "columns"));
  out->spread = spread_of(keys, member(entry, "spread"));
  size_t spread = spread_rows(&out->spread);
  out->uneven |= member(entry, "spread") && (!spread || rows != spread);
  for (int i = 0; i < out->spread.count; i++)
    out->uneven |= !out->spread.piece[i].width ||
                   out->spread.piece[i].at + out->spread.piece[i].width > out->spread.period;
  out->part = part ? cJSON_GetArrayItem(part, 0)->valueint : 0;
  out->parts = part ? cJSON_GetArrayItem(part, 1)->valueint : 1;
  out->woven = cJSON_IsTrue(member(entry, "woven"));
  out->turned = cJSON_IsTrue(member(entry, "turned"));
  out->plus_one = is && !strcmp(is, "plus one");
  out->minus_exp = is && !strcmp(is, "minus exp");
  out->shape = shape ? shape : "";
  out->last = first_of(keys, member(entry, "last"));
}

sli_gguf_place sli_gguf_place_of(const char *path, const cJSON *metadata, const char *name,
                                 size_t rows) {
  const cJSON *row = architecture_of(metadata);
  const char *number = "", *rest = split_layer(name, "blk", &number, &(int){0});
  sli_gguf_place out = {.parts = 1, .shape = ""};
  size_t suffix;
  const cJSON *entry = row ? entry_of(row, rest ? rest : name, &suffix) : NULL;
  const char *to = entry ? target_of(entry) : NULL;
  if (!to) {
    out.name = sli_strdup(name);
    return out;
  }
  const char *end = name + strlen(name) - suffix;
  out.name =
      rest ? sli_format("%s.%.*s.%s%s", layers_of(row), (int)(rest - 1 - number), number, to, end)
           : sli_format("%s%s", to, end);
  char *prefix = sli_format("%s.", text_at(row, "name"));
  if (cJSON_IsObject(entry))
    describe(&(sli_formula_keys){path, metadata, prefix}, entry, rows, &out);
  free(prefix);
  return out;
}

size_t sli_gguf_row_of(const sli_gguf_runs *runs, size_t r) {
  size_t period = runs->groups * runs->each * runs->width;
  if (!period || r < runs->first) return r;
  size_t n = (r - runs->first) % period, each = n / (runs->groups * runs->width),
         group = n / runs->width % runs->groups;
  return r - n + (group * runs->each + each) * runs->width + n % runs->width;
}
