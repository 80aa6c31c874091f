/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of serve/: a session and its requests.
 *
 * Three kinds of threads use a session. User threads submit, cancel and poll. The source's
 * thread chooses the work of a tick (choose.c) and waits while there is none. The thread on
 * which the plan delivers outputs takes a tick's results (take.c). One lock guards everything
 * they share. */
#ifndef SLUICE_SERVE_H
#define SLUICE_SERVE_H

#include <pthread.h>

#include <sluice/frames.h>
#include <sluice/session.h>

#include "base/base.h"
#include "serve/lookup.h"

typedef struct request request;
typedef struct sli_pages sli_pages;                   /* prefixes.h */
typedef struct sli_adapter_places sli_adapter_places; /* adapters.c */
typedef struct sli_kept sli_kept;                     /* kept.c */
typedef struct sli_edits sli_edits;                   /* edits.c */

/* State of a request. */
typedef enum standing {
  QUEUED, /* waits without pages: new, or preempted */
  RUNNING,
  YIELDING /* preempted: gives up its pages once its ticks have completed */
} standing;

struct request {
  request *next; /* next younger request */
  uint64_t id;
  void *user;
  standing standing;
  bool cancelled; /* cancellation is requested while its ticks are under way */
  /* cancelled while a log is replayed: ends where the log says, or when the log is over */
  bool unwanted;
  bool begun;            /* admitted before */
  int64_t nprompt, most; /* tokens of the prompt; most tokens of prompt and answer */
  /* tokens now; token count at which the replayed log cancels it, else INT64_MAX */
  int64_t count, until;
  size_t capacity;
  int32_t *tokens;    /* [count] the prompt, then the answer so far */
  int32_t *splice;    /* [nprompt] rows in place of embeddings, -1: none; NULL: none at all */
  float *rows;        /* those rows; NULL: they are those of the plan's encoder */
  int64_t fed;        /* tokens in ticks so far, or in pages that other requests have filled */
  int64_t computed;   /* most tokens ever computed, or found in shared pages */
  int64_t cached;     /* prompt tokens found in other requests' pages at first admission */
  int ticks;          /* ticks under way that contain rows of this request */
  uint64_t last_tick; /* number of the last tick that contains rows of it, counted from 1 */
  int64_t npages;
  int32_t *pages;     /* [pages needed for `most` tokens] */
  int32_t slot;       /* of its states; -1: none */
  int32_t resumes;    /* kept state that it begins behind; -1: none */
  int64_t named;      /* full pages that have names */
  int64_t known;      /* tokens that no other will replace; INT64_MAX: all */
  int64_t goal;       /* tokens at which it rests; INT64_MAX: none */
  uint64_t name;      /* name of the last named page (prefixes.c) */
  double pace;        /* seconds per chunk while the request is alone; 0: not computed yet */
  int64_t stuck;      /* length of the text behind which its constraint allows no token; -1: none */
  double *sums;       /* [width] of its hidden states; NULL: no embedding is wanted */
  sl_request how;     /* temperature and other request parameters; its arrays are not used */
  int32_t *stop;      /* [how.nstop] */
  sli_edits *edits;   /* edits of its logits; NULL: none */
  int64_t step;       /* of training, where the session is part of it */
  sli_lookup *lookup; /* NULL: nothing was drafted yet */
  request *mirror;    /* its request to the draft model, under that session's lock; NULL: none */
  bool unmirrored;    /* that request has failed */
  int ndrafted;       /* drafted tokens under way, behind its last one */
  int match;          /* length of the match that they are from */
  int32_t drafted[SL_SESSION_DRAFTED];
};

typedef struct events {
  size_t count, capacity, first; /* events from `first` on have not been polled */
  sl_session_event *of;
} events;

/* Rows of one request in a tick. */
typedef struct part {
  request *of;
  int64_t from, rows;   /* with drafted ones */
  bool picked;          /* tokens are sampled from the last row, and from those of drafted tokens */
  int drafted;          /* drafted tokens, the last rows */
  int32_t reads, keeps; /* slots of states before its first row and behind its last; -1: none */
} part;

/* Sum of the work of a tick. */
typedef struct load {
  int64_t rows, picks, sequences, edits;
  /* sum of the positions in front of each sequence's rows; sum of 2 L x + x x for x rows behind
   * L */
  double positions, pairs;
} load;

/* A tick under way. */
typedef struct tick {
  int count;
  part *parts; /* [sequences] */
  load load;
  double drafting;     /* seconds in which its drafts were made */
  sl_sampled *sampled; /* [picks] results that came before the hidden states */
} tick;

