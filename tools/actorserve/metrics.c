/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/metrics.h"

#include "base/base.h"
#include "tools/actorserve/counts.h"

static const double bounds[METRICS_BUCKETS] = {.001, .0025, .005, .01, .025, .05,
                                               .1,   .25,   .5,   1,   5,    30};

void histogram_add(histogram *h, double seconds) {
  int i = 0;
  while (i < METRICS_BUCKETS && seconds > bounds[i]) i++;
  h->counts[i]++;
  h->seconds += seconds;
}

static void print_head(FILE *out, const char *name, const char *kind, const char *help) {
  fprintf(out, "# HELP sluice_%s %s\n# TYPE sluice_%s %s\n", name, help, name, kind);
}

static void print_value(FILE *out, const char *name, const char *kind, const char *help,
                        uint64_t value) {
  print_head(out, name, kind, help);
  fprintf(out, "sluice_%s %llu\n", name, (unsigned long long)value);
}

static void print_histogram(FILE *out, const char *name, const char *help, const histogram *h) {
  uint64_t sum = 0;
  print_head(out, name, "histogram", help);
  for (int i = 0; i < METRICS_BUCKETS; i++) {
    sum += h->counts[i];
    fprintf(out, "sluice_%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)sum);
  }
  sum += h->counts[METRICS_BUCKETS];
  fprintf(out, "sluice_%s_bucket{le=\"+Inf\"} %llu\nsluice_%s_sum %.9g\nsluice_%s_count %llu\n",
          name, (unsigned long long)sum, name, h->seconds, name, (unsigned long long)sum);
}

static void print_answers(FILE *out, const metrics *m) {
  print_head(out, "http_answers_total", "counter", "answers, by the kind of their status");
  for (int i = 2; i < 6; i++)
    fprintf(out, "sluice_http_answers_total{status=\"%dxx\"} %llu\n", i,
            (unsigned long long)m->answers[i]);
}

static void print_ends(FILE *out, const sl_session_stats *s) {
  print_head(out, "ended_total", "counter", "answers of the model, by how they ended");
  for (int i = 0; i < SL_END_COUNT; i++)
    fprintf(out, "sluice_ended_total{end=\"%s\"} %llu\n", sl_end_name(i),
            (unsigned long long)s->ended[i]);
}

static void print_session(FILE *out, const sl_session_stats *s) {
  uint64_t n[COUNTS];
  counts_list(s, n);
  for (int i = 0; i < COUNTS; i++) {
    char name[32];
    snprintf(name, sizeof name, "%s%s", counts[i].name, counts[i].grows ? "_total" : "");
    print_value(out, name, counts[i].grows ? "counter" : "gauge", counts[i].what, n[i]);
  }
  print_ends(out, s);
}

void metrics_print(FILE *out, const metrics *m, const sl_session_stats *session, http_counts http,
                   size_t held) {
  print_value(out, "connections", "gauge", "connections that are open", http.connections);
  print_value(out, "held_bytes", "gauge",
              "bytes that requests, answers and connections hold (--request-memory)", held);
  print_value(out, "given_up_total", "counter", "connections closed to make room for others",
              http.given_up);
  print_answers(out, m);
  print_value(out, "hung_up_total", "counter", "clients that left before their answer's end",
              m->hung_up);
  print_value(out, "cut_off_total", "counter", "clients that left too much unread", m->cut_off);
  print_value(out, "prompt_tokens_total", "counter", "tokens of prompts", m->prompt_tokens);
  print_value(out, "answer_tokens_total", "counter", "tokens of answers", m->answer_tokens);
  print_histogram(out, "first_token_seconds", "from a request to its first token", &m->first);
  print_histogram(out, "next_token_seconds", "from a token to the next", &m->next);
  print_histogram(out, "answer_seconds", "from a request to the end of its answers", &m->whole);
  print_session(out, session);
}
