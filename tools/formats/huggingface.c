/* SPDX-License-Identifier: Apache-2.0 */
/* Folders: config.json by its family, and the files beside it. */
#include "tools/formats/huggingface.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/atomic.h"
#include "io/file.h"
#include "tools/formats/config.h"
#include "tools/formats/gguf_config.h"
#include "tools/formats/reading.h"
#include "tools/formats/writing.h"

bool huggingface_is_folder(const char *path) {
  struct stat info;
  size_t n = strlen(path);
  return (n && path[n - 1] == '/') || (!stat(path, &info) && S_ISDIR(info.st_mode));
}

char *huggingface_file(const char *folder, const char *name) {
  size_t n = strlen(folder);
  while (n > 1 && folder[n - 1] == '/') n--;
  return sli_format("%.*s/%s", (int)n, folder, name);
}

/* ---- reading --------------------------------------------------------------------------------- */

void huggingface_print_families(void) { family_print(stdout); }

static const char *type_of(const cJSON *root) {
  const cJSON *type = config_at(root, "model_type");
  return cJSON_IsString(type) ? type->valuestring : "";
}

static sl_status unknown_type(const char *path, const char *name) {
  char *types = family_types();
  sl_fail(SL_E_INPUT, "%s: unknown model_type \"%.40s\"; known: %s", path, name, types);
  free(types);
  return SL_E_INPUT;
}

/* Finds the family of a config.json, and the part of it that describes the text model. A model with
 * images names the type of its text model inside. */
static sl_status find_family(const char *path, const cJSON *root, const family **out,
                             const cJSON **part) {
  *out = family_find(type_of(root));
  *part = root;
  if (!*out || !(*out)->inside) return SL_OK;
  *part = config_at(root, (*out)->inside);
  if (!cJSON_IsObject(*part))
    return sl_fail(SL_E_INPUT, "%s: %s is not a JSON object", path, (*out)->inside);
  const cJSON *tied = config_at(root, "tie_word_embeddings"),
              *inner = config_at(*part, "tie_word_embeddings");
  if (tied && inner && cJSON_IsTrue(tied) != cJSON_IsTrue(inner))
    return sl_fail(SL_E_INPUT, "%s: tie_word_embeddings differs inside %s", path, (*out)->inside);
  if (tied && !inner)
    cJSON_AddItemToObject((cJSON *)*part, "tie_word_embeddings", cJSON_Duplicate(tied, false));
  if (!*type_of(*part)) return SL_OK;
  *out = family_find(type_of(*part));
  return *out ? SL_OK : unknown_type(path, type_of(*part));
}

/* Maps the fields. A user's own model may have a config.json that only it understands. */
static sl_status match(const config *c) {
  const char *model = c->target->model->name;
  const family *f;
  config text = *c;
  sl_status status = find_family(c->path, c->root, &f, &text.root);
  if (!config_is_shipped(c->target->model) && (status || !f || strcmp(f->model, model)))
    return SL_OK;
  if (status) return status;
  if (!f) return unknown_type(c->path, type_of(c->root));
  if (!strcmp(f->model, model) || family_starts(f, c->target->model)) return family_read(f, &text);
  return sl_fail(SL_E_USAGE, "%s is of model_type %s: the model should be %s, not %s", c->path,
                 type_of(c->root), f->model, model);
}

/* Returns the first occurrence of a word outside of strings, or NULL. */
static char *find_word(char *text, const char *word) {
  bool quoted = false;
  for (char *c = text; *c; c++) {
    if (*c == '\\' && quoted && c[1]) c++;
    else if (*c == '"') quoted = !quoted;
    else if (!quoted && !strncmp(c, word, strlen(word))) return c;
  }
  return NULL;
}

/* Replaces Infinity, which Python writes but JSON does not have, with a number that parses as
 * infinity. */
static void name_infinity(char *text) {
  static const char word[] = "Infinity", number[] = "1e999999";
  for (char *c = text; (c = find_word(c, word)); c += strlen(word))
    memcpy(c, number, strlen(number));
}

