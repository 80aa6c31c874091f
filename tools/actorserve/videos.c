/* SPDX-License-Identifier: Apache-2.0 */
/* A server of clips: one thread for connections, which a generator's events wake. */
#include "tools/actorserve/videos.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/generator.h>

#include "base/memory.h"
#include "tools/actorserve/cors.h"
#include "tools/actorserve/errors.h"
#include "tools/actorserve/http/http.h"
#include "tools/actorserve/json.h"

enum { MOST_BODY = 64 << 10, MOST_UNSENT = 64 << 20, CONNECTIONS = 1024 };

/* Formats of frames. */
typedef enum format { FORMAT_Y4M, FORMAT_RAW, FORMAT_LINES, FORMATS } format;
static const struct format_row {
  const char *name, *type;
} formats[FORMATS] = {[FORMAT_Y4M] = {"y4m", "video/x-yuv4mpeg"},
                      [FORMAT_RAW] = {"raw", "application/octet-stream"},
                      [FORMAT_LINES] = {"jsonl", "application/jsonl"}};

typedef struct answer {
  struct answer *next;
  uint64_t id;
  http_exchange *exchange; /* NULL: the client is gone */
  format format;
  double rate;
  int64_t late;
} answer;

typedef struct videos {
  const settings *settings;
  char *key;
  struct event_base *base;
  http *http;
  budget *budget;
  sl_generator *generator;
  sl_generation shape;
  answer *first;
  bool draining;
} videos;

/* ---- answers ------------------------------------------------------------------------------- */

static void answer_text(http_exchange *x, int status, const char *type, char *body) {
  http_answer(x, status, type, body, strlen(body));
  free(body);
}

static void refuse(http_exchange *x, int status, const char *code, const char *text) {
  answer_text(x, status, "application/json", reply_error(status, NULL, code, text));
}

static void drop_answer(videos *v, answer *a) {
  answer **at = &v->first;
  while (*at != a) at = &(*at)->next;
  *at = a->next;
  free(a);
}

static answer *find_answer(const videos *v, uint64_t id) {
  answer *a = v->first;
  while (a && a->id != id) a = a->next;
  return a;
}

static unsigned char level_of(float pixel) {
  return (unsigned char)lrintf(fminf(fmaxf((pixel + 1) * 127.5f, 0), 255));
}

static void write_base64(FILE *out, const unsigned char *bytes, size_t count) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < count; i += 3) {
    size_t left = count - i;
    uint32_t word = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                    (left > 2 ? bytes[i + 2] : 0);
    fputc(digits[word >> 18], out);
    fputc(digits[word >> 12 & 63], out);
    fputc(left > 1 ? digits[word >> 6 & 63] : '=', out);
    fputc(left > 2 ? digits[word & 63] : '=', out);
  }
}

/* Writes a frame. Late ones are marked where the format can say so. */
static void write_frame(const answer *a, FILE *out, const unsigned char *levels, size_t area,
                        int64_t number, bool late) {
  if (a->format == FORMAT_Y4M) fputs(late ? "FRAME XLATE\n" : "FRAME\n", out);
  if (a->format != FORMAT_LINES) {
    fwrite(levels, 1, area, out);
    return;
  }
  fprintf(out, "{\"frame\":%lld,\"late\":%s,\"pixels\":\"", (long long)number,
          late ? "true" : "false");
  write_base64(out, levels, area);
  fputs("\"}\n", out);
}

static void write_frames(const videos *v, const answer *a, const sl_clip_event *e, FILE *out) {
  size_t area = (size_t)(v->shape.height * v->shape.width);
  unsigned char *levels = sli_calloc(area, 1);
  int64_t late = e->late - a->late; /* the first of a block are due first */
  for (int64_t i = 0; i < e->count; i++) {
    for (size_t p = 0; p < area; p++) levels[p] = level_of(e->pixels[(size_t)i * area + p]);
    write_frame(a, out, levels, area, e->frame + i, i < late);
  }
  free(levels);
}

