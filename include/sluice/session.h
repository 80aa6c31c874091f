/* SPDX-License-Identifier: Apache-2.0 */
/* A session: a model that serves many requests at once.
 *
 *     sl_session *s = NULL;
 *     sl_session_options options = {.model = &model, .args = args, .load = load, .load_ctx = x,
 *                                   .lower = {.parallel.stages = 2, .devices = {.kind = "cpu"}}};
 *     status = sl_session_create(&options, &s);
 *     if (!status) status = sl_session_submit(s, &(sl_request){.prompt = tokens, .nprompt = n,
 *                                                              .max_tokens = 100}, &id);
 *     ... poll(2) on sl_session_fd(s), then
 *     while ((n = sl_session_poll(s, events, 64))) ...      tokens, and the end of each request
 *     sl_session_drain(s, -1);
 *     sl_session_destroy(s);
 *
 * The graph is the one that the model trains with, built for one row of `rows` positions instead of
 * one of `context` (continuous batching). A tick of the plan is one pass of these rows. Each row
 * belongs to a sequence (a request and its answer) and is a token of its prompt or the last token
 * of its answer. The rows of a tick are chosen when the tokens of an earlier tick come back.
 *
 * A request's answer does not depend on the other requests in progress: its logits have the same
 * bits alone and beside any others. Nor do they depend on the cut into ticks, or on the number of
 * stages, of devices that share a stage's tensors, of threads and processes. The same request with
 * the same seed therefore has the same answer.
 *
 * Threads: submit, cancel, poll, stats and drain may be called by any thread at any time between
 * create and destroy. They never wait for a tick, except drain with a time limit. The only callback
 * is `load`, during create. A session has a thread of its own, and the plan's workers. */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H

#include <sluice/job.h>
#include <sluice/lower.h>
#include <sluice/model.h>
#include <sluice/renamed.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_session sl_session;

enum { SL_SESSION_TOP = SL_BATCH_TOP }; /* most alternatives reported with a token */
enum { SL_SESSION_DRAFTED = 16 };       /* most tokens drafted for a request in a tick */
enum { SL_SESSION_BIASES = 1024 };      /* most biases of a request, with its stop tokens */
enum {
  SL_SESSION_EVENTS = 1 << 16
};                              /* unread events at which no tick begins, unless the
                                   session drains */
#define SL_SESSION_PAGE SL_PAGE /* positions in a page of the KV cache */

/* Admission of requests. RESERVE: when there are pages for the prompt and for the request's maximum
 * of tokens. RECOMPUTE: when there are pages for the prompt. If pages run out later, the youngest
 * request gives up its own and is recomputed when there are some, with the same bits. */
typedef enum sl_admit { SL_ADMIT_RESERVE, SL_ADMIT_RECOMPUTE } sl_admit;

/* Prefix caching: whether requests that begin with the same tokens share the pages of these.
 * SHARED: later requests use the full pages of an earlier one, while it runs and afterwards until
 * another request needs the memory. Answers keep their bits. APART: each computes its own. */
typedef enum sl_prefixes { SL_PREFIXES_SHARED, SL_PREFIXES_APART } sl_prefixes;

/* Cost of a tick on each stage, in seconds. It is `tick`, plus `pick` per sampled token, plus
 * for each sequence, with x rows in the tick after L positions:
 *   `position` L + `row` x + `pair` (2 L x + x x)
 * Products do not scale linearly with rows. With corners, a tick of rows[i] rows costs
 * seconds[i] instead of `tick` and `row`, linear between corners and extended beyond the last
 * two. That gives the mean. With a spread, each tick's cost is multiplied by the next factor of
 * the spread, in a cycle: slow phases of a machine last longer than a tick. The plan's seed sets
 * each stage's start. */
enum { SL_TICK_CORNERS = 24, SL_TICK_SPREAD = 512 };
typedef struct sl_tick_cost {
  double tick, position, row, pair, pick;
  int corners;                                            /* 0: none */
  double rows[SL_TICK_CORNERS], seconds[SL_TICK_CORNERS]; /* [corners], rows ascending */
  int spreads;                                            /* 0: none, all ticks take the mean */
  double spread[SL_TICK_SPREAD]; /* [spreads] factors of consecutive ticks, with mean 1 */
} sl_tick_cost;

