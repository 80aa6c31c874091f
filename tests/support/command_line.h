/* SPDX-License-Identifier: Apache-2.0 */
/* A dummy tool for tests, which parses command lines like the planning tools and makes the
 * plans. */
#ifndef SLUICE_TESTS_SUPPORT_COMMAND_LINE_H
#define SLUICE_TESTS_SUPPORT_COMMAND_LINE_H

#include <string.h>

#include "tools/cli/cli.h"
#include "tools/planner/planner.h"

static inline sl_status command_line_texts(settings *s) {
  s->microbatches = (int)sl_arg_int(s->run, "microbatches");
  s->pieces = (int)sl_arg_int(s->run, "pieces");
  s->lower.schedule.chunks = (int)sl_arg_int(s->run, "chunks");
  s->lower.schedule.name = sl_arg_text(s->run, "schedule");
  sl_status status = options_check_word("schedule", s->lower.schedule.name, sl_schedule_names());
  if (!status && !s->lower.schedule.chunks && strcmp(s->lower.schedule.name, "auto"))
    s->lower.schedule.chunks = sl_schedule_chunks(s->lower.schedule.name);
  return status;
}

static const tool_option command_line_options[] = {{0}}; /* the shared options only */
static const tool command_line_tool = {
    .name = "test", .purpose = "", .options = command_line_options, .read = command_line_texts};

/* Returns the amount of work in a step, summed over all stages and devices. */
static inline double command_line_size(const settings *s) {
  double devices = (double)s->lower.parallel.stages * s->lower.parallel.data *
                   s->lower.parallel.sequence * s->lower.parallel.tensor;
  return SLI_MAX(devices, s->lower.devices.count) * SLI_MAX(s->lower.schedule.chunks, 1) *
         s->microbatches * s->pieces;
}

/* Parses the words of a command line, and makes the plan if command_line_size() is at most
 * `most`. */
static inline sl_status command_line_read(int nwords, char **words, double most) {
  settings s;
  planned made;
  sl_status status = settings_read(&command_line_tool, nwords, words, &s);
  if (!status && !s.done && command_line_size(&s) <= most) {
    status = plan_make(&s, NULL, &made);
    if (!status) plan_free(&made);
  }
  settings_fini(&s);
  return status;
}

#endif
