/* A schedule is a row: placement, quotas and order, all plain data. */
#ifndef SLUICE_GRAPH_SCHEDULE_H
#define SLUICE_GRAPH_SCHEDULE_H

#include <sluice/op.h>
#include <sluice/plan.h>

#include "base/base.h"

/* What a row's formulas may look at. */
typedef struct sli_at {
  int p, v;  /* pipeline devices, chunks on each */
  int m, k;  /* microbatches, pieces */
  int d;     /* device, from 0 */
  int c;     /* chunk on the device, from 0 */
  int s;     /* stage along the model, from 0 */
} sli_at;

typedef int sli_formula(const sli_at *at);

/* Which of several passes that can go on a device goes first: the class that
 * comes first in `order`, then the smaller rank, then the older tick. */
typedef struct sli_schedule {
  const char *name, *summary;
  const char *placement;     /* of stages on devices, "line", "loop" or "vee" */
  int chunks;                /* on each device unless the user says otherwise; 0: 1 */
  bool chunks_fixed;         /* the formulas hold for that number only */
  bool split;                /* W apart from B */
  sli_formula *act_b;        /* slots of activations that B frees, per stage */
  sli_formula *act_w;        /* ... that W frees; NULL: as act_b */
  bool in_pieces;            /* act_b and act_w count pieces, not microbatches */
  sli_formula *pool;         /* activations of a device together; NULL: no pool */
  const char *order;         /* "F B W", or with chunks "F1 B1 B0 W0 F0 W1" */
  const char *uneven_order;  /* where the last round of p microbatches lacks a third or more; NULL: the same */
  sli_formula *rank_f;       /* NULL: 0 */
  sli_formula *rank_b;       /* also of W */
  bool grouped;              /* all chunks of p microbatches, then of the next p */
  bool fixed_order;          /* latency would spoil the order: it may be fixed then */
  sli_formula *watermark;    /* lazy W: how many it may hold back; NULL: not lazy */
} sli_schedule;

/* All rows, one after another. */
const sli_schedule *sli_schedule_first(void);
const sli_schedule *sli_schedule_next(const sli_schedule *row);

/* NULL if there is none of that name. */
const sli_schedule *sli_schedule_find(const char *name);

/* Is W to be apart from B? `backward`: what the user says of it, "fused" or "split", or NULL. */
bool sli_schedule_splits(const sli_schedule *row, const char *backward);

/* The place of a class (and chunk) in the order: class first, and the rank that
 * tells its chunks apart, 0 where they are not told apart; of m microbatches on
 * p devices. */
void sli_schedule_order(const sli_schedule *row, int p, int m, sl_class cls, int chunk,
                        int *class_order, int *rank);

/* What --schedule auto adds to a row's numbers. */
enum { SLI_TUNED_STAGES = 64 };
typedef struct sli_tune {
  int act_b, act_w, pool, watermark;   /* everywhere */
  int stage_b[SLI_TUNED_STAGES], stage_w[SLI_TUNED_STAGES];
  int pool_most;                       /* a pool of no more than this; 0: the row's */
  int order;                           /* 1: emerges, 2: derived and fixed; 0: the row's */
} sli_tune;

/* Stages that a microbatch visits, in their order. */
typedef struct sli_path {
  int length;
  int *stage;            /* [length] */
  int line;              /* of the file */
} sli_path;

typedef struct sli_paths {
  const char *file;      /* "paths FILE" */
  int microbatches;
  sli_path *of;          /* [microbatches] */
} sli_paths;

/* From a file (paths.c); they are the arena's. What is wrong is said of the file and its line. */
sl_status sli_paths_read(const char *file, int microbatches, sli_arena *arena,
                         const sli_paths **out);
/* Do they go where they must, of so many stages? */
sl_status sli_paths_check(const sli_paths *paths, int stages);
/* As a file has them; the caller's to free(). */
char *sli_paths_format(const sli_paths *paths);

/* What candidates of a search differ in. */
typedef struct sli_pick {
  const sli_schedule *schedule;
  int v;                 /* chunks of each device */
  bool split;            /* W apart from B */
  sli_tune tune;         /* all 0: the row as it is */
  const sli_paths *paths; /* NULL: all microbatches go through all stages */
} sli_pick;

/* As text: for other processes, which need not search for it. The caller's to free(). */
char *sli_pick_format(const sli_pick *pick);
sl_status sli_pick_read(const char *text, sli_pick *out);

/* Stages along the model to devices and chunks, [p * v] each. Layouts are "line", "loop" and
 * "vee". */
sl_status sli_place_stages(const char *layout, int p, int v, int *device_of, int *chunk_of);

/* The order of a device's passes, by which it is fixed: read from a file, derived, or whichever
 * is better on the virtual clock. */
typedef struct sli_pass_order {
  sl_plan *plan;
  int ndevices;
  const int32_t *queues; /* [ndevices] that run their passes */
  const bool *aside;     /* [plan->nactors] of no pass: in an order they come behind; NULL: none */
  const char *given;     /* "derive", a file, or NULL */
  int tuned;             /* sli_tune.order */
  bool split;
  bool improve;          /* may become the one of equal passes, */
  bool latency;          /* or the one that emerges without latency */
} sli_pass_order;
/* Finishes the plan, with its order. */
sl_status sli_order_passes(const sli_pass_order *o);

#endif
