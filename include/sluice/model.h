/* SPDX-License-Identifier: Apache-2.0 */
/* Models for actorrun: a record with options and a build function.
 *
 * A model is C code like the following. actorrun compiles the file when it starts, loads it as a
 * shared object, or has it built in:
 *
 *     #include <sluice/sluice.h>
 *     static const sl_option options[] = {
 *         {"width", SL_OPTION_INT, "64", "hidden width", 1, 1 << 16}, {0}};
 *     static sl_status build(sl_graph *g, const sl_args *args) { ... }
 *     SL_MODEL(mine, "a small example", options, build); */
#ifndef SLUICE_MODEL_H
#define SLUICE_MODEL_H

#include <stdio.h>

#include <sluice/graph.h>
#include <sluice/version.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sl_option_kind {
  SL_OPTION_INT,
  SL_OPTION_FLOAT,
  SL_OPTION_TEXT,
  SL_OPTION_FLAG,
  SL_OPTION_LIST /* list of texts: the option may be repeated, and all values apply */
} sl_option_kind;

/* One `--name VALUE` of a model. min == max: no range. A flag takes no value and is off by default.
 * A word in `backquotes` in the help text is the value's placeholder ("the `FILE` to learn"). */
typedef struct sl_option {
  const char *name;
  sl_option_kind kind;
  const char *value; /* default, as text; NULL: the option is required */
  const char *help;
  double min, max;
} sl_option;

typedef struct sl_args sl_args; /* the options as given on the command line */
/* Return an option's value. A name that the model did not declare aborts the program with a message
 * that names it. */
int64_t sl_arg_int(const sl_args *args, const char *name);
double sl_arg_float(const sl_args *args, const char *name);
const char *sl_arg_text(const sl_args *args, const char *name);
bool sl_arg_flag(const sl_args *args, const char *name);
/* Returns the i-th value given for an option, counted from 0; NULL after the last. The functions
 * above return the last value given, or the default; sl_arg_text of a list returns all values, one
 * per line. */
const char *sl_arg_given(const sl_args *args, const char *name, int i);
/* Returns whether the user gave an option a value: one of sl_args_describe() does not count. */
bool sl_arg_chosen(const sl_args *args, const char *name);

/* Optimizer rows for a model's option table, and the settings that result from them. */
#define SL_OPTIMIZER_OPTIONS                                                                     \
  {"lr", SL_OPTION_FLOAT, "1e-3", "peak learning rate", 0, 1e30},                                \
      {"min-lr", SL_OPTION_FLOAT, "1e-4", "learning rate at the end of the decay", 0, 1e30},     \
      {"warmup", SL_OPTION_INT, "20", "steps of linear warm-up", 0, 1e15},                       \
      {"decay-steps", SL_OPTION_INT, "0", "step at which the cosine decay ends; 0: no decay", 0, \
       1e15},                                                                                    \
      {"weight-decay", SL_OPTION_FLOAT, "0.1", "AdamW's decay of matrices", 0, 1e30},            \
      {"clip", SL_OPTION_FLOAT, "1", "largest gradient norm; 0: any", 0, 1e30},                  \
      {"beta1", SL_OPTION_FLOAT, "0.9", "AdamW's memory of gradients", 0, 0.999999}, {           \
    "beta2", SL_OPTION_FLOAT, "0.95", "AdamW's memory of their squares", 0, 0.999999             \
  }
sl_optimizer sl_arg_optimizer(const sl_args *args);

/* Parsing of options, for tools and for programs that build shipped models. Each value is checked
 * against its kind and range when it is set: SL_E_USAGE. The option table must outlive the
 * sl_args. */
sl_status sl_args_create(const sl_option *options, sl_args **out); /* starts with the defaults */
void sl_args_destroy(sl_args *args);
sl_status sl_args_set(sl_args *args, const char *name, const char *value);
/* Sets an option as files describe the model, such as the config.json beside weights. */
sl_status sl_args_describe(sl_args *args, const char *name, const char *value);
/* Parses the option that words[0] names: `--name value`, `--name=value`, or `--name` for a flag.
 * Sets *used to the number of words consumed, or to 0 if the table has no such option. */
sl_status sl_args_take(sl_args *args, int nwords, char *const *words, int *used);
/* Checks that every required option has a value: SL_E_USAGE. */
sl_status sl_args_complete(const sl_args *args);
/* Checks that the model has read only options of its table, each as its declared kind: SL_E_USAGE.
 * An invalid read has returned 0 or an empty text. */
sl_status sl_args_status(const sl_args *args);
/* Prints the options for --help, one per line, with defaults. */
void sl_options_print(const sl_option *options, FILE *out);
/* Returns the option of that name, or NULL if the table is NULL or has no such option. */
const sl_option *sl_options_find(const sl_option *options, const char *name);
/* Returns the name of the option most similar to a mistyped one, or NULL if none is similar. */
const char *sl_options_nearest(const sl_option *options, const char *name);

enum { SL_MODEL_ABI = SLUICE_VERSION_NUMBER_OF(SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR, 0) };
typedef struct sl_model sl_model;
struct sl_model {
  int abi; /* SL_MODEL_ABI */
  const char *name, *summary;
  const sl_option *options; /* ends with an all-zero entry */
  /* Builds the graph. Errors are recorded in the graph; the return value is normally
   * sl_graph_status(g). */
  sl_status (*build)(sl_graph *g, const sl_args *args);
  /* Replaces `build` in models created at run time, such as imported ones. It receives the model
   * record, whose `ctx` it may use. NULL: `build` is called. */
  sl_status (*build_own)(const sl_model *model, sl_graph *g, const sl_args *args);
  void *ctx;
};
/* Builds a model's graph. */
sl_status sl_model_build(const sl_model *model, sl_graph *g, const sl_args *args);

/* Defines the model record and exports it from a shared object. Built-in models define
 * SL_MODEL_BUILTIN before including this header. */
#ifdef SL_MODEL_BUILTIN
#define SL_MODEL_SYMBOL(ident) sl_model_##ident
#else
#define SL_MODEL_SYMBOL(ident) sl_model_export
#endif
#ifdef __cplusplus /* a const object has internal linkage in C++ */
#define SL_MODEL_EXTERN extern "C"
#else
#define SL_MODEL_EXTERN extern
#endif
#define SL_MODEL(ident, summary_, options_, build_) \
  SL_MODEL_NAMED(ident, #ident, summary_, options_, build_)
/* Defines a model whose name is not an identifier. */
#define SL_MODEL_NAMED(ident, name_, summary_, options_, build_)                    \
  SL_MODEL_EXTERN const sl_model SL_MODEL_SYMBOL(ident);                            \
  const sl_model SL_MODEL_SYMBOL(ident) = {SL_MODEL_ABI, name_, summary_, options_, \
                                           build_,       NULL,  NULL}

#ifdef __cplusplus
}
#endif
#endif
