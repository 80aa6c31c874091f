/* SPDX-License-Identifier: Apache-2.0 */
/* An import under way: the calls of an exported program become ops of a graph.
 *
 * 1. functional.c  calls that write in place become calls that do not
 * 2. fold.c        calls on constants alone are computed
 * 3. patterns.c    groups of calls that one op stands for
 * 4. calls.c       the table of calls: what each becomes
 *
 * Constants are computed at the exported batch size. Tensors have the rows of a microbatch, which
 * may be others: a dim whose length differs from the exported one is a dim of rows. */
#ifndef SLUICE_PYTORCH_IMPORT_H
#define SLUICE_PYTORCH_IMPORT_H

#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "pytorch/array.h"
#include "pytorch/program.h"

typedef struct sli_import sli_import;

/* Stand-in for a value of the program. At most one of array and tensor is set. */
typedef struct sli_made {
  const sli_pt_array *array; /* constant */
  sl_tensor *tensor;
  bool needed;
  bool learned; /* depends on parameters, and the loss on it */
  /* Experts: rows stay in the order of their tokens instead of being sorted by expert. `sorted`:
   * the position of each row in that order, so nothing is to be done; `each` > 1: the positions
   * divided by this, so every row repeats as often. `ids`: the experts of the rows, of an array
   * that says where each expert's rows end. */
  bool sorted;
  int64_t each;
  sli_pt_value *ids;
} sli_made;

/* A group of calls that ends in the call that makes it one. */
enum { SLI_PT_PARTS = 4 };
typedef struct sli_match {
  sli_pt_value *part[SLI_PT_PARTS]; /* values that the group reads; NULL after the last */
  double number[SLI_PT_PARTS];
  int64_t whole[SLI_PT_PARTS];
} sli_match;
typedef struct sli_pattern {
  const char *name, *becomes;
  const char *target; /* of the last call */
  bool (*match)(const sli_import *m, const sli_pt_node *n, sli_match *out);
  sl_tensor *(*emit)(sli_import *m, const sli_pt_node *n, const sli_match *of);
} sli_pattern;

/* A row of the table of calls. */
typedef struct sli_pt_call sli_pt_call;
struct sli_pt_call {
  const char *target;
  /* Computes the call on constants; sets the outputs' arrays, or none if it cannot. NULL: never. */
  void (*fold)(sli_import *m, const sli_pt_node *n, const sli_pt_call *row);
  /* Adds ops, and sets the outputs' tensors. NULL: constants only. */
  void (*emit)(sli_import *m, const sli_pt_node *n, const sli_pt_call *row);
  double (*one)(double);         /* function of one number, for constants */
  double (*two)(double, double); /* and of two */
  const sl_op *op;
  const char *becomes;                                   /* for the documentation */
  sl_tensor *(*of)(sli_import *m, const sli_pt_node *n); /* makes the result; NULL: refused */
};
/* Rows in order; NULL after the last. */
const sli_pt_call *sli_pt_call_at(int i);
/* The row of a call; NULL: there is none. */
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
  int64_t exported;            /* rows of the exported batch; 0: no input has rows */
  int64_t rows;                /* rows of a microbatch */
  sl_here at;                  /* Python line of the call at hand */
  const char **note; /* [nodes of p] what a layer became, where that depends on arguments */
  bool *emitted;     /* [nodes of p] */
  sl_tensor *zeros;  /* [rows], or NULL until they are needed */
};

/* ---- values -------------------------------------------------------------------------------- */

static inline sli_made *sli_made_of(const sli_import *m, const sli_pt_value *v) {
  return &m->made[v->id];
}
static inline const sli_pt_array *sli_constant(const sli_import *m, const sli_pt_value *v) {
  return m->made[v->id].array;
}
/* True if ops are to compute an output of the call: the loss needs it, and it is no constant. */
static inline bool sli_pt_wanted(const sli_import *m, const sli_pt_node *n) {
  for (int i = 0; i < n->nouts; i++)
    if (n->outs[i] && !n->outs[i]->symbol && sli_made_of(m, n->outs[i])->needed &&
        !sli_constant(m, n->outs[i]))
      return true;
  return false;
}
/* Finds the tensor of an argument; constants become tensors. Whole numbers and masks are i32, or
 * f32 with whole values where ops have made them so. NULL: absent, or the graph has failed. */
sl_tensor *sli_pt_tensor(sli_import *m, const sli_pt_value *v);
/* Finds that tensor, and converts it to f32 or to i32. */
sl_tensor *sli_pt_f32(sli_import *m, const sli_pt_value *v);
sl_tensor *sli_pt_i32(sli_import *m, const sli_pt_value *v);
sl_tensor *sli_pt_in(sli_import *m, const sli_pt_node *n, const char *name);
/* Finds the parameter that stands for a buffer which a program changes. */
sl_tensor *sli_pt_buffer(sli_import *m, const sli_pt_value *v);
sl_tensor *sli_pt_in_i32(sli_import *m, const sli_pt_node *n, const char *name);
sli_pt_value *sli_pt_arg_value(const sli_pt_node *n, const char *name);
/* The first argument, if it is a tensor; of calls that are emitted it is one, but for a few. */
sli_pt_value *sli_pt_first(const sli_pt_node *n);
/* Makes a constant to be combined with a tensor of these exported and true dims: dims of rows in
 * which it repeats have length 1. */
