/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules are table rows: placement, quotas and order are plain data. */
#ifndef SLUICE_GRAPH_SCHEDULE_SCHEDULE_H
#define SLUICE_GRAPH_SCHEDULE_SCHEDULE_H

#include <sluice/op.h>
#include <sluice/plan.h>

#include "base/base.h"

/* Inputs of a row's formulas. */
typedef struct sli_at {
  int p, v; /* devices along the pipeline, chunks on each */
  int m, k; /* microbatches, pieces */
  int d;    /* device, from 0 */
  int c;    /* chunk on the device, from 0 */
  int s;    /* stage along the model, from 0 */
} sli_at;

typedef int sli_formula(const sli_at *at);

/* Phase of a script: words that are repeated `times` times (script.c). */
typedef struct sli_phase {
  sli_formula *times;
  const char *passes; /* NULL: after the last phase */
} sli_phase;

/* Table row of a schedule. When several passes are ready on a device, the class that comes first in
 * `order` runs first, then the smaller rank, then the older tick. */
typedef struct sli_schedule {
  const char *name, *summary;
  const char *placement;    /* placement of stages on devices: "line", "loop" or "vee" */
  int chunks;               /* chunks per device, unless the user sets it; 0: 1 */
  bool chunks_fixed;        /* the formulas are valid only for this number */
  bool split;               /* W is a separate pass from B */
  sli_formula *act_b;       /* activation slots that B frees, per stage */
  sli_formula *act_w;       /* activation slots that W frees; NULL: same as act_b */
  bool in_pieces;           /* act_b and act_w count pieces, not microbatches */
  sli_formula *pool;        /* activations of all stages of a device; NULL: no pool */
  const char *order;        /* "F B W", or with chunks "F1 B1 B0 W0 F0 W1" */
  const char *uneven_order; /* used if the last round of p microbatches lacks a third or more;
                               NULL: the same */
  sli_formula *rank_f;      /* NULL: 0 */
  sli_formula *rank_b;      /* rank of B and W */
  bool grouped;             /* all chunks of p microbatches run, then those of the next p */
  bool fixed_order;         /* the order may be fixed, because latency would disturb it */
  sli_formula *watermark;   /* lazy W: number of W passes that may be deferred; NULL: not lazy */
  const sli_phase *phases;  /* script of a device's passes, if a step has at least `fewest`
                               microbatches; NULL: the order emerges */
  sli_formula *fewest;
} sli_schedule;

/* One pass of a script: its class, chunk, and number among the passes of both. */
typedef struct sli_scripted {
  sl_class cls;
  int chunk, number;
  bool beside; /* runs beside its neighbour, a pass in the other direction */
} sli_scripted;

/* Writes out the script of a device in order, in the arena. Returns the number of passes, or 0 if
 * the row has no script for these numbers (script.c). */
int sli_schedule_script(const sli_schedule *row, const sli_at *at, sli_arena *arena,
                        sli_scripted **out);

/* Iterate over all rows. */
const sli_schedule *sli_schedule_first(void);
const sli_schedule *sli_schedule_next(const sli_schedule *row);

/* Returns the schedule called `name`, or NULL if there is none. */
const sli_schedule *sli_schedule_find(const char *name);

/* Returns whether W is a separate pass from B. `backward` is the user's choice, "fused" or "split",
 * or NULL. */
bool sli_schedule_splits(const sli_schedule *row, const char *backward);

/* Sets the place of a class (and chunk) in the order, for m microbatches on p devices: the class's
 * place, and a rank that separates its chunks, or 0 if the order does not separate them. */
void sli_schedule_order(const sli_schedule *row, int p, int m, sl_class cls, int chunk,
                        int *class_order, int *rank);

/* Changes that --schedule auto makes to a row's numbers. */
enum { SLI_TUNED_STAGES = 64 };
typedef struct sli_tune {
  int act_b, act_w, pool, watermark; /* added on all stages */
  int stage_b[SLI_TUNED_STAGES], stage_w[SLI_TUNED_STAGES];
  int pool_most; /* upper bound on the pool; 0: the row's pool */
  int order;     /* 1: emerges at run time, 2: derived and fixed, 0: as in the row */
} sli_tune;

/* Stages that a microbatch visits, in order. */
typedef struct sli_path {
  int length;
  int *stage; /* [length] */
  int line;   /* line in the file */
} sli_path;

typedef struct sli_paths {
  const char *file; /* "paths FILE" */
  int microbatches;
  sli_path *items; /* [microbatches] */
} sli_paths;

/* Reads paths from a file into the arena (paths.c). Errors name the file and its line. */
sl_status sli_paths_read(const char *file, int microbatches, sli_arena *arena,
                         const sli_paths **out);
/* Checks that paths are valid for `stages` stages, and counts the microbatches that visit each. */
sl_status sli_paths_check(const sli_paths *paths, int stages, int *visits);
/* Formats paths in the file format; the caller frees the text. */
char *sli_paths_format(const sli_paths *paths);

/* Parameters in which candidates of a search differ. */
typedef struct sli_pick {
  const sli_schedule *schedule;
  int v;                  /* chunks per device */
  bool split;             /* W is a separate pass */
  sli_tune tune;          /* all 0: the row unchanged */
  const sli_paths *paths; /* NULL: all microbatches go through all stages */
} sli_pick;

/* Convert a pick to text and back, to pass it to processes that do not search. The caller frees the
 * text; paths are parsed into the arena. */
char *sli_pick_format(const sli_pick *pick);
sl_status sli_pick_read(const char *text, sli_arena *arena, sli_pick *out);

/* Maps stages along the model to devices and chunks; both arrays are [p * v]. Layouts are "line",
 * "loop" and "vee". */
sl_status sli_place_stages(const char *layout, int p, int v, int *device_of, int *chunk_of);

/* Fixed order of a device's passes: read from a file, derived, or chosen by prediction on the
 * virtual clock. */
typedef struct sli_pass_order {
  sl_plan *plan;
  int ndevices;
  const int32_t *queues;              /* [ndevices] queues that run their passes */
  const sli_scripted *const *scripts; /* [ndevices] scripts; NULL: none */
  int nscripted;                      /* passes of each script */
  const bool *aside; /* [plan->nactors] actors that are not passes; they come last in an order;
                        NULL: none */
  const char *given; /* "derive", a file, or NULL */
  int tuned;         /* sli_tune.order */
  bool split;
  bool improve; /* may try the order derived with equal durations */
  bool latency; /* may try the order that emerges without latency */
} sli_pass_order;
/* Finishes the plan, including its order. */
sl_status sli_order_passes(const sli_pass_order *o);

#endif
