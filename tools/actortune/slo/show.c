/* SPDX-License-Identifier: Apache-2.0 */
/* Results as a table with the command of each server. */
#include <stdlib.h>
#include <string.h>

#include "tools/actortune/slo/slo_inner.h"

/* Returns the word of a value, or NULL for a number. */
static const char *word_of(const hunt *h, slo_dim dim, const server *c) {
  int64_t value = c->at[dim];
  return dim == SLO_ADMIT   ? slo_admits[value]
         : dim == SLO_DTYPE ? h->dtypes.words[value]
         : dim == SLO_KV    ? h->kvs.words[value]
                            : NULL;
}

static void show_value(const hunt *h, FILE *out, slo_dim dim, const server *c, int width) {
  const char *word = word_of(h, dim, c);
  if (word) fprintf(out, "  %-*s", width, word);
  else fprintf(out, "  %*lld", width, (long long)c->at[dim]);
}

/* Returns the width of a column; below 0: of words, which begin at its left. */
static int width_of(slo_dim dim) {
  static const int words[SLO_DIMS] = {
      [SLO_ADMIT] = sizeof "recompute" - 1, [SLO_DTYPE] = sizeof "stored" - 1, [SLO_KV] = 4};
  return words[dim] ? -words[dim] : (int)strlen(slo_dims[dim]);
}

/* Returns whether a dimension is of interest: all servers have stages, ticks and pages; the others
 * count if any of those that are shown has them. */
static bool is_shown(const hunt *h, slo_dim dim, int n, server *const *shown) {
  if (dim == SLO_DTYPE) return h->dtypes.count > 1;
  if (dim == SLO_KV) return h->kvs.count > 1;
  bool any = dim == SLO_STAGES || dim >= SLO_GROUPS;
  for (int i = 0; i < n; i++) any |= shown[i]->at[dim] > (dim < SLO_PREFILL);
  return any;
}

static bool has_joules(const hunt *h) { return h->servers[0].joules > 0; }

static void show_head(const hunt *h, int n, server *const *shown, FILE *out) {
  fprintf(out, " #  tokens/s%s  devices  per device", h->goodput ? "     rate" : "");
  for (int i = 0; i < h->levels.count; i++) fprintf(out, "  %9s", h->levels.items[i].name);
  if (has_joules(h)) fprintf(out, "     J/token");
  fprintf(out, "      memory");
  for (int d = 0; d < SLO_DIMS; d++)
    if (is_shown(h, (slo_dim)d, n, shown)) fprintf(out, "  %*s", width_of((slo_dim)d), slo_dims[d]);
  fprintf(out, "\n");
}

static void show_row(const hunt *h, int n, server *const *shown, int i, FILE *out) {
  char text[32];
  const server *c = shown[i];
  fprintf(out, "%2d  %8.4g", i + 1, c->tokens);
  if (h->goodput) fprintf(out, "  %6.4gx", c->rate);
  fprintf(out, "  %7d  %10.4g", c->devices, c->tokens / c->devices);
  for (int k = 0; k < h->levels.count; k++)
    fprintf(out, "  %9s", sli_format_seconds(text, c->seconds[k]));
  if (has_joules(h)) fprintf(out, "  %10s", energy_text(text, c->joules));
  fprintf(out, "  %10s", sli_format_bytes(text, (double)c->bytes));
  for (int d = 0; d < SLO_DIMS; d++)
    if (is_shown(h, (slo_dim)d, n, shown))
      show_value(h, out, (slo_dim)d, c, abs(width_of((slo_dim)d)));
  fprintf(out, "\n");
}

static bool differs(const hunt *h, slo_dim dim) {
  for (size_t i = 1; i < h->count; i++)
    if (h->servers[i].at[dim] != h->servers[0].at[dim]) return true;
  return false;
}

static void show_second(const hunt *h, slo_dim dim, FILE *out) {
  const server *best = &h->servers[0], *second = hunt_second(h, dim);
  if (!differs(h, dim) || dim == SLO_PREFILL_TENSOR) return;
  fprintf(out, "  %-6s", slo_dims[dim]);
  show_value(h, out, dim, second ? second : best, 1);
  if (!second) {
    fprintf(out, " alone meets the levels, of those tried\n");
    return;
  }
  fprintf(out, " instead of");
  show_value(h, out, dim, best, 1);
  fprintf(out, ": %+.1f %% %s per %s, %+.1f %% memory\n", 100 * (second->score / best->score - 1),
          h->levels.energy ? "tokens"
          : h->goodput     ? "requests"
                           : "tokens/s",
          h->levels.energy ? "joule" : "device",
          100 * ((double)second->bytes / (double)best->bytes - 1));
}

