/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of actorserve: its command line, and the model that it serves. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ACTORSERVE_H
#define SLUICE_TOOLS_ACTORSERVE_ACTORSERVE_H

#include "text/chats/chats.h"
#include "tools/actorserve/engine.h"
#include "tools/actorserve/rates.h"
#include "tools/actorserve/serve.h"
#include "tools/cli/cli.h"
#include "tools/control/control.h"
#include "tools/launch/launch.h"
#include "tools/planner/planner.h"
#include "tools/serving/serving.h"

/* settings.c */
extern const tool actorserve_tool;
/* Returns whether the server replays a file of requests and does not listen. */
bool settings_have_workload(const settings *s);
/* access.c: checks the options for access and memory. SL_E_USAGE or SL_E_INPUT names the wrong
 * option. */
sl_status access_check(const settings *s);
/* Returns the API key, or NULL if none is set. The caller frees it. */
sl_status access_key(const settings *s, char **out);
size_t access_bytes(const settings *s);
/* Warns if the server accepts requests from anyone. */
void access_warn(const char *host, const char *key);
/* homes.c: checks --quota, --weights and --home. SL_E_USAGE names what is unsupported. */
sl_status homes_check(const settings *s);
sl_serving_experts homes_experts(const settings *s); /* quota and planes of experts */
int64_t homes_pages(const settings *s);              /* pages of the KV cache; 0 if not given */
void homes_apply(settings *s, sl_lower_options *to);

/* prefixes.c: reads --prefix-caching. */
sl_status prefixes_read(const settings *s, sl_prefixes *prefixes, sl_kept_pages *kept);
/* --speculate */
typedef struct speculate {
  sl_speculation how;
  char *path; /* of the draft model; NULL if none. The caller frees it. */
} speculate;
/* speculate.c: reads --speculate. */
sl_status speculate_read(const settings *s, speculate *out);
typedef struct draft_model draft_model;

/* The served model: a session, and its tokenizer and chat template (model.c, chat_format.c). */
typedef struct served {
  sl_job *job; /* the processes of the session */
  machine machine;
  sl_tick_cost cost; /* --tick */
  sl_session *session;
  draft_model *draft; /* NULL if none */
  engine engine;
  chat_format chat_format;
  int32_t *ends;        /* part of the chat format, as are the next three fields */
  char *name, *no_chat; /* name: all names, one after another */
  const char **aliases;
  sli_chat_found found; /* where the chat format was found */
  rates rates;
  subject subject; /* subject of `control` */
  control *control;
} served;

/* draft_model.c: reads the settings of the draft model at `path` into m->draft, and takes ownership
 * of `path`. `ahead`: the draft model is the block of that model that predicts ahead. */
sl_status draft_model_open(const settings *s, served *served, char *path, bool ahead);
void draft_model_close(draft_model *d);
const char *draft_model_path(const draft_model *d);
/* Returns options of a session of the draft model. */
const sl_session_options *draft_model_options(const draft_model *d);
/* Checks that the draft model has the model's tokens. The model's tokenizer must be open. */
sl_status draft_model_check(const served *served);

/* status_provider.c: starts and ends answering status requests. Call both while the session exists.
 */
sl_status status_provider_open(served *served, const char *model);
void status_provider_close(served *served);

/* Returns session options for the settings. They point into the settings and into `m`. */
sl_status model_options(settings *s, served *served, sl_session_options *out);
/* Opens a session of the settings' model, and loads its weights. */
sl_status model_open(settings *s, served *out);
sl_status model_close(served *served); /* SL_E_IO names a file that could not be written */
/* Reads the tokenizer and chat template that belong to the model's weights. */
sl_status chat_format_open(const settings *s, int64_t vocabulary, served *out);
void chat_format_close(served *served);

/* report.c: writes a server's configuration and counts as JSON. SL_E_IO names the file. */
sl_status report_write(const char *path, const served *served);

#endif
