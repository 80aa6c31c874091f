/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of serve/: a session and its requests.
 *
 * Three kinds of threads use a session. User threads submit, cancel and poll. The source's thread
 * chooses the work of each tick (choose.c) and waits while there is no work. The thread on which
 * the plan delivers outputs processes a tick's results (take.c). One lock guards everything they
 * share. */
#ifndef SLUICE_SERVE_SERVE_H
#define SLUICE_SERVE_SERVE_H

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

/* Tokens of a request: the prompt, then the answer so far. */
typedef struct request_text {
  int64_t prompt, most; /* prompt tokens; maximum tokens of prompt and answer together */
  int64_t count, until; /* tokens so far; tokens at which the replayed log cancels the request, else
                           INT64_MAX */
  size_t capacity;
  int32_t *tokens; /* [count] */
  int32_t *splice; /* [prompt] row that replaces each embedding, -1: none; NULL: no rows */
  float *rows;     /* the rows; NULL: the plan's encoder computes them */
} request_text;

/* Pages and states that a request holds, and what they share with other requests. */
typedef struct request_cache {
  int64_t npages;
  int32_t *pages;  /* [pages needed for text.most tokens] */
  int32_t slot;    /* index of its slots for states; -1: none */
  int32_t resumes; /* kept state that it resumes from; -1: none */
  int64_t named;   /* number of named full pages */
  uint64_t name;   /* name of the last named page (prefixes.c) */
  int64_t known;   /* tokens that are final; INT64_MAX: all */
  int64_t goal;    /* token count at which it pauses; INT64_MAX: never */
  int64_t cached;  /* prompt tokens found in other requests' pages at first admission */
  int64_t brought; /* leading tokens whose pages come from another server, until it yields */
} request_cache;

/* How far ticks have come with a request. */
typedef struct advance {
  int64_t fed;        /* tokens fed to ticks so far, or found in pages that other requests filled */
  int64_t computed;   /* highest token count ever computed, or found in shared pages */
  int ticks;          /* ticks in flight that contain rows of this request */
  uint64_t last_tick; /* number of the last tick with rows of this request, counted from 1 */
  int64_t reported;   /* tokens of a scored prompt that were reported; they come in order */
  int64_t stuck;      /* text length after which its constraint allows no token; -1: none */
  double pace;        /* seconds per chunk while the request is alone; 0: not computed yet */
} advance;

/* Tokens drafted for a request. */
typedef struct drafting {
  sli_lookup *lookup; /* NULL: nothing drafted yet */
  request *mirror;    /* its request in the draft session, under that session's lock; NULL: none */
  bool unmirrored;    /* the mirror has failed */
  float *hidden;      /* [nhidden] hidden states by position, for a draft model that reads them */
  int64_t nhidden;    /* of a mirror: how many of them are its target's */
  size_t hidden_capacity; /* in floats */
  int count;              /* drafted tokens in flight after its last token */
  int match;              /* length of the match that the draft came from */
  int32_t tokens[SL_SESSION_DRAFTED];
} drafting;

struct request {
  request *next; /* next request in turn */
  uint64_t id;
  double turn; /* tokens of its client before it (requests.c) */
  void *user;
  standing standing;
  bool cancelled; /* cancelled while some of its ticks are in flight */
  /* cancelled during a replay: ends where the log says, or when the log is exhausted */
  bool unwanted;
  bool begun; /* admitted before */
  request_text text;
  request_cache cache;
  advance progress;
  drafting draft;
  sl_request how;   /* temperature and other request parameters; its arrays are not used */
  int32_t *stop;    /* [how.nstop] */
  sli_edits *edits; /* edits of its logits; NULL: none */
  double *sums;     /* [width] sum of its hidden states; NULL: no embedding was requested */
  int64_t step;     /* training step, in a session embedded in training */
};

typedef struct events {
  size_t count, capacity, first; /* events from `first` on have not been polled */
  sl_session_event *items;
} events;

/* Rows of one request in a tick. */
typedef struct part {
  request *request;
  int64_t from, rows;   /* `rows` includes drafted rows */
  bool picked;          /* the last known token's row and all drafted rows are sampled */
  int drafted;          /* drafted tokens, in the last rows */
  int scored;           /* leading rows whose next token is one of a scored prompt */
  int32_t reads, keeps; /* slots of the states before its first row and after its last; -1: none */
} part;