/* Chunking of a prompt that runs alone over several stages, if tick costs are given. TIMES: chunks
 * of equal duration, chosen to minimise the total. ROWS: chunks of `rows`, of which the last ones
 * take longest. */
typedef enum sl_chunks { SL_CHUNKS_TIMES, SL_CHUNKS_ROWS } sl_chunks;

/* Speculation: the next tokens of an answer are guessed, and one tick checks them. They are what
 * followed its newest ones earlier in prompt and answer, or what a smaller model answers. An answer
 * has the same bits with and without, also if it is sampled: a drafted token counts if it is the
 * one that the request's seed draws there. */
typedef struct sl_speculation {
  int tokens;  /* most tokens drafted for a request in a tick, up to SL_SESSION_DRAFTED; 0: none */
  int match;   /* newest tokens that must have been there before, at least [2] */
  bool always; /* draft whether or not it pays by the measured durations of ticks, also beside
                  prompts */
  /* Draft model, of the same vocabulary, which a session of its own runs beside this one: its
   * model, args, training, kv, lower, stored, run, load and load_ctx, which must outlive create
   * only where those of this session must. Sizes are those of this session, one stage on one
   * device, whose budget is what this session leaves of it. A prompt longer than its context has no
   * drafts. With several processes the first one has it. NULL: drafts are from earlier text. */
  const struct sl_session_options *draft;
} sl_speculation;

/* Room for pages of the KV cache that nobody uses and whose memory others need: they are copied
 * there, and back when a prompt begins with their tokens. Answers keep their bits. */
typedef struct sl_kept_pages {
  size_t bytes;       /* 0: none are kept */
  sl_space space;     /* SL_SPACE_HOST or SL_SPACE_DISK */
  const char *folder; /* of the file, for disk; NULL: $TMPDIR, or /var/tmp */
} sl_kept_pages;

