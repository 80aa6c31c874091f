/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the cost model of calls and exchanges against the hardware description: curves interpolated
 * in logarithms, whole tiles, attention scores kept in memory, and tables of exchange times.
 * labels: unthreaded */
#include <math.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "graph/cost/cost.h"
#include "tests/support/test.h"

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static void curves_are_straight_between_logarithms(void) {
  const double m[] = {1, 4}, n[] = {1, 16}, seconds[] = {1, 4, 2, 8};
  const sl_curve c = {.ndims = 2,
                      .axis = {SL_CURVE_M, SL_CURVE_N},
                      .count = {2, 2},
                      .at = {m, n},
                      .seconds = seconds};
  const struct {
    double x[2], want;
  } cases[] = {{{1, 1}, 1},  {{4, 16}, 8},   {{2, 1}, sqrt(2)}, {{1, 4}, 2}, {{2, 4}, 2 * sqrt(2)},
               {{16, 1}, 4}, {{1, 256}, 16}, {{0.25, 1}, 0.5}}; /* outside the grid: its edge */
  for (size_t i = 0; i < SLI_COUNT(cases); i++)
    CHECK(near(sli_curve_at(&c, cases[i].x), cases[i].want), "at (%g, %g) it is %.9g, not %.9g",
          cases[i].x[0], cases[i].x[1], sli_curve_at(&c, cases[i].x), cases[i].want);
  const sl_curve one = {
      .ndims = 1, .axis = {SL_CURVE_BYTES}, .count = {1}, .at = {n}, .seconds = seconds};
  CHECK(near(sli_curve_at(&one, &(double){8}), 8), "one point is no line through nothing");
}

/* y = x w' with x [300, 64] and w [200, 64]. */
static sli_work product(const sl_attrs *attrs, sl_type in[3], sl_type *out) {
  in[0] = SL_TYPE(SL_F32, 300, 64), in[1] = SL_TYPE(SL_F32, 200, 64), in[2] = (sl_type){.ndim = -1};
  *out = SL_TYPE(SL_F32, 300, 200);
  return (sli_work){.op = &sl_op_linear, .attrs = attrs, .nin = 2, .in = in, .nout = 1, .out = out};
}

static void products_go_by_whole_tiles(void) {
  const sl_attrs attrs = {0};
  sl_type in[3], out;
  const sli_work w = product(&attrs, in, &out);
  CHECK(near(sli_work_along(NULL, &w, SL_CURVE_M), 300) &&
            near(sli_work_along(NULL, &w, SL_CURVE_N), 200) &&
            near(sli_work_along(NULL, &w, SL_CURVE_K), 64),
        "a product is told by what it makes");
  sl_hardware_row row = {
      .op = "linear", .tile_m = 256, .tile_n = 128, .tiles_at_once = 3, .tile_k = 16};
  sl_hardware h = {.flops_per_second = 1e9, .bytes_per_second = 1e30, .nrows = 1, .rows = &row};
  double tiles = 6; /* 2 x 2 tiles, 3 at a time: two rounds of 3 */
  CHECK(near(sli_work_seconds(&h, &w), tiles * 256 * 128 * 2 * (64 + 16) / 1e9), "%.9g s",
        sli_work_seconds(&h, &w));
  row = (sl_hardware_row){.op = "linear", .flops_factor = 3, .flops_per_second = 2e9};
  CHECK(near(sli_work_seconds(&h, &w), 3 * 2.0 * 300 * 200 * 64 / 2e9), "a row's own rate counts");
  const double at[] = {300, 600}, seconds[] = {5, 6};
  row.curve =
      (sl_curve){.ndims = 1, .axis = {SL_CURVE_M}, .count = {2}, .at = {at}, .seconds = seconds};
  CHECK(near(sli_work_seconds(&h, &w), 5), "and its curve before all");
  const double devices[] = {1, 4}, busy[] = {3, 12};
  row.curve = (sl_curve){
      .ndims = 1, .axis = {SL_CURVE_DEVICES}, .count = {2}, .at = {devices}, .seconds = busy};
  h.busy = 2;
  CHECK(near(sli_work_seconds(&h, &w), 6), "a curve may go by how many devices compute at once");
}

