/* SPDX-License-Identifier: Apache-2.0 */
/* <sluice/shipped.h> and <sluice/tokenizer.h> as a program uses them: a Hugging Face folder is
 * trained, saved and loaded again with the same values. tests/python/check_models.py compares the
 * models' numbers with other implementations.
 * labels: unthreaded */
#include <sluice/shipped.h>
#include <sluice/tokenizer.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/tempdir.h"
#include "tests/support/test.h"

static char *reference(const char *name) {
  return sli_format("%s/tests/reference/%s", getenv("SLUICE_SOURCE"), name);
}

/* A model's plan, and its values. */
typedef struct trained {
  sl_shipped *model;
  sl_graph *g;
  sl_lowered *lowered;
  sl_runtime *rt;
  sl_job *job;
} trained;

static trained open_model(const char *word, int nwords, const char *const *words) {
  trained t = {0};
  CHECK(!sl_shipped_open(word, nwords, words, &t.model), "%s", sl_detail());
  sl_lower_options options = {.parallel.stages = 1, .devices.kind = "cpu"};
  t.g = sl_graph_create(&(sl_graph_options){.microbatches = 1});
  CHECK(!sl_shipped_model(t.model)->build(t.g, sl_shipped_args(t.model)), "%s", sl_detail());
  CHECK(!sl_lower(t.g, &options, &t.lowered) && !sl_job_open(NULL, &t.job), "%s", sl_detail());
  const sl_plan *plan = sl_lowered_plan(t.lowered);
  CHECK(!sl_job_join(t.job, plan, 0, NULL), "%s", sl_detail());
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){0}, &t.rt), "%s", sl_detail());
  sl_lowered_attach(t.lowered, t.rt);
  CHECK(!sl_params_init(t.lowered, t.rt, 1), "%s", sl_detail());
  const char *weights = sl_shipped_weights(t.model);
  if (weights) CHECK(!sl_weights_load(weights, t.lowered, t.rt), "%s", sl_detail());
  CHECK(!sl_job_attach(t.job, t.rt, 0), "%s", sl_detail());
  return t;
}

static void close_model(trained *t) {
  sl_job_close(t->job);
  sl_runtime_destroy(t->rt);
  sl_lowered_destroy(t->lowered);
  sl_graph_destroy(t->g);
  sl_shipped_close(t->model);
}

static void check_same(const trained *a, const trained *b) {
  const sl_param_info *of, *other;
  int n = sl_lowered_params(a->lowered, &of);
  CHECK(n == sl_lowered_params(b->lowered, &other), "as many parameters");
  for (int i = 0; i < n; i++) {
    size_t bytes = sl_type_bytes(&of[i].type);
    const float *x = sl_param_data(a->lowered, a->rt, i), *y = sl_param_data(b->lowered, b->rt, i);
    CHECK(!strcmp(of[i].name, other[i].name) && !memcmp(x, y, bytes), "%s has other values",
          of[i].name);
  }
}

static void a_folder_is_trained_saved_and_found_again(void) {
  sli_tempdir place;
  char *folder = reference("hf_gpt2"), *data = reference("README.md");
  const char *words[] = {"--data", data, "--context", "16", "--batch", "2"};
  trained t = open_model(folder, 6, words);
  CHECK(!strcmp(sl_shipped_weights(t.model), folder) && !sl_shipped_tokenizer(t.model),
        "its weights, and no tokenizer");
  CHECK(!sl_job_run(t.job, 2), "%s", sl_detail());
  CHECK(!sli_tempdir_open(NULL, &place), "%s", sl_detail());
  char *saved = sli_tempdir_path(&place, "tuned");
  CHECK(!sl_shipped_save(t.model, saved, t.lowered, t.rt, t.job), "%s", sl_detail());
  trained again = open_model(saved, 6, words);
  check_same(&t, &again);
  close_model(&again);
  close_model(&t);
  sli_tempdir_close(&place);
  free(saved);
  free(folder);
  free(data);
}

static void wrong_words_are_named(void) {
  sl_shipped *m;
  CHECK(
      sl_shipped_open("gtp", 0, NULL, &m) == SL_E_USAGE && strstr(sl_detail(), "did you mean gpt"),
      "%s", sl_detail());
  const char *words[] = {"--layer", "3"};
  CHECK(sl_shipped_open("gpt", 2, words, &m) == SL_E_USAGE &&
            strstr(sl_detail(), "did you mean --layers"),
        "%s", sl_detail());
  CHECK(sl_shipped_open("nosuch.gguf", 0, NULL, &m), "there is no such file");
  const char *user = "user", *hello = "Hello";
  char *prompt, *end;
  CHECK(!sl_shipped_open("gpt", 0, NULL, &m), "%s", sl_detail());
  CHECK(sl_shipped_chat(m, 1, &user, &hello, &prompt, &end) == SL_E_USAGE, "gpt has no template");
  CHECK(sl_shipped_teach(m, NULL, NULL) == SL_E_USAGE && strstr(sl_detail(), "has no weights"),
        "gpt teaches nothing: %s", sl_detail());
  sl_shipped_close(m);
}

static void models_are_listed(void) {
  const sl_model *const *all = sl_shipped_models();
  CHECK(!strcmp(all[0]->name, "gpt") && !strcmp(all[1]->name, "llama"), "gpt and llama are there");
}

static void a_text_becomes_tokens_and_text_again(void) {
  static const char text[] = "Hello, w\u00f6rld!";
  char *path = reference("tokenizers/gpt2.json");
  sl_tokenizer *t;
  int32_t *tokens;
  size_t count, bytes;
  CHECK(!sl_tokenizer_open(path, &t), "%s", sl_detail());
  CHECK(!sl_tokenizer_encode(t, text, strlen(text), true, &tokens, &count) && count > 2, "%s",
        sl_detail());
  char *back = sl_tokenizer_decode(t, tokens, count, false, &bytes);
  CHECK(bytes == strlen(text) && !strcmp(back, text), "%s", back);
  free(back);
  free(tokens);
  CHECK(sl_tokenizer_encode(t, "\xff", 1, true, &tokens, &count) == SL_E_INPUT, "it is no UTF-8");
  sl_tokenizer_close(t);
  CHECK(sl_tokenizer_open("nosuch.json", &t) && strstr(sl_detail(), "nosuch.json"), "%s",
        sl_detail());
  free(path);
}

int main(int argc, char **argv) {
  char **words;
  test_words(argc, argv, &words);
  RUN(a_folder_is_trained_saved_and_found_again);
  RUN(wrong_words_are_named);
  RUN(models_are_listed);
  RUN(a_text_becomes_tokens_and_text_again);
  return 0;
}
