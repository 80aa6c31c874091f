/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences cut in pieces train like whole ones. Losses and gradients are the same within rounding
 * for every number of pieces and every cut. One cut gives the same bits on any schedule, number of
 * stages and timing. Bubble and memory match Seq1F1B (Sun et al., arXiv 2406.03488). A model that
 * cannot be cut is refused with an error that names the op.
 * labels: unthreaded first more */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "graph/cost/cost.h"
#include "graph/passes/passes.h"
#include "models/models.h"
#include "tests/support/graph_interp.h"

enum { STEPS = 20, MICROBATCHES = 4 };
#define LESS test_many(2, 6, TEST_SANITIZED ? 4 : 1) /* stride through the cuts */

typedef struct how {
  int pieces;
  sl_cut cut;
  const int64_t *lengths;
  int stages; /* pipeline devices */
  const char *schedule, *backward;
  uint64_t jitter; /* seed, 0: none */
  bool grows;      /* the quota of activations grows halfway */
} how;

typedef struct losses {
  double loss[STEPS], norm[STEPS];
} losses;

static void take_step(void *ctx, const sl_step_report *report) {
  losses *l = ctx;
  l->loss[report->step] = report->loss;
  l->norm[report->step] = report->grad_norm;
}

static char *tokens;
static char *const *words_of(const char *model) {
  static char *gpt[32], *llama[32];
  char *const common[] = {"--data", tokens, "--width",  "32", "--heads", "4", "--context", "32",
                          "--lr",   "3e-3", "--warmup", "4",  "--batch", "4", NULL};
  char *const of_gpt[] = {"--layers", "3", NULL};
  char *const of_llama[] = {"--layers", "2", "--kv-heads", "2", NULL};
  char **to = !strcmp(model, "gpt") ? gpt : llama;
  int n = 0;
  for (char *const *w = to == gpt ? of_gpt : of_llama; *w; w++) to[n++] = *w;
  for (char *const *w = common; *w; w++) to[n++] = *w;
  return to;
}

static sl_graph *build(const char *model, char *const *words, const how *h) {
  const sl_model *const *m = sli_models;
  while (*m && strcmp((*m)->name, model)) m++;
  CHECK(*m, "there is a model %s", model);
  sl_args *args;
  CHECK(!sl_args_create((*m)->options, &args), "%s", sl_detail());
  for (int used; *words; words += used)
    CHECK(!sl_args_take(args, 2, words, &used) && used, "option %s", *words);
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES,
                                                    .pieces = h->pieces,
                                                    .cut = h->cut,
                                                    .lengths = h->lengths,
                                                    .stages = h->stages});
  CHECK(!(*m)->build(g, args), "%s", sl_detail());
  sl_args_destroy(args);
  return g;
}

static char *text_of(const how *h) {
  const char *cut = h->lengths ? "given" : h->cut == SL_CUT_BALANCED ? "balanced" : "even";
  return sli_format("%d %s pieces, %s %s on %d", h->pieces, cut, h->schedule,
                    h->backward ? h->backward : "", h->stages);
}

/* A KV record never waits for a slot: its quota follows from the credits. */
static void check_records(const sl_plan *plan, sl_runtime *rt, const char *what) {
  int records = 0;
  for (int32_t r = 0; r < plan->nregs; r++) {
    if (strcmp(plan->regs[r].quota_name, "kv")) continue;
    records++;
    CHECK(plan->regs[r].memory == SL_MEMORY_ACTIVATIONS, "%s: %s is counted as activations", what,
          plan->regs[r].name);
    CHECK(sl_runtime_peak_slots(rt, r) <= sl_runtime_quota(rt, r), "%s: %s", what,
          plan->regs[r].name);
  }
  CHECK(plan->pieces == 1 ? !records : records, "%s: %d records", what, records);
  size_t count;
  uint64_t dropped;
  sl_trace_record *trace;
  count = sl_runtime_trace(rt, &trace, &dropped);
  for (size_t i = 0; i < count; i++)
    CHECK(trace[i].wait != SL_WAIT_CREDIT || strcmp(plan->regs[trace[i].reg].quota_name, "kv"),
          "%s: %s waited for a slot of %s", what, plan->actors[trace[i].actor].name,
          plan->regs[trace[i].reg].name);
  free(trace);
}