/* The row "linear.transposed" covers only weights stored as [in, out]; "linear.pages" covers calls
 * whose input rows are 4 KiB long. */
static void rows_may_be_for_some_calls_alone(void) {
  const sl_attrs plain = {0}, transposed = {.product.transposed = true};
  const double at[] = {1}, seconds[] = {5}, others[] = {7}, pages[] = {9};
  const sl_curve one = {
      .ndims = 1, .axis = {SL_CURVE_DEVICES}, .count = {1}, .at = {at}, .seconds = seconds};
  sl_hardware_row rows[] = {{.op = "linear_w", .curve = one},
                            {.op = "linear.transposed", .curve = one},
                            {.op = "linear.pages", .curve = one},
                            {.op = "linear", .curve = one}};
  rows[1].curve.seconds = others, rows[2].curve.seconds = pages;
  const sl_hardware h = {
      .flops_per_second = 1e9, .bytes_per_second = 1e9, .nrows = 4, .rows = rows};
  sl_type in[3], out;
  sli_work w = product(&plain, in, &out);
  CHECK(near(sli_work_seconds(&h, &w), 5), "a row is for all calls that have none of their own");
  w.attrs = &transposed;
  CHECK(near(sli_work_seconds(&h, &w), 7), "a transposed weight has its own row");
  w.attrs = &plain;
  in[0].dim[1] = in[1].dim[1] = 2048;
  CHECK(near(sli_work_seconds(&h, &w), 9), "and rows that are whole pages have");
}

/* Two sequences of 8 positions, 4 heads of size 16. */
static void attention_may_keep_its_scores(void) {
  const sl_attrs attrs = {.attention.heads = 4};
  const sl_type in[] = {SL_TYPE(SL_F32, 2, 8, 192)},
                out[] = {SL_TYPE(SL_F32, 2, 8, 64), SL_TYPE(SL_F32, 2, 8, 4)};
  const sli_work w = {
      .op = &sl_op_attention_packed, .attrs = &attrs, .nin = 1, .in = in, .nout = 2, .out = out};
  const sl_hardware_row row = {.op = "attention_packed", .bytes_per_score = 11};
  sl_hardware h = {.flops_per_second = 1e30, .bytes_per_second = 1e6};
  double before = sli_work_seconds(&h, &w);
  h.nrows = 1, h.rows = &row;
  CHECK(near(sli_work_seconds(&h, &w) - before, 11.0 * 2 * 4 * 8 * 8 / 1e6), "11 bytes a score");
}

static void exchanges_take_what_tables_say(void) {
  const double bytes[] = {1e6, 1e8}, reduce[] = {1e-3, 1e-1}, gather[] = {4e-4, 4e-2};
  sl_curve tables[SL_EXCHANGES] = {
      [SL_EXCHANGE_ALL_REDUCE] = {1, {SL_CURVE_BYTES}, {2}, {bytes}, reduce}};
  sli_axis_link link = {.seconds = 1, .bytes_per_second = 1e6, .size = 4, .measured = tables};
  double received = 0.75e7; /* out of 1e7 */
  CHECK(near(sli_exchange_seconds(&link, SLI_ALL_GATHER, received), 0.5e-2),
        "a join is half of it");
  CHECK(near(sli_exchange_seconds(&link, SLI_ALL_TO_ALL, received), 1 + 7.5), "what no table says");
  tables[SL_EXCHANGE_ALL_GATHER] = (sl_curve){1, {SL_CURVE_BYTES}, {2}, {bytes}, gather};
  CHECK(near(sli_exchange_seconds(&link, SLI_ALL_GATHER, received), 0.4e-2),
        "a join as it was measured");
  CHECK(near(sli_exchange_seconds(&link, SLI_REDUCE_SCATTER, received), 0.6e-2),
        "a sum has the rest");
}

int main(void) {
  RUN(curves_are_straight_between_logarithms);
  RUN(products_go_by_whole_tiles);
  RUN(rows_may_be_for_some_calls_alone);
  RUN(attention_may_keep_its_scores);
  RUN(exchanges_take_what_tables_say);
  return 0;
}
