/* A schedule is a row: placement, quotas and class order, all plain data. */
#ifndef SLUICE_GRAPH_SCHEDULES_H
#define SLUICE_GRAPH_SCHEDULES_H

#include <sluice/op.h>

/* What a row's formulas may look at. */
typedef struct sli_at {
  int p, v;  /* pipeline devices, chunks on each */
  int m, k;  /* microbatches, pieces */
  int d;     /* device, from 0 */
  int c;     /* chunk on the device, from 0 */
  int s;     /* stage along the model, from 0 */
} sli_at;

typedef struct sli_schedule {
  const char *name, *summary;
  const char *placement;            /* of stages on devices, "line", "loop" or "vee" */
  bool split;                       /* W apart from B */
  int (*act_b)(const sli_at *at);   /* slots of activations that B frees */
  int (*act_w)(const sli_at *at);   /* ... that W frees; NULL: as act_b (fused) */
} sli_schedule;

/* NULL if there is none of that name. */
const sli_schedule *sli_schedule_find(const char *name);

#endif
