/* SPDX-License-Identifier: Apache-2.0 */
// Trains the model of moons.cpp using only the library: `train STEPS`.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <sluice/sluice.h>

extern "C" const sl_model sl_model_export; // moons.cpp

// Deleter for objects of the C library; calls their destroy function.
template <class T, void (*Destroy)(T *)> struct Deleter {
  void operator()(T *t) const { Destroy(t); }
};
template <class T, void (*Destroy)(T *)> using Owned = std::unique_ptr<T, Deleter<T, Destroy>>;

static void check(sl_status status) {
  if (status) throw std::runtime_error(sl_detail());
}

struct Training {
  Owned<sl_args, sl_args_destroy> args;
  Owned<sl_graph, sl_graph_destroy> graph; // destroyed after everything made from it
  Owned<sl_lowered, sl_lowered_destroy> lowered;
  Owned<sl_runtime, sl_runtime_destroy> runtime;
  double first = 0, last = 0; // losses

  Training();
  void run(int64_t steps) { check(sl_runtime_run(runtime.get(), steps)); }

 private:
  void build();
  void lower();
};

void Training::build() {
  sl_args *a = nullptr;
  check(sl_args_create(sl_model_export.options, &a));
  args.reset(a);
  check(sl_args_set(a, "width", "24"));
  sl_graph_options options{};
  options.microbatches = 4;
  options.stages = 2;
  graph.reset(sl_graph_create(&options));
  check(sl_model_export.build(graph.get(), a));
}

void Training::lower() {
  sl_quota quota{"act.b", 0, 2}; // the first stage runs at most two microbatches ahead
  sl_lower_options options{};
  options.parallel.stages = 2;
  options.schedule.name = "1f1b";
  options.memory.nquotas = 1;
  options.memory.quotas = &quota;
  options.devices.kind = "cpu";
  options.report.ctx = this;
  options.report.on_step = [](void *ctx, const sl_step_report *report) {
    auto *training = static_cast<Training *>(ctx);
    if (!report->step) training->first = report->loss;
    training->last = report->loss;
  };
  sl_lowered *l = nullptr;
  check(sl_lower(graph.get(), &options, &l));
  lowered.reset(l);
  check(sl_plan_prove(sl_lowered_plan(l)));
}

Training::Training() {
  build();
  lower();
  sl_runtime_options options{};
  sl_runtime *rt = nullptr;
  check(sl_runtime_create(sl_lowered_plan(lowered.get()), &options, &rt));
  runtime.reset(rt);
  sl_lowered_attach(lowered.get(), rt);
  check(sl_params_init(lowered.get(), rt, 1));
}

int main(int argc, char **argv) try {
  Training training;
  training.run(argc > 1 ? std::atoll(argv[1]) : 200);
  std::printf("loss %.4f, then %.4f\n", training.first, training.last);
  return training.last < training.first ? 0 : 1;
} catch (const std::exception &e) {
  std::fprintf(stderr, "train: %s\n", e.what());
  return 1;
}
