/* SPDX-License-Identifier: Apache-2.0 */
/* Graph construction by models and passes: nodes, tensors, and initial values of parameters. */
#ifndef SLUICE_GRAPH_BUILD_BUILD_H
#define SLUICE_GRAPH_BUILD_BUILD_H

#include <sluice/model.h>

#include "graph/build/delay.h"
#include "graph/build/frames.h"
#include "graph/graph.h"

/* Returns true for the frames of blocks that are done, of which most ticks have none. */
bool sli_is_frames_done(const sl_tensor *t);

/* Returns the loss node of a classifier's logits: the graph's loss, or one of its summands. */
const sli_node *sli_loss_of_logits(const sl_graph *g);

/* Adds a node with its inputs' types. out[nout] starts NULL and out_type[nout] as scalars:
 * sli_node_infer fills in the types, sli_node_output the tensors. */
sli_node *sli_graph_node(sl_graph *g, const sl_op *op, const char *name, const sl_attrs *attrs,
                         sl_class cls, int block, int nin, sl_tensor *const *in, int nout);
/* Gives a node a private array of input types. Call it before changing types, since nodes may share
 * the array. */
void sli_node_own_types(sl_graph *g, sli_node *n);
/* Reorders the graph's nodes [nnodes] and renumbers them. */
void sli_graph_reorder(sl_graph *g, sli_node *const *nodes);
/* Moves the last node before another one. */
void sli_graph_move_before(sl_graph *g, const sli_node *next);
/* Makes nodes from number `first` on that read tensor `of` read `by` instead. */
void sli_graph_replace_reads(sl_graph *g, int first, const sl_tensor *of, sl_tensor *by);
/* Calls the op's shape rule. The caller names the op in its error. */
sl_status sli_node_infer(sli_node *node);
/* Creates output o: a new tensor of out_type[o]. */
sl_tensor *sli_node_output(sl_graph *g, sli_node *node, int o, const char *name);
sl_tensor *sli_graph_tensor(sl_graph *g, const sl_type *type, const char *name);
/* True for at most SL_MAX_DIMS dims, all positive, and a number of elements that does not
 * overflow. */
