#include "tools/common/curves.h"

#include <math.h>
#include <string.h>

#include "graph/cost/cost.h"

static const char *const axes[SL_CURVE_AXES] = {
    [SL_CURVE_M] = "m", [SL_CURVE_N] = "n", [SL_CURVE_K] = "k", [SL_CURVE_BYTES] = "bytes",
    [SL_CURVE_FLOPS] = "flops", [SL_CURVE_POSITIONS] = "positions", [SL_CURVE_HEAD] = "head",
    [SL_CURVE_DEVICES] = "devices"};

/* Where in a file something is read. */
typedef struct reading {
  const char *path;
  const char *name; /* "curves.linear" */
  sli_arena *arena;
} reading;

enum { MOST_POINTS = 1 << 20 };

static reading within(const reading *r, const char *group, const char *name) {
  char shown[256];
  sli_escape(shown, sizeof shown, name);
  return (reading){r->path, sli_arena_format(r->arena, "%s.%s", group, shown), r->arena};
}

static const cJSON *get(const cJSON *from, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(from, name);
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static sl_status read_number(const reading *r, const char *field, const cJSON *item, double least,
                             double most, double *out) {
  double v = cJSON_IsNumber(item) ? item->valuedouble : NAN;
  if (!item) return SL_OK;
  *out = v;
  if (v >= least && v <= most) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: %s%s%s must be a number from %g to %g", r->path, r->name,
                 *r->name ? "." : "", field, least, most);
}

static int count_numbers(const cJSON *item) {
  if (!cJSON_IsArray(item)) return 1;
  int count = 0;
  for (const cJSON *at = item->child; at; at = at->next) count += count_numbers(at);
  return count;
}

/* In the order in which they stand there. False: one is no number above 0. */
static bool flatten(const cJSON *item, double **to) {
  if (!cJSON_IsArray(item)) {
    bool good = cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 1e30;
    *(*to)++ = good ? item->valuedouble : 1;
    return good;
  }
  bool good = true;
  for (const cJSON *at = item->child; at; at = at->next) good &= flatten(at, to);
  return good;
}

static sl_status read_numbers(const reading *r, const char *field, const cJSON *item, int *count,
                              const double **out) {
  *count = cJSON_IsArray(item) ? count_numbers(item) : 0;
  if (*count < 1 || *count > MOST_POINTS)
    return sl_fail(SL_E_INPUT, "%s: %s.%s is no list of numbers", r->path, r->name, field);
  double *numbers = sli_arena_alloc(r->arena, (size_t)*count * sizeof *numbers), *at = numbers;
  *out = numbers;
  if (flatten(item, &at)) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: %s.%s: all its numbers must be above 0", r->path, r->name, field);
}

/* ---- curves ------------------------------------------------------------------------------------- */

static sl_status read_axis(const reading *r, sl_curve_axis axis, const cJSON *item, sl_curve *out) {
  int d = out->ndims++;
  if (d == SL_CURVE_DIMS)
    return sl_fail(SL_E_INPUT, "%s: %s is over more than %d axes", r->path, r->name, SL_CURVE_DIMS);
  out->axis[d] = axis;
  sl_status status = read_numbers(r, axes[axis], item, &out->count[d], &out->at[d]);
  for (int i = 1; i < out->count[d] && !status; i++)
    if (!(out->at[d][i] > out->at[d][i - 1]))
      status = sl_fail(SL_E_INPUT, "%s: the grid of %s.%s does not rise: %g follows %g", r->path, r->name,
                       axes[axis], out->at[d][i], out->at[d][i - 1]);
  return status;
}

static bool find_axis(const char *name, sl_curve_axis *out) {
  for (int a = 0; a < SL_CURVE_AXES; a++)
    if (!strcmp(name, axes[a])) {
      *out = (sl_curve_axis)a;
      return true;
    }
  return false;
}

/* {"m": [...], "bytes": [...], "seconds": [[...]]}, its axes in the order in which they are said. */
static sl_status read_curve(const reading *r, const cJSON *item, sl_curve *out) {
  sl_status status = SL_OK;
  int points = 1, count = 0;
  sl_curve_axis axis;
  *out = (sl_curve){0};
  for (const cJSON *at = item->child; at && !status; at = at->next) {
    if (find_axis(at->string, &axis)) status = read_axis(r, axis, at, out);
    else if (strcmp(at->string, "seconds"))
      status = sl_fail(SL_E_INPUT, "%s: %s: a curve is over m, n, k, bytes, flops, positions, head or devices",
                       r->path, within(r, r->name, at->string).name);
  }
  if (!status && !out->ndims)
    return sl_fail(SL_E_INPUT, "%s: %s is over no axis", r->path, r->name);
  if (!status) status = read_numbers(r, "seconds", get(item, "seconds"), &count, &out->seconds);
  for (int d = 0; d < out->ndims && !status; d++) points *= out->count[d];
  if (status || count == points) return status;
  return sl_fail(SL_E_INPUT, "%s: %s has %d seconds for the %d points of its grid", r->path, r->name, count,
                 points);
}

