/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes as data: the tables of attrs.def, and what is computed from them. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "ops/heads.h"
#include "ops/ops.h"

/* ---- tables ------------------------------------------------------------------------------ */

/* Length of an array that a field declares; 1 without one. */
#define LENGTH(kind, name, type) (int)(sizeof(((sl_attrs *)0)->kind.name) / sizeof(type))

#define KIND(kind, text) static const sl_attrs_field kind##_fields[] = {
#define GROUP KIND
#define FIELD(kind, type, name, length, none, text) \
  {#name, SL_ATTRS_##type, LENGTH(kind, name, type), offsetof(sl_attrs, kind.name), none, text},
#define END(kind) \
  { 0 }           \
  }               \
  ;
#include <sluice/attrs.def>
#undef KIND
#undef FIELD
#undef END

#define KIND(kind, text) const sl_attrs_kind sl_attrs_##kind = {#kind, text, kind##_fields};
#define FIELD(kind, type, name, length, none, text)
#define END(kind)
#include <sluice/attrs.def>
#undef KIND
#undef GROUP

const sl_attrs_kind *const sl_attrs_kinds[] = {
#define KIND(kind, text) &sl_attrs_##kind,
#define GROUP(kind, text)
#include <sluice/attrs.def>
#undef KIND
#undef GROUP
    NULL};

const sl_attrs_kind *const sl_attrs_groups[] = {
#define KIND(kind, text)
#define GROUP(kind, text) &sl_attrs_##kind,
#include <sluice/attrs.def>
    NULL};

/* ---- values ------------------------------------------------------------------------------ */

static size_t type_bytes(sl_attrs_type type) {
  static const size_t bytes[] = {
#define X(type) sizeof(type),
      SL_ATTRS_TYPE_TABLE(X)
#undef X
  };
  return bytes[type];
}

/* Returns element i of a field as a word, which is 0 only for 0. */
static uint64_t word_of(const sl_attrs *attrs, const sl_attrs_field *f, int i) {
  const char *from = (const char *)attrs + f->offset + (size_t)i * type_bytes(f->type);
  switch (f->type) {
  case SL_ATTRS_bool: return *(const bool *)from;
  case SL_ATTRS_int: return (uint64_t) * (const int *)from;
  case SL_ATTRS_int32_t: return (uint64_t) * (const int32_t *)from;
  case SL_ATTRS_uint32_t: return *(const uint32_t *)from;
  case SL_ATTRS_int64_t: return (uint64_t) * (const int64_t *)from;
  case SL_ATTRS_uint64_t: return *(const uint64_t *)from;
  case SL_ATTRS_float: {
    float value = *(const float *)from;
    return value != 0 ? sli_hash_real(SLI_HASH_SEED, (double)value) : 0;
  }
  }
  return 0;
}

static bool is_set(const sl_attrs *attrs, const sl_attrs_field *f) {
  for (int i = 0; i < f->length; i++)
    if (word_of(attrs, f, i)) return true;
  return false;
}

static bool takes(const sl_op *op, const sl_attrs_kind *kind) {
  for (int k = 0; k < SL_OP_KINDS; k++)
    if (op->attrs[k] == kind) return true;
  return false;
}

/* Calls visit() with each field that is set, of the op's kinds and then of the groups. */
static void visit_set(const sl_op *op, const sl_attrs *attrs,
                      void (*visit)(void *to, const sl_attrs *attrs, const sl_attrs_kind *kind,
                                    const sl_attrs_field *field),
                      void *to) {
  const sl_attrs_kind *const *lists[] = {op->attrs, sl_attrs_groups};
  for (int l = 0; l < 2; l++)
    for (int k = 0; (l || k < SL_OP_KINDS) && lists[l][k]; k++)
      for (const sl_attrs_field *f = lists[l][k]->fields; f->name; f++)
        if (is_set(attrs, f)) visit(to, attrs, lists[l][k], f);
}

sl_status sli_attrs_check(const sl_op *op, const sl_attrs *attrs) {
  for (int k = 0; sl_attrs_kinds[k]; k++)
    for (const sl_attrs_field *f = sl_attrs_kinds[k]->fields; f->name; f++)
      if (!takes(op, sl_attrs_kinds[k]) && is_set(attrs, f))
        return sl_fail(SL_E_SHAPE, "it does not take attrs.%s.%s", sl_attrs_kinds[k]->name,
                       f->name);
  return SL_OK;
}

