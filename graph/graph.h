/* SPDX-License-Identifier: Apache-2.0 */
/* Internal representation of a graph: arrays of nodes and tensors, in order. */
#ifndef SLUICE_GRAPH_INTERNAL_H
#define SLUICE_GRAPH_INTERNAL_H

#include <sluice/graph.h>
#include <sluice/objective.h>

#include "base/base.h"

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
  sl_here at;         /* call that made it */
  sli_node *producer; /* NULL for a parameter */
  int output;         /* index among the producer's outputs */
  bool param;
  bool needs_grad; /* true for a parameter, or a tensor computed from one */
  int rank;        /* rank of the device that makes it within its stage; 0 where the stage
                      has one device */
  bool transient;  /* the whole of a sharded tensor, gathered for the moment it is needed */
  sl_tensor *kept; /* for a recomputed tensor: the original, where some pieces still have it;
                      else NULL */
  bool leaves;     /* original that some pieces read in place of the recomputed tensor */
  bool narrow;     /* bf16 where devices compute on bf16 tensors; see sli_narrow_mark */
  sl_tensor *valid_length; /* valid length: link towards the first tensor of its set; NULL:
                         all its rows are valid. See sli_pass_valid_lengths */
  int64_t rows;            /* of the first tensor of a set: its capacity in rows */
  const sl_shard *shard;   /* part of the whole that this parameter or optimizer state is, where a
                              stage has several devices; NULL: all. The devices' parts of one whole
                              have the same name */
  const char *frozen;      /* parameter of a frozen model (objective.h): its name there */
  /* parameters only: */
  int param_index; /* order of creation */
  sl_init init;    /* also of an optimizer's states */
  int home;        /* block of the first use, which updates it; -1 unused */
  int ngrads;      /* gradient tensors, one per use, in order of use */
  sl_tensor **grads;
  bool replica;               /* a device of lower rank has the same values */
  sl_storage storage;         /* storage format of its values */
  sl_type values;             /* type of the values, if not F32; `type` is the stored type */
  const sl_adapter *adapter;  /* adapter that it has, or is part of; NULL: neither */
  const sl_optimizer *update; /* its settings, set by sli_training_settle(); NULL: frozen */
  const sli_running *running; /* not NULL: it follows this value instead of a gradient */
  /* used during sli_pass_gradients: */
  sl_tensor *grad; /* sum of the contributions seen so far */
  int nsums;
};

/* Passes that a node belongs to: those of training, or others of a step with a number of ticks of
 * their own. */
typedef enum sli_pace {
  SLI_PACE_TRAINING,
  SLI_PACE_EVAL,    /* an evaluation, or a handover to one: every eval_every steps */
  SLI_PACE_ROLLOUT, /* passes of a served graph, before those of training */
  SLI_PACE_SPAN     /* passes of an encoder, whose rows all other passes of a step read */
} sli_pace;

/* Phases keep update work in an order that crosses stages without cycles. */
enum {
  SLI_PHASE_MAIN,
  SLI_PHASE_NORM,
  SLI_PHASE_CLIP,
  SLI_PHASE_UPDATE,
  SLI_PHASE_PACK /* before everything else of a step */,
  SLI_PHASE_EVAL, /* beside everything else, every so many steps */
  SLI_PHASE_ROLLOUT,
  SLI_PHASE_SPAN
};

/* Attributes and types of a node for one length of piece, where sequences are cut. */
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
  int block; /* -1: belongs to no stage (the clip, reports) */
  int rank;  /* rank of the device that runs it within its stage */
  int phase;
  sli_pace pace;
  bool per_step;            /* fires once a step instead of once a tick */
  int remote_axis;          /* axis of the grid along which the call reads other devices' parts */
  double remote_bytes;      /* bytes of those parts */
  uint32_t accumulate_span; /* outputs summed over the step's ticks */
  int nin, nout;
  sl_tensor **in;      /* NULL: absent optional input */
  sl_tensor **out;     /* NULL: not wanted */
  sl_type *in_type;    /* [nin], ndim -1 where absent */
  sl_type *out_type;   /* [nout], also of unwanted outputs */
  bool whole;          /* runs on whole microbatches, on every device and for every piece */
  bool rematerialized; /* forward call recomputed for the backward pass */
  bool repeats;        /* exchange that may be repeated for recomputation */
  bool rereads;        /* node of the backward pass that may read recomputed tensors */
  bool resends;        /* copy of a forward exchange's input, for exchanges of the backward pass */
  bool beside;         /* its calls, or the second halves of calls in two, run beside the
                          exchanges */
  const sl_tensor *like; /* constant of the backward pass, with the shape of this tensor */
  /* set by a gradient rule: the rule, and the forward node it differentiates */
  const sl_grad_rule *rule;
  const sli_node *about;
  sli_shapes *shapes; /* [variants] by length, the longest first, whose types are those above;
                         NULL where sequences are not cut */
};

