/* SPDX-License-Identifier: Apache-2.0 */
/* Internal representation of a graph: arrays of nodes and tensors, in order. */
#ifndef SLUICE_GRAPH_GRAPH_H
#define SLUICE_GRAPH_GRAPH_H

#include <sluice/graph.h>
#include <sluice/objective.h>

#include "base/base.h"
#include "ops/facets.h"

typedef struct sli_node sli_node;
typedef struct sli_encoder sli_encoder; /* passes/spans.c */

/* Value that a running statistic follows (sl_running). */
typedef struct sli_running {
  sl_tensor *value;
  float momentum;
  sl_here at;
} sli_running;

struct sl_tensor {
  int id;
  const char *name;
  sl_type type;
  sl_here at;         /* call that created it */
  sli_node *producer; /* NULL for a parameter */
  int output;         /* index among the producer's outputs */
  bool param;
  bool needs_grad; /* true for a parameter, or a tensor computed from one */
  int rank;        /* rank, within its stage, of the device that computes it; 0 if the stage has one
                      device */
  bool transient;  /* the whole of a sharded tensor, gathered only while it is needed */
  sl_tensor *kept; /* for a recomputed tensor: the original, if some pieces keep it; else NULL */
  bool leaves;     /* original that some pieces read instead of the recomputed tensor */
  bool narrow;     /* bf16 if devices compute on bf16 tensors; see sli_narrow_mark */
  sl_tensor *valid_length; /* valid length: link towards the first tensor of its set; NULL: all rows
                              are valid. See sli_pass_valid_lengths */
  int64_t rows;            /* in the first tensor of a set: its capacity in rows */
  const sl_shard *shard;   /* if a stage has several devices: the part of the whole that this
                              parameter or optimizer state holds; NULL: all. All parts of one whole
                              have the same name */
  const char *layout;      /* layout on the devices, as text; NULL: not noted (sl_graph.skips) */
  const char *frozen;      /* for a parameter of a frozen model (objective.h): its name in that
                              model */
  /* parameters only: */
  int param_index; /* order of creation */
  sl_init init;    /* initial values; also for optimizer states */
  int home;        /* block of the first use, which updates it; -1 if unused */
  int ngrads;      /* gradient tensors, one per use, in order of use */
  sl_tensor **grads;
  bool replica;               /* a device of lower rank has the same values */
  sl_storage storage;         /* storage format of its values */
  sl_type values;             /* type of the values if storage is not F32; `type` is the stored
                                 type */
  const sl_adapter *adapter;  /* adapter on it, or that it is part of; NULL: neither */
  const sl_optimizer *update; /* optimizer settings, set by sli_training_settle(); NULL: frozen */
  const sli_running *running; /* not NULL: a running average of this value instead of a trained
                                 parameter */
  /* used during sli_pass_gradients: */
  sl_tensor *grad; /* sum of the contributions seen so far */
  int nsums;
};

/* Passes that a node belongs to: training passes, or other passes of a step, with a separate number
 * of ticks. */
typedef enum sli_pace {
  SLI_PACE_TRAINING,
  SLI_PACE_EVAL,    /* an evaluation, or a handover to an evaluation: every eval_every steps */
  SLI_PACE_ROLLOUT, /* passes of a served graph, before the training passes */
  SLI_PACE_SPAN     /* passes of an encoder, whose rows all other passes of the step read */
} sli_pace;

/* Phases keep update work in an order that crosses stages without cycles. */
enum {
  SLI_PHASE_MAIN,
  SLI_PHASE_NORM,
  SLI_PHASE_CLIP,
  SLI_PHASE_UPDATE,
  SLI_PHASE_PACK /* before everything else of a step */,
  SLI_PHASE_EVAL, /* alongside everything else, every eval_every steps */
  SLI_PHASE_ROLLOUT,
  SLI_PHASE_SPAN
};

/* Attributes and types of a node for one piece length, if sequences are cut. */
typedef struct sli_shapes {
  sl_attrs attrs;
  sl_type *in, *out;
  double remote_bytes;
} sli_shapes;

