/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of chats. A chat of n tokens takes n - 1 positions, because its last token is only a
 * target. */
#include "text/tokens/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/chats/chats.h"

enum { OPEN = 256 }; /* sequences that can still receive chats */

/* A chat and its place in a sequence. */
typedef struct place {
  const uint32_t *words; /* the chat's tokens */
  int64_t count;         /* positions it takes */
  int64_t next;          /* the next chat of the sequence; -1 if none */
} place;

typedef struct line {
  int64_t first, last, room; /* first and last chat; positions left */
  int64_t learned;           /* tokens */
} line;

struct sli_packing {
  int64_t context;
  bool alone;
  enum { CUT, DROP, REFUSE } longer;
  place *places;
  size_t nplaces, places_room;
  line *rows;
  size_t nrows, rows_room;
  int64_t open[OPEN]; /* rows */
  int nopen;
  sli_tokens_chats numbers;
};

sli_packing *sli_packing_create(const sli_tokens_options *o) {
  sli_packing *p = sli_calloc(1, sizeof *p);
  const char *longer = o->long_chats ? o->long_chats : "cut";
  p->context = o->context;
  p->alone = o->alone;
  p->longer = !strcmp(longer, "drop") ? DROP : !strcmp(longer, "refuse") ? REFUSE : CUT;
  return p;
}

void sli_packing_destroy(sli_packing *p) {
  if (!p) return;
  free(p->places);
  free(p->rows);
  free(p);
}

int64_t sli_packing_rows(const sli_packing *p) { return (int64_t)p->nrows; }

int64_t sli_packing_learned(const sli_packing *p, int64_t row) { return p->rows[row].learned; }

sli_tokens_chats sli_packing_numbers(const sli_packing *p) { return p->numbers; }

/* ---- packing --------------------------------------------------------------------------------- */

/* Returns the open sequence with the least sufficient room, or if none suffices, the one with the
 * least room. */
static int find_open(const sli_packing *p, int64_t count, bool *fits) {
  int best = -1, fullest = 0;
  for (int i = 0; i < p->nopen; i++) {
    int64_t room = p->rows[p->open[i]].room;
    if (room < p->rows[p->open[fullest]].room) fullest = i;
    if (room >= count && (best < 0 || room < p->rows[p->open[best]].room)) best = i;
  }
  *fits = best >= 0;
  return *fits ? best : fullest;
}

static int64_t begin_row(sli_packing *p, int fullest) {
  SLI_GROW(p->rows, p->nrows, p->rows_room);
  p->rows[p->nrows] = (line){-1, -1, p->context, 0};
  int at = p->nopen < OPEN ? p->nopen++ : fullest;
  p->open[at] = (int64_t)p->nrows;
  return (int64_t)p->nrows++;
}

static void put(sli_packing *p, const uint32_t *words, int64_t count, int64_t learned) {
  bool fits = false;
  int at = p->alone ? 0 : find_open(p, count, &fits);
  int64_t row = fits ? p->open[at] : begin_row(p, at);
  line *r = &p->rows[row];
  SLI_GROW(p->places, p->nplaces, p->places_room);
  p->places[p->nplaces] = (place){words, count, -1};
  if (r->last < 0) r->first = (int64_t)p->nplaces;
  else p->places[r->last].next = (int64_t)p->nplaces;
  r->last = (int64_t)p->nplaces++;
  r->room -= count;
  r->learned += learned;
}

static int64_t count_learned(const uint32_t *words, int64_t count) {
  int64_t n = 0;
  for (int64_t i = 1; i <= count; i++) n += words[i] >> 31;
  return n;
}

static sl_status too_long(const sli_packing *p, const sli_token_file *file, int64_t chat,
                          int64_t tokens) {
  return sl_fail(
      SL_E_INPUT,
      "%s: chat %lld has %lld tokens, but a row has room for %lld and the target after it (--context); use --long-chats cut or drop",
      file->path, (long long)chat, (long long)tokens, (long long)p->context);
}

/* Packs a chat of n tokens. */
static sl_status add(sli_packing *p, const sli_token_file *file, int64_t chat,
                     const uint32_t *words, int64_t n) {
  int64_t count = SLI_MIN(n - 1, p->context), learned;
  bool longer = count < n - 1;
  p->numbers.chats++;
  if (longer && p->longer == REFUSE) return too_long(p, file, chat, n);
  learned = count_learned(words, count);
  if (!learned || (longer && p->longer == DROP)) return p->numbers.dropped++, SL_OK;
  p->numbers.cut += longer;
  p->numbers.tokens += count + 1;
  p->numbers.learned += learned;
  put(p, words, count, learned);
  return SL_OK;
}

sl_status sli_packing_add(sli_packing *p, const sli_token_file *file) {
  const uint32_t *at = (const uint32_t *)file->bytes, *end = at + file->count;
  sl_status status = SL_OK;
  for (int64_t chat = 1; at < end && !status; chat++) {
    int64_t n = *at;
    if (n < 2 || n > end - at - 1)
      return sl_fail(SL_E_INPUT, "%s: the cached tokens of its chats are damaged", file->path);
    status = add(p, file, chat, at + 1, n);
    at += n + 1;
  }
  return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_place(const place *c, int64_t document, int64_t from, int64_t count, int64_t at,
                       const sli_tokens_out *out) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t next = c->words[from + i + 1];
    if (out->tokens) out->tokens[at + i] = (int32_t)(c->words[from + i] & INT32_MAX);
    if (out->targets)
      out->targets[at + i] = next >> 31 ? (int32_t)(next & INT32_MAX) : SLI_TOKENS_UNLEARNED;
    if (out->documents) out->documents[at + i] = (int32_t)document;
    if (out->positions) out->positions[at + i] = (int32_t)(from + i);
  }
}

static void read_padding(int64_t at, int64_t count, const sli_tokens_out *out) {
  for (int64_t i = at; i < count; i++) {
    if (out->tokens) out->tokens[i] = 0;
    if (out->targets) out->targets[i] = SLI_TOKENS_UNLEARNED;
    if (out->documents) out->documents[i] = SLI_TOKENS_PADDING;
    if (out->positions) out->positions[i] = 0;
  }
}

void sli_packing_read(const sli_packing *p, int64_t row, int64_t first, int64_t count,
                      const sli_tokens_out *out) {
  int64_t begin = 0, done = 0, document = 0;
  for (int64_t i = p->rows[row].first; i >= 0 && done < count; i = p->places[i].next, document++) {
    const place *c = &p->places[i];
    int64_t from = SLI_MAX(first - begin, 0), n = SLI_MIN(c->count - from, count - done);
    if (n > 0) {
      read_place(c, document, from, n, done, out);
      done += n;
    }
    begin += c->count;
  }
  read_padding(done, count, out);
}
