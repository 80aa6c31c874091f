/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/workload.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- real time ------------------------------------------------------------------------------ */

typedef struct runner {
  sl_session *session;
  workload *p;
  uint64_t start_ns, random;
  int64_t next, left; /* index of the next arrival; requests submitted and not yet answered */
  int32_t *prompt;    /* [length of the longest prompt] */
} runner;

static double now_of(const runner *runner) {
  return (double)(sli_now_ns() - runner->start_ns) * 1e-9;
}

/* Draws random tokens (xorshift64). */
static void draw_prompt(runner *runner, int64_t count) {
  uint64_t vocabulary = (uint64_t)sl_session_about(runner->session).vocabulary;
  for (int64_t i = 0; i < count; i++) {
    runner->random ^= runner->random << 13;
    runner->random ^= runner->random >> 7;
    runner->random ^= runner->random << 17;
    runner->prompt[i] = (int32_t)(runner->random % vocabulary);
  }
}

/* Submits a request. If the queue is full, the request is rejected. */
static sl_status submit(runner *runner) {
  const arrivals *came = &runner->p->came;
  const sl_arrival *a = &came->items[runner->next];
  uint64_t id;
  runner->p->run.answered[runner->next].came = came->clients ? now_of(runner) : a->seconds;
  draw_prompt(runner, a->prompt);
  sl_status status =
      sl_session_submit(runner->session,
                        &(sl_request){.prompt = runner->prompt,
                                      .nprompt = a->prompt,
                                      .max_tokens = a->answer,
                                      .logprobs = -1,
                                      .user = &runner->p->run.answered[runner->next]},
                        &id);
  if (!status) runner->left++;
  runner->next++;
  return status == SL_E_BUSY ? SL_OK : status;
}

static void take(runner *runner, const sl_session_event *e) {
  sl_answered *a = e->user;
  if (e->kind == SL_EVENT_END) {
    runner->left--;
    return;
  }
  a->last = now_of(runner);
  if (!a->tokens++) a->first = a->last;
}

static void take_all(runner *runner) {
  enum { AT_ONCE = 64 };
  sl_session_event events[AT_ONCE];
  for (int n; (n = sl_session_poll(runner->session, events, AT_ONCE));)
    for (int i = 0; i < n; i++) take(runner, &events[i]);
}

/* Returns the seconds until the next arrival. In a closed loop a client that waits for no answer
 * comes at once, and any other with an event. */
static double seconds_to_next(const runner *runner) {
  const arrivals *came = &runner->p->came;
  if (runner->next == came->count) return 1;
  if (came->clients) return runner->left < came->clients ? 0 : 1;
  return came->items[runner->next].seconds - now_of(runner);
}

/* Waits until the next arrival or event. */
static void wait_for_any(const runner *runner) {
  struct pollfd fd = {.fd = sl_session_fd(runner->session), .events = POLLIN};
  struct timespec in = {.tv_sec = 1};
  double seconds = seconds_to_next(runner);
  if (seconds < 1) in = (struct timespec){.tv_nsec = (long)(SLI_MAX(seconds, 0) * 1e9)};
  ppoll(&fd, 1, &in, NULL);
}

static sl_status go_on(runner *runner) {
  sl_status status = sl_session_status(runner->session);
  while (!status && runner->next < runner->p->came.count && seconds_to_next(runner) <= 0)
    status = submit(runner);
  take_all(runner);
  return status;
}

sl_status workload_run_real(sl_session *session, uint64_t seed, workload *p) {
  int64_t longest = 1;
  for (int64_t i = 0; i < p->came.count; i++) longest = SLI_MAX(longest, p->came.items[i].prompt);
  p->run.narrivals = p->came.count;
  p->run.answered = sli_calloc((size_t)p->came.count, sizeof *p->run.answered);
  runner s = {.session = session,
              .p = p,
              .start_ns = sli_now_ns(),
              .random = seed * 2 + 1,
              .prompt = sli_calloc((size_t)longest, sizeof *s.prompt)};
  sl_status status = SL_OK;
  while (!status && (s.next < p->came.count || s.left)) {
    wait_for_any(&s);
    status = go_on(&s);
  }
  free(s.prompt);
  p->run.seconds = now_of(&s) - p->run.answered[0].came;
  p->run.about = sl_session_about(session);
  p->run.stats = sl_session_stat(session);
  p->cost = sl_session_cost(session);
  p->corners = sl_session_corners(session);
  return status;
}