static void write_end(const answer *a, const sl_clip_event *e, FILE *out) {
  static const char *const ends[] = {
      [SL_CLIP_DONE] = "done", [SL_CLIP_CANCELLED] = "cancelled", [SL_CLIP_FAILED] = "failed"};
  if (a->format == FORMAT_LINES)
    fprintf(out, "{\"end\":\"%s\",\"frames\":%lld,\"late\":%lld,\"seconds\":%.6f}\n", ends[e->end],
            (long long)e->frame, (long long)e->late, e->seconds);
}

/* Sends what an event has for its client. */
static void pass_on(videos *v, answer *a, const sl_clip_event *e) {
  char *text = NULL;
  size_t bytes;
  FILE *out = sli_memory_stream(&text, &bytes);
  if (e->count) write_frames(v, a, e, out);
  else write_end(a, e, out);
  fclose(out);
  a->late = e->late;
  if (a->exchange && bytes && !http_send(a->exchange, text, bytes)) {
    a->exchange = NULL;
    sl_generator_cancel(v->generator, a->id);
  }
  free(text);
  if (e->count) return;
  if (a->exchange) http_set_user(a->exchange, NULL); /* its client may still leave */
  if (a->exchange && e->end == SL_CLIP_DONE) http_end(a->exchange);
  else if (a->exchange) http_break_off(a->exchange);
  drop_answer(v, a);
}

/* ---- requests ------------------------------------------------------------------------------ */

typedef struct asked {
  sl_clip clip;
  format format;
} asked;

static bool is_whole(const cJSON *item, double least, double most) {
  return cJSON_IsNumber(item) && item->valuedouble == floor(item->valuedouble) &&
         item->valuedouble >= least && item->valuedouble <= most;
}

static bool read_format(const cJSON *item, format *out) {
  for (int f = 0; f < FORMATS; f++)
    if (cJSON_IsString(item) && !strcmp(item->valuestring, formats[f].name)) {
      *out = (format)f;
      return true;
    }
  return false;
}

/* Reads a field; returns what it must be, or NULL if it is that. */
static const char *read_field(const cJSON *item, asked *out) {
  sl_clip *c = &out->clip;
  const char *name = item->string;
  double number = item->valuedouble;
  if (!strcmp(name, "class")) {
    c->label = cJSON_IsNull(item) ? -1 : (int)number;
    return cJSON_IsNull(item) || is_whole(item, 0, 1 << 20) ? NULL : "a whole number or null";
  }
  if (!strcmp(name, "frames"))
    return c->frames = (int64_t)number, is_whole(item, 1, 1 << 20) ? NULL : "at least 1";
  if (!strcmp(name, "seed"))
    return c->seed = (uint64_t)fmax(number, 0),
           is_whole(item, 0, 0x1p53) ? NULL : "a whole number, not negative";
  if (!strcmp(name, "first_frames"))
    return c->first = (int64_t)number,
           is_whole(item, 0, 1 << 20) ? NULL : "a whole number, not negative";
  if (!strcmp(name, "rate") || !strcmp(name, "wait")) {
    *(*name == 'r' ? &c->rate : &c->wait) = number;
    return cJSON_IsNumber(item) && number >= 0 && number <= 1e6 ? NULL : "a number, not negative";
  }
  if (!strcmp(name, "format")) return read_format(item, &out->format) ? NULL : "y4m, raw or jsonl";
  return "left out: there is no such field (class, frames, seed, first_frames, rate, wait, format)";
}

/* Reads a request; returns the text of an error, which the caller frees, or NULL. */
static char *read_request(const http_request *request, asked *out) {
  sli_bounded memory = {0};
  cJSON *body = NULL;
  char *wrong = NULL;
  *out = (asked){.clip = {.label = -1, .frames = 1}};
  if (json_read(request->body, request->bytes, &memory, &body)) wrong = sli_strdup(sl_detail());
  else if (!cJSON_IsObject(body)) wrong = sli_strdup("the body must be an object");
  const cJSON *item;
  if (!wrong) cJSON_ArrayForEach(item, body) {
      const char *want = read_field(item, out);
      if (want && !wrong) wrong = sli_format("%s must be %s", item->string, want);
    }
  sli_bounded_fini(&memory);
  return wrong;
}

