/* SPDX-License-Identifier: Apache-2.0 */
/* Life cycle of a generator, its clips and their events.
 *
 * Three kinds of threads use a generator: users submit, cancel and poll; the source's thread
 * chooses the block of each tick (line.c), and waits while there is none; the thread on which the
 * plan delivers outputs passes frames on. One lock guards what they share. A script has all its
 * ticks chosen before the run. */
#include <sluice/generator.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <sluice/trace.h>

#include "base/base.h"
#include "graph/graph.h"
#include "serve/line.h"

/* A tick whose frames have not been delivered. */
typedef struct tick_record {
  sli_block_at block;
  sl_generation_tick tick;
} tick_record;

typedef struct event_record {
  struct event_record *next;
  sl_clip_event event;
  float *pixels;
} event_record;

struct sl_generator {
  sl_generator_options options;
  sl_generator_info about;
  sl_generation shape;
  sl_graph *graph;
  sli_block_line line;
  int stages;
  int microbatches; /* ticks of a step */
  int64_t taken;    /* delivered ticks */
  int64_t chosen;   /* ticks of which the source knows */
  size_t capacity;
  bool *script; /* ticks that read and write latents: see note_reads */
  sl_delay_ticks before_in, near_in;
  tick_record *records; /* script: all; else a ring of `capacity` */
  event_record *events, *last_event, *polled;
  sl_generator_stats stats;
  uint64_t next_id;
  size_t nclips, clips_capacity;
  sli_clip **all; /* [nclips] clips without an end event */
  bool closing, started, ran;
  sl_status status;
  char *detail;
  int wake;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t work;
};

static bool is_script(const sl_generator *s) { return s->options.script; }
static bool is_modelled(const sl_generator *s) {
  return !sl_device_computes(s->options.lower.devices.kind);
}
static uint64_t now_of(const sl_generator *s) {
  return s->about.rt ? sl_runtime_now(s->about.rt) : 0;
}

/* ---- events -------------------------------------------------------------------------------- */

static void add_event(sl_generator *s, sl_clip_event event, float *pixels) {
  event_record *e = sli_calloc(1, sizeof *e);
  *e = (event_record){.event = event, .pixels = pixels};
  e->event.pixels = pixels;
  if (s->last_event) s->last_event->next = e;
  else s->events = e;
  s->last_event = e;
  uint64_t one = 1;
  if (s->wake >= 0 && write(s->wake, &one, sizeof one) < 0) return; /* it is readable already */
}

static double seconds_of(const sl_generator *s, const sli_clip *c) {
  return (double)(now_of(s) - c->came_ns) * 1e-9;
}

/* Ends a clip that has no end event yet. */
static void end_clip(sl_generator *s, size_t at, sl_clip_end end) {
  sli_clip *c = s->all[at];
  add_event(s,
            (sl_clip_event){.id = c->id,
                            .user = c->clip.user,
                            .frame = c->delivered,
                            .end = end,
                            .seconds = seconds_of(s, c),
                            .late = c->late},
            NULL);
  s->stats.clips++;
  s->stats.cancelled += end == SL_CLIP_CANCELLED;
  c->cancelled = true;
  s->all[at] = s->all[--s->nclips];
  sli_clip_drop(c);
}

static size_t find_clip(const sl_generator *s, const sli_clip *clip, uint64_t id) {
  size_t at = 0;
  while (at < s->nclips && (clip ? s->all[at] != clip : s->all[at]->id != id)) at++;
  return at;
}

static void end_all(sl_generator *s, sl_clip_end end) {
  while (s->nclips) end_clip(s, 0, end);
}

/* ---- ticks --------------------------------------------------------------------------------- */

/* Returns the record of the next tick, which the source chooses. */
static tick_record *choose(sl_generator *s) {
  if ((size_t)(s->chosen - s->taken) == s->capacity) {
    size_t more = SLI_MAX(2 * s->capacity, 64);
    tick_record *records = sli_calloc(more, sizeof *records);
    for (int64_t t = s->taken; t < s->chosen; t++)
      records[(size_t)t % more] = s->records[(size_t)t % s->capacity];
    free(s->records);
    s->records = records;
    s->capacity = more;
  }
  tick_record *r = &s->records[(size_t)s->chosen++ % s->capacity];
  r->block = sli_block_line_next(&s->line, &r->tick);
  if (r->block.clip) r->block.clip->uses++;
  s->stats.ticks++;
  s->stats.empty += !r->block.clip;
  return r;
}

