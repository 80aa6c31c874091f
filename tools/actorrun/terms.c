#include "tools/actorrun/terms.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"
#include "io/shards.h"

/* Beside the model and its options. */
static const char *const of_results[] = {"microbatches", "pieces", "cut", "dtype", "seed", "shuffle"};

/* Of the others those that processes cannot have each for itself: what shapes the plan, how far
 * it runs, and what files are read and written. */
static const char *const of_job[] = {
    "stages",    "chunks",   "placement", "data-parallel", "sequence",   "sequence-attention",
    "sequence-layout", "tensor", "expert-parallel", "expert-tensor", "expert-rows", "layout",
    "assign",        "parallel",  "shard",    "grain",     "update",    "offload",   "piece-order",    "schedule",
    "backward",  "order",     "steps",    "init",      "save",          "checkpoint", "every",
    "resume",    "resume-with", "eval",   "eval-every",    "patience",   "best",
    "trace"};

/* And those of them that may be given several times. */
static const char *const repeated[] = {"sbp", "quota", "home", "recompute"};

/* Of results; what they say counts instead of what the model does. All texts that are given. */
static const char *const of_training[] = {"optimizer", "lr-schedule", "group", "freeze",
                                          "lora", "adapter"};

/* ---- values as text ---------------------------------------------------------------------- */

/* As short as it can be while it is the same number. */
static char *number_text(double value) {
  if (value == (double)(int)value) return sli_format("%d", (int)value);
  char *text = sli_format("%1.15g", value);
  if (strtod(text, NULL) == value) return text;
  free(text);
  return sli_format("%1.17g", value);
}

/* All that was given, in order. */
static char *given_text(const sl_args *args, const char *name) {
  char *text = sli_strdup("");
  for (int i = 0; sl_arg_given(args, name, i); i++) {
    char *longer = sli_format("%s%s%s", text, i ? " " : "", sl_arg_given(args, name, i));
    free(text);
    text = longer;
  }
  return text;
}

static char *value_text(const sl_args *args, const sl_option *o) {
  if (!o->value && !sl_arg_given(args, o->name, 0)) return sli_strdup("none");
  switch (o->kind) {
  case SL_OPTION_INT: return number_text((double)sl_arg_int(args, o->name));
  case SL_OPTION_FLOAT: return number_text(sl_arg_float(args, o->name));
  case SL_OPTION_FLAG: return sli_strdup(sl_arg_flag(args, o->name) ? "true" : "false");
  case SL_OPTION_LIST: return sl_arg_given(args, o->name, 0) ? given_text(args, o->name)
                                                               : sli_strdup(o->value);
  case SL_OPTION_TEXT: break;
  }
  return sli_strdup(sl_arg_text(args, o->name));
}

/* What it is where nobody says anything; NULL: it must be said. */
static char *usual_text(const sl_option *o) {
  if (!o->value) return NULL;
  switch (o->kind) {
  case SL_OPTION_INT:
  case SL_OPTION_FLOAT: return number_text(strtod(o->value, NULL));
  case SL_OPTION_FLAG: return sli_strdup("false");
  case SL_OPTION_LIST:
  case SL_OPTION_TEXT: break;
  }
  return sli_strdup(o->value);
}

/* ---- terms ------------------------------------------------------------------------------- */

/* Takes over the texts. */
static void add(terms *t, char *name, char *value, char *usual) {
  SLI_GROW(t->usual, t->count, t->usual_capacity);
  t->usual[t->count] = usual;
  SLI_GROW(t->items, t->count, t->capacity);
  t->items[t->count++] = (sl_term){name, value};
}

static const sl_option *find(const sl_option *options, const char *name) {
  while (options->name && strcmp(options->name, name)) options++;
  return options->name ? options : NULL;
}

static void add_options(terms *t, const settings *s, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const sl_option *o = find(s->options, names[i]);
    SLI_CHECK(o, "there is no option --%s", names[i]);
    add(t, sli_format("--%s", o->name), value_text(s->run, o), usual_text(o));
  }
}

