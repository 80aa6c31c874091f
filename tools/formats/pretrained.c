/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/pretrained.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/file.h"
#include "io/gguf/gguf.h"
#include "tools/formats/config.h"
#include "tools/formats/gguf.h"
#include "tools/formats/huggingface.h"

sl_status pretrained_read(pretrained *p) {
  const char *init = p->init;
  if (init && sli_gguf_is(init)) return gguf_read(init, p);
  if (!init || !huggingface_is_folder(init)) return SL_OK;
  char *path = huggingface_file(init, "tokenizer.json");
  if (!p->tokenizer && !access(path, F_OK)) p->tokenizer = sli_arena_strdup(p->arena, path);
  free(path);
  return huggingface_read(init, p);
}

/* Refuses a git-lfs pointer, which is stored in place of a file that was not downloaded. */
static sl_status check_pointer(const char *path) {
  char begin[128] = "";
  return sli_file_check(path, begin, sli_file_begin(path, begin, sizeof begin));
}

sl_status pretrained_model(const char *path, const char **out) {
  *out = NULL;
  if (huggingface_is_folder(path)) return huggingface_model(path, out);
  if (sli_gguf_is(path)) return gguf_model(path, out);
  return check_pointer(path);
}

sl_status pretrained_load(const pretrained *p, const sli_weights_lacks *lacks,
                          const sl_lowered *lowered, sl_runtime *rt) {
  const char *init = p->init, *adapter = p->adapter;
  sl_status status =
      init ? sli_weights_load(init, lowered, rt, config_is_shipped(p->model) && !p->part, lacks)
           : SL_OK;
  return !status && adapter ? sl_adapter_load(adapter, lowered, rt) : status;
}

sl_storage pretrained_storage(void *shards, const char *param) {
  return sli_weights_storage(shards, param, SL_STORAGE_BF16);
}

sl_status pretrained_save(const pretrained *p, const char *folder, const sl_lowered *lowered,
                          sl_runtime *rt, sl_job *job) {
  const char *init = p->init;
  char *path = huggingface_file(folder, "model.safetensors");
  sl_status status = sl_weights_save(path, lowered, rt, job);
  free(path);
  if (status || sl_job_process(job)) return status;
  status = huggingface_save(folder, init && huggingface_is_folder(init) ? init : NULL, p);
  return !status && init && sli_gguf_is(init) ? gguf_save_tokenizer(init, folder) : status;
}