typedef struct sl_session_options {
  const sl_model *model; /* model and its options; both must outlive the session */
  const sl_args *args;
  const sl_training *training; /* adapters to merge; everything else is ignored; NULL: none. Must
                                  outlive the session */
  int64_t context;             /* most tokens of a sequence, prompt and answer; 0: the model's
                                  context, which is the limit */
  int64_t rows;                /* most rows of a tick [64]. More rows speed up prompts and delay
                                  other requests, which wait for ticks that contain part of a
                                  prompt */
  int sequences;               /* most sequences at once, and most tokens from a tick [rows, at
                                  most 64] */
  int groups;    /* ticks in flight at once [stages + 1 with several stages, else 1] */
  int64_t pages; /* pages of the KV cache in every stage, SL_PAGE positions each
                    [enough for `sequences` sequences of `context` tokens, limited
                    to 512 MiB over all stages; at least one sequence, and 4 * rows
                    positions] */
  sl_dtype kv;   /* type of the KV cache: SL_F32, or SL_BF16: half the memory, and
                    other answers than with f32, but the same alone and beside any
                    others. A user's op that keeps f32 is refused with it */
  sl_admit admit;
  sl_prefixes prefixes;
  /* States kept beside full pages, in models that have states, so that a request can begin behind
   * shared ones. Such a page is a prompt's last full one, and each `state_every`-th of a sequence
   * [8]. States used longest ago make room for new ones. states: how many are kept [2 * sequences,
   * limited to 512 MiB over all stages]; below 0: none. */
  int states;
  int64_t state_every;
  sl_kept_pages kept; /* needs SL_PREFIXES_SHARED, and one process */
  sl_speculation speculation;
  int queue;              /* most requests waiting to be admitted; more are refused with
                             SL_E_BUSY [1024] */
  sl_lower_options lower; /* stages, tensor, devices, processes, dtype, placement and quotas
                             of weights. Training options are ignored, and the session sets
                             its own callbacks. With dtype SL_BF16 weights of products are
                             rounded to bf16 and multiplied in f32 */
  const char *stored;     /* weights, as for sl_weights_load(): weights of products keep the
                             file's storage format in memory, bf16 or blocks, which changes
                             no bit; `load` reads them. NULL: format by `lower.dtype` */
  sl_runtime_options run; /* bind, bind_arg, workers, trace_records, jitter. The job supplies
                             peers and process */
  sl_job *job;            /* job of several processes, not joined yet: all create the
                             session, with the same options; process 0 takes the requests.
                             The session ends the job, also if create fails; its owner closes
                             it afterwards. NULL: this process alone */
  /* [nfingerprint] settings that must be equal in all processes, besides model and plan, such as
   * the weights (sl_job_join) */
  SL_RENAMED(const sl_fingerprint_item *fingerprint, const sl_fingerprint_item *terms)
  SL_RENAMED(int nfingerprint, int nterms)
  /* Fills in the parameters; called once, during create. See sl_weights_load, sl_weights_copy. */
  sl_status (*load)(void *ctx, const sl_lowered *lowered, sl_runtime *rt);
  void *load_ctx;
  const char *log;          /* log file with a line for each tick that describes its rows;
                               NULL: none. A session that cannot write it ends with SL_E_IO */
  const char *replay;       /* log file to replay: it determines the ticks; NULL: requests do */
  const char *trace;        /* trace file, in sl_trace_write()'s format, written when the
                               session is destroyed. Holds the newest firings,
                               run.trace_records of each worker [2^16]; if all processes set
                               it, process 0 writes all of theirs. NULL: none */
  const sl_tick_cost *cost; /* cost of a tick, which is its duration on timed devices; NULL:
                               derived from lower.hardware */
  sl_chunks chunks;
  bool hash; /* report the hash of the logits with each token
                (sl_session_event.hash) */
  bool
      penalties; /* requests may have penalties, biases and min_tokens, for which a tick has room */
  bool embeddings; /* requests may ask for embeddings (sl_request.embedding) */
  /* Adapters that requests may name, in PEFT's folders: [nadapters] those that are loaded at the
   * beginning, as 1, 2, ..., and places for as many [nadapters], of at most this rank [the largest
   * of theirs, or 16]. If there are more places than folders, all linear maps have them but the one
   * that makes the logits; else those that the folders name. */
  const char *const *adapters;
  int nadapters, adapter_places, adapter_rank;
  bool constraints; /* requests may have constraints (sl_request.constraint); for that an actor on
                       the host runs beside each tick. Ignored on devices that compute nothing */
} sl_session_options;

/* Builds the graph, lowers, proves and starts it. SL_E_UNSUPPORTED names an op that cannot be
 * served and its line in the model; SL_E_USAGE a wrong option; other errors are those of sl_lower,
 * sl_runtime_create and `load`. Objects that the options point to must outlive the call only where
 * noted. */
sl_status sl_session_create(const sl_session_options *options, sl_session **out);
/* Ends all requests and the plan, after the ticks in flight. Pointers into events become invalid.
 * With several processes, process 0 ends the session for all. SL_E_IO names a log or trace that
 * could not be written completely; the session is destroyed all the same. */
sl_status sl_session_destroy(sl_session *s);
/* Blocks until process 0 ends the session; for the other processes of a job. Returns its final
 * sl_session_status. */
sl_status sl_session_wait(sl_session *s);

/* Sizes in force, and properties of the model. */
typedef struct sl_session_info {
  int64_t vocabulary, context, rows, pages;
  int64_t width; /* numbers of an embedding; 0: there are none */
  int sequences, groups;
  int states;          /* kept beside pages; 0 if the model has none */
  int64_t state_bytes; /* bytes of a sequence's states, over all stages */
  size_t device_bytes; /* planned memory of the largest device */
  const sl_plan *plan; /* owned by the session */
  const sl_lowered *lowered;
  sl_runtime *rt; /* runtime for sl_runtime_run_status and sl_runtime_set_quotas; valid between
                     create and destroy */
} sl_session_info;
sl_session_info sl_session_about(const sl_session *s);
/* Returns the session of the draft model, for sl_session_about and sl_session_stat; NULL: none. It
 * ends with this one. */