static void fill(void *ctx, const sl_tick *tick, sl_generation_tick *out, float *noise) {
  sl_generator *s = ctx;
  pthread_mutex_lock(&s->lock);
  while (!is_script(s) && !s->closing && !sli_block_line_busy(&s->line))
    pthread_cond_wait(&s->work, &s->lock);
  const tick_record *r = is_script(s) ? &s->records[tick->number] : choose(s);
  *out = r->tick;
  if (r->block.clip && r->tick.fresh) sli_clip_noise(r->block.clip, r->block.number, noise);
  pthread_mutex_unlock(&s->lock);
}

static void expect(void *ctx, int32_t tick, sl_generation_tick *out) {
  const sl_generator *s = ctx;
  sl_generation_tick full = {
      .own = (int32_t)s->shape.frames, .context = (int32_t)s->shape.context, .done = 1};
  *out = is_script(s) && tick < s->chosen ? s->records[tick].tick : full;
}

/* Copies frames out of their patches. */
static float *pixels_of(const sl_generation *shape, const float *frames, int64_t count) {
  int64_t area = shape->height * shape->width, side = shape->patch, across = shape->width / side;
  float *out = sli_calloc((size_t)(count * area), sizeof *out);
  for (int64_t i = 0; i < count * area; i++) {
    int64_t frame = i / area, row = i % area / shape->width, column = i % shape->width;
    int64_t patch = row / side * across + column / side;
    int64_t at = side == 1 ? i % area : (patch * side + row % side) * side + column % side;
    out[i] = frames[frame * area + at];
  }
  return out;
}

/* Counts the frames that come later than they are due. */
static int64_t count_late(const sl_clip *clip, int64_t first, int64_t count, double seconds) {
  int64_t late = 0;
  for (int64_t i = first; i < first + count && clip->rate > 0; i++)
    late += seconds > clip->wait + (double)i / clip->rate;
  return late;
}

static void deliver(sl_generator *s, const tick_record *r, const float *frames) {
  sli_clip *c = r->block.clip;
  int64_t first, count = sli_block_frames(&c->clip, s->shape.frames, r->block.number, &first);
  double seconds = seconds_of(s, c);
  int64_t late = count_late(&c->clip, first, count, seconds);
  c->late += late;
  c->delivered += count;
  s->stats.frames += count;
  s->stats.late += late;
  add_event(s,
            (sl_clip_event){.id = c->id,
                            .user = c->clip.user,
                            .frame = first,
                            .count = count,
                            .seconds = seconds,
                            .late = c->late},
            frames ? pixels_of(&s->shape, frames, count) : NULL);
  if (r->block.number + 1 == c->blocks) end_clip(s, find_clip(s, c, 0), SL_CLIP_DONE);
}

static void take(void *ctx, const char *name, const sl_type *type, const void *data) {
  sl_generator *s = ctx;
  (void)name, (void)type;
  pthread_mutex_lock(&s->lock);
  tick_record *r = &s->records[(size_t)s->taken++ % s->capacity];
  if (r->block.clip && r->tick.done && !r->block.clip->cancelled) deliver(s, r, data);
  if (r->block.clip) sli_clip_drop(r->block.clip);
  r->block.clip = NULL;
  pthread_mutex_unlock(&s->lock);
}

/* ---- clips --------------------------------------------------------------------------------- */

static sl_status check_clip(const sl_generator *s, const sl_clip *clip) {
  if (clip->frames < 1)
    return sl_fail(SL_E_USAGE, "a clip of %lld frames: must be at least 1",
                   (long long)clip->frames);
  if (clip->first < 0 || clip->first > s->shape.frames)
    return sl_fail(SL_E_USAGE, "a first block of %lld frames: a block has at most %lld",
                   (long long)clip->first, (long long)s->shape.frames);
  if (clip->label >= s->shape.classes || clip->label < -1)
    return sl_fail(SL_E_USAGE, "class %d: must be from 0 to %d, or -1 for none", clip->label,
                   s->shape.classes - 1);
  if (!(clip->wait >= 0 && clip->rate >= 0))
    return sl_fail(SL_E_USAGE, "deadlines must not be negative");
  return SL_OK;
}

