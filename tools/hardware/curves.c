/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/hardware/curves.h"

#include <float.h>
#include <string.h>

#include "graph/cost/cost.h"

/* The document being read, the arena for the results, and the device's peak. */
typedef struct reading {
  const sli_json *doc;
  sli_arena *arena;
  double flops; /* per second; 0: not known */
} reading;

enum { MOST_POINTS = 1 << 20, MOST_ROWS = 1 << 14 };

/* ---- numbers --------------------------------------------------------------------------------- */

static size_t count_numbers(const cJSON *item) {
  if (!cJSON_IsArray(item)) return 1;
  size_t count = 0;
  for (const cJSON *at = item->child; at; at = at->next) count += count_numbers(at);
  return count;
}

/* Appends all numbers of nested lists, in document order. */
static sl_status flatten(const reading *r, const cJSON *item, double **to) {
  if (!cJSON_IsArray(item)) return sli_json_number(r->doc, item, DBL_MIN, 1e30, (*to)++);
  sl_status status = SL_OK;
  for (const cJSON *at = item->child; at && !status; at = at->next) status = flatten(r, at, to);
  return status;
}

static sl_status read_numbers(const reading *r, const cJSON *item, int *count, const double **out) {
  sl_status status = sli_json_is(r->doc, item, SLI_JSON_ARRAY);
  size_t n = status ? 0 : count_numbers(item);
  if (!status && (n < 1 || n > MOST_POINTS))
    status = sli_json_fail(r->doc, item, "must have 1 to %d numbers, has %zu", MOST_POINTS, n);
  if (status) return status;
  double *numbers = sli_arena_alloc(r->arena, n * sizeof *numbers), *at = numbers;
  *out = numbers;
  *count = (int)n;
  return flatten(r, item, &at);
}

/* ---- curves ---------------------------------------------------------------------------------- */

static sl_status read_axis(const reading *r, sl_curve_axis axis, const cJSON *item, sl_curve *out) {
  int d = out->ndims++;
  if (d == SL_CURVE_DIMS)
    return sli_json_fail(r->doc, item, "a curve has at most %d axes", SL_CURVE_DIMS);
  out->axis[d] = axis;
  sl_status status = read_numbers(r, item, &out->count[d], &out->at[d]);
  for (int i = 1; i < out->count[d] && !status; i++)
    if (!(out->at[d][i] > out->at[d][i - 1]))
      status = sli_json_fail(r->doc, item, "grid values must increase: %g follows %g",
                             out->at[d][i], out->at[d][i - 1]);
  return status;
}

static bool find_axis(const char *name, sl_curve_axis *out) {
  for (int a = 0; a < SL_CURVE_AXES; a++)
    if (!strcmp(name, sli_curve_axes[a])) {
      *out = (sl_curve_axis)a;
      return true;
    }
  return false;
}

/* Checks that nested lists match the grid's axes and lengths. */
static sl_status check_shape(const reading *r, const cJSON *item, const sl_curve *c, int d) {
  if (d == c->ndims) return sli_json_is(r->doc, item, SLI_JSON_NUMBER);
  sl_status status = sli_json_is(r->doc, item, SLI_JSON_ARRAY);
  size_t n = status ? 0 : sli_json_count(item);
  if (!status && n != (size_t)c->count[d])
    status = sli_json_fail(r->doc, item, "%zu values for the %d of %s", n, c->count[d],
                           sli_curve_axes[c->axis[d]]);
  for (const cJSON *at = item->child; at && !status; at = at->next)
    status = check_shape(r, at, c, d + 1);
  return status;
}

/* Reads the seconds, nested like the grid or as one flat list of all points. */
static sl_status read_seconds(const reading *r, const cJSON *of, const cJSON *item, sl_curve *out) {
  int count = 0;
  size_t points = 1;
  bool fits = true;
  sl_status status = read_numbers(r, item, &count, &out->seconds);
  for (int d = 0; d < out->ndims; d++)
    fits &= !__builtin_mul_overflow(points, (size_t)out->count[d], &points);
  if (!status && (!fits || (size_t)count != points))
    status = sli_json_fail(r->doc, of, "%d seconds for the %s%zu points of its grid", count,
                           fits ? "" : "more than ", fits ? points : SIZE_MAX);
  if (status || cJSON_IsNumber(item->child)) return status;
  return check_shape(r, item, out, 0);
}