const sl_session *sl_session_draft(const sl_session *s);
/* Checks the model and the options as create would, without allocating memory, plan and runtime,
 * and returns the sizes that would be in force. `load` and `job` are not used. */
sl_status sl_session_check(const sl_session_options *options, sl_session_info *out);

/* ---- requests ------------------------------------------------------------------- */

/* A number to add to a token's logit; -INFINITY: it never comes. */
typedef struct sl_bias {
  int32_t token;
  float bias;
} sl_bias;

/* A constraint on an answer's tokens, such as a grammar. A token is chosen among the allowed ones
 * as temperature, top_k and top_p say; log-probabilities are those of all tokens. The functions are
 * called on threads of the session, one at a time for a request, until its END event. */
typedef struct sl_constraint {
  /* Sets the bits of the tokens that may come behind the answer so far and the `n` drafted ones,
   * bit v % 32 of allowed[v / 32] for token v. All are 0 before. Called for each token and each
   * drafted one, while the model computes. False: none may come, and the request ends with
   * SL_END_FAILED if it gets there. NULL: there is no constraint. */
  bool (*allow)(void *ctx, int n, const int32_t *drafted, uint32_t *allowed);
  /* Takes the next token of the answer. True: the answer is complete and ends, as by a stop token.
   * Must return soon. */
  bool (*take)(void *ctx, int32_t token);
  void *ctx; /* must live until the END event */
} sl_constraint;

typedef struct sl_request {
  const int32_t *prompt; /* [nprompt] tokens, at least one; copied */
  int64_t nprompt;
  int64_t max_tokens; /* most tokens of the answer, at least one; the context may end it
                         earlier, but not before its first token */
  float temperature;  /* 0: greedy; of equal tokens the first */
  int top_k;          /* only the k most likely tokens; 0: any */
  float top_p;        /* only the most likely tokens that together have this probability; 0
                         or 1: any */
  float min_p;        /* only tokens with at least this part of the likeliest one's probability */
  /* Edits of the logits, in this order. Each bias is added. repetition_penalty divides logits above
   * 0, and multiplies others, of tokens of prompt and answer; 0 or 1: none. presence_penalty is
   * subtracted once for tokens of the answer, and frequency_penalty each time that they are there.
   * Log-probabilities that are reported are those of the model. */
  const sl_bias *bias; /* [nbias] each token once; copied */
  int nbias;
  float repetition_penalty, presence_penalty, frequency_penalty;
  int64_t min_tokens;  /* no stop token among so many first tokens of the answer */
  uint64_t seed;       /* seed of its random numbers, one for each index in the answer */
  const int32_t *stop; /* [nstop] tokens that end the answer and are part of it; copied */
  int nstop;
  int logprobs;             /* number of most likely tokens reported with each token, up to
                               SL_SESSION_TOP; below 0: not even the token's own logprob */
  uint64_t salt;            /* prefix caching only among requests with one salt; 0 is a salt like
                               any other */
  sl_constraint constraint; /* needs sl_session_options.constraints */
  int adapter;              /* adapter that its rows go through; 0: none */
  /* [sl_session_info.width] where to write the mean of the prompt's hidden states, those that the
   * logits are made of, or (last) the state of its last token, before the END event. NULL: nowhere.
   * Such a request shares no prefixes. */
  float *embedding;
  bool last;
  void *user; /* returned with each event */
} sl_request;

/* Submits a request. *id is never 0 and never reused. SL_E_USAGE says what is wrong with the
 * request ("a prompt of 9120 tokens is longer than the context of 8192"). SL_E_BUSY: the queue is
 * full, or the session drains. A failed session returns the status that ended it. After SL_OK
 * exactly one event of kind END follows. */
sl_status sl_session_submit(sl_session *s, const sl_request *request, uint64_t *id);
/* Ends a request early; its END is SL_END_CANCELLED, unless it came before. Its pages become free
 * when the ticks that use them are back. An unknown or ended id is ignored. A replay cancels
 * requests where its file says so, with the same tokens, whether or not this is called; after the
 * file's end calls count. */
