/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers: steps split a text into words. Each step splits the pieces of the step before it.
 * Pieces pass from step to step one at a time, so a long text needs no lists. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"

typedef enum behavior { ISOLATED, REMOVED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS } behavior;

/* Rule by which Metaspace prepends a mark to a text. */
typedef enum prefix { NEVER, FIRST, ALWAYS } prefix;

typedef struct step {
  void (*run)(splitter *s, int index, span text, bool first);
  matcher *pattern; /* pattern of a step `cut` */
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
    sli_matcher_destroy(s->steps[i].pattern);
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

/* ---- splitting by a pattern ----------------------------------------------------------------- */

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
  while (
      from <= text.bytes && !is_over(s) &&
      sli_matcher_next(p->pattern, text, from, s->stop, s->allowance, &begin, &end, &s->status)) {
    add_stretch(&c, done, begin, false);
    add_stretch(&c, begin, end, true);
    done = end;
    from = end > begin ? end : end < text.bytes ? end + sli_character(text.at + end) : end + 1;
  }
  add_stretch(&c, done, text.bytes, false);
  let_go(&c);
}

/* ---- other steps ----------------------------------------------------------------------------- */

/* ByteLevel: the pattern is optional. The vocabulary maps bytes to characters. */
static void bytes(splitter *s, int index, span text, bool first) {
  step *p = &s->steps[index];
  if (p->space_before && text.at[0] != ' ') {
    p->room.count = 0;
    sli_text_add(&p->room, " ", 1);
    sli_text_add(&p->room, text.at, text.bytes);
    text = (span){p->room.items, p->room.count};
    if (!text.bytes) return; /* memory ran out */
  }
  if (p->pattern) cut(s, index, text, first);
  else hand_on(s, index, text, first);
}

static bool begins_with_mark(const step *step, span text) {
  return text.bytes >= step->mark_bytes && !memcmp(text.at, step->mark, step->mark_bytes);
}

static void mark_spaces(step *step, span text, bool first) {
  step->room.count = 0;
  bool begins = text.at[0] == ' ' || begins_with_mark(step, text);
  if (!begins && (step->prefix == ALWAYS || (step->prefix == FIRST && first)))
    sli_text_add(&step->room, step->mark, step->mark_bytes);
  while (text.bytes) {
    const char *space = memchr(text.at, ' ', text.bytes);
    size_t n = space ? (size_t)(space - text.at) : text.bytes;
    sli_text_add(&step->room, text.at, n);
    if (space) sli_text_add(&step->room, step->mark, step->mark_bytes), n++;
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

/* ---- reading --------------------------------------------------------------------------------- */

static step *add_step(splitter *s, void (*run)(splitter *, int, span, bool)) {
  SLI_GROW(s->steps, s->count, s->capacity);
  step *p = &s->steps[s->count++];
  *p = (step){.run = run};
  return p;
}

static sl_status read_behavior(const cJSON *item, step *step) {
  static const char *const names[] = {[ISOLATED] = "Isolated",
                                      [REMOVED] = "Removed",
                                      [WITH_PREVIOUS] = "MergedWithPrevious",
                                      [WITH_NEXT] = "MergedWithNext",
                                      [CONTIGUOUS] = "Contiguous"};
  const char *name = sli_json_text(item, "behavior");
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (name && !strcmp(name, names[i])) {
      step->behavior = (behavior)i;
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
  return status ? status : sli_matcher_create(regex ? regex : literal, !regex, &p->pattern);
}

static sl_status read_digits(splitter *s, const cJSON *item) {
  step *p = add_step(s, cut);
  p->behavior = sli_json_flag(item, "individual_digits", false) ? ISOLATED : CONTIGUOUS;
  return sli_matcher_create("[\\p{N}\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]", false,
                            &p->pattern); /* Unicode 17 */
}

static sl_status read_bytes(splitter *s, const cJSON *item) {
  step *p = add_step(s, bytes);
  p->space_before = sli_json_flag(item, "add_prefix_space", true);
  if (!sli_json_flag(item, "use_regex", true)) return SL_OK;
  return sli_matcher_create(
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", false,
      &p->pattern);
}

static sl_status read_metaspace(splitter *s, const cJSON *item) {
  step *p = add_step(s, metaspace);
  const char *scheme = sli_json_text(item, "prepend_scheme");
  bool before = sli_json_flag(item, "add_prefix_space", true);
  if (!scheme) scheme = before ? "always" : "never";
  p->prefix = !strcmp(scheme, "first") ? FIRST : !strcmp(scheme, "always") ? ALWAYS : NEVER;
  p->cuts = sli_json_flag(item, "split", true);
  span mark = sli_json_character(item, "replacement");
  if (!mark.at)
    return sl_fail(SL_E_INPUT, "pre_tokenizer Metaspace: replacement is not a character");
  memcpy(p->mark, mark.at, mark.bytes);
  p->mark_bytes = mark.bytes;
  return SL_OK;
}

static sl_status read_whitespace(splitter *s, const cJSON *item) {
  (void)item;
  step *p = add_step(s, cut);
  p->behavior = REMOVED;
  return sli_matcher_create("\\s", false, &p->pattern);
}

/* BertPreTokenizer: words without surrounding spaces, and each punctuation mark separately. */
static sl_status read_bert(splitter *s, const cJSON *item) {
  sl_status status = read_whitespace(s, item);
  step *p = add_step(s, cut);
  p->behavior = ISOLATED;
  return status ? status : sli_matcher_create("[!-/:-@\\[-`{-~\\p{P}]", false, &p->pattern);
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
               {"WhitespaceSplit", read_whitespace},
               {"BertPreTokenizer", read_bert}};
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