/* Returns the size of a point along the axes of a product, m n k, and 0 for other curves. */
static double product_size(const sl_curve *c, size_t point) {
  double size = 1;
  unsigned axes = 0;
  for (int d = c->ndims - 1; d >= 0; d--) {
    size *= c->at[d][point % (size_t)c->count[d]];
    point /= (size_t)c->count[d];
    axes |= 1U << c->axis[d];
  }
  return axes == (1U << SL_CURVE_M | 1U << SL_CURVE_N | 1U << SL_CURVE_K) ? size : 0;
}

/* Corrects products that take less time than their arithmetic at the device's peak: a table and a
 * peak that contradict each other. */
static void correct_products(const reading *r, const cJSON *item, const sl_curve *c) {
  size_t points = 1, wrong = 0, first = 0;
  double given = 0, least = 0;
  for (int d = 0; d < c->ndims; d++) points *= (size_t)c->count[d];
  for (size_t i = 0; i < points && r->flops > 0; i++) {
    double peak = 2 * product_size(c, i) / r->flops;
    if (c->seconds[i] >= peak) continue;
    if (!wrong++) first = i, given = c->seconds[i], least = peak;
    ((double *)c->seconds)[i] = peak;
  }
  if (wrong)
    sli_log(
        "note: %s: curves: %s: %zu of its products take less time than their arithmetic at "
        "flops_per_second (the first, number %zu of seconds, %.3g s instead of %.3g): they "
        "take that time",
        r->doc->name, item->string, wrong, first + 1, given, least);
}

