#include "tools/common/ticks.h"

#include <stdlib.h>
#include <string.h>

#include "io/file.h"

/* ---- numbers ---------------------------------------------------------------------------- */

static bool is_seconds(double x) { return x >= 0 && x < 1e9; }

/* As many as there are, with commas between them; 0: something else is there as well. */
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
    return sl_fail(SL_E_USAGE, "--tick %s: not four numbers of seconds, of a tick, a position, a row and a pair, or five, with "
                   "that of a token that is sampled, such as 0.02,1e-7,1e-4,0,1e-3, nor a FILE with a report", text);
  *out = (sl_tick_cost){.tick = x[0], .position = x[1], .row = x[2], .pair = x[3], .pick = x[4]};
  return SL_OK;
}

/* ---- files ------------------------------------------------------------------------------ */

static bool read_number(const cJSON *of, const char *name, double *out) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(of, name);
  if (!cJSON_IsNumber(x) || !is_seconds(x->valuedouble)) return false;
  *out = x->valuedouble;
  return true;
}

static int read_array(const cJSON *of, const char *name, int most, double *out) {
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(of, name), *x;
  int n = 0;
  cJSON_ArrayForEach(x, all) {
    if (n == most || !cJSON_IsNumber(x) || !is_seconds(x->valuedouble)) return 0;
    out[n++] = x->valuedouble;
  }
  return cJSON_IsArray(all) ? n : 0;
}

/* What reports had not from the first. */
static bool read_optional(const cJSON *of, sl_tick_cost *out) {
  if (cJSON_HasObjectItem(of, "pick") && !read_number(of, "pick", &out->pick)) return false;
  if (!cJSON_HasObjectItem(of, "spread")) return true;
  out->spreads = read_array(of, "spread", SL_TICK_SPREAD, out->spread);
  return out->spreads;
}

static sl_status read_corners(const char *path, const cJSON *of, sl_tick_cost *out) {
  *out = (sl_tick_cost){0};
  out->corners = read_array(of, "rows", SL_TICK_CORNERS, out->rows);
  int n = out->corners;
  bool good = n && n == read_array(of, "seconds", SL_TICK_CORNERS, out->seconds) && read_number(of, "position", &out->position) &&
              read_number(of, "pair", &out->pair) && read_optional(of, out);
  for (int i = 1; i < n; i++) good &= out->rows[i] > out->rows[i - 1];
  if (good) return SL_OK;
  return sl_fail(SL_E_INPUT, "--tick %s: its \"tick_corners\" are no rows, ascending, with seconds, a position and a pair, and maybe a pick and a spread", path);
}

static sl_status read_file(const char *path, sl_tick_cost *out) {
  char *text;
  sl_status status = sli_file_read(path, &text);
  if (status) return status;
  cJSON *root = cJSON_Parse(text);
  const cJSON *ticks = cJSON_GetObjectItemCaseSensitive(root, "tick_corners");
  if (cJSON_IsObject(ticks)) status = read_corners(path, ticks, out);
  else status = sl_fail(SL_E_INPUT, "--tick %s: it has no \"tick_corners\": not a report of actorserve --arrivals on one stage", path);
  cJSON_Delete(root);
  free(text);
  return status;
}

sl_status ticks_read(const char *text, sl_tick_cost *out, bool *whole) {
  *whole = !strchr("0123456789.+-", *text) || strstr(text, ".json");
  return *whole ? read_file(text, out) : read_numbers(text, out);
}

/* ---- and back --------------------------------------------------------------------------- */

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
  cJSON_AddItemToObject(ticks, "seconds", cJSON_CreateDoubleArray(corners->seconds, corners->corners));
  cJSON_AddNumberToObject(ticks, "position", corners->position);
  cJSON_AddNumberToObject(ticks, "pair", corners->pair);
  cJSON_AddNumberToObject(ticks, "pick", corners->pick);
  cJSON_AddItemToObject(ticks, "spread", cJSON_CreateDoubleArray(corners->spread, corners->spreads));
}
