/* SPDX-License-Identifier: Apache-2.0 */
// Two moons: a small network learns which of two half circles a point of the plane belongs to.
#include <cmath>
#include <sluice/sluice.h>

namespace {

const sl_option options[] = {
    {"points", SL_OPTION_INT, "256", "points per step", 2, 1 << 20},
    {"width", SL_OPTION_INT, "32", "units of the hidden layers", 1, 1 << 12},
    {"lr", SL_OPTION_FLOAT, "0.01", "learning rate", 0, 1},
    {nullptr, SL_OPTION_INT, nullptr, nullptr, 0, 0}};

// ---- data: the same tick always gives the same points -----------------------------------

struct Moons {
  sl_source source;
  sl_type types[2];
  int64_t rows;
  int microbatches;
};

void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const Moons &m = *static_cast<const Moons *>(ctx);
  float *points = static_cast<float *>(out[0]);      // [rows, 2]
  int32_t *classes = static_cast<int32_t *>(out[1]); // [rows]
  int64_t first = (tick->step * m.microbatches + tick->microbatch) * m.rows;
  for (int64_t i = 0; i < m.rows; i++) {
    int moon = static_cast<int>((first + i) & 1);
    double angle = std::fmod(0.618034 * static_cast<double>(first + i), 1.0) * 3.14159265;
    if (points) {
      points[2 * i] = static_cast<float>(moon ? 1 - std::cos(angle) : std::cos(angle));
      points[2 * i + 1] = static_cast<float>(moon ? 0.5 - std::sin(angle) : std::sin(angle));
    }
    if (classes) classes[i] = moon;
  }
}

// Creates the source, which lives as long as the graph.
Moons *make_source(sl_graph *g, int64_t points) {
  auto *m = static_cast<Moons *>(sl_graph_alloc(g, sizeof(Moons)));
  m->rows = sl_microbatch_rows(g, points);
  m->microbatches = sl_graph_microbatches(g);
  m->types[0] = SL_TYPE(SL_F32, m->rows, 2);
  m->types[1] = SL_TYPE(SL_I32, m->rows);
  m->source.nout = 2;
  m->source.types = m->types;
  m->source.fill = fill;
  m->source.ctx = m;
  return m;
}

// ---- the network ----------------------------------------------------------------------------

sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t out, const char *name) {
  int64_t in = sl_dim(x, -1);
  float bound = 1 / std::sqrt(static_cast<float>(in > 0 ? in : 1));
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_UNIFORM(bound), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear(g, x, w, b);
}

sl_status build(sl_graph *g, const sl_args *args) {
  int64_t width = sl_arg_int(args, "width");
  sl_tensor *data[2];
  sl_block(g, "first");
  sl_data(g, &make_source(g, sl_arg_int(args, "points"))->source, data);
  sl_tensor *x = sl_tanh(g, dense(g, data[0], width, "first"));
  sl_block(g, "second");
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, width), SL_CONSTANT(1), "norm.weight");
  sl_tensor *bias = sl_param(g, SL_TYPE(SL_F32, width), SL_CONSTANT(0), "norm.bias");
  x = sl_gelu(g, dense(g, sl_layernorm(g, x, gain, bias, 1e-5f), width, "second"));
  sl_block(g, "head");
  sl_tensor *logits = dense(g, x, 2, "head");
  sl_output(g, "logits", logits);
  sl_optimizer adam{};
  adam.lr = static_cast<float>(sl_arg_float(args, "lr"));
  sl_train(g, sl_cross_entropy(g, logits, data[1]), &adam);
  return sl_graph_status(g);
}

} // namespace

SL_MODEL(moons, "which of two moons a point is of", options, build);
