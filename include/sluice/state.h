/* SPDX-License-Identifier: Apache-2.0 */
/* State that outlives a run: weight files and checkpoints.
 *
 *     sl_checkpoints *kept = NULL;
 *     status = sl_checkpoints_open(&(sl_checkpoint_options){.dir = "run1", .resume = true,
 *                                  .nfingerprint = n, .fingerprint = items}, job,
 *                                  &kept);
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
 * Threads: one thread at a time, between runs, unless stated otherwise. */
#ifndef SLUICE_STATE_H
#define SLUICE_STATE_H

#include <sluice/job.h>
#include <sluice/lower.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ---------------------------------------------------------------- */

/* Reads the values of all parameters in this process from a safetensors or GGUF file, or from the
 * files of a Hugging Face folder, by Hugging Face's names; in the file the first component of a
 * name may be missing. SL_E_INPUT and SL_E_SHAPE name the file and the tensor. */
sl_status sl_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt);

/* Writes the values of all parameters, with adapters merged, to a safetensors file, which appears
 * only once it is complete. All processes of the job call it, with the same path on a shared disk.
 * SL_E_IO names the file. */
sl_status sl_weights_save(const char *path, const sl_lowered *lowered, sl_runtime *rt, sl_job *job);

/* Copies values by name from one runtime to another in the same process. Both models must have the
 * same parameters, and this process must hold all parameters of `from`. */
sl_status sl_weights_copy(const sl_lowered *from, sl_runtime *from_rt, const sl_lowered *to,
                          sl_runtime *to_rt);

/* ---- run fingerprint ------------------------------------------------------------- */

/* Run fingerprint of the lowered graph: settings that results depend on and the plan's hash does
 * not cover: the source of the parameters' initial values, the number of parameter slots and the
 * implementation of products. Pass them to sl_job_join, together with the program's settings. The
 * lowered graph owns them. Returns their number. */
int sl_lowered_fingerprint(const sl_lowered *lowered, const sl_fingerprint_item **out);

/* ---- hashes ------------------------------------------------------------------------- */

/* Hash of a parameter ("NAME") or of its optimizer state ("NAME:m"): the sum, modulo 2^64, of a
 * hash of each element's index in the whole and its bits. The hashes of devices' and processes'
 * parts sum to the hash of the whole, however it is sharded. */
typedef struct sl_state_hash {
  const char *name; /* name in the lowered graph */
  uint64_t hash;
} sl_state_hash;
/* Hashes the state that this process holds, without replicas; between runs. The caller frees
 * *out. */
sl_status sl_state_hashes(const sl_lowered *lowered, sl_runtime *rt, sl_state_hash **out,
                          int *count);

/* ---- adapters (sl_lora) -------------------------------------------------------- */

/* A folder in PEFT's format: adapter_model.safetensors and adapter_config.json. */

/* Sets *lora to the sl_training.lora texts that give a model the adapters of a folder, in one block
 * that the caller frees. SL_E_INPUT names an unsupported setting. */
sl_status sl_adapter_modules(const char *dir, int *count, char ***lora);
/* Reads the values of all adapters of this process. */
sl_status sl_adapter_load(const char *dir, const sl_lowered *lowered, sl_runtime *rt);
/* Reads an adapter into one of a graph's places (sl_serving.adapters), counted from 0; linear maps
 * that the folder does not name get no adapter. Between runs, or while nothing uses the place. */
sl_status sl_adapter_place(const char *dir, const sl_lowered *lowered, sl_runtime *rt, int place);
/* Writes all adapters unmerged; called like sl_weights_save(). `base` names the source of the base
 * weights, to be recorded in the folder; NULL: none. */
sl_status sl_adapter_save(const char *dir, const char *base, const sl_lowered *lowered,
                          sl_runtime *rt, sl_job *job);

/* ---- checkpoints -------------------------------------------------------------- */

typedef struct sl_checkpoints sl_checkpoints;

typedef struct sl_checkpoint_options {
  const char *dir; /* directory, created if necessary; on a disk that all processes share */
  int keep;        /* number of recent checkpoints to keep; 0: 2 */
  int64_t every;   /* steps between checkpoints during the run; 0: 100 */
  bool resume;     /* resume from the newest complete checkpoint; if false, the directory must not
                      contain checkpoints */
  /* Settings that results depend on, besides the data: learning rate, seed, ... A checkpoint made
   * with different values is rejected with an error that names the setting. */
  int nfingerprint;
  const sl_fingerprint_item *fingerprint;
  const char *const *usual; /* [nfingerprint] value to assume for a setting in checkpoints that
                               predate it; NULL, as a whole or for one setting: none */
  const char *code;         /* a file with the model's own ops; NULL: none */
  const char *resume_with;  /* comma-separated list of what may differ from the checkpoint: settings
                               ("--lr" or "lr"), "graph", "code", "data"; NULL: nothing */
} sl_checkpoint_options;

/* Opens the directory, which only one job at a time may write, and finds the checkpoint to resume.
 * All processes of the job call it. SL_E_USAGE says what is wrong with the directory, or names a
 * differing setting and both values. SL_E_INPUT: there are checkpoints, but none is complete.
 * Everything that the options point to must outlive the sl_checkpoints. */
sl_status sl_checkpoints_open(const sl_checkpoint_options *options, const sl_job *job,
                              sl_checkpoints **out);
/* Closes the checkpoints. Call it after sl_runtime_destroy, because actors write checkpoints. All
 * these functions accept NULL, for a run without checkpoints. */
void sl_checkpoints_close(sl_checkpoints *c);

/* sl_checkpoints_start returns the first step of the run, 0 for a new run. sl_checkpoints_from
 * returns the directory of the checkpoint that it resumes, or NULL; owned by `c`. */
int64_t sl_checkpoints_start(const sl_checkpoints *c);
const char *sl_checkpoints_from(const sl_checkpoints *c);
/* Returns the step of the newest checkpoint that this run has resumed or written, or 0 if none. Any
 * thread. */
int64_t sl_checkpoints_newest(const sl_checkpoints *c);

/* Makes the plan write checkpoints while it runs: sets store_every, on_store, on_stored and
 * store_ctx. */
void sl_checkpoints_lower(sl_checkpoints *c, sl_lower_options *options);

/* Records the plan and the data with each checkpoint. Call it after sl_lower and before the run.
 * SL_E_USAGE names a difference from the resumed checkpoint: an op of the graph, a setting of the
 * optimizer, a data file. */
sl_status sl_checkpoints_describe(sl_checkpoints *c, const sl_graph *g, const sl_lowered *lowered);

/* Loads the state to resume; call it if sl_checkpoints_start is not 0. SL_E_INPUT names missing
 * state. */
sl_status sl_checkpoints_load(const sl_checkpoints *c, const sl_lowered *lowered, sl_runtime *rt);

/* Writes the final checkpoint, unless the step already has one. All processes call it. SL_E_IO
 * names the file; earlier checkpoints are untouched. */
sl_status sl_checkpoints_finish(sl_checkpoints *c, const sl_lowered *lowered, sl_runtime *rt,
                                sl_job *job);

#ifdef __cplusplus
}
#endif
#endif