static losses train(const char *model, const how *h) {
  losses l = {0};
  char *what = text_of(h);
  sl_graph *g = build(model, words_of(model), h);
  sl_lowered *lowered;
  sl_lower_options options = {.parallel.stages = h->stages,
                              .schedule.name = h->schedule,
                              .schedule.backward = h->backward,
                              .devices = {.kind = "cpu"},
                              .report.on_step = take_step,
                              .report.ctx = &l};
  CHECK(!sl_lower(g, &options, &lowered), "%s: %s", what, sl_detail());
  int chunks = sl_schedule_chunks(h->schedule);
  CHECK(sl_lowered_chunks(lowered) == chunks, "%s: a device has %d chunks", what, chunks);
  const sl_plan *plan = sl_lowered_plan(lowered);
  CHECK(!sl_plan_prove(plan), "%s: %s", what, sl_detail());
  sl_runtime *rt;
  sl_runtime_options run = {.jitter_seed = h->jitter, .jitter_ns = h->jitter ? 20000 : 0};
  CHECK(!sl_runtime_create(plan, &run, &rt), "%s: %s", what, sl_detail());
  sl_lowered_attach(lowered, rt);
  sl_params_init(lowered, rt, 3);
  CHECK(!sl_runtime_run(rt, STEPS / 2), "%s: %s", what, sl_detail());
  sl_quota more = {"act", SL_NONE, MICROBATCHES * h->pieces};
  if (h->grows) CHECK(!sl_lowered_set_quota(lowered, rt, &more), "%s: %s", what, sl_detail());
  CHECK(!sl_runtime_run(rt, STEPS / 2), "%s: %s", what, sl_detail());
  check_records(plan, rt, what);
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  free(what);
  return l;
}

/* ---- losses ------------------------------------------------------------------------- */

static void check_near(const losses *got, const losses *want, const char *model, const how *h) {
  char *what = text_of(h);
  for (int s = 0; s < STEPS; s++) {
    CHECK(fabs(got->loss[s] - want->loss[s]) <= 1e-5 * fabs(want->loss[s]),
          "%s, %s, step %d: loss %.9g, uncut %.9g", model, what, s, got->loss[s], want->loss[s]);
    CHECK(fabs(got->norm[s] - want->norm[s]) <= 1e-4 * want->norm[s],
          "%s, %s, step %d: norm %.9g, uncut %.9g", model, what, s, got->norm[s], want->norm[s]);
  }
  free(what);
}

/* Tests every `stride`-th cut, each in some of the ways to run it. */
static void losses_are_those_of_whole_sequences(const char *model, size_t stride) {
  static const int64_t odd[] = {20, 1, 11}, growing[] = {1, 2, 4, 25};
  const how cuts[] = {
      {.pieces = 2},
      {.pieces = 3},
      {.pieces = 4},
      {.pieces = 5},
      {.pieces = 2, .cut = SL_CUT_BALANCED},
      {.pieces = 3, .cut = SL_CUT_BALANCED},
      {.pieces = 4, .cut = SL_CUT_BALANCED},
      {.pieces = 5, .cut = SL_CUT_BALANCED},
      {.pieces = 3, .lengths = odd},
      {.pieces = 4, .lengths = growing},
      {.pieces = 32},
  };
  const how ways[] = {
      {.stages = 2, .schedule = "seq1f1b", .grows = true},
      {.stages = 4, .schedule = "seq1f1b", .backward = "split", .jitter = 5},
      {.stages = 3, .schedule = "zb-h1"},
      {.stages = 2, .schedule = "interleaved", .jitter = 7},
      {.stages = 2, .schedule = "v-min"},
      {.stages = 3, .schedule = "gpipe", .backward = "split"},
      {.stages = 2, .schedule = "zb-v", .jitter = 3},
      {.stages = 2, .schedule = "zb-h2"},
      {.stages = 4, .schedule = "eager-1f1b"},
      {.stages = 2, .schedule = "v-half"},
  };
  how uncut = {.pieces = 1, .stages = 1, .schedule = "1f1b"};
  losses whole = train(model, &uncut);
  for (size_t c = 0; c < SLI_COUNT(cuts); c += stride) {
    how h = cuts[c];
    h.stages = 1;
    h.schedule = "1f1b";
    losses one = train(model, &h);
    check_near(&one, &whole, model, &h);
    for (size_t w = c / stride % 4; w < SLI_COUNT(ways) && h.pieces < 32; w += 4) {
      how other = ways[w];
      other.pieces = h.pieces, other.cut = h.cut, other.lengths = h.lengths;
      losses l = train(model, &other);
      char *what = text_of(&other);
      CHECK(!memcmp(&l, &one, sizeof l), "%s, %s: other bits than 1f1b on 1", model, what);
      free(what);
    }
  }
}

