/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serving/session.h"

#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/serving/ticks.h"

/* Sets the context to the length that pretrained weights support. */
static sl_status set_context(settings *s) {
  char text[32];
  int64_t most = 0;
  if (sl_options_find(s->model->options, "positions") &&
      sl_arg_given(s->model_args, "positions", 0))
    most = sl_arg_int(s->model_args, "positions");
  if (!most || sl_arg_given(s->model_args, "context", 0)) return SL_OK;
  snprintf(text, sizeof text, "%lld", (long long)most);
  return sl_args_set(s->model_args, "context", text);
}

static bool is_fp8(const settings *s) { return !strcmp(sl_arg_text(s->run, "dtype"), "fp8"); }

/* Refuses weights rounded to FP8 where numbers are computed. */
static sl_status check_fp8(const settings *s) {
  if (!is_fp8(s) || !sl_device_computes(s->lower.devices.kind)) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--dtype fp8: only devices that compute nothing (--devices timed:N) have it");
}

/* Words of --kv, and their formats. */
static const char *const kvs[] = {"fp32", "bf16", "q8_0", "fp8", NULL};
static const sl_storage kv_storages[] = {SL_STORAGE_F32, SL_STORAGE_BF16, SL_STORAGE_Q8_0,
                                         SL_STORAGE_FP8};

static sl_storage kv_storage(const settings *s) {
  int kv = 0;
  while (kvs[kv + 1] && strcmp(sl_arg_text(s->run, "kv"), kvs[kv])) kv++;
  return kv_storages[kv];
}

sl_status serving_read(settings *s) {
  static const char *const chunks[] = {"times", "rows", NULL};
  static const char *const dtypes[] = {"stored", "fp32", "bf16", "fp8", NULL};
  s->microbatches = s->pieces = s->lower.schedule.chunks = 1;
  s->lower.parallel.processes = 1;
  s->lower.schedule.name = "1f1b";
  s->use = USE_INFERENCE;
  sl_status status = options_check_word("dtype", sl_arg_text(s->run, "dtype"), dtypes);
  if (!status) status = options_check_word("kv", sl_arg_text(s->run, "kv"), kvs);
  if (!status) status = check_fp8(s);
  if (!status) status = options_check_word("chunks", sl_arg_text(s->run, "chunks"), chunks);
  if (!status) status = settings_read_budget(s);
  if (!status) status = settings_read_pretrained(s);
  return status ? status : set_context(s);
}

static const sl_hardware *hardware_of(const settings *s) {
  return s->modelled.hardware.flops_per_second > 0 ? &s->modelled.hardware : NULL;
}

sl_session_options serving_options(const settings *s) {
  bool stored = !strcmp(sl_arg_text(s->run, "dtype"), "stored"),
       rows = !strcmp(sl_arg_text(s->run, "chunks"), "rows");
  return (sl_session_options){.model = s->model,
                              .args = s->model_args,
                              .queue = (int)sl_arg_int(s->run, "queue"),
                              .chunks = rows ? SL_CHUNKS_ROWS : SL_CHUNKS_TIMES,
                              .penalties = true,
                              .adapters = s->adapters.folders,
                              .nadapters = s->adapters.count,
                              .adapter_places = (int)sl_arg_int(s->run, "adapter-places"),
                              .adapter_rank = (int)sl_arg_int(s->run, "adapter-rank"),
                              .kv = kv_storage(s),
                              .storage = is_fp8(s) ? SL_STORAGE_FP8 : SL_STORAGE_F32,
                              .stored = stored ? settings_text(s, "init") : NULL,
                              .training = s->training.nlora ? &s->training : NULL,
                              .lower = {.parallel.stages = s->lower.parallel.stages,
                                        .parallel.tensor = s->lower.parallel.tensor,
                                        .parallel.sequence = s->lower.parallel.sequence,
                                        .schedule.chunks = 1,
                                        .parallel.processes = s->lower.parallel.processes,
                                        .devices = s->lower.devices,
                                        .numbers.dtype = settings_dtype(s),
                                        .numbers.exact = s->lower.numbers.exact,
                                        .simulation.hardware = hardware_of(s),
                                        .schedule.name = s->lower.schedule.name,
                                        .numbers.seed = (uint64_t)sl_arg_int(s->run, "seed")}};
}

