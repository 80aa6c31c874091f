/* SPDX-License-Identifier: Apache-2.0 */
/* An import in progress: the calls of an exported program become ops of a graph.
 *
 * 1. functional.c  converts calls that write in place to calls that do not
 * 2. fold.c        computes calls on constants
 * 3. patterns.c    finds groups of calls that a single op replaces
 * 4. calls.c       is the table of calls: what each one becomes
 *
 * Constants are computed at the exported batch size. Tensors have the rows of a microbatch, which
 * may be different. rows.c follows how the rows enter the dims of each tensor. */
#ifndef SLUICE_PYTORCH_IMPORT_H
#define SLUICE_PYTORCH_IMPORT_H

#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "pytorch/array.h"
#include "pytorch/program.h"
#include <sluice/pytorch.h>

typedef struct sli_import sli_import;
typedef struct sli_rows sli_rows; /* rows.h */

/* Which dims must have all of their positions. */
typedef enum sli_repeats {
  REPEATS_PASS,    /* none */
  REPEATS_DIM,     /* the dims that the call names; all if it names none */
  REPEATS_PRODUCT, /* dims that a product sums over */
  REPEATS_SUM,     /* all, for a loss that is a sum */
  REPEATS_ALL
} sli_repeats;

/* State of a value of the program. At most one of array and tensor is set. */
typedef struct sli_made {
  const sli_pt_array *array; /* constant */
  sl_tensor *tensor;
  bool needed;
  bool learned; /* depends on parameters and influences the loss */
  /* Experts: rows stay in the order of their tokens instead of being sorted by expert. `sorted`:
   * the value is the sorted order, so indexing by it changes nothing. `each` > 1: the order divided
   * by this number, so every row repeats that many times. `ids`: the experts of the rows, for an
   * array of the ends of each expert's rows. */
  bool sorted;
  int64_t each;
  sli_pt_value *ids;
} sli_made;

/* A group of calls, identified at its last call. */
enum { SLI_PT_PARTS = 4 };
typedef struct sli_match {
  sli_pt_value *part[SLI_PT_PARTS]; /* values that the group reads; NULL after the last */
  double number[SLI_PT_PARTS];
  int64_t whole[SLI_PT_PARTS];
} sli_match;
typedef struct sli_pattern {
  const char *name, *becomes;
  const char *target; /* name of the last call */
  bool (*match)(const sli_import *m, const sli_pt_node *n, sli_match *out);
  sl_tensor *(*emit)(sli_import *m, const sli_pt_node *n, const sli_match *of);
} sli_pattern;

/* A row of the table of calls. */
typedef struct sli_pt_call sli_pt_call;
struct sli_pt_call {
  const char *target;
  /* Computes the call on constants. Sets the outputs' arrays, or none if it cannot. NULL: never
   * computed. */
  void (*fold)(sli_import *m, const sli_pt_node *n, const sli_pt_call *row);
  /* Adds ops, and sets the outputs' tensors. NULL: constants only. */
  void (*emit)(sli_import *m, const sli_pt_node *n, const sli_pt_call *row);
  double (*one)(double);         /* function of one number, for constants */
  double (*two)(double, double); /* and of two */
  const sl_op *op;
  const char *becomes;                                   /* for the documentation */
  sl_tensor *(*of)(sli_import *m, const sli_pt_node *n); /* makes the result; NULL if refused */
  bool fresh; /* the results share no elements with the arguments */
};
/* Returns a row by index, or NULL after the last. */
const sli_pt_call *sli_pt_call_at(int i);
/* Returns the row of a call, or NULL if there is none. */
static inline const sli_pt_call *sli_pt_call_find(const char *target) {
  const sli_pt_call *row;
  for (int i = 0; (row = sli_pt_call_at(i)); i++)
    if (!strcmp(row->target, target)) return row;
  return NULL;
}