void sl_session_cancel(sl_session *s, uint64_t id);

/* Loads an adapter from a folder into a free place, and returns its number; ticks wait meanwhile.
 * An answer has the bits that it has with this adapter alone, and shares prefixes with answers of
 * the same adapter only. SL_E_BUSY: no place is free. SL_E_UNSUPPORTED: the session has several
 * processes. SL_E_INPUT says what the model cannot take. */
sl_status sl_session_load_adapter(sl_session *s, const char *dir, int *adapter);
/* Unloads it: later requests may not name it, and its place is free once none does. */
sl_status sl_session_unload_adapter(sl_session *s, int adapter);

/* clang-format off */
#define SL_END_TABLE(X)                                                                    \
  X(STOP, "stop")           /* a stop token, or a constraint's end */                      \
  X(LENGTH, "length")       /* max_tokens, or the end of the context */                    \
  X(CANCELLED, "cancelled") /* sl_session_cancel, or the session was destroyed */          \
  X(FAILED, "failed")       /* logits not finite; or a constraint allows no token; or the  \
                               session failed: sl_session_status */
/* clang-format on */
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
  float logprob; /* natural logarithm of its probability, before temperature and cuts */
} sl_choice;

typedef struct sl_session_event {
  uint64_t id;
  void *user;
  sl_event_kind kind;
  sl_end end;     /* reason, for END */
  int64_t place;  /* TOKEN: index in the answer, from 0; END: tokens of the answer */
  int64_t cached; /* tokens of the prompt taken from the prefix cache */
  int32_t token;
  float logprob; /* logarithm of the token's probability, if requested */
  int ntop;
  sl_choice top[SL_SESSION_TOP]; /* [ntop] the most likely tokens, in descending order */
  uint64_t hash; /* hash of the logits it was drawn from, with sl_session_options.hash */
} sl_session_event;

/* Takes up to `most` of the oldest events; returns their number. Each event is given once; those of
 * a request in order. Never blocks. */
int sl_session_poll(sl_session *s, sl_session_event *out, int most);
/* Eventfd that is readable (POLLIN) while there are events. The session owns it, and only
 * sl_session_poll may read it. */
int sl_session_fd(const sl_session *s);

/* ---- rollouts --------------------------------------------------------------------- */

/* A session whose ticks are passes of a training plan (sl_rollout_options): it has a graph, but
 * neither plan nor runtime nor thread of its own. Each step of training has `ticks` of them, and
 * answers that are not complete by then end as SL_END_CANCELLED. */
typedef struct sl_session_steps {
  int ticks; /* of a step */
  /* Called before the first tick of each step: submits the requests of the step. They should have
   * the step as their salt, since pages of earlier steps are those of other parameters. */
  void (*begin)(void *ctx, int64_t step);
  /* Gets each event when it happens, on a worker's thread, in place of sl_session_poll. Must not
   * block, nor call functions of the session. */
  void (*note)(void *ctx, const sl_session_event *event);
  void *ctx;
} sl_session_steps;

/* Makes the session and what sl_lower needs of it. Errors are those of sl_session_create.
 * `lower`, `run`, `job`, `load`, `log` and `trace` of the options are not used. The session must be
 * destroyed after what was lowered with it. */
sl_status sl_session_embed(const sl_session_options *options, const sl_session_steps *steps,
                           sl_rollout_options *rollouts, sl_session **out);

/* ---- statistics ------------------------------------------------------------------ */

/* Limits that can change while the session runs. */
typedef struct sl_session_limits {
  int64_t rows, pages;
  int sequences, groups, queue;
} sl_session_limits;