/* Compares the fastest and the thriftiest of the good servers that were tried. */
static void show_energy(const hunt *h, FILE *out) {
  const server *fast = NULL, *thrifty = NULL;
  char one[32], two[32];
  for (size_t i = 0; i < h->count && has_joules(h); i++) {
    const server *c = &h->servers[i];
    if (!c->tried || c->off > 1) break;
    if (!fast || c->tokens > fast->tokens) fast = c;
    if (!thrifty || c->joules < thrifty->joules) thrifty = c;
  }
  if (!fast || fast == thrifty) return;
  fprintf(
      out,
      "  the fastest has %.4g tokens/s at %s each, the thriftiest %.4g at %s: %.0f %% less energy\n",
      fast->tokens, energy_text(one, fast->joules), thrifty->tokens,
      energy_text(two, thrifty->joules), 100 * (1 - thrifty->joules / fast->joules));
}

/* ---- commands ------------------------------------------------------------------------------- */

static void number_words(const server *c, slo_dim dim, words *to) {
  words_add(to, "--%s", slo_dims[dim]);
  words_add(to, "%lld", (long long)c->at[dim]);
}

static void server_words(const hunt *h, const server *c, words *to) {
  number_words(c, SLO_STAGES, to);
  if (c->at[SLO_TENSOR] > 1) number_words(c, SLO_TENSOR, to);
  for (int d = SLO_GROUPS; d <= SLO_SEQUENCES; d++) number_words(c, (slo_dim)d, to);
  words_add(to, "--quota"), words_add(to, "kv=%lld", (long long)c->at[SLO_PAGES]);
  words_add(to, "--admit"), words_add(to, "%s", slo_admits[c->at[SLO_ADMIT]]);
  for (int d = SLO_DTYPE; d <= SLO_KV; d++)
    if (sl_arg_given(h->settings->run, slo_dims[d], 0))
      words_add(to, "--%s", slo_dims[d]), words_add(to, "%s", word_of(h, (slo_dim)d, c));
}

/* Adds the other servers of a simulation. */
static void servers_words(const server *c, words *to) {
  if (c->at[SLO_REPLICAS] > 1) number_words(c, SLO_REPLICAS, to);
  if (!c->at[SLO_PREFILL]) return;
  words_add(to, "--prefill");
  words_add(to, "%lld,stages=1,tensor=%lld", (long long)c->at[SLO_PREFILL],
            (long long)c->at[SLO_PREFILL_TENSOR]);
}

