/* SPDX-License-Identifier: Apache-2.0 */
/* --clips: a generator plays a script of clips, on real or on modelled devices. */
#include "tools/actorrun/clips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/generator.h>

#include "base/json.h"
#include "base/memory.h"
#include "io/atomic.h"

typedef struct block_record {
  int clip;
  int64_t frame, count, late;
  double seconds;
} block_record;

typedef struct player {
  const settings *settings;
  sl_generation shape;
  int nclips;
  sl_clip *clips;
  size_t count, capacity;
  block_record *blocks;
  float *pixels;  /* [frames of all clips][height][width]; NULL: none */
  int64_t *first; /* [nclips] first frame of each clip in `pixels` */
  int64_t frames;
} player;

/* ---- the script ---------------------------------------------------------------------------- */

static sl_status wrong_clip(const char *text) {
  return sl_fail(SL_E_USAGE,
                 "--clips: '%.40s' must be CLASS[xFRAMES][@SEED],..., with class none "
                 "or a number",
                 text);
}

static bool read_number(const char **at, long long least, long long *out) {
  char *end;
  long long number = strtoll(*at, &end, 10);
  if (end == *at || **at == '-' || **at == '+' || number < least || number > (1 << 30))
    return false;
  *at = end;
  *out = number;
  return true;
}

/* Reads a clip, "3x16@7", and advances `at` past it. */
static bool read_clip(const settings *s, const char **at, sl_clip *out) {
  long long label = -1, frames = 1, seed = sl_arg_int(s->run, "seed");
  if (!strncmp(*at, "none", 4)) *at += 4;
  else if (!read_number(at, 0, &label)) return false;
  if (**at == 'x' && (++*at, !read_number(at, 1, &frames))) return false;
  if (**at == '@' && (++*at, !read_number(at, 0, &seed))) return false;
  *out = (sl_clip){.label = (int)label,
                   .frames = frames,
                   .seed = (uint64_t)seed,
                   .first = sl_arg_int(s->run, "first-frames"),
                   .wait = sl_arg_float(s->run, "frame-wait"),
                   .rate = sl_arg_float(s->run, "frame-rate")};
  return **at == ',' || !**at;
}

static sl_status read_script(player *p) {
  const char *text = sl_arg_text(p->settings->run, "clips"), *at = text;
  size_t capacity = 0;
  for (;; at++) {
    const char *begin = at;
    SLI_GROW(p->clips, (size_t)p->nclips, capacity);
    if (!read_clip(p->settings, &at, &p->clips[p->nclips])) return wrong_clip(begin);
    p->nclips++;
    if (!*at) return SL_OK;
  }
}

static sl_status load(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  return job_initial_values(ctx, lowered, rt);
}

static sl_generator_options options_of(const job *j, const player *p) {
  const settings *s = j->settings;
  sl_generator_options o = {.model = s->model,
                            .args = s->model_args,
                            .order = strcmp(sl_arg_text(s->run, "clip-order"), "stream")
                                         ? SL_CLIPS_QUEUE
                                         : SL_CLIPS_STREAM,
                            .steps = (int)sl_arg_int(s->run, "denoise"),
                            .guidance = (float)sl_arg_float(s->run, "guidance"),
                            .lower = s->lower,
                            .run = {.clock = s->clock,
                                    .workers = (int)sl_arg_int(s->run, "workers"),
                                    .trace_records = (size_t)1 << 18,
                                    .watchdog_seconds = sl_arg_float(s->run, "watchdog"),
                                    .bind = j->machine.placement ? machine_bind : NULL,
                                    .bind_arg = (void *)&j->machine},
                            .load = load,
                            .load_ctx = (void *)s,
                            .script = p->clips,
                            .nscript = p->nclips,
                            .trace = settings_text(s, "trace")};
  o.run.jitter_ns = (uint64_t)(sl_arg_float(s->run, "jitter") * 1000);
  o.run.jitter_seed = o.run.jitter_ns ? 1 : 0;
  if (s->modelled.hardware.flops_per_second > 0)
    o.lower.simulation.hardware = &s->modelled.hardware;
  return o;
}

/* ---- events -------------------------------------------------------------------------------- */

static void take_event(player *p, const sl_clip_event *e) {
  size_t area = (size_t)(p->shape.height * p->shape.width);
  if (!e->count) return;
  SLI_GROW(p->blocks, p->count, p->capacity);
  p->blocks[p->count++] = (block_record){(int)e->id - 1, e->frame, e->count, e->late, e->seconds};
  if (!e->pixels) return;
  if (!p->pixels) p->pixels = sli_calloc((size_t)p->frames * area, sizeof *p->pixels);
  memcpy(p->pixels + (size_t)(p->first[e->id - 1] + e->frame) * area, e->pixels,
         (size_t)e->count * area * sizeof *p->pixels);
}

