/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/objective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/objective.h>
#include <sluice/state.h>

#include "graph/state/state.h"
#include "tools/cli/cli.h"
#include "tools/formats/formats.h"

/* Objective of a run, and the data that it reads during the run. */
struct objective_made {
  sl_objective *dpo, *distill, *bits; /* at most one is set; none with --rl distill */
  int64_t pairs, dropped;
  sli_chat_found found;
  const settings *settings;
  char *paths; /* paths of the preference files, one per line */
  sl_args *teacher_args;
  objective_teacher teacher;
};

/* ---- words of an option -------------------------------------------------------------------- */

/* One setting KEY=VALUE of an option's text. */
typedef struct word {
  const char *key;
  bool (*take)(void *to, const char *value);
} word;

static sl_status unknown_word(const char *option, const char *text, const word *words) {
  char *names = sli_strdup("");
  for (const word *w = words; w->key; w++) {
    char *more = sli_format("%s%s%s", names, w == words ? "" : ", ", w->key);
    free(names);
    names = more;
  }
  sl_fail(SL_E_USAGE, "--%s %s: must be KEY=VALUE,... with the keys %s, each in its range", option,
          text, names);
  free(names);
  return SL_E_USAGE;
}

/* Reads "beta=0.1,smoothing=0". */
static sl_status read_words(const char *option, const char *text, const word *words, void *to) {
  char *copy = sli_strdup(text), *rest = copy, *one;
  bool good = true;
  while (good && (one = strsep(&rest, ","))) {
    char *value = strchr(one, '=');
    if (value) *value++ = 0;
    const word *w = words;
    while (w->key && strcmp(w->key, one)) w++;
    good = !*one || (value && w->key && w->take(to, value));
  }
  free(copy);
  return good ? SL_OK : unknown_word(option, text, words);
}

static bool take_number(const char *value, double least, double most, float *to) {
  char *end;
  double x = strtod(value, &end);
  *to = (float)x;
  return end != value && !*end && x >= least && x <= most;
}

/* ---- preferences --------------------------------------------------------------------------- */

typedef struct dpo_words {
  sl_dpo dpo;
  sl_preferences from;
} dpo_words;

static bool take_beta(void *to, const char *value) {
  return take_number(value, 1e-6, 1e6, &((dpo_words *)to)->dpo.beta);
}
static bool take_smoothing(void *to, const char *value) {
  return take_number(value, 0, 0.499, &((dpo_words *)to)->dpo.smoothing);
}
static bool take_long(void *to, const char *value) {
  bool drop = !strcmp(value, "drop");
  ((dpo_words *)to)->from.drop = drop;
  return drop || !strcmp(value, "refuse");
}
static const word dpo_keys[] = {
    {"beta", take_beta}, {"smoothing", take_smoothing}, {"long", take_long}, {0}};

/* Finds the end token and the chat template. A template is required only if the data has
 * messages. */
static sl_status find_chat(struct objective_made *m, dpo_words *w) {
  const settings *s = m->settings;
  const char *name = settings_text(s, "chat-template");
  const sli_chat *chat = NULL;
  if (!s->data.tokenizer) return SL_OK;
  SLI_TRY(sli_chat_find(s->data.tokenizer, &m->found));
  if (name) SLI_TRY(sli_chat_choose(&m->found, s->data.tokenizer, name, &chat));
  sli_chat_free(chat);
  w->from.end = m->found.marks.end;
  w->from.chat_template = name;
  return SL_OK;
}

static const sl_option *find_option(const settings *s, const char *name) {
  return sl_options_find(s->model->options, name);
}

/* Lists the files, one per line. */
static char *list_paths(const settings *s) {
  char *all = sli_strdup("");
  const char *path;
  for (int i = 0; (path = sl_arg_given(s->run, "preferences", i)); i++) {
    char *more = sli_format("%s%s%s", all, i ? "\n" : "", path);
    free(all);
    all = more;
  }
  return all;
}

/* Reads the pairs now if the model has a maximum length, so that errors in the data are reported
 * first. */
static sl_status count_pairs(const settings *s, struct objective_made *m) {
  if (!find_option(s, "context") || !find_option(s, "vocab")) return SL_OK;
  return sl_dpo_pairs(m->dpo, sl_arg_int(s->model_args, "context"),
                      sl_arg_int(s->model_args, "vocab"), &m->pairs, &m->dropped);
}

