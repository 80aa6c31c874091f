/* The model: a session over the settings' devices, as an engine. */
#include <stdlib.h>

#include <sluice/state.h>

#include "tools/actorserve/actorserve.h"

static sl_status submit(void *self, const sl_request *request, uint64_t *id) {
  return sl_session_submit(self, request, id);
}

static void cancel(void *self, uint64_t id) { sl_session_cancel(self, id); }

static int poll_events(void *self, sl_session_event *out, int most) { return sl_session_poll(self, out, most); }

static sl_session_stats stat_of(void *self) { return sl_session_stat(self); }

static sl_status load(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  const settings *s = ctx;
  sl_status status = sl_weights_load(settings_text(s, "init"), lowered, rt);
  return status ? status : sl_params_spread(lowered, rt);
}

static sl_session_options options_of(settings *s, served *m) {
  return (sl_session_options){
      .model = s->model, .args = s->model_args,
      .lower = {.stages = s->stages, .chunks = 1, .processes = 1, .devices = s->devices, .dtype = settings_dtype(s),
                .schedule = s->schedule, .seed = (uint64_t)sl_arg_int(s->run, "seed")},
      .run = {.bind = machine_bind, .bind_arg = &m->machine},
      .load = load, .load_ctx = s};
}

sl_status model_open(settings *s, served *m) {
  sl_status status = machine_place(s, &m->machine);
  if (status) return status;
  sl_session_options options = options_of(s, m);
  status = sl_session_create(&options, &m->session);
  if (status) return status;
  sl_session_info about = sl_session_about(m->session);
  m->engine = (engine){.self = m->session, .fd = sl_session_fd(m->session), .vocabulary = about.vocabulary,
                       .context = about.context, .submit = submit, .cancel = cancel, .poll = poll_events,
                       .stat = stat_of};
  return voice_open(s, about.vocabulary, m);
}

void model_close(served *m) {
  sl_session_destroy(m->session);
  voice_close(m);
  machine_fini(&m->machine);
}
