/* SPDX-License-Identifier: Apache-2.0 */
/* actorrun commands for points of the frontier. */
#include "base/memory.h"
#include "tools/actortune/actortune.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- a point's words ------------------------------------------------------------------------ */

/* Adds --memory; the sweep's 1G..8G is a plan's 8G. */
static void memory_words(const tuning *t, words *to) {
  const char *text = settings_text(t->settings, "memory"), *dots = text ? strstr(text, "..") : NULL;
  if (!text) return;
  words_add(to, "--memory");
  words_add(to, "%s", dots ? dots + 2 : text);
}

/* Prints the quotas of one name: "act.b=4,3,2,1", "dy@2=3,-,2", or "fwd=2" for all stages. */
static void print_quotas(const point *p, const char *name, FILE *out) {
  int first = INT_MAX, last = -1;
  fputs(name, out);
  for (int i = 0; i < p->nquotas; i++) {
    const quota_value *q = &p->quotas[i];
    if (strcmp(q->name, name)) continue;
    if (q->stage == SL_NONE) {
      fprintf(out, "=%d", q->slots);
      return;
    }
    first = SLI_MIN(first, q->stage);
    last = SLI_MAX(last, q->stage);
  }
  if (first || first == last) fprintf(out, "@%d", first);
  for (int stage = first; stage <= last; stage++) {
    int slots = 0;
    for (int i = 0; i < p->nquotas && !slots; i++)
      if (p->quotas[i].stage == stage && !strcmp(p->quotas[i].name, name))
        slots = p->quotas[i].slots;
    fputs(stage == first ? "=" : ",", out);
    if (slots) fprintf(out, "%d", slots);
    else fputc('-', out);
  }
}

char *quota_text(const point *p, int i) {
  for (int j = 0; j < i; j++)
    if (!strcmp(p->quotas[j].name, p->quotas[i].name)) return NULL;
  char *text = NULL;
  size_t bytes;
  FILE *out = sli_memory_stream(&text, &bytes);
  print_quotas(p, p->quotas[i].name, out);
  fclose(out);
  return text;
}

static void quota_words(const point *p, words *to) {
  for (int i = 0; i < p->nquotas; i++) {
    char *text = quota_text(p, i);
    if (!text) continue;
    words_add(to, "--quota");
    words_add(to, "%s", text);
    free(text);
  }
}

/* Returns whether command_words() writes the option itself, or omits it. */
static bool is_written_apart(const sl_option *o) {
  static const char *const names[] = {"stages", "quota", "home", "recompute", "version", "help"};
  for (const tool_option *own = actortune_tool.options; own->name; own++)
    if (!strcmp(own->name, o->name)) return true;
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (!strcmp(names[i], o->name)) return true;
  return false;
}

/* Adds the placements found. The user's options follow and override them. */
static void home_words(const config *c, words *to) {
  static const char *const options[] = {"home", "recompute"};
  char *found = sli_strdup(c->homes ? c->homes : ""), *state = NULL;
  for (char *word = strtok_r(found, " ", &state); word; word = strtok_r(NULL, " ", &state))
    words_add(to, "%s", word);
  free(found);
  for (size_t o = 0; o < SLI_COUNT(options); o++) {
    const char *text;
    for (int i = 0; (text = sl_arg_given(c->settings.run, options[o], i)); i++)
      if (strcmp(text, "auto")) words_add(to, "--%s", options[o]), words_add(to, "%s", text);
  }
}

/* Adds the words in the order of a help page: options common to all plans, this plan's values, the
 * model. */
void command_words(const tuning *t, const point *p, words *to) {
  const config *c = &t->configs[p->config];
  const settings *s = &c->settings;
  for (const sl_option *o = s->options; o->name; o++)
    if (!is_written_apart(o)) words_run(s, o, to);
  words_add(to, "--stages");
  words_add(to, "%d", s->lower.parallel.stages);
  words_add(to, "--microbatches");
  words_add(to, "%d", s->microbatches);
  if (s->pieces > 1) words_add(to, "--pieces"), words_add(to, "%d", s->pieces);
  words_add(to, "--schedule");
  words_add(to, "%s", s->lower.schedule.name);
  if (s->lower.schedule.chunks != sl_schedule_chunks(s->lower.schedule.name))
    words_add(to, "--chunks"), words_add(to, "%d", s->lower.schedule.chunks);
  home_words(c, to);
  quota_words(p, to);
  const char *quota; /* the user's quotas remain in force: the last one wins */
  for (int i = 0; (quota = sl_arg_given(s->run, "quota", i)); i++)
    words_add(to, "--quota"), words_add(to, "%s", quota);
  char *cost = cost_text(&s->lower.simulation.cost);
  if (*cost) words_add(to, "--cost"), words_add(to, "%s", cost);
  free(cost);
  if (c->profile_path) words_add(to, "--profile"), words_add(to, "%s", c->profile_path);
  memory_words(t, to);
  words_model(t->settings, to);
}

char *command_line(const tuning *t, const point *p) {
  words w = {0};
  command_words(t, p, &w);
  char *line = words_line(&w);
  words_fini(&w);
  return line;
}
