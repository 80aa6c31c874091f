/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and queues: what a device runs, and how it is launched.
 *
 * An actor's firing executes one program on one queue. The program is a list of op calls whose
 * arguments are places (base, offset). The firing supplies the bases: the addresses of the slots it
 * reads and writes, and the queue's workspace. A queue is an in-order executor behind one
 * operations table; the runtime treats a CPU team, a modelled device and a CUDA stream alike. */
#ifndef SLUICE_PROGRAM_H
#define SLUICE_PROGRAM_H

#include <sluice/op.h>
#include <sluice/renamed.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Address of an argument: bases[base] + offset. base -1: the argument is NULL. */
typedef struct sl_place {
  int32_t base;
  size_t offset; /* bytes, a multiple of 64 */
} sl_place;

/* Time spent in a call so far, written by the queue that runs it, which may measure only some
 * calls. `ns` leaves out the first call, a warm-up: the mean is ns / (calls - 1). */
typedef struct sl_call_time {
  uint64_t ns, calls;
} sl_call_time;

typedef struct sl_program_call {
  const sl_op *op;
  const sl_kernel *kernel; /* CPU kernel; set by sl_program_prepare */
  const char *name;        /* name of the op in the graph, for messages and profiles */
  sl_attrs attrs;
  int nin, nout;
  const sl_type *in_type, *out_type;
  const sl_place *in, *out;
  uint32_t accumulate;      /* bit o: output o always adds to its old contents */
  uint32_t accumulate_span; /* bit o: output o adds, except in the first firing that writes its
                               slot */
  /* The program's number of each argument's valid length; SL_NONE: always full. NULL: all arguments
   * are. */
  SL_RENAMED(const int16_t *in_length, const int16_t *in_extent)
  SL_RENAMED(const int16_t *out_length, const int16_t *out_extent)
  void *state;        /* made by the kernel's prepare(); owned by the program */
  sl_call_time *time; /* NULL: not measured */
} sl_program_call;

/* One piece of cut sequences: its positions in them, and the variant of the program for pieces of
 * that length. */
typedef struct sl_program_piece {
  int64_t row, rows;
  int32_t variant;
} sl_program_piece;

typedef struct sl_program {
  int ncalls;                     /* calls of one variant */
  sl_program_call *calls;         /* [nvariants][ncalls] */
  int nbases;                     /* number of bases; the last one is the workspace */
  int nvariants;                  /* variants: the same calls with other shapes; 0: 1 */
  const sl_program_piece *pieces; /* pieces by tick.piece; NULL: sequences are not cut */
  /* Valid lengths. Slots and arguments with the same rows share one number, known while a
   * firing runs. length_rows: rows each has room for. base_length: number of each base's
   * length, or SL_NONE. The first `nread` bases supply their valid lengths; calls set those of the
   * others. */
  SL_RENAMED(int nlengths, int nextents)
  int nread;
  SL_RENAMED(const int32_t *length_rows, const int32_t *extent_rows) /* [nlengths] */
  SL_RENAMED(const int16_t *base_length, const int16_t *base_extent) /* [nbases] */
  /* Shape buckets. A firing runs the first variant v whose buckets[v] is not below the valid
   * length of base `bucket_base`; its calls have room for buckets[v] rows. NULL: the piece selects
   * the variant, or there is only one. */
  SL_RENAMED(const int32_t *buckets, const int32_t *rungs) /* [nvariants] */
  SL_RENAMED(int bucket_base, int rung_base)
  int32_t device; /* device of the plan, whose calls share kept state (sl_op.keeps); set
                     by sl_plan_finish */
  void *state;    /* state of the queue kind that prepared it; NULL: none */
} sl_program;

/* Destination of a link's transfer: a slot in another process. */
typedef struct sl_move {
  int32_t reg, slot;
  int64_t key;
  size_t bytes;                                  /* valid bytes */
  SL_RENAMED(int32_t valid_rows, int32_t extent) /* valid rows if the slot has rows; else 0 */
  int32_t to; /* base of that slot, if both ends are in one process */
} sl_move;

/* Inputs of one firing to its program. Valid during launch: a queue that reads it later makes a
 * copy. */
typedef struct sl_firing {
  sl_tick tick;
  const char *name;     /* actor's name, for profilers; may be NULL */
  void *const *bases;   /* NULL: the port takes no part in this firing; a call without any output
                           left is not run */
  const uint8_t *first; /* [nbases] 1: this firing is the first to write that slot */
  const sl_move *move;  /* destination for a link; else NULL */
  /* [nbases] pointers to each slot's valid length, NULL if always full; the last records how many
   * rows the firing filled. Those of inputs are read only. Valid until the firing is complete.
   * NULL: no slot has rows. */
  SL_RENAMED(int32_t *const *lengths, int32_t *const *extents)
} sl_firing;

/* Parameters for creating memory. */
typedef struct sl_memory_config {
  int device;       /* number of the device, among those of its kind, that holds or uses it */
  const char *path; /* folder of memory that lies in files; NULL: $TMPDIR, or /var/tmp */
} sl_memory_config;

/* Memory of registers. All functions may block; any thread. */
typedef struct sl_memory_ops {
  const char *name;
  bool fixed; /* reserving takes all memory at once: pages are not allocated on first use */
  bool far;   /* the host cannot address it; only copy() reaches it */
  /* Allocates one zeroed block, near the calling thread. */
  sl_status (*create)(const sl_memory_config *config, size_t bytes, void **memory);
  /* Announces that this part will be used as a whole, so large pages may back it. May be NULL. */
  void (*use)(void *part, size_t bytes);
  void (*destroy)(void *memory, size_t bytes);
  /* Copies between this memory and the host's, or within it, and waits. */
  sl_status (*copy)(void *to, const void *from, size_t bytes);
} sl_memory_ops;