static void append(sl_generator *s, const sl_clip *clip, uint64_t *id) {
  sli_clip *c = sli_clip_create(clip, &s->shape), **end = &s->line.first;
  c->id = *id = ++s->next_id;
  c->came_ns = now_of(s);
  while (*end) end = &(*end)->next;
  *end = c;
  c->uses++;
  SLI_GROW(s->all, s->nclips, s->clips_capacity);
  s->all[s->nclips++] = c;
}

sl_status sl_generator_submit(sl_generator *s, const sl_clip *clip, uint64_t *id) {
  sl_status status = check_clip(s, clip);
  if (status) return status;
  pthread_mutex_lock(&s->lock);
  if (s->closing) status = sl_fail(SL_E_STOPPED, "the generator has ended");
  else if (s->nclips >= (size_t)s->options.queue)
    status = sl_fail(SL_E_BUSY, "%zu clips are waiting or running", s->nclips);
  else append(s, clip, id);
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  return status;
}

void sl_generator_cancel(sl_generator *s, uint64_t id) {
  pthread_mutex_lock(&s->lock);
  size_t at = find_clip(s, NULL, id);
  if (at < s->nclips) end_clip(s, at, SL_CLIP_CANCELLED);
  pthread_mutex_unlock(&s->lock);
}

static void drop_polled(sl_generator *s) {
  if (s->polled) free(s->polled->pixels);
  free(s->polled);
  s->polled = NULL;
}

bool sl_generator_poll(sl_generator *s, sl_clip_event *out) {
  uint64_t count;
  pthread_mutex_lock(&s->lock);
  drop_polled(s);
  event_record *e = s->polled = s->events;
  if (e) {
    s->events = e->next;
    if (!s->events) s->last_event = NULL;
    *out = e->event;
  } else if (s->wake >= 0 && read(s->wake, &count, sizeof count) < 0) count = 0;
  pthread_mutex_unlock(&s->lock);
  return e;
}

int sl_generator_fd(const sl_generator *s) { return s->wake; }
const sl_generator_info *sl_generator_about(const sl_generator *s) { return &s->about; }

sl_status sl_generator_status(sl_generator *s) {
  pthread_mutex_lock(&s->lock);
  sl_status status = s->status;
  if (status) sl_fail(status, "%s", s->detail ? s->detail : "");
  pthread_mutex_unlock(&s->lock);
  return status;
}

sl_generator_stats sl_generator_count(sl_generator *s) {
  pthread_mutex_lock(&s->lock);
  sl_generator_stats stats = s->stats;
  for (size_t i = 0; i < s->nclips; i++)
    if (s->all[i]->entered) stats.running++;
    else stats.waiting++;
  pthread_mutex_unlock(&s->lock);
  return stats;
}

/* ---- making -------------------------------------------------------------------------------- */

static sl_status check_options(sl_generator *s) {
  sl_generator_options *o = &s->options;
  if (!o->steps) o->steps = 8;
  if (!o->queue) o->queue = 64;
  if (o->guidance == 0) o->guidance = 1;
  if (o->steps < 1 || o->steps > 4096)
    return sl_fail(SL_E_USAGE, "%d denoising steps: must be from 1 to 4096", o->steps);
  if (is_modelled(s) && !is_script(s))
    return sl_fail(SL_E_UNSUPPORTED, "a generator without a script needs devices that hold values");
  return SL_OK;
}

/* Notes in which ticks latents are read and written: those of a block until it is done, and those
 * that are the context of the next block. */
static void note_reads(sl_generator *s) {
  size_t n = (size_t)s->chosen;
  bool *all = s->script = sli_calloc(4 * n + 1, sizeof *all);
  bool queue = s->options.order == SL_CLIPS_QUEUE;
  for (size_t i = 0; i < n; i++) {
    const tick_record *r = &s->records[i];
    bool next = r->block.number + 1 < r->block.clip->blocks;
    all[i] = !r->tick.fresh;
    all[n + i] = !r->tick.done;
    all[2 * n + i] = r->block.number && (queue || r->tick.fresh);
    all[3 * n + i] = next && (queue || r->tick.done);
  }
  s->before_in = (sl_delay_ticks){all, all + n};
  s->near_in = (sl_delay_ticks){all + 2 * n, all + 3 * n};
  s->shape.before_in = &s->before_in;
  s->shape.near_in = &s->near_in;
}

