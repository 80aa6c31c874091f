/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: a peephole pass over a program's calls.
 *
 * A prepared program is a list of steps, initially one per call. Two steps that match an entry of
 * the table below become one, if either of them can move to the other: it must commute with all
 * steps in between (order.c). The plan, the graph and memory planning are unaware of fusion.
 *
 * The intermediate array of two fused calls need not be written if nothing reads it afterwards:
 * either the second call writes to the same place, or the array is in the workspace and is
 * overwritten before any later call reads it. A register's slot has consumers elsewhere and is
 * always written.
 *
 * A fused kernel reads its inputs while it writes its outputs. Separate calls may place an output
 * over an input that is no longer needed, so the pass checks for aliasing. Such places must be
 * disjoint, or identical if the table entry says that the kernel reads an element before it writes
 * to it. */
#include "kernels/cuda/fuse.h"

#include <stdlib.h>
#include <string.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cuda/order.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/ops.h"
#include "ops/facets.h"

#define PAIR(first_, second_, input_, ...)                                 \
  {                                                                        \
    .first = &sl_op_##first_, .second = &sl_op_##second_, .input = input_, \
    .launch = sli_cuda_##first_##_##second_, __VA_ARGS__                   \
  }
#define ROWWISE .in_place = true
#define PRODUCT(name) .prepare = sli_cuda_##name##_prepare, .release = sli_cuda_linear_release