/* Parses a file. `keep` keeps reals as they are written. */
static sl_status parse(const char *path, bool keep, cJSON **out) {
  char *text;
  sl_status status = sli_file_read(path, &text);
  if (status) return status;
  name_infinity(text);
  *out = cJSON_Parse(text);
  bool nan = !*out && find_word(text, "NaN"); /* written by Python, too */
  if (cJSON_IsObject(*out) && keep) config_keep_reals(*out, text);
  free(text);
  if (cJSON_IsObject(*out)) return SL_OK;
  cJSON_Delete(*out);
  *out = NULL;
  return nan ? sl_fail(SL_E_INPUT, "%s: a value is NaN, which is no number of a model", path)
             : sl_fail(SL_E_INPUT, "%s is not a JSON object", path);
}

sl_status huggingface_read(const char *folder, const pretrained *p) {
  char *path = huggingface_file(folder, "config.json");
  cJSON *root = NULL;
  sl_status status = SL_OK;
  if (!access(path, F_OK)) {
    status = parse(path, false, &root);
    if (!status) status = match(&(config){path, root, p, NULL});
    cJSON_Delete(root);
  }
  free(path);
  return status;
}

sl_status huggingface_read_config(const char *path, const cJSON *root, const cJSON *names,
                                  const pretrained *p) {
  return match(&(config){path, root, p, names});
}

sl_status huggingface_model_of(const char *path, const cJSON *root, const char **out) {
  const family *f = NULL;
  SLI_TRY(find_family(path, root, &f, &(const cJSON *){NULL}));
  if (!f) return unknown_type(path, type_of(root));
  *out = f->model;
  return SL_OK;
}

sl_status huggingface_model(const char *folder, const char **out) {
  char *path = huggingface_file(folder, "config.json");
  cJSON *root = NULL;
  sl_status status = parse(path, false, &root);
  if (!status) status = huggingface_model_of(path, root, out);
  cJSON_Delete(root);
  free(path);
  return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Returns whether the model only starts from weights of the folder's family. */
static bool begins_other(const char *folder, const pretrained *p) {
  const char *model = NULL;
  bool known = config_is_shipped(p->model) && !huggingface_model(folder, &model);
  return known && strcmp(model, p->model->name) != 0;
}

/* Makes the config.json of the initial GGUF file, if there is one of the same model. */
static sl_status of_gguf(const pretrained *p, cJSON **out) {
  const char *model = NULL;
  *out = NULL;
  sl_status status = p->init ? gguf_config_of(p->init, out) : SL_OK;
  if (*out && (huggingface_model_of(p->init, *out, &model) || strcmp(model, p->model->name))) {
    cJSON_Delete(*out);
    *out = NULL;
  }
  return status;
}

/* Returns whether a config.json can be written, for a family or as a copy of the initial one. */
static bool has_config(const pretrained *p) {
  const char *init = p->init;
  cJSON *root = NULL;
  bool gguf = !of_gguf(p, &root) && root;
  cJSON_Delete(root);
  if (gguf) return true;
  char *path = init && huggingface_is_folder(init) ? huggingface_file(init, "config.json") : NULL;
  bool has = path && !access(path, F_OK) && !begins_other(init, p);
  root = has ? NULL : family_config(p);
  has |= root != NULL;
  cJSON_Delete(root);
  free(path);
  return has;
}

sl_status huggingface_check(const char *folder, const pretrained *p) {
  if (has_config(p)) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "--save %s: no config.json is possible: no Hugging Face model matches %s with these options; save the weights alone (--save FILE.safetensors)",
      folder, p->model->name);
}

/* Replaces the config.json of a model with images by that of its text model, which was loaded. */
static sl_status keep_text(const char *path, cJSON **root) {
  const family *f;
  const cJSON *part;
  sl_status status = find_family(path, *root, &f, &part);
  if (status || !f || part == *root) return SL_OK;
  cJSON *text = cJSON_DetachItemViaPointer(*root, (cJSON *)part);
  cJSON *names = cJSON_CreateArray();
  cJSON_AddItemToArray(names, cJSON_CreateString(f->architecture));
  config_put(text, "architectures", names);
  config_put(text, "model_type", cJSON_CreateString(f->type));
  cJSON_Delete(*root);
  *root = text;
  return SL_OK;
}

