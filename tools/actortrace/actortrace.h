/* What the parts of actortrace share: the analysis of a trace, replays of its
 * plan, and the commands. */
#ifndef SLUICE_TOOLS_ACTORTRACE_H
#define SLUICE_TOOLS_ACTORTRACE_H

#include <stdio.h>

#include <sluice/trace.h>

#include "actors/prove/prove.h"
#include "base/base.h"

/* ---- analysis --------------------------------------------------------------------- */

/* What let a firing go: the last of its ports to be satisfied. */
typedef struct cause {
  uint64_t ready_ns; /* when; from then on it could have started */
  uint64_t input_ns; /* when its inputs were ready, slots or not */
  int64_t by;        /* the firing whose end did it, or -1 */
  int32_t reg;       /* through which register, or SL_NONE */
  uint8_t wait;      /* SL_WAIT_INPUT, SL_WAIT_CREDIT, or SL_WAIT_NONE: it waited for nothing */
  bool known;        /* false: what it waited for is not in the trace */
} cause;

/* One slot in use. */
typedef struct hold {
  int32_t reg;
  int64_t key;
  uint64_t taken_ns, ready_ns, freed_ns; /* freed UINT64_MAX: still in use at the end */
  int64_t taken_by, ready_by, freed_by;  /* firings, or -1: before the trace */
} hold;

/* A stretch of a device's time: one firing, or idle for one reason. */
typedef struct piece {
  uint64_t from_ns, to_ns;
  int64_t firing; /* that ran; idle: the one that ended the wait */
  int32_t reg;    /* waited for, or SL_NONE */
  uint8_t wait;   /* SL_WAIT_NONE: busy */
} piece;

typedef struct line {
  piece *pieces; /* without holes, from the first firing of all devices to the last end */
  size_t count;
} line;

typedef struct analysis {
  const sl_trace *trace;
  const sl_plan *plan;
  const sl_trace_firing *firings; /* the trace's */
  size_t nfirings;
  struct sli_flow *flow;
  cause *causes;    /* [nfirings] */
  int64_t *before;  /* [nfirings] the firing before it on its queue, or -1 */
  int32_t *shelf;   /* [nfirings] firings of a link overlap: which of its queue's rows */
  int32_t *shelves; /* [nqueues] how many rows: 1 where none overlap */
  hold *holds;      /* by register, then in order of being taken */
  size_t nholds;
  size_t *first_hold; /* [nregs + 1] */
  bool *work_queue; /* [nqueues] does the queue do its device's work? */
  line *lines;      /* [ndevices] */
} analysis;

analysis *analysis_create(const sl_trace *trace);
void analysis_destroy(analysis *a);

/* The parts of an analysis, each made from those before it. */
void make_holds(analysis *a);
void find_causes(analysis *a);
void find_queues(analysis *a);  /* which do their devices' work */
void find_before(analysis *a);
void find_shelves(analysis *a);
void draw_lines(analysis *a);

/* Of a register and key, or NULL. Holds are in order of their keys until the causes are known. */
const hold *find_hold(const analysis *a, int32_t reg, int64_t key);
/* The first piece that ends after `ns`. */
size_t find_piece(const line *l, uint64_t ns);
/* Why a firing that could have gone did not. */
uint8_t wait_once_ready(const analysis *a, int64_t firing);

static inline int32_t actor_device(const sl_plan *plan, int32_t actor) {
  return plan->queues[plan->actors[actor].queue].device;
}
/* Forward and gradients: what a device's busy time counts. */
static inline bool is_work(sl_class cls) {
  return cls == SL_CLASS_F || cls == SL_CLASS_B || cls == SL_CLASS_W;
}

/* The time of one device in one step, from the first start of its work to the
 * last end; span = busy + other + sum of idle, to the nanosecond. */
typedef struct account {
  uint64_t from_ns, to_ns;
  uint64_t busy_ns;              /* work of the step */
  uint64_t other_ns;             /* busy with anything else: updates, another step */
  uint64_t idle_ns[SL_WAIT_COUNT];
} account;
static inline uint64_t account_span(const account *x) { return x->to_ns - x->from_ns; }

account account_make(const analysis *a, int32_t device, int64_t step);

/* From the first start of the devices' work in a step to the last end; of the
 * step's other firings if there is no work. False: the trace lacks the step. */
bool work_window(const analysis *a, int64_t step, uint64_t *from_ns, uint64_t *to_ns);

/* Calls `on` for each idle piece of the device's span in the step. */
typedef void on_piece(void *ctx, const piece *p);
void visit_idle(const analysis *a, const account *x, int32_t device, on_piece *on, void *ctx);

/* Follows what the firing waited for backwards, from `to_ns`, its start, to
 * `from_ns`: every nanosecond goes to a firing that ran meanwhile, or to a wait
 * that nothing that ran explains. Latest first. */
typedef struct segment {
  uint64_t from_ns, to_ns;
  int64_t firing;   /* that ran, or that was waiting */
  uint8_t wait;     /* SL_WAIT_NONE: it ran */
  int32_t credit;   /* the register for want of whose slots it came to this, or SL_NONE */
} segment;
typedef void on_segment(void *ctx, const segment *l);
void walk_back(const analysis *a, int64_t firing, uint64_t from_ns, uint64_t to_ns,
               on_segment *on, void *ctx);

/* The critical path of a step: the last firing of its work to end, and what it
 * waited for, back to the first start. Latest first, without holes; the caller's
 * to free. */
segment *critical_path(const analysis *a, int64_t step, size_t *count);

