/* Collectives between CPU processes: what all members of a group do together.
 *
 * Sums are made in the order of the members, ((m0 + m1) + m2) + ..., whatever the
 * timing and wherever an element is summed: all members get the same bits, and the
 * same in every run.
 *
 * A group is a list of processes; the order of the list is the order of sums. All
 * members call the same functions with fitting sizes in the same order. Calls block
 * until this member's part is done, and belong on a thread that may wait. Once a
 * call failed, the group is good for nothing but closing. */
#ifndef SLUICE_COMM_COLLECTIVE_H
#define SLUICE_COMM_COLLECTIVE_H

#include "base/base.h"
#include "comm/mesh.h"

typedef struct sli_group_options {
  const char *name;       /* of the group, unlike any other's of the job */
  const int *members;     /* processes; copied */
  int nmembers, self;     /* self: index of this process in members */
  const char *host;       /* name or address of this host for the others; NULL: its own name */
  sli_store store;        /* not needed any more once the group is open */
  int open_ms;            /* how long connecting may take; 0: 60,000 */
} sli_group_options;

typedef struct sli_group sli_group;

/* Blocks until all members have opened it. */
sl_status sli_group_open(const sli_group_options *options, sli_group **out);
/* Does not wait for others, who may fail if they are not done. close(NULL) is nothing. */
void sli_group_close(sli_group *g);
/* Any thread: the call under way fails with SL_E_STOPPED, and all that follow. */
void sli_group_stop(sli_group *g);

/* How `count` elements are shared out evenly: those of a member. */
size_t sli_group_begin(int nmembers, int member, size_t count);
size_t sli_group_share(int nmembers, int member, size_t count);

/* In place, [count] everywhere. */
sl_status sli_group_all_reduce_f32(sli_group *g, float *data, size_t count);
/* in: the members' parts one behind the other, counts[nmembers] elements; out: the
 * sum of this member's. It may be its part of `in`. */
sl_status sli_group_reduce_scatter_f32(sli_group *g, const float *in, float *out,
                                       const size_t *counts);
/* in: bytes[self]; out: those of all members one behind the other. `in` may be this
 * member's part of `out`. */
sl_status sli_group_all_gather(sli_group *g, const void *in, void *out, const size_t *bytes);
/* in_bytes[m] go to m, out_bytes[m] come from it; each one behind the other. */
sl_status sli_group_all_to_all(sli_group *g, const void *in, const size_t *in_bytes, void *out,
                               const size_t *out_bytes);
/* root: index of a member. */
sl_status sli_group_broadcast(sli_group *g, int root, void *data, size_t bytes);

/* The same between threads of this process, in shared memory: each member's thread
 * sums one part of all. Only the wait for the others can be stopped. */
typedef struct sli_thread_group sli_thread_group;
sli_thread_group *sli_thread_group_create(int nmembers);
void sli_thread_group_destroy(sli_thread_group *g);
void sli_thread_group_stop(sli_thread_group *g);
sl_status sli_thread_group_all_reduce_f32(sli_thread_group *g, int self, float *data,
                                          size_t count);

/* out[i] = ((in[0][i] + in[1][i]) + ...); out may be one of in. */
void sli_sum_f32(float *out, const float *const *in, int n, size_t count);

#endif