static sl_status read_dpo(settings *s, struct objective_made *m) {
  dpo_words w = {.dpo = {.beta = 0.1f}};
  if (find_option(s, "data") && sl_arg_given(s->model_args, "data", 0))
    return sl_fail(SL_E_USAGE, "--preferences: replaces --data; give one of them");
  if (s->pieces > 1 || s->lower.parallel.sequence > 1)
    return sl_fail(
        SL_E_USAGE,
        "--preferences: cannot be combined with %s: the loss needs the probabilities of whole answers, over all positions",
        s->pieces > 1 ? "--pieces" : "--sequence");
  sl_status status = read_words("dpo", sl_arg_text(s->run, "dpo"), dpo_keys, &w);
  if (!status) status = find_chat(m, &w);
  if (status) return status;
  w.from.paths = m->paths = list_paths(s);
  w.from.tokenizer = s->data.tokenizer;
  m->dpo = sl_dpo_create(&w.from, &w.dpo);
  s->objective = m->dpo;
  return count_pairs(s, m);
}

/* ---- a teacher ------------------------------------------------------------------------------ */

static bool take_top(void *to, const char *value) {
  char *end;
  long top = strtol(value, &end, 10);
  ((sl_distill *)to)->top = (int)top;
  return end != value && !*end && top >= 0 && top < 1 << 24;
}
static bool take_temperature(void *to, const char *value) {
  return take_number(value, 1e-3, 1e3, &((sl_distill *)to)->temperature);
}
static bool take_data(void *to, const char *value) {
  return take_number(value, 0, 1, &((sl_distill *)to)->data);
}
static const word distill_keys[] = {
    {"top", take_top}, {"temperature", take_temperature}, {"data", take_data}, {0}};

/* Reads "kl" or "kl:top=64,temperature=2". */
static sl_status read_distill(const char *text, sl_distill *out) {
  *out = (sl_distill){.top = 64, .temperature = 1};
  if (!strcmp(text, "kl")) return SL_OK;
  if (strncmp(text, "kl:", 3))
    return sl_fail(SL_E_USAGE, "--distill %s: must be kl, as in kl:top=64,temperature=1", text);
  return read_words("distill", text + 3, distill_keys, out);
}

/* Copies an option of the model to the teacher. */
static sl_status copy_option(const settings *s, const settings *teacher, const char *name) {
  if (!find_option(s, name) || !find_option(teacher, name)) return SL_OK;
  const char *value, *usual = find_option(s, name)->value;
  bool given = sl_arg_given(s->model_args, name, 0);
  sl_status status = !given && usual ? sl_args_set(teacher->model_args, name, usual) : SL_OK;
  for (int i = 0; (value = sl_arg_given(s->model_args, name, i)) && !status; i++)
    status = sl_args_set(teacher->model_args, name, value);
  return status;
}

/* Sets the teacher's options from its files, and copies the options that it shares with the
 * model. */
static sl_status set_options(const settings *s, settings *teacher, const char *path) {
  static const char *const shared[] = {"data", "batch", "context"};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(shared) && !status; i++)
    status = copy_option(s, teacher, shared[i]);
  if (status) return status;
  pretrained p = settings_pretrained(teacher);
  p.init = path;
  return pretrained_read(&p);
}

static sl_status read_teacher(const settings *s, struct objective_made *m, const char *path,
                              const sl_model **out) {
  const char *name = NULL;
  sl_status status = pretrained_model(path, &name);
  if (!status && !name)
    return sl_fail(
        SL_E_USAGE,
        "--teacher %s: must be a Hugging Face folder or a GGUF file, which name the model", path);
  if (!status) status = model_find(name, NULL, out);
  if (!status) status = sl_args_create((*out)->options, &m->teacher_args);
  if (status) return status;
  settings teacher = *s;
  teacher.model = *out;
  teacher.model_args = m->teacher_args;
  return set_options(s, &teacher, path);
}

/* Creates the distillation objective. With --rl distill the rollouts create it instead. */
static sl_status read_distillation(settings *s, struct objective_made *m) {
  objective_teacher *t = &m->teacher;
  const char *path = settings_text(s, "teacher");
  sl_status status = read_distill(sl_arg_text(s->run, "distill"), &t->settings);
  if (!status) status = read_teacher(s, m, path, &t->model);
  if (status) return status;
  t->args = m->teacher_args;
  if (settings_text(s, "rl")) return SL_OK;
  m->distill = sl_distill_create(t->model, t->args, &t->settings);
  s->objective = m->distill;
  return SL_OK;
}

