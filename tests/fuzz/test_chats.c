/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of an untrusted chat file are read or refused, with a template that marks answers, one that
 * does not, and one that fails.
 * labels: random unthreaded
 * needs: pcre2 utf8proc */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/chats/chats.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"{\"messages\": [",
                                  "{\"conversations\": [",
                                  "{\"prompt\": ",
                                  "\"completion\": ",
                                  "\"tools\": ",
                                  "\"chat_template_kwargs\": {",
                                  "{\"role\": \"user\", \"content\": \"a\"}",
                                  "{\"role\": \"assistant\", \"content\": \"b\"}",
                                  "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [",
                                  "{\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}",
                                  "{\"from\": \"human\", \"value\": ",
                                  "{\"from\": \"gpt\", \"value\": ",
                                  "\"role\": \"system\"",
                                  "\"role\": 7",
                                  "[{\"type\": \"text\", \"text\": \"x\"}]",
                                  "\"<|im_end|>\"",
                                  "\"\\u0000\"",
                                  "\"\\ud83d\\ude00\"",
                                  "\"e\\u0301\"",
                                  "\"boom\"",
                                  "]}\n",
                                  ", ",
                                  "\n",
                                  NULL};

static const char *const templates[] = {
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{% for m in messages %}{% if m.content == 'boom' %}{{ raise_exception('no') }}{% endif %}{{ m.role }}:"
    "{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% "
    "endif %}",
    "{{ messages | length }}{% for m in messages %}{{ m.content }}{% if not loop.last %}|{% endif %}{% endfor %}"};

/* Opens a reference tokenizer with each template, in temporary files. */
static sli_chats **open_all(void) {
  static sli_chats *all[SLI_COUNT(templates)];
  const char *source = getenv("SLUICE_SOURCE");
  char *tokenizer = sli_format("%s/tests/reference/tokenizers/qwen2.json", source ? source : ".");
  for (size_t i = 0; i < SLI_COUNT(templates) && !all[i]; i++) {
    char path[] = "/tmp/sluice-fuzz-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file || fputs(templates[i], file) < 0 || fclose(file)) abort();
    const sli_chats_options options = {tokenizer, path, false, 700};
    if (sli_chats_open(&options, &all[i])) abort();
    remove(path);
  }
  free(tokenizer);
  return all;
}

/* Aborts unless the row consists of chats, each with at least one learned token. */
static void check(const sli_token_row *row) {
  size_t at = 0;
  while (at < row->count) {
    size_t n = (size_t)row->items[at];
    bool learned = false;
    if (n < 2 || n > row->count - at - 1) abort();
    for (size_t i = 2; i <= n; i++) learned |= row->items[at + i] < 0;
    if (!learned) abort();
    at += n + 1;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  sli_chats **all = open_all();
  char *text = sli_calloc(1, count + 1);
  memcpy(text, bytes, count);
  for (size_t i = 0; i < SLI_COUNT(templates); i++) {
    sli_token_row row = {0};
    if (!sli_chats_encode(all[i], "chats.jsonl", text, count, &row)) check(&row);
    free(row.items);
  }
  free(text);
  return 0;
}
