/* The graph as the passes see it: nodes and tensors in arrays, in order. */
#ifndef SLUICE_GRAPH_INTERNAL_H
#define SLUICE_GRAPH_INTERNAL_H

#include <sluice/graph.h>

#include "base/base.h"

typedef struct sli_node sli_node;

struct sl_tensor {
  int id;
  const char *name;
  sl_type type;
  sl_here at;          /* the call that made it */
  sli_node *producer;  /* NULL for a parameter */
  int output;          /* which of the producer's outputs */
  bool param;
  bool needs_grad;     /* a parameter, or computed from one */
  int rank;            /* which of its stage's devices makes it, 0 where there is one */
  bool transient;      /* the whole of what devices share out, for the moment it is needed */
  sl_tensor *kept;     /* of what is made again for the way back: what was made at first, where some
                          pieces have that still; else NULL */
  bool leaves;         /* that is read in its stead for some pieces */
  bool narrow;         /* is bf16 where devices compute on such; see sli_narrow_mark */
  sl_tensor *extent;   /* towards the first tensor of its set; NULL: all its rows are valid. See
                          sli_pass_extents ... */
  int64_t rows;        /* ... of the first of a set: that there is room for */
  const sl_shard *shard; /* parameters and their optimizer's state, where a stage lies on
                          several devices: which part of the whole this is; NULL: all. What
                          devices have of one whole goes by one name */
  /* parameters only: */
  int param_index;     /* order of creation */
  sl_init init;        /* of an optimizer's states, too */
  int home;            /* block of the first use: where it is updated; -1 unused */
  int ngrads;          /* gradient tensors, one per use, in order of use */
  sl_tensor **grads;
  bool replica;        /* a device of lower rank has the same */
  sl_rest rest;        /* of a served graph: how its numbers lie, and ... */
  sl_type values;      /* ... what they are, if that is not F32: `type` is what lies there */
  const sl_adapter *adapter;  /* of its own, or that it is a part of; NULL: neither */
  const sl_optimizer *update; /* its settings, from sli_training_settle() on; NULL: frozen */
  /* during sli_pass_gradients: */
  sl_tensor *grad;     /* sum of the contributions seen so far */
  int nsums;
};

/* Phases keep update work in an order that crosses stages without cycles. */
enum { SLI_PHASE_MAIN, SLI_PHASE_NORM, SLI_PHASE_CLIP, SLI_PHASE_UPDATE,
       SLI_PHASE_PACK /* before everything else of a step */,
       SLI_PHASE_EVAL /* beside everything else, every so many steps */ };

/* What a node is where sequences are cut: one for each length of piece. */
typedef struct sli_shapes {
  sl_attrs attrs;
  sl_type *in, *out;
  double remote_bytes;
} sli_shapes;

struct sli_node {
  int id;
  const sl_op *op;
  const char *name;    /* "h.3/linear.2", "h.3/linear.2:linear_w" */
  sl_attrs attrs;
  sl_here at;
  sl_class cls;
  int block;           /* -1: no stage of its own (the clip, reports) */
  int rank;            /* which of its stage's devices runs it */
  int phase;
  bool eval;           /* of an evaluation, or what hands it something: every eval_every steps */
  bool per_step;       /* fires once a step instead of once a tick */
  int remote_axis;     /* along which axis of the grid are the devices whose ... */
  double remote_bytes; /* ... parts a call reads: bytes that are not its own device's */
  uint32_t accumulate_span; /* outputs summed over the step's ticks */
  int nin, nout;
  sl_tensor **in;      /* NULL: absent optional input */
  sl_tensor **out;     /* NULL: not wanted */
  sl_type *in_type;    /* [nin], ndim -1 where absent */
  sl_type *out_type;   /* [nout], also of outputs that are not wanted */
  bool whole;          /* of whole microbatches, on every device and for every piece */
  bool again;          /* a forward call made once more for the way back */
  bool repeats;        /* an exchange that may be made once more for it as well */
  bool rereads;        /* one of the way back that may read what is made once more for it */
  bool resends;        /* a copy, for exchanges of the way back, of what those of the way there read */
  bool beside;         /* one whose calls, or the second ones of a call in two, go with the exchanges */
  const sl_tensor *like; /* a constant of the backward pass: shaped as this */
  /* what a rule of the gradients made: the rule, and the forward node it is about */
  const sl_grad_rule *rule;
  const sli_node *about;
  sli_shapes *shapes;  /* [variants] by length, the longest first: its types are
                          those above; NULL where sequences are not cut */
};

/* Of the model as it was written. Gradients can be made on the way forward as well; for
 * those, how a call is shared out or what a block costs follows from this. */
static inline bool sli_is_forward(const sli_node *n) {
  return (n->cls == SL_CLASS_F || n->beside) && !n->rule && !n->like;
}

/* Does it make what devices share out, for the moment it is needed? */
static inline bool sli_makes_transient(const sli_node *n) {
  int o = 0;
  while (!n->out[o]) o++; /* one at least is wanted */
  return n->out[o]->transient;
}

typedef struct sli_block {
  const char *name;
  int stage;           /* forced stage, or -1 */
  bool spread;         /* what a stage does of a block that is spread over all of them; behind
                          all others, and `stage` counts the devices along the pipeline */
  bool swept;          /* where sequences are cut, what its calls look back to comes piece by piece
                          (sl_op.swept) */
  bool gathers;        /* devices share out the positions of pieces, and each brings itself all keys of one,
                          for queries of its own (attention_share) */
} sli_block;

