/* SPDX-License-Identifier: Apache-2.0 */
/* Programs, which devices run, and queues, which launch them.
 *
 * An actor's firing executes one program on one queue. The program is a list of op calls whose
 * arguments are places (base, offset). The firing supplies the bases: the addresses of the slots it
 * reads and writes, and the queue's workspace. A queue is an in-order executor behind a table of
 * operations; the runtime treats a CPU team, a modelled device and a CUDA stream alike. */
#ifndef SLUICE_PROGRAM_H
#define SLUICE_PROGRAM_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Address of an argument: bases[base] + offset. base -1: the argument is NULL. */
typedef struct sl_place {
  int32_t base;
  size_t offset; /* bytes, a multiple of 64 */
} sl_place;

/* Time spent in a call so far, written by the queue that runs it; a queue may measure only some
 * calls. `ns` excludes the first call, a warm-up: the mean is ns / (calls - 1). */
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
  /* Index, in the program, of each argument's valid length; SL_NONE: always full. NULL: all
   * arguments are full. */
  const int16_t *in_length;
  const int16_t *out_length;
  void *state;        /* made by the kernel's prepare(); owned by the program */
  sl_call_time *time; /* NULL: not measured */
} sl_program_call;

/* One piece of cut sequences: its positions, and the program variant for pieces of that length. */
typedef struct sl_program_piece {
  int64_t row, rows;
  int32_t variant;
} sl_program_piece;

typedef struct sl_program {
  int ncalls;                     /* calls of one variant */
  sl_program_call *calls;         /* [nvariants][ncalls] */
  int nbases;                     /* number of bases; the last one is the workspace */
  int nvariants;                  /* variants: the same calls with different shapes; 0: 1 */
  const sl_program_piece *pieces; /* pieces by tick.piece; NULL: sequences are not cut */
  /* Valid lengths. Slots and arguments with the same rows share one length, whose value is known
   * while a firing runs. length_rows: capacity of each in rows. base_length: index of each base's
   * length, or SL_NONE. The first `nread` bases supply their valid lengths; calls set all other
   * lengths. */
  int nlengths;
  int nread;
  const int32_t *length_rows; /* [nlengths] */
  const int16_t *base_length; /* [nbases] */
  /* Shape buckets. A firing runs the first variant v whose buckets[v] is not below the valid
   * length of base `bucket_base`; its calls have room for buckets[v] rows. NULL: the piece selects
   * the variant, or there is only one. */
  const int32_t *buckets; /* [nvariants] */
  int bucket_base;
  int32_t device; /* device of the plan, whose calls share kept state (sl_op_memory.keeps); set
                     by sl_plan_finish */
  void *state;    /* state of the kind of queue that prepared it; NULL: none */
} sl_program;

/* Destination of a link's transfer, a slot in another process. */
typedef struct sl_move {
  int32_t reg, slot;
  int64_t key;
  size_t bytes;       /* valid bytes */
  int32_t valid_rows; /* valid rows if the slot has rows; else 0 */
  int32_t to;         /* base of that slot if both ends are in one process */
} sl_move;

/* Inputs of one firing to its program. Valid during launch: a queue that needs them later copies
 * them. */
typedef struct sl_firing {
  sl_tick tick;
  const char *name;     /* actor's name, for profilers; may be NULL */
  void *const *bases;   /* NULL entry: the firing does not use the port; a call whose outputs are
                           all NULL is skipped */
  const uint8_t *first; /* [nbases] 1: this firing is the first to write that slot */
  const sl_move *move;  /* destination for a link; else NULL */
  /* [nbases] pointers to each slot's valid length, NULL if always full; the last entry receives the
   * number of rows that the firing filled. Entries of inputs are read only. Valid until the firing
   * is complete. NULL: no slot has rows. */
  int32_t *const *lengths;
} sl_firing;

/* Parameters for creating memory. */
typedef struct sl_memory_config {
  int device;       /* number, among devices of its kind, of the device that holds or uses the
                       memory */
  const char *path; /* directory for memory in files; NULL: $TMPDIR, or /var/tmp */
} sl_memory_config;