/* ---- rows ------------------------------------------------------------------------------------------ */

static sl_hardware_row *row_of(sl_hardware_row *rows, int *count, const char *op) {
  for (int i = 0; i < *count; i++)
    if (!strcmp(rows[i].op, op)) return &rows[i];
  rows[*count] = (sl_hardware_row){.op = op};
  return &rows[(*count)++];
}

static sl_status read_tile(const reading *r, const cJSON *item, sl_hardware_row *row) {
  int count;
  const double *of;
  if (!item) return SL_OK;
  sl_status status = read_numbers(r, "tile", item, &count, &of);
  if (!status && count != 2)
    return sl_fail(SL_E_INPUT, "%s: %s.tile is not two numbers, such as [256, 128]", r->path, r->name);
  if (!status) row->tile_m = of[0], row->tile_n = of[1];
  return status;
}

static sl_status read_row(const reading *r, const cJSON *item, double flops, sl_hardware_row *row) {
  double efficiency = 0;
  const struct {
    const char *name;
    double most, *to;
  } fields[] = {{"flops_factor", 1e6, &row->flops_factor},
                {"bytes_per_score", 1e6, &row->bytes_per_score},
                {"efficiency", 1, &efficiency},
                {"tiles_at_once", 1e9, &row->tiles_at_once},
                {"tile_k", 1e9, &row->tile_k}};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(fields) && !status; i++)
    status = read_number(r, fields[i].name, get(item, fields[i].name), 0, fields[i].most, fields[i].to);
  if (!status) status = read_tile(r, get(item, "tile"), row);
  row->flops_per_second = efficiency * flops;
  row->in_turn = cJSON_IsTrue(get(item, "in_turn"));
  return status;
}

static sl_status read_rows(const reading *r, const cJSON *root, double flops, sl_hardware *out) {
  const cJSON *curves = get(root, "curves"), *rows = get(root, "rows");
  int most = cJSON_GetArraySize(curves) + cJSON_GetArraySize(rows), count = 0;
  sl_hardware_row *all = sli_arena_alloc(r->arena, (size_t)(most + 1) * sizeof *all);
  sl_status status = SL_OK;
  for (const cJSON *at = curves ? curves->child : NULL; at && !status; at = at->next) {
    const reading here = within(r, "curves", at->string);
    sl_hardware_row *row = row_of(all, &count, sli_arena_strdup(r->arena, at->string));
    status = read_curve(&here, at, &row->curve);
  }
  for (const cJSON *at = rows ? rows->child : NULL; at && !status; at = at->next) {
    const reading here = within(r, "rows", at->string);
    status = read_row(&here, at, flops, row_of(all, &count, sli_arena_strdup(r->arena, at->string)));
  }
  out->rows = all;
  out->nrows = count;
  return status;
}

/* ---- exchanges and links ------------------------------------------------------------------------------ */

static const char *const exchanges[SL_EXCHANGES] = {
    [SL_EXCHANGE_ALL_REDUCE] = "all-reduce", [SL_EXCHANGE_ALL_GATHER] = "all-gather",
    [SL_EXCHANGE_ALL_TO_ALL] = "all-to-all"};
static const char *const algorithms[SL_ALGORITHMS] = {
    [SL_ALGORITHM_TREE] = "tree", [SL_ALGORITHM_RING] = "ring", [SL_ALGORITHM_DIRECT] = "direct",
    [SL_ALGORITHM_HIERARCHICAL] = "hierarchical"};

static sl_status read_algorithm(const reading *r, const cJSON *item, sl_algorithm *out) {
  if (!item) return SL_OK;
  for (int a = 0; a < SL_ALGORITHMS; a++)
    if (cJSON_IsString(item) && !strcmp(item->valuestring, algorithms[a])) {
      *out = (sl_algorithm)a;
      return SL_OK;
    }
  return sl_fail(SL_E_INPUT, "%s: exchange.algorithm is one of tree, ring, direct and hierarchical", r->path);
}

