/* actorserve's parts: its command line, and the model that it serves. */
#ifndef SLUICE_TOOLS_ACTORSERVE_H
#define SLUICE_TOOLS_ACTORSERVE_H

#include "tools/actorserve/engine.h"
#include "tools/actorserve/serve.h"
#include "tools/actorserve/rates.h"
#include "tools/common/common.h"

/* settings.c */
extern const tool actorserve_tool;
/* Does it listen nowhere, as its requests are not others'? */
bool settings_plays(const settings *s);
/* access.c: who may ask, and how much all may hold. SL_E_USAGE, SL_E_INPUT name the option that is wrong. */
sl_status access_check(const settings *s);
/* The key, the caller's to free; NULL: there is none. */
sl_status access_key(const settings *s, char **out);
size_t access_bytes(const settings *s);
/* Says so where anybody at all may ask. */
void access_warn(const char *host, const char *key);
/* homes.c: of --quota, --weights and --home. SL_E_USAGE names what there is not. */
sl_status homes_check(const settings *s);
int64_t homes_pages(const settings *s); /* of keys and values; 0: not said */
void homes_apply(settings *s, sl_lower_options *to);

/* What is served: a session, and how its model talks (model.c, voice.c). */
typedef struct served {
  sl_job *job;          /* its processes */
  machine machine;
  sl_tick_cost cost;    /* of --tick */
  sl_session *session;
  engine engine;
  voice voice;
  int32_t *ends;        /* of the voice; likewise these */
  char *name, *no_chat, *begin, *end;
  rates rates;
  subject subject;      /* of `control` */
  control *control;
} served;

/* seen.c: from here on whoever asks is answered, and lastly nobody is. While the session is there. */
sl_status seen_open(served *m, const char *model);
void seen_close(served *m);

/* What the settings say of a session; points into them and into `m`. */
sl_status model_options(settings *s, served *m, sl_session_options *out);
/* Makes a session of the settings' model, with its weights. */
sl_status model_open(settings *s, served *out);
sl_status model_close(served *m); /* SL_E_IO names what could not be written */
/* Reads what lies with the model's weights and its tokenizer of how it talks. */
sl_status voice_open(const settings *s, int64_t vocabulary, served *out);
void voice_close(served *m);

/* report.c: what it was and what it has done, as JSON. SL_E_IO names the file. */
sl_status report_write(const char *path, const served *m);

#endif
