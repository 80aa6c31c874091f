/* A session: a model that answers many requests at once.
 *
 *     sl_session *s = NULL;
 *     sl_session_options options = {.model = &model, .args = args, .load = load, .load_ctx = x,
 *                                   .lower = {.stages = 2, .devices = {.kind = "cpu"}}};
 *     status = sl_session_create(&options, &s);
 *     if (!status) status = sl_session_submit(s, &(sl_request){.prompt = tokens, .nprompt = n,
 *                                                              .max_tokens = 100}, &id);
 *     ... poll(2) on sl_session_fd(s), then
 *     while ((n = sl_session_poll(s, events, 64))) ...      tokens, and the end of each request
 *     sl_session_drain(s, -1);
 *     sl_session_destroy(s);
 *
 * The graph is the one that the model trains with, built for one row of `rows` positions instead of
 * one of `context`. A tick of the plan is one pass of these rows: each belongs to some sequence (a
 * request and its answer) and is a token of its prompt or the last token of its answer. Which rows a
 * tick takes is decided when the tokens of an earlier one come back.
 *
 * What a request is answered does not depend on what else is under way: its logits have the same
 * bits alone and beside any others, however they are cut into ticks, on any number of stages, of
 * devices that share out a stage's tensors, of threads and processes. So the same request with the same seed has the same answer.
 *
 * Threads: submit, cancel, poll, stats, drain may be called by any thread at any time between
 * create and destroy, and never wait for a tick (drain does, if it is told to). Nothing of the program
 * is called back, but `load` during create. A session has a thread of its own, and the plan's
 * workers. */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H

#include <sluice/job.h>
#include <sluice/lower.h>
#include <sluice/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_session sl_session;

enum { SL_SESSION_TOP = SL_BATCH_TOP }; /* most alternatives of a token that are told */
enum { SL_SESSION_EVENTS = 1 << 16 }; /* not polled, with which no tick begins, unless the session drains */
#define SL_SESSION_PAGE SL_PAGE /* positions of a page of keys and values */

/* When a request is let in. RESERVE: when there are pages for its prompt and for as many tokens as it
 * may get. RECOMPUTE: when there are pages for its prompt; if they run out later, the youngest
 * gives up its own and is computed again when there are some, with the same bits. */
typedef enum sl_admit { SL_ADMIT_RESERVE, SL_ADMIT_RECOMPUTE } sl_admit;

/* Whether requests that begin with the same tokens have the pages of these in common. SHARED: full pages that one has
 * filled are used by those that come later, while it has them and as long as nobody else needs them; no bit of any
 * answer changes. APART: each computes its own. */
typedef enum sl_prefixes { SL_PREFIXES_SHARED, SL_PREFIXES_APART } sl_prefixes;

/* What each stage takes for a tick, in seconds: `tick`, `pick` for each token that is sampled, and of each sequence that has
 * x rows in it behind L positions `position` L + `row` x + `pair` (2 L x + x x). Products take what the rows of a tick come
 * to, and not in proportion: with corners, ticks of rows[i] rows take seconds[i] in place of `tick` and `row`, those between
 * two corners as a straight line has it, those beyond the last one as the last two go on. That is the mean; with a spread, a
 * tick takes so many times as long: those of the spread one after another, round and round, as what slows a machine down
 * lasts for more than a tick. Where each stage begins in it follows from the plan's seed. */
enum { SL_TICK_CORNERS = 24, SL_TICK_SPREAD = 512 };
typedef struct sl_tick_cost {
  double tick, position, row, pair, pick;
  int corners;                /* 0: none */
  double rows[SL_TICK_CORNERS], seconds[SL_TICK_CORNERS]; /* [corners], rows ascending */
  int spreads;                /* 0: none, all ticks take the mean */
  double spread[SL_TICK_SPREAD]; /* [spreads] of ticks in their order, 1 in the mean */
} sl_tick_cost;

/* How a prompt is cut that is alone, over several stages, where a tick's cost is given. TIMES: in chunks that take as
 * long as each other, of such a length that the whole takes least. ROWS: in chunks of `rows`, of which the
 * last ones take longest. */
