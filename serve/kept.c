/* SPDX-License-Identifier: Apache-2.0 */
/* Kept pages: a second-level cache of KV pages in host memory or on disk.
 *
 * Before a named page is reused, its contents are copied to the room. They keep their name there,
 * so that a prompt finds them like other pages (prefixes.c), and are copied into a free page when a
 * request begins with them. The thread that chooses ticks makes the copies, between ticks: the last
 * tick of the old page is complete, and the first tick of the new page has not begun. The least
 * recently used kept pages are evicted. */
#include "serve/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/ops.h"
#include "serve/prefixes.h"

enum { DISK_PAGE = 4096 };

/* Part of each page: one tensor of keys or values of one layer on one device. */
typedef struct layer {
  int32_t reg;
  size_t offset, bytes; /* offset of page 0 in the register; bytes per page */
} layer;

typedef struct kept_page {
  uint64_t name, before; /* 0: the place is free */
  int32_t next;          /* next page in the hash bucket; -1: none */
  int32_t older, newer;  /* neighbours by last use; -1: none */
} kept_page;

struct sli_kept {
  const sl_memory_ops *memory;
  char *room;        /* [count][page_bytes] allocated from `memory` */
  size_t page_bytes; /* a multiple of DISK_PAGE */
  char *buffer;      /* [page_bytes] */
  int nlayers;
  layer *layers;
  int32_t count, used;
  kept_page *pages; /* [count] */
  int32_t *tokens;  /* [count][SL_PAGE] */
  uint64_t mask;
  int32_t *first; /* [mask + 1] first page of each hash bucket; -1: none */
  int32_t oldest, newest;
  int32_t spare; /* first place whose page was lost, linked by `next`; -1: none */
  bool hold;
};

/* ---- layers --------------------------------------------------------------------------------- */

/* Adds an output that holds the pages of a layer. */
static void add_layer(sl_session *s, const sl_actor *a, const sl_program_call *c, int o) {
  sli_kept *k = s->kept;
  int32_t base = c->out[o].base;
  layer x = {.reg = base < a->nin ? a->in[base].reg : a->out[base - a->nin].reg,
             .offset = c->out[o].offset,
             .bytes = sl_type_bytes(&c->out_type[o]) / (size_t)s->about.pages};
  k->layers = sli_realloc(k->layers, (size_t)k->nlayers + 1, sizeof *k->layers);
  k->layers[k->nlayers++] = x;
  k->page_bytes += x.bytes;
}

/* Adds the outputs of a call that persist across ticks. */
static sl_status add_layers(sl_session *s, const sl_actor *a, const sl_program_call *c) {
  for (int o = 0; o < c->nout; o++) {
    if (!(sli_op_memory(c->op)->updates >> o & 1) || sli_op_serve(c->op)->slots) continue;
    if (c->out_type[o].dim[0] != s->about.pages)
      return sl_fail(SL_E_UNSUPPORTED, "kept pages: %s (%s) keeps data outside of pages", c->name,
                     c->op->name);
    add_layer(s, a, c, o);
  }
  return SL_OK;
}

static sl_status find_layers(sl_session *s) {
  const sl_plan *plan = s->about.plan;
  sl_status status = SL_OK;
  for (const sl_actor *a = plan->actors; a < plan->actors + plan->nactors; a++)
    for (int n = 0; a->program && n < a->program->ncalls && !status; n++)
      status = add_layers(s, a, &a->program->calls[n]);
  if (status || (s->kept->page_bytes && !s->serving.stateful)) return status;
  return sl_fail(SL_E_UNSUPPORTED, "kept pages: model %s has no pages that requests can share",
                 s->options.model->name);
}

/* ---- room ----------------------------------------------------------------------------------- */