/* True for a node of the model as written. Gradients may also be computed during the forward
 * pass; sharding and the cost of a block follow from nodes of the model only. */
static inline bool sli_is_forward(const sli_node *n) {
  return (n->cls == SL_CLASS_F || n->beside) && !n->rule && !n->like;
}

/* True for a node of a pass: of training, an evaluation, a rollout or an encoder. */
static inline bool sli_is_in_pass(const sli_node *n) {
  return n->phase == SLI_PHASE_MAIN || n->phase >= SLI_PHASE_EVAL;
}

/* Returns the tensor of a forward node that an argument of its rule is, or is the gradient of. */
static inline const sl_tensor *sli_argument_tensor(const sli_node *forward, sl_grad_arg arg) {
  return arg.kind == SL_ARG_IN ? forward->in[arg.index] : forward->out[arg.index];
}

/* True if it makes the whole of a sharded tensor, for the moment it is needed. */
static inline bool sli_makes_transient(const sli_node *n) {
  int o = 0;
  while (!n->out[o]) o++; /* at least one output is wanted */
  return n->out[o]->transient;
}

typedef struct sli_block {
  const char *name;
  int stage;    /* forced stage, or -1 */
  bool sharded; /* one stage's part of a block sharded over all stages; such blocks come
                  last, and `stage` then counts the devices along the pipeline */
  bool swept;   /* where sequences are cut: its calls get earlier pieces one by one
                   (sl_op.swept) */
  bool gathers; /* devices shard the positions of pieces, and each gathers all keys of a
                   piece for its own queries (attention_share) */
} sli_block;

/* Settings for the parameters that match a pattern. */
typedef struct sli_param_rule {
  const char *pattern;
  sl_here at; /* no file: given on a command line */
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
  sl_tensor *tensor; /* the first part, where several devices have parts */
  bool adds;         /* where sequences are cut: a piece contributes a summand */
  int64_t rows;      /* exact: rows of a microbatch that it is over; 0: not exact */
  bool value;        /* a counter that is a number of each step (sl_step_value) */
  bool largest;      /* such a number: the largest of its parts, not their sum */
  double divisor;    /* such a number: what its sum is divided by */
  int nparts;        /* 1, or one part per device that has its own */
  struct sli_mean_part {
    sl_tensor *tensor;
    const double *share; /* [variants, or 1] share of the mean; NULL: all */
  } * parts;
} sli_mean;

/* Input types of a node with many inputs. */
enum { SLI_MANY_INPUTS = 8 };
typedef struct sli_types {
  int count;
  sl_type *of;
} sli_types;

