/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of actortrace: the analysis of a trace, replays of its plan, and the
 * commands. */
#ifndef SLUICE_TOOLS_ACTORTRACE_ACTORTRACE_H
#define SLUICE_TOOLS_ACTORTRACE_ACTORTRACE_H

#include <stdio.h>

#include <sluice/trace.h>

#include "actors/prove/prove.h"
#include "base/base.h"

/* ---- analysis --------------------------------------------------------------------- */

/* The cause that let a firing start: the last of its ports to be satisfied. */
typedef struct cause {
  uint64_t ready_ns; /* earliest time at which it could have started */
  uint64_t input_ns; /* time at which its inputs were ready, with or without slots */
  int64_t by;        /* the firing whose end satisfied the port, or -1 */
  int32_t reg;       /* the register of the port, or SL_NONE */
  uint8_t wait;      /* SL_WAIT_INPUT, SL_WAIT_CREDIT, or SL_WAIT_NONE: it waited for nothing */
  bool known;        /* false: the cause is not in the trace */
} cause;

/* One use of a slot. */
typedef struct hold {
  int32_t reg;
  int64_t key;
  uint64_t taken_ns, ready_ns, freed_ns; /* freed UINT64_MAX: still in use at the end */
  int64_t taken_by, ready_by, freed_by;  /* firings; -1: before the trace */
} hold;

/* A stretch of a device's time: one firing, or idle for one reason. */
typedef struct piece {
  uint64_t from_ns, to_ns;
  int64_t firing; /* the firing that ran; idle: the one that ended the wait */
  int32_t reg;    /* the register waited for, or SL_NONE */
  uint8_t wait;   /* SL_WAIT_NONE: busy */
} piece;

typedef struct line {
  piece *pieces; /* without gaps, from the first firing of all devices to the last end */
  size_t count;
} line;

typedef struct analysis {
  const sl_trace *trace;
  const sl_plan *plan;
  const sl_trace_firing *firings; /* owned by the trace */
  size_t nfirings;
  struct sli_flow *flow;
  cause *causes;    /* [nfirings] */
  int64_t *before;  /* [nfirings] the previous firing on its queue, or -1 */
  int32_t *shelf;   /* [nfirings] lane of its queue, because firings of a link overlap */
  int32_t *shelves; /* [nqueues] number of lanes: 1 if none overlap */
  hold *holds;      /* by register, then in the order in which slots are taken */
  size_t nholds;
  size_t *first_hold; /* [nregs + 1] */
  bool *work_queue;   /* [nqueues] the queue does its device's work */
  line *lines;        /* [ndevices] */
} analysis;

analysis *analysis_create(const sl_trace *trace);
void analysis_destroy(analysis *a);

/* Parts of the analysis, each made from the previous ones. */
void make_holds(analysis *a);
void find_causes(analysis *a);
void find_queues(analysis *a); /* finds queues that do their devices' work */
void find_before(analysis *a);
void find_shelves(analysis *a);
void draw_lines(analysis *a);

/* Finds a hold by register and key, or returns NULL. Holds are sorted by key until the causes are
 * known. */
const hold *find_hold(const analysis *a, int32_t reg, int64_t key);
/* Returns the first piece that ends after `ns`. */
size_t find_piece(const line *l, uint64_t ns);
/* Returns why a firing did not start once it could. */
uint8_t wait_once_ready(const analysis *a, int64_t firing);

static inline int32_t actor_device(const sl_plan *plan, int32_t actor) {
  return plan->queues[plan->actors[actor].queue].device;
}
/* Returns whether a class counts as a device's work: forward and gradients. */
static inline bool is_work(sl_class cls) {
  return cls == SL_CLASS_F || cls == SL_CLASS_B || cls == SL_CLASS_W;
}

/* Time of one device in one step, from the first start of its work to the last end. span = busy
 * + other + sum of idle, to the nanosecond. */
