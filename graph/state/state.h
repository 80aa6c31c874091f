/* State that lies in a runtime between runs and outlives it: parameters, quotas, weight files,
 * checkpoints. Programs use sluice/state.h and sluice/lower.h; the rest is for the tools. */
#ifndef SLUICE_GRAPH_STATE_H
#define SLUICE_GRAPH_STATE_H

#include <sluice/state.h>

struct cJSON;
struct sli_fingerprints;
struct sli_shards;

/* Returns the storage format (rest) of a parameter in weight files, limited to formats that it
 * may be stored in; f32 if the files lack it. */
sl_rest sli_weights_rest(const struct sli_shards *from, const char *param);

/* Returns the fingerprint of the model before any pass (fingerprints.c). */
const struct sli_fingerprints *sli_lowered_fingerprints(const sl_lowered *lowered);

/* True if the model has ops or a learning rate of its own, which are known only by their source
 * file. */
bool sli_lowered_own_code(const sl_lowered *lowered);
/* Returns the library that computes products on CPUs, "OpenBLAS 0.3.21"; NULL on other devices. */
const char *sli_lowered_library(const sl_lowered *lowered);
/* Returns the first terms of sl_lowered_terms(), which also decide the results of a resumed run. */
int sli_lowered_results(const sl_lowered *lowered, const sl_term **out);

/* Checks that all processes of a job see one folder. Each writes a small file, process 0 looks
 * for all of them, and they are removed. All processes call it after sl_job_join. `what` is the
 * user's name for it, "--checkpoint DIR". SL_E_USAGE names a process that writes somewhere else,
 * or cannot. A job of one process checks nothing. */
sl_status sli_shared_folder(const char *what, const char *folder, sl_job *job);

/* Returns the seconds of a program's call on the described devices: their mean over the pieces
 * that it is for. 0: not described. */
double sli_lowered_call_seconds(const sl_lowered *lowered, const sl_program *program, int call);

/* Returns the best device for each place, if links were those of `h`, for this plan's traffic,
 * in the format of --assign, for free(). The search anneals and depends only on the seed. NULL:
 * the present places are best, or `h` is not described. */
char *sli_lowered_assign(const sl_lowered *lowered, const sl_hardware *h, uint64_t seed);

/* Returns the record stored beside each checkpoint, to which callers may add information. */
struct cJSON *sli_checkpoints_about(sl_checkpoints *c);
/* Returns the record of the checkpoint that a run resumes from; NULL: there is none. */
const struct cJSON *sli_checkpoints_origin(const sl_checkpoints *c);

/* Loads weights as sl_weights_load() does. whole: the file holds nothing but the model, so a
 * tensor of one of its layers that the model has no place for is an error. */
sl_status sli_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt, bool whole);

#endif
