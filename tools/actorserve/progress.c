/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/progress.h"

#include <stdio.h>

#include "base/base.h"

bool progress_is_due(progress *p) {
  const uint64_t pause = UINT64_C(10000000000);
  uint64_t now = sli_now_ns();
  if (!p->last_ns) p->last_ns = now;
  return now - p->last_ns >= pause;
}

static uint64_t ended(const sl_session_stats *x) {
  uint64_t sum = 0;
  for (int end = 0; end < SL_END_COUNT; end++) sum += x->ended[end];
  return sum;
}

/* Formats the acceptance of drafts, if there were any. */
static const char *format_drafts(char text[64], const progress *p, const sl_session_stats *x) {
  double rounds = (double)(x->rounds - p->rounds), drafted = (double)(x->drafted - p->drafted),
         accepted = (double)(x->accepted - p->accepted);
  *text = 0;
  if (rounds > 0)
    snprintf(text, 64, "; drafts %.0f%% right, %.2f tokens a round", 100 * accepted / drafted,
             1 + accepted / rounds);
  return text;
}

void progress_note(progress *p, const sl_session_stats *x) {
  uint64_t now = sli_now_ns();
  double seconds = (double)(now - p->last_ns) * 1e-9;
  double prompts = (double)(x->rows_prompt - p->rows_prompt) / seconds,
         answers = (double)(x->tokens - p->tokens) / seconds;
  char drafts[64];
  if (prompts > 0 || answers > 0 || x->running || x->queued)
    sli_log(
        "prompts %.1f tokens/s, answers %.1f tokens/s; %llu answered, %d running, %d waiting; "
        "KV cache %.1f%%%s",
        prompts, answers, (unsigned long long)(ended(x) - p->requests), x->running, x->queued,
        100 * (double)x->pages_used / (double)SLI_MAX(x->pages, 1), format_drafts(drafts, p, x));
  *p = (progress){now, x->rows_prompt, x->tokens, ended(x), x->rounds, x->drafted, x->accepted};
}