/* Memory of registers. All functions may block; any thread. */
typedef struct sl_memory_ops {
  const char *name;
  bool fixed; /* reserving allocates all memory immediately, rather than page by page on first
                 use */
  bool far;   /* the host cannot address it, only copy() can access it */
  /* Allocates one zeroed block, near the calling thread. */
  sl_status (*create)(const sl_memory_config *config, size_t bytes, void **memory);
  /* Announces that this part will be used as a whole, so that large pages may back it. May be
   * NULL. */
  void (*use)(void *part, size_t bytes);
  void (*destroy)(void *memory, size_t bytes);
  /* Copies between this memory and the host's, or within it, and waits. */
  sl_status (*copy)(void *to, const void *from, size_t bytes);
} sl_memory_ops;

extern const sl_memory_ops sl_memory_host;     /* pages of the process */
extern const sl_memory_ops sl_memory_disk;     /* offsets in an unnamed file, which is private to
                                                  the process and disappears with it. Addresses
                                                  allow arithmetic but must not be dereferenced */
extern const sl_memory_ops sl_memory_modelled; /* memory of modelled devices: holds no data */

/* Devices whose queues fire together: their n-th firings are one collective, which begins when all
 * have launched it. One record for all members in a process. */
enum { SL_GROUP_ID_BYTES = 128 };
typedef struct sl_group {
  int members;
  const char *name;                    /* devices, for messages: "cuda:0, cuda:1 (process 1)" */
  unsigned char id[SL_GROUP_ID_BYTES]; /* made by one member, equal in all processes */
  struct {
    int arrived;     /* members that have launched it */
    uint64_t end_ns; /* completion, once all have */
  } turns[2];        /* of modelled members: even and odd firings */
} sl_group;

/* Settings of a queue, from the plan. */
typedef struct sl_queue_config {
  int threads;          /* size of the team */
  size_t scratch_bytes; /* largest scratch of all calls that will run here */
  int device;           /* number among devices of its kind, such as the GPU number */
  /* Binds a thread to its core; called by every thread of the team as it starts. */
  void (*bind)(void *arg, int thread);
  void *bind_arg;
  const struct sl_peers *peers; /* transport of a link to another process. NULL: the link's
                                   destination is in this process, and `copy` does the transfer */
  int process;                  /* the link's destination process */
  sl_status (*copy)(void *to, const void *from, size_t bytes);
  const sl_memory_ops *memory, *host; /* the device's own memory, and the host's for it */
  sl_group *group; /* group that fires together, or NULL; lives as long as the queue */
  int rank;        /* place in the group */
  int beside;      /* queues of groups on this device */
} sl_queue_config;

/* One kind of queue. Only the worker that owns a queue calls its functions, unless stated
 * otherwise. */