/* ---- gradients ------------------------------------------------------------------------ */

static interp prepare(const char *model, const how *h, sl_graph **g) {
  *g = build(model, words_of(model), h);
  CHECK(!sli_pass_cut(*g, NULL) && !sli_pass_gradients(*g) && !sli_pass_pieces(*g), "%s",
        sl_detail());
  sli_graph_check(*g);
  return interp_create(*g, 3);
}

static float *sum_of_uses(const interp *in, const sl_tensor *param) {
  size_t n = (size_t)sl_type_elements(&param->type);
  float *sum = sli_calloc(n, sizeof *sum);
  for (int u = 0; u < param->ngrads; u++)
    for (size_t i = 0; i < n; i++) sum[i] += ((float *)interp_data(in, param->grads[u]))[i];
  return sum;
}

/* Compares tensor by tensor. test_gradients.c checks the uncut gradients against finite
 * differences. */
static void gradients_are_those_of_whole_sequences(const char *model, const how *h) {
  sl_graph *whole, *cut;
  interp a = prepare(model, &(how){.pieces = 1}, &whole), b = prepare(model, h, &cut);
  double loss = interp_backward(&a, 0), again = interp_backward(&b, 0);
  CHECK(fabs(loss - again) <= 1e-6 * loss, "%s: loss %.9g, uncut %.9g", model, again, loss);
  for (int p = 0; p < whole->nparams; p++) {
    float *want = sum_of_uses(&a, whole->params[p]), *got = sum_of_uses(&b, cut->params[p]);
    double difference = 0, size = 0;
    for (int64_t i = 0; i < sl_type_elements(&whole->params[p]->type); i++) {
      difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
      size += (double)want[i] * want[i];
    }
    CHECK(sqrt(difference) <= 1e-5 * sqrt(size) + 1e-9,
          "%s in %d pieces: gradient of %s is %.3g off, its norm is %.3g", model, h->pieces,
          whole->params[p]->name, sqrt(difference), sqrt(size));
    free(want);
    free(got);
  }
  interp_destroy(&a);
  interp_destroy(&b);
  sl_graph_destroy(whole);
  sl_graph_destroy(cut);
}

/* Actors compute the same bits as the plainest execution. */
static void actors_add_nothing(const char *model, const how *h) {
  sl_graph *g;
  interp in = prepare(model, h, &g);
  losses l = train(model, h);
  for (int s = 0; s < STEPS; s++) {
    double loss = interp_step(&in, s);
    CHECK(loss == l.loss[s], "%s in %d pieces, step %d: %a, plainly %a", model, h->pieces, s,
          l.loss[s], loss);
  }
  interp_destroy(&in);
  sl_graph_destroy(g);
}

/* ---- lengths ------------------------------------------------------------------------------ */

static void even_pieces_differ_by_one(void) {
  const int64_t *lengths, want[] = {7, 7, 6, 6, 6};
  sl_graph *g = build("gpt", words_of("gpt"), &(how){.pieces = 5});
  CHECK(sl_graph_pieces(g, &lengths) == 5 && !lengths, "lengths are not known before lowering");
  CHECK(!sli_pass_cut(g, NULL), "%s", sl_detail());
  CHECK(sl_graph_pieces(g, &lengths) == 5 && !memcmp(lengths, want, sizeof want), "7 7 6 6 6");
  sl_graph_destroy(g);
}

