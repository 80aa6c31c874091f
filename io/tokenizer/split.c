/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers: steps split a text into words; each step splits the pieces of the step before
 * it. Pieces pass from step to step one at a time, so a long text needs no lists. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/tokenizer/inner.h"
#include "io/tokenizer/pattern.h"

typedef enum behavior { ISOLATED, REMOVED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS } behavior;

/* Rule by which Metaspace prepends a mark to a text. */
typedef enum prefix { NEVER, FIRST, ALWAYS } prefix;

typedef struct step {
  void (*run)(splitter *s, int index, span text, bool first);
  pcre2_code *pattern; /* pattern of a step `cut` */
  pcre2_match_data *match;
  pcre2_match_context *limits;
  char *source; /* source text of the pattern */
  behavior behavior;
  bool invert;
  bool space_before; /* bytes: prepends a space to a piece that does not begin with one */
  prefix prefix;     /* metaspace */
  char mark[5];
  size_t mark_bytes;
  bool cuts;     /* metaspace: splits before each mark */
  text_row room; /* metaspace, bytes: the changed piece */
} step;

struct splitter {
  step *steps;
  size_t count, capacity;
  sli_take_piece *take;
  void *ctx;
  const atomic_bool *stop;
  const sli_allowance *allowance;
  sl_status status;
};

splitter *sli_splitter_create(void) { return sli_calloc(1, sizeof(splitter)); }

void sli_splitter_destroy(splitter *s) {
  for (size_t i = 0; s && i < s->count; i++) {
    pcre2_code_free(s->steps[i].pattern);
    pcre2_match_data_free(s->steps[i].match);
    pcre2_match_context_free(s->steps[i].limits);
    free(s->steps[i].source);
    free(s->steps[i].room.items);
  }
  if (s) free(s->steps);
  free(s);
}

static void hand_on(splitter *s, int index, span piece, bool first) {
  if (!piece.bytes) return;
  if ((size_t)index + 1 < s->count) s->steps[index + 1].run(s, index + 1, piece, first);
  else s->take(s->ctx, piece);
}

sl_status sli_splitter_run(splitter *s, span text, bool first, sli_take_piece *take, void *ctx) {
  s->take = take;
  s->ctx = ctx;
  s->status = SL_OK;
  hand_on(s, -1, text, first);
  return s->status;
}

void sli_splitter_heed(splitter *s, const atomic_bool *stop, const sli_allowance *allowance) {
  s->stop = stop;
  s->allowance = allowance;
  for (size_t i = 0; i < s->count; i++) sli_text_keep(&s->steps[i].room, allowance);
}

static bool is_over(const splitter *s) { return s->status || sli_is_stopped(s->stop); }

/* ---- splitting by a pattern -----------------------------------------------------------------
 *
 * A match gets memory and steps in proportion to the text. One that needs more ends the
 * encoding: to continue as if nothing had matched would give other tokens. */

enum {
  LEAST_STACK = 1 << 20,
  MOST_STACK = 256 << 20,
  MOST_HEAP = 256 << 20,
  STEPS = 10000000,
  STEPS_BYTE = 64,
  PLACES = 256
};

/* Matches once with a large JIT stack. */
static int match_with(const step *p, span text, size_t from, size_t bytes) {
  pcre2_jit_stack *stack = pcre2_jit_stack_create(bytes, bytes, NULL);
  if (!stack) return PCRE2_ERROR_JIT_STACKLIMIT;
  pcre2_jit_stack_assign(p->limits, NULL, stack);
  int found = pcre2_match(p->pattern, (PCRE2_SPTR)text.at, text.bytes, from, PCRE2_NO_UTF_CHECK,
                          p->match, p->limits);
  pcre2_jit_stack_assign(p->limits, NULL, NULL);
  pcre2_jit_stack_free(stack);
  return found;
}

