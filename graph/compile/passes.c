/* SPDX-License-Identifier: Apache-2.0 */
/* The passes over a graph, in one table, in execution order.
 *
 * Each row has a name, a condition on graphs, and a function. docs/passes.md is generated from this
 * table, and --print-after NAME prints the graph after a pass. Builds with assertions check the
 * graph after each pass. */
#include "base/memory.h"
#include "graph/compile/compile.h"
#include "graph/compile/compile_inner.h"
#include "graph/cost/cost.h"
#include "graph/passes/passes.h"
#include "ops/leaves.h"
#include "ops/expert_loads.h"
#include "ops/ops.h"
#include "ops/table_loads.h"

#include <stdlib.h>
#include <string.h>

/* One compilation: the result so far, and its inputs. */
typedef struct compilation {
  sl_lowered *to;
  sli_inputs *in;
  sl_graph *g;
} compilation;

/* ---- when ------------------------------------------------------------------------------- */

static bool always(const sli_inputs *in) { return (void)in, true; }
static bool serves(const sli_inputs *in) { return in->g->options.serve; }
static bool infers(const sli_inputs *in) { return in->g->options.infer && !serves(in); }
static bool trains(const sli_inputs *in) { return !in->g->options.infer && !serves(in); }
static bool loads_experts(const sli_inputs *in) {
  return serves(in) && (sli_home_given(in->options, SLI_ROLE_PARAM) ||
                        sli_loads_move(in->options, &sl_op_load_experts));
}
static bool loads_rows(const sli_inputs *in) {
  return serves(in) && sli_loads_move(in->options, &sl_op_load_rows);
}
static bool keeps_weights(const sli_inputs *in) {
  return trains(in) && !sli_home_given(in->options, SLI_ROLE_PARAM);
}
static bool has_parts(const sli_inputs *in) {
  return trains(in) && (in->k > 1 || sli_grid_ranks(&in->grid) > 1);
}
static bool has_one_barrier(const sli_inputs *in) { return trains(in) && in->barriers == 1; }
static bool is_sharded(const sli_inputs *in) {
  return trains(in) && (sli_grid_ranks(&in->grid) > 1 || in->barriers);
}
static bool has_paths(const sli_inputs *in) {
  return trains(in) && (in->paths || in->options->schedule.skip > 0);
}
static bool offloads(const sli_inputs *in) {
  return trains(in) && in->leaving != SL_NONE && in->leaving < in->k;
}
static bool multiplies_bf16(const sli_inputs *in) { return in->bf16; }
static bool evaluates(const sli_inputs *in) { return sli_evaluates(in->g); }
static bool rolls_out(const sli_inputs *in) { return trains(in) && in->options->rollouts.make; }
static bool has_replicas(const sli_inputs *in) {
  return trains(in) && in->grid.loads && in->grid.loads->replicas;
}
static bool has_spans(const sli_inputs *in) { return trains(in) && sli_has_spans(in->g); }
static bool is_exact(const sli_inputs *in) { return in->options->numbers.exact; }
static bool has_groups(const sli_inputs *in) { return is_exact(in) && !serves(in); }
static bool tells_logprobs(const sli_inputs *in) {
  return trains(in) && in->options->report.on_logprobs;
}
static bool stores_weights(const sli_inputs *in) {
  return trains(in) && in->g->options.training && in->g->options.training->storage;
}
static bool is_narrow(const sli_inputs *in) { return in->narrow; }

/* ---- rows --------------------------------------------------------------------------------- */

static sl_status cut_encoders(compilation *c) { return sli_pass_spans(c->g); }
static sl_status encode(compilation *c) {
  return sli_pass_encode(c->g, sli_grid_ranks(&c->in->grid));
}

/* Measures blocks before they are sharded, so that the stages are known from then on. */
static void measure_blocks(sli_inputs *in, const sl_hardware *hardware) {
  double *seconds = sli_block_seconds(in->g, hardware);
  size_t n = (size_t)sli_blocks_in_line(in->g) + 1;
  in->block_seconds =
      memcpy(sli_arena_alloc(&in->g->arena, n * sizeof *seconds), seconds, n * sizeof *seconds);
  free(seconds);
}