typedef struct account {
  uint64_t from_ns, to_ns;
  uint64_t busy_ns;  /* work of the step */
  uint64_t other_ns; /* other firings: updates, another step */
  uint64_t idle_ns[SL_WAIT_COUNT];
} account;
static inline uint64_t account_span(const account *x) { return x->to_ns - x->from_ns; }

account account_make(const analysis *a, int32_t device, int64_t step);

/* Finds the window from the first start to the last end of the devices' work in a step. Without
 * work, the step's other firings count. Returns false if the trace does not have the step. */
bool work_window(const analysis *a, int64_t step, uint64_t *from_ns, uint64_t *to_ns);

/* Calls `on` for each idle piece of the device's span in the step. */
typedef void on_piece(void *ctx, const piece *p);
void visit_idle(const analysis *a, const account *x, int32_t device, on_piece *on, void *ctx);

/* A segment of a walk back. walk_back() follows a firing's waits from its start, `to_ns`, back to
 * `from_ns`, and reports the latest segment first. Every nanosecond belongs to a firing that ran
 * meanwhile, or to a wait that no running firing explains. */
typedef struct segment {
  uint64_t from_ns, to_ns;
  int64_t firing; /* the firing that ran, or that was waiting */
  uint8_t wait;   /* SL_WAIT_NONE: it ran */
  int32_t credit; /* the register whose lack of slots led here, or SL_NONE */
} segment;
typedef void on_segment(void *ctx, const segment *l);
void walk_back(const analysis *a, int64_t firing, uint64_t from_ns, uint64_t to_ns, on_segment *on,
               void *ctx);

/* Returns the critical path of a step: the firing of its work that ends last, and its waits, back
 * to the first start. Latest first, without gaps; the caller frees it. */
segment *critical_path(const analysis *a, int64_t step, size_t *count);

/* Complete steps of the trace. If there are several, the first is excluded as a warm-up. */
typedef struct step_range {
  int64_t first, last; /* last < first if there are none */
} step_range;
step_range steps_to_count(const analysis *a);
/* Returns the step of median length. */
int64_t typical_step(const analysis *a);
const sl_trace_step *find_step(const sl_trace *t, int64_t step); /* or NULL */
/* Iterates over the existing steps of a range, from next_step(t, r, 0) up to nsteps; and counts
 * them. */
size_t next_step(const sl_trace *t, step_range r, size_t at);
int64_t count_steps(const sl_trace *t, step_range r);

/* A value that holds from a time on; the first one holds from 0. */
typedef struct sample {
  uint64_t ns;
  int64_t value;
} sample;

/* Return the bytes in use on a device, workspace included, and the slots in use of a register. The
 * caller frees the arrays. */
sample *bytes_curve(const analysis *a, int32_t device, size_t *count);
sample *slots_curve(const analysis *a, int32_t reg, size_t *count);
uint64_t peak_bytes(const analysis *a, int32_t device);
/* Passes on the curves of a device, or of all if it is -1: bytes in use, and slots of registers
 * with a quota. */
typedef void curve_reader(void *ctx, int32_t device, const char *name, bool of_bytes,
                          const sample *all, size_t count);
void each_curve(const analysis *a, int32_t device, curve_reader *read, void *ctx);

/* ---- replay ------------------------------------------------------------------------ */

/* Returns median durations from the trace, in seconds, [nactors]; the plan's duration for an actor
 * that never fired. The caller frees them. */
double *measured_seconds(const sl_trace *t);

/* Replay of the plan on the virtual clock with given durations, and `extra` additional slots for
 * each register, then for each pool; NULL if none. */
typedef struct replay {
  sli_simulation simulation;
  double step_seconds;
} replay;
sl_status replay_run(const sl_plan *plan, const double *seconds, const int32_t *extra,
                     int64_t steps, replay *out);
void replay_fini(replay *r);