/* Measurements by which drafts are made as long as they pay (drafts.c). */
enum { SLI_DRAFT_CLASSES = 4, SLI_DRAFT_ROWS = 512 };
typedef struct sli_draft_time {
  double seconds; /* mean of the newest; 0: not measured */
  int count;      /* measurements, up to those that count */
} sli_draft_time;
typedef struct drafts {
  /* drafted tokens that were checked, and those that were right, by length of the match; older
   * ones count less */
  struct draft_class {
    double checked, right;
  } classes[SLI_DRAFT_CLASSES];
  /* of a tick of answers, by rows; and to draft one more token of each of so many requests */
  sli_draft_time ticks[SLI_DRAFT_ROWS], drafting[SLI_DRAFT_ROWS];
  uint64_t occasions; /* at which such drafts could be made */
} drafts;

/* A request whose next tokens are wanted. */
typedef struct draft {
  part *of;
  int most, n; /* tokens wanted, and drafted */
} draft;

/* Source of drafted tokens. */
typedef struct sli_drafter {
  bool costs; /* drafts take long: how many tokens pay is decided before they are made */
  /* Writes up to draft.most tokens to each request's `drafted`, and their number to draft.n. May
   * give up the lock meanwhile. Returns the seconds that one more token of each took; 0: unknown.
   */
  double (*find)(sl_session *s, int n, draft *of);
  /* Forgets what it knows of a request. */
  void (*leave)(const sl_session *s, request *r);
} sli_drafter;
extern const sli_drafter sli_drafter_ngram, sli_drafter_model; /* ngram.c, mirror.c */

/* Timings of the newest ticks. */
typedef struct fit {
  int64_t ticks;
  size_t count, capacity;
  struct fit_sample {
    double rows, positions, pairs, picks, seconds;
  } * of;
} fit;

typedef struct ticks {
  /* number of ticks begun, of those whose allowed tokens are told, and of ticks completed */
  uint64_t begun, allowed, back;
  uint64_t sampled, hidden; /* those whose tokens, and whose hidden states, have come */
  int64_t first;            /* step of training of the first tick */
  int64_t step; /* of training, where the session is part of it: of the last tick begun */
  int most;
  tick *of; /* [most] ring, indexed by tick number modulo `most` */
} ticks;

/* Log of what the ticks contained, and the log that is replayed. */
typedef struct sli_session_log {
  FILE *to, *from; /* or NULL */
  char *line;      /* current line of `from` */
  size_t capacity;
  bool within;      /* the current line of `to` has words already */
  int error;        /* errno of the first failed write; 0: none */
  long long number; /* number of the line read last, from 1 */
  const char *at;   /* next word of the line to replay; NULL: between lines */
  size_t nends, ends_capacity;
  struct sli_log_end {
    uint64_t id;
    int64_t count;
  } * ends; /* [nends] all requests that `from` cancels, with their token counts */
} sli_session_log;

typedef struct sli_log_entry {
  uint64_t id;
  enum { SLI_LOG_ROWS, SLI_LOG_DRAFTS, SLI_LOG_YIELDS, SLI_LOG_CANCELS } kind;
  int64_t from, rows; /* `from` of a CANCELS entry: the request's token count */
} sli_log_entry;

/* Driver of a simulation on the virtual clock, in place of users that submit and poll. */
typedef struct sli_simulator {
  /* Submits the requests that have arrived by now. Returns the time of the next arrival in ns;
   * UINT64_MAX: none is left. Ends the run once all requests have been answered. */
  uint64_t (*go_on)(struct sli_simulator *p, sl_session *s);
  void (*note)(struct sli_simulator *p, const sl_session *s, const sl_session_event *event);
  /* Reports that a stage's actor takes `seconds` for a tick. */
  void (*compute)(struct sli_simulator *p, const sl_session *s, int32_t actor, double seconds);
} sli_simulator;

struct sl_session {
  sl_session_options options;
  sl_session_info about;
  sl_serving serving;
  /* weight files, while the graph is lowered; NULL: storage format is the options' dtype */
  struct sli_shards *stored;
  sl_graph *graph;
  size_t nolder, older_capacity;
  sl_graph **older; /* [nolder] made before it, for other plans of the same training */
  pthread_t thread;
  bool started, ran; /* the thread is running; it has run */
  /* The lock guards all fields below. */
  pthread_mutex_t lock;
  pthread_cond_t work; /* signalled when there may be work, or when the session is to end */
  pthread_cond_t idle; /* signalled when the last request or the session has ended */
  request *requests;   /* requests that have not ended, oldest first */
  uint64_t last_id;
  events events;
  int wake; /* eventfd: 1 while there are events */
  bool draining, closing;
  sl_status status; /* status that ended the session */
  char *detail;
  sl_session_stats stats;
  ticks ticks;
  sli_pages *pages;
  sli_adapter_places *adapters; /* NULL: none */
  bool paused;                  /* no tick begins */
  sli_kept *kept;               /* NULL: pages whose memory is needed are forgotten */
  sli_session_log log;
  /* [plan->nactors] the actor's share of its stage's time per tick; 0: no time, or the plan's */
  double *shares;
  fit fit; /* timings, kept only where one tick is under way at a time */
  drafts drafts;
  const sli_drafter *drafter; /* NULL: nothing is drafted */
  draft *wanted;              /* [sequences] of the tick that is chosen */
  bool drafting;              /* a tick waits for its drafts, without the lock */
  sl_session *draft;          /* of the draft model; NULL: none */
  const sl_session *target;   /* session that this one drafts for; NULL: none */
  bool resting;               /* no tick is under way, and there is none to begin */
  sli_simulator *simulator;   /* simulation driver; NULL: real clock */
  sl_session_steps steps;     /* of the training that it is part of; ticks 0: none */
};