/* Measures blocks on one device, so that a path skips the same blocks on every grid. */
static sl_status cut_paths(compilation *c) {
  c->in->g->skips = true;
  measure_blocks(c->in, NULL);
  return SL_OK;
}

static sl_status check_options(compilation *c) {
  sl_status status = sli_lower_check_given(c->in->options);
  if (!status) status = sli_lower_check_homes(c->in);
  if (!status) sli_lower_sweeps(c->in);
  return status;
}

static sl_status add_replicas(compilation *c) {
  return sli_pass_replicas(c->g, c->in->grid.loads->replicas);
}

static sl_status split_losses(compilation *c) { return sli_pass_losses(c->g); }
static sl_status choose_attention(compilation *c) { return sli_lower_attention(c->in); }
static sl_status cut_sequences(compilation *c) {
  if (is_exact(c->in)) c->g->exact.leaf = c->in->options->numbers.leaf;
  return sli_pass_cut(c->g, c->in->options->simulation.hardware);
}

/* Returns the setting that rules out exact numbers, or NULL if none does. */
static const char *not_exact(const sli_inputs *in) {
  if (in->grid.ring && in->k > 1) return "parallel.sequence_attention ring and --pieces";
  if (in->grid.states) return "parallel.sequence_states exchange";
  if (in->g->repeats_heads) return "fewer key heads than parallel.sequence devices";
  if (in->barriers == 1) return "vocabulary.barriers 1";
  if (in->options->numbers.dtype == SL_BF16) return "numbers.dtype bf16";
  if (serves(in) && in->g->options.serve->kv != SL_STORAGE_F32)
    return in->g->options.serve->kv == SL_STORAGE_BF16 ? "keys and values in bf16"
                                                       : "keys and values in 8 bits";
  return !strcmp(in->options->devices.kind, "cuda") ? "cuda devices" : NULL;
}

/* Checks that pieces, and each device's part of a piece, are whole leaves. */
static sl_status check_leaves(const sli_inputs *in) {
  const sl_graph *g = in->g;
  int devices = in->grid.size[SLI_AXIS_SEQUENCE], runs = in->grid.zigzag ? 2 * devices : devices;
  if (g->exact.leaf % SLI_LEAF_MULTIPLE)
    return sl_fail(SL_E_USAGE, "numbers.leaf %lld: must be a multiple of %d",
                   (long long)g->exact.leaf, SLI_LEAF_MULTIPLE);
  if (!g->exact.leaf && (in->k > 1 || devices > 1))
    return sl_fail(SL_E_USAGE, "numbers.exact: %s cuts sequences, so numbers.leaf must be given",
                   in->k > 1 ? "--pieces" : "parallel.sequence");
  for (int k = 0; k < in->k && g->exact.leaf; k++) {
    int64_t length = in->k > 1 ? g->cut.lengths[k] : g->cut.length;
    if (length % (runs * g->exact.leaf))
      return sl_fail(
          SL_E_USAGE,
          "numbers.leaf %lld: the %lld positions of piece %d are not whole leaves for %d %s",
          (long long)g->exact.leaf, (long long)length, k, runs,
          in->grid.zigzag ? "runs (parallel.sequence_layout zigzag)"
          : runs > 1      ? "devices"
                          : "device");
  }
  return SL_OK;
}

/* Records the number of rows, or elements, of each mean, by which reports weight exact losses. */
static void count_rows(sl_graph *g) {
  for (int m = 0; m < sli_graph_means(g); m++) {
    sli_mean *mean = sli_graph_mean(g, m);
    const sli_node *maker = mean->tensor->producer;
    if (sli_is_mean(mean->tensor)) mean->rows = sli_mean_summands(maker);
  }
}

/* Records which dims gradients and losses sum over. */
static sl_status mark_sums(const compilation *c) {
  if (c->g->exact.leaf) SLI_TRY(sli_positions_find(c->g));
  SLI_TRY(check_leaves(c->in));
  c->g->exact.fed = sli_fed_find(c->g);
  c->g->exact.rows = sli_rows_find(c->g);
  count_rows(c->g);
  return SL_OK;
}