/* Total work of a tick. */
typedef struct load {
  int64_t rows, picks, sequences, edits;
  /* sum over sequences of the positions before their rows; sum of 2 L x + x x for x rows after L
   * positions */
  double positions, pairs;
} load;

/* A tick in flight. */
typedef struct tick {
  int count;
  part *parts; /* [sequences] */
  load load;
  double drafting;     /* seconds spent making its drafts */
  double *paged;       /* [paged->count] seconds of each of the session's paged calls */
  sl_sampled *sampled; /* [picks] results that arrived before the hidden states */
} tick;

/* Measurements that decide whether drafting pays (drafts.c). */
enum { SLI_DRAFT_CLASSES = 4, SLI_DRAFT_ROWS = 512 };
typedef struct sli_draft_time {
  double seconds; /* running mean; 0: not measured */
  int count;      /* number of measurements, capped */
} sli_draft_time;
typedef struct drafts {
  /* drafted tokens that were checked and that were right, by match length; older ones are weighted
   * less */
  struct draft_class {
    double checked, right;
  } classes[SLI_DRAFT_CLASSES];
  /* time of a decode-only tick, by rows; time to draft one more token per request, by number of
   * requests */
  sli_draft_time ticks[SLI_DRAFT_ROWS], drafting[SLI_DRAFT_ROWS];
  uint64_t occasions; /* number of ticks in which drafting was possible */
} drafts;

/* A request to draft tokens for. */
typedef struct draft {
  part *part;
  int most, n; /* tokens wanted; tokens drafted */
} draft;

/* Source of drafted tokens. */
typedef struct sli_drafter {
  bool costs; /* drafting is expensive: decide how many tokens pay before drafting */
  /* Writes up to draft.most tokens to each request's `drafted`, and their number to draft.n. May
   * release the lock meanwhile. Returns the seconds that one more token per request took, or 0 if
   * unknown. */
  double (*find)(sl_session *s, int n, draft *of);
  /* Frees the drafter's state of a request. */
  void (*leave)(const sl_session *s, request *r);
} sli_drafter;
extern const sli_drafter sli_drafter_ngram, sli_drafter_model; /* ngram.c, mirror.c */

/* Timings of the newest ticks. */
typedef struct fit {
  int64_t ticks;
  size_t count, capacity;
  struct fit_sample {
    double rows, positions, pairs, picks, seconds;
  } * items;
} fit;

typedef struct ticks {
  /* number of ticks begun, ticks whose allowed tokens have been written, and ticks completed */
  uint64_t begun, allowed, back;
  uint64_t sampled, hidden; /* ticks whose tokens have arrived, and whose hidden states have */
  int64_t first;            /* training step of the first tick */
  int64_t step; /* training step of the last tick begun, in a session embedded in training */
  int most;
  tick *ring; /* [most] ring, indexed by tick number modulo `most` */
} ticks;

/* Log of the ticks' contents, and the log being replayed. */
typedef struct sli_session_log {
  struct sli_journal *to; /* or NULL */
  FILE *from;             /* or NULL */
  char *line;             /* current line of `from` */
  size_t capacity;
  bool within;      /* the current line of `to` already has words */
  long long number; /* number of the last line read, from 1 */
  const char *at;   /* next word of the line to replay; NULL: between lines */
  size_t nends, ends_capacity;
  struct sli_log_end {
    uint64_t id;
    int64_t count;
  } * ends; /* [nends] requests that `from` cancels, with their token counts */
} sli_session_log;

typedef struct sli_log_entry {
  uint64_t id;
  enum { SLI_LOG_ROWS, SLI_LOG_DRAFTS, SLI_LOG_YIELDS, SLI_LOG_CANCELS } kind;
  int64_t from, rows; /* `from` of a CANCELS entry: the request's token count */
} sli_log_entry;

/* Driver of a simulation on the virtual clock, in place of users that submit and poll. */
typedef struct sli_simulator {
  /* Submits the requests that have arrived by now. Returns the time of the next arrival in ns;
   * UINT64_MAX if none is left. Stops the run once all requests have ended. */
  uint64_t (*go_on)(struct sli_simulator *p, sl_session *s);
  void (*note)(struct sli_simulator *p, const sl_session *s, const sl_session_event *event);
  /* Records that a stage's actor takes `seconds` for a tick. */
  void (*compute)(struct sli_simulator *p, const sl_session *s, int32_t actor, double seconds);
} sli_simulator;

