/* SPDX-License-Identifier: Apache-2.0 */
/* A serving session of a small shipped model, and its answers. */
#ifndef SLUICE_TESTS_SUPPORT_SESSION_H
#define SLUICE_TESTS_SUPPORT_SESSION_H

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "models/models.h"
#include "tests/support/test.h"

typedef struct served {
  const sl_model *model;
  sl_args *args;
  sl_session *session;
  sl_dtype dtype; /* type of the weights */
  sl_storage kv;  /* type of the KV cache */
} served;

/* Fills in values derived from the model's seed. */
static inline sl_status served_load(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  (void)ctx;
  return sl_params_init(lowered, rt, 7);
}

/* Makes the model; `words` are its options as on a command line. */
static inline void served_model(served *s, const char *model, char *const *words) {
  const sl_model *const *m = sli_models;
  while (*m && strcmp((*m)->name, model)) m++;
  CHECK(*m, "there is a model %s", model);
  s->model = *m;
  int used;
  CHECK(!sl_args_create(s->model->options, &s->args), "%s", sl_detail());
  for (; *words; words += used)
    CHECK(!sl_args_take(s->args, words[1] ? 2 : 1, words, &used) && used, "option %s", *words);
}

/* Returns the kind of devices that sessions run on: "cpu", or what SLUICE_TEST_DEVICES says. */
static inline const char *served_devices(void) {
  const char *kind = getenv("SLUICE_TEST_DEVICES");
  return kind ? kind : "cpu";
}

static inline bool served_on_cpus(void) { return !strcmp(served_devices(), "cpu"); }

static inline sl_session_options served_options(const served *s) {
  return (sl_session_options){
      .model = s->model,
      .args = s->args,
      .load = served_load,
      .hash = true,
      .kv = s->kv,
      .lower = {
          .parallel.stages = 1, .numbers.dtype = s->dtype, .devices = {.kind = served_devices()}}};
}

static inline void served_open(served *s, const sl_session_options *options) {
  CHECK(!sl_session_create(options, &s->session), "%s", sl_detail());
}

static inline void served_close(served *s) {
  sl_session_destroy(s->session);
  sl_args_destroy(s->args);
}

/* Waits until there are events, and takes one. */
static inline sl_session_event served_next(sl_session *s) {
  sl_session_event event;
  struct pollfd fd = {.fd = sl_session_fd(s), .events = POLLIN};
  while (!sl_session_poll(s, &event, 1)) poll(&fd, 1, -1);
  return event;
}

#endif