static void begin_answer(const videos *v, answer *a) {
  char text[128], id[32];
  snprintf(id, sizeof id, "%llu", (unsigned long long)a->id);
  http_add_field(a->exchange, "Clip-Id", id);
  snprintf(text, sizeof text, "%lld", (long long)v->shape.width);
  http_add_field(a->exchange, "Frame-Width", text);
  snprintf(text, sizeof text, "%lld", (long long)v->shape.height);
  http_add_field(a->exchange, "Frame-Height", text);
  http_begin(a->exchange, 200, formats[a->format].type, NULL);
  int rate = a->rate > 0 ? (int)lrint(a->rate) : 8;
  int n = snprintf(text, sizeof text, "YUV4MPEG2 W%lld H%lld F%d:1 Ip A1:1 Cmono\n",
                   (long long)v->shape.width, (long long)v->shape.height, SLI_MAX(rate, 1));
  if (a->format == FORMAT_Y4M && !http_send(a->exchange, text, (size_t)n)) a->exchange = NULL;
}

static void post_video(videos *v, http_exchange *x, const http_request *request) {
  asked asked;
  uint64_t id;
  char *wrong = read_request(request, &asked);
  if (wrong) {
    refuse(x, 400, NULL, wrong);
    free(wrong);
    return;
  }
  sl_status status = sl_generator_submit(v->generator, &asked.clip, &id);
  if (status) {
    refuse(x, status == SL_E_BUSY ? 429 : status == SL_E_USAGE ? 400 : 503, NULL, sl_detail());
    return;
  }
  answer *a = sli_calloc(1, sizeof *a);
  *a = (answer){v->first, id, x, asked.format, asked.clip.rate, 0};
  v->first = a;
  http_set_user(x, a);
  begin_answer(v, a);
  if (!a->exchange) sl_generator_cancel(v->generator, id);
}

/* Cancels a clip by its number: DELETE /v1/videos/7. */
static void delete_video(videos *v, http_exchange *x, const char *number) {
  char *end;
  uint64_t id = strtoull(number, &end, 10);
  const answer *a = *number && !*end ? find_answer(v, id) : NULL;
  if (!a) {
    refuse(x, 404, NULL, "no clip with this number is waiting or running");
    return;
  }
  sl_generator_cancel(v->generator, id);
  answer_text(x, 200, "application/json",
              sli_format("{\"id\":%llu,\"cancelled\":true}\n", (unsigned long long)id));
}

static void get_metrics(const videos *v, http_exchange *x) {
  sl_generator_stats n = sl_generator_count(v->generator);
  answer_text(x, 200, "text/plain; version=0.0.4",
              sli_format("sluice_clips_total %lld\nsluice_clips_cancelled_total %lld\n"
                         "sluice_frames_total %lld\nsluice_frames_late_total %lld\n"
                         "sluice_clips_waiting %lld\nsluice_clips_running %lld\n"
                         "sluice_ticks_total %lld\nsluice_ticks_empty_total %lld\n",
                         (long long)n.clips, (long long)n.cancelled, (long long)n.frames,
                         (long long)n.late, (long long)n.waiting, (long long)n.running,
                         (long long)n.ticks, (long long)n.empty));
}

/* ---- routes -------------------------------------------------------------------------------- */

static const char videos_path[] = "/v1/videos/";

static bool has_key(const videos *v, const http_request *request) {
  const char *given = http_request_field(request, "authorization");
  if (!v->key) return true;
  if (!given || strncasecmp(given, "Bearer ", 7) || strlen(given + 7) != strlen(v->key))
    return false;
  int unlike = 0; /* in a time that does not depend on the place */
  for (size_t i = 0; v->key[i]; i++) unlike |= given[7 + i] ^ v->key[i];
  return !unlike;
}