static bool is_of_results(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(of_results); i++)
    if (!strcmp(of_results[i], name)) return true;
  return false;
}

/* A model may have an option of the same name as one of ours. */
static void add_model(terms *t, const settings *s) {
  for (const sl_option *o = s->model->options; o && o->name; o++)
    add(t, sli_format(is_of_results(o->name) ? "the model's --%s" : "--%s", o->name),
        value_text(s->model_args, o), usual_text(o));
}

/* Parameters in two slots train on older weights. */
static int parameter_slots(const settings *s) {
  int slots = 1;
  for (int i = 0; i < s->nquotas; i++)
    if (!strcmp(s->quotas[i].name, "param")) slots = s->quotas[i].slots;
  return slots;
}

static void add_training(terms *t, const settings *s) {
  for (size_t i = 0; i < SLI_COUNT(of_training); i++) {
    bool given = sl_arg_given(s->run, of_training[i], 0);
    add(t, sli_format("--%s", of_training[i]),
        given ? given_text(s->run, of_training[i]) : sli_strdup("none"), sli_strdup("none"));
  }
}

/* What the file says counts, not where it lies. One that cannot be read makes no plan. */
static void add_paths(terms *t, const settings *s) {
  const char *file = settings_text(s, "paths");
  uint64_t bytes, hash;
  char *text = file && !sli_file_fingerprint(file, &bytes, &hash)
                   ? sli_format("%" PRIu64 " bytes, hash %016" PRIx64, bytes, hash) : sli_strdup("none");
  add(t, sli_strdup("--paths"), text, sli_strdup("none"));
}

void terms_init(terms *t, const settings *s) {
  *t = (terms){0};
  add(t, sli_strdup("the model"), sli_strdup(s->model->name), NULL);
  add_options(t, s, of_results, SLI_COUNT(of_results));
  add_model(t, s);
  add(t, sli_strdup("--quota param"), sli_format("%d", parameter_slots(s)), NULL);
  add_training(t, s);
  add_paths(t, s);
  t->nresults = t->count;
  add_options(t, s, of_job, SLI_COUNT(of_job));
  for (size_t i = 0; i < SLI_COUNT(repeated); i++)
    add(t, sli_format("--%s", repeated[i]), given_text(s->run, repeated[i]), NULL);
}

void terms_fini(terms *t) {
  for (size_t i = 0; i < t->count; i++) {
    free((char *)t->items[i].name);
    free((char *)t->items[i].value);
    free((char *)t->usual[i]);
  }
  free(t->items);
  free(t->usual);
}

static void add_file(terms *t, const char *path, uint64_t bytes, uint64_t hash) {
  add(t, sli_strdup(path), sli_format("with %" PRIu64 " bytes, hash %016" PRIx64, bytes, hash), NULL);
}

/* A file, or all of a folder that weights are in. */
static sl_status add_weights(terms *t, const char *path) {
  sli_shards *from;
  sl_status status = sli_shards_open(path, &from);
  if (status) return status;
  for (int i = 0; i < sli_shards_count(from) && !status; i++) {
    uint64_t bytes, hash;
    status = sli_file_fingerprint(sli_shards_path(from, i), &bytes, &hash);
    if (!status) add_file(t, sli_shards_path(from, i), bytes, hash);
  }
  sli_shards_close(from);
  return status;
}

sl_status terms_add_files(terms *t, const settings *s, const sl_graph *g) {
  int n = sl_graph_files(g, 0, NULL);
  sl_graph_file *files = sli_calloc((size_t)n, sizeof *files);
  sl_graph_files(g, n, files);
  for (int i = 0; i < n; i++) add_file(t, files[i].path, files[i].bytes, files[i].hash);
  free(files);
  const char *init = settings_text(s, "init");
  return init ? add_weights(t, init) : SL_OK;
}
