/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files that handle checkpoints. */
#ifndef SLUICE_GRAPH_STATE_CHECKPOINT_H
#define SLUICE_GRAPH_STATE_CHECKPOINT_H

#include <stdatomic.h>

#include <sluice/state.h>

#include "graph/state/differ.h"
#include "io/checkpoint.h"

struct cJSON;

struct sl_checkpoints {
  sli_checkpoints *files;
  sli_checkpoint *from;           /* checkpoint that the run resumes from, or NULL */
  const struct sl_graph *graph;   /* graph whose data files are checked before each commit; NULL
                                     until it is known */
  struct cJSON *about;            /* record of this run; read only once it runs */
  const char *code, *resume_with; /* as in the options; owned by the caller */
  int ranks;                      /* devices per stage in this run */
  int64_t first;                  /* first step of the run */
  int64_t every;                  /* steps between checkpoints during the run */
  _Atomic int64_t newest;
};

/* Record stored with each checkpoint (record.c). */
struct cJSON *sli_record_create(int nfingerprint, const sl_fingerprint_item *fingerprint);
/* SL_E_USAGE: the error names a word of resume_with that matches no setting. */
sl_status sli_record_check_words(const sl_checkpoint_options *o);
/* SL_E_USAGE: the error names the settings whose values differ from those in `from`. */
sl_status sli_record_compare(const sli_checkpoint *from, const sl_checkpoint_options *o);

/* Record of a run, and the checkpoint it is compared with. */
typedef struct sli_record {
  struct cJSON *about;
  const sli_checkpoint *from; /* NULL: no comparison */
  const char *code, *meant;   /* as in sl_checkpoint_options */
} sli_record;
/* Adds the plan, the model and the data. SL_E_USAGE: the error names the differences. */
sl_status sli_record_describe(const sli_record *r, const sl_graph *g, const sl_lowered *lowered);

/* Adds the graph and the optimizer to the record (model.c). */
void sli_model_note(const sli_record *r, const sl_graph *g, const sl_lowered *lowered,
                    sli_differences *d);
/* True if optimizers have a setting called `name`. */
bool sli_optimizer_has(const char *name);

/* `on_store` and `on_stored` callbacks of sl_lower_options; ctx is the sl_checkpoints (store.c). */
sl_status sli_checkpoints_store(void *ctx, const sl_stage_state *state, void *entry);
sl_status sli_checkpoints_stored(void *ctx, int64_t steps, int nentries,
                                 const void *const *entries);

#endif
