/* SPDX-License-Identifier: Apache-2.0 */
/* Pattern matching, by PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"
#include "text/tokenizer/pattern.h"

struct matcher {
  pcre2_code *code;
  pcre2_match_data *match;
  pcre2_match_context *limits;
  char *source; /* source text of the pattern */
};

static pcre2_code *compile_text(const char *text, uint32_t options, int *error, size_t *at) {
  pcre2_compile_context *how = pcre2_compile_context_create(NULL);
  SLI_CHECK(how, "no memory for a pattern");
  pcre2_set_newline(how, PCRE2_NEWLINE_LF);
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                   options | PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, error, at, how);
  pcre2_compile_context_free(how);
  return code;
}

sl_status sli_matcher_create(const char *pattern, bool literal, matcher **out) {
  char *text = literal ? sli_strdup(pattern) : NULL;
  sl_status status = literal ? SL_OK : sli_pattern_translate(pattern, &text);
  if (status) return status;
  int error;
  size_t at;
  pcre2_code *code = compile_text(text, literal ? PCRE2_LITERAL : 0, &error, &at);
  free(text);
  if (!code) {
    char why[120];
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return sl_fail(SL_E_INPUT, "pattern \"%.80s\": %s", pattern, why);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* optional: matching is slower without it */
  matcher *m = *out = sli_calloc(1, sizeof *m);
  *m = (matcher){.code = code,
                 .match = pcre2_match_data_create_from_pattern(code, NULL),
                 .limits = pcre2_match_context_create(NULL),
                 .source = sli_strdup(pattern)};
  SLI_CHECK(m->match && m->limits, "no memory for a match");
  return SL_OK;
}

void sli_matcher_destroy(matcher *m) {
  if (!m) return;
  pcre2_code_free(m->code);
  pcre2_match_data_free(m->match);
  pcre2_match_context_free(m->limits);
  free(m->source);
  free(m);
}

/* ---- matching --------------------------------------------------------------------------------
 *
 * A match gets memory and steps in proportion to the text. A match that needs more ends the
 * encoding: continuing as if nothing had matched would give other tokens. */

enum {
  LEAST_STACK = 1 << 20,
  MOST_STACK = 256 << 20,
  MOST_HEAP = 256 << 20,
  STEPS = 10000000,
  STEPS_BYTE = 64,
  PLACES = 256
};

/* Matches once with a large JIT stack. */
static int match_with(const matcher *m, span text, size_t from, size_t bytes) {
  pcre2_jit_stack *stack = pcre2_jit_stack_create(bytes, bytes, NULL);
  if (!stack) return PCRE2_ERROR_JIT_STACKLIMIT;
  pcre2_jit_stack_assign(m->limits, NULL, stack);
  int found = pcre2_match(m->code, (PCRE2_SPTR)text.at, text.bytes, from, PCRE2_NO_UTF_CHECK,
                          m->match, m->limits);
  pcre2_jit_stack_assign(m->limits, NULL, NULL);
  pcre2_jit_stack_free(stack);
  return found;
}

/* Matches with increasingly large stacks, as a long word needs; most texts never do. */
static int match_with_stack(const matcher *m, span text, size_t from,
                            const sli_allowance *allowance) {
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  for (size_t bytes = LEAST_STACK; bytes <= MOST_STACK && found == PCRE2_ERROR_JIT_STACKLIMIT;
       bytes *= 4) {
    if (!sli_take(allowance, bytes)) return found;
    found = match_with(m, text, from, bytes);
    sli_give(allowance, bytes);
  }
  return found;
}

/* Finds a match that begins in [from, end]. */
static int match_from(const matcher *m, span text, size_t from, size_t end,
                      const sli_allowance *allowance) {
  pcre2_set_offset_limit(m->limits, end);
  pcre2_set_match_limit(m->limits,
                        (uint32_t)SLI_MIN(STEPS + STEPS_BYTE * text.bytes, (size_t)INT32_MAX));
  pcre2_set_heap_limit(m->limits, MOST_HEAP / 1024);
  int found = pcre2_match(m->code, (PCRE2_SPTR)text.at, text.bytes, from, PCRE2_NO_UTF_CHECK,
                          m->match, m->limits);
  return found == PCRE2_ERROR_JIT_STACKLIMIT ? match_with_stack(m, text, from, allowance) : found;
}

/* Checks the flag at intervals, if there is one. */
bool sli_matcher_next(const matcher *m, span text, size_t from, const atomic_bool *stop,
                      const sli_allowance *allowance, size_t *begin, size_t *end,
                      sl_status *status) {
  int found = PCRE2_ERROR_NOMATCH;
  for (size_t last; from <= text.bytes && found == PCRE2_ERROR_NOMATCH && !sli_is_stopped(stop);
       from = last + 1) {
    last = stop ? SLI_MIN(from + PLACES, text.bytes) : text.bytes;
    /* ends at a character boundary */
    while (last + 1 < text.bytes && (text.at[last + 1] & 0xc0) == 0x80) last++;
    found = match_from(m, text, from, last, allowance);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    char why[120];
    pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
    *status = sl_fail(SL_E_INPUT, "pattern \"%.80s\" fails in a piece of %zu bytes: %s", m->source,
                      text.bytes, why);
    return false;
  }
  const size_t *ends = pcre2_get_ovector_pointer(m->match);
  *begin = ends[0];
  *end = ends[1];
  return true;
}