typedef struct sl_queue_ops {
  const char *name;
  bool modelled; /* touches no data, so it runs on any clock */
  bool asks;     /* modelled, but still reads its programs */

  /* launch() blocks on something other than the processor, so the queue needs a separate worker. */
  bool blocks;

  /* Completion times come from durations, which the plan must supply. */
  bool timed;

  /* Firings overlap: a later firing does not wait for earlier firings; it only completes no earlier
   * than they do. */
  bool overlaps;

  /* launch() does a firing's work itself; its worker reports nothing until the work is done. */
  bool works;

  /* A link: a firing copies its input to the slot that it writes, which may be in another process.
   * With peers, the carrier runs the queue, and the peers report completions. */
  bool link;

  /* Creates a queue; may block and allocate. */
  sl_status (*open)(const sl_queue_config *config, void **queue);
  void (*close)(void *queue);

  /* Starts a firing after all firings already started. Returns true if it is complete on return (a
   * CPU team runs it in this call); otherwise sets *fence, which identifies its completion. Only
   * timed queues use `now_ns` and `duration_ns`. */
  bool (*launch)(void *queue, const sl_program *program, const sl_firing *firing, uint64_t now_ns,
                 uint64_t duration_ns, uint64_t *fence);

  /* Returns true if the firing of this fence has completed. Never blocks. */
  bool (*done)(void *queue, uint64_t fence, uint64_t now_ns);

  /* Returns the time at which a fence will complete, or UINT64_MAX if unknown. */
  uint64_t (*due)(void *queue, uint64_t fence);

  /* Returns the time at which to call done() again for firings without a known completion time,
   * whatever else happens; UINT64_MAX: none. The virtual clock advances to this time. May be
   * NULL. */
  uint64_t (*next)(void *queue);

  /* Makes later launches wait on the device for the firing with `fence` of `other`, an open queue
   * of the same kind; the host does not wait. Firings can then be launched before their inputs are
   * complete. Fences count launches from 1. May be NULL. */
  void (*wait)(void *queue, void *other, uint64_t fence);
  /* Returns true if the firing of a fence had completed at the last done(). Required with wait().
   * Any worker. */
  bool (*passed)(void *queue, uint64_t fence);

  /* Returns the text of the device's failure, or NULL if there is none. Called after launches and
   * while firings do not complete; after a failure nothing else starts or completes. May be
   * NULL. */
  const char *(*failure)(void *queue);

  /* For queues of groups; NULL otherwise. identify() makes a group's id, on one member; any thread.
   * connect() is called again and again before the first run, until *ready; all members of earlier
   * groups are then ready, and workers sleep. abort() ends a firing in flight before close(),
   * without waiting for it. */
  sl_status (*identify)(unsigned char id[SL_GROUP_ID_BYTES]);
  sl_status (*connect)(void *queue, bool *ready);
  void (*abort)(void *queue);

  /* Returns the number of firings launched by replaying a recorded graph. May be NULL. */
  uint64_t (*replayed)(void *queue);

  /* Prepare programs for queues of this kind on device number `device`, and return the largest
   * scratch of their calls. NULL: sl_program_prepare, sl_program_release and sl_program_scratch. */
  sl_status (*prepare)(sl_program *program, int device);
  void (*release)(sl_program *program);
  size_t (*scratch)(const sl_program *program, int threads);
} sl_queue_ops;

extern const sl_queue_ops sl_queue_cpu;   /* a team of cores; launch runs the program */
extern const sl_queue_ops sl_queue_null;  /* touches no data, completes immediately */
extern const sl_queue_ops sl_queue_timed; /* touches no data; runs one firing at a time, each for
                                             its modelled duration */
extern const sl_queue_ops sl_queue_delay; /* touches no data; firings overlap freely, as on a link
                                             with latency but unlimited bandwidth */
extern const sl_queue_ops sl_queue_group; /* touches no data; firings of a group begin together, and
                                             each takes its modelled duration */
extern const sl_queue_ops sl_queue_ends;  /* queue of devices that hold no values: asks sources for
                                             data (sl_source.await), notifies sinks
                                             (sl_sink.passed), runs nothing else */
extern const sl_queue_ops sl_queue_link;  /* copies an actor's input to its output slot in
                                             another process, or within one */

/* Copies between disk memory and host memory, or within disk memory; every call is sl_op_copy. A
 * launch returns when the copy is complete, so the queue should be `apart`. */
extern const sl_queue_ops sl_queue_disk;

/* Runs loads of experts: a launch plans a firing, and a thread behind the queue reads what is not
 * in memory. A firing that reads nothing is complete on return. */
extern const sl_queue_ops sl_queue_loads;

/* Finds every call's CPU kernel and creates its state; release undoes this. */
sl_status sl_program_prepare(sl_program *program);
void sl_program_release(sl_program *program);

/* Returns the largest scratch size over the calls of a prepared program, for a team of
 * `threads`. */
size_t sl_program_scratch(const sl_program *program, int threads);

#ifdef __cplusplus
}
#endif
#endif