static void take_events(player *p, sl_generator *s) {
  sl_clip_event e;
  p->shape = sl_generator_about(s)->shape;
  p->first = sli_calloc((size_t)p->nclips, sizeof *p->first);
  for (int i = 0; i < p->nclips; i++) {
    p->first[i] = p->frames;
    p->frames += p->clips[i].frames;
  }
  while (sl_generator_poll(s, &e)) take_event(p, &e);
}

/* ---- outputs ------------------------------------------------------------------------------- */

static void write_y4m(const player *p, FILE *out) {
  int64_t area = p->shape.height * p->shape.width;
  int rate = (int)sl_arg_float(p->settings->run, "frame-rate");
  fprintf(out, "YUV4MPEG2 W%lld H%lld F%d:1 Ip A1:1 Cmono\n", (long long)p->shape.width,
          (long long)p->shape.height, rate > 0 ? rate : 8);
  for (int64_t i = 0; i < p->frames; i++) {
    fputs("FRAME\n", out);
    for (int64_t k = 0; k < area; k++) {
      float level = (p->pixels[i * area + k] + 1) * 127.5f;
      fputc((int)lrintf(fminf(fmaxf(level, 0), 255)), out);
    }
  }
}

static void write_npy(const player *p, FILE *out) {
  char head[128];
  int n = snprintf(head, sizeof head,
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld, %lld), }",
                   (long long)p->frames, (long long)p->shape.height, (long long)p->shape.width);
  int room = 128 - 10 - 1 - n;
  fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, out);
  fprintf(out, "%s%*s\n", head, room, "");
  fwrite(p->pixels, sizeof *p->pixels, (size_t)(p->frames * p->shape.height * p->shape.width), out);
}

static sl_status write_video(const player *p, const char *path) {
  char *text = NULL;
  size_t bytes;
  bool array = strlen(path) > 4 && !strcmp(path + strlen(path) - 4, ".npy");
  FILE *memory = sli_memory_stream(&text, &bytes);
  (array ? write_npy : write_y4m)(p, memory);
  fclose(memory);
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (!status) {
    status = sli_atomic_write(&file, text, bytes);
    if (!status) status = sli_atomic_commit(&file);
    else sli_atomic_abandon(&file);
  }
  free(text);
  return status;
}

static cJSON *block_json(const block_record *b) {
  cJSON *o = cJSON_CreateObject();
  cJSON_AddNumberToObject(o, "frame", (double)b->frame);
  cJSON_AddNumberToObject(o, "frames", (double)b->count);
  cJSON_AddNumberToObject(o, "seconds", b->seconds);
  return o;
}

static cJSON *clip_json(const player *p, int clip) {
  cJSON *o = cJSON_CreateObject(), *blocks;
  int64_t late = 0;
  cJSON_AddNumberToObject(o, "class", p->clips[clip].label);
  cJSON_AddNumberToObject(o, "frames", (double)p->clips[clip].frames);
  cJSON_AddNumberToObject(o, "seed", (double)p->clips[clip].seed);
  blocks = cJSON_AddArrayToObject(o, "blocks");
  for (size_t i = 0; i < p->count; i++) {
    if (p->blocks[i].clip != clip) continue;
    cJSON_AddItemToArray(blocks, block_json(&p->blocks[i]));
    late = p->blocks[i].late;
  }
  cJSON_AddNumberToObject(o, "late_frames", (double)late);
  return o;
}

static void add_devices(cJSON *report, const sl_plan *plan, const sl_runtime *rt) {
  cJSON *devices = cJSON_AddArrayToObject(report, "devices");
  (void)rt;
  for (int32_t d = 0; d < plan->ndevices; d++) {
    cJSON *o = cJSON_CreateObject(), *bytes;
    cJSON_AddStringToObject(o, "device", plan->devices[d].name);
    bytes = cJSON_AddObjectToObject(o, "bytes");
    for (int m = 0; m < SL_MEMORY_COUNT; m++)
      cJSON_AddNumberToObject(bytes, sl_memory_name((sl_memory)m),
                              (double)sl_plan_memory(plan, d, (sl_memory)m));
    cJSON_AddItemToArray(devices, o);
  }
}

