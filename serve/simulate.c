/* SPDX-License-Identifier: Apache-2.0 */
/* Simulation of a session on the virtual clock: arrivals wake its source. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/cost/cost.h"
#include "serve/serve.h"

typedef struct simulation {
  sli_simulator base;
  sl_session_simulation out;
  sli_script script;
  int64_t left; /* arrived requests that have not ended */
} simulation;

static uint64_t ns_of(double seconds) { return (uint64_t)(seconds * 1e9 + 0.5); }

static double now_of(const sl_session *s) { return (double)sl_runtime_now(s->about.rt) * 1e-9; }

/* Writes the arrival's number in front of the prompt, so that no two prompts of a page or more
 * share a prefix. */
static void number_prompt(const sli_script *p, int64_t number, int64_t vocabulary) {
  for (int64_t at = 0; at < SL_PAGE && at < p->longest; at++, number /= SLI_MAX(vocabulary, 2))
    p->prompt[at] = (int32_t)(vocabulary > 1 ? number % vocabulary : 0);
}

sl_request sli_script_request(const sli_script *p, const sl_session *s, int64_t i) {
  number_prompt(p, i, s->about.vocabulary);
  return (sl_request){.prompt = p->prompt,
                      .nprompt = p->arrivals[i].prompt,
                      .max_tokens = p->arrivals[i].answer,
                      .logprobs = -1,
                      .user = &p->answered[i]};
}

const sl_hardware *sli_script_hardware(const sl_session *s) {
  const sl_hardware *h = s->options.lower.simulation.hardware;
  return h ? h : &sli_default_core;
}

/* ---- clients of a closed loop ------------------------------------------------------------ */

void sli_script_let_free(sli_script *p, double seconds) {
  if (p->clients) p->sends[p->freed++ % p->clients] = seconds;
}

/* Returns when the next request is sent; infinity if every client waits for an answer. */
static double next_sent(const sli_script *p) {
  if (!p->clients) return p->arrivals[p->next].seconds;
  return p->taken < p->freed ? p->sends[p->taken % p->clients] : INFINITY;
}

/* ---- scripts ----------------------------------------------------------------------------- */

void sli_script_init(sli_script *p, int64_t clients, int64_t n, const sl_arrival *arrivals) {
  *p = (sli_script){.clients = clients,
                    .count = n,
                    .arrivals = arrivals,
                    .answered = sli_calloc((size_t)n, sizeof *p->answered),
                    .longest = 1,
                    .freed = clients, /* all send their first request at once */
                    .sends = sli_calloc((size_t)clients + 1, sizeof *p->sends)};
  for (int64_t i = 0; i < n; i++) p->longest = SLI_MAX(p->longest, arrivals[i].prompt);
  p->prompt = sli_calloc((size_t)p->longest + 1, sizeof *p->prompt);
}

void sli_script_fini(sli_script *p) {
  free(p->prompt);
  free(p->sends);
}

uint64_t sli_script_next(const sli_script *p, const sl_session *s) {
  if (p->next == p->count || isinf(next_sent(p))) return UINT64_MAX;
  double tokens = (double)p->arrivals[p->next].prompt;
  return ns_of(next_sent(p) + tokens * sli_script_hardware(s)->request_token_seconds);
}

int64_t sli_script_take(sli_script *p) {
  p->answered[p->next].came = next_sent(p);
  p->taken++;
  return p->next++;
}

static sl_status check_arrival(const sli_script *p, const sl_session *s, int64_t i) {
  const sl_arrival *a = &p->arrivals[i];
  double before = i ? a[-1].seconds : 0;
  if (!p->clients && !(a->seconds >= before && a->seconds < 1e9))
    return sl_fail(SL_E_USAGE,
                   "arrival %lld is at %g s, before the previous one at %g s or beyond 1e9 s",
                   (long long)i + 1, a->seconds, before);
  sl_request q = sli_script_request(p, s, i);
  sl_status status = sli_session_check(s, &q);
  return status ? sl_fail(status, "arrival %lld: %s", (long long)i + 1, sl_detail()) : SL_OK;
}

sl_status sli_script_check(const sli_script *p, const sl_session *s) {
  sl_status status = SL_OK;
  for (int64_t i = 0; i < p->count && !status; i++) status = check_arrival(p, s, i);
  return status;
}

