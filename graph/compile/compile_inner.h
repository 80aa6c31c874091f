/* SPDX-License-Identifier: Apache-2.0 */
/* The result of compiling a graph, shared by the files of compile/. */
#ifndef SLUICE_GRAPH_COMPILE_COMPILE_INNER_H
#define SLUICE_GRAPH_COMPILE_COMPILE_INNER_H

#include "graph/build/build.h"
#include "graph/compile/fingerprint.h"
#include "graph/lower/lower.h"
#include "graph/schedule/schedule.h"

/* One output that inference delivers. */
typedef struct output_sink {
  sl_sink sink;
  const char *name;
  sl_type type;
  void (*on_output)(void *ctx, const char *name, const sl_type *type, const void *data);
  void *ctx;
} output_sink;

struct sl_lowered {
  sl_graph *g;
  sl_lower_options options;
  char *schedule, *chosen, *paths;
  int chunks, stages, ranks, alike;
  uint64_t (*exchanged)[SLI_AXES]; /* [devices] */
  sli_inputs inputs;               /* inputs of lowering, except the options */
  sli_sent *sent;                  /* NULL without a hardware model */
  sli_prices prices;               /* for rough plans of one stage */
  double flops;
  const char *products, *tensors;
  const char *cut, *versions; /* as in the fingerprint */
  int nfingerprint, nresults; /* 0: not made yet */
  sl_fingerprint_item *fingerprint;
  sl_plan *plan;
  int nparams;
  const sl_param_info *params;
  int nquotas;
  sli_quota_found *quotas;
  sl_runtime *rt; /* runtime that receives failures */
  sl_sink step_sink, eval_sink;
  sli_mean *evaluated; /* the loss and metrics; NULL: no evaluation */
  output_sink *outputs;
  sli_stores *stores;
  sli_fingerprints fingerprints;
  sli_arena arena;
};

/* Adds the ops that report losses, norms, counters and outputs (reports.c). */
void sli_compile_reports(sl_lowered *l);

/* Reads the options into inputs: device kinds, links, sizes, paths, number formats (options.c). */
sl_status sli_compile_options(const sl_lower_options *o, sli_inputs *in);
/* Reads the options of a stage's grid of devices (grid.c). */
sl_status sli_compile_grid(sli_inputs *in);
/* Sets *out to the schedule that the options name, or to none if it is to be searched for. */
sl_status sli_compile_pick(const sli_inputs *in, sli_pick *out);
bool sli_compile_searches(const sl_lower_options *o);

/* Runs the passes over the graph, in the order of their table (passes.c). */
sl_status sli_compile_passes(sl_lowered *to, sli_inputs *in);

#endif