/* ---- bit routers ---------------------------------------------------------------------------- */

static bool take_alpha(void *to, const char *value) {
  return take_number(value, 0, 1e6, &((sl_bits *)to)->alpha);
}

/* Reads a share for each width: ".3/.4/.3". */
static bool take_capacity(void *to, const char *value) {
  sl_bits *bits = to;
  int count = bits->width - bits->base + 1, n = 0;
  char *copy = sli_strdup(value), *rest = copy, *one;
  double all = 0;
  bool good = true;
  while (good && (one = strsep(&rest, "/"))) {
    good = n < count && take_number(one, 1e-6, 1, &bits->capacity[n]);
    if (good) all += (double)bits->capacity[n++];
  }
  free(copy);
  return good && n == count && all > 1 - 1e-6;
}
static const word bits_keys[] = {{"alpha", take_alpha}, {"capacity", take_capacity}, {0}};

static sl_status read_bits(settings *s, struct objective_made *m) {
  const char *text = settings_text(s, "planes"), *keys;
  sl_bits bits = {0};
  SLI_TRY(planes_read(text, &bits.base, &bits.width, &keys));
  if (*keys) SLI_TRY(read_words("planes", keys + 1, bits_keys, &bits));
  if (!sl_arg_int(s->run, "steps"))
    return sl_fail(SL_E_USAGE, "--planes %s: bit routers are trained, which takes --steps", text);
  m->bits = sl_bits_create(&bits);
  s->objective = m->bits;
  return SL_OK;
}

bool objective_routes_bits(const settings *s) {
  return s->objective_made && s->objective_made->bits;
}

/* Returns whether --planes asks for bit routers. */
static bool is_routed(const settings *s) {
  const char *planes = settings_text(s, "planes"), *routed = NULL;
  return planes && !planes_read(planes, &(int){0}, &(int){0}, &routed) && routed;
}

objective_teacher objective_taught(const settings *s) {
  return s->objective_made ? s->objective_made->teacher : (objective_teacher){.model = NULL};
}

sl_status objective_load(const settings *s, const sl_lowered *lowered, sl_runtime *rt) {
  const char *path = settings_text(s, "teacher");
  return path ? sli_weights_load_teacher(path, lowered, rt) : SL_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

sl_status objective_read(settings *s) {
  bool pairs = sl_arg_given(s->run, "preferences", 0), teacher = settings_text(s, "teacher"),
       bits = is_routed(s);
  if (!pairs && sl_arg_given(s->run, "dpo", 0))
    return sl_fail(SL_E_USAGE, "--dpo: needs --preferences FILE");
  if (!teacher && sl_arg_given(s->run, "distill", 0))
    return sl_fail(SL_E_USAGE, "--distill: needs --teacher DIR");
  if (pairs && settings_text(s, "rl"))
    return sl_fail(SL_E_USAGE,
                   "--preferences: cannot be combined with --rl: a run has one objective");
  if (pairs && teacher)
    return sl_fail(SL_E_USAGE,
                   "--teacher: cannot be combined with --preferences: a run has one objective");
  if (bits && (pairs || teacher || settings_text(s, "rl")))
    return sl_fail(SL_E_USAGE, "--planes %s: cannot be combined with %s: a run has one objective",
                   settings_text(s, "planes"),
                   pairs     ? "--preferences"
                   : teacher ? "--teacher"
                             : "--rl");
  if ((!pairs && !teacher && !bits) || !s->model) return SL_OK;
  s->objective_made = sli_calloc(1, sizeof *s->objective_made);
  s->objective_made->settings = s;
  return pairs     ? read_dpo(s, s->objective_made)
         : teacher ? read_distillation(s, s->objective_made)
                   : read_bits(s, s->objective_made);
}

int64_t objective_pairs(const settings *s, int64_t *dropped) {
  *dropped = s->objective_made ? s->objective_made->dropped : 0;
  return s->objective_made ? s->objective_made->pairs : 0;
}

void objective_fini(settings *s) {
  struct objective_made *m = s->objective_made;
  if (!m) return;
  sl_dpo_destroy(m->dpo);
  sl_distill_destroy(m->distill);
  sl_bits_destroy(m->bits);
  sli_chat_found_fini(&m->found);
  sl_args_destroy(m->teacher_args);
  free(m->paths);
  free(m);
  s->objective_made = NULL;
}