typedef struct sl_session_stats {
  int64_t pages, pages_used; /* pages of one stage; pages in use */
  int64_t pages_most;        /* most pages used at once so far */
  sl_session_limits limits;  /* limits in force */
  int queued, running;       /* requests waiting to be admitted; requests that have pages */
  int events;                /* not yet polled */
  uint64_t ticks;            /* completed */
  uint64_t rows;             /* rows computed, of prompts and answers */
  uint64_t rows_prompt;      /* rows of prompts among them */
  uint64_t rows_again;       /* rows recomputed for requests that had given up their pages */
  uint64_t rows_shared;      /* rows taken from the prefix cache: with `rows` less
                                `rows_again`, and less drafts that were not accepted, all
                                positions of all requests */
  uint64_t pages_shared;     /* full pages found in the prefix cache at admission, also at
                                readmission */
  uint64_t states_kept;      /* states that have been kept beside pages */
  int64_t pages_kept;        /* copies of pages in the room for kept pages */
  uint64_t pages_written, pages_read; /* pages copied there, and back */
  uint64_t tokens;                    /* tokens of answers */
  uint64_t rounds;                    /* drafts that were checked */
  uint64_t drafted, accepted;         /* tokens of these; those that became tokens of answers */
  uint64_t checked;  /* drafted tokens up to the first wrong one of each draft, with it: of these a
                        share is right */
  uint64_t requests; /* requests admitted so far */
  uint64_t ended[SL_END_COUNT]; /* requests by how they ended */
  uint64_t preemptions;
  uint64_t last_tick_ns;     /* CLOCK_MONOTONIC time when the last tick came back; 0: none
                                yet */
  uint64_t waiting_since_ns; /* CLOCK_MONOTONIC time since when there is work and no tick has
                                come back; 0: no work. Healthy: recent */
} sl_session_stats;
sl_session_stats sl_session_stat(const sl_session *s);

/* Changes limits while the session runs; 0 leaves a limit alone. Limits may go down and up again,
 * at most to their value at create; `queue` to any value; pages not below the need of one sequence.
 * Ticks and sequences above a lowered limit go on, but the youngest sequences give up pages.
 * Answers do not change. SL_E_USAGE names an impossible value; then nothing has changed. */
sl_status sl_session_limit(sl_session *s, const sl_session_limits *limits);
/* Measured cost of the session's ticks, with one group: of one stage. All 0: too few ticks are
 * back, or several are in flight at once. sl_session_cost: five numbers. sl_session_corners:
 * corners at frequent row counts, and a spread. */
sl_tick_cost sl_session_cost(const sl_session *s);
sl_tick_cost sl_session_corners(const sl_session *s);

/* SL_OK while it runs; else the status that ended it, with the text in sl_detail(). */
sl_status sl_session_status(const sl_session *s);

/* Admits no new requests (those queued are served) and waits up to `seconds` (below 0: for ever; 0:
 * not at all) until all have ended. SL_OK if they have; SL_E_STOPPED if some go on. Events still
 * wait for sl_session_poll. */
sl_status sl_session_drain(sl_session *s, double seconds);

/* ---- simulation -------------------------------------------------------------------------- */

/* A simulated request: its arrival, and the lengths of its prompt and answer in tokens. */
typedef struct sl_arrival {
  double seconds;         /* time from the start, ascending */
  int64_t prompt, answer; /* tokens */
} sl_arrival;

typedef struct sl_answered {
  double first, last; /* times of its first and last token, in seconds from the start */
  int64_t tokens;     /* tokens of the answer; 0: refused, because the queue was full */
} sl_answered;

typedef struct sl_session_simulation {
  sl_session_info about;  /* sizes; its pointers are NULL */
  sl_session_stats stats; /* after the last request has ended */
  double seconds;         /* time from the first arrival to the last token */
  int nstages;
  double *busy; /* [nstages] seconds of computing */
  int64_t narrivals;
  sl_answered *answered; /* [narrivals] */
} sl_session_simulation;

/* Simulates a session with these arrivals on the virtual clock, in the calling thread. The source,
 * pages and plan are real; timed devices (options.lower.devices) compute nothing. Every token is 0,
 * and there are no stop tokens. SL_E_USAGE names an impossible arrival; other errors are those of
 * sl_session_create. */
sl_status sl_session_simulate(const sl_session_options *options, int64_t n,
                              const sl_arrival *arrivals, sl_session_simulation *out);
void sl_session_simulation_fini(sl_session_simulation *r);

#ifdef __cplusplus
}
#endif
#endif