/* Rejects expert limits, which apply to each device separately. */
static sl_status refuse_limits(sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (n->op == &sl_op_expert_limit && n->attrs.experts.factor < (float)n->attrs.experts.count)
      return sli_graph_fail_at(
          g, n->at, SL_E_UNSUPPORTED,
          "numbers.exact: op %s (%s) drops rows depending on how many a device has", n->name,
          n->op->name);
  }
  return SL_OK;
}

/* Rejects ops that a server computes in another order than training. */
static sl_status refuse_reordered(sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++)
    if (sli_op_exact(g->nodes[i]->op)->reorders)
      return sli_graph_fail_at(
          g, g->nodes[i]->at, SL_E_UNSUPPORTED,
          "numbers.exact: op %s (%s) sums in another order than training when it is served "
          "(sl_serving.exact, sl_rollouts_options.exact)",
          g->nodes[i]->name, g->nodes[i]->op->name);
  return SL_OK;
}

static sl_status mark_exact(compilation *c) {
  const char *what = not_exact(c->in);
  if (what) return sl_fail(SL_E_UNSUPPORTED, "numbers.exact: not supported with %s", what);
  if (trains(c->in)) SLI_TRY(refuse_limits(c->g));
  SLI_TRY(refuse_reordered(c->g));
  if (trains(c->in)) SLI_TRY(mark_sums(c));
  for (int i = 0; i < c->g->nnodes; i++) c->g->nodes[i]->attrs.numbers.exact = true;
  return SL_OK;
}

static sl_status add_logprobs(compilation *c) {
  if (!strcmp(c->in->options->devices.kind, "cuda"))
    return sl_fail(SL_E_UNSUPPORTED, "--logprobs: not supported with cuda devices");
  return sli_pass_logprobs(c->g);
}

static sl_status add_gradients(compilation *c) { return sli_pass_gradients(c->g); }
static sl_status set_groups(compilation *c) { return sli_groups_set(c->g); }
static sl_status move_products(compilation *c) { return sli_pass_ahead(c->g); }
static sl_status shape_pieces(compilation *c) { return sli_pass_pieces(c->g); }

/* Returns how often a node's call runs for a piece, on average. An op that sweeps runs once for the
 * piece and once for each earlier piece, and each call costs the same part of the whole
 * (sl_op.cost). */
static double calls_of(const sli_node *n, const sli_inputs *in) {
  return sli_op_cut(n->op)->sweeps ? (in->k + 1) / 2.0 : 1;
}

/* Counts the operations of a step, before sharding. */
static double count_flops(const sl_graph *g, const sli_inputs *in) {
  double sum = 0;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (n->cls == SL_CLASS_L || n->cls == SL_CLASS_U) continue;
    for (int k = 0; k < in->k; k++) {
      double flops, bytes;
      int v = 0;
      while (n->shapes && g->cut.variant_lengths[v] != g->cut.lengths[k]) v++;
      sli_call_cost(n, n->shapes ? n->shapes[v].in : n->in_type,
                    n->shapes ? n->shapes[v].out : n->out_type, &flops, &bytes);
      sum += calls_of(n, in) * flops * in->m;
    }
  }
  return sum;
}

static sl_status add_up_flops(compilation *c) {
  c->in->flops = count_flops(c->g, c->in);
  return SL_OK;
}

/* Cuts the model into stages before it is sharded, for tensors that cross in parts. */
static sl_status find_stages(sli_inputs *in) {
  sli_arena *arena = &in->g->arena;
  int *place = sli_arena_alloc(arena, (size_t)in->g->nblocks * sizeof *place);
  int device_of[in->stages], chunk_of[in->stages];
  measure_blocks(in, in->options->simulation.hardware);
  SLI_TRY(sli_place_stages(in->placement, in->p, in->stages / in->p, device_of, chunk_of));
  SLI_TRY(sli_pass_partition_by(in->g, in->block_seconds, NULL, in->stages, place));
  for (int b = 0; b < sli_blocks_in_line(in->g); b++) place[b] = device_of[place[b]];
  in->grid.place_of = place;
  return SL_OK;
}

/* Shards the graph. Marks bf16 tensors first, since their size determines the cost of exchanging
 * them. */
static sl_status shard(compilation *c) {
  if (c->in->narrow) sli_narrow_mark(c->g);
  if (c->in->scattered) SLI_TRY(find_stages(c->in));
  return sli_lower_share_out(c->in);
}

