/* SPDX-License-Identifier: Apache-2.0 */
/* Valid lengths on a GPU: their sources within a firing, and their completion. */
#include "kernels/cuda/lengths.h"

#include <stdlib.h>
#include <string.h>

#include <sluice/cuda.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/ops.h"
#include "ops/ops.h"

enum { RING = SL_CUDA_RUN_AHEAD };

/* A number of rows: known, or in the pinned word of a call in flight. */
typedef struct number {
  int32_t rows;
  const int32_t *word; /* NULL: `rows` has the number */
  bool said;           /* a call of this firing that knew the number at launch has set it */
} number;

/* An output whose valid length a call sets. */
typedef struct fill {
  const sl_program_call *call; /* call of the first variant; all variants set the same outputs */
  int output;
} fill;

/* A firing in flight. */
typedef struct flight {
  int32_t *words;  /* [nfills] pinned */
  number *numbers; /* [nlengths] */
  int32_t **to;    /* [nbases] */
} flight;

struct sli_cuda_lengths {
  const sl_program *program;
  int nfills;
  /* [nfills] all outputs with a valid length set by calls, in the order of calls */
  fill *fills;
  int32_t *words;    /* [RING][nfills] pinned */
  number *numbers;   /* [RING][nlengths] */
  int32_t **to;      /* [RING][nbases] */
  flight now;        /* firing being launched */
  sli_lengths known; /* numbers of `now`, as far as they are known */
  int32_t rows[];    /* [2][nlengths] storage of `known` */
};

/* ---- creation ---------------------------------------------------------------------------- */

static bool is_filled(const sl_program_call *c, int o) {
  return sli_length_of(c->out_length, o) >= 0 && sli_bit_on(sli_op_rows(c->op)->fills, o);
}

static int count_fills(const sl_program *program) {
  int n = 0;
  for (int i = 0; i < program->ncalls; i++)
    if (sli_op_rows(program->calls[i].op)->fills) n += program->calls[i].nout;
  return n;
}

/* Sets the number of the first filled output in each call's state. */
static void number_fills(sli_cuda_lengths *x) {
  const sl_program *program = x->program;
  for (int i = 0, n = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    if (i % program->ncalls == 0) n = 0;
    ((sli_cuda_call *)c->state)->fill = n;
    for (int o = 0; o < c->nout && sli_op_rows(c->op)->fills; o++) x->fills[n++] = (fill){c, o};
  }
}

sl_status sli_cuda_lengths_create(const sl_program *program, sli_cuda_lengths **out) {
  *out = NULL;
  if (!program->nlengths) return SL_OK;
  size_t n = (size_t)program->nlengths, fills = (size_t)count_fills(program);
  void *words = NULL;
  sl_status status = fills ? sl_cuda_pinned_create(RING * fills * sizeof(int32_t), &words) : SL_OK;
  if (status) return status;
  sli_cuda_lengths *x = sli_calloc(1, sizeof *x + 2 * n * sizeof *x->rows);
  x->program = program;
  x->nfills = (int)fills;
  x->words = words;
  x->fills = sli_calloc(fills + 1, sizeof *x->fills);
  x->numbers = sli_calloc(RING * n, sizeof *x->numbers);
  x->to = sli_calloc(RING * (size_t)program->nbases, sizeof *x->to);
  number_fills(x);
  *out = x;
  return SL_OK;
}

void sli_cuda_lengths_destroy(sli_cuda_lengths *x) {
  if (!x) return;
  sl_cuda_pinned_destroy(x->words);
  free(x->fills);
  free(x->numbers);
  free(x->to);
  free(x);
}

/* ---- launching --------------------------------------------------------------------------- */

static flight flight_of(const sli_cuda_lengths *x, uint64_t fence) {
  size_t at = fence % RING;
  return (flight){x->words + at * (size_t)x->nfills, x->numbers + at * (size_t)x->program->nlengths,
                  x->to + at * (size_t)x->program->nbases};
}

void sli_cuda_lengths_begin(sli_cuda_lengths *x, const sl_firing *firing, uint64_t fence) {
  const sl_program *program = x->program;
  x->now = flight_of(x, fence);
  x->known = sli_lengths_load(program, firing, x->rows);
  for (int e = 0; e < x->known.count; e++)
    x->now.numbers[e] = (number){x->known.valid[e], NULL, false};
  for (int f = 0; f < x->nfills; f++) x->now.words[f] = 0;
  for (int b = 0; b < program->nbases; b++)
    x->now.to[b] = firing->lengths ? firing->lengths[b] : NULL;
}

static int32_t within(int32_t rows, int32_t room) { return SLI_MAX(SLI_MIN(rows, room), 0); }

static int32_t word_read(const int32_t *word) { return *(const volatile int32_t *)word; }

/* Waits for the stream and reads the numbers of these arguments. After a device failure they stay
 * unknown; the queue detects the failure. */