/* Matches with larger and larger stacks, as a long word needs; most texts never do. */
static int match_with_stack(splitter *s, const step *p, span text, size_t from) {
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  for (size_t bytes = LEAST_STACK; bytes <= MOST_STACK && found == PCRE2_ERROR_JIT_STACKLIMIT;
       bytes *= 4) {
    if (!sli_take(s->allowance, bytes)) return found;
    found = match_with(p, text, from, bytes);
    sli_give(s->allowance, bytes);
  }
  return found;
}

/* Finds a match that begins in [from, end]. */
static int match_from(splitter *s, const step *p, span text, size_t from, size_t end) {
  pcre2_set_offset_limit(p->limits, end);
  pcre2_set_match_limit(p->limits,
                        (uint32_t)SLI_MIN(STEPS + STEPS_BYTE * text.bytes, (size_t)INT32_MAX));
  pcre2_set_heap_limit(p->limits, MOST_HEAP / 1024);
  int found = pcre2_match(p->pattern, (PCRE2_SPTR)text.at, text.bytes, from, PCRE2_NO_UTF_CHECK,
                          p->match, p->limits);
  return found == PCRE2_ERROR_JIT_STACKLIMIT ? match_with_stack(s, p, text, from) : found;
}

/* Finds the next match from `from` on; false: none. If it can be stopped, it checks the flag at
 * intervals. */
static bool next_match(splitter *s, const step *p, span text, size_t from, size_t *begin,
                       size_t *end) {
  int found = PCRE2_ERROR_NOMATCH;
  for (size_t last; from <= text.bytes && found == PCRE2_ERROR_NOMATCH && !is_over(s);
       from = last + 1) {
    last = s->stop ? SLI_MIN(from + PLACES, text.bytes) : text.bytes;
    /* ends at a character boundary */
    while (last + 1 < text.bytes && (text.at[last + 1] & 0xc0) == 0x80) last++;
    found = match_from(s, p, text, from, last);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    char why[120];
    pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
    s->status = sl_fail(SL_E_INPUT, "pattern \"%.80s\" fails in a piece of %zu bytes: %s",
                        p->source, text.bytes, why);
    return false;
  }
  const size_t *ends = pcre2_get_ovector_pointer(p->match);
  *begin = ends[0];
  *end = ends[1];
  return true;
}

/* A piece that is assembled from matches and the text between them. */
typedef struct cutting {
  splitter *s;
  int index;
  span text;
  bool first;
  size_t begin, end; /* the pending piece */
  bool held, held_match, last_match;
} cutting;

static void let_go(cutting *c) {
  if (c->held)
    hand_on(c->s, c->index, (span){c->text.at + c->begin, c->end - c->begin},
            c->first && !c->begin);
  c->held = false;
}

/* Returns whether this stretch belongs to the pending piece. */
static bool goes_with(const cutting *c, behavior how, bool match) {
  if (!c->held) return false;
  if (how == WITH_PREVIOUS) return match && !c->last_match;
  if (how == WITH_NEXT) return c->held_match && !match;
  return how == CONTIGUOUS && match == c->last_match;
}

static void add_stretch(cutting *c, size_t begin, size_t end, bool match) {
  const step *p = &c->s->steps[c->index];
  match ^= p->invert;
  if (begin == end) return;
  if (match && p->behavior == REMOVED) return let_go(c);
  if (goes_with(c, p->behavior, match)) {
    c->end = end;
    c->held_match = false;
  } else {
    let_go(c);
    c->begin = begin;
    c->end = end;
    c->held_match = match;
  }
  c->held = true;
  c->last_match = match;
}

static void cut(splitter *s, int index, span text, bool first) {
  const step *p = &s->steps[index];
  cutting c = {.s = s, .index = index, .text = text, .first = first};
  size_t done = 0, from = 0, begin, end;
  while (from <= text.bytes && !is_over(s) && next_match(s, p, text, from, &begin, &end)) {
    add_stretch(&c, done, begin, false);
    add_stretch(&c, begin, end, true);
    done = end;
    from = end > begin ? end : end < text.bytes ? end + sli_character(text.at + end) : end + 1;
  }
  add_stretch(&c, done, text.bytes, false);
  let_go(&c);
}

/* ---- other steps ----------------------------------------------------------------------------- */

