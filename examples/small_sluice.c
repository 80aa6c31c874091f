/* SPDX-License-Identifier: Apache-2.0 */
/* A small Sluice: the idea of the runtime in one file, to read in an evening.
 *
 *     cc -std=c17 examples/small_sluice.c -o small_sluice
 *     ./small_sluice 1f1b 4 8        # schedule, stages, microbatches
 *
 * Training in a pipeline is usually written as a schedule: who computes what, when. Here nobody
 * writes one. The model is a row of stages, each on a device of its own. Each stage has three
 * actors: F computes its forward pass, B the gradient of its input, W that of its weights.
 *
 * Actors store results in registers. A register has a fixed number of slots, its quota. One rule
 * moves everything:
 *
 *     An actor fires when each input has a full slot and each output has an empty one.
 *
 * A firing fills the slots that it writes, and gives back the slots that it has read, when it ends.
 * A device runs one firing at a time. If several of its actors can fire, F goes before B and B
 * before W. That is all: the quotas decide the rest. Give every stage a slot for each microbatch,
 * and all forward passes run first (GPipe: Huang et al., arXiv 1811.06965). Give stage d of p
 * stages p - d slots, and forward and backward passes alternate (1F1B: Narayanan et al., SOSP
 * 2019). Let W fill idle time, and the bubble shrinks to a third (ZB-H1: Qi et al., arXiv
 * 2401.10241).
 *
 * The clock is virtual: a pass takes one unit of time, and transfers take none. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STAGES = 16, MAX_MICROBATCHES = 64, MAX_PORTS = 4, NOTHING = -1 };

/* ---- registers ------------------------------------------------------------------------------- */

/* Slots hold the results of one actor, in the order of microbatches: microbatch i is in slot
 * i % quota. So two counters are enough to know which slots are full. */
typedef struct reg {
  int quota;
  int filled;          /* microbatches that the producer has written */
  int taken;           /* microbatches that all readers are done with */
  int done[MAX_PORTS]; /* microbatches that each reader is done with */
  int readers;
} reg;

static bool has_empty_slot(const reg *r, int begun) { return begun - r->taken < r->quota; }

/* A reader is done with its next microbatch. The slot is empty again when all readers are. */
static void give_back(reg *r, int reader) {
  r->done[reader]++;
  r->taken = r->done[0];
  for (int i = 1; i < r->readers; i++)
    if (r->done[i] < r->taken) r->taken = r->done[i];
}

/* ---- actors ---------------------------------------------------------------------------------- */

typedef struct actor {
  char kind; /* 'F', 'B' or 'W' */
  int device, rank;
  int duration;
  int begun, fired; /* microbatches that it has begun and ended */
  struct {
    reg *from;
    int reader; /* number of this actor among the register's readers */
  } in[MAX_PORTS];
  reg *out[MAX_PORTS];
  int nin, nout;
  /* For W: it is held back while at most `lazy` of them wait, until its stage has run its last B
   * (see is_held_back). */
  const struct actor *backward, *forward;
  int lazy;
} actor;

typedef struct device {
  actor *running; /* NULL: idle */
  int end;        /* time at which the running firing ends */
} device;

/* Everything that a run is: no schedule among it. */
typedef struct pipeline {
  int stages, microbatches;
  actor actors[3 * MAX_STAGES];
  int nactors;
  reg regs[5 * MAX_STAGES];
  int nregs;
  device devices[MAX_STAGES];
  char picture[MAX_STAGES][8 * MAX_MICROBATCHES]; /* one character for each unit of time */
} pipeline;

static void read_from(actor *a, reg *r) {
  a->in[a->nin].from = r;
  a->in[a->nin++].reader = r->readers++;
}

static void write_to(actor *a, reg *r) { a->out[a->nout++] = r; }

/* ---- the rule -------------------------------------------------------------------------------- */

static bool inputs_are_full(const actor *a) {
  for (int i = 0; i < a->nin; i++)
    if (a->in[i].from->filled <= a->begun) return false;
  return true;
}

