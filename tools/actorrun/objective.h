/* SPDX-License-Identifier: Apache-2.0 */
/* --preferences and --dpo, --teacher and --distill, --planes A..B,routed: objectives that replace
 * the next-token loss. */
#ifndef SLUICE_TOOLS_ACTORRUN_OBJECTIVE_H
#define SLUICE_TOOLS_ACTORRUN_OBJECTIVE_H

#include <sluice/objective.h>

#include "text/chats/chats.h"
#include "tools/cli/cli.h"

/* Creates the objective that the options name, if any, as settings.objective. The model's options
 * must be known. SL_E_USAGE names an option, SL_E_INPUT a file and a line. */
sl_status objective_read(settings *s);
void objective_fini(settings *s);

/* Returns the number of preference pairs, or 0 if there are none; *dropped counts pairs that are
 * too long. */
int64_t objective_pairs(const settings *s, int64_t *dropped);

/* Returns whether bit routers are trained, which weights may lack. */
bool objective_routes_bits(const settings *s);

/* Teacher of --rl distill, and the settings of the distillation. */
typedef struct objective_teacher {
  sl_distill settings;
  const sl_model *model; /* NULL if there is none */
  const sl_args *args;
} objective_teacher;
objective_teacher objective_taught(const settings *s);

/* Loads the teacher's weights, if there is one. */
sl_status objective_load(const settings *s, const sl_lowered *lowered, sl_runtime *rt);

#endif
