/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/progress.h"

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

void progress_note(progress *p, const sl_session_stats *x) {
  uint64_t now = sli_now_ns();
  double seconds = (double)(now - p->last_ns) * 1e-9;
  double prompts = (double)(x->rows_prompt - p->rows_prompt) / seconds,
         answers = (double)(x->tokens - p->tokens) / seconds;
  if (prompts > 0 || answers > 0 || x->running || x->queued)
    sli_log(
        "prompts %.1f tokens/s, answers %.1f tokens/s; %llu answered, %d running, %d waiting; "
        "KV cache %.1f%%",
        prompts, answers, (unsigned long long)(ended(x) - p->requests), x->running, x->queued,
        100 * (double)x->pages_used / (double)SLI_MAX(x->pages, 1));
  *p = (progress){now, x->rows_prompt, x->tokens, ended(x)};
}