/* Calls whose duration depends on the positions of each sequence (price.c). */
typedef struct sli_paged sli_paged;

struct sl_session {
  sl_session_options options;
  sl_session_info about;
  struct sli_session_reads {
    sl_expert_reads experts; /* updated atomically by the disk's threads */
    sl_row_reads rows;       /* also by the disk's threads */
    sl_block_choices blocks; /* updated atomically by the devices' threads */
  } reads;
  sl_serving serving;
  /* index of the weight files during lowering; NULL: weights are stored in the options' dtype */
  struct sli_shards *stored;
  sl_graph *graph;
  struct sli_earlier { /* graphs built for other plans of the same training */
    size_t count, capacity;
    sl_graph **graphs;
  } earlier;
  struct sli_session_thread {
    pthread_t id;
    bool started, ran; /* the thread is running; the plan has been run */
  } thread;
  /* The lock guards all fields below. */
  pthread_mutex_t lock;
  pthread_cond_t work; /* signalled when there may be work, or when the session must end */
  pthread_cond_t idle; /* signalled when requests or the session end, or no tick is in flight */
  request *requests;   /* requests that have not ended, in turn */
  uint64_t last_id;
  double turn; /* largest turn of a request that was admitted */
  events events;
  int wake; /* eventfd: 1 while there are events */
  struct sli_session_end {
    bool draining, closing;
    sl_status status; /* status that ended the session */
    char *detail;
  } end;
  sl_session_stats stats;
  ticks ticks;
  sli_pages *pages;
  sli_adapter_places *adapters; /* NULL: none */
  bool paused;                  /* no new tick begins */
  sli_kept *kept;               /* NULL: reused pages lose their contents */
  sli_session_log log;
  struct sli_session_prices {
    /* [plan->nactors] the actor's fraction of its stage's time per tick; 0: not a pass */
    double *shares;
    sli_paged *paged; /* the plan's different calls that are priced by positions; NULL: no prices */
    fit fit;          /* timings, recorded only if one tick is in flight at a time */
  } prices;
  struct sli_session_speculation {
    drafts drafts;
    const sli_drafter *drafter; /* NULL: no speculation */
    draft *wanted;              /* [sequences] drafts wanted for the tick being chosen */
    bool drafting;              /* a tick waits for its drafts with the lock released */
    sl_session *draft;          /* the draft model's session; NULL: none */
    const sl_session *target;   /* the session that this one drafts for; NULL: none */
  } speculation;
  bool resting;             /* no tick is in flight and there is no work */
  sli_simulator *simulator; /* simulation driver; NULL: real clock */
  sl_session_steps steps; /* hooks of the training that embeds the session; ticks 0: not embedded */
};

/* All functions below require the lock. */

/* requests.c: ends a request: removes it from the list, frees its pages and sends its END event. */
void sli_session_finish(sl_session *s, request *r, sl_end end);
/* Passes an event on: to the reader of events, or to the training step or simulator in its place.
 */
void sli_session_pass(sl_session *s, const sl_session_event *event);
/* Appends a token to the answer and sends its event. Ends the request at a stop token or the length
 * limit; returns whether the request has ended. */
bool sli_session_answer(sl_session *s, request *r, sl_session_event event);
/* Cancels a request, which ends now or once its ticks have completed. */
void sli_session_hang_up(sl_session *s, request *r);
/* Cancels all requests of training steps up to `step`. */
void sli_session_end_step(sl_session *s, int64_t step);
/* Cancels all requests that are marked unwanted. */
void sli_session_end_unwanted(sl_session *s);
/* Returns whether ticks must wait because too many events are unpolled. */
bool sli_session_is_behind(const sl_session *s);
/* Ends all remaining requests as cancelled or failed. */
void sli_session_finish_all(sl_session *s, sl_end end);

/* pages.c */
sl_status sli_pages_init(sl_session *s);
void sli_pages_fini(sl_session *s);
int64_t sli_pages_of(int64_t positions);
/* Allocates pages so that a request covers `positions` positions. Returns false, with none
 * allocated, if too few are free. */