bool sli_attrs_equal(const sl_op *op, const sl_attrs *a, const sl_attrs *b) {
  const sl_attrs_kind *const *lists[] = {op->attrs, sl_attrs_groups};
  for (int l = 0; l < 2; l++)
    for (int k = 0; (l || k < SL_OP_KINDS) && lists[l][k]; k++)
      for (const sl_attrs_field *f = lists[l][k]->fields; f->name; f++)
        for (int i = 0; i < f->length && lists[l][k] != &sl_attrs_random; i++)
          if (word_of(a, f, i) != word_of(b, f, i)) return false;
  return true;
}

/* ---- heads ------------------------------------------------------------------------------- */

int sli_count_heads(const sl_attrs *attrs) {
  int turned = attrs->rotary.heads ? attrs->rotary.heads : attrs->norm.groups;
  return attrs->attention.heads ? attrs->attention.heads : turned;
}

int sli_key_heads(const sl_attrs *attrs) {
  return attrs->attention.kv_heads ? attrs->attention.kv_heads : sli_count_heads(attrs);
}

void sli_heads_share(sl_attrs *attrs, int64_t own, int64_t whole) {
  int *const counts[] = {&attrs->attention.heads, &attrs->attention.kv_heads, &attrs->rotary.heads,
                         &attrs->norm.groups};
  for (size_t i = 0; i < SLI_COUNT(counts); i++) *counts[i] = (int)(*counts[i] * own / whole);
}

/* ---- hash ------------------------------------------------------------------------------- */

static void hash_field(void *to, const sl_attrs *attrs, const sl_attrs_kind *kind,
                       const sl_attrs_field *f) {
  uint64_t *h = to;
  *h = sli_hash(*h, kind->name, strlen(kind->name) + 1);
  *h = sli_hash(*h, f->name, strlen(f->name) + 1);
  for (int i = 0; i < f->length; i++) *h = sli_hash_word(*h, word_of(attrs, f, i));
}

static uint64_t hash_region(uint64_t h, const sl_region *r) {
  h = sli_hash_word(sli_hash_word(h, (uint64_t)r->ndim), (uint64_t)r->sequence);
  for (int d = 0; d < r->ndim; d++) {
    h = sli_hash_word(sli_hash_word(h, (uint64_t)r->whole[d]), (uint64_t)r->parts[d].nranges);
    for (int i = 0; i < r->parts[d].nranges; i++) {
      h = sli_hash_word(h, (uint64_t)r->parts[d].begin[i]);
      h = sli_hash_word(h, (uint64_t)r->parts[d].count[i]);
    }
  }
  return h;
}

uint64_t sli_hash_attrs(uint64_t hash, const sl_op *op, const sl_attrs *attrs, int nin) {
  visit_set(op, attrs, hash_field, &hash);
  hash = sli_hash_word(hash, attrs->region != NULL);
  if (attrs->region) hash = hash_region(hash, attrs->region);
  return attrs->user && op->hash ? op->hash(hash, attrs, nin) : hash;
}

/* ---- text -------------------------------------------------------------------------------- */

typedef struct text {
  char *at;
  size_t left;
} text;

static void put(text *t, const char *format, double value, const char *name) {
  int n = snprintf(t->at, t->left, format, name, value);
  size_t more = SLI_MIN((size_t)SLI_MAX(n, 0), t->left ? t->left - 1 : 0);
  t->at += more, t->left -= more;
}

static double value_of(const sl_attrs *attrs, const sl_attrs_field *f, int i) {
  if (f->type != SL_ATTRS_float) return (double)(int64_t)word_of(attrs, f, i);
  return (double)*(const float *)((const char *)attrs + f->offset + (size_t)i * sizeof(float));
}

static void put_field(void *to, const sl_attrs *attrs, const sl_attrs_kind *kind,
                      const sl_attrs_field *f) {
  text *t = to;
  (void)kind;
  for (int i = 0; i < f->length; i++)
    put(t, i ? "%s%.9g" : " %s=%.9g", value_of(attrs, f, i), i ? "," : f->name);
}

char *sl_attrs_format(char *out, size_t bytes, const sl_op *op, const sl_attrs *attrs) {
  text t = {out, bytes};
  if (bytes) *out = 0;
  visit_set(op, attrs, put_field, &t);
  return out;
}