double sli_script_seconds(const sli_script *p) {
  double last = 0;
  for (int64_t i = 0; i < p->count; i++) last = SLI_MAX(last, p->answered[i].last);
  return p->count ? last - p->answered[0].came : 0;
}

/* ---- arrivals ---------------------------------------------------------------------------- */

/* Submits all arrivals up to now. Drops a request if the queue is full. */
static void let_come(simulation *p, sl_session *s, uint64_t now_ns) {
  while (sli_script_next(&p->script, s) <= now_ns) {
    int64_t i = sli_script_take(&p->script);
    sl_request q = sli_script_request(&p->script, s, i);
    uint64_t id;
    if (!sli_session_enter(s, &q, 0, &id)) p->left++;
    else sli_script_let_free(&p->script, p->script.answered[i].came);
  }
}

static uint64_t go_on(sli_simulator *base, sl_session *s) {
  simulation *p = (simulation *)base;
  let_come(p, s, sl_runtime_now(s->about.rt));
  if (p->script.next == p->script.count && !p->left) {
    s->end.closing = true;
    sl_runtime_stop(s->about.rt);
  }
  return sli_script_next(&p->script, s);
}

static void note(sli_simulator *base, const sl_session *s, const sl_session_event *event) {
  simulation *p = (simulation *)base;
  sl_answered *a = event->user;
  double seen = now_of(s) + sli_script_hardware(s)->answer_seconds;
  if (event->kind == SL_EVENT_END) {
    p->left--;
    sli_script_let_free(&p->script, seen);
    return;
  }
  a->last = seen;
  if (!a->tokens++) a->first = a->last;
}

static void compute(sli_simulator *p, const sl_session *s, int32_t actor, double seconds) {
  int devices = sl_lowered_ranks(s->about.lowered);
  ((simulation *)p)->out.busy[s->about.plan->actors[actor].stage] += seconds / devices;
}

/* ---- simulation ------------------------------------------------------------------------- */

static void finish(const sl_session *s, simulation *p) {
  sl_session_simulation *out = &p->out;
  out->seconds = sli_script_seconds(&p->script);
  out->about = s->about;
  out->notes = sli_price_notes(s);
  out->about.plan = NULL;
  out->about.lowered = NULL;
  out->about.rt = NULL;
  out->stats = s->stats;
}

static sl_status run(simulation *p, sl_session *s) {
  sl_status status = sli_script_check(&p->script, s);
  if (status) return status;
  s->thread.ran = true;
  sli_session_run(s);
  finish(s, p);
  return sl_session_status(s);
}

static sl_status check_devices(const sl_session_options *o) {
  if (strcmp(o->lower.devices.kind, "timed"))
    return sl_fail(SL_E_USAGE, "simulating a session needs timed devices, not %s",
                   o->lower.devices.kind);
  return o->job ? sl_fail(SL_E_USAGE, "a session can be simulated in one process only") : SL_OK;
}

sl_status sl_session_simulate(const sl_session_options *options, int64_t clients, int64_t n,
                              const sl_arrival *arrivals, sl_session_simulation *out) {
  int stages =
      SLI_MAX(options->lower.parallel.stages, 1) * SLI_MAX(options->lower.schedule.chunks, 1);
  sl_status status = check_devices(options);
  if (status) return status;
  simulation p = {.base = {go_on, note, compute}};
  sli_script_init(&p.script, clients, n, arrivals);
  p.out = (sl_session_simulation){.narrivals = n,
                                  .answered = p.script.answered,
                                  .nstages = stages,
                                  .busy = sli_calloc((size_t)stages, sizeof *p.out.busy)};
  sl_session_options one = *options;
  one.lower.simulation.alike = !options->trace;
  sl_session *s;
  status = sli_session_open(&one, &p.base, NULL, &s);
  if (!status) status = run(&p, s);
  sl_status closed = sl_session_destroy(s);
  if (!status) status = closed;
  sli_script_fini(&p.script);
  if (status) sl_session_simulation_fini(&p.out);
  else *out = p.out;
  return status;
}

void sl_session_simulation_fini(sl_session_simulation *r) {
  free(r->answered);
  free(r->busy);
  free(r->notes);
  *r = (sl_session_simulation){0};
}
