/* SPDX-License-Identifier: Apache-2.0 */
/* A job's status as text. Lines are truncated to the terminal's width, and the least important
 * columns of the table are dropped first. */
#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorrun/ctl/status.h"

/* ---- values -------------------------------------------------------------------------------- */

static const char *text_of(const cJSON *object, const char *name) {
  const cJSON *item = cJSON_GetObjectItem(object, name);
  return cJSON_IsString(item) ? item->valuestring : "";
}

static bool has(const cJSON *object, const char *name) {
  return cJSON_IsNumber(cJSON_GetObjectItem(object, name));
}

static double number_of(const cJSON *object, const char *name) {
  const cJSON *item = cJSON_GetObjectItem(object, name);
  return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* Formats "1.2 ms", "12 s", "1 min 20 s", "3 h 5 min" or "4 d 2 h" into out[32]. */
static const char *format_seconds(char out[32], double s) {
  long whole = (long)(s + 0.5);
  if (s < 0.9995e-3) snprintf(out, 32, "%.0f us", s * 1e6);
  else if (s < 0.9995) snprintf(out, 32, "%.3g ms", s * 1e3);
  else if (s < 59.5) snprintf(out, 32, "%.3g s", s);
  else if (whole < 3600) snprintf(out, 32, "%ld min %ld s", whole / 60, whole % 60);
  else if (whole < 86400) snprintf(out, 32, "%ld h %ld min", whole / 3600, whole % 3600 / 60);
  else snprintf(out, 32, "%ld d %ld h", whole / 86400, whole % 86400 / 3600);
  return out;
}

/* ---- lines --------------------------------------------------------------------------------- */

typedef enum colour { PLAIN, BOLD, DIM, GREEN, YELLOW, RED } colour;

typedef struct line {
  const status_style *style;
  FILE *out;
  int at; /* current column */
} line;

static void ctl_show_put(line *l, colour c, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void ctl_show_put(line *l, colour c, const char *format, ...) {
  static const char *const codes[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m"};
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  int n = (int)strlen(text), room = l->style->width ? l->style->width - l->at : n;
  if (room <= 0) return;
  bool paint = c != PLAIN && l->style->colour;
  if (paint) fputs(codes[c], l->out);
  fprintf(l->out, "%.*s", SLI_MIN(n, room), text);
  if (paint) fputs("\033[0m", l->out);
  l->at += n;
}

static void end_line(line *l) {
  fputc('\n', l->out);
  l->at = 0;
}

/* ---- the head ------------------------------------------------------------------------------ */

static void show_name(line *l, const cJSON *job) {
  const cJSON *processes = cJSON_GetObjectItem(job, "processes");
  int np = cJSON_GetArraySize(processes);
  int nd = cJSON_GetArraySize(cJSON_GetObjectItem(job, "devices"));
  ctl_show_put(l, BOLD, "%.0f  %s", number_of(job, "pid"), text_of(job, "model"));
  ctl_show_put(l, PLAIN, "  %s, %d device%s", text_of(job, "schedule"), nd, nd == 1 ? "" : "s");
  if (np > 1) ctl_show_put(l, PLAIN, " in %d processes", np);
  if (*text_of(job, "starter")) ctl_show_put(l, PLAIN, ", started by %s", text_of(job, "starter"));
  end_line(l);
}

/* Shows how many of the experts that rows wanted were in memory. */
static void show_experts(line *l, const cJSON *x) {
  double wanted = number_of(x, "experts_wanted"), held = number_of(x, "experts_held");
  ctl_show_put(l, PLAIN,
               "experts: %.0f wanted, %.0f in memory (%.1f %%), %.0f read from disk, %.1f MiB",
               wanted, held, 100 * held / wanted, number_of(x, "experts_read"),
               number_of(x, "expert_bytes_read") / (1 << 20));
  end_line(l);
  if (!number_of(x, "experts_guessed")) return;
  ctl_show_put(l, PLAIN, "  %.0f guessed, of which %.0f wanted; %.1f MiB read ahead, %.1f wasted",
               number_of(x, "experts_guessed"), number_of(x, "experts_guessed_right"),
               number_of(x, "expert_bytes_guessed") / (1 << 20),
               number_of(x, "expert_bytes_wasted") / (1 << 20));
  end_line(l);
}

static void show_tables(line *l, const cJSON *x) {
  ctl_show_put(l, PLAIN, "tables: %.0f rows read from disk, %.1f MiB",
               number_of(x, "table_rows_read"), number_of(x, "table_bytes_read") / (1 << 20));
  end_line(l);
}

/* Shows the status of a server. */
static void show_serving(line *l, const cJSON *job, const cJSON *x) {
  double stages = number_of(x, "stages");
  ctl_show_put(l, PLAIN, "serving %.0f, %.0f wait  %.1f tokens/s  %.1f rows in %.1f ticks/s",
               number_of(x, "running"), number_of(x, "queued"), number_of(x, "tokens_per_second"),
               number_of(x, "rows_per_second"), number_of(x, "ticks_per_second"));
  if (has(job, "bubble"))
    ctl_show_put(l, PLAIN, "  bubble %.0f %%", 100 * number_of(job, "bubble"));
  end_line(l);
  ctl_show_put(l, PLAIN, "%.0f of %.0f pages used", number_of(x, "pages_used"),
               number_of(x, "pages"));
  if (stages > 1) ctl_show_put(l, PLAIN, " on each of %.0f stages", stages);
  ctl_show_put(l, PLAIN,
               "; %.0f ticks, %.0f rows, %.0f shared, %.0f tokens, %.0f preemptions so far",
               number_of(x, "ticks"), number_of(x, "rows"), number_of(x, "rows_shared"),
               number_of(x, "tokens"), number_of(x, "preemptions"));
  end_line(l);
  if (number_of(x, "experts_wanted") > 0) show_experts(l, x);
  if (number_of(x, "table_rows_read") > 0) show_tables(l, x);
}

static void show_limits(line *l, const cJSON *limits) {
  const cJSON *limit;
  ctl_show_put(l, DIM, "quotas");
  cJSON_ArrayForEach(limit, limits)
      ctl_show_put(l, PLAIN, "  %s %.0f", limit->string, limit->valuedouble);
  end_line(l);
}

static void show_progress(line *l, const cJSON *job) {
  const cJSON *serving = cJSON_GetObjectItem(job, "serving");
  if (serving) {
    show_serving(l, job, serving);
    return;
  }
  if (has(job, "step"))
    ctl_show_put(l, PLAIN, "step %.0f/%.0f", number_of(job, "step"), number_of(job, "steps"));
  else ctl_show_put(l, RED, "process 0 is silent, so no other process can be heard");
  if (has(job, "loss"))
    ctl_show_put(l, PLAIN, "  loss %.4f  %.0f %s/s", number_of(job, "loss"),
                 number_of(job, "tokens_per_second"), text_of(job, "items"));
  if (has(job, "bubble"))
    ctl_show_put(l, PLAIN, "  bubble %.0f %%", 100 * number_of(job, "bubble"));
  end_line(l);
}

static void show_times(line *l, const cJSON *job) {
  char text[32];
  const cJSON *checkpoint = cJSON_GetObjectItem(job, "checkpoint");
  if (!has(job, "elapsed_seconds") && !checkpoint) return;
  if (has(job, "elapsed_seconds"))
    ctl_show_put(l, PLAIN, "running for %s",
                 format_seconds(text, number_of(job, "elapsed_seconds")));
  if (has(job, "left_seconds"))
    ctl_show_put(l, PLAIN, ", %s left", format_seconds(text, number_of(job, "left_seconds")));
  if (checkpoint && has(checkpoint, "step"))
    ctl_show_put(l, PLAIN, "%scheckpoint of step %.0f in %s", l->at ? "; " : "",
                 number_of(checkpoint, "step"), text_of(checkpoint, "directory"));
  else if (checkpoint) ctl_show_put(l, PLAIN, "%sno checkpoint yet", l->at ? "; " : "");
  end_line(l);
}

/* ---- the table of processes ------------------------------------------------------------------ */

enum { COLUMNS = 12, CELL = 48 };

static const struct {
  const char *title, *key;
  enum { COUNT, BYTES, SHARE, WORD } kind;
  bool left;
  int dispensable; /* columns with higher numbers are dropped first */
} columns[COLUMNS] = {
    {"process", "process", COUNT, false, 0},
    {"host", "host", WORD, true, 6},
    {"pid", "pid", COUNT, false, 0},
    {"devices", "devices", WORD, true, 5},
    {"begun", "steps_begun", COUNT, false, 0},
    {"firings", "firings", COUNT, false, 7},
    {"bubble", "bubble", SHARE, false, 0},
    {"resident", "resident_bytes", BYTES, false, 1},
    {"registers", "arena_bytes", BYTES, false, 4},
    {"sent", "sent_bytes", BYTES, false, 2},
    {"received", "received_bytes", BYTES, false, 3},
    {"messages", "control_sent", COUNT, false, 8},
};

typedef struct row {
  char cell[COLUMNS][CELL];
} row;

/* Fills "cpu:0", or "cpu:0 .. cpu:3" for several. */
static void fill_devices(char cell[CELL], const cJSON *process) {
  const cJSON *names = cJSON_GetObjectItem(process, "devices");
  int n = cJSON_GetArraySize(names);
  if (!n) return;
  const char *first = cJSON_GetArrayItem(names, 0)->valuestring;
  const char *last = cJSON_GetArrayItem(names, n - 1)->valuestring;
  if (n == 1) snprintf(cell, CELL, "%s", first);
  else snprintf(cell, CELL, "%s .. %s", first, last);
}

static void fill_row(row *r, const cJSON *process) {
  bool silent = cJSON_IsTrue(cJSON_GetObjectItem(process, "silent"));
  for (int c = 0; c < COLUMNS; c++) {
    double value = number_of(process, columns[c].key);
    char *cell = r->cell[c], bytes[32];
    if (!strcmp(columns[c].key, "devices")) fill_devices(cell, process);
    else if (silent && !strcmp(columns[c].key, "steps_begun")) strcpy(cell, "silent");
    else if (columns[c].kind == WORD) snprintf(cell, CELL, "%s", text_of(process, columns[c].key));
    else if (!has(process, columns[c].key)) continue;
    else if (columns[c].kind == COUNT) snprintf(cell, CELL, "%.0f", value);
    else if (columns[c].kind == SHARE) snprintf(cell, CELL, "%.0f %%", 100 * value);
    else snprintf(cell, CELL, "%s", sli_format_bytes(bytes, value));
  }
}

/* Chooses the widths of the columns: 0 for a column that is empty or does not fit. */
static void choose_columns(const row *rows, int n, int width, int *widths) {
  int sum = 0;
  for (int c = 0; c < COLUMNS; c++) {
    widths[c] = 0;
    for (int i = 0; i < n; i++) widths[c] = SLI_MAX(widths[c], (int)strlen(rows[i].cell[c]));
    if (widths[c]) widths[c] = SLI_MAX(widths[c], (int)strlen(columns[c].title));
    sum += widths[c] ? widths[c] + 2 : 0;
  }
  for (int goes = 8; goes > 0 && width && sum - 2 > width; goes--)
    for (int c = 0; c < COLUMNS; c++) {
      if (columns[c].dispensable != goes || !widths[c]) continue;
      sum -= widths[c] + 2;
      widths[c] = 0;
    }
}

static void show_row(line *l, const row *r, const int *widths, colour paint) {
  for (int c = 0; c < COLUMNS; c++) {
    const char *cell = r ? r->cell[c] : columns[c].title;
    if (widths[c])
      ctl_show_put(l, paint, "%s%*s", l->at ? "  " : "", columns[c].left ? -widths[c] : widths[c],
                   cell);
  }
}

static void show_processes(line *l, const cJSON *processes) {
  int n = cJSON_GetArraySize(processes), widths[COLUMNS], i = 0;
  row *rows = sli_calloc((size_t)n, sizeof *rows);
  const cJSON *process;
  cJSON_ArrayForEach(process, processes) fill_row(&rows[i++], process);
  choose_columns(rows, n, l->style->width, widths);
  show_row(l, NULL, widths, DIM);
  end_line(l);
  i = 0;
  cJSON_ArrayForEach(process, processes) {
    bool silent = cJSON_IsTrue(cJSON_GetObjectItem(process, "silent"));
    show_row(l, &rows[i++], widths, silent ? RED : PLAIN);
    end_line(l);
  }
  free(rows);
}

/* ---- waiting actors -------------------------------------------------------------------------- */

/* Adds " B1 482.3": step and microbatch, and the piece if there are several. */
static void put_pass(line *l, const cJSON *device) {
  if (!has(device, "step")) return;
  ctl_show_put(l, PLAIN, "  %s %.0f.%.0f", text_of(device, "actor"), number_of(device, "step"),
               number_of(device, "microbatch"));
  if (has(device, "piece")) ctl_show_put(l, PLAIN, ".%.0f", number_of(device, "piece"));
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

/* Adds the actor that is waited for, and the last actor of the chain. Actors that carry a register
 * share its name. */
static void put_helper(line *l, const cJSON *waits) {
  const cJSON *end = cJSON_GetObjectItem(waits, "in_the_end");
  const char *on = text_of(waits, "on"), *device = text_of(waits, "device");
  const char *state = text_of(end, "state"), *last = text_of(end, "actor");
  if (!*on) return;
  if (!ends_with(on, text_of(waits, "register")))
    ctl_show_put(l, PLAIN, " from %s on %s", on, device);
  else ctl_show_put(l, PLAIN, " from %s", device);
  if (strcmp(device, text_of(end, "device")))
    ctl_show_put(l, PLAIN, ", in the end from %s", text_of(end, "device"));
  if (!strcmp(state, "silent")) ctl_show_put(l, RED, " (silent)");
  else if (!strcmp(state, "circle")) ctl_show_put(l, RED, " (a circle)");
  else ctl_show_put(l, DIM, " (%s %s)", last, state);
}

static void put_wait(line *l, const cJSON *device) {
  const cJSON *waits = cJSON_GetObjectItem(device, "waits");
  const char *why = text_of(waits, "why");
  if (!strcmp(why, "credit"))
    ctl_show_put(l, PLAIN, " lacks a slot of %s (%.0f taken)", text_of(waits, "register"),
                 number_of(waits, "slots"));
  else if (!strcmp(why, "policy")) ctl_show_put(l, PLAIN, " is put off");
  else ctl_show_put(l, PLAIN, " lacks %s", text_of(waits, "register"));
  put_helper(l, waits);
}

static void show_device(line *l, const cJSON *device, int name_width) {
  const char *state = text_of(device, "state");
  char text[32];
  ctl_show_put(l, PLAIN, "%-*s  ", name_width, text_of(device, "device"));
  if (has(device, "bubble"))
    ctl_show_put(l, PLAIN, "%5.0f %%  ", 100 * number_of(device, "bubble"));
  else ctl_show_put(l, PLAIN, "%7s  ", "");
  if (!strcmp(state, "silent")) {
    ctl_show_put(l, RED, "process %.0f is silent", number_of(device, "process"));
  } else {
    bool runs = !strcmp(state, "runs"), waits = !strcmp(state, "waits");
    ctl_show_put(l, runs ? GREEN : waits ? YELLOW : PLAIN, "%-5s", state);
    ctl_show_put(l, PLAIN, " %7s", format_seconds(text, number_of(device, "seconds")));
    put_pass(l, device);
    if (waits) put_wait(l, device);
  }
  end_line(l);
}

static void show_devices(line *l, const cJSON *devices) {
  int width = 6;
  const cJSON *device;
  cJSON_ArrayForEach(device, devices) width =
      SLI_MAX(width, (int)strlen(text_of(device, "device")));
  ctl_show_put(l, DIM, "%-*s   bubble  now            pass and its step.microbatch", width,
               "device");
  end_line(l);
  cJSON_ArrayForEach(device, devices) show_device(l, device, width);
}

void status_show(const cJSON *job, bool all, const status_style *style, FILE *out) {
  line l = {style, out, 0};
  show_name(&l, job);
  show_progress(&l, job);
  show_times(&l, job);
  const cJSON *serving = cJSON_GetObjectItem(job, "serving");
  if (!all) return;
  if (serving) show_limits(&l, cJSON_GetObjectItem(serving, "limits"));
  end_line(&l);
  show_processes(&l, cJSON_GetObjectItem(job, "processes"));
  end_line(&l);
  show_devices(&l, cJSON_GetObjectItem(job, "devices"));
}
