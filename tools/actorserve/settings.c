/* The options of actorserve. */
#include <stdio.h>
#include <string.h>

#include "tools/actorserve/actorserve.h"

static const sl_option options[] = {
    {"host", SL_OPTION_TEXT, "127.0.0.1", "`ADDRESS` to listen at; 0.0.0.0: all of this machine's", 0, 0},
    {"port", SL_OPTION_INT, "8000", "to listen at; 0: any that is free", 0, 65535},
    {"api-key", SL_OPTION_TEXT, "", "`KEY` that requests must have (Authorization: Bearer KEY); anybody may "
     "ask if not given", 0, 0},
    {"init", SL_OPTION_TEXT, "", "`FILE` with the model's weights (safetensors, GGUF), or a Hugging Face folder", 0,
     0},
    {"tokenizer", SL_OPTION_TEXT, "", "`FILE` that says how text becomes tokens: a tokenizer.json, or GGUF; if not "
     "given, what lies with the weights", 0, 0},
    {"chat-template", SL_OPTION_TEXT, "", "`NAME` of how a chat becomes a text, where the model's own template is "
     "not there or not known", 0, 0},
    {"stuck", SL_OPTION_FLOAT, "10", "seconds without a tick, while work waits, after which /health says so", 0.1,
     1e6},
    {"quiet", SL_OPTION_FLAG, "0", "do not say where it listens", 0, 0},
    {0}};

static const char *const shared[] = {"devices", "stages", "memory", "dtype", "seed", "version", "help", NULL};

/* A model whose weights lie ready knows how long its sequences may be. */
static sl_status set_context(settings *s) {
  char text[32];
  int64_t most = 0;
  for (const sl_option *o = s->model->options; o->name; o++)
    if (!strcmp(o->name, "positions") && sl_arg_given(s->model_args, "positions", 0))
      most = sl_arg_int(s->model_args, "positions");
  if (!most || sl_arg_given(s->model_args, "context", 0)) return SL_OK;
  snprintf(text, sizeof text, "%lld", (long long)most);
  return sl_args_set(s->model_args, "context", text);
}

static sl_status read_settings(settings *s) {
  if (!settings_text(s, "init"))
    return sl_fail(SL_E_USAGE, "%s: which weights? --init FILE says, or a Hugging Face folder or GGUF file in the "
                   "place of the model", s->model_word);
  s->microbatches = s->pieces = s->chunks = 1;
  s->processes = 1;
  s->schedule = "1f1b";
  s->use = USE_INFERENCE;
  if (!sl_device_computes(s->devices.kind))
    return sl_fail(SL_E_USAGE, "--devices %s: they hold no values", sl_arg_text(s->run, "devices"));
  sl_status status = settings_read_budget(s);
  if (!status) status = pretrained_read(s);
  return status ? status : set_context(s);
}

const tool actorserve_tool = {.name = "actorserve",
                              .usage = "       actorserve [options] DIR | FILE.gguf\n",
                              .purpose = "Serves a model over HTTP, as OpenAI's API has it. DIR is a Hugging "
                                         "Face folder.",
                              .options = options,
                              .shared = shared,
                              .takes_weights = true,
                              .read = read_settings};