/* All functions below require the lock. */

/* requests.c: ends a request: sends its END event, removes it from the list and frees its pages. */
void sli_session_finish(sl_session *s, request *r, sl_end end);
/* Appends a token to the answer and sends its event. Ends the request at a stop token or the
 * length limit; returns whether it has ended. */
bool sli_session_answer(sl_session *s, request *r, sl_session_event event);
/* Cancels a request: it ends now, or when its ticks have completed. */
void sli_session_hang_up(sl_session *s, request *r);
/* Cancels all requests of this step of training and earlier ones. */
void sli_session_end_step(sl_session *s, int64_t step);
/* Cancels all requests that are marked unwanted. */
void sli_session_end_unwanted(sl_session *s);
/* Returns whether so many events are unpolled that ticks must wait. */
bool sli_session_is_behind(const sl_session *s);
/* Ends all remaining requests as cancelled or failed. */
void sli_session_finish_all(sl_session *s, sl_end end);

/* pages.c */
void sli_pages_init(sl_session *s);
void sli_pages_fini(sl_session *s);
int64_t sli_pages_of(int64_t positions);
/* Gives a request pages for `positions` positions: all of them, or none and false. */
bool sli_pages_take(sl_session *s, request *r, int64_t positions);
/* Admits a request that has no pages: shares the first `shared` pages listed in r->pages and
 * allocates the others. */
bool sli_pages_let_in(sl_session *s, request *r, int64_t positions, int64_t shared);
void sli_pages_free(sl_session *s, request *r);

/* adapters.c: finds the sizes of the places, from the options. */
sl_status sli_adapters_read(sl_session *s);
/* Loads the adapters of the options, before the plan runs. */
sl_status sli_adapters_load(sl_session *s);
void sli_adapters_free(sl_session *s);
sl_status sli_adapters_check(const sl_session *s, int adapter);
/* A request begins or ceases to use its adapter; needs the lock. Returns a salt for its prefixes.
 */
uint64_t sli_adapters_use(const sl_session *s, const request *r);
void sli_adapters_leave(const sl_session *s, const request *r);

/* prefixes.c: finds at most `most` pages that hold the request's first tokens and lists them in
 * r->pages, kept ones as the complements of their numbers; returns their number. The last token is
 * never among them, so that there is something to compute. Of a model with states, a state is kept
 * beside the last one (r->resumes). */
int64_t sli_prefixes_find(const sl_session *s, request *r, int64_t most);
/* Names the request's full pages when a tick takes rows of it: they can be found from now on.
 * Returns the last page if the rows end with it, else -1. */
int32_t sli_prefixes_note(sl_session *s, request *r);

/* states.c: states kept beside pages. */
/* Rows of a request's next part, at most `rows`: no part goes on past a page whose state is to be
 * kept. */
int64_t sli_states_rows(const sl_session *s, const request *r, int64_t rows);
/* Sets the slots that a part reads and keeps states in. `page`: the full page that it ends with;
 * -1: none. */
void sli_states_place(sl_session *s, part *p, int32_t page);

/* requests.c: checks a request; SL_E_USAGE says what is wrong with it. */
sl_status sli_session_check(const sl_session *s, const sl_request *q);
/* Checks a request and whether this process takes some. */
sl_status sli_session_may_submit(const sl_session *s, const sl_request *q);
/* Positions of the longest sequence, with the model's tokens in front of it. */
int64_t sli_session_positions(const sl_session *s);
/* Makes a request that has been checked. */
request *sli_session_make(const sl_session *s, const sl_request *q);
/* Puts it behind the others, and returns its id. */
uint64_t sli_session_queue(sl_session *s, request *r);
/* Queues it, or frees it. Takes the lock by itself. SL_E_BUSY as below. */
sl_status sli_session_append(sl_session *s, request *r, uint64_t *id);
/* Queues a request. SL_E_BUSY: too many wait, or the session is closing. */
sl_status sli_session_enter(sl_session *s, const sl_request *q, uint64_t *id);

/* edits.c: the edits of a request's logits, from its settings, stop tokens and prompt. NULL: it
 * has none. */