/* ---- either clock ---------------------------------------------------------------------------- */

/* Simulates the servers. One server that computes everything runs its plan. */
static sl_status workload_simulate(settings *s, served *served, workload *p) {
  const char *text = settings_text(s, "prefill");
  const arrivals *came = &p->came;
  sl_session_options options, prefill;
  fleet_prefill before = {0};
  sl_status status = model_options(s, served, &options);
  if (!status && text) status = fleet_read_prefill(text, &options, &before);
  if (status) return status;
  prefill = fleet_prefill_options(&before, &options);
  sl_fleet all = {.servers = {&options, (int)sl_arg_int(s->run, "replicas"), NULL},
                  .prefill = {&prefill, before.servers, NULL}};
  fleet_set_link(&all);
  bool one = all.servers.count == 1 && !before.servers;
  status = one ? sl_session_simulate(&options, came->clients, came->count, came->items, &p->run)
               : sl_fleet_simulate(&all, came->clients, came->count, came->items, &p->run);
  p->devices = fleet_devices(&all);
  if (!status) p->joules = fleet_joules(&all, &p->run);
  return status;
}

static sl_status workload_run_either(settings *s, served *served, workload *p) {
  if (s->clock == SL_CLOCK_VIRTUAL) return workload_simulate(s, served, p);
  sl_status status = model_open(s, served);
  /* the first process handles the requests */
  if (!status && s->process) return sl_session_wait(served->session);
  return status ? status
                : workload_run_real(served->session, (uint64_t)sl_arg_int(s->run, "seed"), p);
}

static void print_shares(const char *what, double mean, const double *seconds) {
  printf("%-22s%10.1f ms", what, mean * 1e3);
  for (int i = 0; i < OUTCOME_SHARES; i++) printf("%10.1f ms", seconds[i] * 1e3);
  putchar('\n');
}

static void print_energy(const workload *p) {
  char all[32], token[32];
  if (p->joules <= 0 || !p->run.stats.tokens) return;
  printf("energy                %s on %d device%s, %s per token\n", energy_text(all, p->joules),
         p->devices, p->devices > 1 ? "s" : "",
         energy_text(token, p->joules / (double)p->run.stats.tokens));
}

static void print_outcome(const settings *s, const workload *p) {
  const outcome *o = &p->outcome;
  const sl_tick_cost *c = &p->cost;
  printf("%lld answered and %lld refused in %.2f s on the %s clock: %.1f tokens/s\n",
         (long long)o->answered, (long long)o->refused, p->run.seconds,
         sl_arg_text(s->run, "clock"), o->tokens_per_second);
  printf("%-22s%13s", "", "mean");
  for (int i = 0; i < OUTCOME_SHARES; i++) printf("%11.0f %%", outcome_shares[i] * 100);
  putchar('\n');
  print_shares("time to first token", o->ttft_mean, o->ttft);
  print_shares("time per token", o->tpot_mean, o->tpot);
  for (int i = 0; i < p->run.nstages; i++)
    printf("%s%.1f %%", i ? ", " : "bubbles               ",
           100 * (1 - p->run.busy[i] / p->run.seconds));
  printf("%s%lld pages of %lld at once, %llu preemptions\n", p->run.nstages ? "\n" : "",
         (long long)p->run.stats.pages_most, (long long)p->run.stats.pages,
         (unsigned long long)p->run.stats.preemptions);
  if (p->run.notes) fputs(p->run.notes, stdout);
  print_energy(p);
  if (c->tick + c->position + c->row + c->pair + c->pick > 0)
    printf("ticks took about      --tick %.3g,%.3g,%.3g,%.3g,%.3g\n", c->tick, c->position, c->row,
           c->pair, c->pick);
}

sl_status workload_run(settings *s, served *served) {
  const char *report = settings_text(s, "report");
  workload p = {0};
  sl_status status = serving_arrivals(s, &p.came);
  if (!status) status = workload_run_either(s, served, &p);
  if (!status && !s->process) {
    p.outcome = outcome_of(&p.came, p.run.answered, p.run.seconds);
    if (!sl_arg_flag(s->run, "quiet")) print_outcome(s, &p);
    if (report) status = report_workload(report, s, &p);
  }
  sl_session_simulation_fini(&p.run);
  return status;
}