struct sli_import {
  sl_graph *g;
  sli_pt_program *p;
  sli_arena arena;
  sli_made *made;              /* [values of p] */
  const sli_pattern **pattern; /* [nodes of p], or NULL */
  sli_match *match;            /* [nodes of p] */
  int64_t exported;            /* rows of the exported batch; 0 if no input has rows */
  int64_t rows;                /* rows of a microbatch */
  sl_here at;                  /* Python line of the current call */
  bool exact;                  /* the current call computes integers: f32 must hold them */
  const char **note;           /* [nodes of p] what a layer became, if that depends on arguments */
  bool *emitted;               /* [nodes of p] */
  int *first;                  /* [nodes of p] nodes of the graph before those of a call */
  sl_tensor *zeros;            /* [rows], or NULL until needed */
  /* rows.c */
  sli_rows **row; /* [nrows] by a tensor's id, or NULL */
  int nrows, followed;
  int64_t symbol;            /* a number of rows that divides no other length */
  const sli_pt_node *now;    /* the current call */
  bool any_order;            /* it may read dims with the rows first */
  int repeats;               /* which repeated dims it must read whole (row_calls.c) */
  const sli_pt_node *met;    /* a call whose constant may be the rows, and meets a sum over rows */
  const sli_pt_node *scales; /* the current call, if its constant may be the rows */
  sl_rows_in_constants constants;
};

/* ---- values -------------------------------------------------------------------------------- */

static inline sli_made *sli_made_of(const sli_import *m, const sli_pt_value *v) {
  return &m->made[v->id];
}
static inline const sli_pt_array *sli_constant(const sli_import *m, const sli_pt_value *v) {
  return m->made[v->id].array;
}
/* Returns whether ops must compute an output of the call: it is needed and is not a constant. */
static inline bool sli_pt_wanted(const sli_import *m, const sli_pt_node *n) {
  for (int i = 0; i < n->nouts; i++)
    if (n->outs[i] && !n->outs[i]->symbol && sli_made_of(m, n->outs[i])->needed &&
        !sli_constant(m, n->outs[i]))
      return true;
  return false;
}
/* Finds the tensor of an argument, or converts a constant. Integers and masks are i32, or f32 with
 * integer values if ops have computed them. Returns NULL if the argument is absent or the graph has
 * failed. */
sl_tensor *sli_pt_tensor(sli_import *m, const sli_pt_value *v);
/* Find the tensor, and convert it to f32 or to i32. */
sl_tensor *sli_pt_f32(sli_import *m, const sli_pt_value *v);
sl_tensor *sli_pt_i32(sli_import *m, const sli_pt_value *v);
sl_tensor *sli_pt_in(sli_import *m, const sli_pt_node *n, const char *name);
/* Finds the parameter that represents a buffer changed by the program. */
sl_tensor *sli_pt_buffer(sli_import *m, const sli_pt_value *v);
sl_tensor *sli_pt_in_i32(sli_import *m, const sli_pt_node *n, const char *name);
sli_pt_value *sli_pt_arg_value(const sli_pt_node *n, const char *name);
/* Returns the first argument, if it is a tensor, as it is for most emitted calls. */
sli_pt_value *sli_pt_first(const sli_pt_node *n);
/* Makes a constant to be combined with a tensor of this exported type. Dims of rows in which it is
 * constant have length 1. */
sl_tensor *sli_pt_constant_beside(sli_import *m, const sli_pt_array *a, const sli_pt_type *exported,
                                  const sl_tensor *beside);
/* Converts the f64 scalar of a sum or loss to f32; keeps other tensors. */
sl_tensor *sli_pt_narrow(sli_import *m, sl_tensor *t);
/* Makes a dense constant of an array. */
sl_tensor *sli_pt_constant(sli_import *m, const sli_pt_array *a);
/* Makes a tensor of one number, to be combined with x. */
sl_tensor *sli_pt_filled_like(sli_import *m, const sl_tensor *x, double value);
/* Finds an argument as a tensor to be combined with another argument that is not a constant. */
sl_tensor *sli_pt_operand(sli_import *m, const sli_pt_node *n, const char *name,
                          const sli_pt_value *other);
/* Returns zeros [rows], sharded like the rows of a batch, or NULL if no input has rows. */
sl_tensor *sli_pt_row_zeros(sli_import *m);
/* Takes the given positions of a dim. */
sl_tensor *sli_pt_take(sli_import *m, sl_tensor *x, int dim, int64_t count, const int64_t *at);
/* Returns the tensor of a value to be sliced along its rows: a constant is expanded to all rows. */
sl_tensor *sli_pt_unrepeated(sli_import *m, const sli_pt_value *v);
/* Expands the given dims of length 1 that stand for all positions of the exported type. */
sl_tensor *sli_pt_expand_repeated(sli_import *m, sl_tensor *t, const sli_pt_type *type,
                                  uint32_t dims);
/* Returns whether the rows may enter a dim of an exported type: whether they do, if the program was
 * exported with a symbolic batch dim. */
