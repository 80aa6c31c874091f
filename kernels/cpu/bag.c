/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of embedding bags: sums or means of table rows, and their gradients. One thread adds
 * the gradients of a table row, in the order of the bags. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/bag.h"
#include "ops/ops.h"

/* ---- kernels ----------------------------------------------------------------------------- */

/* Returns the weight of id number `at`. */
static double weight_of(const float *weights, int64_t at) {
  return weights ? (double)weights[at] : 1;
}

static void add_to_bag(float *y, const float *row, int64_t width, float by) {
  for (int64_t c = 0; c < width; c++) y[c] += by * row[c];
}

static void bag_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_bag *bag = call->attrs->user;
  const int32_t *ids = call->in[0];
  const float *table = call->in[1], *weights = call->nin > 2 ? call->in[2] : NULL;
  int64_t most = sl_type_last(&call->in_type[0]), width = call->in_type[1].dim[1];
  sli_range rows = sli_rows(&call->out_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    float *y = (float *)call->out[0] + r * width;
    float share = (float)sli_bag_share(bag, ids + r * most, most);
    memset(y, 0, (size_t)width * sizeof *y);
    for (int64_t l = r * most; l < (r + 1) * most; l++) {
      int64_t id = (int64_t)ids[l] - call->attrs->place.first;
      if (sli_bag_pads(bag, ids[l])) continue;
      if (id >= 0 && id < call->in_type[1].dim[0])
        add_to_bag(y, table + id * width, width, share * (float)weight_of(weights, l));
      else if (!call->attrs->place.partial) y[0] = NAN;
    }
  }
}

static void embedding_bag_cpu(const sl_call *call) {
  sli_for_rows(call, &call->out_type[0], bag_chunk);
}

static void bag_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_bag *bag = call->attrs->user;
  const int32_t *ids = call->in[0];
  const float *dy = call->in[1], *weights = call->nin > 3 ? call->in[3] : NULL;
  float *dtable = call->out[0];
  int64_t most = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  int64_t vocab = call->out_type[0].dim[0], width = call->out_type[0].dim[1];
  sli_range c = sli_columns(&call->out_type[0], i);
  for (int64_t v = 0; v < vocab && !sli_accumulates(call, 0); v++)
    memset(dtable + v * width + c.begin, 0, (size_t)(c.end - c.begin) * sizeof *dtable);
  for (int64_t r = 0; r < rows; r++) {
    float share = (float)sli_bag_share(bag, ids + r * most, most);
    for (int64_t l = r * most; l < (r + 1) * most; l++) {
      int64_t id = (int64_t)ids[l] - call->attrs->place.first;
      if (id < 0 || id >= vocab || sli_bag_pads(bag, ids[l])) continue;
      add_to_bag(dtable + id * width + c.begin, dy + r * width + c.begin, c.end - c.begin,
                 share * (float)weight_of(weights, l));
    }
  }
}

static void embedding_bag_w_cpu(const sl_call *call) {
  sli_for_columns(call, &call->out_type[0], bag_w_chunk);
}

/* Computes the gradient of the weights. */
static void bag_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const int32_t *ids = call->in[0];
  const float *dy = call->in[1], *table = call->in[2];
  float *dweights = call->out[0];
  int64_t most = sl_type_last(&call->in_type[0]), width = call->in_type[2].dim[1];
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t l = rows.begin * most; l < rows.end * most; l++) {
    int64_t id = (int64_t)ids[l] - call->attrs->place.first;
    bool counts =
        id >= 0 && id < call->in_type[2].dim[0] && !sli_bag_pads(call->attrs->user, ids[l]);
    double sum = 0;
    for (int64_t c = 0; c < width && counts; c++)
      sum += (double)dy[l / most * width + c] * (double)table[id * width + c];
    dweights[l] = (float)sum;
  }
}

static void embedding_bag_b_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], bag_b_chunk);
}

/* ---- tables ------------------------------------------------------------------------------ */

const sl_kernel sli_cpu_embedding_bag = {.backend = "cpu", .run = embedding_bag_cpu};

const sl_kernel sli_cpu_embedding_bag_w = {.backend = "cpu", .run = embedding_bag_w_cpu};

const sl_kernel sli_cpu_embedding_bag_b = {.backend = "cpu", .run = embedding_bag_b_cpu};