struct sli_node {
  int id;
  const sl_op *op;
  const char *name; /* "h.3/linear.2", "h.3/linear.2:linear_w" */
  sl_attrs attrs;
  sl_here at;
  sl_class cls;
  int block; /* -1: belongs to no stage (clip, reports) */
  int rank;  /* rank, within its stage, of the device that runs it */
  int phase;
  sli_pace pace;
  bool per_step;            /* fires once a step instead of once a tick */
  int remote_axis;          /* axis of the grid along which the call reads other devices' parts */
  double remote_bytes;      /* bytes of those parts */
  unsigned along;           /* collective: the axes whose devices take part (sli_along); else 0 */
  uint32_t accumulate_span; /* outputs summed over the step's ticks */
  int nin, nout;
  sl_tensor **in;      /* NULL: absent optional input */
  sl_tensor **out;     /* NULL: not needed */
  sl_type *in_type;    /* [nin], ndim -1 where absent */
  sl_type *out_type;   /* [nout], including outputs that are not needed */
  bool whole;          /* runs on whole microbatches, on every device and for every piece */
  bool rematerialized; /* forward call recomputed for the backward pass */
  bool repeats;        /* exchange that recomputation may repeat */
  bool arrives;        /* gathers what another stage sent in parts; never repeated */
  bool rereads;        /* node of the backward pass that may read recomputed tensors */
  bool resends;        /* copy of a forward exchange's input, for exchanges of the backward pass */
  bool beside;         /* its calls, or the second halves of two-part calls, overlap with
                          exchanges */
  const sl_tensor *like; /* constant of the backward pass, with the shape of this tensor */
  /* set by a gradient rule: the rule, and the forward node that it differentiates */
  const sl_grad_rule *rule;
  const sli_node *about;
  sli_shapes *shapes; /* [variants] by length, longest first; the types above are the first entry's.
                         NULL if sequences are not cut */
};

/* True for a node of the model as written. Gradients may also be computed during the forward pass,
 * but only nodes of the model determine sharding and a block's cost. */
static inline bool sli_is_forward(const sli_node *n) {
  return (n->cls == SL_CLASS_F || n->beside) && !n->rule && !n->like;
}

/* True for a node of a pass: of training, an evaluation, a rollout or an encoder. */
static inline bool sli_is_in_pass(const sli_node *n) {
  return n->phase == SLI_PHASE_MAIN || n->phase >= SLI_PHASE_EVAL;
}

/* Returns the forward node's tensor that an argument of its rule names, as a tensor or as its
 * gradient. */
static inline const sl_tensor *sli_argument_tensor(const sli_node *forward, sl_grad_arg arg) {
  return arg.kind == SL_ARG_IN ? forward->in[arg.index] : forward->out[arg.index];
}

/* True if the node gathers the whole of a sharded tensor, only while it is needed. */
static inline bool sli_makes_transient(const sli_node *n) {
  int o = 0;
  while (!n->out[o]) o++; /* at least one output is needed */
  return n->out[o]->transient;
}

typedef struct sli_block {
  const char *name;
  int stage;    /* forced stage, or -1 */
  int visits;   /* number of earlier visits: the block then runs on the stage of the first one */
  int first;    /* block of the first visit, if there are earlier ones */
  bool sharded; /* one stage's part of a block sharded over all stages; such blocks come last, and
                   their `stage` counts devices along the pipeline */
  bool swept;   /* if sequences are cut: its calls read earlier pieces one at a time
                   (sl_op_cut.swept) */
  bool gathers; /* devices shard the positions of pieces, and each gathers all keys of a piece for
                   its queries (attention_share) */
} sli_block;

/* Settings for the parameters that match a pattern. */
typedef struct sli_param_rule {
  const char *pattern;
  sl_here at; /* without a file: from a command line */
  bool frozen;
  sl_group_settings group;
} sli_param_rule;

/* Adapters requested for the parameters that match a pattern. */
typedef struct sli_adapter_rule {
  const char *pattern;
  sl_here at;
  int rank;
  float alpha;
  bool used; /* matched a parameter */
} sli_adapter_rule;

/* Value averaged over microbatches: the loss, or a metric. */
typedef struct sli_mean {
  const char *name;
  sl_tensor *tensor; /* the first part, if several devices have parts */
  bool adds;         /* if sequences are cut: each piece contributes a summand */
  int64_t rows;      /* exact: number of rows of a microbatch that it averages; 0: not exact */
  bool value;        /* a counter that is a logged number of each step (sl_step_value) */
  bool largest;      /* for a logged number: the maximum of its parts, not their sum */
  double divisor;    /* for a logged number: divisor of its sum */
  int nparts;        /* 1, or one per device that has a part */
  struct sli_mean_part {
    sl_tensor *tensor;
    const double *share; /* [variants, or 1] weight in the mean; NULL: 1 */
  } * parts;
} sli_mean;

/* Input types of a node with many inputs. */
enum { SLI_MANY_INPUTS = 8 };
typedef struct sli_types {
  int count;
  sl_type *types;
} sli_types;