/* Advice about one knob, a quota name and a stage, and its registers. */
typedef struct advice {
  const char *knob;    /* "act.b" */
  int32_t stage;       /* SL_NONE for every stage */
  int32_t pool;        /* the pool whose quota the knob is, otherwise SL_NONE */
  int32_t reg;         /* the knob's register with the longest waits */
  int32_t nregs;       /* number of the knob's registers */
  int32_t slots;       /* current number of slots */
  uint64_t more_bytes; /* bytes of one extra slot of each register */
  double step_seconds; /* seconds of a step with the extra slots */
} advice;

typedef struct advices {
  double step_seconds; /* seconds of a step without changes */
  int32_t tried, candidates;
  int32_t count; /* advice that saves time, best first */
  advice *items;
} advices;
/* Finds what one more slot would save, knob by knob, within about `limit_seconds`. */
sl_status advise(const analysis *a, double limit_seconds, advices *out);
/* Returns whether a knob applies to a register. */
bool answers(const sl_plan *plan, int32_t reg, const advice *a);

/* ---- output -------------------------------------------------------------------------- */

/* Rows and sequences of a server's tick. */
typedef struct tick_taken {
  int32_t sequences, rows;
  int32_t chunk_rows; /* rows of prompts, not counting one per sequence */
  int64_t behind;     /* the most positions before a sequence's rows */
} tick_taken;

typedef struct ticks {
  size_t count, capacity;
  tick_taken *items;        /* [count] by number */
  sl_trace_firing *firings; /* copy of the trace's firings; each pass has its tick's rows */
} ticks;

/* Reads a file written by actorserve --log. The trace uses the firings of `out` until it is closed.
 * SL_E_INPUT names the file. */
sl_status ticks_open(const char *path, sl_trace *t, ticks *out);
void ticks_close(ticks *all);
/* Returns a firing's tick, or NULL if the firing is not a pass or the file does not have the
 * tick. */
const tick_taken *tick_of(const sl_trace *t, const ticks *all, const sl_trace_firing *f);
/* Prints durations of ticks, with and without prompt chunks. */
void ticks_print(const sl_trace *t, const ticks *all, FILE *out);

typedef struct options {
  const char *path, *other, *out; /* other: the second file of diff */
  int64_t step;                   /* -1 if not given */
  int64_t steps;                  /* number of steps in a figure, from `step` on; 0 means one */
  int32_t device;                 /* -1 for all */
  int width;                      /* 0 for the terminal's width */
  int color;                      /* -1: decided by the output, else 0 or 1 */
  bool queues;                    /* show all queues, not only those that do the work */
  const char *log;                /* log of a server's ticks, or NULL */
  const ticks *ticks;             /* contents of the log, or NULL */
} options;

/* Formats "12.3 ms" into at least 32 bytes. */
static inline char *format_ns(char *out, double ns) { return sli_format_seconds(out, ns * 1e-9); }
/* Returns the label of a class in this plan: B is the whole backward pass if there is no
 * separate W. */
const char *class_label(const sl_plan *plan, sl_class cls);

/* Word wrap in lines of `width` columns; all but the first line are indented by `indent` spaces. */
typedef struct wrap {
  FILE *out;
  int width, indent, column; /* column reached in the current line */
} wrap;
void wrap_words(wrap *w, const char *text);
/* Prints wrapped text that begins in column `indent`, and ends its last line. */
void print_wrapped(FILE *out, int width, int indent, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

sl_status command_show(const sl_trace *t, const options *o, FILE *out);
sl_status command_rows(const sl_trace *t, const options *o, FILE *out);
sl_status command_reasons(const sl_trace *t, const options *o, FILE *out);
sl_status command_shares(const sl_trace *t, const options *o, FILE *out);
sl_status command_page(const sl_trace *t, const options *o, FILE *out);
sl_status command_svg(const sl_trace *t, const options *o, FILE *out);
sl_status command_chrome(const sl_trace *t, const options *o, FILE *out);
sl_status command_perfetto(const sl_trace *t, const options *o, FILE *out);
sl_status command_diff(const sl_trace *a, const sl_trace *b, const options *o, FILE *out);

/* Prints a string without its quotes, escaped for JSON and for JavaScript in HTML. */
void put_json(FILE *out, const char *text);

#endif