/* Returns the forward time of a model with a context of `length` tokens. */
static double seconds_of_prefix(int64_t length) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)length);
  char *const words[] = {"--data",      tokens, "--width",   "32", "--heads", "4", "--layers", "1",
                         "--positions", "2048", "--context", text, NULL};
  sl_graph *g = build("gpt", words, &(how){.pieces = 1});
  double sum = 0;
  for (int i = 0; i < g->nnodes; i++)
    if (g->nodes[i]->cls == SL_CLASS_F)
      sum += sli_call_seconds(NULL, g->nodes[i], g->nodes[i]->in_type, g->nodes[i]->out_type);
  sl_graph_destroy(g);
  return sum;
}

static void balanced_pieces_take_equal_time(void) {
  char *const words[] = {"--data",    tokens,     "--width", "32",          "--heads",
                         "4",         "--layers", "1",       "--positions", "2048",
                         "--context", "2000",     NULL};
  double whole = seconds_of_prefix(2000), fixed = 2 * seconds_of_prefix(1) - seconds_of_prefix(2);
  double token = whole - seconds_of_prefix(1999);
  for (int pieces = 2; pieces <= 7; pieces++) {
    const int64_t *lengths;
    sl_graph *g = build("gpt", words, &(how){.pieces = pieces, .cut = SL_CUT_BALANCED});
    CHECK(!sli_pass_cut(g, NULL), "%s", sl_detail());
    sl_graph_pieces(g, &lengths);
    double before = fixed;
    int64_t end = 0;
    for (int k = 0; k < pieces; k++) {
      end += lengths[k];
      double now = seconds_of_prefix(end), want = (whole - fixed) / pieces;
      CHECK(fabs(now - before - want) <= 1.1 * token,
            "piece %d of %d, %lld tokens: %.6g s instead of %.6g s", k, pieces,
            (long long)lengths[k], now - before, want);
      before = now;
    }
    CHECK(end == 2000, "%d pieces have %lld tokens", pieces, (long long)end);
    CHECK(lengths[0] > lengths[pieces - 1] + 100, "attention makes the later ones shorter");
    sl_graph_destroy(g);
  }
}

/* ---- schedules ---------------------------------------------------------------------------- */

/* A step of 1f1b in k pieces: idle for 3(p-1)/k of a pass, (p-1+k)/k activations held. */
static void bubble_and_memory_are_seq1f1b(int p, int m, int k) {
  char *const words[] = {"--activation", "960", NULL};
  const sl_model *const *model = sli_models;
  while (strcmp((*model)->name, "pipeline")) model++;
  sl_args *args;
  CHECK(!sl_args_create((*model)->options, &args), "%s", sl_detail());
  int used;
  CHECK(!sl_args_take(args, 2, words, &used), "%s", sl_detail());
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = m, .pieces = k, .stages = p});
  CHECK(!(*model)->build(g, args), "%s", sl_detail());
  sl_lowered *lowered;
  sl_lower_options options = {.parallel.stages = p,
                              .schedule.name = "seq1f1b",
                              .devices = {.kind = "timed"},
                              .simulation.cost = {.F = 1, .B = 1, .W = 1}};
  CHECK(!sl_lower(g, &options, &lowered), "%s", sl_detail());
  sl_runtime *rt;
  CHECK(!sl_runtime_create(sl_lowered_plan(lowered),
                           &(sl_runtime_options){.clock = SL_CLOCK_VIRTUAL, .no_data = true}, &rt),
        "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, 3), "%s", sl_detail());
  sl_statistics stats = sl_runtime_statistics(rt);
  double want = 3 * m + 3.0 * (p - 1) / k;
  CHECK(fabs(stats.step_seconds - want) < 1e-6, "p %d m %d k %d: a step takes %g, not %g", p, m, k,
        stats.step_seconds, want);
  for (int d = 0; d < p; d++) {
    double peak = sl_runtime_peak_activations(rt, d);
    double most = fmin(m, (double)(p - d - 1 + k) / k);
    CHECK(fabs(peak - most) < 1e-9, "p %d m %d k %d: device %d holds %g, not %g", p, m, k, d, peak,
          most);
  }
  free(stats.devices);
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  sl_args_destroy(args);
}

