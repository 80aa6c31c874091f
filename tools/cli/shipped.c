/* SPDX-License-Identifier: Apache-2.0 */
/* <sluice/shipped.h>: the command line of a tool that has only the model's options. */
#include <sluice/shipped.h>

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/atomic.h"
#include "graph/state/state.h"
#include "models/models.h"
#include "text/chats/chats.h"
#include "tools/cli/settings.h"

struct sl_shipped {
  char **words; /* copies, which the settings point to; ends with NULL */
  settings settings;
};

/* clang-format off */
static const tool_option options[] = {
    {"init", SL_OPTION_TEXT, "", "`FILE` with the model's weights (safetensors, GGUF), or a Hugging Face folder", 0, 0, GROUP_DATA},
    {"tokenizer", SL_OPTION_TEXT, "", "`FILE` of a tokenizer: tokenizer.json, or GGUF", 0, 0, GROUP_DATA},
    {0}};
/* clang-format on */
static const char *const none[] = {NULL};

static const tool shipped_tool = {.name = "sluice",
                                  .purpose = "",
                                  .options = options,
                                  .shared = none,
                                  .takes_weights = true,
                                  .read = settings_read_pretrained};

const sl_model *const *sl_shipped_models(void) { return sli_models; }

sl_status sl_shipped_open(const char *word, int nwords, const char *const *words,
                          sl_shipped **out) {
  sl_shipped *m = sli_calloc(1, sizeof *m);
  m->words = sli_calloc((size_t)nwords + 3, sizeof *m->words);
  m->words[0] = sli_strdup("sluice");
  m->words[1] = sli_strdup(word);
  for (int i = 0; i < nwords; i++) m->words[i + 2] = sli_strdup(words[i]);
  sl_status status = settings_read(&shipped_tool, nwords + 2, m->words, &m->settings);
  if (!status) status = sli_memory_check();
  if (status) {
    sl_shipped_close(m);
    return status;
  }
  *out = m;
  return SL_OK;
}

void sl_shipped_close(sl_shipped *m) {
  if (!m) return;
  settings_fini(&m->settings);
  for (char **w = m->words; *w; w++) free(*w);
  free(m->words);
  free(m);
}

const sl_model *sl_shipped_model(const sl_shipped *m) { return m->settings.model; }
const sl_args *sl_shipped_args(const sl_shipped *m) { return m->settings.model_args; }
const char *sl_shipped_weights(const sl_shipped *m) { return settings_text(&m->settings, "init"); }
const char *sl_shipped_tokenizer(const sl_shipped *m) { return m->settings.data.tokenizer; }

/* ---- chats ----------------------------------------------------------------------------------- */

static sl_status read_role(const char *word, sli_chat_message *out) {
  static const char *const roles[] = {"system", "user", "assistant", NULL};
  for (int i = 0; roles[i]; i++)
    if (!strcmp(word, roles[i])) return out->role = i, SL_OK;
  return sl_fail(SL_E_USAGE, "unknown role \"%.40s\": must be system, user or assistant", word);
}

static sl_status render(const sli_chat_found *f, const char *tokenizer, int n,
                        const sli_chat_message *messages, char **prompt, char **end) {
  const sli_chat *chat;
  sl_status status = sli_chat_choose(f, tokenizer, NULL, &chat);
  if (status) return status;
  status = sli_chat_render(chat, &f->marks, messages, n, prompt);
  const char *mark = sli_chat_end(chat, &f->marks);
  if (!status) *end = mark ? sli_strdup(mark) : NULL;
  sli_chat_free(chat);
  return status;
}

sl_status sl_shipped_chat(const sl_shipped *m, int nmessages, const char *const *roles,
                          const char *const *contents, char **prompt, char **end) {
  const char *tokenizer = sl_shipped_tokenizer(m);
  if (!tokenizer)
    return sl_fail(SL_E_USAGE, "%s has no tokenizer and no chat template", m->settings.model_word);
  sli_chat_message *messages = sli_calloc((size_t)nmessages + 1, sizeof *messages);
  sl_status status = SL_OK;
  for (int i = 0; i < nmessages && !status; i++) {
    messages[i].text = contents[i];
    status = read_role(roles[i], &messages[i]);
  }
  sli_chat_found f = {0};
  if (!status) status = sli_chat_find(tokenizer, &f);
  if (!status) status = render(&f, tokenizer, nmessages, messages, prompt, end);
  sli_chat_found_fini(&f);
  free(messages);
  return status;
}

/* ---- saving ------------------------------------------------------------------------------------
 */

sl_status sl_shipped_save(const sl_shipped *m, const char *folder, const sl_lowered *lowered,
                          sl_runtime *rt, sl_job *job) {
  const pretrained p = settings_pretrained(&m->settings);
  sl_status status = huggingface_check(folder, &p);
  if (!status) status = sli_atomic_check_folder(folder);
  return status ? status : pretrained_save(&p, folder, lowered, rt, job);
}

sl_status sl_shipped_teach(const sl_shipped *m, const sl_lowered *lowered, sl_runtime *rt) {
  const char *weights = sl_shipped_weights(m);
  if (!weights)
    return sl_fail(SL_E_USAGE, "the teacher, model %s, has no weights", m->settings.model->name);
  return sli_weights_load_teacher(weights, lowered, rt);
}