bool sli_pt_may_be_rows(const sli_import *m, const sli_pt_type *type, int d);
/* Expands dims of length 1 to the lengths of `like`, except dim `but` (-1: none). */
sl_tensor *sli_pt_widen(sli_import *m, sl_tensor *t, sl_tensor *like, int but);
void sli_pt_out(sli_import *m, const sli_pt_node *n, int i, sl_tensor *t);
void sli_pt_out_array(sli_import *m, const sli_pt_node *n, int i, sli_pt_array *a);

/* ---- arguments ----------------------------------------------------------------------------- */

/* Return an argument as a number, or the default if it is absent. An argument of another kind
 * remains unread. */
double sli_pt_number(const sli_import *m, const sli_pt_node *n, const char *name, double absent);
int64_t sli_pt_whole(const sli_import *m, const sli_pt_node *n, const char *name, int64_t absent);
bool sli_pt_flag(const sli_pt_node *n, const char *name, bool absent);
/* Returns an element type, or SLI_PT_NONE if it is absent. */
sli_pt_dtype sli_pt_type_arg(const sli_pt_node *n, const char *name);
/* Returns a dim of a type of `ndim` dims, counted from the beginning. */
int sli_pt_dim(const sli_import *m, const sli_pt_node *n, const char *name, int ndim, int absent);
/* Returns the integers of a list (or one integer), at most `most`: their number, or -1 if the
 * argument is absent. */
int sli_pt_wholes(const sli_import *m, const sli_pt_node *n, const char *name, int most,
                  int64_t *out);
/* Finds the dims listed by an argument, counted from the beginning. Returns -1 if it is absent, or
 * does not list distinct dims of a type of `ndim`. */
int sli_pt_dims(const sli_import *m, const sli_pt_node *n, const char *name, int ndim, int *out);
/* Finds the order of dims for permute, transpose, t and similar calls. */
bool sli_pt_order(const sli_import *m, const sli_pt_node *n, int ndim, int *out);
/* Returns the dims of a list as bits; an absent list means all dims. */
uint32_t sli_pt_axes(const sli_import *m, const sli_pt_node *n, const char *name, int ndim);
/* Finds the number that an argument is, if it is a number or a constant with equal elements. */
bool sli_pt_scalar(const sli_import *m, const sli_pt_arg *arg, double *out);

/* Arguments that are not read must have their defaults. */
void sli_pt_forget_arguments(const sli_pt_node *n);
/* Returns an argument that was not read and does not have its default, or NULL. *wanted is its
 * default, up to a space, or NULL if it has none. */
const sli_pt_arg *sli_pt_unread(const sli_pt_node *n, const char **wanted);
/* Returns whether all arguments given by keyword have their defaults. */
bool sli_pt_plain(const sli_pt_node *n);

/* ---- shapes -------------------------------------------------------------------------------- */

/* Reshapes a tensor. Reshapes that undo each other are removed. The second gives the rows in the
 * new dims. */
sl_tensor *sli_pt_reshape(sli_import *m, sl_tensor *x, const sl_type *to);
sl_tensor *sli_pt_reshape_rows(sli_import *m, sl_tensor *x, const sl_type *to,
                               const sli_rows *rows);
/* Adds a dim of length 1 before dim `dim`. Returns NULL if there are too many dims. */
sl_tensor *sli_pt_add_dim(sli_import *m, sl_tensor *x, int dim);
/* Drops dims of length 1. */
sl_tensor *sli_pt_drop_dims(sli_import *m, sl_tensor *x, uint32_t dims);
sl_tensor *sli_pt_permute(sli_import *m, sl_tensor *x, int ndim, const int *order);
/* Skips calls that change nothing: conversions between float types, copies, and dropout with
 * probability 0. */
const sli_pt_value *sli_pt_peel(const sli_import *m, const sli_pt_value *v);
/* Returns the call that makes a value, if it has this target and defaults for all arguments given
 * by keyword. Calls that change nothing are skipped. */
const sli_pt_node *sli_pt_made_by(const sli_import *m, const sli_pt_value *v, const char *target);

/* Refuses a call with its name, its Python line, and the reason. */
void sli_pt_refuse(sli_import *m, const sli_pt_node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- steps --------------------------------------------------------------------------------- */

sl_status sli_pt_functional(sli_pt_program *p);
/* Finds patterns, and marks what the outputs need. */
void sli_pt_mark(sli_import *m, sli_pt_value *const *outs, int count);

/* Prints what became of each call. */
void sli_pt_show(const sli_import *m, FILE *out);

#endif