extern const sl_memory_ops sl_memory_host;     /* pages of the process */
extern const sl_memory_ops sl_memory_disk;     /* offsets in an unnamed file, private to the process
                                                  and gone with it. Addresses allow arithmetic but no
                                                  dereference */
extern const sl_memory_ops sl_memory_modelled; /* memory of modelled devices beside a host: holds
                                                  nothing */

/* Settings of a queue, from the plan. */
typedef struct sl_queue_config {
  int threads;          /* size of the team */
  size_t scratch_bytes; /* largest scratch of all calls that will run here */
  int device;           /* number among its kind, such as a GPU's */
  /* Binds a thread to its core; called by every thread of the team as it starts. */
  void (*bind)(void *arg, int thread);
  void *bind_arg;
  const struct sl_peers *peers; /* transport of a link to another process. NULL: the link leads
                                   to this process, and `copy` does the transfer */
  int process;                  /* process that the link leads to */
  sl_status (*copy)(void *to, const void *from, size_t bytes);
} sl_queue_config;

/* One kind of queue. The worker that owns the queue calls all functions, never two threads at
 * once. */
typedef struct sl_queue_ops {
  const char *name;
  bool modelled; /* touches no data, so any clock can drive it */
  bool asks;     /* modelled, but still reads its programs */

  /* launch() blocks on something other than the processor: the queue needs a worker of its own. */
  bool blocks;

  /* Completion times come from durations, which the plan must supply. */
  bool timed;

  /* Firings overlap: a later firing does not wait for earlier ones to complete, it only completes
   * no earlier than they do. */
  bool overlaps;

  /* launch() does a firing's work itself; its worker reports nothing until that is done. */
  bool works;

  /* A link: a firing copies its input to the slot that it writes, which may be in another process.
   * With peers the carrier runs it, and the peers report completions. */
  bool link;

  /* Creates a queue; may block and allocate. */
  sl_status (*open)(const sl_queue_config *config, void **queue);
  void (*close)(void *queue);

  /* Starts a firing after those already started. Returns true if it is complete on return (a CPU
   * team runs it here); else sets *fence, which identifies its completion. Only timed queues use
   * `now_ns` and `duration_ns`. */
  bool (*launch)(void *queue, const sl_program *program, const sl_firing *firing, uint64_t now_ns,
                 uint64_t duration_ns, uint64_t *fence);

  /* True if the firing behind this fence has completed. Never blocks. */
  bool (*done)(void *queue, uint64_t fence, uint64_t now_ns);

  /* Time when a fence will complete, if known; else UINT64_MAX. */
  uint64_t (*due)(void *queue, uint64_t fence);

  /* Time at which to call done() again for firings without a known completion time, whatever else
   * happens; UINT64_MAX: none. The virtual clock advances to it. May be NULL. */
  uint64_t (*next)(void *queue);

  /* Makes later launches wait on the device for the firing behind `fence` of `other`, an open queue
   * of the same kind; the host does not wait. Firings can then start before their inputs are
   * complete. Fences count launches from 1. May be NULL. */
  void (*wait)(void *queue, void *other, uint64_t fence);
  /* Goes with wait(): true if that firing had completed at the last done(). Any worker. */
  bool (*passed)(void *queue, uint64_t fence);

  /* Text of the device's failure, or NULL if there is none. Checked after launches and while
   * firings do not complete; after a failure nothing else starts or completes. May be NULL. */
  const char *(*failure)(void *queue);

  /* Number of its firings launched by replaying a recorded graph. May be NULL. */
  uint64_t (*replayed)(void *queue);

  /* Prepare programs for queues of this kind on device number `device`, and return the largest
   * scratch of their calls. NULL: sl_program_prepare, sl_program_release and sl_program_scratch. */
  sl_status (*prepare)(sl_program *program, int device);
  void (*release)(sl_program *program);
  size_t (*scratch)(const sl_program *program, int threads);
} sl_queue_ops;

extern const sl_queue_ops sl_queue_cpu;   /* a team of cores; launch runs the program */
extern const sl_queue_ops sl_queue_null;  /* touches no data, completes at once */
extern const sl_queue_ops sl_queue_timed; /* touches no data; one firing at a time, each takes
                                             its modelled duration */
extern const sl_queue_ops sl_queue_delay; /* touches no data; firings overlap freely: a link of
                                             pure latency */
extern const sl_queue_ops sl_queue_ends;  /* queue of devices that hold no values: asks sources
                                             whether they have data (sl_source.await), tells
                                             sinks (sl_sink.passed), runs nothing else */
extern const sl_queue_ops sl_queue_link;  /* copies an actor's input to its output slot in
                                             another process, or within one */

/* Copies between disk memory and host memory, or within disk memory; every call is sl_op_copy. A
 * launch returns when the copy is complete, so the queue should be `apart`. */
extern const sl_queue_ops sl_queue_disk;

/* Finds every call's CPU kernel and makes its state; release undoes it. */
sl_status sl_program_prepare(sl_program *program);
void sl_program_release(sl_program *program);

/* Largest scratch over the calls of a prepared program, for a team of `threads`. */
size_t sl_program_scratch(const sl_program *program, int threads);

#ifdef __cplusplus
}
#endif
#endif