struct sl_graph {
  sl_graph_options options;
  sli_arena arena;
  sl_status status; /* first error */
  /* with numbers.exact, of the tensors of the forward pass; else NULL: */
  const bool *rows;        /* dim 0 is the rows of the data */
  const int8_t *positions; /* dim along which the sequences lie, -1: none; NULL: not looked for */
  int64_t leaf;            /* positions of a leaf; 0: whole sequences */
  bool repeats_heads;      /* keys and values are repeated for devices (passes/heads.c) */
  char *detail;            /* text of the error */
  int nnodes, ntensors, nblocks, nparams;
  size_t node_capacity, tensor_capacity, block_capacity, param_capacity;
  sli_node **nodes; /* forward nodes in order of creation, then those that passes append,
                       always in an order in which they may run */
  sl_tensor **tensors;
  sli_block *blocks;
  sl_tensor **params;
  struct sli_known { /* indexes for fast lookup: */
    uint64_t *of;    /* [nparams] hashes of the parameters' names */
    size_t capacity;
    sli_types types[16]; /* of the latest nodes with many inputs, which often agree */
  } known;
  sli_mean loss;       /* its tensor is NULL before sl_train */
  struct sli_metrics { /* metrics of evaluations */
    int count;
    size_t capacity;
    sli_mean *of;
    struct sli_counters { /* counters summed over each step of training, reported with its loss */
      int count;
      size_t capacity;
      sli_mean *of;
    } counters;
  } metrics;
  sli_mean logprobs; /* of each target of the loss, not averaged; its tensor is NULL if nobody asks
                      */
  sl_type logprobs_of_step; /* of all rows of a step's batch */
  struct sli_evaluated {    /* size of an evaluation on held-out data, once settled; see
                               sli_evaluation_weight */
    int microbatches;       /* number of microbatches in an evaluation */
    int whole;              /* leading microbatches with as many rows as in training */
    int rows, rest;         /* rows of a microbatch, 0: unknown; and rows left over after the whole
                               ones */
  } evaluated;
  struct sli_rollouts { /* of served graphs, in each step */
    int ticks;          /* 0: none */
    bool ahead;         /* they read older parameters than training */
    int count;          /* devices of each stage that answer, from rank 0 on */
    struct sli_rollout_ends {
      sl_tensor *sampled; /* output of a tick */
      sli_node *source, *report;
    } * of; /* [count] */
    int nreads;
    const sli_node **reads; /* [nreads] reads of whole parameters until the graphs are there, one
                               for each device that answers */
  } rollouts;
  struct sli_encoded_spans {               /* of prompts with frames; see passes/spans.c */
    const struct sl_prompt_frames *frames; /* of the objective; NULL: it has none */
    sl_tensor *source;                     /* frames of one prompt; NULL: not made */
    int64_t width; /* of a served graph: numbers of a row that it splices; 0: none */
    int prompts;   /* ticks of the encoder's passes in a step; 0: none */
    int count;
    sli_encoder *of;   /* [count] encoders, by attrs.first of their spans */
    sl_tensor *served; /* span that rollouts read */
  } spans;
  int64_t sinks;       /* sl_sink_tokens */
  struct sli_frozen {  /* of an objective: the frozen model, which is built first, and its data */
    const char *model; /* name of the model that learns; NULL: not known */
    const char *word;  /* "reference" or "teacher" */
    bool builds;       /* it is being built */
    bool learns;       /* the model being built has called for its loss */
    int nnodes;        /* nodes of the frozen model, which are the first ones */
    int nblocks;
    sl_texts texts;
    sl_tensor *positions, *chosen; /* whose logits the loss needs, and targets there; NULL: all */
    int64_t vocab;
    sl_tensor *results[SL_FROZEN_MOST];
  } frozen;
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
  /* set where sequences are cut, else 0 and NULL: */
  int64_t length;           /* positions of a whole sequence */
  int64_t *lengths;         /* [pieces] */
  int nvariants;            /* number of different lengths */
  int64_t *variant_lengths; /* longest first */
  sl_tensor *batch;         /* batch of a served graph; see batch.h */
  sl_tensor *adapters;      /* the adapter of each row, -1: none; NULL: there are no places */
  int noutputs;
  size_t output_capacity;
  struct sli_output {
    const char *name;
    sl_tensor *tensor;
  } * outputs;
  bool reads_eval;         /* a source reads the files of options.eval */
  struct sli_other_files { /* data files that are no token files */
    int count;
    size_t capacity;
    sl_graph_file *of;
  } files;
  struct sli_cleanups { /* run by destroy (closes token files) */
    int count;
    size_t capacity;
    struct sli_cleanup {
      void (*fn)(void *arg);
      void *arg;
    } * of;
  } cleanups;
};

/* Returns the weight of a microbatch of an evaluation: 1 for whole ones. A microbatch behind
 * them repeats some of the left-over rows; its weight is their number, as a share of a
 * microbatch's rows. That number divides a microbatch, so a mean over the repeated rows is a
 * mean over these; *first is the first of them. */
double sli_evaluation_weight(const sl_graph *g, int64_t microbatch, int *first);

/* Returns the graph's objective; NULL: the model's own data and loss. */
static inline const sl_objective *sli_objective(const sl_graph *g) {
  return g->options.infer ? NULL : g->options.objective;
}

/* Returns the number of blocks in sequence, without those sharded over the stages. */
static inline int sli_blocks_in_line(const sl_graph *g) {
  int n = g->nblocks;
  while (n && g->blocks[n - 1].sharded) n--;
  return n;
}

/* True if no number may depend on the grid. */
static inline bool sli_is_exact(const sl_graph *g) { return g->rows; }

/* True if the graph is evaluated every so many steps. */
static inline bool sli_evaluates(const sl_graph *g) {
  return !g->options.infer && g->options.eval_every > 0;
}

/* The loss, followed by the metrics if evaluation is on. */
static inline int sli_graph_means(const sl_graph *g) {
  return 1 + (sli_evaluates(g) ? g->metrics.count : 0);
}
static inline sli_mean *sli_graph_mean(sl_graph *g, int i) {
  return i ? &g->metrics.of[i - 1] : &g->loss;
}

/* The means, then the counters, then the logarithms of probabilities: all that is kept for reports.
 */
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
