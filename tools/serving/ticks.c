/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serving/ticks.h"

#include <stdlib.h>
#include <string.h>

#include "io/json.h"

/* ---- numbers ---------------------------------------------------------------------------- */

static const double most_seconds = 1e9;

static bool is_seconds(double x) { return x >= 0 && x <= most_seconds; }

/* Reads up to `most` numbers separated by commas; returns how many, or 0 if other text follows. */
static int read_list(const char *text, int most, double *out) {
  for (int n = 0; n < most; text++) {
    char *end;
    out[n] = strtod(text, &end);
    if (end == text || !is_seconds(out[n++]) || (*end && *end != ',')) return 0;
    if (!*(text = end)) return n;
  }
  return 0;
}

static sl_status read_numbers(const char *text, sl_tick_cost *out) {
  enum { LEAST = 4, MOST = 5 };
  double x[MOST] = {0};
  if (read_list(text, MOST, x) < LEAST)
    return sl_fail(
        SL_E_USAGE,
        "--tick %s: must be four numbers of seconds (per tick, position, row and pair) or five (per sampled token), such as 0.02,1e-7,1e-4,0,1e-3, or a FILE with a report",
        text);
  *out = (sl_tick_cost){.tick = x[0], .position = x[1], .row = x[2], .pair = x[3], .pick = x[4]};
  return SL_OK;
}

/* ---- files ------------------------------------------------------------------------------ */

/* Reads an array of 1 to `most` numbers. */
static sl_status read_array(const sli_json *doc, const cJSON *all, int most, double *out,
                            int *count) {
  size_t n = sli_json_count(all), i = 0;
  if (n < 1 || n > (size_t)most)
    return sli_json_fail(doc, all, "must have 1 to %d numbers, has %zu", most, n);
  sl_status status = SL_OK;
  for (const cJSON *x = all->child; x && !status; x = x->next)
    status = sli_json_number(doc, x, 0, most_seconds, &out[i++]);
  *count = (int)n;
  return status;
}

static sl_status check_corners(const sli_json *doc, const cJSON *rows, const cJSON *seconds,
                               const sl_tick_cost *c) {
  if (sli_json_count(rows) != sli_json_count(seconds))
    return sli_json_fail(doc, seconds, "must have as many numbers as rows, %zu, has %zu",
                         sli_json_count(rows), sli_json_count(seconds));
  for (int i = 1; i < c->corners; i++)
    if (!(c->rows[i] > c->rows[i - 1]))
      return sli_json_fail(doc, rows, "rows must increase: %g follows %g", c->rows[i],
                           c->rows[i - 1]);
  return SL_OK;
}

static sl_status read_corners(const sli_json *doc, const cJSON *of, sl_tick_cost *out) {
  const cJSON *rows = NULL, *seconds = NULL, *spread = NULL;
  *out = (sl_tick_cost){0};
  const sli_json_field fields[] = {
      {"rows", SLI_JSON_ARRAY, &rows, 0, 0, true},
      {"seconds", SLI_JSON_ARRAY, &seconds, 0, 0, true},
      {"position", SLI_JSON_NUMBER, &out->position, 0, most_seconds, true},
      {"pair", SLI_JSON_NUMBER, &out->pair, 0, most_seconds, true},
      {"pick", SLI_JSON_NUMBER, &out->pick, 0, most_seconds, false},
      {"spread", SLI_JSON_ARRAY, &spread, 0, 0, false}};
  sl_status status = sli_json_take(doc, of, fields, SLI_COUNT(fields));
  if (!status) status = read_array(doc, rows, SL_TICK_CORNERS, out->rows, &out->corners);
  if (!status) status = read_array(doc, seconds, SL_TICK_CORNERS, out->seconds, &out->corners);
  if (!status && spread)
    status = read_array(doc, spread, SL_TICK_SPREAD, out->spread, &out->spreads);
  return status ? status : check_corners(doc, rows, seconds, out);
}

static sl_status read_report(const sli_json *doc, sl_tick_cost *out) {
  const cJSON *ticks = NULL;
  sl_status status =
      sli_json_member(doc, doc->root, "tick_corners", SLI_JSON_OBJECT, false, &ticks);
  if (!status && !ticks)
    status = sl_fail(
        SL_E_INPUT,
        "%s: not a report of actorserve --arrivals on one stage: it has no \"tick_corners\"",
        doc->name);
  return status ? status : read_corners(doc, ticks, out);
}

static sl_status read_file(const char *path, sl_tick_cost *out) {
  sli_json doc;
  sl_status status = sli_json_open(path, &doc);
  if (status) return status;
  status = read_report(&doc, out);
  sli_json_fini(&doc);
  return status;
}

sl_status ticks_read(const char *text, sl_tick_cost *out, bool *whole) {
  *whole = !strchr("0123456789.+-", *text) || strstr(text, ".json");
  return *whole ? read_file(text, out) : read_numbers(text, out);
}

/* ---- writing ---------------------------------------------------------------------------- */

sl_tick_cost ticks_share(const sl_tick_cost *c, double share) {
  sl_tick_cost part = *c;
  part.tick *= share;
  part.position *= share;
  part.row *= share;
  part.pair *= share;
  part.pick *= share;
  for (int i = 0; i < c->corners; i++) part.seconds[i] *= share;
  return part;
}

void ticks_report(cJSON *root, const sl_tick_cost *numbers, const sl_tick_cost *corners) {
  const double x[] = {numbers->tick, numbers->position, numbers->row, numbers->pair, numbers->pick};
  cJSON_AddItemToObject(root, "tick", cJSON_CreateDoubleArray(x, SLI_COUNT(x)));
  if (!corners->corners) return;
  cJSON *ticks = cJSON_AddObjectToObject(root, "tick_corners");
  cJSON_AddItemToObject(ticks, "rows", cJSON_CreateDoubleArray(corners->rows, corners->corners));
  cJSON_AddItemToObject(ticks, "seconds",
                        cJSON_CreateDoubleArray(corners->seconds, corners->corners));
  cJSON_AddNumberToObject(ticks, "position", corners->position);
  cJSON_AddNumberToObject(ticks, "pair", corners->pair);
  cJSON_AddNumberToObject(ticks, "pick", corners->pick);
  cJSON_AddItemToObject(ticks, "spread",
                        cJSON_CreateDoubleArray(corners->spread, corners->spreads));
}
