/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/counts.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/base.h"

const count counts[COUNTS] = {
    {"pages", "pages of keys and values that there are", false},
    {"pages_used", "of these, in use", false},
    {"pages_most", "of these, in use at once so far, at most", false},
    {"queued", "answers that wait to be begun", false},
    {"running", "answers under way", false},
    {"requests", "answers begun", true},
    {"ticks", "passes of the model", true},
    {"rows", "rows computed", true},
    {"rows_prompt", "of these, of prompts", true},
    {"rows_again", "of these, computed a second time", true},
    {"rows_shared", "rows not computed, as a page of another answer had them", true},
    {"pages_shared", "pages of other answers that an answer began with", true},
    {"states_kept", "states kept beside pages, from which others go on", true},
    {"pages_kept", "pages in the room of --prefix-caching host:SIZE or disk:SIZE", false},
    {"pages_written", "pages copied to that room", true},
    {"pages_read", "pages copied back from it", true},
    {"tokens", "tokens that the model wrote", true},
    {"preemptions", "answers that gave up their pages for a while", true},
    {"draft_rounds", "drafts of next tokens that were checked", true},
    {"drafted", "tokens of these", true},
    {"drafts_accepted", "of these, those that the model chose too", true},
    {"drafts_checked", "of these, those up to the first wrong one of each draft, with it", true},
    {"experts_wanted", "experts, or planes of them, that a layer's rows wanted", true},
    {"experts_held", "of these, those that were in memory", true},
    {"experts_read", "of these, those read from disk when they were wanted", true},
    {"expert_bytes_read", "bytes of these", true},
    {"experts_guessed", "experts, or planes of them, read ahead by --prefetch, or begun to be",
     true},
    {"experts_guessed_right", "of these, those that their ticks wanted", true},
    {"expert_bytes_guessed", "bytes read ahead", true},
    {"expert_bytes_wasted", "of these, bytes that their ticks did not want", true},
    {"table_rows_read", "rows of tables read from disk", true},
    {"table_bytes_read", "bytes of their pages", true},
    {"attention_choices", "heads of chunks of prompts that chose the pages they attend to", true},
    {"attention_recall", "sum over these of the weights that the pages hold, in millionths", true},
    {"replayed", "passes of stages that were replayed as CUDA graphs", true}};

static uint64_t less(uint64_t n, uint64_t by) { return n - SLI_MIN(by, n); }

void counts_list(const sl_session_stats *x, uint64_t out[COUNTS]) {
  const uint64_t all[COUNTS] = {(uint64_t)x->pages,
                                (uint64_t)x->pages_used,
                                (uint64_t)x->pages_most,
                                (uint64_t)x->queued,
                                (uint64_t)x->running,
                                x->requests,
                                x->ticks,
                                x->rows,
                                x->rows_prompt,
                                x->rows_again,
                                x->rows_shared,
                                x->pages_shared,
                                x->states_kept,
                                (uint64_t)x->pages_kept,
                                x->pages_written,
                                x->pages_read,
                                x->tokens,
                                x->preemptions,
                                x->rounds,
                                x->drafted,
                                x->accepted,
                                x->checked,
                                x->experts.wanted,
                                less(x->experts.wanted, x->experts.read + x->experts.right),
                                x->experts.read,
                                x->experts.bytes,
                                x->experts.guessed,
                                x->experts.right,
                                x->experts.guessed_bytes,
                                less(x->experts.guessed_bytes, x->experts.right_bytes),
                                x->tables.rows,
                                x->tables.bytes,
                                x->choices.heads,
                                x->choices.recall,
                                x->replayed};
  memcpy(out, all, sizeof all);
}

const limit limits[LIMITS] = {{"kv", "pages on each stage"},
                              {"rows", "rows of a tick"},
                              {"sequences", "answers under way"},
                              {"groups", "ticks under way"},
                              {"queue", "answers that wait"}};

void limits_list(const sl_session_limits *x, int64_t out[LIMITS]) {
  const int64_t all[LIMITS] = {x->pages, x->rows, x->sequences, x->groups, x->queue};
  memcpy(out, all, sizeof all);
}

sl_session_limits limits_of(const int64_t n[LIMITS]) {
  return (sl_session_limits){
      .pages = n[0], .rows = n[1], .sequences = (int)n[2], .groups = (int)n[3], .queue = (int)n[4]};
}

void counts_add(cJSON *to, const sl_session_stats *x) {
  uint64_t n[COUNTS];
  int64_t most[LIMITS];
  counts_list(x, n);
  limits_list(&x->limits, most);
  for (int i = 0; i < COUNTS; i++) cJSON_AddNumberToObject(to, counts[i].name, (double)n[i]);
  cJSON *ended = cJSON_AddObjectToObject(to, "ended"),
        *within = cJSON_AddObjectToObject(to, "limits");
  for (int e = 0; e < SL_END_COUNT; e++)
    cJSON_AddNumberToObject(ended, sl_end_name((sl_end)e), (double)x->ended[e]);
  for (int i = 0; i < LIMITS; i++) cJSON_AddNumberToObject(within, limits[i].name, (double)most[i]);
}
