/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/embeddings.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/json_text.h"
#include "tools/actorserve/reply.h"

/* ---- vectors --------------------------------------------------------------------------------- */

static int64_t width_of(const request *r) {
  int64_t all = r->serving->engine->width, wanted = r->params.embedding.dimensions;
  return wanted ? SLI_MIN(wanted, all) : all;
}

/* Truncates a vector to its first numbers and normalizes it to length 1. */
static void normalize(float *of, int64_t width) {
  double sum = 0;
  for (int64_t k = 0; k < width; k++) sum += (double)of[k] * (double)of[k];
  double scale = sum > 0 ? 1 / sqrt(sum) : 0;
  for (int64_t k = 0; k < width; k++) of[k] = (float)((double)of[k] * scale);
}

static double likeness(const request *r, int i, int j) {
  double sum = 0;
  for (int64_t k = 0, n = width_of(r); k < n; k++)
    sum += (double)r->answers.items[i].embedding[k] * (double)r->answers.items[j].embedding[k];
  return sum;
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool put_usage(const request *r, struct evbuffer *out) {
  return evbuffer_add_printf(out, "],\"model\":") > 0 &&
         reply_put_string(out, reply_model_name(r)) &&
         evbuffer_add_printf(out, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}",
                             (long long)r->used.prompt, (long long)r->used.prompt) > 0;
}

/* Appends bytes in base64 (RFC 4648). */
static bool put_base64(struct evbuffer *out, const void *from, size_t bytes) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint8_t *at = from;
  bool good = reply_put(out, "\"");
  for (size_t i = 0; i < bytes && good; i += 3) {
    size_t n = SLI_MIN(bytes - i, 3);
    uint32_t word = (uint32_t)at[i] << 16 | (n > 1 ? (uint32_t)at[i + 1] << 8 : 0) |
                    (n > 2 ? (uint32_t)at[i + 2] : 0);
    char text[4] = {letters[word >> 18], letters[word >> 12 & 63],
                    n > 1 ? letters[word >> 6 & 63] : '=', n > 2 ? letters[word & 63] : '='};
    good = !evbuffer_add(out, text, sizeof text);
  }
  return good && reply_put(out, "\"");
}

static bool put_vector(const request *r, const float *of, struct evbuffer *out) {
  int64_t n = width_of(r);
  if (r->params.embedding.base64) return put_base64(out, of, (size_t)n * sizeof *of);
  bool good = reply_put(out, "[");
  for (int64_t k = 0; k < n && good; k++)
    good = evbuffer_add_printf(out, k ? ",%.9g" : "%.9g", (double)of[k]) > 0;
  return good && reply_put(out, "]");
}

static bool reply_vectors(const request *r, struct evbuffer *out) {
  bool good = reply_put(out, "{\"object\":\"list\",\"data\":[");
  for (int i = 0; i < r->answers.count && good; i++)
    good =
        evbuffer_add_printf(
            out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i) > 0 &&
        put_vector(r, r->answers.items[i].embedding, out) && reply_put(out, "}");
  return good && put_usage(r, out);
}

/* Appends scores of pairs: a single first text is paired with each second text, otherwise texts are
 * paired by index. */
static bool reply_scores(const request *r, struct evbuffer *out) {
  int first = r->params.compared.nfirst, pairs = r->answers.count - first;
  bool good =
      evbuffer_add_printf(out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"data\":[",
                          r->id, (long long)r->times.created) > 0;
  for (int i = 0; i < pairs && good; i++)
    good = evbuffer_add_printf(out, "%s{\"index\":%d,\"object\":\"score\",\"score\":%.9g}",
                               i ? "," : "", i, likeness(r, first == 1 ? 0 : i, first + i)) > 0;
  return good && put_usage(r, out);
}

typedef struct ranked {
  int document;
  double score;
} ranked;

/* Compares by score, highest first; ties are ordered by document. */
static int by_score(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->score > y->score || x->score < y->score) return x->score > y->score ? -1 : 1;
  return x->document - y->document;
}

static bool put_ranked(const request *r, const ranked *x, struct evbuffer *out) {
  const char *text = r->prompts.items[x->document + 1].text;
  bool good =
      evbuffer_add_printf(out, "{\"index\":%d,\"relevance_score\":%.9g", x->document, x->score) > 0;
  if (good && text)
    good = reply_put(out, ",\"document\":{\"text\":") && reply_put_string(out, text) &&
           reply_put(out, "}");
  return good && reply_put(out, "}");
}

static bool reply_ranks(const request *r, struct evbuffer *out) {
  int n = r->answers.count - 1,
      most = r->params.compared.top_n ? (int)SLI_MIN(r->params.compared.top_n, n) : n;
  ranked *all = sli_calloc((size_t)n, sizeof *all);
  for (int i = 0; i < n; i++) all[i] = (ranked){i, likeness(r, 0, i + 1)};
  qsort(all, (size_t)n, sizeof *all, by_score);
  bool good = evbuffer_add_printf(out, "{\"id\":\"%s\",\"results\":[", r->id) > 0;
  for (int i = 0; i < most && good; i++)
    good = (!i || reply_put(out, ",")) && put_ranked(r, &all[i], out);
  free(all);
  return good && put_usage(r, out);
}

bool embeddings_reply(request *r, struct evbuffer *out) {
  for (int i = 0; i < r->answers.count; i++) normalize(r->answers.items[i].embedding, width_of(r));
  if (r->params.kind == PARAMS_EMBED) return reply_vectors(r, out);
  return r->params.kind == PARAMS_RERANK ? reply_ranks(r, out) : reply_scores(r, out);
}