bool sli_pages_take(sl_session *s, request *r, int64_t positions);
/* Admits a request that has no pages: shares the first `*shared` pages listed in r->pages and
 * allocates the rest. Fewer are shared if a disk lost some. Returns false if too few pages or slots
 * are free. */
bool sli_pages_let_in(sl_session *s, request *r, int64_t positions, int64_t *shared);
void sli_pages_free(sl_session *s, request *r);

/* adapters.c: sizes the adapter places from the options. */
sl_status sli_adapters_read(sl_session *s);
/* Loads the adapters named in the options, before the plan runs. */
sl_status sli_adapters_load(sl_session *s);
void sli_adapters_free(sl_session *s);
sl_status sli_adapters_check(const sl_session *s, int adapter);
/* Registers that a request uses its adapter. Returns a salt for the request's prefixes. */
uint64_t sli_adapters_use(const sl_session *s, const request *r);
void sli_adapters_leave(const sl_session *s, const request *r);

/* prefixes.c: finds up to `most` pages that hold the request's first tokens and lists them in
 * r->pages, kept pages as the complements of their numbers. Returns the number of pages. They never
 * include the last token, so at least one row remains to compute. In a model with states, the last
 * page found has a kept state (r->resumes). */
int64_t sli_prefixes_find(const sl_session *s, request *r, int64_t most);
/* Names the request's full pages when a tick takes its rows, so that other requests can find them.
 * Returns the last page if the rows end exactly at its end, else -1. */
int32_t sli_prefixes_note(sl_session *s, request *r);

/* states.c: slots of states. */
/* Returns the number of slots of each sequence. */
int32_t sli_states_slots(const sl_session *s);
/* Returns the rows of a request's next part, at most `rows`: a part ends at any page whose state
 * must be kept. */
int64_t sli_states_rows(const sl_session *s, const request *r, int64_t rows);
/* Sets the slots from which a part reads its state and in which it keeps one. `page` is the full
 * page at whose end the part ends, or -1. */
void sli_states_place(sl_session *s, part *p, int32_t page);

/* requests.c: checks a request. SL_E_USAGE: the error text names the fault. */
sl_status sli_session_check(const sl_session *s, const sl_request *request);
/* Checks a request, and that this process accepts requests. */
sl_status sli_session_may_submit(const sl_session *s, const sl_request *request);
/* Returns the positions of the longest sequence, including the model's sink tokens. */
int64_t sli_session_positions(const sl_session *s);
/* Creates a request from settings that have been checked. */
request *sli_session_make(const sl_session *s, const sl_request *q);
/* Frees a request that is in no list. */
void sli_session_forget(request *r);
/* Appends the request to the queue and returns its id. */
uint64_t sli_session_queue(sl_session *s, request *r);
/* Queues the request, or frees it on failure. Takes the lock itself. Fails with SL_E_BUSY as
 * below. */
sl_status sli_session_append(sl_session *s, request *r, uint64_t *id);
/* Creates and queues a request; the pages of its first `brought` tokens come from another server.
 * SL_E_BUSY: the queue is full, or the session is closing. */
sl_status sli_session_enter(sl_session *s, const sl_request *request, int64_t brought,
                            uint64_t *id);

/* edits.c: creates the edits of a request's logits from its settings, stop tokens and prompt.
 * Returns NULL if there are none. */
sli_edits *sli_edits_create(const sl_request *request);
sli_edits *sli_edits_copy(const sli_edits *e);
void sli_edits_free(sli_edits *e);
/* Records the next token of the answer. */
void sli_edits_note(sli_edits *e, int32_t token);
int64_t sli_edits_count(const sli_edits *e);
/* Writes the edits for token `place` of the answer, then one more for each of the `n` drafted
 * tokens that follow, which applies to the token after it. Returns the number of edits without
 * those of the drafted tokens. */
int64_t sli_edits_write(const sli_edits *e, int64_t place, int n, const int32_t *drafted,
                        sl_batch_edit *out);

/* drafts.c: drafts the next tokens of a tick's parts. */
void sli_drafts_find(sl_session *s, tick *t, int n, draft *of);
/* If drafting is expensive, limits the drafts to the length that pays and to the `rows` left in the
 * tick. */
