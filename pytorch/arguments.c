/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of calls. A call is refused if it has an argument that was not read and that does not
 * have its default, as listed in arguments.def. */
#include <stdlib.h>
#include <string.h>

#include "pytorch/import.h"

static const struct {
  const char *target, *defaults;
} calls[] = {
#define ARGUMENTS(target, text) {target, text},
#include "pytorch/arguments.def"
#undef ARGUMENTS
};

/* Returns the defaults of a call. A write to a view has the arguments of the view. */
static const char *defaults_of(const char *target) {
  if (!strncmp(target, "put.", 4)) target += 4;
  for (size_t i = 0; i < SLI_COUNT(calls); i++)
    if (!strcmp(calls[i].target, target)) return calls[i].defaults;
  return "";
}

/* An entry of a call's defaults: NAME=VALUE or NAME*. */
typedef struct entry {
  const char *value; /* NULL: silent, it need not be read */
  size_t length;
  bool keyword;
} entry;

static bool find_entry(const char *text, const char *name, entry *out) {
  size_t length = strlen(name);
  *out = (entry){0};
  while (*text) {
    const char *end = text + strcspn(text, " ");
    bool same = !strncmp(text, name, length) && strchr("=*", text[length]);
    if (*text == '|') out->keyword = true;
    if (same && text[length] == '=')
      out->value = text + length + 1, out->length = (size_t)(end - out->value);
    if (same) return true;
    text = end + strspn(end, " ");
  }
  return false;
}

static bool equals(const entry *e, const sli_pt_arg *arg) {
  char text[64];
  if (e->length >= sizeof text) return false;
  memcpy(text, e->value, e->length);
  text[e->length] = 0;
  char *end;
  double number = strtod(text, &end);
  bool numeric = end != text && !*end;
  switch (arg->kind) {
  case SLI_PT_INT: return numeric && (double)arg->i == number;
  case SLI_PT_FLOAT: return numeric && arg->f == number;
  case SLI_PT_FLAG: return !strcmp(text, arg->flag ? "True" : "False");
  case SLI_PT_TEXT: return !strcmp(text, arg->text);
  case SLI_PT_LIST:
    for (int i = 0; i < arg->list.count; i++)
      if (!equals(e, &arg->list.of[i])) return false;
    return arg->list.count ? numeric : !strcmp(text, "[]");
  case SLI_PT_ABSENT: return true;
  case SLI_PT_VALUE:
  case SLI_PT_DTYPE:
  case SLI_PT_OTHER: break;
  }
  return false;
}

void sli_pt_forget_arguments(const sli_pt_node *n) {
  for (int i = 0; i < n->nargs; i++) n->args[i].read = false;
}

const sli_pt_arg *sli_pt_unread(const sli_pt_node *n, const char **wanted) {
  const char *text = defaults_of(n->target);
  entry e;
  for (int i = 0; i < n->nargs; i++) {
    const sli_pt_arg *arg = &n->args[i];
    if (arg->read || arg->kind == SLI_PT_ABSENT) continue;
    bool known = find_entry(text, arg->name, &e);
    if (known && (!e.value || equals(&e, arg))) continue;
    *wanted = known ? e.value : NULL;
    return arg;
  }
  return NULL;
}

bool sli_pt_plain(const sli_pt_node *n) {
  const char *text = defaults_of(n->target);
  entry e;
  for (int i = 0; i < n->nargs; i++)
    if (find_entry(text, n->args[i].name, &e) && e.keyword && e.value && !equals(&e, &n->args[i]))
      return false;
  return true;
}