/* ---- errors -------------------------------------------------------------------------------- */

static void nothing(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick, (void)out;
}
static const sl_type data_types[] = {{SL_F32, 3, {2, 12, 8}}, {SL_I32, 2, {2, 12}}};
static const sl_source whole_only = {.nout = 2, .types = data_types, .fill = nothing};
static const sl_source cuttable = {.nout = 2, .types = data_types, .fill = nothing, .cut = 2};

static sl_status mix_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static void mix(const sl_call *call) { (void)call; }
static const sl_op mix_op = {
    .name = "mix",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .infer = mix_infer,
    .kernels = SL_CPU_KERNEL(mix),
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};

typedef enum fault {
  SOUND,
  MIXES,
  LOOKS_AHEAD,
  WHOLE_DATA,
  CUT_TABLE,
  LAST_DIM,
  WEIGHT_BY_POSITION,
  MEAN_AGAIN
} fault;

static void build_faulty(sl_graph *g, fault f) {
  sl_tensor *data[2];
  sl_data(g, f == WHOLE_DATA ? &whole_only : &cuttable, data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 8, 8), SL_NORMAL(1), "w");
  sl_tensor *x = sl_linear(g, data[0], w, NULL); /* [2, 12, 8] */
  if (f == MIXES) x = sl_op1_at(SL_HERE, g, &mix_op, NULL, x);
  if (f == LOOKS_AHEAD) x = sl_attend(g, x, x, x, &(sl_attention_attrs){.heads = 2, .full = true});
  if (f == WEIGHT_BY_POSITION)
    x = sl_add(g, x, sl_param(g, SL_TYPE(SL_F32, 2, 12, 8), SL_NORMAL(1), "by_position"));
  sl_tensor *loss = sl_mse(g, x, data[0]);
  if (f == MEAN_AGAIN) sl_op1_at(SL_HERE, g, &mix_op, NULL, loss);
  sl_train(g, loss, NULL);
}

static void check_told(sl_graph *g, sl_status status, const char **parts) {
  sl_lowered *lowered = NULL;
  sl_status got = sl_lower(g, &(sl_lower_options){.devices = {.kind = "cpu"}}, &lowered);
  CHECK(got == status, "status %d instead of %d: %s", got, status, sl_detail());
  for (; *parts; parts++)
    CHECK(strstr(sl_detail(), *parts), "no \"%s\" in: %s", *parts, sl_detail());
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
}
#define TOLD(g, code, ...) check_told(g, code, (const char *[]){__VA_ARGS__, NULL})

static sl_graph *faulty(fault f, int pieces, const int64_t *lengths) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.pieces = pieces, .lengths = lengths});
  build_faulty(g, f);
  return g;
}

/* Rows of 12 tokens in a [12, 8] array, cut along dim 0. */
static const sl_type flat_types[] = {{SL_F32, 2, {12, 8}}, {SL_I32, 1, {12}}};
static const sl_source flat = {.nout = 2, .types = flat_types, .fill = nothing, .cut = 1};
static const sl_type turned_types[] = {{SL_F32, 3, {2, 8, 12}}};
static const sl_source turned = {.nout = 1, .types = turned_types, .fill = nothing, .cut = 3};

static sl_graph *reads_other_rows(bool table) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.pieces = 3});
  sl_tensor *data[2];
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 8, 8), SL_NORMAL(1), "w");
  sl_data(g, &flat, data);
  sl_tensor *x = sl_linear(g, data[0], w, NULL);
  sl_tensor *y = table ? sl_embedding(g, data[1], x) : sl_linear(g, data[0], x, NULL);
  sl_train(g, table ? sl_mse(g, y, data[0]) : sl_cross_entropy(g, y, data[1]), NULL);
  return g;
}

