/* What builds graphs: nodes and tensors, by models and by passes, and parameters' first values. */
#ifndef SLUICE_GRAPH_BUILD_H
#define SLUICE_GRAPH_BUILD_H

#include "graph/graph.h"

/* The loss that is found from a classifier's logits: the graph's, or one of those added up to that. */
const sli_node *sli_loss_of_logits(const sl_graph *g);

/* Adds a node with its inputs' types; out[nout] starts NULL and out_type[nout]
 * as scalars: sli_node_infer fills in the types, sli_node_output the tensors. */
sli_node *sli_graph_node(sl_graph *g, const sl_op *op, const char *name, const sl_attrs *attrs,
                         sl_class cls, int block, int nin, sl_tensor *const *in, int nout);
/* Before types of a node's inputs are changed: other nodes may have the same array. */
void sli_node_own_types(sl_graph *g, sli_node *n);
/* Puts the graph's nodes [nnodes] in another order, and numbers them by it. */
void sli_graph_reorder(sl_graph *g, sli_node *const *nodes);
/* Calls the row's shape rule. The caller says which op it was about. */
sl_status sli_node_infer(sli_node *node);
/* Makes output o exist: a new tensor of out_type[o]. */
sl_tensor *sli_node_output(sl_graph *g, sli_node *node, int o, const char *name);
sl_tensor *sli_graph_tensor(sl_graph *g, const sl_type *type, const char *name);
/* At most SL_MAX_DIMS dims, all positive, and no more elements than can be counted. */
bool sli_type_possible(const sl_type *type);
/* sl_type_format() of a type that need not be possible. */
char *sli_type_text(char *out, const sl_type *type);
/* Records the first error, "file:line: text", and returns its status. */
sl_status sli_graph_fail_at(sl_graph *g, sl_here at, sl_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The bit of a dim of x, counted from the end where it is negative, for a call of that name; fails
 * the graph where x has no such dim. */
uint32_t sli_graph_dim(sl_graph *g, sl_here at, const char *call, sl_tensor *x, int dim);
/* "h.3/gelu.1 f32[8, 256, 384], h.3.weight f32[256, 64]"; "-" where absent. */
char *sli_graph_describe(sl_graph *g, int nin, sl_tensor *const *in);

/* A model as it was written; see fingerprints.c. */
typedef struct sli_fingerprints {
  bool own_ops;       /* some rows are not Sluice's */
  int count;
  struct sli_fingerprint {
    const char *name; /* of a parameter, with its type, or of an op; in order */
    uint64_t hash;
  } *of;
} sli_fingerprints;

/* Before any pass; what it makes is the arena's. */
sli_fingerprints sli_graph_fingerprints(const sl_graph *g, sli_arena *arena);
/* A source of the held-out data of one that has some, by the ticks of an evaluation. */
const sl_source *sli_source_held_out(sl_graph *g, const sl_source *source);
/* Is that data what options.eval names? */
bool sli_source_has_files(const sl_source *source);

sli_mean sli_mean_of(sl_graph *g, const char *name, sl_tensor *t);

/* Does the pattern stand in a parameter's name? See sl_freeze(). */
bool sli_pattern_finds(const char *pattern, const char *name);
/* "PATTERN:lr=1e-4,decay=0" */
sl_status sli_group_read(sl_graph *g, const char *text, const char **pattern,
                         sl_group_settings *out);
/* All patterns have found something; what is no adapter is frozen. */
sl_status sli_lora_settle(sl_graph *g);
/* Settles which parameters are trained, and each one's settings: before gradients are made. */
sl_status sli_training_settle(sl_graph *g);

/* Runs fn(arg) when the graph is destroyed. */
void sli_graph_cleanup(sl_graph *g, void (*fn)(void *), void *arg);

/* Tells the seed to calls that draw numbers. Before the gradients, which draw the same. */
void sli_graph_seed(sl_graph *g, uint64_t seed);

/* The starting values of a parameter: out[sl_type_elements(type)]. They depend
 * on the rule, the seed, the name and the element's index only. */
void sli_init_values(const sl_type *type, sl_init init, const char *name, uint64_t seed,
                     float *out);

/* The same for many, on several threads where that pays. */
typedef struct sli_init_item {
  const sl_type *type;
  sl_init init;
  const char *name;
  float *out;
} sli_init_item;
void sli_init_all(int count, const sli_init_item *items, uint64_t seed);

#endif