/* ByteLevel: the pattern is optional; the vocabulary maps bytes to characters. */
static void bytes(splitter *s, int index, span text, bool first) {
  step *p = &s->steps[index];
  if (p->space_before && text.at[0] != ' ') {
    p->room.count = 0;
    sli_text_add(&p->room, " ", 1);
    sli_text_add(&p->room, text.at, text.bytes);
    text = (span){p->room.items, p->room.count};
    if (!text.bytes) return; /* there was no memory */
  }
  if (p->pattern) cut(s, index, text, first);
  else hand_on(s, index, text, first);
}

static bool begins_with_mark(const step *p, span text) {
  return text.bytes >= p->mark_bytes && !memcmp(text.at, p->mark, p->mark_bytes);
}

static void mark_spaces(step *p, span text, bool first) {
  p->room.count = 0;
  bool begins = text.at[0] == ' ' || begins_with_mark(p, text);
  if (!begins && (p->prefix == ALWAYS || (p->prefix == FIRST && first)))
    sli_text_add(&p->room, p->mark, p->mark_bytes);
  while (text.bytes) {
    const char *space = memchr(text.at, ' ', text.bytes);
    size_t n = space ? (size_t)(space - text.at) : text.bytes;
    sli_text_add(&p->room, text.at, n);
    if (space) sli_text_add(&p->room, p->mark, p->mark_bytes), n++;
    text.at += n;
    text.bytes -= n;
  }
}

/* Metaspace: spaces become marks, and a mark begins a word. */
static void metaspace(splitter *s, int index, span text, bool first) {
  step *p = &s->steps[index];
  mark_spaces(p, text, first);
  span all = {p->room.items, p->room.count};
  for (size_t begin = 0, end; begin < all.bytes && !is_over(s); begin = end) {
    end = p->cuts ? begin + sli_character(all.at + begin) : all.bytes;
    while (end < all.bytes && !begins_with_mark(p, (span){all.at + end, all.bytes - end})) end++;
    hand_on(s, index, (span){all.at + begin, end - begin}, first && !begin);
  }
}

bool sli_splitter_keeps(const splitter *s) {
  bool keeps = true;
  for (size_t i = 0; i < s->count; i++)
    keeps &= s->steps[i].run != cut || s->steps[i].behavior != REMOVED;
  return keeps;
}

/* ---- patterns -------------------------------------------------------------------------------- */

static pcre2_code *compile_text(const char *text, uint32_t options, int *error, size_t *at) {
  pcre2_compile_context *how = pcre2_compile_context_create(NULL);
  SLI_CHECK(how, "no memory for a pattern");
  pcre2_set_newline(how, PCRE2_NEWLINE_LF);
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                   options | PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, error, at, how);
  pcre2_compile_context_free(how);
  return code;
}

