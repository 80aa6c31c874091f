/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk lengths for chunked prefill.
 *
 * Next to other requests, a prompt takes the rows that are left. A prompt that runs alone on
 * several stages is different: its last chunks would take longest, because they attend to the most
 * positions. Stages idle while the first chunks are on the first stage and the last chunks on the
 * last. Chunks are therefore cut to take equal time, as far as a tick's rows allow. P stages that
 * each take t_i for chunk i finish after sum(t) + (P - 1) max(t); the search picks the t that
 * minimizes this. */
#include <math.h>
#include <string.h>

#include "ops/attention_blocks.h"
#include "serve/serve.h"

static int stages_of(const sl_session *s) {
  return SLI_MAX(s->options.lower.parallel.stages, 1) *
         SLI_MAX(s->options.lower.schedule.chunks, 1);
}

static double seconds_of(const sl_tick_cost *c, int64_t fed, int64_t rows) {
  return sli_price_tick(c, &(load){.rows = rows,
                                   .positions = (double)fed,
                                   .pairs = (double)rows * (double)(2 * fed + rows)});
}

/* Returns the most rows after `fed` positions that take at most `seconds`; at least 1. */
static int64_t rows_within(const sl_tick_cost *c, int64_t fed, double seconds, int64_t most) {
  int64_t good = 1, bad = most + 1;
  while (bad - good > 1) {
    int64_t middle = good + (bad - good) / 2;
    if (seconds_of(c, fed, middle) <= seconds) good = middle;
    else bad = middle;
  }
  return good;
}

/* Returns the seconds for the rest of a prompt if no chunk takes longer than `pace`. */
static double whole(const sl_session *s, const request *r, double pace) {
  const sl_tick_cost *c = s->options.cost;
  double sum = 0, longest = 0;
  for (int64_t fed = r->progress.fed, rows; fed < r->text.count; fed += rows) {
    rows = SLI_MIN(rows_within(c, fed, pace, s->about.rows), r->text.count - fed);
    double seconds = seconds_of(c, fed, rows);
    sum += seconds;
    longest = SLI_MAX(longest, seconds);
  }
  return sum + (stages_of(s) - 1) * longest;
}

/* Searches chunk times from that of the longest last chunk down to a hundredth of it, but not below
 * four times the time of a one-row tick. */
static double best_pace(const sl_session *s, const request *r) {
  enum { STEPS = 48 };
  const sl_tick_cost *c = s->options.cost;
  double most = seconds_of(c, SLI_MAX(r->text.count - s->about.rows, 0), s->about.rows);
  double least = SLI_MAX(most / 100, 4 * seconds_of(c, 0, 1)), best = most,
         fewest = whole(s, r, most);
  for (int i = 1; i <= STEPS && least < most; i++) {
    double pace = most * pow(least / most, (double)i / STEPS), seconds = whole(s, r, pace);
    if (seconds < fewest) fewest = seconds, best = pace;
  }
  return best;
}

static bool is_alone(const sl_session *s, const request *r) { return s->requests == r && !r->next; }

/* ---- chunks with chosen pages ---------------------------------------------------------------- */

/* A chunk's pages are chosen by its last queries, so that all of its rows are in one tick: the op
 * recognizes it by that. Which positions belong to one follows from the prompt's length alone, and
 * other rows never fill a chunk. Bits therefore do not depend on other requests. */

int64_t sli_chunk_end(const sl_session *s, const request *r) {
  int64_t chunk = s->serving.prompt_blocks.chunk;
  return chunk ? (r->text.prompt - 1) / chunk * chunk : 0;
}

int64_t sli_chunk_whole(const sl_session *s, const request *r, int64_t fed) {
  int64_t chunk = s->serving.prompt_blocks.chunk;
  return chunk && fed < sli_chunk_end(s, r) ? chunk - fed % chunk : 0;
}

bool sli_chunk_may_be(const sl_session *s, const request *r, int64_t fed, int64_t rows) {
  int64_t chunk = s->serving.prompt_blocks.chunk, whole = sli_chunk_whole(s, r, fed);
  return !chunk || (whole ? rows == whole : rows < chunk);
}

double sli_chunk_work(const sl_session *s, int64_t fed, int64_t rows) {
  const sl_prompt_blocks *b = &s->serving.prompt_blocks;
  if (b->chunk && rows == b->chunk && fed % b->chunk == 0)
    return 2 * sli_chunk_pairs(b->share, rows, fed);
  return (double)rows * (double)(2 * fed + rows);
}

sl_status sli_chunk_check(const sl_session *s) {
  const sl_prompt_blocks *b = &s->options.prompt_blocks;
  const char *kind = s->options.lower.devices.kind;
  int64_t rows = b->chunk + s->serving.sequences - 1;
  if (!b->chunk && b->share == 0) return SL_OK;
  if (!(b->share > 0 && b->share < 1) || b->chunk < SL_PAGE || b->chunk % SL_PAGE)
    return sl_fail(
        SL_E_USAGE,
        "prompt_blocks: a fraction of %g in chunks of %lld: must be a fraction between 0 and 1, and a "
        "multiple of %d positions",
        (double)b->share, (long long)b->chunk, SL_PAGE);
  if (s->serving.rows < rows)
    return sl_fail(SL_E_USAGE,
                   "prompt_blocks: a tick of %lld rows has no room for a chunk of %lld beside %d "
                   "other sequences: rows must be at least %lld",
                   (long long)s->serving.rows, (long long)b->chunk, s->serving.sequences - 1,
                   (long long)rows);
  if (s->options.lower.numbers.exact)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "prompt_blocks: training, whose bits numbers.exact asks for, attends to all keys");
  if (kind && !strcmp(kind, "cuda"))
    return sl_fail(SL_E_UNSUPPORTED, "prompt_blocks: pages are chosen on CPUs only, not on GPUs");
  return SL_OK;
}

/* ---- the next rows --------------------------------------------------------------------------- */

int64_t sli_chunk_rows(sl_session *s, request *r, int64_t most) {
  const sl_session_options *o = &s->options;
  if (s->serving.prompt_blocks.chunk) return SLI_MIN(most, s->serving.prompt_blocks.chunk - 1);
  bool cut = o->cost && o->chunks == SL_CHUNKS_TIMES && stages_of(s) > 1 &&
             r->progress.fed + 1 < r->text.count;
  if (!cut || !is_alone(s, r)) return most;
  if (r->progress.pace <= 0) r->progress.pace = best_pace(s, r);
  return rows_within(o->cost, r->progress.fed, r->progress.pace, most);
}