static bool on_head(void *ctx, http_exchange *x, const http_request *request) {
  const videos *v = ctx;
  const char *target = request->target, *method = request->method;
  bool post = !strcmp(target, "/v1/videos"), one = !strncmp(target, videos_path, 11);
  bool open = !strcmp(target, "/health") || !strcmp(target, "/metrics");
  const char *want = post ? "POST" : one ? "DELETE" : "GET";
  if (!post && !one && !open) refuse(x, 404, NULL, "there is nothing at this path");
  else if (strcmp(method, want)) {
    http_add_field(x, "Allow", want);
    refuse(x, 405, NULL, "this path takes another method");
  } else if (!open && !has_key(v, request)) {
    http_add_field(x, "WWW-Authenticate", "Bearer");
    refuse(x, 401, "invalid_api_key", "a valid API key is needed: Authorization: Bearer KEY");
  } else if (!open && !cors_takes_host(sl_arg_text(v->settings->run, "host"), v->key,
                                       http_request_field(request, "host"))) {
    refuse(x, 403, "host_not_allowed", "the Host field has another site's name");
  } else return true;
  return false;
}

static void on_request(void *ctx, http_exchange *x, const http_request *request) {
  videos *v = ctx;
  if (!strcmp(request->target, "/v1/videos")) post_video(v, x, request);
  else if (!strncmp(request->target, videos_path, 11)) delete_video(v, x, request->target + 11);
  else if (!strcmp(request->target, "/metrics")) get_metrics(v, x);
  else
    answer_text(x, v->draining ? 503 : 200, "application/json",
                sli_format("{\"status\":\"%s\"}\n", v->draining ? "draining" : "ok"));
}

static void on_gone(void *ctx, void *user) {
  videos *v = ctx;
  answer *a = user;
  if (!a) return;
  a->exchange = NULL;
  sl_generator_cancel(v->generator, a->id);
}

static char *error_body(void *ctx, int status, const char *text) {
  (void)ctx;
  return reply_error(status, NULL, NULL, text);
}

/* ---- lifetime ------------------------------------------------------------------------------ */

static void end_if_drained(const videos *v) {
  if (v->draining && !v->first) event_base_loopbreak(v->base);
}

static void on_events(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  videos *v = ctx;
  sl_clip_event e;
  while (sl_generator_poll(v->generator, &e)) {
    answer *a = find_answer(v, e.id);
    if (a) pass_on(v, a, &e);
  }
  if (sl_generator_status(v->generator)) v->draining = true;
  end_if_drained(v);
}

static void on_signal(evutil_socket_t number, short what, void *ctx) {
  (void)number, (void)what;
  videos *v = ctx;
  if (v->draining) event_base_loopbreak(v->base);
  v->draining = true;
  http_drain(v->http);
  end_if_drained(v);
}

static sl_status videos_load(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  const pretrained p = settings_pretrained(ctx);
  sl_status status = pretrained_load(&p, NULL, lowered, rt);
  return status ? status : sl_params_copy_versions(lowered, rt);
}

static sl_status open_generator(settings *s, const machine *on, videos *v) {
  const sl_generator_options o = {
      .model = s->model,
      .args = s->model_args,
      .order =
          strcmp(sl_arg_text(s->run, "clip-order"), "stream") ? SL_CLIPS_QUEUE : SL_CLIPS_STREAM,
      .steps = (int)sl_arg_int(s->run, "denoise"),
      .guidance = (float)sl_arg_float(s->run, "guidance"),
      .queue = (int)sl_arg_int(s->run, "clips-waiting"),
      .lower = s->lower,
      .run = {.bind = on->placement ? machine_bind : NULL, .bind_arg = (void *)on},
      .load = videos_load,
      .load_ctx = s,
      .trace = settings_text(s, "trace")};
  sl_status status = sl_generator_create(&o, &v->generator);
  if (!status) v->shape = sl_generator_about(v->generator)->shape;
  return status;
}