#define LOSS(name)                                         \
  PAIR(name, name##_b, 2, .output = 1, .same = 3, ROWWISE, \
       .prepare = sli_cuda_##name##_##name##_b_prepare)

#define RUN(rule) \
  { .first = &sl_op_##rule, .launch = sli_cuda_##rule##_run }

static const sli_cuda_fused rows[] = {
    PAIR(add, layernorm, 0, ROWWISE),
    PAIR(add, rmsnorm, 0, ROWWISE),
    PAIR(layernorm_b, add, 0, ROWWISE),
    PAIR(layernorm_b, add, 1, ROWWISE),
    PAIR(rmsnorm_b, add, 0, ROWWISE),
    PAIR(rmsnorm_b, add, 1, ROWWISE),
    PAIR(linear, gelu, 0, PRODUCT(linear_gelu)),
    PAIR(linear_b, gelu_b, 1, PRODUCT(linear_b_gelu_b)),
    LOSS(cross_entropy),
    LOSS(weighted_cross_entropy),
    {.first = &sl_op_sumsq, .launch = sli_cuda_sumsq_run, .scratch = sli_cuda_sumsq_run_scratch},
    RUN(adamw),
    RUN(adam),
    RUN(sgd),
    RUN(lion),
};

enum { LONGEST_RUN = 256 };

/* ---- checks ------------------------------------------------------------- */

/* Returns true if the launch depends on valid lengths. */
static bool has_rows(const sl_program_call *c) { return c->in_length || c->out_length; }

static bool overwrites(const sl_program_call *c) {
  return !(c->accumulate | c->accumulate_span | sli_op_memory(c->op)->updates);
}

/* Returns true if an output of b has exactly this span, and thus overwrites all of it. */
static bool takes_place(const sl_program_call *b, sli_span span) {
  for (int o = 0; o < b->nout; o++) {
    sli_span out = sli_output_span(b, o);
    if (out.base == span.base && out.begin == span.begin && out.end == span.end) return true;
  }
  return false;
}

static bool is_same(sl_place a, const sl_type *a_type, sl_place b, const sl_type *b_type) {
  return a.base >= 0 && a.base == b.base && a.offset == b.offset && sl_type_equal(a_type, b_type);
}

/* Returns true if b's input is all of a's output, and b does not touch it otherwise, unless an
 * output replaces it. */
static bool hands_over(const sl_program_call *a, const sl_program_call *b,
                       const sli_cuda_fused *row) {
  sli_span span = sli_output_span(a, row->output);
  if (!is_same(a->out[row->output], &a->out_type[row->output], b->in[row->input],
               &b->in_type[row->input]))
    return false;
  for (int i = 0; i < a->nin; i++)
    if ((row->same >> i & 1) && !is_same(a->in[i], &a->in_type[i], b->in[i], &b->in_type[i]))
      return false;
  for (int o = 0; o < a->nout; o++)
    if (o != row->output && sli_call_writes(b, sli_output_span(a, o))) return false;
  for (int i = 0; i < b->nin; i++)
    if (i != row->input && sli_spans_overlap(sli_input_span(b, i), span)) return false;
  return overwrites(a) && overwrites(b) && (!sli_call_writes(b, span) || takes_place(b, span));
}

/* Returns true if output o of `writer` and input i of `reader` are disjoint, or identical if
 * `in_place`. */
static bool is_apart(const sl_program_call *writer, int o, const sl_program_call *reader, int i,
                     bool in_place) {
  sli_span out = sli_output_span(writer, o), in = sli_input_span(reader, i);
  if (!sli_spans_overlap(out, in)) return true;
  return in_place && out.begin == in.begin &&
         sl_type_equal(&writer->out_type[o], &reader->in_type[i]);
}

static bool outputs_are_apart(const sl_program_call *writer, const sl_program_call *a,
                              const sl_program_call *b, const sli_cuda_fused *row) {
  for (int o = 0; o < writer->nout; o++) {
    for (int i = 0; i < a->nin; i++)
      if (!is_apart(writer, o, a, i, row->in_place)) return false;
    for (int i = 0; i < b->nin; i++)
      if (i != row->input && !is_apart(writer, o, b, i, row->in_place)) return false;
  }
  return true;
}

/* ---- steps ------------------------------------------------ */

static bool steps_commute(const sli_cuda_step *s, const sli_cuda_step *t) {
  for (int i = 0; i < s->ncalls; i++)
    for (int j = 0; j < t->ncalls; j++)
      if (!sli_calls_commute(s->calls[i], t->calls[j])) return false;
  return true;
}

/* Returns the step to which steps i and j can be merged: i or j, or -1 if neither. */
static int meeting_place(const sli_cuda_steps *all, int i, int j) {
  bool later = true, earlier = true;
  for (int k = i + 1; k < j; k++) {
    earlier = earlier && steps_commute(&all->steps[k], &all->steps[j]);
    later = later && steps_commute(&all->steps[k], &all->steps[i]);
  }
  return earlier ? i : later ? j : -1;
}

/* Merges the later step's calls into the earlier step, which moves to `place`. */
static void merge(sli_cuda_steps *all, int i, int j, int place) {
  sli_cuda_step merged = all->steps[i];
  const sli_cuda_step *other = &all->steps[j];
  size_t count = (size_t)(merged.ncalls + other->ncalls);
  const sl_program_call **calls = sli_calloc(count, sizeof *calls);
  memcpy(calls, merged.calls, (size_t)merged.ncalls * sizeof *calls);
  memcpy(calls + merged.ncalls, other->calls, (size_t)other->ncalls * sizeof *calls);
  free(merged.calls);
  free(other->calls);
  merged.calls = calls;
  merged.ncalls = (int)count;
  all->steps[place] = merged;
  int gone = place == i ? j : i;
  all->count--;
  memmove(&all->steps[gone], &all->steps[gone + 1],
          (size_t)(all->count - gone) * sizeof *all->steps);
}

/* Returns true if a step from `from` on, except `except`, reads any of the span before it is
 * overwritten. A partial overwrite shrinks the span. */
static bool is_read(const sli_cuda_steps *all, int from, int except, sli_span span) {
  for (int s = from; s < all->count && span.begin < span.end; s++)
    for (int i = 0; i < all->steps[s].ncalls && s != except; i++) {
      const sl_program_call *c = all->steps[s].calls[i];
      if (sli_call_reads(c, span)) return true;
      for (int o = 0; o < c->nout; o++) {
        sli_span out = sli_output_span(c, o), rest = {span.base, out.end, span.end};
        if (!sli_spans_overlap(out, span)) continue;
        if (is_read(all, s, except, rest)) return true;
        span.end = SLI_MAX(out.begin, span.begin);
      }
    }
  return false;
}

/* ---- pairs ------------------------------------------------ */

static bool prepare_pair(const sli_cuda_fused *row, const sl_program_call *a,
                         const sl_program_call *b, bool kept, void **state) {
  sl_call calls[] = {sli_call_shape(a), sli_call_shape(b)};
  return !row->prepare || row->prepare(calls, kept, state);
}

static bool fuse_pair(sli_cuda_steps *all, int i, int j, const sli_cuda_fused *row,
                      int32_t workspace) {
  const sl_program_call *a = all->steps[i].calls[0], *b = all->steps[j].calls[0];
  void *state = NULL;
  if (has_rows(a) || has_rows(b) || !hands_over(a, b, row)) return false;
  if (!outputs_are_apart(a, a, b, row) || !outputs_are_apart(b, a, b, row)) return false;
  int place = meeting_place(all, i, j);
  if (place < 0) return false;
  sli_span span = sli_output_span(a, row->output);
  bool kept = !takes_place(b, span) && (a->out[row->output].base != workspace ||
                                        is_read(all, place == i ? i + 1 : j + 1, j, span));
  if (!prepare_pair(row, a, b, kept, &state)) return false;
  merge(all, i, j, place);
  sli_cuda_step *step = &all->steps[place == i ? i : j - 1];
  step->fused = row;
  step->kept = kept;
  step->state = state;
  return true;
}

/* Fuses step i with a later step that reads its output. */
static bool fuse_from(sli_cuda_steps *all, int i, const sli_cuda_fused *row, int32_t workspace) {
  const sl_program_call *a = all->steps[i].calls[0];
  sli_span span = sli_output_span(a, row->output);
  for (int j = i + 1; j < all->count; j++) {
    const sli_cuda_step *other = &all->steps[j];
    if (!other->fused && other->calls[0]->op == row->second && fuse_pair(all, i, j, row, workspace))
      return true;
    for (int k = 0; k < other->ncalls; k++)
      if (sli_call_writes(other->calls[k], span)) return false;
  }
  return false;
}

/* ---- runs ------------------------------------------------ */

/* Adds the next call of the same op to step i. */
static bool extend_run(sli_cuda_steps *all, int i, const sli_cuda_fused *row) {
  int j = i + 1;
  while (j < all->count && (all->steps[j].fused || all->steps[j].calls[0]->op != row->first)) j++;
  if (j == all->count || has_rows(all->steps[i].calls[0]) || has_rows(all->steps[j].calls[0]) ||
      all->steps[i].ncalls == LONGEST_RUN)
    return false;
  if (!steps_commute(&all->steps[i], &all->steps[j])) return false;
  int place = meeting_place(all, i, j);
  if (place < 0) return false;
  merge(all, i, j, place);
  all->steps[place == i ? i : j - 1].fused = row;
  return true;
}

/* ---- the pass ------------------------------------------------ */

static bool fuse_at(sli_cuda_steps *all, int i, int32_t workspace) {
  const sli_cuda_step *step = &all->steps[i];
  for (size_t r = 0; r < SLI_COUNT(rows); r++) {
    const sli_cuda_fused *row = &rows[r];
    if (step->calls[0]->op != row->first || (step->fused && step->fused != row)) continue;
    if (!row->second && extend_run(all, i, row)) return true;
    if (row->second && !step->fused && fuse_from(all, i, row, workspace)) return true;
  }
  return false;
}

static bool is_wanted(void) {
  const char *wanted = getenv("SLUICE_CUDA_FUSE");
  return !wanted || strcmp(wanted, "0");
}

void sli_cuda_fuse(const sl_program *program, int variant, sli_cuda_steps *steps) {
  const sl_program_call *calls = program->calls + variant * program->ncalls;
  int32_t workspace = program->nbases - 1;
  bool wanted = is_wanted();
  *steps = (sli_cuda_steps){.count = program->ncalls,
                            .steps = sli_calloc((size_t)program->ncalls, sizeof *steps->steps)};
  for (int i = 0; i < steps->count; i++) {
    sli_cuda_step *step = &steps->steps[i];
    *step = (sli_cuda_step){.ncalls = 1, .calls = sli_calloc(1, sizeof *step->calls)};
    step->calls[0] = &calls[i];
  }
  for (int i = 0; wanted && i < steps->count;)
    if (!fuse_at(steps, i, workspace)) i++; /* otherwise another step may have moved here */
}

void sli_cuda_unfuse(sli_cuda_steps *steps) {
  for (int i = 0; i < steps->count; i++) {
    sli_cuda_step *step = &steps->steps[i];
    if (step->fused && step->fused->release) step->fused->release(step->state);
    free(step->calls);
  }
  free(steps->steps);
}

/* ---- launching ------------------------------------------------ */

bool sli_cuda_fused_launch(const sli_cuda_step *step, const sl_firing *firing, const sl_tick *tick,
                           void *scratch, void *stream) {
  int nin = 0, nout = 0, wanted = 0;
  if (!step->fused) return false;
  for (int i = 0; i < step->ncalls; i++) nin += step->calls[i]->nin, nout += step->calls[i]->nout;
  const void *in[nin];
  void *out[nout];
  sl_call calls[step->ncalls];
  nin = nout = 0;
  for (int i = 0; i < step->ncalls; i++) {
    const sl_program_call *c = step->calls[i];
    if (!sli_call_bind(c, firing, tick, in + nin, out + nout, &calls[wanted])) continue;
    calls[wanted++].scratch = scratch;
    nin += c->nin;
    nout += c->nout;
  }
  if (step->fused->second && wanted < 2) return false;
  if (step->fused->second && !step->kept) out[step->fused->output] = NULL;
  if (wanted) step->fused->launch(step->fused, calls, wanted, step->state, stream);
  return true;
}