struct sl_graph {
  sl_graph_options options;
  sli_arena arena;
  sl_status status;   /* first error */
  struct sli_exact {  /* with numbers.exact, for each tensor of the forward pass; else NULL: */
    const bool *rows; /* dim 0 is the rows of the data */
    const bool *fed;  /* depends on data or on random numbers, so it may differ between
                         microbatches */
    const int8_t *positions; /* sequence dim, -1 if none; NULL: not determined */
    int64_t leaf;            /* positions of a leaf; 0: whole sequences */
  } exact;
  bool skips;         /* microbatches skip stages, so layouts must fit all stages */
  bool repeats_heads; /* key and value heads are repeated for devices (passes/heads.c) */
  int weighed;        /* microbatches over which costs of a step are weighed; 0: the graph's */
  char *detail;       /* text of the error */
  int nnodes, ntensors, nblocks, nparams;
  struct sli_capacity {
    size_t nodes, tensors, blocks, params, outputs;
  } capacity;
  sli_node **nodes; /* forward nodes in order of creation, then nodes that passes append; always in
                       an executable order */
  sl_tensor **tensors;
  sli_block *blocks;
  sl_tensor **params;
  struct sli_known {  /* indexes for fast lookup: */
    uint64_t *hashes; /* [nparams] hashes of the parameters' names */
    size_t capacity;
    sli_types types[16]; /* of the latest nodes with many inputs, since these often agree */
  } known;
  sli_mean loss;       /* its tensor is NULL before sl_train */
  struct sli_metrics { /* evaluation metrics */
    int count;
    size_t capacity;
    sli_mean *items;
    struct sli_counters { /* counters, summed over each training step and reported with its loss */
      int count;
      size_t capacity;
      sli_mean *of;
    } counters;
  } metrics;
  sli_mean logprobs; /* log-probability of each target of the loss, not averaged; its tensor is NULL
                        if not requested */
  sl_type logprobs_of_step; /* type for all rows of a step's batch */
  struct sli_evaluated {    /* size of an evaluation on held-out data, once settled; see
                               sli_evaluation_weight */
    int microbatches;       /* number of microbatches in an evaluation */
    int whole;              /* number of leading full microbatches */
    int rows, rest;         /* rows of a microbatch, 0 if unknown; rows left over after the full
                               microbatches */
  } evaluated;
  struct sli_rollouts { /* rollouts in each step */
    int ticks;          /* 0: none */
    bool ahead;         /* rollouts read older parameters than training */
    int count;          /* devices of each stage that sample, from rank 0 on */
    struct sli_rollout_ends {
      sl_tensor *sampled; /* output of a tick */
      sli_node *source, *report;
    } * items; /* [count] */
    int nreads;
    const sli_node **reads; /* [nreads] reads of whole parameters, as placeholders until the served
                               graphs exist, one for each device that samples */
  } rollouts;
  struct sli_encoded_spans {               /* for prompts with frames; see passes/spans.c */
    const struct sl_prompt_frames *frames; /* frames of the objective; NULL: none */
    sl_tensor *source;                     /* frames of one prompt; NULL: not created */
    int64_t width;                         /* served graph: width of a spliced row; 0: none */
    int prompts;                           /* ticks of the encoder's passes per step; 0: none */
    int count;
    sli_encoder *encoders; /* [count] encoders, by attrs.tokens.encoder of their spans */
    sl_tensor *served;     /* span that rollouts read */
  } spans;
  struct sli_frozen {  /* the objective's frozen model, which is built first, and its data */
    const char *model; /* name of the trained model; NULL: unknown */
    const char *word;  /* "reference" or "teacher" */
    bool builds;       /* the frozen model is being built */
    bool learns;       /* the model being built has requested its loss */
    int nnodes;        /* number of nodes of the frozen model, which come first */
    int nblocks;
    sl_texts texts;
    sl_tensor *positions, *chosen; /* positions whose logits the loss needs, and their targets;
                                      NULL: all */
    int64_t vocab;
    sl_tensor *results[SL_FROZEN_MOST];
  } frozen;
  struct sli_bit_routers { /* of the model's mixtures: bits.c */
    int count;
    sl_tensor *expected, *chosen; /* bits of each row, summed over mixtures */
  } bits;
  sl_tensor *grad_norm; /* f64 scalar, once a step: the clip node's second output */
  struct sli_training {
    sl_optimizer optimizer; /* with defaults filled in */
    int nrules;
    size_t capacity;
    struct sli_param_rule *rules; /* in order: the last rule that sets a value wins */
    struct sli_adapters {
      int nrules;
      size_t capacity;
      sli_adapter_rule *rules;
      bool read; /* options.training has been applied */
    } adapters;
  } training;
  struct sli_cut_lengths {    /* set if sequences are cut, else 0 and NULL */
    int64_t length;           /* positions of a whole sequence */
    int64_t *lengths;         /* [pieces] */
    int nvariants;            /* number of different lengths */
    int64_t *variant_lengths; /* longest first */
  } cut;
  struct sli_served {    /* of a served graph */
    sl_tensor *batch;    /* see batch.h */
    sl_tensor *adapters; /* adapter of each row, -1: none; NULL: no places for adapters */
    int64_t sinks;       /* sl_sink_tokens */
  } served;
  int noutputs;
  struct sli_output {
    const char *name;
    sl_tensor *tensor;
  } * outputs;
  bool reads_eval;         /* a source reads the files of options.eval */
  struct sli_other_files { /* data files that are not token files */
    int count;
    size_t capacity;
    sl_graph_file *items;
  } files;
  struct sli_cleanups { /* run by destroy (closes token files) */
    int count;
    size_t capacity;
    struct sli_cleanup {
      void (*fn)(void *arg);
      void *arg;
    } * items;
  } cleanups;
};