static void what_cannot_be_cut_is_told(void) {
  sl_lowered *lowered;
  sl_graph *g = faulty(SOUND, 3, NULL);
  CHECK(!sl_lower(g, &(sl_lower_options){0}, &lowered), "%s", sl_detail());
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  TOLD(faulty(MIXES, 3, NULL), SL_E_UNSUPPORTED, "test_pieces.c:", "op main/mix.1 (mix)",
       "cannot be cut into pieces", "mix positions", "main/linear.1 f32[2, 12, 8]");
  CHECK(!sli_pass_gradients(g = faulty(MIXES, 1, NULL)), "uncut it is a model like any other");
  sl_graph_destroy(g);
  TOLD(faulty(LOOKS_AHEAD, 2, NULL), SL_E_UNSUPPORTED, "op main/attention.1",
       "attrs.attention.full");
  TOLD(faulty(WHOLE_DATA, 2, NULL), SL_E_UNSUPPORTED, "source.1 (source)", "sl_source.cut");
  TOLD(faulty(WEIGHT_BY_POSITION, 2, NULL), SL_E_UNSUPPORTED, "op main/add.1 (add)", "6 of 12",
       "by_position");
  TOLD(faulty(MEAN_AGAIN, 2, NULL), SL_E_UNSUPPORTED, "mix.1", "cannot be cut");
  TOLD(faulty(SOUND, 13, NULL), SL_E_USAGE, "13 pieces", "only 12 positions");
  TOLD(faulty(SOUND, 2, (int64_t[]){5, 6}), SL_E_USAGE, "11 positions", "12");
  TOLD(faulty(SOUND, 2, (int64_t[]){12, 0}), SL_E_USAGE, "piece 1 has 0");
  TOLD(reads_other_rows(true), SL_E_UNSUPPORTED, "embedding.1", "whole input 1");
  TOLD(reads_other_rows(false), SL_E_UNSUPPORTED, "linear.2", "whole input 1");

  g = sl_graph_create(&(sl_graph_options){.pieces = 3});
  sl_tensor *x;
  sl_data(g, &turned, &x);
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, 12), SL_CONSTANT(1), "gain");
  sl_train(g, sl_mse(g, sl_rmsnorm(g, x, gain, 0), x), NULL);
  TOLD(g, SL_E_UNSUPPORTED, "rmsnorm.1", "gain f32[12]");
  g = sl_graph_create(&(sl_graph_options){.pieces = 3});
  sl_data(g, &turned, &x);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 2, 8, 1), SL_CONSTANT(1), "w");
  (void)w;
  sl_train(g, sl_mse(g, sl_gelu(g, x), x), NULL);
  TOLD(g, SL_E_UNSUPPORTED, "mse.1", "last dim");
  g = sl_graph_create(&(sl_graph_options){.pieces = 2, .infer = true});
  TOLD(g, SL_E_USAGE, "inference");
}

int main(void) {
  const char *source = getenv("SLUICE_SOURCE");
  tokens = sli_format("%s/tests/reference/tokens.u16", source ? source : ".");
  RUN(what_cannot_be_cut_is_told);
  RUN(even_pieces_differ_by_one);
  RUN(balanced_pieces_take_equal_time);
  for (int p = 1; p <= 8; p *= 2)
    for (int k = 1; k <= 6; k++) RUN(bubble_and_memory_are_seq1f1b, p, 2 * p, k);
  static const char *const models[] = {"gpt", "llama"};
  static const int64_t odd[] = {20, 1, 11};
  for (int i = 0; i < 2; i++) {
    for (int k = 2; k <= 5; k++)
      RUN(gradients_are_those_of_whole_sequences, models[i], &(how){.pieces = k});
    RUN(gradients_are_those_of_whole_sequences, models[i], &(how){.pieces = 3, .lengths = odd});
    RUN(actors_add_nothing, models[i], &(how){.pieces = 3, .stages = 2, .schedule = "seq1f1b"});
    RUN(losses_are_those_of_whole_sequences, models[i], (i ? 2 : 1) * LESS);
  }
  free(tokens);
  return 0;
}