static sl_status make_weights(compilation *c) {
  sli_pass_weights(c->g);
  return SL_OK;
}

static sl_status drop_unread(compilation *c) {
  sli_graph_drop_unread(c->g, sli_home_given(c->in->options, SLI_ROLE_PARAM));
  return SL_OK;
}

static sl_status offload(compilation *c) {
  sli_pass_offload(c->g, c->in->leaving);
  return SL_OK;
}

static sl_status recompute(compilation *c) {
  return sli_pass_recompute(c->g, c->in->options->memory.recompute);
}
static sl_status keep_outputs(compilation *c) { return sli_pass_outputs(c->g); }
static sl_status serve(compilation *c) { return sli_lower_serve(c->in); }

/* Finds the blocks whose parameters an op loads from disk: by homes of that role, or of the op. */
static const bool *blocks_on_disk(const compilation *c, sli_role role, const sl_op *loads) {
  bool *on_disk = sli_arena_alloc(&c->g->arena, (size_t)c->g->nblocks * sizeof *on_disk);
  for (int b = 0; b < c->g->nblocks; b++)
    on_disk[b] =
        sli_home_of(c->in->options, role, c->g->blocks[b].name, loads)->space == SL_SPACE_DISK;
  return on_disk;
}

static sl_status load_experts(compilation *c) {
  bool asked = !sli_home_given(c->in->options, SLI_ROLE_PARAM);
  return sli_pass_experts(c->g, blocks_on_disk(c, SLI_ROLE_PARAM, &sl_op_load_experts), asked);
}

static sl_status load_rows(compilation *c) {
  return sli_pass_tables(c->g, blocks_on_disk(c, SLI_ROLE_LENT, &sl_op_load_rows));
}

static sl_status store_weights(compilation *c) { return sli_pass_stored(c->g); }

static sl_status pack_products(compilation *c) {
  sli_pass_products(c->g, !c->in->narrow);
  return SL_OK;
}

static sl_status evaluate(compilation *c) {
  sl_lowered *to = c->to;
  to->evaluated =
      sli_arena_alloc(&to->arena, (size_t)sli_graph_means(c->g) * sizeof *to->evaluated);
  return sli_pass_evaluate(c->g, to->evaluated);
}

/* Rejects weights rounded to int8, which rollouts multiply in another order than training. */
static sl_status refuse_rounded_weights(const sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++)
    if (g->nodes[i]->op == &sl_op_quantize)
      return sl_fail(SL_E_UNSUPPORTED,
                     "numbers.exact: rollouts do not support op %s (%s), weights rounded to int8",
                     g->nodes[i]->name, g->nodes[i]->op->name);
  return SL_OK;
}

/* Adds the served graph with which one device of each stage samples. */
static sl_status add_rollouts(const compilation *c, const sl_rollout_options *o, int rank) {
  bool exact = is_exact(c->in);
  sl_graph *served = o->make(o->ctx);
  if (!served) return sl_fail(SL_E_UNSUPPORTED, "rollouts: %s", sl_detail());
  if (exact) SLI_TRY(refuse_reordered(served));
  if (exact) SLI_TRY(refuse_rounded_weights(served));
  for (int i = 0; i < served->nnodes; i++) served->nodes[i]->attrs.numbers.exact = exact;
  SLI_TRY(sli_pass_serve(served));
  if (exact) SLI_TRY(sli_groups_set(served));
  SLI_TRY(sli_pass_serve_rows(served, 1));
  return sli_pass_rollouts(c->g, served, rank);
}

static sl_status roll_out(compilation *c) {
  struct sli_rollouts *of = &c->g->rollouts;
  int rank = 0;
  of->ticks = c->in->options->rollouts.ticks;
  for (const sl_rollout_options *o = &c->in->options->rollouts; o; o = o->next)
    SLI_TRY(add_rollouts(c, o, rank++));
  sli_graph_drop(c->g, of->nreads, of->reads);
  of->nreads = 0;
  return SL_OK;
}