static sl_status listen_on(videos *v) {
  const settings *s = v->settings;
  const http_options options = {.host = sl_arg_text(s->run, "host"),
                                .port = (int)sl_arg_int(s->run, "port"),
                                .most_connections = CONNECTIONS,
                                .most_body_bytes = MOST_BODY,
                                .most_unsent_bytes = MOST_UNSENT,
                                .budget = v->budget,
                                .head_seconds = SERVE_HEAD_SECONDS,
                                .body_seconds = SERVE_BODY_SECONDS,
                                .idle_seconds = SERVE_IDLE_SECONDS,
                                .stall_seconds = SERVE_STALL_SECONDS,
                                .on_head = on_head,
                                .on_request = on_request,
                                .on_gone = on_gone,
                                .error_body = error_body,
                                .ctx = v};
  return http_create(v->base, &options, &v->http);
}

static sl_status loop(videos *v) {
  struct event *events[] = {
      event_new(v->base, sl_generator_fd(v->generator), EV_READ | EV_PERSIST, on_events, v),
      evsignal_new(v->base, SIGINT, on_signal, v), evsignal_new(v->base, SIGTERM, on_signal, v)};
  for (size_t i = 0; i < SLI_COUNT(events); i++)
    SLI_CHECK(events[i] && !event_add(events[i], NULL), "no memory for an event");
  signal(SIGPIPE, SIG_IGN); /* a client may be gone when it is written to */
  if (!sl_arg_flag(v->settings->run, "quiet"))
    printf("%s at http://%s:%d/v1/videos\n", v->settings->model->name,
           sl_arg_text(v->settings->run, "host"), http_port(v->http));
  fflush(stdout);
  event_base_dispatch(v->base);
  for (size_t i = 0; i < SLI_COUNT(events); i++) event_free(events[i]);
  return sl_generator_status(v->generator);
}

bool videos_given(const settings *s) { return sl_arg_int(s->run, "denoise"); }

sl_status videos_check(const settings *s) {
  static const char *const orders[] = {"queue", "stream", NULL};
  static const char *const own[] = {"guidance", "clip-order", "clips-waiting"};
  for (size_t i = 0; i < SLI_COUNT(own) && !videos_given(s); i++)
    if (sl_arg_given(s->run, own[i], 0))
      return sl_fail(SL_E_USAGE, "--%s: needs --denoise, for a model of frames", own[i]);
  if (!videos_given(s)) return SL_OK;
  if (serving_has_arrivals(s) || settings_text(s, "measure"))
    return sl_fail(SL_E_USAGE,
                   "--denoise: clips come from clients only; actorrun --clips simulates");
  if (s->lower.parallel.processes > 1)
    return sl_fail(SL_E_UNSUPPORTED, "--denoise: runs in one process, not %d",
                   s->lower.parallel.processes);
  return options_check_word("clip-order", sl_arg_text(s->run, "clip-order"), orders);
}

sl_status videos_serve(settings *s) {
  videos v = {.settings = s, .base = event_base_new()};
  machine on = {0};
  SLI_CHECK(v.base, "no memory for events");
  sl_status status = access_key(s, &v.key);
  if (!status) status = budget_create(access_bytes(s), &v.budget);
  if (!status) status = machine_place(s, &on);
  if (!status) status = open_generator(s, &on, &v);
  if (!status) status = listen_on(&v);
  if (!status) access_warn(sl_arg_text(s->run, "host"), v.key);
  if (!status) status = loop(&v);
  char *detail = sli_strdup(status ? sl_detail() : "");
  if (v.http) http_destroy(v.http);
  while (v.first) drop_answer(&v, v.first);
  sl_status ended = sl_generator_destroy(v.generator);
  machine_fini(&on);
  if (v.budget) budget_destroy(v.budget);
  event_base_free(v.base);
  free(v.key);
  if (status) sl_fail(status, "%s", detail);
  free(detail);
  return status ? status : ended;
}
