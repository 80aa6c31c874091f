/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of actortune ranges: a tick of a server, cut into ranges of its rows, so that
 * ops bound by different resources of a device run at once. */
#ifndef SLUICE_TOOLS_ACTORTUNE_RANGES_RANGES_H
#define SLUICE_TOOLS_ACTORTUNE_RANGES_RANGES_H

#include <stdio.h>

#include <sluice/hardware.h>

#include "tools/cli/cli.h"
#include "tools/planner/planner.h"

enum { RANGES_OPS = 12, RANGES_MOST = 16, RANGES_GRAIN = 128 };

/* Rows that an op works on: all of a tick, those of answers, or those of prompts. Rows of answers
 * come first. */
typedef enum op_rows { ROWS_ALL, ROWS_ANSWERS, ROWS_PROMPTS } op_rows;

/* One op of a layer, for a whole tick. Ops follow each other; two attentions read the same op. */
typedef struct range_op {
  char name[64];
  sl_resource resource;
  op_rows rows;
  bool beside; /* goes on at the same place as the op before it: the attention of prompts */
  double seconds[SL_RESOURCES]; /* of all layers, by resource, from shapes */
  double measured;              /* of all layers; 0: the longest of these */
  double least;                 /* of a firing: reading its weights */
} range_op;

/* A load, and what a tick of it takes. */
typedef struct range_work {
  const sl_hardware *hardware;
  int devices, layers, rows, prompt, answer;
  double prompt_rows, parameters; /* parameters: of all products */
  int nops;
  range_op ops[RANGES_OPS];
} range_work;

/* Finds the ops of the model's layers, and their columns by shapes (shapes.c). */
sl_status ranges_shapes(const settings *s, range_work *work);
/* Replaces seconds of ops, "gate+up=0.0699,...". */
sl_status ranges_measured(range_work *work, const char *text);
double range_seconds(const range_op *op);

/* A choice: the ranges of each op, and rules by which firings get shares. */
typedef struct range_cut {
  int count[RANGES_OPS];
  int end[RANGES_OPS][RANGES_MOST]; /* a range begins where the one before ends */
  int rank[RANGES_OPS];             /* of firings of one layer, lower ones start first */
  double asks[SL_RESOURCES]; /* share of a firing; compute: the most, it takes what others leave */
  double least;              /* share with which a product still starts */
} range_cut;

/* First and last row of a range, of those that its op works on. */
double range_begin(const range_work *work, const range_cut *cut, int op, int part);
double range_end(const range_work *work, const range_cut *cut, int op, int part);
/* Returns whether a firing reads a range of another op in its layer, or (*before) in the layer
 * before. */
bool range_reads(const range_work *work, const range_cut *cut, int op, int part, int from,
                 int from_part, bool *before);
/* Returns the seconds of a firing of one layer that has the device to itself. */
double range_alone(const range_work *work, const range_cut *cut, int op, int part);

/* The firings of a tick in order of start, with their shares. */
typedef struct range_firing {
  int op, part, layer;
  double share;
} range_firing;

typedef struct range_list {
  int count;
  range_firing *firings; /* [count] */
  double seconds;        /* from the first start to the last end */
} range_list;

/* Lists the firings of a tick of `layers` layers as the rules of a cut start them (list.c). */
void ranges_list(const range_work *work, const range_cut *cut, int layers, range_list *out);
void range_list_fini(range_list *list);

/* Returns the seconds of a listed tick as a plan on the virtual clock. With a path, writes a trace
 * of the run (plan.c). */
sl_status ranges_tick(const range_work *work, const range_cut *cut, const range_list *list,
                      int layers, const char *trace, double *seconds);

/* Returns the least time of a tick by shares: no order of firings is faster. */
double ranges_bound(const range_work *work);

typedef struct range_found {
  range_cut cut;
  double seconds, search_seconds;
  int tried;
} range_found;
void ranges_search(const range_work *work, int tries, int most_parts, uint64_t seed,
                   range_found *out);

int ranges_main(int argc, char **argv);

#endif
