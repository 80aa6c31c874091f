/* SPDX-License-Identifier: Apache-2.0 */
/* The model in a checkpoint's record: its ops in order, each with a hash, and the optimizer's
 * settings. Resuming with an edited model would use weights trained for a different one. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/build/build.h"
#include "graph/state/checkpoint.h"
#include "graph/compile/compile.h"
#include "graph/state/state.h"

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* ---- the graph ---------------------------------------------------------------------------- */

/* Formats an op: "h.3/gelu.1 0123456789abcdef". */
static void sign(char out[256], const struct sli_fingerprint *s) {
  snprintf(out, 256, "%.200s %016" PRIx64, s->name, s->hash);
}

static void compare_op(const char *path, const struct sli_fingerprint *is, const char *was,
                       sli_differences *d) {
  char now[256];
  sign(now, is);
  int name = (int)(strrchr(was, ' ') ? strrchr(was, ' ') - was : (ptrdiff_t)strlen(was));
  if (strncmp(now, was, (size_t)name + 1))
    sli_differ(d, "graph", "the model has %s where %s has %.*s", is->name, path, name, was);
  else
    sli_differ(d, "graph", "%s has other settings or inputs than when %s was made", is->name, path);
}

/* Compares ops and reports the first difference only, since its readers differ too. */
static void compare_graph(const char *path, const sli_fingerprints *is, const cJSON *was,
                          sli_differences *d) {
  char now[256];
  int i = 0;
  const cJSON *op;
  cJSON_ArrayForEach(op, was) {
    if (i == is->count || !cJSON_IsString(op)) break;
    sign(now, &is->items[i]);
    if (strcmp(now, op->valuestring)) {
      compare_op(path, &is->items[i], op->valuestring, d);
      return;
    }
    i++;
  }
  if (i < is->count || op)
    sli_differ(d, "graph", "the model has %d parameters and ops, but %s was made with %d",
               is->count, path, cJSON_GetArraySize(was));
}

static void note_graph(const sli_record *r, const sli_fingerprints *s, sli_differences *d) {
  cJSON *list = cJSON_AddArrayToObject(r->about, "graph");
  char text[256];
  for (int i = 0; i < s->count; i++) {
    sign(text, &s->items[i]);
    cJSON_AddItemToArray(list, cJSON_CreateString(text));
  }
  const cJSON *was = r->from ? member(sli_checkpoint_about(r->from), "graph") : NULL;
  if (was) compare_graph(sli_checkpoint_path(r->from), s, was, d);
}

/* ---- the optimizer ------------------------------------------------------------------------ */

static const struct {
  const char *name;
  size_t offset;
  bool whole; /* an int64_t, not a float */
} settings[] = {
    {"lr", offsetof(sl_optimizer, lr), false},
    {"min-lr", offsetof(sl_optimizer, min_lr), false},
    {"warmup", offsetof(sl_optimizer, warmup), true},
    {"decay-steps", offsetof(sl_optimizer, decay_steps), true},
    {"beta1", offsetof(sl_optimizer, beta1), false},
    {"beta2", offsetof(sl_optimizer, beta2), false},
    {"eps", offsetof(sl_optimizer, eps), false},
    {"weight-decay", offsetof(sl_optimizer, weight_decay), false},
    {"clip", offsetof(sl_optimizer, clip), false},
    {"momentum", offsetof(sl_optimizer, momentum), false},
    {"lr-scale", offsetof(sl_optimizer, lr_scale), false},
    {"decay-begin", offsetof(sl_optimizer, decay_begin), true},
};

/* Formats the settings that are not numbers: "sgd, nesterov, schedule 2". */
static void kind(const sl_optimizer *o, char out[128]) {
  snprintf(out, 128, "%.80s%s, schedule %d%s", o->rule->name, o->nesterov ? ", nesterov" : "",
           (int)o->schedule, o->rate ? " of the model's own" : "");
}

bool sli_optimizer_has(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(settings); i++)
    if (!strcmp(settings[i].name, name)) return true;
  return !strcmp(name, "optimizer");
}

/* Formats a setting with the fewest digits that parse back to the same number. */
static void setting(const sl_optimizer *o, size_t i, char out[128]) {
  const char *at = (const char *)o + settings[i].offset;
  if (settings[i].whole) {
    snprintf(out, 32, "%lld", (long long)*(const int64_t *)at);
    return;
  }
  float value = *(const float *)at;
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(out, 32, "%.*g", digits, (double)value);
    if (strtof(out, NULL) == value) return;
  }
}

static void note_setting(const sli_record *r, const char *name, const char *value, cJSON *to,
                         const cJSON *was, sli_differences *d) {
  cJSON_AddStringToObject(to, name, value);
  const cJSON *before = member(was, name);
  if (cJSON_IsString(before) && strcmp(before->valuestring, value))
    sli_differ(d, name, "the optimizer's %s is %s, but %s was made with %s", name, value,
               sli_checkpoint_path(r->from), before->valuestring);
}

static void note_optimizer(const sli_record *r, const sl_optimizer *o, sli_differences *d) {
  cJSON *to = cJSON_AddObjectToObject(r->about, "optimizer");
  const cJSON *was = r->from ? member(sli_checkpoint_about(r->from), "optimizer") : NULL;
  char value[128];
  for (size_t i = 0; i < SLI_COUNT(settings); i++) {
    setting(o, i, value);
    note_setting(r, settings[i].name, value, to, was, d);
  }
  kind(o, value);
  note_setting(r, "optimizer", value, to, was, d);
}

void sli_model_note(const sli_record *r, const sl_graph *g, const sl_lowered *lowered,
                    sli_differences *d) {
  note_graph(r, sli_lowered_fingerprints(lowered), d);
  note_optimizer(r, &g->training.optimizer, d);
}