static void find_out(sli_cuda_lengths *x, const int16_t *which, int count, void *stream) {
  for (int i = 0; i < count; i++) {
    int e = sli_length_of(which, i);
    number *n = e < 0 ? NULL : &x->now.numbers[e];
    if (!n || !n->word || cudaStreamSynchronize(stream)) continue;
    n->rows = x->known.valid[e] = within(word_read(n->word), x->known.room[e]);
    n->word = NULL;
  }
}

/* Records the source of a valid length. Several calls of a firing may set the same number; a call
 * that knows it at launch saves the wait. */
static void take_rows(sli_cuda_lengths *x, const sl_program_call *c, int o, int32_t *word) {
  int e = sli_length_of(c->out_length, o);
  number *n = &x->now.numbers[e];
  if (((const sli_cuda_call *)c->state)->knows_rows)
    *n = (number){x->known.valid[e] = within(*word, x->known.room[e]), NULL, true};
  else if (!n->said) n->word = word;
}

/* Launches a call that reads or sets valid lengths. */
static void launch_counting(sli_cuda_lengths *x, const sl_program_call *c, sl_call *call,
                            void *stream) {
  const sli_cuda_call *made = c->state;
  int32_t in_rows[c->nin + 1],
      *words = sli_op_rows(c->op)->fills ? x->now.words + made->fill : NULL;
  for (int i = 0; i < c->nin; i++) in_rows[i] = sli_argument_rows(&x->known, c->in_length, i);
  for (int o = 0; o < c->nout && words; o++)
    words[o] = is_filled(c, o) ? x->known.room[sli_length_of(c->out_length, o)] : 0;
  call->in_rows = in_rows;
  call->out_rows = words;
  made->launch(call, stream);
  for (int o = 0; o < c->nout && words; o++)
    if (is_filled(c, o) && call->out[o]) take_rows(x, c, o, &words[o]);
}

/* Handles a call on zero rows: outputs with a valid length have no rows, and sums are 0. */
static void launch_empty(const sl_program_call *c, const sl_call *call, void *stream) {
  for (int o = 0; o < c->nout; o++)
    if (call->out[o] && !sli_bit(call->accumulate, o) && sli_length_of(c->out_length, o) < 0)
      cudaMemsetAsync(call->out[o], 0, sl_type_bytes(&c->out_type[o]), stream);
}

/* Launches a call that is unaware of valid lengths, on types cut to their valid rows. */
static void launch_cut(sli_cuda_lengths *x, const sl_program_call *c, sl_call *call, void *stream) {
  const sli_cuda_call *made = c->state;
  sl_type in_type[c->nin + 1], out_type[c->nout + 1];
  bool empty = false;
  for (int i = 0; i < c->nin; i++) {
    in_type[i] = sli_valid_type(&x->known, c->in_length, i, &c->in_type[i]);
    empty |= !sli_argument_rows(&x->known, c->in_length, i);
  }
  for (int o = 0; o < c->nout; o++)
    out_type[o] = sli_valid_type(&x->known, c->out_length, o, &c->out_type[o]);
  call->in_type = in_type;
  call->out_type = out_type;
  if (empty) launch_empty(c, call, stream);
  else made->launch(call, stream);
}

void sli_cuda_lengths_launch(sli_cuda_lengths *x, const sl_program_call *c, sl_call *call,
                             void *stream) {
  find_out(x, c->in_length, c->nin, stream);
  if (sli_op_rows(c->op)->fills || sli_op_rows(c->op)->looks)
    return launch_counting(x, c, call, stream);
  find_out(x, c->out_length, c->nout, stream);
  launch_cut(x, c, call, stream);
}

/* ---- completion -------------------------------------------------------------------------- */

static sl_status check_fill(const fill *f, int32_t rows, int32_t room) {
  if (rows <= room) return SL_OK;
  const sl_program_call *c = f->call;
  const sli_cuda_op *entry = sli_cuda_op_find(c->op);
  sl_call call = sli_call_shape(c);
  if (entry && entry->crowded) return entry->crowded(&call, rows);
  return sl_fail(SL_E_INPUT, "%d rows come to output %d, but it has room for %d", (int)rows,
                 f->output, (int)room);
}

sl_status sli_cuda_lengths_complete(sli_cuda_lengths *x, uint64_t fence,
                                    const sl_program_call **culprit) {
  const sl_program *program = x->program;
  flight done = flight_of(x, fence);
  for (int f = 0; f < x->nfills; f++) {
    const sl_program_call *c = *culprit = x->fills[f].call;
    if (!is_filled(c, x->fills[f].output)) continue;
    int32_t room = program->length_rows[sli_length_of(c->out_length, x->fills[f].output)];
    SLI_TRY(check_fill(&x->fills[f], word_read(&done.words[f]), room));
  }
  for (int b = program->nread; b < program->nbases - 1; b++) {
    if (program->base_length[b] < 0 || !done.to[b]) continue;
    const number *n = &done.numbers[program->base_length[b]];
    int32_t rows = n->word ? word_read(n->word) : n->rows;
    *done.to[program->nbases - 1] = *done.to[b] = rows;
  }
  return SL_OK;
}
