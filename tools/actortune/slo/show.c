/* SPDX-License-Identifier: Apache-2.0 */
/* Results as a table with the command of each server. */
#include <stdlib.h>
#include <string.h>

#include "tools/actortune/slo/slo_inner.h"

static void show_value(FILE *out, slo_dim dim, const server *server, int width) {
  if (dim == SLO_ADMIT) fprintf(out, "  %-*s", width, slo_admits[server->at[dim]]);
  else fprintf(out, "  %*lld", width, (long long)server->at[dim]);
}

static int width_of(slo_dim dim) {
  return dim == SLO_ADMIT ? (int)strlen("recompute") : (int)strlen(slo_dims[dim]);
}

static void show_head(const hunt *h, FILE *out) {
  fprintf(out, " #  tokens/s%s", h->goodput ? "     rate" : "");
  for (int i = 0; i < h->levels.count; i++) fprintf(out, "  %9s", h->levels.items[i].name);
  fprintf(out, "      memory");
  for (int d = 0; d < SLO_DIMS; d++)
    fprintf(out, "  %*s", d == SLO_ADMIT ? -width_of(d) : width_of(d), slo_dims[d]);
  fprintf(out, "\n");
}

static void show_row(const hunt *h, int number, const server *server, FILE *out) {
  char text[32];
  fprintf(out, "%2d  %8.4g", number, server->tokens);
  if (h->goodput) fprintf(out, "  %6.4gx", server->rate);
  for (int i = 0; i < h->levels.count; i++)
    fprintf(out, "  %9s", sli_format_seconds(text, server->seconds[i]));
  fprintf(out, "  %10s", sli_format_bytes(text, (double)server->bytes));
  for (int d = 0; d < SLO_DIMS; d++) show_value(out, (slo_dim)d, server, width_of((slo_dim)d));
  fprintf(out, "\n");
}

static bool differs(const hunt *h, slo_dim dim) {
  for (size_t i = 1; i < h->count; i++)
    if (h->servers[i].at[dim] != h->servers[0].at[dim]) return true;
  return false;
}

static void show_second(const hunt *h, slo_dim dim, FILE *out) {
  const server *best = &h->servers[0], *second = hunt_second(h, dim);
  if (!differs(h, dim)) return;
  fprintf(out, "  %-6s", slo_dims[dim]);
  show_value(out, dim, second ? second : best, 1);
  if (!second) {
    fprintf(out, " alone meets the levels\n");
    return;
  }
  fprintf(out, " instead of");
  show_value(out, dim, best, 1);
  double ratio = h->goodput ? second->rate / best->rate : second->tokens / best->tokens;
  fprintf(out, ": %+.1f %% %s, %+.1f %% memory\n", 100 * (ratio - 1),
          h->goodput ? "requests" : "tokens/s",
          100 * ((double)second->bytes / (double)best->bytes - 1));
}

/* ---- commands ------------------------------------------------------------------------------- */

static void server_words(const server *server, words *to) {
  static const char *const options[] = {"stages", "groups", "rows", "sequences"};
  for (int d = SLO_STAGES; d <= SLO_SEQUENCES; d++) {
    words_add(to, "--%s", options[d]);
    words_add(to, "%lld", (long long)server->at[d]);
  }
  words_add(to, "--quota"), words_add(to, "kv=%lld", (long long)server->at[SLO_PAGES]);
  words_add(to, "--admit"), words_add(to, "%s", slo_admits[server->at[SLO_ADMIT]]);
}

static char *said_of(const server *server) {
  words w = {0};
  server_words(server, &w);
  char *line = words_line_of("", &w), *said = sli_strdup(line + 1);
  free(line);
  words_fini(&w);
  return said;
}

/* Returns whether the server can be started: it has weights, and devices that compute. */
static bool serves(const settings *s) {
  const char *devices = sl_arg_given(s->run, "devices", 0);
  return settings_text(s, "init") &&
         (!devices || (strncmp(devices, "timed", 5) && strncmp(devices, "null", 4)));
}

/* Adds as many devices as there are stages: "cpu:4x2" for two stages is "cpu:2x2". */
static void devices_words(const settings *s, const server *server, words *to) {
  const char *devices = sl_arg_given(s->run, "devices", 0),
             *count = devices ? strchr(devices, ':') : NULL;
  if (!devices) return;
  words_add(to, "--devices");
  if (!count) words_add(to, "%s", devices);
  else
    words_add(to, "%.*s:%lld%s", (int)(count - devices), devices, (long long)server->at[SLO_STAGES],
              count + 1 + strspn(count + 1, "0123456789"));
}

/* Formats a number so that it reads back the same. */
static const char *number_text(char *out, size_t bytes, double x) {
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(out, bytes, "%.*g", digits, x);
    if (strtod(out, NULL) == x) break;
  }
  return out;
}

/* Makes the command that replays the requests on the virtual clock. */
static void workload_words(const hunt *h, const server *server, words *to) {
  words_add(to, "--clock"), words_add(to, "virtual");
  words_add(to, "--arrivals"), words_add(to, "%s", settings_text(h->settings, "arrivals"));
  char text[32];
  double rate = server->rate * sl_arg_float(h->settings->run, "rate");
  if (rate != 1) words_add(to, "--rate"), words_add(to, "%s", number_text(text, sizeof text, rate));
}