sli_edits *sli_edits_create(const sl_request *q);
sli_edits *sli_edits_copy(const sli_edits *e);
void sli_edits_free(sli_edits *e);
/* Notes the next token of the answer. */
void sli_edits_note(sli_edits *e, int32_t token);
int64_t sli_edits_count(const sli_edits *e);
/* Writes the edits for token `place` of the answer, and one for each of `n` drafted tokens from
 * there on, as edits of the token behind it; returns the number of the former. */
int64_t sli_edits_write(const sli_edits *e, int64_t place, int n, const int32_t *drafted,
                        sl_batch_edit *out);

/* drafts.c: drafts next tokens, for parts of a tick. */
void sli_drafts_find(sl_session *s, tick *t, int n, draft *of);
/* Limits how many are wanted to what pays, and to what the `rows` left in the tick hold, where
 * drafts take long. */
void sli_drafts_limit(sl_session *s, int n, draft *of, const load *l, int64_t rows);
/* Returns how many of the n drafted tokens pay, in a tick of so many rows that brings so many
 * tokens; adds the expected ones to *tokens. */
int sli_drafts_worth(sl_session *s, const request *r, int n, int64_t rows, double *tokens);
/* Notes how many of a request's drafted tokens were right. */
void sli_drafts_note(sl_session *s, const request *r, int right);
/* Notes the duration of a tick of answers alone. */
void sli_drafts_time(drafts *d, int64_t rows, double seconds);
/* mirror.c: returns options of the draft model's session, of the sizes of this one, which is
 * planned. */
sl_session_options sli_mirror_options(const sl_session *s);
/* The note function of its sl_session_steps: notes when a mirror ends by itself, because its logits
 * are not finite or the session has failed. */
void sli_mirror_note(void *ctx, const sl_session_event *event);
/* Checks a draft model's session against the one that it drafts for. */
sl_status sli_mirror_check(const sl_session *s);

/* chunks.c: returns the rows of a prompt's next chunk, at most `most`. */
int64_t sli_chunk_rows(sl_session *s, request *r, int64_t most);

/* price.c: time of an actor's firing on timed devices, and mean time of a tick. */
void sli_price_init(sl_session *s);
double sli_price_tick(const sl_tick_cost *cost, const load *of);
/* The duration function of sl_runtime_options. */
uint64_t sli_price_firing(void *session, int32_t actor, int64_t tick);

/* fit.c */
void sli_fit_note(fit *f, const load *of, double seconds);
/* Fits the cost of a tick, with corners and a spread or without both. */
sl_tick_cost sli_fit_cost(const fit *f, bool corners);
void sli_fit_fini(fit *f);

/* choose.c: the fill function of sl_serving: waits for work and writes a tick's batch. */
void sli_session_choose(void *ctx, const sl_tick *at, int32_t *tokens, sl_batch *batch);
/* The await function of sl_serving, for devices that hold no values. */
uint64_t sli_session_await(void *ctx, const sl_tick *at);

/* splice.c: writes the rows of a part of a tick, which begin at row `row`, into the batch. */
void sli_session_splice(const sl_session *s, const part *p, sl_batch *batch, int32_t row);

/* allow.c: the allow function of sl_serving: asks the constraints of a tick's requests. Takes the
 * lock by itself. */
void sli_session_allow(void *ctx, const sl_batch *batch, uint32_t *rows);

/* log.c */
sl_status sli_log_open(sl_session *s);
sl_status sli_log_close(sl_session *s); /* SL_E_IO: the log is incomplete */
void sli_log_yield(sl_session *s, const request *r);
void sli_log_cancel(sl_session *s, const request *r);
/* logs the request's next `rows` rows */
void sli_log_part(sl_session *s, const request *r, int64_t rows);
void sli_log_draft(sl_session *s, const request *r, int n);
void sli_log_tick(sl_session *s, const tick *t);
/* Returns the token count at which the replayed log cancels a request; INT64_MAX: it does not. */
int64_t sli_log_until(const sl_session *s, uint64_t id);
/* Returns whether the replayed log has another tick. Its words are at log.at, until that is NULL
 * again. */
bool sli_log_next(sl_session *s);
/* Parses a word of a line; returns the start of the next one, or NULL if there is none. */
const char *sli_log_word(const char *at, sli_log_entry *out);

/* session.c: creates everything but the thread. On failure `out` may be partly built; destroy it
 * all the same. */
sl_status sli_session_open(const sl_session_options *options, sli_simulator *simulator,
                           const sl_session *target, sl_session **out);
/* Runs the session's plan to its end in the calling thread. */
void sli_session_run(sl_session *s);

/* take.c: the on_output function of sl_lower_options: takes the results of a tick. */
void sli_session_take(void *ctx, const char *name, const sl_type *type, const void *data);

#endif
