/* A session over two processes: stages in each, requests in the first; the bits are those of one. Also where both
 * read the same table (gpt's), and where weights are rounded. */
#include <unistd.h>

#include "comm/control/control.h"
#include "tests/support/processes.h"
#include "tests/support/session.h"

enum { TOKENS = 12 };

static char *const small[] = {"--layers", "2", "--width", "32", "--heads", "4", "--context", "64", NULL};
static const int32_t prompt[] = {3, 1, 4, 1, 5};
static char endpoint[PROCESS_ENDPOINT_CHARS], key[SLI_CONTROL_KEY_CHARS + 1];
static uint64_t hashes[TOKENS];

static const struct {
  const char *model;
  int stages;
  sl_dtype dtype;
} cases[] = {{"llama", 2, SL_F32}, {"gpt", 4, SL_BF16}}, *now;

static sl_session_options open_model(served *s) {
  served_model(s, now->model, small);
  sl_session_options options = served_options(s);
  options.lower.dtype = now->dtype;
  return options;
}

static void answer(sl_session *s, uint64_t *out) {
  sl_request r = {.prompt = prompt, .nprompt = 5, .max_tokens = TOKENS, .logprobs = -1};
  uint64_t id;
  CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s)).kind == SL_EVENT_TOKEN;) out[e.place] = e.hash;
}

static sl_job *open_job(const process *p) {
  char text[16];
  snprintf(text, sizeof text, "%d", p->self);
  setenv("SLUICE_PROCESS", text, 1);
  setenv("SLUICE_PROCESSES", "2", 1);
  setenv("SLUICE_ENDPOINT", endpoint, 1);
  setenv("SLUICE_JOB", "test-serve", 1);
  setenv("SLUICE_KEY", key, 1);
  sl_job *job = NULL;
  CHECK(!sl_job_open(NULL, &job), "%s", sl_detail());
  return job;
}

static void serve(process *p) {
  served s = {0};
  sl_session_options options = open_model(&s);
  options.lower.stages = now->stages;
  options.lower.processes = 2;
  sl_job *job = options.job = open_job(p);
  served_open(&s, &options);
  if (p->self) CHECK(!sl_session_wait(s.session), "%s", sl_detail());
  for (int i = 0; i < 2 && !p->self; i++) {
    uint64_t got[TOKENS] = {0};
    answer(s.session, got);
    CHECK(!memcmp(got, hashes, sizeof got), "the bits are those of one process");
  }
  served_close(&s);
  sl_job_close(job);
}

static void compare(void) {
  served s = {0};
  sl_session_options options = open_model(&s);
  served_open(&s, &options);
  answer(s.session, hashes);
  served_close(&s);
  int port = process_port(endpoint);
  sli_control_make_key(key);
  CHECK(processes_run(2, serve), "both end");
  close(port);
}

int main(void) {
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    now = &cases[i];
    compare();
  }
  return 0;
}
