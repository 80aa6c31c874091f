/* What a run leaves, and what another goes on from: weight files and checkpoints.
 *
 *     sl_checkpoints *kept = NULL;
 *     status = sl_checkpoints_open(&(sl_checkpoint_options){.dir = "run1", .resume = true,
 *                                  .nterms = n, .terms = terms}, job, &kept);
 *     sl_checkpoints_lower(kept, &options);            before sl_lower(g, &options, &lowered)
 *     if (!status) status = sl_checkpoints_describe(kept, g, lowered);
 *     ... sl_runtime_create() with .first_step = sl_checkpoints_start(kept)
 *     if (sl_checkpoints_start(kept)) status = sl_checkpoints_load(kept, lowered, rt);
 *     else status = sl_params_init(lowered, rt, seed);
 *     ... sl_job_run(job, steps - sl_checkpoints_start(kept))
 *     if (!status) status = sl_checkpoints_finish(kept, lowered, rt, job);
 *     sl_checkpoints_close(kept);                      after the runtime
 *
 * A resumed run gives the bits of one that was never interrupted, on any number of stages and
 * processes (docs/checkpoints.md).
 *
 * Threads: one thread at a time, between runs, unless something else is said. */
#ifndef SLUICE_STATE_H
#define SLUICE_STATE_H

#include <sluice/job.h>
#include <sluice/lower.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ---------------------------------------------------------------- */

/* Reads the values of all parameters that lie in this process from a safetensors or GGUF file, or
 * from the one or several of a Hugging Face folder, by Hugging Face's names; the first part of a
 * name may be left out there. SL_E_INPUT or SL_E_SHAPE name the file and the tensor. */
sl_status sl_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt);

/* Writes the values of all parameters, adapters merged, to a safetensors file, which appears when it is whole.
 * All processes of the job call it, with the same path on a disk they share. SL_E_IO names the
 * file. */
sl_status sl_weights_save(const char *path, const sl_lowered *lowered, sl_runtime *rt,
                          sl_job *job);

/* Copies values by name from one runtime to another of the same process; both models have the
 * same parameters, and `from` has all of them. */
sl_status sl_weights_copy(const sl_lowered *from, sl_runtime *from_rt, const sl_lowered *to,
                          sl_runtime *to_rt);

/* ---- terms ---------------------------------------------------------------------- */

/* What results depend on and a plan's hash does not say: from what parameters' initial values are drawn, how many
 * slots parameters have, what computes products. For sl_job_join, beside terms of one's own; they are the lowered
 * graph's. Returns how many. */
int sl_lowered_terms(const sl_lowered *lowered, const sl_term **out);

/* ---- adapters (sl_lora) -------------------------------------------------------- */

/* A folder as PEFT saves and reads it: adapter_model.safetensors and adapter_config.json. */

/* What a model must be told to have the adapters of a folder: a text for sl_training.lora for each,
 * in one block to be freed. SL_E_INPUT names what is not understood. */
sl_status sl_adapter_modules(const char *dir, int *count, char ***lora);
/* Reads the values of all adapters that lie in this process. */
sl_status sl_adapter_load(const char *dir, const sl_lowered *lowered, sl_runtime *rt);
/* Writes all adapters, as sl_weights_save() does; that merges them into the weights instead. `base` is what the weights
 * beside them were read from, which the folder says; NULL: nothing. */
sl_status sl_adapter_save(const char *dir, const char *base, const sl_lowered *lowered, sl_runtime *rt, sl_job *job);

/* ---- checkpoints -------------------------------------------------------------- */

typedef struct sl_checkpoints sl_checkpoints;

typedef struct sl_checkpoint_options {
  const char *dir;  /* made if need be; on a disk that all processes share */
  int keep;         /* the newest that stay; 0: 2 */
  int64_t every;    /* steps from one to the next while the run goes on; 0: 100 */
  bool resume;      /* go on from the newest that is whole; without, there may be none yet */
  int nterms;       /* what decides results and is not in the data, with its value: learning */
  const sl_term *terms; /* rate, seed, ... A checkpoint made with others is refused by name */
  const char *const *usual; /* [nterms] the value of a term in runs that do not know it yet; NULL,
                               as a whole or for one: none */
  const char *code; /* a file with ops of the model's own, if it has any; NULL: there is none */
  const char *resume_with; /* what may be another than it was: names, separated by commas, of terms
                              ("--lr" or "lr"), and "graph", "code", "data"; NULL: nothing */
} sl_checkpoint_options;

/* Opens the directory, which one job at a time writes to, and finds what to go on from. All
 * processes of the job call it. SL_E_USAGE says what is wrong with the directory, or names the
 * term and both values; SL_E_INPUT: there are checkpoints, and none is whole. What
 * the options point to must outlive it. */
sl_status sl_checkpoints_open(const sl_checkpoint_options *options, const sl_job *job,
                              sl_checkpoints **out);
/* After sl_runtime_destroy, whose actors write with it. All of these take NULL, for a run that
 * keeps nothing. */
void sl_checkpoints_close(sl_checkpoints *c);

/* The step that the run begins with, 0 anew; and the directory of the checkpoint it goes on from,
 * or NULL, which is the checkpoints'. */
int64_t sl_checkpoints_start(const sl_checkpoints *c);
const char *sl_checkpoints_from(const sl_checkpoints *c);
/* The steps of the newest that this run goes on from or has written, 0: none. Any thread. */
int64_t sl_checkpoints_newest(const sl_checkpoints *c);

/* Lets the plan keep checkpoints while it runs: sets store_every, on_store, on_stored and
 * store_ctx. */
void sl_checkpoints_lower(sl_checkpoints *c, sl_lower_options *options);

/* Records the plan and the data beside each checkpoint. After sl_lower and before the run.
 * SL_E_USAGE names what is not as it was: an op of the graph, a setting of the optimizer, a file
 * that is read. */
sl_status sl_checkpoints_describe(sl_checkpoints *c, const sl_graph *g, const sl_lowered *lowered);

/* Fills in all that the run goes on from; call it if sl_checkpoints_start is not 0. SL_E_INPUT
 * names what is missing. */
sl_status sl_checkpoints_load(const sl_checkpoints *c, const sl_lowered *lowered, sl_runtime *rt);

/* Writes the last one, unless that step's is there. By all processes. SL_E_IO names the file;
 * those before are untouched. */
sl_status sl_checkpoints_finish(sl_checkpoints *c, const sl_lowered *lowered, sl_runtime *rt,
                                sl_job *job);

#ifdef __cplusplus
}
#endif
#endif
