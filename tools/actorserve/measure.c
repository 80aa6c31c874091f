/* SPDX-License-Identifier: Apache-2.0 */
/* --measure: requests that produce ticks with all numbers of rows, after few and many positions,
 * for prompts and answers. They are replayed in rounds, so that a temporarily slow machine affects
 * all of them alike. */
#include "io/atomic.h"
#include "tools/actorserve/workload.h"

/* Numbers of concurrent requests, tried in descending order, and the ticks at each per round. */
static const int levels[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64};
enum { TICKS = 2, MOST = 64, ROUNDS = 4 };

typedef struct measuring {
  const settings *settings;
  sl_session *session;
  sl_session_info about;
  workload last;
} measuring;

/* Submits all requests at once, and waits until they are answered. */
static sl_status run_once(measuring *m, sl_arrival *of, int64_t count) {
  sl_session_simulation_fini(&m->last.run);
  m->last.came = (arrivals){.count = count, .items = of};
  return workload_run_real(m->session, (uint64_t)sl_arg_int(m->settings->run, "seed"), &m->last);
}

/* Starts `most` requests; the first ones have the longest answers, so the number of active requests
 * declines. */
static sl_status go_down(measuring *m, int most, int64_t prompt) {
  sl_arrival all[MOST];
  int n = SLI_MIN(most, m->about.sequences);
  for (int i = 0; i < n; i++) {
    all[i] = (sl_arrival){0, prompt, 0};
    for (size_t l = 0; l < SLI_COUNT(levels); l++)
      all[i].answer += levels[l] > i && levels[l] <= n ? TICKS : 0;
  }
  return run_once(m, all, n);
}

/* Sends a single prompt: in whole chunks if it is longer than a tick's rows, otherwise as one
 * chunk. */
static sl_status take_prompt(measuring *m, int64_t prompt) {
  sl_arrival one = {0, SLI_MIN(prompt, m->about.context - 1), 1};
  return run_once(m, &one, 1);
}

static sl_status take_prompts(measuring *m) {
  enum { FEWEST = 10, LONG = 1024 };
  sl_status status = take_prompt(m, SLI_MAX(LONG, 2 * m->about.rows));
  for (int64_t rows = FEWEST; rows < m->about.rows && !status; rows += rows / 2)
    status = take_prompt(m, rows);
  return status;
}

static sl_status take_round(measuring *m) {
  enum { FEW = 2, FAR = 512 };
  sl_status status = go_down(m, MOST, 1);
  if (!status) status = go_down(m, FEW, SLI_MIN(m->about.context / 2, FAR));
  return status ? status : take_prompts(m);
}

static sl_status take_all(measuring *m) {
  sl_status status = SL_OK;
  for (int i = 0; i < ROUNDS && !status; i++) status = take_round(m);
  return status;
}

sl_status measure(settings *s, served *served) {
  measuring x = {.settings = s};
  const char *path = settings_text(s, "measure");
  sl_status status = sli_atomic_check(path);
  if (!status) status = model_open(s, served);
  if (status) return status;
  x.session = served->session;
  x.about = sl_session_about(served->session);
  if (x.about.groups > 1)
    return sl_fail(SL_E_USAGE, "--measure %s: needs one stage and --groups 1", path);
  status = take_all(&x);
  if (!status) status = report_workload(path, s, &x.last);
  sl_session_simulation_fini(&x.last.run);
  return status;
}