/* Chooses all ticks of a script, without those that have no block. */
static sl_status play_script(sl_generator *s) {
  int64_t ticks = 0;
  uint64_t id;
  for (int i = 0; i < s->options.nscript; i++) {
    SLI_TRY(check_clip(s, &s->options.script[i]));
    append(s, &s->options.script[i], &id);
    ticks += s->options.steps * sli_clip_blocks(&s->options.script[i], s->shape.frames);
  }
  if (ticks > 1 << 20)
    return sl_fail(SL_E_USAGE, "the clips take %lld ticks, more than a plan can have",
                   (long long)ticks);
  while (s->chosen < ticks)
    if (!choose(s)->block.clip) s->chosen--;
  s->about.ticks = ticks;
  s->stats.empty = 0;
  s->stats.ticks = ticks;
  note_reads(s);
  return SL_OK;
}

/* For models of tokens, which are refused once they are built. */
static void no_tokens(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  (void)ctx, (void)tick, (void)tokens, (void)count;
}

/* Builds a graph. The sizes of the model are known after the first time, and the number of ticks
 * follows from them. */
static sl_status build(sl_generator *s) {
  const sl_generator_options *o = &s->options;
  sl_graph_destroy(s->graph);
  s->graph = sl_graph_create(&(sl_graph_options){.microbatches = s->microbatches,
                                                 .pieces = 1,
                                                 .stages = s->stages,
                                                 .infer = true,
                                                 .feed_tokens = no_tokens,
                                                 .generate = &s->shape});
  sl_status status = sl_model_build(o->model, s->graph, o->args);
  sl_status misuse = sl_args_status(o->args);
  if (misuse) return misuse;
  if (!status) status = sl_graph_status(s->graph);
  if (!status && !s->shape.frames)
    status = sl_fail(SL_E_UNSUPPORTED, "model %s does not generate frames", o->model->name);
  return status;
}

static sl_status make_plan(sl_generator *s) {
  sl_lower_options lower = s->options.lower;
  const sl_parallel_options *p = &lower.parallel;
  if (p->data > 1 || p->tensor > 1 || p->sequence > 1 || p->processes > 1)
    return sl_fail(SL_E_UNSUPPORTED,
                   "a generator has stages in one process, but no other parallelism");
  int stages = SLI_MAX(p->stages, 1) * SLI_MAX(lower.schedule.chunks, 1);
  s->shape = (sl_generation){
      .ways = s->options.guidance == 1 ? 1 : 2, .fill = fill, .expect = expect, .ctx = s};
  sli_block_line_settle(s->options.order, s->options.steps, &s->shape);
  s->stages = stages;
  s->microbatches = SLI_MAX(s->shape.lag, stages + 2);
  if (!is_script(s)) s->shape.behind = stages + 2;
  SLI_TRY(build(s));
  sli_block_line_init(&s->line, s->options.order, s->options.steps, s->options.guidance, &s->shape);
  if (is_script(s)) {
    SLI_TRY(play_script(s));
    s->microbatches = (int)s->about.ticks;
    SLI_TRY(build(s));
  }
  lower.report = (sl_report_options){.on_output = take, .ctx = s};
  sl_lowered *lowered = NULL;
  SLI_TRY(sl_lower(s->graph, &lower, &lowered));
  s->about.lowered = lowered;
  s->about.plan = sl_lowered_plan(lowered);
  s->about.shape = s->shape;
  return sl_plan_prove(s->about.plan);
}

static sl_status make_runtime(sl_generator *s) {
  sl_runtime_options run = s->options.run;
  if (!is_script(s)) run.watchdog_seconds = -1; /* the source may wait for clips */
  if (is_modelled(s)) run.no_data = true;
  SLI_TRY(sl_runtime_create(s->about.plan, &run, &s->about.rt));
  sl_lowered_attach((sl_lowered *)s->about.lowered, s->about.rt);
  if (is_modelled(s) || !s->options.load) return SL_OK;
  return s->options.load(s->options.load_ctx, s->about.lowered, s->about.rt);
}

