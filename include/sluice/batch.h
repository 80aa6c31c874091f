/* The batch register: what a tick of a served graph computes.
 *
 * A served model has one row of positions that belong to any sequences. What each row of a
 * tick is stands in one i32 array, which the source of the graph fills and which travels from
 * stage to stage as any tensor does. Rows of the table that look at other positions read it as
 * their last input (sl_op.served): they get all there is to know from it. */
#ifndef SLUICE_BATCH_H
#define SLUICE_BATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SL_PAGE = 64 }; /* positions of a page of keys and values */

/* How the token that follows a sequence is chosen, if one is. */
typedef struct sl_batch_sequence {
  uint32_t seed[2];
  float temperature, top_p;
  int32_t top_k, logprobs;
  int32_t place;     /* of the token in its text, which tells its random number */
  int32_t hash;      /* 1: tell the hash of the logits */
} sl_batch_sequence;

/* The head of the array; behind it come, as far as they count,
 *   position[most_rows], sequence[most_rows]    of each row
 *   pick[most_sequences]                        rows whose logits are wanted, ascending
 *   sl_batch_sequence[most_sequences]
 *   table[most_sequences][pages]                of each sequence: the page of each 64 positions
 * Rows of a sequence stand side by side, in order. */
typedef struct sl_batch {
  int32_t rows, sequences, picks;      /* that there are */
  int32_t most_rows, most_sequences, pages;
  int32_t unused[2];
} sl_batch;

static inline size_t sl_batch_bytes(int64_t rows, int64_t sequences, int64_t pages) {
  return sizeof(sl_batch) + sizeof(int32_t) * (size_t)(2 * rows + sequences) +
         (size_t)sequences * (sizeof(sl_batch_sequence) + (size_t)pages * sizeof(int32_t));
}
static inline const int32_t *sl_batch_position(const sl_batch *b) { return (const int32_t *)(b + 1); }
static inline const int32_t *sl_batch_sequence_of(const sl_batch *b) {
  return sl_batch_position(b) + b->most_rows;
}
static inline const int32_t *sl_batch_pick(const sl_batch *b) {
  return sl_batch_position(b) + 2 * b->most_rows;
}
static inline const sl_batch_sequence *sl_batch_settings(const sl_batch *b) {
  return (const sl_batch_sequence *)(const void *)(sl_batch_pick(b) + b->most_sequences);
}
static inline const int32_t *sl_batch_table(const sl_batch *b, int32_t sequence) {
  const void *tables = sl_batch_settings(b) + b->most_sequences;
  return (const int32_t *)tables + (int64_t)sequence * b->pages;
}

/* How the numbers of a weight lie in memory while a graph is served: f32, bf16, or blocks of 32 small
 * integers with a scale (Q8_0), or with a scale and what is added (Q4_1), as GGUF files have them. */
typedef enum sl_rest { SL_REST_F32, SL_REST_BF16, SL_REST_Q8_0, SL_REST_Q4_1 } sl_rest;

/* What is told of a pick. */
enum { SL_BATCH_TOP = 20 };
typedef struct sl_sampled {
  int32_t token;
  float logprob;
  uint32_t hash[2];
  int32_t finite;    /* 0: some logit is not */
  int32_t ntop;
  int32_t top[SL_BATCH_TOP];
  float top_logprob[SL_BATCH_TOP];
} sl_sampled;

#ifdef __cplusplus
}
#endif
#endif