static sl_status make_tables(sli_kept *k) {
  while ((int64_t)k->mask < k->count) k->mask = 2 * k->mask + 1;
  SLI_TRY(SLI_ALLOCATE(k->pages, (size_t)k->count, "the table of kept pages"));
  SLI_TRY(SLI_ALLOCATE(k->tokens, (size_t)k->count * SL_PAGE, "the tokens of kept pages"));
  SLI_TRY(SLI_ALLOCATE(k->first, k->mask + 1, "the index of kept pages"));
  for (uint64_t i = 0; i <= k->mask; i++) k->first[i] = -1;
  k->oldest = k->newest = k->spare = -1;
  return SL_OK;
}

static sl_status make_room(sl_session *s) {
  const sl_kept_pages *o = &s->options.kept;
  sli_kept *k = s->kept;
  k->page_bytes = (k->page_bytes + DISK_PAGE - 1) / DISK_PAGE * DISK_PAGE;
  k->count = (int32_t)SLI_MIN(o->bytes / k->page_bytes, (size_t)INT32_MAX / 2);
  if (!k->count)
    return sl_fail(SL_E_USAGE, "kept pages: %zu bytes are too few for a page of %zu bytes",
                   o->bytes, k->page_bytes);
  SLI_TRY(make_tables(k));
  k->buffer = aligned_alloc(DISK_PAGE, k->page_bytes);
  if (!k->buffer) return sli_no_memory(1, k->page_bytes, "a kept page");
  k->memory = o->space == SL_SPACE_DISK ? &sl_memory_disk : &sl_memory_host;
  void *room = NULL;
  sl_status status = k->memory->create(&(sl_memory_config){.path = o->folder},
                                       (size_t)k->count * k->page_bytes, &room);
  k->room = room;
  return status;
}

static sl_status check_kept(const sl_session *s) {
  if (s->options.job)
    return sl_fail(SL_E_UNSUPPORTED, "kept pages: not supported in a session of several processes");
  if (!sl_device_computes(s->options.lower.devices.kind))
    return sl_fail(SL_E_UNSUPPORTED, "kept pages: not supported on devices that compute nothing");
  return s->options.prefixes == SL_PREFIXES_APART
             ? sl_fail(SL_E_USAGE, "kept pages: not supported when prompts do not share pages")
             : SL_OK;
}

sl_status sli_kept_open(sl_session *s) {
  if (!s->options.kept.bytes) return SL_OK;
  sl_status status = check_kept(s);
  if (status) return status;
  s->kept = sli_calloc(1, sizeof *s->kept);
  status = find_layers(s);
  return status ? status : make_room(s);
}

void sli_kept_close(sl_session *s) {
  sli_kept *k = s->kept;
  if (!k) return;
  if (k->room) k->memory->destroy(k->room, (size_t)k->count * k->page_bytes);
  free(k->buffer);
  free(k->layers);
  free(k->pages);
  free(k->tokens);
  free(k->first);
  free(k);
}

/* ---- index ---------------------------------------------------------------------------------- */

static int32_t *tokens_of(const sli_kept *k, int32_t i) { return k->tokens + (int64_t)i * SL_PAGE; }

static int32_t *bucket_of(const sli_kept *k, uint64_t before, const int32_t *tokens) {
  return &k->first[sli_prefixes_hash(before, tokens) & k->mask];
}

int32_t sli_kept_find(const sl_session *s, uint64_t before, const int32_t *tokens) {
  const sli_kept *k = s->kept;
  int32_t i = k ? *bucket_of(k, before, tokens) : -1;
  while (i >= 0 && (k->pages[i].before != before ||
                    memcmp(tokens_of(k, i), tokens, SL_PAGE * sizeof *tokens)))
    i = k->pages[i].next;
  return i;
}

uint64_t sli_kept_name(const sl_session *s, int32_t i) { return s->kept->pages[i].name; }

static void unlink_kept(sli_kept *k, int32_t i) {
  const kept_page *x = &k->pages[i];
  *(x->older < 0 ? &k->oldest : &k->pages[x->older].newer) = x->newer;
  *(x->newer < 0 ? &k->newest : &k->pages[x->newer].older) = x->older;
}