bool serving_has_arrivals(const settings *s) {
  return settings_text(s, "arrivals") || settings_text(s, "lengths");
}

/* Reads --lengths PROMPT,ANSWER[,VARIATION]. */
static sl_status read_lengths(const char *text, load_lengths *out) {
  enum { MOST = 1 << 24 };
  long long prompt = 0, answer = 0;
  double variation = 0;
  int two = -1, three = -1;
  sscanf(text, "%lld,%lld%n,%lf%n", &prompt, &answer, &two, &variation, &three);
  bool whole = (two > 0 && !text[two]) || (three > 0 && !text[three]);
  bool fine = whole && prompt >= 1 && answer >= 1 && prompt <= MOST && answer <= MOST &&
              variation >= 0 && variation < 1;
  *out = (load_lengths){prompt, answer, variation};
  if (fine) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--lengths %s: must be two numbers of tokens, and perhaps a fraction by which "
                 "answers vary, such as 1024,256 or 1024,256,0.1",
                 text);
}

/* Makes the requests of --lengths. */
static sl_status make_arrivals(settings *s, arrivals *out) {
  enum { EACH = 8 };
  const char *text = settings_text(s, "lengths");
  int64_t clients = sl_arg_int(s->run, "concurrency"), count = sl_arg_int(s->run, "requests");
  load_lengths lengths;
  sl_status status = read_lengths(text, &lengths);
  if (status) return status;
  if (!clients) return sl_fail(SL_E_USAGE, "--lengths %s: needs --concurrency N", text);
  arrivals_make(clients, count ? count : EACH * clients, &lengths,
                (uint64_t)sl_arg_int(s->run, "seed"), &s->arena, out);
  return SL_OK;
}

sl_status serving_arrivals(settings *s, arrivals *out) {
  const char *path = settings_text(s, "arrivals");
  if (path && settings_text(s, "lengths"))
    return sl_fail(SL_E_USAGE, "--lengths: cannot be combined with --arrivals");
  if (path && sl_arg_int(s->run, "requests"))
    return sl_fail(SL_E_USAGE, "--requests: cannot be combined with --arrivals");
  if (!path) return make_arrivals(s, out);
  double rate = sl_arg_float(s->run, "rate");
  sl_status status = arrivals_read(path, &s->arena, out);
  out->clients = sl_arg_int(s->run, "concurrency");
  for (int64_t i = 0; i < out->count && !status; i++) out->items[i].seconds /= rate;
  return status;
}

sl_status serving_cost(const settings *s, sl_tick_cost *out, bool *given, bool *whole) {
  const char *text = settings_text(s, "tick");
  *given = text;
  return text ? ticks_read(text, out, whole) : SL_OK;
}

/* ---- options that processes must share ------------------------------------------------------- */

sl_status serving_fingerprint(const settings *s, bool (*apart)(const char *name), fingerprint *t) {
  const char *init = settings_text(s, "init"), *adapter = s->adapter,
             *dot = strrchr(s->model_word, '.');
  bool code = dot && (!strcmp(dot, ".c") || !strcmp(dot, ".so") || !strcmp(dot, ".pt2"));
  *t = (fingerprint){0};
  fingerprint_add(t, sli_strdup("the model"), sli_strdup(s->model->name), NULL);
  for (const sl_option *o = s->model->options; o && o->name; o++)
    fingerprint_add_option(t, "--", o, s->model_args);
  fingerprint_add_options(t, s->options, s->run, apart);
  sl_status status = init ? fingerprint_add_weights(t, init) : SL_OK;
  if (!status && adapter) status = fingerprint_add_adapter(t, adapter);
  for (int i = 0; i < s->adapters.count && !status; i++)
    status = fingerprint_add_adapter(t, s->adapters.folders[i]);
  return !status && code ? fingerprint_add_file(t, s->model_word) : status;
}
