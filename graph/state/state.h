/* What lies in a runtime between runs, and outlives it: parameters, quotas, weight files,
 * checkpoints. sluice/state.h and sluice/lower.h are what programs see; the rest is for the tools. */
#ifndef SLUICE_GRAPH_STATE_H
#define SLUICE_GRAPH_STATE_H

#include <sluice/state.h>

struct cJSON;
struct sli_fingerprints;
struct sli_shards;

/* How a parameter lies in weight files: as it may lie at rest; f32, where it is not there. */
sl_rest sli_weights_rest(const struct sli_shards *from, const char *param);

/* Of the model as it was before any pass (fingerprints.c). */
const struct sli_fingerprints *sli_lowered_fingerprints(const sl_lowered *lowered);

/* Has it ops, or a learning rate, of the model's own, which nobody knows but by the file that they are in? */
bool sli_lowered_own_code(const sl_lowered *lowered);
/* What computes products on CPUs, "OpenBLAS 0.3.21"; NULL: elsewhere. */
const char *sli_lowered_library(const sl_lowered *lowered);
/* The first ones of sl_lowered_terms(), which decide the results of a run that goes on from another, too. */
int sli_lowered_results(const sl_lowered *lowered, const sl_term **out);

/* Each process of a job writes a small file into a folder, and process 0 looks at all of them; they are gone afterwards. By
 * all processes, after sl_job_join. `what` is what the user calls it, "--checkpoint DIR". SL_E_USAGE names a process that
 * writes somewhere else, or cannot. Nothing is tried in a job of one. */
sl_status sli_shared_folder(const char *what, const char *folder, sl_job *job);

/* What a call of a program takes, as its devices are described: over the pieces that it is for, their
 * mean. 0: they are not. */
double sli_lowered_call_seconds(const sl_lowered *lowered, const sl_program *program, int call);

/* Which device would be best at each place if links were those of `h`, for what this plan sends, as --assign has it: found
 * by annealing, the same for the same seed; the caller's to free(). NULL: they are where they should be, or its
 * own hardware is not described. */
char *sli_lowered_assign(const sl_lowered *lowered, const sl_hardware *h, uint64_t seed);

/* The record that stands beside each checkpoint, for more that people may want to know. */
struct cJSON *sli_checkpoints_about(sl_checkpoints *c);
/* That of the checkpoint a run goes on from; NULL: there is none. */
const struct cJSON *sli_checkpoints_origin(const sl_checkpoints *c);

/* As sl_weights_load(); whole: the model is all that a file of such is about, so a tensor of one of its layers that it has
 * no place for is an error. */
sl_status sli_weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt, bool whole);

#endif
