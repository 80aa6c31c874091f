/* SPDX-License-Identifier: Apache-2.0 */
/* The draft model of --speculate: its settings, and the check that it has the model's tokens. */
#include <stdlib.h>
#include <string.h>

#include "tools/actorserve/actorserve.h"

struct draft_model {
  char *path;
  bool ahead; /* the model is the block of the served model that predicts ahead */
  tool tool;
  settings settings;
  sl_session_options options;
};

/* Adds to an error that it concerns the draft model. */
static sl_status refuse_draft(const draft_model *d, sl_status status) {
  char *detail = sli_strdup(sl_detail());
  sl_fail(status, d->ahead ? "--speculate ahead: %s%s" : "--speculate draft:%s: %s",
          d->ahead ? "" : d->path, detail);
  free(detail);
  return status;
}

static sl_status load(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  const draft_model *d = ctx;
  pretrained p = settings_pretrained(&d->settings);
  p.part = d->ahead;
  return pretrained_load(&p, NULL, lowered, rt);
}

/* Reads the settings as if this model were served alone. */
static sl_status read_draft_settings(const settings *s, draft_model *d) {
  char *words[] = {"actorserve",
                   "--dtype",
                   sli_strdup(sl_arg_text(s->run, "dtype")),
                   "--kv",
                   sli_strdup(sl_arg_text(s->run, "kv")),
                   "--init",
                   d->path,
                   NULL,
                   "--ahead",
                   "1",
                   "--ahead-alone"};
  const char *model = NULL;
  int count = (int)SLI_COUNT(words) - (d->ahead ? 0 : 3);
  sl_status status = pretrained_model(d->path, &model);
  words[7] = (char *)model;
  if (!status && !model)
    status = sl_fail(SL_E_INPUT, "it is neither a Hugging Face folder nor a GGUF file");
  d->tool = actorserve_tool;
  d->tool.read = serving_read;
  if (!status) status = settings_read(&d->tool, count, words, &d->settings);
  free(words[2]);
  free(words[4]);
  return status;
}

sl_status draft_model_open(const settings *s, served *served, char *path, bool ahead) {
  draft_model *d = served->draft = sli_calloc(1, sizeof *d);
  d->path = path;
  d->ahead = ahead;
  sl_status status = read_draft_settings(s, d);
  if (status) return refuse_draft(d, status);
  d->options = serving_options(&d->settings);
  d->options.lower.devices = s->lower.devices;
  d->options.lower.numbers.exact = s->lower.numbers.exact;
  d->options.run = (sl_runtime_options){.bind = machine_bind, .bind_arg = &served->machine};
  d->options.load = load;
  d->options.load_ctx = d;
  return SL_OK;
}

const sl_session_options *draft_model_options(const draft_model *d) { return &d->options; }

const char *draft_model_path(const draft_model *d) { return d->path; }

void draft_model_close(draft_model *d) {
  if (!d) return;
  settings_fini(&d->settings);
  free(d->path);
  free(d);
}

/* ---- tokens ------------------------------------------------------------------------------------
 */

/* Returns the text of a token; the caller frees it. */
static char *text_of(const codec *c, int32_t token, size_t *bytes) {
  return codec_decode_raw(c, &token, 1, bytes);
}

static sl_status compare(const codec *a, const codec *b) {
  sl_status status = SL_OK;
  for (int32_t v = 0; v < a->vocabulary && !status; v++) {
    size_t n, m;
    char *x = text_of(a, v, &n), *y = text_of(b, v, &m);
    if (n != m || memcmp(x, y, n))
      status = sl_fail(SL_E_USAGE, "token %d is \"%s\" in its tokenizer, but \"%s\" in the model's",
                       v, x, y);
    free(x);
    free(y);
  }
  return status;
}

sl_status draft_model_check(const served *served) {
  const draft_model *d = served->draft;
  codec own = {0};
  if (!d || !d->settings.data.tokenizer || !served->chat_format.codec.tokenizer) return SL_OK;
  sl_status status =
      codec_open(d->settings.data.tokenizer, served->chat_format.codec.vocabulary, &own);
  if (!status) status = compare(&own, &served->chat_format.codec);
  codec_close(&own);
  return status ? refuse_draft(d, status) : SL_OK;
}