void sli_drafts_limit(sl_session *s, int n, draft *of, const load *l, int64_t rows);
/* Returns how many of n drafted tokens pay in a tick that has `rows` rows and yields *tokens
 * tokens. Adds the expected gain to *tokens. */
int sli_drafts_worth(sl_session *s, const request *r, int n, int64_t rows, double *tokens);
/* Records how many of a request's drafted tokens were right. */
void sli_drafts_note(sl_session *s, const request *r, int right);
/* Records the duration of a decode-only tick. */
void sli_drafts_time(drafts *d, int64_t rows, double seconds);
/* mirror.c: returns options for the draft model's session, with the sizes of this session, whose
 * plan must exist. */
sl_session_options sli_mirror_options(const sl_session *s);
/* `note` callback of the draft session's sl_session_steps. Records that a mirror ended on its own:
 * its logits are not finite, or the session failed. */
void sli_mirror_note(void *ctx, const sl_session_event *event);
/* Stores the hidden state of a position: in the request, or in a mirror as what its next row reads.
 */
void sli_mirror_hidden(const sl_session *s, request *r, int64_t at, const float *row);
/* Checks a draft model's session against its target session. */
sl_status sli_mirror_check(const sl_session *s);

/* stages.c: seconds of a stage for a tick: its pass and the exchanges among its devices, and the
 * transfer to the next stage. */
typedef struct sli_stage_seconds {
  double pass, exchange, transfer;
} sli_stage_seconds;
int sli_stages_count(const sl_session_prices *p);
/* Writes the seconds of all stages for a tick of a session with these prices. */
void sli_stages_price(const sl_session_prices *p, const sl_session *s, const tick *t,
                      sli_stage_seconds *out);

/* simulate.c: requests of a simulation, and the clients that send them. */
typedef struct sli_script {
  int64_t clients; /* of a closed loop; 0: requests arrive at their times */
  double *sends;   /* [clients] ring: when the clients that wait for no answer had their last */
  int64_t taken;   /* clients that have left the ring; freed: that have entered it */
  int64_t freed;
  int64_t count, next;        /* number of requests; index of the next */
  const sl_arrival *arrivals; /* [count] */
  sl_answered *answered;      /* [count] owned by the simulation's result */
  int64_t longest;            /* longest prompt, in tokens */
  int32_t *prompt;            /* [longest + 1] */
} sli_script;
void sli_script_init(sli_script *p, int64_t clients, int64_t n, const sl_arrival *arrivals);
void sli_script_fini(sli_script *p);
/* Returns request i, whose prompt is valid until the next call. */
sl_request sli_script_request(const sli_script *p, const sl_session *s, int64_t i);
/* Checks that the session can answer all requests. SL_E_USAGE names the arrival. */
sl_status sli_script_check(const sli_script *p, const sl_session *s);
/* Returns when the engine has the next request; UINT64_MAX if none comes before an answer. */
uint64_t sli_script_next(const sli_script *p, const sl_session *s);
/* Takes the next request, sets when it came, and returns its index. */
int64_t sli_script_take(sli_script *p);
/* Records that a client has its answer, and sends its next request. */
void sli_script_let_free(sli_script *p, double seconds);
/* Returns the hardware of a session, or that of a default core. */
const sl_hardware *sli_script_hardware(const sl_session *s);
/* Returns the time from the first arrival to the last token. */
double sli_script_seconds(const sli_script *p);

/* chunks.c: returns the number of rows of a prompt's next chunk, at most `most`. */
int64_t sli_chunk_rows(sl_session *s, request *r, int64_t most);
/* Returns the positions of a request that belong to chunks with chosen pages, from the first on. */
int64_t sli_chunk_end(const sl_session *s, const request *r);
/* Returns the number of rows after the request's first `fed` ones that must be in one tick; 0: any
 * number below a chunk's, or any if no prompt chooses pages. */
int64_t sli_chunk_whole(const sl_session *s, const request *r, int64_t fed);
/* Returns whether a tick may take these rows of a request. */
bool sli_chunk_may_be(const sl_session *s, const request *r, int64_t fed, int64_t rows);
/* Returns twice the pairs of positions that rows after `fed` positions compute. */
double sli_chunk_work(const sl_session *s, int64_t fed, int64_t rows);
/* Checks the chunks of an open session. */
sl_status sli_chunk_check(const sl_session *s);