/* Whole steps of the trace; of several, the first is left out as warming up. */
typedef struct step_range {
  int64_t first, last; /* last < first: there is none */
} step_range;
step_range steps_to_count(const analysis *a);
/* The step whose length is the median. */
int64_t typical_step(const analysis *a);
const sl_trace_step *find_step(const sl_trace *t, int64_t step); /* or NULL */
/* The steps there are of a range, one after another from next_step(t, r, 0) on to nsteps; and how
 * many. */
size_t next_step(const sl_trace *t, step_range r, size_t at);
int64_t count_steps(const sl_trace *t, step_range r);

/* A value from a moment on; the first is from 0. */
typedef struct sample {
  uint64_t ns;
  int64_t value;
} sample;

/* Bytes in use on a device, workspace included; slots in use of a register. The
 * arrays are the caller's to free. */
sample *bytes_curve(const analysis *a, int32_t device, size_t *count);
sample *slots_curve(const analysis *a, int32_t reg, size_t *count);
uint64_t peak_bytes(const analysis *a, int32_t device);

/* ---- replay ------------------------------------------------------------------------ */

/* Median durations of the trace, in seconds, [nactors]; the plan's own where an
 * actor never fired. The caller's to free. */
double *measured_seconds(const sl_trace *t);

/* The plan on the virtual clock with such durations and `extra` slots more for
 * each register, then each pool; NULL: none. */
typedef struct replay {
  sli_rehearsal rehearsal;
  double step_seconds;
} replay;
sl_status replay_run(const sl_plan *plan, const double *seconds, const int32_t *extra,
                     int64_t steps, replay *out);
void replay_fini(replay *r);

/* Registers that answer to one knob: a quota name and a stage. */
typedef struct advice {
  const char *knob;    /* "act.b" */
  int32_t stage;       /* SL_NONE: at every stage */
  int32_t pool;        /* the knob is this pool's quota; else SL_NONE */
  int32_t reg;         /* one of the registers, the one waited for most */
  int32_t nregs;       /* how many answer to it */
  int32_t slots;       /* of it now */
  uint64_t more_bytes; /* an extra slot of each costs */
  double step_seconds; /* with it */
} advice;

typedef struct advices {
  double step_seconds; /* of the replay as it is */
  int32_t tried, candidates;
  int32_t count;       /* those that save something, best first */
  advice *items;
} advices;
/* What one more slot would save, knob by knob, for about `limit_seconds`. */
sl_status advise(const analysis *a, double limit_seconds, advices *out);
/* Does the register answer to that knob? */
bool answers(const sl_plan *plan, int32_t reg, const advice *a);

/* ---- output -------------------------------------------------------------------------- */

/* What a tick of a server took. */
typedef struct tick_taken {
  int32_t sequences, rows;
  int32_t chunk_rows;  /* of prompts, as far as they are more than one of a sequence */
  int64_t behind;      /* the most positions that a sequence's rows stand behind */
} tick_taken;

typedef struct ticks {
  size_t count, capacity;
  tick_taken *of;           /* [count] by number */
  sl_trace_firing *firings; /* the trace's, each pass with its tick's rows */
} ticks;

/* Of a file that actorserve --log has written; the trace's firings are those of the ticks until they are closed. SL_E_INPUT
 * names the file. */
sl_status ticks_open(const char *path, sl_trace *t, ticks *out);
void ticks_close(ticks *all);
/* NULL: the firing is no pass, or the file has no such tick. */
const tick_taken *tick_of(const sl_trace *t, const ticks *all, const sl_trace_firing *f);
/* How long ticks took, with chunks of prompts and without. */
void ticks_print(const sl_trace *t, const ticks *all, FILE *out);

typedef struct options {
  const char *path, *other, *out; /* other: the second file of diff */
  int64_t step;                   /* -1: not given */
  int64_t steps;                  /* so many of them in a figure, from `step` on; 0: one */
  int32_t device;                 /* -1: all */
  int width;                      /* 0: the terminal's */
  int color;                      /* -1: as the output is, 0, 1 */
  bool queues;                    /* every queue, not only those that do the work */
  const char *log;                /* of a server's ticks, */
  const ticks *ticks;             /* and what that says; or NULL */
} options;

/* "12.3 ms"; at least 32 bytes. */
static inline char *format_ns(char *out, double ns) { return sli_format_seconds(out, ns * 1e-9); }
/* What a pass of a class is in this plan: B is the whole backward pass where no W is apart. */
const char *class_label(const sl_plan *plan, sl_class cls);

/* Words one behind the other, in lines of `width` columns; all but the first line begin with
 * `indent` spaces. */
typedef struct wrap {
  FILE *out;
  int width, indent, column; /* column: of the line so far */
} wrap;
void wrap_words(wrap *w, const char *text);
/* Such a text, which begins in column `indent`, and the end of its last line. */
void print_wrapped(FILE *out, int width, int indent, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

sl_status command_show(const sl_trace *t, const options *o, FILE *out);
sl_status command_rows(const sl_trace *t, const options *o, FILE *out);
sl_status command_reasons(const sl_trace *t, const options *o, FILE *out);
sl_status command_page(const sl_trace *t, const options *o, FILE *out);
sl_status command_svg(const sl_trace *t, const options *o, FILE *out);
sl_status command_chrome(const sl_trace *t, const options *o, FILE *out);
sl_status command_perfetto(const sl_trace *t, const options *o, FILE *out);
sl_status command_diff(const sl_trace *a, const sl_trace *b, const options *o, FILE *out);

/* A string inside quotes, for JSON and JavaScript in HTML. */
void put_json(FILE *out, const char *text);

#endif