typedef enum sl_chunks { SL_CHUNKS_TIMES, SL_CHUNKS_ROWS } sl_chunks;

typedef struct sl_session_options {
  const sl_model *model;      /* with its options as given, which outlive the session */
  const sl_args *args;
  const sl_training *training; /* adapters are merged in, all else is left out; NULL: none. Outlives it */
  int64_t context;            /* most tokens of a sequence, prompt and answer; 0: the model's context,
                                 which is the most it can be */
  int64_t rows;               /* of a tick, at most [64]. More make prompts faster, and all others
                                 wait longer for a tick that has a part of one */
  int sequences;              /* under way at once, at most; and tokens that a tick gives [rows, at most 64] */
  int groups;                 /* ticks under way at once [stages + 1 with several stages, else 1] */
  int64_t pages;              /* of keys and values, SL_PAGE positions each, in every stage
                                 [as many as `sequences` of `context` tokens need, as far as 512 MiB hold
                                 them in all stages together; at least what one needs, and 4 * rows
                                 positions] */
  sl_dtype kv;                /* of keys and values in pages: SL_F32, or SL_BF16: half the memory, and other answers than
                                 with f32 but the same alone and beside any others. Ops of a user's own that keep f32
                                 are refused beside it */
  sl_admit admit;
  sl_prefixes prefixes;
  int queue;                  /* requests that wait to be let in, at most; more are refused with SL_E_BUSY [1024] */
  sl_lower_options lower;     /* stages, tensor, devices, processes, dtype, homes and quotas of weights. Its callbacks are the
                                 session's, and what is about training does not count. With dtype SL_BF16
                                 weights of products are rounded to bf16, and multiplied in f32 */
  const char *stored;         /* weights as sl_weights_load() takes them: those of products lie in memory as
                                 they lie there, bf16 or in blocks, which changes no bit; `load` loads them.
                                 NULL: as `lower.dtype` says */
  sl_runtime_options run;     /* bind, bind_arg, workers, trace_records, jitter. Peers and processes
                                 are the job's */
  sl_job *job;                /* of several processes: all create the session, with the same options;
                                 process 0 has the requests. Not joined yet; the session ends it, also
                                 where create fails, and its owner closes it behind that. NULL: this
                                 one alone */
  const sl_term *terms;       /* [nterms] what all of its processes must have alike, beside model and plan: what weights
                                 hold, say (sl_job_join) */
  int nterms;
  /* Fills in the parameters; called once, during create. See sl_weights_load, sl_weights_copy. */
  sl_status (*load)(void *ctx, const sl_lowered *lowered, sl_runtime *rt);
  void *load_ctx;
  const char *log;            /* file that gets a line for each tick, of what it took; NULL: none. A session that
                                 cannot write it ends with SL_E_IO */
  const char *replay;         /* such a file: ticks take what it says instead; NULL: as requests come */
  const char *trace;          /* file that gets what ran when, as sl_trace_write() has it, when the session is
                                 destroyed: the newest firings, run.trace_records of each worker [2^16], of
                                 all processes in the first one, where all say so; NULL: none */
  const sl_tick_cost *cost;   /* what a tick takes: on timed devices that is what it takes; NULL: as lower.hardware
                                 says */
  sl_chunks chunks;
  bool hash;                  /* tell the hash of the logits with each token (sl_session_event.hash) */
} sl_session_options;

/* Builds the graph, lowers, proves and starts it. SL_E_UNSUPPORTED names the op that cannot be served
 * and its line in the model; SL_E_USAGE the option that is wrong; else as sl_lower, sl_runtime_create
 * and `load`. What the options point to outlives the call only where that is said. */
sl_status sl_session_create(const sl_session_options *options, sl_session **out);
/* Ends all requests and the plan, after the ticks under way. Pointers into events are no longer good.
 * With several processes: process 0 ends it for all. SL_E_IO names the log or the trace that could not be written
 * whole; the session is no more all the same. */
sl_status sl_session_destroy(sl_session *s);
/* In the other processes of a job: blocks until process 0 ends the session. How it ended, as
 * sl_session_status. */
sl_status sl_session_wait(sl_session *s);

