/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of actortrace show. */
#ifndef SLUICE_TOOLS_ACTORTRACE_SHOW_H
#define SLUICE_TOOLS_ACTORTRACE_SHOW_H

#include "tools/actortrace/actortrace.h"

typedef struct shower {
  const analysis *a;
  const sl_plan *plan;
  FILE *out;
  int width;
  bool color;
  step_range range; /* steps of the tables */
  int64_t step;     /* step of the picture */
  advices advices;
  char *no_advice; /* reason why there is no advice, or NULL */
  int32_t device;  /* -1 for all */
  bool queues;
} shower;

/* Columns before the text of an entry: a time and a percentage. */
enum { ENTRY_INDENT = 18 };

void show_heading(const shower *s, const char *text);
static inline double percent(uint64_t part, uint64_t whole) {
  return whole ? 100 * (double)part / (double)whole : 0;
}
int name_width(const shower *s);
static inline bool is_shown(const shower *s, int32_t device) {
  return s->device < 0 || s->device == device;
}

void draw_step(const shower *s);   /* draws the step as a picture */
void print_waits(const shower *s); /* prints what idle devices waited for, and the causes */
void print_path(const shower *s);  /* prints the critical path of the step */

#endif
