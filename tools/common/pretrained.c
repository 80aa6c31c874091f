/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/pretrained.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/file.h"
#include "io/gguf/gguf.h"
#include "tools/common/config.h"
#include "tools/common/gguf.h"
#include "tools/common/huggingface.h"

sl_status pretrained_read(settings *s) {
  const char *init = settings_text(s, "init");
  s->data.tokenizer = settings_text(s, "tokenizer");
  if (init && sli_gguf_is(init)) return gguf_read(init, s);
  if (!init || !huggingface_is_folder(init)) return SL_OK;
  char *path = huggingface_file(init, "tokenizer.json");
  if (!s->data.tokenizer && !access(path, F_OK))
    s->data.tokenizer = sli_arena_strdup(&s->arena, path);
  free(path);
  return huggingface_read(init, s);
}

/* Refuses a git-lfs pointer, which is stored in place of a file that was not downloaded. */
static sl_status check_pointer(const char *path) {
  char begin[128] = "";
  return sli_file_check(path, begin, sli_file_begin(path, begin, sizeof begin));
}

sl_status pretrained_model(const char *path, const char **out) {
  *out = NULL;
  if (huggingface_is_folder(path)) return huggingface_model(path, out);
  if (sli_gguf_is(path)) *out = "llama"; /* only LLaMA-like architectures are supported */
  return *out ? SL_OK : check_pointer(path);
}

sl_status pretrained_load(const settings *s, const sli_weights_lacks *lacks,
                          const sl_lowered *lowered, sl_runtime *rt) {
  const char *init = settings_text(s, "init"), *adapter = s->adapter;
  sl_status status =
      init ? sli_weights_load(init, lowered, rt, config_is_shipped(s->model), lacks) : SL_OK;
  return !status && adapter ? sl_adapter_load(adapter, lowered, rt) : status;
}

sl_storage pretrained_storage(void *shards, const char *param) {
  return sli_weights_storage(shards, param);
}

sl_status pretrained_save(const settings *s, const char *folder, const sl_lowered *lowered,
                          sl_runtime *rt, sl_job *job) {
  const char *init = settings_text(s, "init");
  char *path = huggingface_file(folder, "model.safetensors");
  sl_status status = sl_weights_save(path, lowered, rt, job);
  free(path);
  if (status || sl_job_process(job)) return status;
  status = huggingface_save(folder, init && huggingface_is_folder(init) ? init : NULL, s, lowered);
  return !status && init && sli_gguf_is(init) ? gguf_save_tokenizer(init, folder) : status;
}