sl_tensor *sli_pt_constant_beside(sli_import *m, const sli_pt_array *a, const sli_pt_type *exported,
                                  const sl_type *type);
/* Makes f32 of the f64 scalar that sums and losses are; other tensors stay. */
sl_tensor *sli_pt_narrow(sli_import *m, sl_tensor *t);
/* Makes a dense constant of an array. */
sl_tensor *sli_pt_constant(sli_import *m, const sli_pt_array *a);
/* A tensor of one number, to be combined with x. */
sl_tensor *sli_pt_filled_like(sli_import *m, const sl_tensor *x, double value);
/* Finds an argument as a tensor to be combined with another one, which is no constant. */
sl_tensor *sli_pt_operand(sli_import *m, const sli_pt_node *n, const char *name,
                          const sli_pt_value *other);
/* Zeros [rows] that follow the rows of a batch wherever they are sharded; NULL: no input has
 * rows. */
sl_tensor *sli_pt_row_zeros(sli_import *m);
/* Takes positions of a dim. */
sl_tensor *sli_pt_take(sli_import *m, sl_tensor *x, int dim, int64_t count, const int64_t *at);
/* The tensor of a value to be cut along its rows: a constant has all of them. */
sl_tensor *sli_pt_unrepeated(sli_import *m, const sli_pt_value *v);
/* Repeats dims of length 1 to the lengths of `like`, but for dim `but` (-1: none). */
sl_tensor *sli_pt_widen(sli_import *m, sl_tensor *t, sl_tensor *like, int but);
void sli_pt_out(sli_import *m, const sli_pt_node *n, int i, sl_tensor *t);
void sli_pt_out_array(sli_import *m, const sli_pt_node *n, int i, sli_pt_array *a);

/* ---- arguments ----------------------------------------------------------------------------- */

/* Numbers of arguments, or what stands for an absent one. */
double sli_pt_number(const sli_import *m, const sli_pt_node *n, const char *name, double absent);
int64_t sli_pt_whole(const sli_import *m, const sli_pt_node *n, const char *name, int64_t absent);
bool sli_pt_flag(const sli_pt_node *n, const char *name, bool absent);
/* A dim of a type of `ndim` dims, counted from the beginning. */
int sli_pt_dim(const sli_import *m, const sli_pt_node *n, const char *name, int ndim, int absent);
/* Whole numbers of a list (or of one number), at most `most`; returns how many, -1: absent. */
int sli_pt_wholes(const sli_import *m, const sli_pt_node *n, const char *name, int most,
                  int64_t *out);
/* Finds the dims that an argument lists, counted from the beginning; -1: absent, or not different
 * dims of a type of `ndim`. */
int sli_pt_dims(const sli_import *m, const sli_pt_node *n, const char *name, int ndim, int *out);
/* Finds the order of dims that permute, transpose, t and their like give. */
bool sli_pt_order(const sli_import *m, const sli_pt_node *n, int ndim, int *out);
/* The dims of a list as bits; none: all. */
uint32_t sli_pt_axes(const sli_import *m, const sli_pt_node *n, const char *name, int ndim);
/* The number an argument is, if it is a number or a constant of one number repeated. */
bool sli_pt_scalar(const sli_import *m, const sli_pt_arg *arg, double *out);

/* ---- shapes -------------------------------------------------------------------------------- */

/* Finds the dims of a view: `to` as exported, of a tensor x whose exported type is `from`. False: a
 * dim of rows is cut where it cannot be. */
bool sli_pt_view_dims(const sl_type *x, const sli_pt_type *from, const sli_pt_type *to,
                      sl_type *out);
/* Calls that undo each other leave nothing. */
sl_tensor *sli_pt_reshape(sli_import *m, sl_tensor *x, const sl_type *to);
/* Adds a dim of length 1 before dim `dim`. NULL: there are as many as there can be. */
sl_tensor *sli_pt_add_dim(sli_import *m, sl_tensor *x, int dim);
sl_tensor *sli_pt_permute(sli_import *m, sl_tensor *x, int ndim, const int *order);
/* Skips calls that change nothing: conversions between float types, copies, dropout that drops
 * nothing. */
const sli_pt_value *sli_pt_peel(const sli_import *m, const sli_pt_value *v);
/* The call that makes a value, if it is this one; calls that change nothing are skipped. */
const sli_pt_node *sli_pt_made_by(const sli_import *m, const sli_pt_value *v, const char *target);

/* Refuses a call: its name and Python line, and why. */
void sli_pt_refuse(sli_import *m, const sli_pt_node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- steps --------------------------------------------------------------------------------- */

sl_status sli_pt_functional(sli_pt_program *p);
/* Finds patterns, and marks what the outputs need. */
void sli_pt_mark(sli_import *m, sli_pt_value *const *outs, int count);

/* Prints what became of each call. */
void sli_pt_show(const sli_import *m, FILE *out);

#endif