/* Reads the config.json that the model was loaded with, and sets the type of its weights to
 * fp32. */
static sl_status edit_config(const char *path, cJSON **out) {
  static const char *const keys[] = {"dtype", "torch_dtype"};
  sl_status status = parse(path, true, out);
  if (!status) status = keep_text(path, out);
  for (size_t i = 0; i < SLI_COUNT(keys) && !status; i++)
    if (config_at(*out, keys[i])) config_put(*out, keys[i], cJSON_CreateString("float32"));
  /* weights are saved as plain numbers, not in quantized blocks */
  if (!status) cJSON_DeleteItemFromObjectCaseSensitive(*out, "quantization_config");
  return status;
}

/* Copies a file. Tells a read error from the end of the file. */
static sl_status copy_file(const char *from, const char *to) {
  char *bytes = NULL;
  size_t size = 0;
  sli_atomic_file out = {0};
  sl_status status = sli_file_read_bytes(from, &bytes, &size);
  if (!status) status = sli_atomic_open(to, &out);
  if (!status && !(status = sli_atomic_write(&out, bytes, size))) status = sli_atomic_commit(&out);
  else if (out.stream) sli_atomic_abandon(&out);
  free(bytes);
  return status;
}

/* Copies a file of this name, if it exists, from one folder to another. */
static sl_status copy_named(const char *folder, const char *from, const char *name) {
  char *a = huggingface_file(from, name), *b = huggingface_file(folder, name);
  sl_status status = access(a, F_OK) || !strcmp(a, b) ? SL_OK : copy_file(a, b);
  free(a);
  free(b);
  return status;
}

/* Copies the chat template for tools, if it is a separate file. */
static sl_status copy_tool_template(const char *folder, const char *from) {
  static const char name[] = "additional_chat_templates/tool_use.jinja";
  char *a = huggingface_file(from, name),
       *b = huggingface_file(folder, "additional_chat_templates");
  sl_status status = SL_OK;
  if (!access(a, F_OK) && mkdir(b, 0777) && errno != EEXIST)
    status = sl_fail(SL_E_IO, "cannot create %s: %s", b, strerror(errno));
  if (!status) status = copy_named(folder, from, name);
  free(a);
  free(b);
  return status;
}

static sl_status copy_rest(const char *folder, const char *from) {
  static const char *const names[] = {"tokenizer.json",      "tokenizer_config.json",
                                      "tokenizer.model",     "special_tokens_map.json",
                                      "vocab.json",          "merges.txt",
                                      "chat_template.jinja", "generation_config.json"};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(names) && !status; i++)
    status = copy_named(folder, from, names[i]);
  return status ? status : copy_tool_template(folder, from);
}

sl_status huggingface_described(const pretrained *p, cJSON **out) {
  const char *from = p->init && huggingface_is_folder(p->init) ? p->init : NULL;
  char *path = from ? huggingface_file(from, "config.json") : NULL;
  sl_status status = SL_OK;
  *out = family_config(p);
  if (*out) status = SL_OK;
  else if (path && !access(path, F_OK) && !begins_other(from, p)) status = edit_config(path, out);
  else if (!from) status = of_gguf(p, out);
  free(path);
  return status;
}

sl_status huggingface_save(const char *folder, const char *from, const pretrained *p) {
  char *path = huggingface_file(folder, "config.json");
  char *old = from ? huggingface_file(from, "config.json") : NULL;
  cJSON *root = NULL;
  sl_status status = SL_OK;
  if (old && !access(old, F_OK)) status = edit_config(old, &root);
  else if (!from) status = of_gguf(p, &root);
  if (!root) root = family_config(p);
  if (root && !status) status = config_write(path, root);
  cJSON_Delete(root);
  if (!status && from) status = copy_rest(folder, from);
  free(old);
  free(path);
  return status;
}