/* What is said of the parameters that a pattern finds. */
typedef struct sli_param_rule {
  const char *pattern;
  sl_here at;          /* no file: said on a command line */
  bool frozen;
  sl_group_settings group;
} sli_param_rule;

/* Adapters that a pattern asks for. */
typedef struct sli_adapter_rule {
  const char *pattern;
  sl_here at;
  int rank;
  float alpha;
  bool used;           /* it has found something */
} sli_adapter_rule;

/* What is averaged over microbatches: the loss, or a metric. */
typedef struct sli_mean {
  const char *name;
  sl_tensor *tensor;    /* where several devices have parts, the first of them */
  bool adds;            /* where sequences are cut: a piece has a summand of it */
  int nparts;           /* one, or one of each device that has something of its own, */
  struct sli_mean_part {
    sl_tensor *tensor;
    const double *share; /* [variants, or 1] how much of the mean that is; NULL: all */
  } *parts;
} sli_mean;

/* Types of the inputs of a node that has many. */
enum { SLI_MANY_INPUTS = 8 };
typedef struct sli_types {
  int count;
  sl_type *of;
} sli_types;

struct sl_graph {
  sl_graph_options options;
  sli_arena arena;
  sl_status status;    /* first error */
  char *detail;        /* its text */
  int nnodes, ntensors, nblocks, nparams;
  size_t node_capacity, tensor_capacity, block_capacity, param_capacity;
  sli_node **nodes;    /* forward in order of creation, then what passes append,
                          always in an order in which they may run */
  sl_tensor **tensors;
  sli_block *blocks;
  sl_tensor **params;
  struct sli_known {       /* to find soon what is there already: */
    uint64_t *of;          /* [nparams] hashes of the parameters' names */
    size_t capacity;
    sli_types types[16];   /* of the last nodes with many inputs: such are often alike */
  } known;
  sli_mean loss;        /* its tensor is NULL before sl_train */
  struct sli_metrics {  /* what evaluations find besides */
    int count;
    size_t capacity;
    sli_mean *of;
    struct sli_tallies { /* sums over each step of training, told with its loss */
      int count;
      size_t capacity;
      sli_mean *of;
    } tallies;
  } metrics;
  struct sli_evaluated {  /* of held-out data, once it is settled how much; see sli_evaluation_weight */
    int microbatches;     /* of an evaluation */
    int whole;            /* the first ones, of as many rows as in training */
    int rows, rest;       /* of a microbatch, 0: not known; and those left over behind the whole ones */
  } evaluated;
  sl_tensor *grad_norm; /* f64 scalar, once a step: the clip node's second output */
  struct sli_training {
    sl_optimizer optimizer; /* with its defaults in place */
    int nrules;
    size_t capacity;
    struct sli_param_rule *rules; /* in order: the last one that says something counts */
    struct sli_adapters {
      int nrules;
      size_t capacity;
      sli_adapter_rule *rules;
      bool read;            /* what options.training says has been added */
    } adapters;
  } training;
  /* where sequences are cut, else 0 and NULL: */
  int64_t length;          /* positions of a whole sequence */
  int64_t *lengths;        /* [pieces] */
  int nvariants;           /* different lengths */
  int64_t *variant_lengths; /* the longest first */
  sl_tensor *batch;        /* of a served graph; see batch.h */
  int noutputs;
  size_t output_capacity;
  struct sli_output {
    const char *name;
    sl_tensor *tensor;
  } *outputs;
  struct sli_cleanups { /* run by destroy (token files) */
    int count;
    size_t capacity;
    struct sli_cleanup {
      void (*fn)(void *arg);
      void *arg;
    } *of;
  } cleanups;
};

/* How much a microbatch of an evaluation counts: 1; and behind the whole ones, whose rows are some that are left
 * over, again and again, the share that these are. Their number divides that of a microbatch, so that a mean over
 * rows is one over them; *first is the first of them. */
double sli_evaluation_weight(const sl_graph *g, int64_t microbatch, int *first);

/* Blocks that follow one another: without what is spread over the stages. */
static inline int sli_blocks_in_line(const sl_graph *g) {
  int n = g->nblocks;
  while (n && g->blocks[n - 1].spread) n--;
  return n;
}

/* Is it evaluated, every so many steps? */
static inline bool sli_evaluates(const sl_graph *g) {
  return !g->options.infer && g->options.eval_every > 0;
}

/* The loss, and behind it the metrics, if somebody asks for them. */
static inline int sli_graph_means(const sl_graph *g) {
  return 1 + (sli_evaluates(g) ? g->metrics.count : 0);
}
static inline sli_mean *sli_graph_mean(sl_graph *g, int i) {
  return i ? &g->metrics.of[i - 1] : &g->loss;
}

/* These and, behind them, the tallies: what is kept for its own sake. */
static inline int sli_graph_kept(const sl_graph *g) {
  return sli_graph_means(g) + (g->options.infer ? 0 : g->metrics.tallies.count);
}
static inline sli_mean *sli_graph_keep(sl_graph *g, int i) {
  int means = sli_graph_means(g);
  return i < means ? sli_graph_mean(g, i) : &g->metrics.tallies.of[i - means];
}

/* Puts its parts behind the first `count` of tensors[]. Returns how many there are then. */
static inline int sli_mean_tensors(const sli_mean *mean, sl_tensor **tensors, int count) {
  for (int i = 0; i < mean->nparts; i++) tensors[count++] = mean->parts[i].tensor;
  return count;
}

#endif