/* price.c: time of an actor's firing on timed devices, and mean tick time. */
void sli_price_init(sl_session *s);
/* Returns lines on calls that the machine's tables do not cover, which the caller frees; NULL:
 * none. */
char *sli_price_notes(const sl_session *s);
void sli_price_fini(sl_session *s);
double sli_price_tick(const sl_tick_cost *cost, const load *of);
/* Interpolates between corners. Below the first corner the time is constant; beyond the last it
 * does not fall. */
double sli_price_rows(const sl_rows_seconds *d, double rows);
/* Returns the ratio of a pass's time to the mean, for tick number `at`. */
double sli_price_spread(const sl_session *s, int32_t actor, uint64_t at);
/* Returns the number of different paged calls. */
int sli_price_paged(const sl_session *s);
/* Adds how often an actor has each paged call. */
void sli_price_count(const sl_session *s, int32_t actor, int *times);
struct sli_paged_rows;
/* Returns the seconds of a paged call on n spans. */
double sli_price_call(const sl_session *s, int call, int n, const struct sli_paged_rows *spans);
/* Writes the seconds of each paged call in a tick of this session or of one with the same plan. */
void sli_price_calls(const sl_session *s, const tick *t, double *seconds);
/* Prices the paged calls of a tick whose parts are chosen. */
void sli_price_parts(const sl_session *s, tick *t);
/* `duration` callback of sl_runtime_options. */
uint64_t sli_price_firing(void *session, int32_t actor, int64_t tick);

/* fit.c */
void sli_fit_note(fit *f, const load *of, double seconds);
/* Fits the tick cost, either with corners and a spread or without both. */
sl_tick_cost sli_fit_cost(const fit *f, bool corners);
void sli_fit_fini(fit *f);

/* choose.c: `fill` callback of sl_serving: waits for work and writes a tick's batch. */
void sli_session_choose(void *ctx, const sl_tick *at, int32_t *tokens, sl_batch *batch);
/* `await` callback of sl_serving, for devices that hold no values. */
uint64_t sli_session_await(void *ctx, const sl_tick *at);

/* splice.c: writes the spliced rows of a part, which begins at row `row` of the tick, into the
 * batch. */
void sli_session_splice(const sl_session *s, const part *p, sl_batch *batch, int32_t row);

/* allow.c: `allow` callback of sl_serving: calls the constraints of a tick's requests. Takes the
 * lock itself. */
void sli_session_allow(void *ctx, const sl_batch *batch, uint32_t *rows);

/* log.c */
sl_status sli_log_open(sl_session *s);
sl_status sli_log_close(sl_session *s); /* SL_E_IO: the log is incomplete */
void sli_log_yield(sl_session *s, const request *r);
void sli_log_cancel(sl_session *s, const request *r);
/* Logs the request's next `rows` rows. */
void sli_log_part(sl_session *s, const request *r, int64_t rows);
void sli_log_draft(sl_session *s, const request *r, int n);
void sli_log_tick(sl_session *s, const tick *t);
/* Returns the token count at which the replayed log cancels a request, or INT64_MAX if it does
 * not. */
int64_t sli_log_until(const sl_session *s, uint64_t id);
/* Returns whether the replayed log has another tick. Its words start at log.at, which becomes NULL
 * when the line is done. */
bool sli_log_next(sl_session *s);
/* Parses a word of a line; returns the start of the next one, or NULL if there is none. */
const char *sli_log_word(const char *at, sli_log_entry *out);

/* session.c: returns the bytes of one page over all stages. */
int64_t sli_session_page_bytes(const sl_session *s);
/* session.c: creates a session that a simulator drives tick by tick, without a runtime; `planned`:
 * with its plan and prices. On failure *out must still be destroyed. */
sl_status sli_session_open_driven(const sl_session_options *options, sli_simulator *simulator,
                                  bool planned, sl_session **out);
/* session.c: creates everything but the thread. On failure *out may be partly built and must still
 * be destroyed. */
sl_status sli_session_open(const sl_session_options *options, sli_simulator *simulator,
                           const sl_session *target, sl_session **out);
/* Runs the session's plan to its end in the calling thread. */
void sli_session_run(sl_session *s);

/* take.c: `on_output` callback of sl_lower_options: processes the results of a tick. */
void sli_session_take(void *ctx, const char *name, const sl_type *type, const void *data);

#endif