static char *said_of(const hunt *h, const server *c) {
  words w = {0};
  server_words(h, c, &w);
  servers_words(c, &w);
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
static void devices_words(const settings *s, const server *c, words *to) {
  const char *devices = sl_arg_given(s->run, "devices", 0),
             *count = devices ? strchr(devices, ':') : NULL;
  if (!devices) return;
  words_add(to, "--devices");
  if (!count) words_add(to, "%s", devices);
  else
    words_add(to, "%.*s:%lld%s", (int)(count - devices), devices,
              (long long)(c->at[SLO_STAGES] * c->at[SLO_TENSOR]),
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
static void workload_words(const hunt *h, const server *c, words *to) {
  const char *path = settings_text(h->settings, "arrivals");
  servers_words(c, to);
  words_add(to, "--clock"), words_add(to, "virtual");
  if (path) words_add(to, "--arrivals"), words_add(to, "%s", path);
  char text[32];
  double rate = c->rate * sl_arg_float(h->settings->run, "rate");
  if (rate != 1) words_add(to, "--rate"), words_add(to, "%s", number_text(text, sizeof text, rate));
}

static void numbers_word(const sl_tick_cost *t, words *to) {
  char text[5][32];
  const double x[] = {t->tick, t->position, t->row, t->pair, t->pick};
  for (int i = 0; i < 5; i++) number_text(text[i], sizeof text[i], x[i]);
  words_add(to, "%s,%s,%s,%s,%s", text[0], text[1], text[2], text[3], text[4]);
}

static void tick_words(const hunt *h, const server *c, words *to) {
  const char *text = settings_text(h->settings, "tick");
  if (!text) return;
  sl_tick_cost t = ticks_share(&h->cost, 1.0 / (double)c->at[SLO_STAGES]);
  words_add(to, "--tick");
  if (h->whole) words_add(to, "%s", text);
  else numbers_word(&t, to);
}

/* Adds the given options, without those of the search and those that the server decides. */
static void given_words(const settings *s, words *to) {
  static const char *const own[] = {"slo",      "goodput",   "points",     "threads", "arrivals",
                                    "rate",     "tick",      "devices",    "stages",  "groups",
                                    "rows",     "sequences", "quota",      "admit",   "tensor",
                                    "replicas", "prefill",   "exhaustive", "dtype",   "kv"};
  for (const sl_option *o = s->options; o->name; o++) {
    bool other = false;
    for (size_t i = 0; i < SLI_COUNT(own); i++) other |= !strcmp(own[i], o->name);
    if (!other) words_run(s, o, to);
  }
}

static void show_command(const hunt *h, int number, const server *c, FILE *out) {
  words w = {0};
  server_words(h, c, &w);
  if (serves(h->settings)) devices_words(h->settings, c, &w);
  else workload_words(h, c, &w);
  tick_words(h, c, &w);
  given_words(h->settings, &w);
  for (size_t i = 0; i < h->model.count; i++) words_add(&w, "%s", h->model.items[i]);
  char *line = words_line_of("actorserve", &w);
  fprintf(out, "%2d  %s\n", number, line);
  free(line);
  words_fini(&w);
}

static bool is_good(const server *c) { return c->tried && c->off <= 1; }

static void show_count(const hunt *h, FILE *out) {
  size_t tried = 0, good = 0;
  for (size_t i = 0; i < h->count; i++)
    tried += h->servers[i].tried, good += is_good(&h->servers[i]);
  fprintf(out, "%s%zu servers of %zu tried in %.1f s", interrupted() ? "stopped: " : "", tried,
          h->count, h->took);
  if (h->levels.count)
    fprintf(out, ", of which %zu meet %s", good, sl_arg_text(h->settings->run, "slo"));
  fprintf(out, "\n\n");
}

/* ---- failures ------------------------------------------------------------------------------ */

static sl_status say_smallest(const hunt *h, const server *c, const char *said) {
  char bytes[32], budget[32];
  return sl_fail(SL_E_BUDGET, "no server fits in %s: the smallest needs %s, %s",
                 sli_format_bytes(budget, (double)h->budget),
                 sli_format_bytes(bytes, (double)c->bytes), said);
}

static sl_status say_nearest(const hunt *h, const server *c, const char *said) {
  char levels[512] = "";
  for (int i = 0; i < h->levels.count; i++) {
    size_t at = strlen(levels);
    double ratio = c->seconds[i] / h->levels.items[i].seconds;
    snprintf(levels + at, sizeof levels - at, "%s%s %.4g s of %.4g", i ? ", " : "",
             h->levels.items[i].name, c->seconds[i], h->levels.items[i].seconds);
    at = strlen(levels);
    if (ratio > 1) snprintf(levels + at, sizeof levels - at, " (%.3g times)", ratio);
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
  char *said = said_of(h, c);
  sl_status status = c->tried ? say_nearest(h, c, said) : say_smallest(h, c, said);
  free(said);
  return status;
}

sl_status hunt_show(const hunt *h, FILE *out) {
  if (!h->count || !is_good(h->servers)) return explain(h);
  server **shown = sli_calloc((size_t)h->points, sizeof *shown);
  int n = hunt_best(h, shown);
  show_count(h, out);
  show_head(h, n, shown, out);
  for (int i = 0; i < n; i++) show_row(h, n, shown, i, out);
  fprintf(out, "\nwith another choice of\n");
  for (int d = 0; d < SLO_DIMS; d++) show_second(h, (slo_dim)d, out);
  show_energy(h, out);
  fprintf(out, "\n");
  for (int i = 0; i < n; i++) show_command(h, i + 1, shown[i], out);
  free(shown);
  return SL_OK;
}