static void link_newest(sli_kept *k, int32_t i) {
  k->pages[i].older = k->newest;
  k->pages[i].newer = -1;
  *(k->newest < 0 ? &k->oldest : &k->pages[k->newest].newer) = i;
  k->newest = i;
}

static void forget_kept(sli_kept *k, int32_t i) {
  int32_t *at = bucket_of(k, k->pages[i].before, tokens_of(k, i));
  while (*at != i) at = &k->pages[*at].next;
  *at = k->pages[i].next;
  unlink_kept(k, i);
}

/* Returns a place; if all are taken, evicts the least recently used page. */
static int32_t take_place(sli_kept *k) {
  if (k->spare >= 0) {
    int32_t i = k->spare;
    k->spare = k->pages[i].next;
    return i;
  }
  if (k->used < k->count) return k->used++;
  int32_t i = k->oldest;
  forget_kept(k, i);
  return i;
}

static void note_kept(sli_kept *k, int32_t i, uint64_t name, uint64_t before,
                      const int32_t *tokens) {
  int32_t *at = bucket_of(k, before, tokens);
  k->pages[i] = (kept_page){.name = name, .before = before, .next = *at};
  memcpy(tokens_of(k, i), tokens, SL_PAGE * sizeof *tokens);
  *at = i;
  link_newest(k, i);
}

void sli_kept_touch(sl_session *s, int32_t i) {
  unlink_kept(s->kept, i);
  link_newest(s->kept, i);
}

/* ---- contents ------------------------------------------------------------------------------- */

/* Aborts the session on failure: a partly copied page would change answers. */
static void check_copy(const sl_session *s, sl_status status) {
  if (status) sl_runtime_abort(s->about.rt, status, sl_detail());
}

void sli_kept_write(sl_session *s, int32_t page, uint64_t name, uint64_t before,
                    const int32_t *tokens) {
  sli_kept *k = s->kept;
  if (!k || (k->hold && k->used == k->count)) return;
  int32_t i = sli_kept_find(s, before, tokens);
  if (i >= 0) {
    sli_kept_touch(s, i);
    return;
  }
  i = take_place(k);
  sl_status status = SL_OK;
  char *to = k->buffer;
  for (int n = 0; n < k->nlayers && !status; to += k->layers[n++].bytes)
    status = sl_runtime_read(s->about.rt, k->layers[n].reg, 0,
                             k->layers[n].offset + (size_t)page * k->layers[n].bytes,
                             k->layers[n].bytes, to);
  if (!status)
    status = k->memory->copy(k->room + (size_t)i * k->page_bytes, k->buffer, k->page_bytes);
  note_kept(k, i, name, before, tokens);
  s->stats.pages_kept = k->used;
  s->stats.pages_written++;
  check_copy(s, status);
}

void sli_kept_hold(sl_session *s, bool hold) {
  if (s->kept) s->kept->hold = hold;
}

static void lose(sli_kept *k, int32_t i) {
  sli_log("a kept page is computed again: %s", sl_detail());
  forget_kept(k, i);
  k->pages[i].next = k->spare;
  k->spare = i;
}

bool sli_kept_read(sl_session *s, int32_t i, int32_t page) {
  sli_kept *k = s->kept;
  const char *from = k->buffer;
  sl_status status = k->memory->copy(k->buffer, k->room + (size_t)i * k->page_bytes, k->page_bytes);
  if (status) {
    lose(k, i);
    return false;
  }
  for (int n = 0; n < k->nlayers && !status; from += k->layers[n++].bytes)
    status = sl_runtime_write(s->about.rt, k->layers[n].reg, 0,
                              k->layers[n].offset + (size_t)page * k->layers[n].bytes,
                              k->layers[n].bytes, from);
  s->stats.pages_read++;
  check_copy(s, status);
  return true;
}