/* Returns the weight of a microbatch of an evaluation: 1 for a full microbatch. A microbatch after
 * these repeats some of the left-over rows, starting at *first. Its weight is the number of
 * distinct rows, as a fraction of a microbatch's rows. That number divides the microbatch, so the
 * mean over the repeated rows equals the mean over the distinct rows. */
double sli_evaluation_weight(const sl_graph *g, int64_t microbatch, int *first);

/* Returns the graph's objective, or NULL if the model supplies data and loss. */
static inline const sl_objective *sli_objective(const sl_graph *g) {
  return g->options.infer ? NULL : g->options.objective;
}

/* Returns the microbatches of a step, by which layouts are chosen. */
static inline int sli_weighed_microbatches(const sl_graph *g) {
  return g->weighed ? g->weighed : g->options.microbatches;
}
/* Returns the number of blocks in sequence, without blocks sharded over the stages. */
static inline int sli_blocks_in_line(const sl_graph *g) {
  int n = g->nblocks;
  while (n && g->blocks[n - 1].sharded) n--;
  return n;
}

/* Returns the block of the first visit. */
static inline int sli_block_first(const sl_graph *g, int block) {
  return g->blocks[block].visits ? g->blocks[block].first : block;
}

/* Returns the words for the author of a call's op if it is the user's own, else those for a user of
 * a shipped op. */
static inline const char *sli_words(const sl_op *op, const char *author, const char *user) {
  return sl_op_find(op->name) == op ? user : author;
}

/* True if a step is a single tick, whose values are those of the step. */
static inline bool sli_is_one_tick(const sl_graph *g) {
  return g->options.microbatches == 1 && g->options.pieces == 1;
}

/* True if results must not depend on the grid. */
static inline bool sli_is_exact(const sl_graph *g) { return g->exact.rows; }

/* True if the graph is evaluated during training. */
static inline bool sli_evaluates(const sl_graph *g) {
  return !g->options.infer && g->options.eval_every > 0;
}

/* The loss, followed by the metrics if evaluation is on. */
static inline int sli_graph_means(const sl_graph *g) {
  return 1 + (sli_evaluates(g) ? g->metrics.count : 0);
}
static inline sli_mean *sli_graph_mean(sl_graph *g, int i) {
  return i ? &g->metrics.items[i - 1] : &g->loss;
}

/* All values kept for reports: the means, the counters, then the log-probabilities. */
static inline int sli_graph_kept(const sl_graph *g) {
  return sli_graph_means(g) + (g->options.infer ? 0 : g->metrics.counters.count) +
         (g->logprobs.tensor != NULL);
}
static inline sli_mean *sli_graph_keep(sl_graph *g, int i) {
  int means = sli_graph_means(g);
  if (g->logprobs.tensor && i == sli_graph_kept(g) - 1) return &g->logprobs;
  return i < means ? sli_graph_mean(g, i) : &g->metrics.counters.of[i - means];
}

/* Appends the mean's parts to tensors[count]; returns the new count. */
static inline int sli_mean_tensors(const sli_mean *mean, sl_tensor **tensors, int count) {
  for (int i = 0; i < mean->nparts; i++) tensors[count++] = mean->parts[i].tensor;
  return count;
}

#endif