bool sli_type_possible(const sl_type *type);
/* Formats like sl_type_format(), but also accepts impossible types. */
char *sli_type_text(char *out, const sl_type *type);
/* Records the first error, "file:line: text", and returns its status. */
sl_status sli_graph_fail_at(sl_graph *g, sl_here at, sl_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns the bit of a dim of x for a call of that name. Negative dims count from the end. Fails
 * the graph if x has no such dim. */
uint32_t sli_graph_dim(sl_graph *g, sl_here at, const char *call, sl_tensor *x, int dim);
/* Describes tensors: "h.3/gelu.1 f32[8, 256, 384], h.3.weight f32[256, 64]"; "-" if absent. */
char *sli_graph_describe(sl_graph *g, int nin, sl_tensor *const *in);

/* Fingerprint of a model as written; see fingerprints.c. */
typedef struct sli_fingerprints {
  bool own_ops; /* some ops are user-defined */
  int count;
  struct sli_fingerprint {
    const char *name; /* name of a parameter, with its type, or of an op; sorted */
    uint64_t hash;
  } * items;
} sli_fingerprints;

/* Computes fingerprints before any pass; the arena owns the result. */
sli_fingerprints sli_graph_fingerprints(const sl_graph *g, sli_arena *arena);
/* Returns the held-out data of a source, if it has any, as a source indexed by an evaluation's
 * ticks. */
const sl_source *sli_source_held_out(sl_graph *g, const sl_source *source);
/* Returns the files that the graph trains on, which the graph owns, or NULL if it reads none. Sets
 * *context to the tokens of a sequence and *batch to the sequences of a step. */
const struct sli_tokens *sli_graph_tokens(const sl_graph *g, int64_t *context, int64_t *batch);
/* Returns true if options.eval names the source's held-out data. */
bool sli_source_has_files(const sl_source *source);

/* Returns the objective's loss for a model's logits. */
sl_tensor *sli_objective_loss(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets);
/* Returns the logits [rows, context, ...] at the chosen positions only: see
 * sl_objective.positions. */
sl_tensor *sli_at_positions(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *positions);
/* Checks that the model has requested the objective's data and loss. */
sl_status sli_objective_check(sl_graph *g);
/* Makes the reference read the model's frozen parameters instead of copies of them. */
void sli_objective_share(sl_graph *g);
/* Adds data files, one path per line, to those that sl_graph_files() lists and checks. */
sl_status sli_graph_add_files(sl_graph *g, const char *paths);
/* Returns, for chats, a microbatch's share of the tokens in a step's loss, an f64 scalar that is
 * the same in every part of the microbatch. NULL if the rows are not chats. */
sl_tensor *sli_texts_learned(sl_here at, sl_graph *g, const sl_texts *texts);
/* Target of a token whose next token is not in the loss. */
enum { SLI_UNLEARNED = -100 };
/* Creates the source of tokens, from files or from the server of the graph. */
sl_texts sli_texts_of_files(sl_here at, sl_graph *g, const char *paths, int64_t rows,
                            int64_t context, int64_t vocab, bool chats, bool alone);

sli_mean sli_mean_of(sl_graph *g, const char *name, sl_tensor *t);

/* True if a parameter's name matches the pattern. See sl_freeze(). */
bool sli_pattern_finds(const char *pattern, const char *name);
/* Reads "PATTERN:lr=1e-4,decay=0". */
sl_status sli_group_read(sl_graph *g, const char *text, const char **pattern,
                         sl_group_settings *out);
/* Checks that every adapter pattern matched a parameter, and freezes everything but adapters. */
sl_status sli_lora_settle(sl_graph *g);
/* Returns the bit routers [experts, widths, k] beside a matrix of experts. NULL: an error. */
sl_tensor *sli_bits_router(sl_here at, sl_graph *g, const sl_tensor *matrix, int64_t experts,
                           int64_t widths, int64_t k);
/* Returns the last product of a mixture of gate, up and down, whose experts are in planes of the
 * widths that bit routers choose; NULL: no bit routers are trained, or it is no such mixture. */
sl_tensor *sli_bits_mixture(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *ids, sl_tensor *w);
/* Freezes everything but bit routers, if they are trained. */
sl_status sli_bits_settle(sl_graph *g);
/* Determines which parameters are trained, and the settings of each. Call it before the gradients
 * pass. */
sl_status sli_training_settle(sl_graph *g);

/* Runs fn(arg) when the graph is destroyed. */
void sli_graph_cleanup(sl_graph *g, void (*fn)(void *), void *arg);

/* Attributes of a call of attention; `attention` may be NULL. */
static inline sl_attrs sli_attention_with(const sl_attention_attrs *attention) {
  return attention ? (sl_attrs){.attention = *attention} : (sl_attrs){0};
}

/* Sets the seed of calls that draw random numbers. Call before the gradients, which draw the
 * same numbers. */
void sli_graph_seed(sl_graph *g, uint64_t seed);

/* Computes the initial values of a parameter: out[sl_type_elements(type)]. They depend only on
 * the rule, the seed, the name and the element's index. */
void sli_init_values(const sl_type *type, sl_init init, const char *name, uint64_t seed,
                     float *out);

/* Initial values of several parameters, computed on several threads if that is faster. */
typedef struct sli_init_item {
  const sl_type *type;
  sl_init init;
  const char *name;
  float *out;
} sli_init_item;
void sli_init_all(int count, const sli_init_item *items, uint64_t seed);

/* Writes the placeholder of an option's value: the `word` in its help, or that of its kind; empty
 * for a flag. */
void sli_option_word(const sl_option *option, char *out, size_t bytes);
/* Returns an option's help and default as one line; the caller frees it. */
char *sli_option_text(const sl_option *option);

#endif
