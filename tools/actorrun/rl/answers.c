/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/rl/answers.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "io/journal.h"

struct answers_file {
  sli_journal *to;
  bool page;
};

/* ---- lines --------------------------------------------------------------------------------- */

static void add_number(cJSON *to, const char *name, double value) {
  if (isnan(value)) cJSON_AddNullToObject(to, name);
  else cJSON_AddNumberToObject(to, name, value);
}

static void write_line(FILE *file, const rl_prompts *p, const sl_answer *a, double reward,
                       double advantage) {
  char *text = rl_answer_text(p, a);
  cJSON *line = cJSON_CreateObject();
  cJSON_AddNumberToObject(line, "step", (double)a->step + 1);
  cJSON_AddStringToObject(line, "prompt", p->prompts[a->prompt].text);
  cJSON_AddStringToObject(line, "answer", text);
  cJSON_AddNumberToObject(line, "tokens", (double)a->count);
  cJSON_AddBoolToObject(line, "truncated", a->truncated);
  add_number(line, "reward", reward);
  add_number(line, "advantage", advantage);
  char *json = sli_json_mend(cJSON_PrintUnformatted(line));
  fprintf(file, "%s\n", json);
  cJSON_free(json);
  cJSON_Delete(line);
  free(text);
}

/* ---- page ---------------------------------------------------------------------------------- */

static const char head[] =
    "<!doctype html>\n"
    "<meta charset=\"utf-8\">\n"
    "<title>Answers</title>\n"
    "<style>\n"
    ":root { color-scheme: light dark; }\n"
    "body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }\n"
    "h2 { font-size: 1rem; margin: 2rem 0 .3rem; }\n"
    "h2 small { font-weight: normal; opacity: .7; }\n"
    "pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: 13px/1.45 ui-monospace, monospace; }\n"
    "blockquote { margin: .3rem 0 .6rem; padding: .3rem .8rem; border-left: 3px solid #8886; }\n"
    "table { border-collapse: collapse; width: 100%; }\n"
    "td, th { padding: .25rem .6rem; border-top: 1px solid #8884; vertical-align: top; text-align: left; }\n"
    "td:nth-child(-n+3), th:nth-child(-n+3) { text-align: right; white-space: nowrap; width: 5rem; font-variant-numeric: tabular-nums; }\n"
    "tr.up td:first-child { color: #18794e; } tr.down td:first-child { color: #cd2b31; }\n"
    "@media (prefers-color-scheme: dark) { tr.up td:first-child { color: #4cc38a; } tr.down td:first-child { color: #ff6369; } }\n"
    "</style>\n"
    "<h1>Answers and their rewards</h1>\n"
    "<p>The answers to the first prompt of each step, best first.</p>\n";

static void put_text(FILE *file, const char *text) {
  for (; *text; text++) switch (*text) {
    case '<': fputs("&lt;", file); break;
    case '&': fputs("&amp;", file); break;
    default: fputc(*text, file);
    }
}

typedef struct ranked {
  const sl_answer *answer;
  double reward, advantage;
} ranked;

static int best_first(const void *a, const void *b) {
  double x = ((const ranked *)a)->reward, y = ((const ranked *)b)->reward;
  if (isnan(x) || isnan(y)) return isnan(x) - isnan(y);
  return x != y ? (x < y ? 1 : -1)
                : ((const ranked *)a)->answer->row - ((const ranked *)b)->answer->row;
}

static void write_row(FILE *file, const rl_prompts *p, const ranked *r) {
  char *text = rl_answer_text(p, r->answer);
  if (isnan(r->reward)) fprintf(file, "<tr><td>none<td>");
  else
    fprintf(file, "<tr class=\"%s\"><td>%.4g<td>%+.3f",
            r->advantage > 0   ? "up"
            : r->advantage < 0 ? "down"
                               : "",
            r->reward, r->advantage);
  fprintf(file, "<td>%lld%s<td><pre>", (long long)r->answer->count,
          r->answer->truncated ? " …" : "");
  put_text(file, text);
  fprintf(file, "</pre>\n");
  free(text);
}

static void write_section(FILE *file, const rl_prompts *p, const sl_rollouts_report *report, int n,
                          const sl_answer *answers, const double *rewards,
                          const double *advantages) {
  int count = 0;
  ranked *all = sli_calloc((size_t)n, sizeof *all);
  while (count < n && answers[count].member == count) {
    all[count] = (ranked){&answers[count], rewards[count], advantages[count]};
    count++;
  }
  qsort(all, (size_t)count, sizeof *all, best_first);
  fprintf(file, "<h2>Step %lld <small>", (long long)report->step + 1);
  if (!isnan(report->reward)) fprintf(file, "mean reward %.4g, ", report->reward);
  fprintf(file, "%.1f tokens", report->length);
  if (report->truncated) fprintf(file, ", %d of %d truncated", report->truncated, report->answers);
  if (report->dropped) fprintf(file, ", %d dropped", report->dropped);
  fprintf(file, "</small></h2>\n<blockquote><pre>");
  put_text(file, p->prompts[answers[0].prompt].text);
  fprintf(file, "</pre></blockquote>\n<table><tr><th>reward<th>advantage<th>tokens<th>answer\n");
  for (int i = 0; i < count; i++) write_row(file, p, &all[i]);
  fprintf(file, "</table>\n");
  free(all);
}

/* ---- interface ----------------------------------------------------------------------------- */

static bool ends_in(const char *path, const char *suffix) {
  size_t n = strlen(path), m = strlen(suffix);
  return n > m && !strcmp(path + n - m, suffix);
}

sl_status answers_open(const settings *s, int64_t first, answers_file **out) {
  const char *path = settings_text(s, "answers");
  *out = NULL;
  if (!path) return SL_OK;
  bool page = ends_in(path, ".html");
  if (!page && !ends_in(path, ".jsonl"))
    return sl_fail(SL_E_USAGE, "--answers %s: must end in .jsonl or .html", path);
  sli_journal *to;
  sl_status status = first ? sli_journal_append(path, &to) : sli_journal_create(path, &to);
  if (status) return sl_fail(SL_E_USAGE, "--answers: %s", sl_detail());
  if (page && !sli_journal_bytes(to)) fputs(head, sli_journal_stream(to));
  answers_file *f = *out = sli_calloc(1, sizeof *f);
  *f = (answers_file){to, page};
  return SL_OK;
}

void answers_step(answers_file *f, const rl_prompts *p, const sl_rollouts_report *report, int n,
                  const sl_answer *answers, const double *rewards, const double *advantages) {
  if (!f) return;
  FILE *to = sli_journal_stream(f->to);
  if (f->page) write_section(to, p, report, n, answers, rewards, advantages);
  for (int i = 0; i < n && !f->page; i++) write_line(to, p, &answers[i], rewards[i], advantages[i]);
  sli_journal_end(f->to); /* answers_close() reports a lost step */
}

sl_status answers_close(answers_file *f) {
  if (!f) return SL_OK;
  sl_status status = sli_journal_finish(f->to, "answers", SL_OK);
  free(f);
  return status;
}
