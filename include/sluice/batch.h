/* SPDX-License-Identifier: Apache-2.0 */
/* The batch register: the work of one tick of a served graph.
 *
 * A served model computes one row of positions, each of which may belong to any sequence. One i32
 * array describes the positions of a tick. The graph's source fills it, and it travels from stage
 * to stage like any tensor. Ops that read other positions take it as their last input
 * (sl_op.serve); it holds everything they need. */
#ifndef SLUICE_BATCH_H
#define SLUICE_BATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SL_PAGE = 64 }; /* positions in a page of the KV cache */

/* Sampling settings for a sequence's next tokens, and the slots of its states. */
typedef struct sl_batch_sequence {
  uint32_t seed[2];
  float temperature, top_p;
  int32_t top_k, logprobs;
  int32_t place; /* index of the first sampled token in its answer; selects the random number */
  int32_t hash;  /* 1: return a hash of the logits */
  float min_p;   /* minimum probability of a token, as a fraction of the likeliest token's */
  int32_t edit, edits; /* index and number of the logit edits for its first pick */
  int32_t more;        /* number of additional edits for each later pick */
  int32_t constrained; /* 1: a pick samples only tokens in its row of allowed tokens
                          (sl_serving.allow) */
  int32_t slot, slots; /* first and number of the slots reserved for the sequence from position 0 on
                          (sl_op_serve.slots): see sl_batch_slot */
  int32_t drafted; /* last rows that are drafted: all but one, fewer than slots; 0: none. The states
                      after each of them and after the row before them are stored */
  int32_t from;    /* slot with the states before its first row; -1: zeros */
  int32_t kept;    /* additional slot for the states after its last row that is not drafted; -1:
                      none */
} sl_batch_sequence;

/* Returns the slot that receives a sequence's states after the row at a position. Slots take turns,
 * so that states before wrong drafted rows are still there. */
static inline int32_t sl_batch_slot(const sl_batch_sequence *s, int32_t position) {
  return s->slot + position % s->slots;
}

/* Edit of a token's logit: adds `bias`, divides a positive sum by `scale` or multiplies any other
 * sum by it, then subtracts `less`. If a token has several edits, only the last applies. */
typedef struct sl_batch_edit {
  int32_t token;
  float bias, scale, less;
} sl_batch_edit;

/* Header of the array. The arrays that follow it have room for the maxima and are filled up to the
 * counts:
 *   position[most_rows], sequence[most_rows]    for each row
 *   pick[most_picks]                            rows whose logits are needed, ascending
 *   given[most_picks]                           1 + the next token of a prompt that is scored;
 *                                               0: a token is sampled
 *   sl_batch_sequence[most_sequences]
 *   table[most_sequences][pages]                for each sequence, the page of every 64 positions
 *   sl_batch_edit[most_edits]
 *   the arrays of sl_batch_spliced, in models that splice
 * The rows of a sequence are adjacent and in order. Its picks are rows of a scored prompt, and its
 * last rows: the last known token and the drafted tokens after it. A token is sampled after each of
 * the last rows. */
typedef struct sl_batch {
  int32_t rows, sequences, picks; /* counts in this tick */
  int32_t most_rows, most_sequences, pages;
  int32_t edits, most_edits;
  int32_t most_picks;
} sl_batch;

/* Size in bytes, without edits and spliced rows. */
static inline size_t sl_batch_bytes(int64_t rows, int64_t sequences, int64_t picks, int64_t pages) {
  return sizeof(sl_batch) + sizeof(int32_t) * (size_t)(2 * rows + 2 * picks) +
         (size_t)sequences * (sizeof(sl_batch_sequence) + (size_t)pages * sizeof(int32_t));
}
static inline const int32_t *sl_batch_position(const sl_batch *b) {
  return (const int32_t *)(b + 1);
}
static inline const int32_t *sl_batch_sequence_of(const sl_batch *b) {
  return sl_batch_position(b) + b->most_rows;
}
static inline const int32_t *sl_batch_pick(const sl_batch *b) {
  return sl_batch_position(b) + 2 * b->most_rows;
}
static inline const int32_t *sl_batch_given(const sl_batch *b) {
  return sl_batch_pick(b) + b->most_picks;
}
static inline const sl_batch_sequence *sl_batch_settings(const sl_batch *b) {
  return (const sl_batch_sequence *)(const void *)(sl_batch_given(b) + b->most_picks);
}
static inline const int32_t *sl_batch_table(const sl_batch *b, int32_t sequence) {
  const void *tables = sl_batch_settings(b) + b->most_sequences;
  return (const int32_t *)tables + (int64_t)sequence * b->pages;
}

static inline const sl_batch_edit *sl_batch_edits(const sl_batch *b) {
  return (const sl_batch_edit *)(const void *)sl_batch_table(b, b->most_sequences);
}

/* Choices made so far: heads of chunks, and the sum over them, in millionths, of the fraction of
 * the softmax mass of a chunk's last 64 queries that their pages hold. */
typedef struct sl_block_choices {
  uint64_t heads, recall;
} sl_block_choices;

/* Storage format of a weight that is not trained: f32, bf16, or blocks of 32 small integers with a
 * scale (Q8_0), or with a scale and an offset (Q4_1), as in GGUF files. INT8 is f32 rounded as
 * sl_quantize() rounds it. The formats after INT8 are those of GGUF files, with the same bytes;
 * training graphs read all of them, served graphs F16, Q3_K, Q4_K, Q5_K and Q6_K. */
typedef enum sl_storage {
  SL_STORAGE_F32,
  SL_STORAGE_BF16,
  SL_STORAGE_Q8_0,
  SL_STORAGE_Q4_1,
  SL_STORAGE_INT8,
  SL_STORAGE_F16,
  SL_STORAGE_Q5_1,
  SL_STORAGE_Q2_K,
  SL_STORAGE_Q3_K,
  SL_STORAGE_Q4_K,
  SL_STORAGE_Q5_K,
  SL_STORAGE_Q6_K,
  SL_STORAGE_IQ4_NL,
  SL_STORAGE_IQ4_XS,
  SL_STORAGE_MXFP4,
  SL_STORAGE_SCALED, /* floats of 8 bits with scales ("FP8"), as Hugging Face folders have them */
  SL_STORAGE_NVFP4,
  SL_STORAGE_FP8 /* floating point of 8 bits: known to devices that compute nothing, read by none */
} sl_storage;

/* Result of one pick. */
enum { SL_BATCH_TOP = 20 };
typedef struct sl_sampled {
  int32_t token;
  float logprob;
  uint32_t hash[2];
  int32_t finite; /* 0: a logit is not finite */
  int32_t ntop;
  int32_t top[SL_BATCH_TOP];
  float top_logprob[SL_BATCH_TOP];
} sl_sampled;

#ifdef __cplusplus
}
#endif
#endif