/* Counts the devices that sample. */
static sl_status count_rollouts(compilation *c) {
  struct sli_rollouts *of = &c->g->rollouts;
  int devices = sli_grid_ranks(&c->in->grid), ticks = c->in->options->rollouts.ticks;
  for (const sl_rollout_options *o = &c->in->options->rollouts; o; o = o->next) {
    of->count++;
    if (o->ticks != ticks)
      return sl_fail(SL_E_USAGE,
                     "rollouts: all devices must have equal ticks per step, got %d and %d", ticks,
                     o->ticks);
  }
  of->ahead = c->in->options->rollouts.ahead > 0;
  if (c->in->barriers)
    return sl_fail(SL_E_UNSUPPORTED,
                   "rollouts: not supported with vocabulary.parallel, where no stage has the whole "
                   "vocabulary");
  if (of->count > devices)
    return sl_fail(SL_E_USAGE, "rollouts: %d devices answer prompts, but a stage has only %d",
                   of->count, devices);
  of->items = sli_arena_alloc(&c->g->arena, (size_t)of->count * sizeof *of->items);
  return SL_OK;
}

static sl_status report(compilation *c) {
  sli_compile_reports(c->to);
  return SL_OK;
}

static sl_status find_valid_lengths(compilation *c) { return sli_pass_valid_lengths(c->g); }

static sl_status narrow(compilation *c) {
  sli_pass_narrow(c->g);
  return SL_OK;
}

static sl_status pad(compilation *c) {
  sli_pass_pad(c->g);
  return SL_OK;
}

/* ---- the table ---------------------------------------------------------------------------- */

typedef struct pass {
  sli_pass_info info;
  bool (*when)(const sli_inputs *in);
  sl_status (*run)(compilation *c);
} pass;

#define PASS(name, words, when, run, summary) \
  { {name, words, summary}, when, run }
static const pass passes[] = {
    PASS("spans", "training with frames of prompts", has_spans, cut_encoders,
         "cuts out encoders, whose rows all passes of a step read"),
    PASS("paths", "training with --paths or --skip", has_paths, cut_paths,
         "measures blocks on one device, so that paths leave out the same blocks on every grid"),
    PASS("check", "training", trains, check_options,
         "refuses options about tensors and homes that the graph does not have"),
    PASS("answering", "training with rollouts", rolls_out, count_rollouts,
         "counts the devices of a stage that answer"),
    PASS("replicas", "training with --expert-replicas", has_replicas, add_replicas,
         "gives mixtures further experts, copies of others, whose values nobody computes"),
    PASS("losses", "training in pieces or on a grid", has_parts, split_losses,
         "makes each loss a sum over the parts of a microbatch"),
    PASS("attention", "training", trains, choose_attention,
         "chooses heads, a ring or an exchange of states for devices that share a sequence, and "
         "repeats key and value heads"),
    PASS("cut", "training", trains, cut_sequences,
         "cuts sequences into pieces and exchanges ops for those of pieces"),
    PASS("logprobs", "training with --logprobs", tells_logprobs, add_logprobs,
         "adds the logarithms of the probabilities of the loss's targets"),
    PASS("exact", "--exact", is_exact, mark_exact,
         "asks every op for sums in an order that no grid changes"),
    PASS("gradients", "training", trains, add_gradients,
         "adds the backward pass, the norm, the clip and the updates"),
    PASS("ahead", "training with --vocab-barriers 1", has_one_barrier, move_products,
         "moves products of the classifier's gradient into the forward pass"),
    PASS("pieces", "training", trains, shape_pieces,
         "works out the shapes of each length of piece"),
    PASS("groups", "training and inference with --exact", has_groups, set_groups,
         "cuts the sums of products into groups, whole numbers of which a device can have"),
    PASS("flops", "training", trains, add_up_flops, "counts the operations of a step"),
    PASS("shard", "training on a grid, or with --vocab-parallel", is_sharded, shard,
         "chooses signatures, expands each node over its devices and adds boxing"),
    PASS("weights", "training without a home of parameters", keeps_weights, make_weights,
         "makes weights that are rounded, or the like, once a step"),
    PASS("unread", "training", trains, drop_unread,
         "drops arguments that calls read for their types alone"),
    PASS("offload", "training with --offload", offloads, offload,
         "recomputes activations of the pieces that do not leave"),
    PASS("recompute", "training", trains, recompute,
         "recomputes activations instead of keeping them"),
    PASS("outputs", "inference", infers, keep_outputs, "drops nodes that no output needs"),
    PASS("serve", "serving", serves, serve, "turns a row of training into a tick of any sequences"),
    PASS("experts", "serving with weights on disk", loads_experts, load_experts,
         "reads experts from disk as the rows of a tick want them"),
    PASS("tables", "serving with tables on disk", loads_rows, load_rows,
         "reads the rows of tables from disk that a tick looks up"),
    PASS("stored", "training with --frozen stored", stores_weights, store_weights,
         "keeps frozen weights in the storage format of their file"),
    PASS("products", "--dtype bf16", multiplies_bf16, pack_products,
         "rounds and packs weights for products in bf16"),
    PASS("evaluate", "training with --eval", evaluates, evaluate,
         "adds the forward pass over held-out data"),
    PASS("encode", "training with frames of prompts", has_spans, encode,
         "adds passes of the encoders, shared out by frames"),
    PASS("rollouts", "training with rollouts", rolls_out, roll_out,
         "adds passes of the served model, with the parameters that are trained"),
    PASS("reports", "all", always, report, "adds the ops that report losses, counters and outputs"),
    PASS("extents", "all", always, find_valid_lengths,
         "finds tensors of which only some rows are valid"),
    PASS("narrow", "--dtype bf16 on GPUs", is_narrow, narrow, "makes activations bf16"),
    PASS("pad", "--dtype bf16 on GPUs", is_narrow, pad, "pads rows of logits"),
};
enum { PASSES = sizeof passes / sizeof *passes };

