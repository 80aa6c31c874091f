/* Programs and queues: what a device runs, and how it is told to.
 *
 * An actor's firing executes one program on one queue. The program is a list
 * of op calls whose arguments are places (base, offset); the firing brings the
 * bases: the addresses of the slots it reads and writes, and the queue's
 * workspace. A queue is an in-order executor behind one operations table; the
 * runtime treats a CPU team, a modelled device and a CUDA stream alike. */
#ifndef SLUICE_PROGRAM_H
#define SLUICE_PROGRAM_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where an argument lies: bases[base] + offset. base -1: the argument is NULL. */
typedef struct sl_place {
  int32_t base;
  size_t offset; /* bytes, a multiple of 64 */
} sl_place;

/* Time a call has taken so far, written by the queue that runs it, which may measure some of
 * its calls only. `ns` leaves the first of these out, which warms up: the mean is
 * ns / (calls - 1). */
typedef struct sl_call_time {
  uint64_t ns, calls;
} sl_call_time;

typedef struct sl_program_call {
  const sl_op *op;
  const sl_kernel *kernel;  /* runs it on CPUs; set by sl_program_prepare */
  const char *name; /* of the op in the graph, for messages and profiles */
  sl_attrs attrs;
  int nin, nout;
  const sl_type *in_type, *out_type;
  const sl_place *in, *out;
  uint32_t accumulate;      /* bit o: output o always adds to what is there */
  uint32_t accumulate_span; /* bit o: output o adds, except in the first firing that
                               writes its slot */
  /* Which of the program's extents an argument has, SL_NONE: it is always full. NULL: all are. */
  const int16_t *in_extent, *out_extent;
  void *state;              /* of the kernel's prepare(); owned by the program */
  sl_call_time *time;       /* NULL: not measured */
} sl_program_call;

/* One piece of sequences that are cut: its positions in them, and which variant
 * of the program is for pieces of that length. */
typedef struct sl_program_piece {
  int64_t row, rows;
  int32_t variant;
} sl_program_piece;

typedef struct sl_program {
  int ncalls;              /* of one variant */
  sl_program_call *calls;  /* [nvariants][ncalls] */
  int nbases; /* how many bases its places refer to; the last one is the workspace */
  int nvariants;           /* the same calls with other shapes; 0: 1 */
  const sl_program_piece *pieces; /* by tick.piece; NULL: sequences are not cut */
  /* Extents: one number for all slots and arguments that have the same rows, known while a firing
   * runs. For how many rows each has room, and which one the slot of each base has, or SL_NONE. The
   * first `nread` bases bring theirs; the others get theirs, as calls have filled them. */
  int nextents, nread;
  const int32_t *extent_rows; /* [nextents] */
  const int16_t *base_extent; /* [nbases] */
  /* Variants by extent: the first one v whose rungs[v] is not below the extent of base `rung_base`;
   * its calls have room for rungs[v] rows. NULL: by piece, or there is one. */
  const int32_t *rungs;             /* [nvariants] */
  int rung_base;
  int32_t device;          /* of the plan, whose calls share what they keep (sl_op.keeps); set
                              by sl_plan_finish */
  void *state; /* of the kind of queue that prepared it; NULL: none */
} sl_program;

/* Where a link carries what it reads: a slot that lies in another process. */
typedef struct sl_move {
  int32_t reg, slot;
  int64_t key;
  size_t bytes;         /* that are valid */
  int32_t extent;       /* rows that are, where the slot has rows; else 0 */
  int32_t to;           /* base of that slot, where both ends are of one process */
} sl_move;

/* What one firing brings to its program. Valid during launch: a queue that
 * looks at it later makes a copy. */
typedef struct sl_firing {
  sl_tick tick;
  const char *name;     /* of the actor, for profilers; may be NULL */
  void *const *bases;   /* NULL: the port sits this firing out; a call without any output
                           left is not run */
  const uint8_t *first; /* [nbases] 1: this firing is the first to write that slot */
  const sl_move *move;  /* of a link, else NULL */
  /* [nbases] where the extent of each slot stands, NULL: it is always full; and the last, where it
   * is noted what the firing filled. Of what is read only to be read; there until the firing is
   * complete. NULL: no slot has rows. */
  int32_t *const *extents;
} sl_firing;

/* Which memory is wanted. */
typedef struct sl_memory_config {
  int device;       /* which of its kind it is on, or for */
  const char *path; /* of memory that lies in files: their folder; NULL: $TMPDIR, or /var/tmp */
} sl_memory_config;

/* Memory that registers lie in. All may block; any thread. */
typedef struct sl_memory_ops {
  const char *name;
  bool fixed; /* all that is reserved is taken: there are no pages to be taken when used */
  bool far;   /* the host does not reach it by address: only copy() does */
  /* In one piece, zeroed; near the calling thread. */
  sl_status (*create)(const sl_memory_config *config, size_t bytes, void **memory);
  /* NULL, or: this part of it will all be used, so it may be taken in large pages. */
  void (*use)(void *part, size_t bytes);
  void (*destroy)(void *memory, size_t bytes);
  /* Between this memory and the host's, or within it, and waits. */
  sl_status (*copy)(void *to, const void *from, size_t bytes);
} sl_memory_ops;

