/* What the files of checkpoints share. */
#ifndef SLUICE_GRAPH_STATE_CHECKPOINT_H
#define SLUICE_GRAPH_STATE_CHECKPOINT_H

#include <stdatomic.h>

#include <sluice/state.h>

#include "graph/state/differ.h"
#include "io/checkpoint.h"

struct cJSON;

struct sl_checkpoints {
  sli_checkpoints *files;
  sli_checkpoint *from;  /* what the run goes on from, or NULL */
  const struct sl_graph *graph; /* whose data is looked at before each commit; NULL before it is known */
  struct cJSON *about;   /* the record of this run; read only once it runs */
  const char *code, *resume_with; /* as in the options; the caller's */
  int ranks;             /* devices of each stage of this run */
  int64_t first;         /* the step that the run begins with */
  int64_t every;         /* steps from one to the next while the run goes on */
  _Atomic int64_t newest;
};

/* record.c: what stands beside each checkpoint. */
struct cJSON *sli_record_create(int nterms, const sl_term *terms);
/* SL_E_USAGE names a word of resume_with that nothing goes by. */
sl_status sli_record_check_words(const sl_checkpoint_options *o);
/* SL_E_USAGE names the terms that have other values than when `from` was made. */
sl_status sli_record_compare(const sli_checkpoint *from, const sl_checkpoint_options *o);

/* The record of a run, and what it is compared with. */
typedef struct sli_record {
  struct cJSON *about;
  const sli_checkpoint *from; /* NULL: nothing */
  const char *code, *meant;   /* as in sl_checkpoint_options */
} sli_record;
/* Adds the plan, the model and the data; SL_E_USAGE names what is not as it was. */
sl_status sli_record_describe(const sli_record *r, const sl_graph *g, const sl_lowered *lowered);

/* model.c: the part of it that is about the graph and the optimizer. */
void sli_model_note(const sli_record *r, const sl_graph *g, const sl_lowered *lowered,
                    sli_differences *d);
/* Does a setting of optimizers have that name? */
bool sli_optimizer_has(const char *name);

/* store.c: the on_store and on_stored of sl_lower_options; ctx is the checkpoints. */
sl_status sli_checkpoints_store(void *ctx, const sl_stage_state *state, void *receipt);
sl_status sli_checkpoints_stored(void *ctx, int64_t steps, int nreceipts,
                                 const void *const *receipts);

#endif
