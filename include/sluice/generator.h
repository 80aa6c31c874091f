/* SPDX-License-Identifier: Apache-2.0 */
/* A generator: a model of frames (<sluice/generation.h>) that serves requests for clips.
 *
 *     sl_generator *s = NULL;
 *     sl_generator_options options = {.model = &model, .args = args, .steps = 8, .load = load,
 *                                     .lower = {.parallel.stages = 2, .devices = {.kind = "cpu"}}};
 *     status = sl_generator_create(&options, &s);
 *     if (!status) status = sl_generator_submit(s, &(sl_clip){.label = 3, .frames = 16}, &id);
 *     ... poll(2) on sl_generator_fd(s), then
 *     while (sl_generator_poll(s, &event)) ...     frames in order, and the end of each clip
 *     sl_generator_destroy(s);
 *
 * The blocks of a clip enter a queue one after another and leave it denoised. A clip has the same
 * bits on any number of stages, with any timing, and beside any other clips.
 *
 * Threads: any thread may call submit, cancel, poll and stats at any time between create and
 * destroy. They never wait. */
#ifndef SLUICE_GENERATOR_H
#define SLUICE_GENERATOR_H

#include <sluice/generation.h>
#include <sluice/lower.h>
#include <sluice/model.h>
#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_generator sl_generator;

/* Order of a generator's ticks. QUEUE: a queue of as many blocks as there are steps; in each
 * iteration every block makes a step, newest first, and the oldest leaves (DualParal, arXiv
 * 2505.21070). STREAM: a block makes all its steps, then the next begins (LLIA, arXiv 2506.05806).
 */
typedef enum sl_clip_order { SL_CLIPS_QUEUE, SL_CLIPS_STREAM } sl_clip_order;

typedef struct sl_clip {
  int label;      /* class; -1: none */
  uint64_t seed;  /* of its noise */
  int64_t frames; /* more than 0 */
  int64_t first;  /* frames of its first block, up to a block's; 0: a whole block */
  /* Frame i is due `wait` + i / rate seconds after the clip was submitted. Late frames are
   * delivered and counted. rate 0: no deadlines. */
  double wait, rate;
  void *user;
} sl_clip;

typedef struct sl_generator_options {
  const sl_model *model; /* model and its options; both must outlive the generator */
  const sl_args *args;
  sl_clip_order order;
  int steps;              /* denoising steps of a block [8] */
  float guidance;         /* scale of guidance by the class; 1: none [1] */
  int queue;              /* clips that wait; further clips fail with SL_E_BUSY [64] */
  sl_lower_options lower; /* stages, devices, quotas and durations; training options are ignored */
  sl_runtime_options run; /* bind, bind_arg, workers, trace_records, jitter, check */
  /* Fills the parameters; called once, during create, on devices that hold values. */
  sl_status (*load)(void *ctx, const sl_lowered *lowered, sl_runtime *rt);
  void *load_ctx;
  /* All clips that there will be, [nscript]: they are submitted at the start, in order, the plan
   * has as many ticks as they need, and ends. Devices need not hold values. NULL: clips come by
   * sl_generator_submit(). */
  const sl_clip *script;
  int nscript;
  const char *trace; /* file in sl_trace_write()'s format, written by destroy; NULL: none */
} sl_generator_options;

typedef enum sl_clip_end {
  SL_CLIP_RUNS,
  SL_CLIP_DONE,
  SL_CLIP_CANCELLED,
  SL_CLIP_FAILED /* see sl_generator_status() */
} sl_clip_end;

typedef struct sl_clip_event {
  uint64_t id;
  void *user;
  int64_t frame, count; /* frames from `frame` on; count 0: the end */
  const float *pixels;  /* [count][height][width], row by row; valid until the next poll; NULL on
                           devices that hold no values */
  sl_clip_end end;
  double seconds; /* since the clip was submitted, on the generator's clock */
  int64_t late;   /* frames of the clip so far that were later than their deadline */
} sl_clip_event;

typedef struct sl_generator_info {
  const sl_plan *plan;
  const sl_lowered *lowered;
  sl_runtime *rt;
  sl_generation shape; /* sizes of the model */
  int64_t ticks;       /* of a script */
} sl_generator_info;

typedef struct sl_generator_stats {
  int64_t clips, frames, late, cancelled; /* ended clips; delivered frames; late ones */
  int64_t waiting, running;               /* clips now */
  int64_t ticks, empty;                   /* ticks so far; those without a block */
} sl_generator_stats;

/* Builds the graph, lowers it, proves the plan and starts it. A script starts with
 * sl_generator_run(). SL_E_UNSUPPORTED: the model does not generate frames. */
sl_status sl_generator_create(const sl_generator_options *options, sl_generator **out);
/* Builds and lowers only: fills *out's shape and ticks. */
sl_status sl_generator_check(const sl_generator_options *options, sl_generator_info *out);
sl_status sl_generator_destroy(sl_generator *s);
const sl_generator_info *sl_generator_about(const sl_generator *s);
/* Runs a script to its end, on the virtual clock if run.clock says so. */
sl_status sl_generator_run(sl_generator *s);
sl_status sl_generator_submit(sl_generator *s, const sl_clip *clip, uint64_t *id);
/* Ends a clip: its blocks leave the queue. Its end event follows at once. */
void sl_generator_cancel(sl_generator *s, uint64_t id);
/* Returns false if there is no event. */
bool sl_generator_poll(sl_generator *s, sl_clip_event *out);
/* Readable while there are events. */
int sl_generator_fd(const sl_generator *s);
sl_status sl_generator_status(sl_generator *s);
sl_generator_stats sl_generator_count(sl_generator *s);

#ifdef __cplusplus
}
#endif
#endif
