/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary frequencies, and how models stretch them for contexts longer than in pretraining. Pair j
 * of a head rotates by theta^(-j/pairs) per position; its wavelength is 2 pi over that.
 *
 *   linear      positions are divided by `factor` (Chen et al., arXiv 2306.15595)
 *   llama3      wavelengths longer than original / low are stretched, those shorter than
 *               original / high stay, and those between are blended (Dubey et al., arXiv
 *               2407.21783)
 *   yarn        a blend by pair, from the pair that rotates `high` times in the original context
 *               to the one that rotates `low` times; attention is sharpened by `scale` (Peng et
 *               al., arXiv 2309.00071); `yarn-untruncated` does not round these two to whole pairs
 *   longrope    each pair has a divisor, from one list for contexts up to the original and from
 *               another for longer ones; attention is sharpened by sqrt(1 + ln factor / ln
 * original) (Ding et al., arXiv 2402.13753) proportional  only the first share of the pairs turns,
 * the others not at all dual-chunk  positions are places in chunks of C = chunk - local. A query at
 * place i and a key at place j are min(i + C, chunk) - j apart if the key is in the previous chunk,
 * and min(2 C - 1, chunk) - j if it is further away. Queries after the original context are
 * sharpened by 0.1 ln(positions / original) + 1 (An et al., arXiv 2402.17463; arXiv 2501.15383)
 *
 * The keys are those of Hugging Face's rope_parameters. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "ops/layout.h"

typedef struct stretch {
  const sl_rope *rope;
  double theta;
  int64_t pairs;
} stretch;

/* ---- frequency by kind -------------------------------------------------------------------------
 */

static double turn_plain(const stretch *s, int64_t j, double frequency) {
  (void)s, (void)j;
  return frequency;
}

static double turn_linear(const stretch *s, int64_t j, double frequency) {
  (void)j;
  return frequency / s->rope->factor;
}

/* Returns the divisors by pair, of longrope. */
static const float *divisors_of(const sl_rope *r) {
  return r->context > r->original ? r->longer : r->shorter;
}

static double turn_longrope(const stretch *s, int64_t j, double frequency) {
  return frequency / (double)divisors_of(s->rope)[j];
}

static double turn_proportional(const stretch *s, int64_t j, double frequency) {
  return j < (int64_t)(s->rope->turning * (double)s->pairs) ? frequency / s->rope->factor : 0;
}

/* Blends the stretched frequency, share 0, with the unchanged one, share 1. */
static double blend(const stretch *s, double share, double frequency) {
  return share == 1 ? frequency : share * frequency + (1 - share) * frequency / s->rope->factor;
}