/* Sizes in force, and what the model says of itself. */
typedef struct sl_session_info {
  int64_t vocabulary, context, rows, pages;
  int sequences, groups;
  size_t device_bytes;      /* memory of the largest device */
  const sl_plan *plan;      /* the session's */
  const sl_lowered *lowered;
  sl_runtime *rt;           /* for sl_look and sl_runtime_set_quotas; between create and destroy */
} sl_session_info;
sl_session_info sl_session_about(const sl_session *s);
/* What create would say of the model and its options, before memory is taken; and the sizes that would be in
 * force, without plan and runtime. `load` and `job` are not used. */
sl_status sl_session_check(const sl_session_options *options, sl_session_info *out);

/* ---- requests ------------------------------------------------------------------- */

typedef struct sl_request {
  const int32_t *prompt;    /* [nprompt] tokens, at least one; copied */
  int64_t nprompt;
  int64_t max_tokens;       /* of the answer, at least one; it ends earlier where the context ends, but not before
                               its first token */
  float temperature;        /* 0: the likeliest token, of equal ones the first */
  int top_k;                /* only the likeliest so many; 0: any */
  float top_p;              /* only the likeliest that together have this probability; 0 or 1: any */
  uint64_t seed;            /* of its random numbers, one for each token of the answer by its place */
  const int32_t *stop;      /* [nstop] tokens that end the answer, and are told; copied */
  int nstop;
  int logprobs;             /* how many of the likeliest are told with each token, up to
                               SL_SESSION_TOP; below 0: nor the token's own */
  uint64_t salt;            /* pages of prefixes are shared among requests of one salt; 0 is one as well */
  void *user;               /* comes back with each event */
} sl_request;

/* *id is never 0 and never used again. SL_E_USAGE says what is wrong with the request ("a prompt of 9120
 * tokens is longer than the context of 8192"); SL_E_BUSY: too many wait, or the session drains; the status that
 * ended the session, if it has failed. After SL_OK exactly one event of kind END comes. */
sl_status sl_session_submit(sl_session *s, const sl_request *request, uint64_t *id);
/* Ends a request early; its END is SL_END_CANCELLED, unless it came before. Its pages are free when the
 * ticks that use them are back. Nothing happens where the id is unknown or has ended. In a replay a request is
 * cancelled where its file says so, with the same tokens, whoever calls this or not; this counts behind the file's end. */
void sl_session_cancel(sl_session *s, uint64_t id);

#define SL_END_TABLE(X)                                                                    \
  X(STOP, "stop")           /* one of its stop tokens */                                   \
  X(LENGTH, "length")       /* max_tokens, or the end of the context */                    \
  X(CANCELLED, "cancelled") /* sl_session_cancel, or the session was destroyed */          \
  X(FAILED, "failed")       /* its logits are not finite; or the session has failed: sl_session_status */
typedef enum sl_end {
#define X(name, text) SL_END_##name,
  SL_END_TABLE(X)
#undef X
  SL_END_COUNT
} sl_end;
const char *sl_end_name(sl_end end);

typedef enum sl_event_kind { SL_EVENT_TOKEN, SL_EVENT_END } sl_event_kind;

typedef struct sl_choice {
  int32_t token;
  float logprob;            /* natural logarithm of its probability, before temperature and cuts */
} sl_choice;

typedef struct sl_session_event {
  uint64_t id;
  void *user;
  sl_event_kind kind;
  sl_end end;               /* of END */
  int64_t place;            /* of TOKEN: which of the answer, from 0; of END: tokens of the answer */
  int64_t cached;           /* tokens of the prompt that were not computed for it, as others had done so */
  int32_t token;
  float logprob;            /* of the token, where asked for */
  int ntop;
  sl_choice top[SL_SESSION_TOP]; /* [ntop] the likeliest, in order */
  uint64_t hash;            /* of the logits it was drawn from, with sl_session_options.hash */
} sl_session_event;

/* The oldest events, `most` at most; returns how many. Each event is given once; those of a request
 * in order. Never blocks. */
int sl_session_poll(sl_session *s, sl_session_event *out, int most);
/* Readable (POLLIN) while there are events; an eventfd of the session's that only sl_session_poll
 * reads. */
int sl_session_fd(const sl_session *s);