extern const sl_memory_ops sl_memory_host; /* pages of the process */
extern const sl_memory_ops sl_memory_disk; /* places in a file without a name, which nobody else
                                              sees and which ends with the process. Their
                                              addresses can be counted with, not followed */
extern const sl_memory_ops sl_memory_modelled; /* of modelled devices beside a host: holds nothing */

/* Settings of a queue, from the plan. */
typedef struct sl_queue_config {
  int threads;         /* size of the team */
  size_t scratch_bytes; /* largest scratch of any call that will run here */
  int device;          /* which of its kind: a GPU's number */
  /* Called by every thread of the team as it starts (binds it to its core). */
  void (*bind)(void *arg, int thread);
  void *bind_arg;
  const struct sl_peers *peers; /* of a link: how to reach the process it leads to; NULL: it is */
  int process;                  /* this one, and `copy` carries what the link does */
  sl_status (*copy)(void *to, const void *from, size_t bytes);
} sl_queue_config;

/* One kind of queue. All functions are called by the worker that owns the
 * queue, never by two threads at once. */
typedef struct sl_queue_ops {
  const char *name;
  bool modelled; /* touches no data, so it follows any clock */
  bool asks;     /* and looks at its programs all the same */

  /* launch() waits for something other than the processor: its queue is to have a worker of its
   * own. */
  bool blocks;

  /* Completion times come from durations: the plan must bring them. */
  bool timed;

  /* Firings run side by side: one that was launched later does not wait for
   * those before it to complete, only completes no earlier. */
  bool overlaps;

  /* launch() does a firing's work itself: nobody else hears of its worker until that is done. */
  bool works;

  /* A link: a firing copies its input to the slot that it writes, which may lie in another
   * process. With peers the carrier runs it, and completions are news of the peers. */
  bool link;

  /* Makes a queue; may block and allocate. */
  sl_status (*open)(const sl_queue_config *config, void **queue);
  void (*close)(void *queue);

  /* Starts a firing behind those already started. Returns true if it is
   * complete on return (a CPU team runs it here); else *fence names its
   * completion. `now_ns` and `duration_ns` matter to timed queues only. */
  bool (*launch)(void *queue, const sl_program *program, const sl_firing *firing,
                 uint64_t now_ns, uint64_t duration_ns, uint64_t *fence);

  /* Has the firing behind this fence completed? Never blocks. */
  bool (*done)(void *queue, uint64_t fence, uint64_t now_ns);

  /* When a fence will complete, if that can be known; else UINT64_MAX. */
  uint64_t (*due)(void *queue, uint64_t fence);

  /* NULL, or: of a firing of which that cannot be known, when done() is to be asked again, whatever
   * else happens; UINT64_MAX: there is no such time. On the virtual clock, which goes on to it. */
  uint64_t (*next)(void *queue);

  /* NULL, or: what is started from now on waits, on the device, for the firing behind
   * `fence` of `other`, an open queue of the same kind; the host does not. Then firings
   * may be started whose inputs are still being made. Fences count launches from 1. */
  void (*wait)(void *queue, void *other, uint64_t fence);
  /* With it: had that firing completed when done() was asked last? Any worker. */
  bool (*passed)(void *queue, uint64_t fence);

  /* NULL, or: what the device has failed with, as text, or NULL. Looked at after launches and
   * while firings do not complete: once it has, nothing else is started or completes. */
  const char *(*failure)(void *queue);

  /* NULL, or: how many of its firings were launched as one thing that was made before. */
  uint64_t (*replayed)(void *queue);

  /* How programs are made ready for queues of this kind, on device number `device`, and
   * how large the largest scratch of their calls is. NULL: by sl_program_prepare,
   * sl_program_release and sl_program_scratch. */
  sl_status (*prepare)(sl_program *program, int device);
  void (*release)(sl_program *program);
  size_t (*scratch)(const sl_program *program, int threads);
} sl_queue_ops;

extern const sl_queue_ops sl_queue_cpu;   /* a team of cores; launch runs the program */
extern const sl_queue_ops sl_queue_null;  /* touches no data, completes at once */
extern const sl_queue_ops sl_queue_timed; /* touches no data, one firing at a time, each
                                             takes its modelled duration */
extern const sl_queue_ops sl_queue_delay; /* touches no data, firings overlap freely: a
                                             link of pure latency */
extern const sl_queue_ops sl_queue_ends;  /* of devices that hold no values: asks sources whether they
                                             have something (sl_source.await), tells sinks
                                             (sl_sink.passed), runs nothing else */
extern const sl_queue_ops sl_queue_link;  /* carries what an actor reads to the slot it
                                             writes, which lies in another process; within
                                             one process, copies it */


/* Copies between disk memory and the host's, or within disk memory: each call is sl_op_copy.
 * A launch returns once all has come, so the queue should be apart. */
extern const sl_queue_ops sl_queue_disk;

/* Finds every call's kernel for CPUs and makes its state; release undoes it. */
sl_status sl_program_prepare(sl_program *program);
void sl_program_release(sl_program *program);

/* Largest scratch over the calls of a prepared program, for a team of `threads`. */
size_t sl_program_scratch(const sl_program *program, int threads);

#ifdef __cplusplus
}
#endif
#endif