const sli_pass_info *sli_pass_at(int i) { return i < PASSES ? &passes[i].info : NULL; }

/* ---- printing ----------------------------------------------------------------------------- */

static void print_tensor(const char *separator, const sl_tensor *t, const sl_type *type,
                         FILE *out) {
  char text[SL_TYPE_TEXT];
  if (!t) fprintf(out, "%s-", separator);
  else fprintf(out, "%s%s %s", separator, t->name, sl_type_format(text, type));
}

/* Prints a line for each node: class, block, device, name, op, inputs -> outputs. */
static void print_graph(const sl_graph *g, const char *after, FILE *out) {
  fprintf(out, "# after %s: %d nodes, %d tensors\n", after, g->nnodes, g->ntensors);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    const char *block = n->block >= 0 ? g->blocks[n->block].name : "-";
    fprintf(out, "%c %s %d  %s = %s(", sl_class_letter(n->cls), block, n->rank, n->name,
            n->op->name);
    for (int k = 0; k < n->nin; k++) print_tensor(k ? ", " : "", n->in[k], &n->in_type[k], out);
    fputs(") ->", out);
    for (int o = 0; o < n->nout; o++) print_tensor(o ? ", " : " ", n->out[o], &n->out_type[o], out);
    fputc('\n', out);
  }
}

static sl_status find_pass(const char *name) {
  const sli_pass_info *p;
  char names[512];
  size_t n = 0;
  for (int i = 0; (p = sli_pass_at(i)); i++) {
    if (!strcmp(p->name, name)) return SL_OK;
    n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", p->name);
  }
  return sl_fail(SL_E_USAGE, "print.after %s: unknown pass; the passes are %s", name, names);
}

sl_status sli_compile_passes(sl_lowered *to, sli_inputs *in) {
  compilation c = {to, in, in->g};
  const char *wanted = in->options->print.after;
  bool printed = false;
  if (wanted) SLI_TRY(find_pass(wanted));
  sli_graph_seed(c.g, in->options->numbers.seed);
  for (int i = 0; i < PASSES; i++) {
    const pass *p = &passes[i];
    if (!p->when(in)) continue;
    SLI_TRY(p->run(&c));
    SLI_TRY(sli_memory_check());
#ifndef NDEBUG
    sli_graph_check(c.g);
#endif
    if (!wanted || strcmp(wanted, p->info.name)) continue;
    print_graph(c.g, wanted, in->options->print.graph);
    printed = true;
  }
  return !wanted || printed
             ? SL_OK
             : sl_fail(SL_E_USAGE, "print.after %s: the pass does not run on this graph", wanted);
}