/* Returns the first output without an empty slot, or NULL. */
static const reg *lacking(const actor *a) {
  for (int o = 0; o < a->nout; o++)
    if (!has_empty_slot(a->out[o], a->begun)) return a->out[o];
  return NULL;
}

static bool can_fire(const pipeline *p, const actor *a) {
  return a->begun < p->microbatches && inputs_are_full(a) && !lacking(a);
}

static bool reads(const actor *a, const reg *r) {
  for (int i = 0; i < a->nin; i++)
    if (a->in[i].from == r) return true;
  return false;
}

/* Weight gradients are postponed into idle time: the first few wait until the stage has computed
 * all gradients of its input, unless F waits for the very slots that they hold. */
static bool is_held_back(const pipeline *p, const actor *a) {
  if (!a->backward || a->backward->begun == p->microbatches) return false;
  if (a->backward->begun - a->begun > a->lazy) return false;
  const actor *f = a->forward;
  bool wanted = f->begun < p->microbatches && inputs_are_full(f) && lacking(f);
  return !(wanted && reads(a, lacking(f)));
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void begin(pipeline *p, actor *a, int now) {
  device *d = &p->devices[a->device];
  d->running = a;
  d->end = now + a->duration;
  int number = a->begun++;
  char digit = "0123456789abcdefghijklmnopqrstuvwxyz*"[number < 36 ? number : 36];
  for (int t = now; t < d->end; t++)
    p->picture[a->device][2 * t] = a->kind, p->picture[a->device][2 * t + 1] = digit;
}

static void end(device *d) {
  actor *a = d->running;
  d->running = NULL;
  a->fired++;
  for (int o = 0; o < a->nout; o++) a->out[o]->filled++;
  for (int i = 0; i < a->nin; i++) give_back(a->in[i].from, a->in[i].reader);
}

/* Returns the first actor by rank that a device may fire, or NULL. */
static actor *choose(pipeline *p, int device) {
  actor *best = NULL;
  for (int i = 0; i < p->nactors; i++) {
    actor *a = &p->actors[i];
    if (a->device != device || !can_fire(p, a) || is_held_back(p, a)) continue;
    if (!best || a->rank < best->rank) best = a;
  }
  return best;
}

/* Returns the time of the next end, or NOTHING if no device runs. */
static int next_end(const pipeline *p) {
  int next = NOTHING;
  for (int d = 0; d < p->stages; d++)
    if (p->devices[d].running && (next == NOTHING || p->devices[d].end < next))
      next = p->devices[d].end;
  return next;
}

/* Runs a step; returns its length, or NOTHING if it hangs, which a plan with an empty quota does.
 * Sluice proves before a run that it cannot (docs/contracts.md). */
static int run(pipeline *p) {
  int now = 0;
  for (;;) {
    for (int d = 0; d < p->stages; d++) {
      actor *a = p->devices[d].running ? NULL : choose(p, d);
      if (a) begin(p, a, now);
    }
    int next = next_end(p);
    if (next == NOTHING) break;
    now = next;
    for (int d = 0; d < p->stages; d++)
      if (p->devices[d].running && p->devices[d].end == now) end(&p->devices[d]);
  }
  for (int i = 0; i < p->nactors; i++)
    if (p->actors[i].fired < p->microbatches) return NOTHING;
  return now;
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* A schedule is a row of numbers: how many slots stage d of p has for m microbatches. */
typedef struct schedule {
  const char *name;
  int (*slots)(int p, int d, int m); /* of the activations that B reads */
  int (*more)(int p, int d, int m);  /* of those that W reads; NULL: B and W are one pass */
  int (*lazy)(int p, int d, int m);  /* weight gradients that wait for idle time */
} schedule;

static int all(int p, int d, int m) { return (void)p, (void)d, m; }
static int to_the_end(int p, int d, int m) { return (void)m, p - d; }
static int depth(int p, int d, int m) { return (void)d, (void)m, p; }
static int position(int p, int d, int m) { return (void)p, (void)m, d; }

static const schedule schedules[] = {
    {"gpipe", all, NULL, NULL},
    {"1f1b", to_the_end, NULL, NULL},
    {"zb-h1", to_the_end, depth, position},
};

/* ---- the pipeline ---------------------------------------------------------------------------- */

static reg *add_reg(pipeline *p, int quota) {
  reg *r = &p->regs[p->nregs++];
  *r = (reg){.quota = quota};
  return r;
}

static actor *add_actor(pipeline *p, char kind, int device, int rank, int duration) {
  actor *a = &p->actors[p->nactors++];
  *a = (actor){.kind = kind, .device = device, .rank = rank, .duration = duration};
  return a;
}

/* Makes a stage. `before` is the result of the stage before it, NULL for the first; *result is its
 * own. *gradient is the register in which it expects the gradient of its result, and from[] the
 * register in which it leaves that of its input. */
static void add_stage(pipeline *p, const schedule *s, int d, reg *before, reg **result,
                      reg *gradient, reg *left) {
  int m = p->microbatches, slots = s->slots(p->stages, d, m);
  actor *f = add_actor(p, 'F', d, 0, 1), *b = add_actor(p, 'B', d, 1, s->more ? 1 : 2);
  reg *kept = add_reg(p, slots); /* what F keeps for B */
  if (before) read_from(f, before);
  write_to(f, kept);
  read_from(b, kept);
  if (result) write_to(f, *result = add_reg(p, slots));
  if (gradient) read_from(b, gradient);
  if (left) write_to(b, left);
  if (!s->more) return;
  actor *w = add_actor(p, 'W', d, 2, 1);
  reg *inputs = add_reg(p, s->more(p->stages, d, m)), *gradients = add_reg(p, m);
  write_to(f, inputs);
  write_to(b, gradients);
  read_from(w, inputs);
  read_from(w, gradients);
  w->forward = f;
  w->backward = b;
  w->lazy = s->lazy(p->stages, d, m);
}

static void make(pipeline *p, const schedule *s, int stages, int microbatches) {
  *p = (pipeline){.stages = stages, .microbatches = microbatches};
  memset(p->picture, ' ', sizeof p->picture);
  reg *before = NULL, *left = NULL;
  for (int d = 0; d < stages; d++) {
    bool last = d == stages - 1;
    reg *result = NULL, *gradient = last ? NULL : add_reg(p, microbatches);
    add_stage(p, s, d, before, last ? NULL : &result, gradient, left);
    before = result;
    left = gradient;
  }
}

/* ---- the program ----------------------------------------------------------------------------- */

static int number(const char *text, int least, int most, const char *what) {
  char *rest;
  long n = strtol(text, &rest, 10);
  if (*rest || n < least || n > most) {
    fprintf(stderr, "small_sluice: %s is \"%s\", not a number from %d to %d\n", what, text, least,
            most);
    exit(2);
  }
  return (int)n;
}

static const schedule *find(const char *name) {
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
    if (!strcmp(schedules[i].name, name)) return &schedules[i];
  fprintf(stderr, "small_sluice: there is no schedule %s, only gpipe, 1f1b and zb-h1\n", name);
  exit(2);
}

int main(int argc, char **argv) {
  static pipeline p;
  const schedule *s = find(argc > 1 ? argv[1] : "1f1b");
  int stages = argc > 2 ? number(argv[2], 1, MAX_STAGES, "the number of stages") : 4,
      microbatches =
          argc > 3 ? number(argv[3], 1, MAX_MICROBATCHES, "the number of microbatches") : 8;
  make(&p, s, stages, microbatches);
  int length = run(&p);
  if (length == NOTHING) {
    fprintf(stderr, "small_sluice: the step hangs\n");
    return 1;
  }
  for (int d = 0; d < stages; d++) printf("%2d |%.*s|\n", d, 2 * length, p.picture[d]);
  printf("%s: %d units of time, of which a device is idle for %d\n", s->name, length,
         length - 3 * microbatches);
  return 0;
}