/* ---- how it is ------------------------------------------------------------------- */

/* What a session has of what it was made with. */
typedef struct sl_session_limits {
  int64_t rows, pages;
  int sequences, groups, queue;
} sl_session_limits;

typedef struct sl_session_stats {
  int64_t pages, pages_used;     /* of a stage; */
  int64_t pages_most;            /* used at once so far */
  sl_session_limits limits;      /* in force */
  int queued, running;           /* requests that wait to be let in; that have pages */
  int events;                    /* that nobody has polled */
  uint64_t ticks;                /* that came back */
  uint64_t rows;                 /* computed, of prompts and of answers; */
  uint64_t rows_prompt;          /* of these, of prompts; */
  uint64_t rows_again;           /* and of what was computed before, for requests that had given up
                                    their pages */
  uint64_t rows_shared;          /* not computed, as others had: with `rows` less `rows_again`, all positions
                                    that requests have come to */
  uint64_t pages_shared;         /* full pages that requests found when they were let in, also again */
  uint64_t tokens;               /* of answers */
  uint64_t requests;             /* let in so far, */
  uint64_t ended[SL_END_COUNT];  /* and how they have ended */
  uint64_t preemptions;
  uint64_t last_tick_ns;         /* CLOCK_MONOTONIC when the last tick came back; 0: none yet */
  uint64_t waiting_since_ns;     /* since when there is work and no tick has come back; 0: there is
                                    no work. Healthy: not long ago */
} sl_session_stats;
sl_session_stats sl_session_stat(const sl_session *s);

/* Changes limits while it runs; those that are 0 stay. They can be lowered and raised again up to what the
 * session was made with, `queue` to anything; pages not below what one sequence needs. What is above a lowered
 * limit goes on: ticks under way, and sequences, but for pages, which the youngest give up. No answer changes.
 * SL_E_USAGE names what cannot be, and then nothing has changed. */
sl_status sl_session_limit(sl_session *s, const sl_session_limits *limits);
/* What its ticks have taken, of a session with one group: of one stage. All 0: too few have come back, or several
 * are under way at once. As five numbers; or with corners, at rows that ticks often had, and a spread. */
sl_tick_cost sl_session_cost(const sl_session *s);
sl_tick_cost sl_session_corners(const sl_session *s);

/* SL_OK while it runs; else what has ended it, with the text in sl_detail(). */
sl_status sl_session_status(const sl_session *s);

/* Lets no more requests in (those that are queued are served), and waits up to `seconds` (below
 * 0: for ever; 0: not at all) until all have ended. SL_OK if they have; SL_E_STOPPED if some go
 * on. Events wait for sl_session_poll as before. */
sl_status sl_session_drain(sl_session *s, double seconds);

/* ---- how it would be ------------------------------------------------------------------- */

/* Requests that come at some time, of so many tokens, and go on for as many as they may. */
typedef struct sl_arrival {
  double seconds;          /* from the start; in the order of these */
  int64_t prompt, answer;  /* tokens */
} sl_arrival;

typedef struct sl_answered {
  double first, last;      /* when its first and its last token came, in seconds from the start */
  int64_t tokens;          /* of the answer; 0: it was refused, as too many waited */
} sl_answered;

typedef struct sl_rehearsal {
  sl_session_info about;   /* sizes; its pointers are NULL */
  sl_session_stats stats;  /* when all had ended */
  double seconds;          /* from the first arrival to the last token */
  int nstages;
  double *busy;            /* [nstages] seconds that each computed */
  int64_t narrivals;
  sl_answered *answered;   /* [narrivals] */
} sl_rehearsal;

/* Runs a session with these arrivals on the virtual clock, in the calling thread: with the very source, pages and
 * plan, on timed devices (options.lower.devices), which compute nothing. Every token is 0; stop tokens
 * are none. SL_E_USAGE names an arrival that cannot be; else as sl_session_create. */
sl_status sl_session_rehearse(const sl_session_options *options, int64_t n, const sl_arrival *arrivals,
                              sl_rehearsal *out);
void sl_rehearsal_fini(sl_rehearsal *r);

#ifdef __cplusplus
}
#endif
#endif