static double between_0_and_1(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

static double turn_llama3(const stretch *s, int64_t j, double frequency) {
  (void)j;
  const sl_rope *r = s->rope;
  double turns = r->original * frequency / (2 * M_PI);
  return blend(s, between_0_and_1((turns - r->low) / (r->high - r->low)), frequency);
}

/* Returns the (fractional) pair that rotates `times` times in the original context. */
static double pair_that_turns(const stretch *s, double times) {
  return (double)s->pairs * log(s->rope->original / (times * 2 * M_PI)) / log(s->theta);
}

static double stay_between(const stretch *s, int64_t j, double first, double last) {
  first = fmax(first, 0);
  last = fmin(last, 2 * (double)s->pairs - 1);
  if (last == first) last += 0.001;
  return 1 - between_0_and_1(((double)j - first) / (last - first));
}

static double turn_yarn(const stretch *s, int64_t j, double frequency) {
  return blend(s,
               stay_between(s, j, floor(pair_that_turns(s, s->rope->high)),
                            ceil(pair_that_turns(s, s->rope->low))),
               frequency);
}

static double turn_untruncated(const stretch *s, int64_t j, double frequency) {
  return blend(
      s, stay_between(s, j, pair_that_turns(s, s->rope->high), pair_that_turns(s, s->rope->low)),
      frequency);
}

/* ---- the kinds ---------------------------------------------------------------------------- */

typedef struct key {
  const char *name;
  size_t field; /* offset of a double in sl_rope, or of a float per pair */
  bool optional;
  double value; /* default */
  bool list;
} key;

#define KEY(name, field) \
  { name, offsetof(sl_rope, field), false, 0, false }
#define OPTIONAL_KEY(name, field, value) \
  { name, offsetof(sl_rope, field), true, value, false }
#define LIST_KEY(name, field) \
  { name, offsetof(sl_rope, field), false, 0, true }

#define YARN_KEYS                                                             \
  KEY("factor", factor), KEY("original_max_position_embeddings", original),   \
      OPTIONAL_KEY("beta_slow", low, 1), OPTIONAL_KEY("beta_fast", high, 32), \
      OPTIONAL_KEY("attention_factor", scale, 0), PART_KEY
#define PART_KEY OPTIONAL_KEY("partial_rotary_factor", part, 1)

static const struct kind {
  const char *name;
  double (*turn)(const stretch *s, int64_t j, double frequency);
  key keys[7];
} kinds[] = {
    [SL_ROPE_PLAIN] = {"none", turn_plain, {PART_KEY}},
    [SL_ROPE_LINEAR] = {"linear", turn_linear, {KEY("factor", factor), PART_KEY}},
    [SL_ROPE_LLAMA3] = {"llama3",
                        turn_llama3,
                        {KEY("factor", factor), KEY("low_freq_factor", low),
                         KEY("high_freq_factor", high),
                         KEY("original_max_position_embeddings", original), PART_KEY}},
    [SL_ROPE_YARN] = {"yarn", turn_yarn, {YARN_KEYS}},
    [SL_ROPE_YARN_UNTRUNCATED] = {"yarn-untruncated", turn_untruncated, {YARN_KEYS}},
    [SL_ROPE_LONGROPE] = {"longrope",
                          turn_longrope,
                          {LIST_KEY("short_factor", shorter), LIST_KEY("long_factor", longer),
                           KEY("factor", factor), KEY("original_max_position_embeddings", original),
                           OPTIONAL_KEY("attention_factor", scale, 0), PART_KEY}},
    [SL_ROPE_PROPORTIONAL] = {"proportional",
                              turn_proportional,
                              {OPTIONAL_KEY("factor", factor, 1),
                               OPTIONAL_KEY("partial_rotary_factor", turning, 1)}},
    [SL_ROPE_DUAL_CHUNK] = {
        "dual-chunk",
        turn_plain,
        {KEY("chunk_size", chunk), KEY("local_size", local),
         OPTIONAL_KEY("original_max_position_embeddings", original, 0), PART_KEY}}};

static double scale_of(const sl_rope *r) {
  if (r->kind == SL_ROPE_LONGROPE)
    return r->scale > 0    ? r->scale
           : r->factor > 1 ? sqrt(1 + log(r->factor) / log(r->original))
                           : 1;
  if (r->kind != SL_ROPE_YARN && r->kind != SL_ROPE_YARN_UNTRUNCATED) return 1;
  return r->scale > 0 ? r->scale : r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1;
}

double sli_rope_frequencies(const sl_attrs *attrs, int64_t pairs, double *frequency) {
  static const sl_rope plain = {.kind = SL_ROPE_PLAIN, .factor = 1};
  stretch s = {attrs->user ? attrs->user : &plain,
               attrs->rotary.theta > 0 ? (double)attrs->rotary.theta : 10000.0, pairs};
  for (int64_t j = 0; j < pairs; j++) {
    double f = pow(s.theta, -(double)j / (double)pairs);
    frequency[j] = kinds[s.rope->kind].turn(&s, j, f);
  }
  return scale_of(s.rope);
}

int64_t sli_rope_chunk(const sl_attrs *attrs) {
  const sl_rope *rope = attrs->user;
  return rope && rope->kind == SL_ROPE_DUAL_CHUNK ? (int64_t)(rope->chunk - rope->local) : 0;
}

int64_t sli_rope_position(const sl_attrs *attrs, int64_t position) {
  const sl_rope *r = attrs->user;
  int64_t chunk = sli_rope_chunk(attrs);
  if (!chunk) return position;
  int64_t place = position % chunk, most = (int64_t)r->chunk;
  if (r->form == SL_ROPE_NEXT) return SLI_MIN(place + chunk, most);
  return r->form == SL_ROPE_FAR ? SLI_MIN(2 * chunk - 1, most) : place;
}

double sli_rope_sharpness(const sl_attrs *attrs, int64_t position) {
  const sl_rope *r = attrs->user;
  if (!sli_rope_chunk(attrs) || r->form == SL_ROPE_KEYS || r->original <= 0) return 1;
  return fmax(0.1 * log((double)(position + 1) / r->original) + 1, 1);
}

int64_t sli_rotary_turned(const sl_attrs *attrs, int64_t width) {
  const sl_rope *rope = attrs->user;
  return rope && rope->part > 0 ? (int64_t)((double)width * rope->part) : width;
}

uint64_t sli_rope_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  const sl_rope *r = attrs->user;
  if (!r) return hash;
  const double reals[] = {r->factor, r->original, r->low,   r->high,
                          r->scale,  r->part,     r->chunk, r->local};
  hash = sli_hash_word(sli_hash_word(hash, (uint64_t)r->kind), (uint64_t)r->form);
  for (size_t i = 0; i < SLI_COUNT(reals); i++) hash = sli_hash_real(hash, reals[i]);
  if (r->turning > 0) hash = sli_hash_real(hash, r->turning);
  for (int j = 0; j < r->pairs; j++) hash = sli_hash_real(hash, (double)divisors_of(r)[j]);
  return hash;
}

/* ---- as text ------------------------------------------------------------------------------ */