/* Reads {"m": [...], "bytes": [...], "seconds": [[...]]}, with axes in the order given. */
static sl_status read_curve(const reading *r, const cJSON *item, sl_curve *out) {
  const cJSON *seconds;
  sl_curve_axis axis;
  *out = (sl_curve){0};
  sl_status status = sli_json_member(r->doc, item, "seconds", SLI_JSON_ARRAY, true, &seconds);
  for (const cJSON *at = status ? NULL : item->child; at && !status; at = at->next) {
    if (find_axis(at->string, &axis)) status = read_axis(r, axis, at, out);
    else if (at != seconds)
      status = sli_json_fail(
          r->doc, at,
          "axes of a curve are m, n, k, bytes, flops, positions, head, devices, sequences, heads, key_heads and experts");
  }
  if (!status && !out->ndims)
    status = sli_json_fail(r->doc, item, "a curve needs at least one axis");
  if (!status) status = read_seconds(r, item, seconds, out);
  if (!status) correct_products(r, item, out);
  return status;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static sl_hardware_row *row_of(sl_hardware_row *rows, int *count, const char *op) {
  for (int i = 0; i < *count; i++)
    if (!strcmp(rows[i].op, op)) return &rows[i];
  rows[*count] = (sl_hardware_row){.op = op};
  return &rows[(*count)++];
}

static const sl_curve *find_curve(const char *op, const sl_hardware_row *rows, int count) {
  for (int i = 0; i < count; i++)
    if (!strcmp(rows[i].op, op) && rows[i].curve.seconds) return &rows[i].curve;
  return NULL;
}

/* Reads the curve of an op: a grid, or the name of an earlier row with the same curve, of this
 * document or of one read before. */
static sl_status read_op_curve(const reading *r, const cJSON *item, const sl_hardware *before,
                               sl_hardware_row *rows, int *count) {
  const char *other = cJSON_GetStringValue(item);
  sl_hardware_row *row = row_of(rows, count, sli_arena_strdup(r->arena, item->string));
  if (!other) return read_curve(r, item, &row->curve);
  const sl_curve *curve = find_curve(other, rows, *count);
  if (!curve) curve = find_curve(other, before->rows, before->nrows);
  if (!curve) return sli_json_fail(r->doc, item, "%s is no curve before this one", other);
  row->curve = *curve;
  return SL_OK;
}

static sl_status read_tile(const reading *r, const cJSON *item, sl_hardware_row *row) {
  int count = 0;
  const double *of;
  sl_status status = item ? read_numbers(r, item, &count, &of) : SL_OK;
  if (status || !item) return status;
  if (count != 2) return sli_json_fail(r->doc, item, "must be two numbers, such as [256, 128]");
  row->tile_m = of[0], row->tile_n = of[1];
  return SL_OK;
}

static sl_status read_row(const reading *r, const cJSON *item, double flops, sl_hardware_row *row) {
  double efficiency = 0;
  const cJSON *tile = NULL;
  const sli_json_field fields[] = {
      {"flops_factor", SLI_JSON_NUMBER, &row->flops_factor, 0, 1e6, false},
      {"bytes_per_score", SLI_JSON_NUMBER, &row->bytes_per_score, 0, 1e6, false},
      {"efficiency", SLI_JSON_NUMBER, &efficiency, 0, 1, false},
      {"tile", SLI_JSON_ARRAY, &tile, 0, 0, false},
      {"tiles_at_once", SLI_JSON_NUMBER, &row->tiles_at_once, 0, 1e9, false},
      {"tile_k", SLI_JSON_NUMBER, &row->tile_k, 0, 1e9, false},
      {"in_turn", SLI_JSON_FLAG, &row->in_turn, 0, 0, false}};
  sl_status status = sli_json_take(r->doc, item, fields, SLI_COUNT(fields));
  if (!status) status = read_tile(r, tile, row);
  row->flops_per_second = efficiency * flops;
  return status;
}

/* Keeps an earlier row unless the document has one for its op. */
static void keep_row(const sl_hardware_row *row, sl_hardware_row *rows, int *count) {
  for (int i = 0; i < *count; i++)
    if (!strcmp(rows[i].op, row->op)) return;
  rows[(*count)++] = *row;
}

static sl_status read_rows(const reading *r, const curves_parts *p, double flops,
                           sl_hardware *out) {
  size_t most = sli_json_count(p->curves) + sli_json_count(p->rows) + (size_t)out->nrows;
  int count = 0;
  if (most > MOST_ROWS)
    return sli_json_fail(r->doc, p->curves ? p->curves : p->rows, "more than %d rows", MOST_ROWS);
  sl_hardware_row *all = sli_arena_alloc(r->arena, (most + 1) * sizeof *all);
  sl_status status = SL_OK;
  for (const cJSON *at = p->curves ? p->curves->child : NULL; at && !status; at = at->next)
    status = read_op_curve(r, at, out, all, &count);
  for (const cJSON *at = p->rows ? p->rows->child : NULL; at && !status; at = at->next)
    status = read_row(r, at, flops, row_of(all, &count, sli_arena_strdup(r->arena, at->string)));
  for (int i = 0; i < out->nrows && !status; i++) keep_row(&out->rows[i], all, &count);
  out->rows = all;
  out->nrows = count;
  return status;
}

/* ---- exchanges and links --------------------------------------------------------------------- */

static const char *const exchanges[SL_EXCHANGES] = {[SL_EXCHANGE_ALL_REDUCE] = "all-reduce",
                                                    [SL_EXCHANGE_ALL_GATHER] = "all-gather",
                                                    [SL_EXCHANGE_ALL_TO_ALL] = "all-to-all"};
static const char *const algorithms[SL_ALGORITHMS] = {[SL_ALGORITHM_TREE] = "tree",
                                                      [SL_ALGORITHM_RING] = "ring",
                                                      [SL_ALGORITHM_DIRECT] = "direct",
                                                      [SL_ALGORITHM_HIERARCHICAL] = "hierarchical"};

static sl_status read_algorithm(const reading *r, const cJSON *item, const char *name,
                                sl_algorithm *out) {
  for (int a = 0; a < SL_ALGORITHMS && name; a++)
    if (!strcmp(name, algorithms[a])) {
      *out = (sl_algorithm)a;
      return SL_OK;
    }
  return !name
             ? SL_OK
             : sli_json_fail(r->doc, item, "algorithm must be tree, ring, direct or hierarchical");
}

/* Reads the curve of an exchange or a link, whose axes are bytes and devices. */
static sl_status read_link_curve(const reading *r, const cJSON *item, const char *what,
                                 sl_curve *out) {
  sl_status status = item ? read_curve(r, item, out) : SL_OK;
  for (int d = 0; d < out->ndims && !status; d++)
    if (out->axis[d] != SL_CURVE_BYTES && out->axis[d] != SL_CURVE_DEVICES)
      status = sli_json_fail(r->doc, item, "over %s: the axes of %s must be bytes and devices",
                             sli_curve_axes[out->axis[d]], what);
  return status;
}

static sl_status read_tables(const reading *r, const cJSON *from, sl_curve *to) {
  const cJSON *items[SL_EXCHANGES] = {0};
  sli_json_field fields[SL_EXCHANGES];
  for (int e = 0; e < SL_EXCHANGES; e++)
    fields[e] = (sli_json_field){exchanges[e], SLI_JSON_OBJECT, &items[e], 0, 0, false};
  sl_status status = from ? sli_json_take(r->doc, from, fields, SL_EXCHANGES) : SL_OK;
  for (int e = 0; e < SL_EXCHANGES && !status; e++)
    status = read_link_curve(r, items[e], "an exchange", &to[e]);
  return status;
}

static sl_status read_exchange(const reading *r, const cJSON *item, sl_hardware *out) {
  const cJSON *host = NULL, *net = NULL;
  const char *algorithm = NULL;
  const sli_json_field fields[] = {{"algorithm", SLI_JSON_TEXT, &algorithm, 0, 0, false},
                                   {"host", SLI_JSON_OBJECT, &host, 0, 0, false},
                                   {"net", SLI_JSON_OBJECT, &net, 0, 0, false}};
  if (!item) return SL_OK;
  sl_status status = sli_json_take(r->doc, item, fields, SLI_COUNT(fields));
  if (!status) status = read_algorithm(r, item, algorithm, &out->algorithm);
  if (!status) status = read_tables(r, host, out->exchange[0]);
  return status ? status : read_tables(r, net, out->exchange[1]);
}

/* Reads {"from": 0, "to": 1, "seconds": 1e-6, "bytes_per_second": 1e9}. */
static sl_status read_pair(const reading *r, const cJSON *item, sl_hardware_pair *to) {
  int64_t from = 0, end = 0;
  const sli_json_field fields[] = {
      {"from", SLI_JSON_WHOLE, &from, 0, 1 << 20, true},
      {"to", SLI_JSON_WHOLE, &end, 0, 1 << 20, true},
      {"seconds", SLI_JSON_NUMBER, &to->link.seconds, 0, 1e6, false},
      {"bytes_per_second", SLI_JSON_NUMBER, &to->link.bytes_per_second, 1, 1e30, false}};
  sl_status status = sli_json_take(r->doc, item, fields, SLI_COUNT(fields));
  to->from = (int)from, to->to = (int)end;
  if (status || from != end) return status;
  return sli_json_fail(r->doc, item, "a link leads from one device to another");
}

static sl_status read_pairs(const reading *r, const cJSON *list, sl_hardware *out) {
  if (!list) return SL_OK;
  size_t count = sli_json_count(list);
  if (count > MOST_POINTS) return sli_json_fail(r->doc, list, "more than %d links", MOST_POINTS);
  sl_hardware_pair *pairs = sli_arena_alloc(r->arena, (count + 1) * sizeof *pairs), *to = pairs;
  sl_status status = SL_OK;
  for (const cJSON *at = list->child; at && !status; at = at->next) status = read_pair(r, at, to++);
  out->pairs = pairs;
  out->npairs = (int)count;
  return status;
}

sl_status curves_read(const sli_json *doc, const curves_parts *parts, double flops,
                      sli_arena *arena, sl_hardware *out) {
  const reading r = {doc, arena, flops};
  sl_status status = read_rows(&r, parts, flops, out);
  if (!status) status = read_exchange(&r, parts->exchange, out);
  if (!status) status = read_link_curve(&r, parts->process_link, "a link", &out->process_link);
  return status ? status : read_pairs(&r, parts->links, out);
}