static sl_status write_report(const player *p, const sl_generator_info *about, const char *path) {
  cJSON *report = cJSON_CreateObject(), *clips;
  char hash[32];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)about->plan->hash);
  cJSON_AddStringToObject(report, "model", p->settings->model->name);
  cJSON_AddStringToObject(report, "plan_hash", hash);
  cJSON_AddStringToObject(report, "clock",
                          p->settings->clock == SL_CLOCK_VIRTUAL ? "virtual" : "real");
  cJSON_AddNumberToObject(report, "ticks", (double)about->ticks);
  cJSON_AddNumberToObject(report, "pipeline_bytes",
                          (double)sl_runtime_count(about->rt).moved_bytes[SL_TRAFFIC_PIPELINE]);
  clips = cJSON_AddArrayToObject(report, "clips");
  for (int i = 0; i < p->nclips; i++) cJSON_AddItemToArray(clips, clip_json(p, i));
  add_devices(report, about->plan, about->rt);
  char *text = cJSON_Print(report);
  sl_status status = sli_atomic_text(path, text);
  cJSON_free(text);
  cJSON_Delete(report);
  return status;
}

static void print_clips(const player *p) {
  int64_t late = 0;
  double last = 0;
  for (int c = 0; c < p->nclips; c++) {
    const block_record *first = NULL, *end = NULL;
    for (size_t i = 0; i < p->count; i++)
      if (p->blocks[i].clip == c) {
        if (!first) first = &p->blocks[i];
        end = &p->blocks[i];
      }
    if (!first) continue;
    late += end->late;
    last = fmax(last, end->seconds);
    if (c < 8)
      printf("clip %d: first %lld of %lld frames after %.4g s, all after %.4g s%s\n", c + 1,
             (long long)first->count, (long long)p->clips[c].frames, first->seconds, end->seconds,
             end->late ? ", some late" : "");
  }
  printf("%lld frames in %.4g s, %.4g frames/s", (long long)p->frames, last,
         last > 0 ? (double)p->frames / last : 0);
  if (sl_arg_float(p->settings->run, "frame-rate") > 0) printf(", %lld late", (long long)late);
  printf("\n");
}

/* ---- the run ------------------------------------------------------------------------------- */

static sl_status write_outputs(const player *p, const sl_generator *s) {
  const char *video = settings_text(p->settings, "video"),
             *report = settings_text(p->settings, "report");
  sl_status status = SL_OK;
  if (video && p->pixels) status = write_video(p, video);
  if (report && !status) status = write_report(p, sl_generator_about(s), report);
  if (!status && !sl_arg_flag(p->settings->run, "quiet")) print_clips(p);
  return status;
}

sl_status clips_check(const settings *s) {
  static const char *const orders[] = {"queue", "stream", NULL};
  static const char *const others[] = {"save", "checkpoint", "generate", "eval", "rl", "certify"};
  static const char *const own[] = {"denoise",    "guidance",   "clip-order", "first-frames",
                                    "frame-rate", "frame-wait", "video"};
  bool given = settings_text(s, "clips");
  for (size_t i = 0; i < SLI_COUNT(own) && !given; i++)
    if (sl_arg_given(s->run, own[i], 0)) return sl_fail(SL_E_USAGE, "--%s: needs --clips", own[i]);
  if (!given) return SL_OK;
  for (size_t i = 0; i < SLI_COUNT(others); i++)
    if (sl_arg_given(s->run, others[i], 0))
      return sl_fail(SL_E_USAGE, "--%s: not with --clips, which trains nothing", others[i]);
  if (settings_text(s, "video") && !sl_device_computes(s->lower.devices.kind))
    return sl_fail(SL_E_USAGE, "--video: %s devices hold no values", s->lower.devices.kind);
  if (s->lower.parallel.processes > 1)
    return sl_fail(SL_E_UNSUPPORTED, "--clips: runs in one process, not %d",
                   s->lower.parallel.processes);
  return options_check_word("clip-order", sl_arg_text(s->run, "clip-order"), orders);
}

/* Proves the plan, and prints its size. */
static sl_status clips_prove(const sl_generator_options *o) {
  sl_generator_info about;
  sl_status status = sl_generator_check(o, &about);
  if (!status)
    printf("%lld ticks of at most %lld frames; the plan finishes\n", (long long)about.ticks,
           (long long)(about.shape.frames + about.shape.context));
  return status;
}

static sl_status play(player *p, const sl_generator_options *o) {
  sl_generator *s = NULL;
  sl_status status = sl_generator_create(o, &s), ended;
  if (!status) status = sl_generator_run(s);
  if (!status) take_events(p, s);
  if (!status) status = write_outputs(p, s);
  ended = sl_generator_destroy(s);
  return status ? status : ended;
}

sl_status clips_run(job *j) {
  player p = {.settings = j->settings};
  sl_status status = read_script(&p);
  if (!status) {
    const sl_generator_options o = options_of(j, &p);
    status = sl_arg_flag(j->settings->run, "dry-run") ? clips_prove(&o) : play(&p, &o);
  }
  free(p.clips);
  free(p.blocks);
  free(p.pixels);
  free(p.first);
  return status;
}