static sl_status find_kind(const char *text, size_t length, sl_rope *out) {
  for (size_t k = 0; k < SLI_COUNT(kinds); k++)
    if (strlen(kinds[k].name) == length && !memcmp(kinds[k].name, text, length)) {
      out->kind = (sl_rope_kind)k;
      return SL_OK;
    }
  return sl_fail(
      SL_E_USAGE,
      "rotary scaling \"%.*s\": must be one of none, linear, llama3, yarn, yarn-untruncated, "
      "longrope, proportional, dual-chunk",
      (int)SLI_MIN(length, (size_t)40), text);
}

static const key *find_key(const struct kind *kind, const char *name, size_t length) {
  for (const key *k = kind->keys; k->name; k++)
    if (strlen(k->name) == length && !memcmp(k->name, name, length)) return k;
  return NULL;
}

static double *field(sl_rope *rope, const key *k) { return (double *)((char *)rope + k->field); }

/* Reads "1/1.5/2", a number per pair, and moves *at past it. */
static sl_status read_list(const char **at, const struct kind *kind, const key *k, sl_rope *out) {
  float *list = (float *)((char *)out + k->field);
  int n = 0;
  for (char *end; n < SL_ROPE_PAIRS; *at = end + 1) {
    list[n] = strtof(*at, &end);
    bool good = end > *at && list[n] > 0 && isfinite(list[n]);
    if (!good || (*end && *end != ',' && *end != '/'))
      return sl_fail(SL_E_USAGE, "rotary scaling %s: %s must be positive numbers joined by /",
                     kind->name, k->name);
    n++;
    if (*end == '/') continue;
    *at = end + (*end == ',');
    if (out->pairs && out->pairs != n) break;
    out->pairs = n;
    return SL_OK;
  }
  return sl_fail(SL_E_USAGE,
                 "rotary scaling %s: the lists of factors must have the same length, at most %d",
                 kind->name, SL_ROPE_PAIRS);
}

/* Reads "factor=8" and moves *at past it. */
static sl_status read_value(const char **at, const struct kind *kind, sl_rope *out) {
  size_t length = strcspn(*at, "=,");
  const key *k = find_key(kind, *at, length);
  if (!k)
    return sl_fail(SL_E_USAGE, "rotary scaling %s has no \"%.*s\"", kind->name,
                   (int)SLI_MIN(length, (size_t)40), *at);
  if (k->list && (*at)[length] == '=') {
    *at += length + 1;
    return read_list(at, kind, k, out);
  }
  char *end = NULL;
  double value = (*at)[length] == '=' ? strtod(*at + length + 1, &end) : 0;
  if (!end || end == *at + length + 1 || (*end && *end != ',') || !(value > 0 && value < 1e30))
    return sl_fail(SL_E_USAGE, "rotary scaling %s: %s must be a positive number", kind->name,
                   k->name);
  *field(out, k) = value;
  *at = end + (*end == ',');
  return SL_OK;
}

static sl_status check_chunk(const sl_rope *r) {
  enum { TILE = 64 };
  double chunk = r->chunk - r->local;
  if (chunk >= TILE && r->chunk == floor(r->chunk) && fmod(chunk, TILE) == 0) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "rotary scaling dual-chunk: chunk_size=%g - local_size=%g must be a positive "
                 "multiple of %d",
                 r->chunk, r->local, TILE);
}

static sl_status rope_check(const struct kind *kind, sl_rope *out) {
  for (const key *k = kind->keys; k->name; k++) {
    if (k->list && *(float *)((char *)out + k->field) > 0) continue;
    double none = 0, *value = k->list ? &none : field(out, k);
    if (*value == 0 && !k->optional)
      return sl_fail(SL_E_USAGE, "rotary scaling %s needs %s=", kind->name, k->name);
    if (*value == 0) *value = k->value;
  }
  if (fmax(out->part, out->turning) > 1)
    return sl_fail(SL_E_USAGE, "rotary scaling %s: partial_rotary_factor=%g must not exceed 1",
                   kind->name, fmax(out->part, out->turning));
  if (kind == &kinds[SL_ROPE_DUAL_CHUNK]) SLI_TRY(check_chunk(out));
  if (out->low && out->low >= out->high)
    return sl_fail(SL_E_USAGE,
                   "rotary scaling %s: %g, the lower bound, must be less than %g, the upper",
                   kind->name, out->low, out->high);
  return SL_OK;
}

sl_status sl_rope_parse(const char *text, sl_rope *out) {
  size_t length = strcspn(text, ":");
  *out = (sl_rope){.kind = SL_ROPE_PLAIN};
  sl_status status = length ? find_kind(text, length, out) : SL_OK;
  const char *at = text + length + (text[length] == ':');
  while (!status && *at) status = read_value(&at, &kinds[out->kind], out);
  return status ? status : rope_check(&kinds[out->kind], out);
}