static void finish(sl_generator *s, sl_status status) {
  pthread_mutex_lock(&s->lock);
  s->status = status == SL_E_STOPPED ? SL_OK : status;
  s->detail = sli_strdup(status ? sl_detail() : "");
  s->closing = true;
  end_all(s, s->status ? SL_CLIP_FAILED : SL_CLIP_CANCELLED);
  pthread_mutex_unlock(&s->lock);
}

static void *run_plan(void *arg) {
  sl_generator *s = arg;
  finish(s, sl_runtime_run(s->about.rt, INT64_C(1) << 40));
  return NULL;
}

sl_status sl_generator_run(sl_generator *s) {
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->nclips; i++) s->all[i]->came_ns = now_of(s);
  pthread_mutex_unlock(&s->lock);
  sl_status status = sl_runtime_run(s->about.rt, 1);
  finish(s, status);
  s->ran = true;
  return status;
}

static sl_status start(sl_generator *s) {
  s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (s->wake < 0) return sl_fail(SL_E_IO, "cannot make a file descriptor for events");
  if (is_script(s)) return SL_OK;
  s->started = s->ran = !pthread_create(&s->thread, NULL, run_plan, s);
  return s->started ? SL_OK : sl_fail(SL_E_MEMORY, "cannot start a thread for the generator");
}

static sl_generator *make(const sl_generator_options *options) {
  sl_generator *s = sli_calloc(1, sizeof *s);
  s->options = *options;
  s->wake = -1;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, NULL);
  return s;
}

/* Destroys what a failed call has made, and keeps its error. */
static sl_status give_up(sl_generator *s, sl_status status) {
  char *detail = sli_strdup(sl_detail());
  s->options.trace = NULL;
  sl_generator_destroy(s);
  sl_fail(status, "%s", detail);
  free(detail);
  return status;
}

sl_status sl_generator_create(const sl_generator_options *options, sl_generator **out) {
  sl_generator *s = make(options);
  sl_status status = check_options(s);
  if (!status) status = make_plan(s);
  if (!status) status = make_runtime(s);
  if (!status) status = start(s);
  if (status) return give_up(s, status);
  *out = s;
  return SL_OK;
}

sl_status sl_generator_check(const sl_generator_options *options, sl_generator_info *out) {
  sl_generator *s = make(options);
  sl_status status = check_options(s);
  if (!status) status = make_plan(s);
  if (status) return give_up(s, status);
  *out = (sl_generator_info){.shape = s->shape, .ticks = s->about.ticks};
  s->options.trace = NULL;
  return sl_generator_destroy(s);
}

static void stop(sl_generator *s) {
  if (!s->started) return;
  pthread_mutex_lock(&s->lock);
  s->closing = true;
  end_all(s, SL_CLIP_CANCELLED);
  pthread_cond_broadcast(&s->work);
  pthread_mutex_unlock(&s->lock);
  sl_runtime_stop(s->about.rt);
  pthread_join(s->thread, NULL);
}

sl_status sl_generator_destroy(sl_generator *s) {
  sl_status status = SL_OK;
  sl_clip_event event;
  if (!s) return SL_OK;
  stop(s);
  if (s->options.trace && s->ran)
    status = sl_trace_write(s->options.trace, s->about.plan, s->about.rt, s->options.run.clock);
  end_all(s, SL_CLIP_CANCELLED);
  while (sl_generator_poll(s, &event)) {}
  for (int64_t t = s->taken; t < s->chosen; t++) {
    sli_clip *c = s->records[(size_t)t % s->capacity].block.clip;
    if (c) sli_clip_drop(c);
  }
  sl_runtime_destroy(s->about.rt);
  sl_lowered_destroy((sl_lowered *)s->about.lowered);
  sl_graph_destroy(s->graph);
  if (s->line.ring) sli_block_line_fini(&s->line);
  free(s->records);
  free(s->script);
  free(s->all);
  free(s->detail);
  if (s->wake >= 0) close(s->wake);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->work);
  free(s);
  return status;
}