static void numbers_word(const sl_tick_cost *t, words *to) {
  char text[5][32];
  const double x[] = {t->tick, t->position, t->row, t->pair, t->pick};
  for (int i = 0; i < 5; i++) number_text(text[i], sizeof text[i], x[i]);
  words_add(to, "%s,%s,%s,%s,%s", text[0], text[1], text[2], text[3], text[4]);
}

static void tick_words(const hunt *h, const server *server, words *to) {
  const char *text = settings_text(h->settings, "tick");
  sl_tick_cost t;
  if (!text) return;
  hunt_options(h, server, &t);
  words_add(to, "--tick");
  if (h->whole) words_add(to, "%s", text);
  else numbers_word(&t, to);
}

/* Adds the given options, without those of the search and those that the server decides. */
static void given_words(const settings *s, words *to) {
  static const char *const own[] = {"slo",  "goodput",   "points",  "threads", "arrivals",
                                    "rate", "tick",      "devices", "stages",  "groups",
                                    "rows", "sequences", "quota",   "admit"};
  bool named = settings_text(s, "init") && !strcmp(settings_text(s, "init"), s->model_word);
  for (const sl_option *o = s->options; o->name; o++) {
    bool other = named && !strcmp(o->name, "init");
    for (size_t i = 0; i < SLI_COUNT(own); i++) other |= !strcmp(own[i], o->name);
    if (!other) words_given(o, s->run, to);
  }
}

static void show_command(const hunt *h, int number, const server *server, FILE *out) {
  words w = {0};
  server_words(server, &w);
  if (serves(h->settings)) devices_words(h->settings, server, &w);
  else workload_words(h, server, &w);
  tick_words(h, server, &w);
  given_words(h->settings, &w);
  for (size_t i = 0; i < h->model.count; i++) words_add(&w, "%s", h->model.items[i]);
  char *line = words_line_of("actorserve", &w);
  fprintf(out, "%2d  %s\n", number, line);
  free(line);
  words_fini(&w);
}

static bool is_good(const server *server) { return server->tried && server->off <= 1; }

/* Returns whether two servers give the same answers. Only the smallest, which comes first, is
 * shown. */
static bool is_like(const hunt *h, const server *a, const server *b) {
  return a->rate == b->rate && a->tokens == b->tokens &&
         !memcmp(a->seconds, b->seconds, (size_t)h->levels.count * sizeof *a->seconds);
}

/* Finds the best servers to show, up to `points`. Returns how many. */
static int find_shown(const hunt *h, const server **out) {
  int n = 0;
  for (size_t i = 0; i < h->count && n < h->points && is_good(&h->servers[i]); i++) {
    bool alike = false;
    for (int k = 0; k < n; k++) alike |= is_like(h, out[k], &h->servers[i]);
    if (!alike) out[n++] = &h->servers[i];
  }
  return n;
}

static void show_count(const hunt *h, FILE *out) {
  size_t tried = 0, good = 0;
  for (size_t i = 0; i < h->count; i++)
    tried += h->servers[i].tried, good += is_good(&h->servers[i]);
  fprintf(out, "%s%zu servers of %zu tried in %.1f s, of which %zu meet %s\n\n",
          interrupted() ? "stopped: " : "", tried, h->count, h->took, good,
          sl_arg_text(h->settings->run, "slo"));
}

/* ---- failures ------------------------------------------------------------------------------ */

static sl_status say_smallest(const hunt *h, const server *server, const char *said) {
  char bytes[32], budget[32];
  return sl_fail(SL_E_BUDGET, "no server fits in %s: the smallest needs %s, %s",
                 sli_format_bytes(budget, (double)h->budget),
                 sli_format_bytes(bytes, (double)server->bytes), said);
}

static sl_status say_nearest(const hunt *h, const server *server, const char *said) {
  char levels[512] = "";
  for (int i = 0; i < h->levels.count; i++) {
    size_t at = strlen(levels);
    snprintf(levels + at, sizeof levels - at, "%s%s %.4g s of %.4g", i ? ", " : "",
             h->levels.items[i].name, server->seconds[i], h->levels.items[i].seconds);
  }
  return sl_fail(SL_E_BUDGET, "no server meets --slo %s; the nearest is %s: %s",
                 sl_arg_text(h->settings->run, "slo"), said, levels);
}

/* Explains why the best server does not meet the levels. */
static sl_status explain(const hunt *h) {
  const server *c = h->servers;
  if (h->wrong && (!h->count || (!c->tried && hunt_fits(h, c))))
    return sl_fail(h->wrong, "%s", h->why);
  if (!h->count) return sl_fail(SL_E_STOPPED, "stopped before any server was found");
  char *said = said_of(c);
  sl_status status = c->tried ? say_nearest(h, c, said) : say_smallest(h, c, said);
  free(said);
  return status;
}

sl_status hunt_show(const hunt *h, FILE *out) {
  if (!h->count || !is_good(h->servers)) return explain(h);
  const server **shown = sli_calloc((size_t)h->points, sizeof *shown);
  int n = find_shown(h, shown);
  show_count(h, out);
  show_head(h, out);
  for (int i = 0; i < n; i++) show_row(h, i + 1, shown[i], out);
  fprintf(out, "\nwith another choice of\n");
  for (int d = 0; d < SLO_DIMS; d++) show_second(h, (slo_dim)d, out);
  fprintf(out, "\n");
  for (int i = 0; i < n; i++) show_command(h, i + 1, shown[i], out);
  free(shown);
  return SL_OK;
}