static sl_status compile(const char *pattern, bool literal, step *p) {
  char *text = literal ? sli_strdup(pattern) : NULL;
  sl_status status = literal ? SL_OK : sli_pattern_translate(pattern, &text);
  if (status) return status;
  int error;
  size_t at;
  p->pattern = compile_text(text, literal ? PCRE2_LITERAL : 0, &error, &at);
  free(text);
  if (!p->pattern) {
    char why[120];
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return sl_fail(SL_E_INPUT, "pattern \"%.80s\": %s", pattern, why);
  }
  pcre2_jit_compile(p->pattern, PCRE2_JIT_COMPLETE); /* optional: matching is slower without it */
  p->match = pcre2_match_data_create_from_pattern(p->pattern, NULL);
  p->limits = pcre2_match_context_create(NULL);
  SLI_CHECK(p->match && p->limits, "no memory for a match");
  p->source = sli_strdup(pattern);
  return SL_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static step *add_step(splitter *s, void (*run)(splitter *, int, span, bool)) {
  SLI_GROW(s->steps, s->count, s->capacity);
  step *p = &s->steps[s->count++];
  *p = (step){.run = run};
  return p;
}

static sl_status read_behavior(const cJSON *item, step *p) {
  static const char *const names[] = {[ISOLATED] = "Isolated",
                                      [REMOVED] = "Removed",
                                      [WITH_PREVIOUS] = "MergedWithPrevious",
                                      [WITH_NEXT] = "MergedWithNext",
                                      [CONTIGUOUS] = "Contiguous"};
  const char *name = sli_json_text(item, "behavior");
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (name && !strcmp(name, names[i])) {
      p->behavior = (behavior)i;
      return SL_OK;
    }
  return sl_fail(SL_E_INPUT, "pre_tokenizer Split: behavior \"%.40s\" is not known",
                 name ? name : "");
}

static sl_status read_split(splitter *s, const cJSON *item) {
  const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(item, "pattern");
  const char *regex = sli_json_text(pattern, "Regex"), *literal = sli_json_text(pattern, "String");
  if (!regex && !literal)
    return sl_fail(SL_E_INPUT, "pre_tokenizer Split has neither a Regex nor a String");
  step *p = add_step(s, cut);
  p->invert = sli_json_flag(item, "invert", false);
  sl_status status = read_behavior(item, p);
  return status ? status : compile(regex ? regex : literal, !regex, p);
}

static sl_status read_digits(splitter *s, const cJSON *item) {
  step *p = add_step(s, cut);
  p->behavior = sli_json_flag(item, "individual_digits", false) ? ISOLATED : CONTIGUOUS;
  return compile("[\\p{N}\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]", false, p); /* Unicode 17 */
}

static sl_status read_bytes(splitter *s, const cJSON *item) {
  step *p = add_step(s, bytes);
  p->space_before = sli_json_flag(item, "add_prefix_space", true);
  if (!sli_json_flag(item, "use_regex", true)) return SL_OK;
  return compile(
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", false,
      p);
}

static sl_status read_metaspace(splitter *s, const cJSON *item) {
  step *p = add_step(s, metaspace);
  const char *scheme = sli_json_text(item, "prepend_scheme");
  bool before = sli_json_flag(item, "add_prefix_space", true);
  if (!scheme) scheme = before ? "always" : "never";
  p->prefix = !strcmp(scheme, "first") ? FIRST : !strcmp(scheme, "always") ? ALWAYS : NEVER;
  p->cuts = sli_json_flag(item, "split", true);
  span mark = sli_json_character(item, "replacement");
  if (!mark.at) return sl_fail(SL_E_INPUT, "pre_tokenizer Metaspace: replacement is no character");
  memcpy(p->mark, mark.at, mark.bytes);
  p->mark_bytes = mark.bytes;
  return SL_OK;
}

static sl_status read_whitespace(splitter *s, const cJSON *item) {
  (void)item;
  step *p = add_step(s, cut);
  p->behavior = REMOVED;
  return compile("\\s", false, p);
}

static sl_status read_sequence(splitter *s, const cJSON *item, bool *byte_level) {
  const cJSON *each;
  sl_status status = SL_OK;
  cJSON_ArrayForEach(each, cJSON_GetObjectItemCaseSensitive(item, "pretokenizers")) if (!status)
      status = sli_splitter_read(s, each, byte_level);
  return status;
}

sl_status sli_splitter_read(splitter *s, const cJSON *item, bool *byte_level) {
  static const struct {
    const char *type;
    sl_status (*read)(splitter *s, const cJSON *item);
  } kinds[] = {{"ByteLevel", read_bytes},
               {"Split", read_split},
               {"Digits", read_digits},
               {"Metaspace", read_metaspace},
               {"WhitespaceSplit", read_whitespace}};
  if (!item || cJSON_IsNull(item)) return SL_OK;
  const char *type = sli_json_text(item, "type");
  if (type && !strcmp(type, "Sequence")) return read_sequence(s, item, byte_level);
  for (size_t i = 0; type && i < SLI_COUNT(kinds); i++)
    if (!strcmp(type, kinds[i].type)) {
      *byte_level |= !strcmp(type, "ByteLevel");
      return kinds[i].read(s, item);
    }
  return sl_fail(SL_E_INPUT, "pre_tokenizer \"%.40s\" is not known", type ? type : "");
}