/* Exchanges and links are over bytes and devices. */
static sl_status check_axes(const reading *r, const char *what, const sl_curve *c) {
  for (int d = 0; d < c->ndims; d++)
    if (c->axis[d] != SL_CURVE_BYTES && c->axis[d] != SL_CURVE_DEVICES)
      return sl_fail(SL_E_INPUT, "%s: %s is over %s: %s is over bytes and devices", r->path, r->name,
                     axes[c->axis[d]], what);
  return SL_OK;
}

static sl_status read_process_link(const char *path, const cJSON *item, sli_arena *arena, sl_curve *out) {
  const reading here = {path, "process_link", arena};
  sl_status status = item ? read_curve(&here, item, out) : SL_OK;
  return status ? status : check_axes(&here, "a link", out);
}

static sl_status read_tables(const reading *r, const cJSON *from, const char *where, sl_curve *to) {
  sl_status status = SL_OK;
  for (int e = 0; e < SL_EXCHANGES && !status; e++) {
    const reading here = within(r, where, exchanges[e]);
    const cJSON *item = get(from, exchanges[e]);
    if (item) status = read_curve(&here, item, &to[e]);
    if (!status) status = check_axes(&here, "an exchange", &to[e]);
  }
  return status;
}

static sl_status read_exchange(const reading *r, const cJSON *item, sl_hardware *out) {
  if (!item) return SL_OK;
  sl_status status = read_algorithm(r, get(item, "algorithm"), &out->algorithm);
  if (!status) status = read_tables(r, get(item, "host"), "exchange.host", out->exchange[0]);
  return status ? status : read_tables(r, get(item, "net"), "exchange.net", out->exchange[1]);
}

/* {"from": 0, "to": 1, "seconds": 1e-6, "bytes_per_second": 1e9} */
static sl_status read_pair(const reading *r, const cJSON *item, sl_hardware_pair *to) {
  double from = -1, end = -1;
  sl_status status = read_number(r, "from", get(item, "from"), 0, 1 << 20, &from);
  if (!status) status = read_number(r, "to", get(item, "to"), 0, 1 << 20, &end);
  if (!status) status = read_number(r, "seconds", get(item, "seconds"), 0, 1e6, &to->link.seconds);
  if (!status) status = read_number(r, "bytes_per_second", get(item, "bytes_per_second"), 1, 1e30, &to->link.bytes_per_second);
  to->from = (int)from, to->to = (int)end;
  if (status || (from >= 0 && end >= 0 && to->from != to->to)) return status;
  return sl_fail(SL_E_INPUT, "%s: %s leads from one device to another: from and to say which", r->path, r->name);
}

static sl_status read_pairs(const reading *r, const cJSON *list, sl_hardware *out) {
  int count = cJSON_GetArraySize(list);
  if (!list) return SL_OK;
  if (!cJSON_IsArray(list)) return sl_fail(SL_E_INPUT, "%s: links is no list", r->path);
  sl_hardware_pair *pairs = sli_arena_alloc(r->arena, (size_t)(count + 1) * sizeof *pairs);
  sl_status status = SL_OK;
  int n = 0;
  for (const cJSON *at = list->child; at && !status; at = at->next, n++) {
    const reading here = {r->path, sli_arena_format(r->arena, "links[%d]", n), r->arena};
    pairs[n] = (sl_hardware_pair){0};
    status = read_pair(&here, at, &pairs[n]);
  }
  out->pairs = pairs;
  out->npairs = count;
  return status;
}

sl_status curves_read(const char *path, const cJSON *root, double flops, sli_arena *arena,
                      sl_hardware *out) {
  const reading r = {path, "", arena};
  const struct {
    const char *name;
    double least, most, *to;
  } fields[] = {{"links_per_host", 0, 1 << 20, &out->links_per_host},
                {"gradient_bytes", 0.5, 8, &out->gradient_bytes},
                {"step_seconds", 0, 1e6, &out->step_seconds},
                {"firing_seconds", 0, 1e6, &out->firing_seconds},
                {"wake_seconds", 0, 1e6, &out->wake_seconds},
                {"slowdown_while_exchanging", 1, 1e3, &out->slowdown_while_exchanging}};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(fields) && !status; i++)
    status = read_number(&r, fields[i].name, get(root, fields[i].name), fields[i].least, fields[i].most,
                         fields[i].to);
  if (!status) status = read_rows(&r, root, flops, out);
  if (!status) status = read_exchange(&r, get(root, "exchange"), out);
  if (!status) status = read_process_link(path, get(root, "process_link"), arena, &out->process_link);
  return status ? status : read_pairs(&r, get(root, "links"), out);
}
