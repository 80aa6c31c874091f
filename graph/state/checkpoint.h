/* What the files of checkpoints share. */
#ifndef SLUICE_GRAPH_STATE_CHECKPOINT_H
#define SLUICE_GRAPH_STATE_CHECKPOINT_H

#include <stdatomic.h>

#include <sluice/state.h>

#include "io/checkpoint.h"

struct cJSON;

struct sl_checkpoints {
  sli_checkpoints *files;
  sli_checkpoint *from;  /* what the run goes on from, or NULL */
  struct cJSON *about;   /* the record of this run; read only once it runs */
  int ranks;             /* devices of each stage of this run */
  int64_t first;         /* the step that the run begins with */
  int64_t every;         /* steps from one to the next while the run goes on */
  _Atomic int64_t newest;
};

/* record.c: what stands beside each checkpoint. */
struct cJSON *sli_record_create(int nterms, const sl_term *terms);
/* SL_E_USAGE names the term that has another value than when `from` was made. */
sl_status sli_record_compare(const sli_checkpoint *from, int nterms, const sl_term *terms);
/* Adds the plan and the data; SL_E_USAGE names the file that is another than it was. */
sl_status sli_record_describe(struct cJSON *record, const sli_checkpoint *from,
                              const sl_graph *g, const sl_lowered *lowered);

/* store.c: the on_store and on_stored of sl_lower_options; ctx is the checkpoints. */
sl_status sli_checkpoints_store(void *ctx, const sl_stage_state *state, void *receipt);
sl_status sli_checkpoints_stored(void *ctx, int64_t steps, int nreceipts,
                                 const void *const *receipts);

#endif
