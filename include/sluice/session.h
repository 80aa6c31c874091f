/* SPDX-License-Identifier: Apache-2.0 */
/* A session: a model that serves many concurrent requests.
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
 * The graph is the model's training graph, built for one row of `rows` positions instead of
 * `context` (continuous batching). A tick of the plan is one forward pass of these positions,
 * called rows below. Each row belongs to a sequence (a request and its answer) and is a token of
 * its prompt or the last token of its answer. The session chooses a tick's rows when the tokens of
 * an earlier tick come back.
 *
 * A request's answer does not depend on other requests in progress: its logits have the same bits
 * alone and with any other requests. Nor do they depend on the division into ticks, or on the
 * number of stages, tensor-parallel devices, threads and processes. The same request with the same
 * seed therefore has the same answer.
 *
 * Threads: any thread may call submit, cancel, poll, stats and drain at any time between create and
 * destroy. They never wait for a tick, except drain with a time limit. The only callback is `load`,
 * during create. A session runs one thread, besides the plan's workers. */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H

#include <sluice/job.h>
#include <sluice/lower.h>
#include <sluice/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_session sl_session;

enum { SL_SESSION_TOP = SL_BATCH_TOP }; /* maximum alternatives reported with a token */
enum { SL_SESSION_DRAFTED = 16 };       /* maximum tokens drafted for a request in a tick */
enum { SL_SESSION_BIASES = 1024 };      /* maximum biases of a request, including its stop tokens */
enum { SL_SESSION_EVENTS = 1 << 16 };   /* unread events that stop ticks, unless draining */
#define SL_SESSION_PAGE SL_PAGE         /* positions in a page of the KV cache */

/* Admission of requests. RESERVE: a request is admitted when there are pages for its prompt and its
 * maximum number of tokens. RECOMPUTE: when there are pages for its prompt. If pages run out later,
 * the youngest request is preempted: it gives up its pages and is recomputed once pages are free,
 * with the same bits. */
typedef enum sl_admit { SL_ADMIT_RESERVE, SL_ADMIT_RECOMPUTE } sl_admit;

/* Prefix caching: whether requests that begin with the same tokens share pages. SHARED: later
 * requests use the full pages of an earlier request, while it runs and afterwards until another
 * request needs the memory. Answers keep their bits. APART: each request computes its own pages. */
typedef enum sl_prefixes { SL_PREFIXES_SHARED, SL_PREFIXES_APART } sl_prefixes;

/* Cost of a tick on each stage, in seconds. It is `tick`, plus `pick` per sampled token, plus
 * for each sequence, with x rows in the tick after L positions:
 *   `position` L + `row` x + `pair` (2 L x + x x)
 * Products do not scale linearly with rows. With corners, a tick of rows[i] rows costs seconds[i]
 * instead of `tick` and `row`, interpolated linearly between corners and extrapolated beyond the
 * last two. This gives the mean cost. With a spread, each tick's cost is multiplied by the next
 * factor of the spread, cyclically, since slow phases of a machine last longer than a tick. The
 * plan's seed selects each stage's first factor. */
enum { SL_TICK_CORNERS = 24, SL_TICK_SPREAD = 512 };
typedef struct sl_tick_cost {
  double tick, position, row, pair, pick;
  int corners;                                            /* 0: none */
  double rows[SL_TICK_CORNERS], seconds[SL_TICK_CORNERS]; /* [corners], rows ascending */
  int spreads;                                            /* 0: none, all ticks take the mean */
  double spread[SL_TICK_SPREAD]; /* [spreads] factors of consecutive ticks, with mean 1 */
} sl_tick_cost;

/* Chunking of a prompt that runs alone over several stages, if tick costs are given. TIMES: chunks
 * of equal duration, chosen to minimise total time. ROWS: chunks of `rows` rows; later chunks take
 * longer. */
typedef enum sl_chunks { SL_CHUNKS_TIMES, SL_CHUNKS_ROWS } sl_chunks;

/* Speculative decoding: the next tokens of an answer are drafted, and one tick checks them. A draft
 * consists of the tokens that followed the newest tokens earlier in prompt and answer, or comes
 * from a smaller model. An answer has the same bits with and without speculation, even if it is
 * sampled: a drafted token is accepted if it is the token that the request's seed draws at that
 * position. */
typedef struct sl_speculation {
  int tokens;  /* maximum tokens drafted for a request in a tick, up to SL_SESSION_DRAFTED; 0:
                  none */
  int match;   /* minimum number of newest tokens that must have occurred before [2] */
  bool hidden; /* the draft model is a block that predicts ahead: it reads each token with the
                  hidden state of the position before it, the input of the logits' projection, in
                  place of spliced rows (frames.h) */
  bool always; /* draft even if measured tick durations say that it does not pay, and in ticks with
                  prompts */
  /* Draft model, with the same vocabulary, run by a separate session next to this one. Only model,
   * args, training, kv, lower, stored, run, load and load_ctx are used, with the same lifetimes as
   * in this session's options. The draft session has this session's sizes, and one stage on one
   * device, whose budget is what this session leaves. A prompt longer than the draft model's
   * context gets no drafts. With several processes the first process runs it. NULL: drafts come
   * from earlier text. */
  const struct sl_session_options *draft;
} sl_speculation;

/* Storage for unused pages of the KV cache whose memory other requests need: such pages are copied
 * out, and back when a prompt begins with their tokens. Answers keep their bits. */
typedef struct sl_kept_pages {
  size_t bytes;       /* 0: no pages are kept */
  sl_space space;     /* SL_SPACE_HOST or SL_SPACE_DISK */
  const char *folder; /* directory of the file, for disk; NULL: $TMPDIR, or /var/tmp */
} sl_kept_pages;

typedef struct sl_session_options {
  const sl_model *model; /* model and its options; both must outlive the session */
  const sl_args *args;
  const sl_training *training; /* adapters to merge; all other fields are ignored; NULL: none. Must
                                  outlive the session */
  int64_t context;             /* maximum tokens of a sequence, prompt and answer; at most the
                                  model's context, the default */
  int64_t rows;                /* maximum rows of a tick [64]. More rows speed up prompts, but delay
                                  other requests while a tick contains part of a prompt */
  int sequences;               /* maximum concurrent sequences, and maximum tokens from a tick
                                  [rows, at most 64] */
  int groups;                  /* ticks in flight [stages + 1 with several stages, else 1] */
  int64_t pages;               /* pages of the KV cache in every stage, SL_PAGE positions each
                                  [enough for `sequences` sequences of `context` tokens, limited
                                  to 512 MiB over all stages; at least one sequence, and 4 * rows
                                  positions] */
  sl_storage kv; /* format of the KV cache: SL_STORAGE_F32, or SL_STORAGE_BF16, which halves the
                    memory. Answers then differ from f32, but still do not depend on other requests.
                    A user's op that caches f32 is rejected with bf16. In a simulation also
                    SL_STORAGE_FP8 */
  sl_admit admit;
  sl_prefixes prefixes;
  /* In models with states, states are kept along with full pages, so that a request can begin after
   * shared pages: with a prompt's last full page, and with every `state_every`-th page of a
   * sequence [8]. The least recently used states make room for new ones. states: number of states
   * kept [2 * sequences, limited to 512 MiB over all stages]; below 0: none. */
  int states;
  int64_t state_every;
  sl_kept_pages kept;         /* requires SL_PREFIXES_SHARED and a single process */
  sl_serving_experts experts; /* experts whose weights have disk as their home (lower.memory.homes:
                                 "weights" or "experts"); the session counts their reads */
  /* Each `chunk` positions of a prompt attend to pages that their last 64 queries choose, a
   * fraction `share` of those before them; the last token and the positions of an incomplete chunk
   * attend to all. A chunk is computed in one tick, so `rows` must be at least chunk + sequences
   * - 1. Prefixes are shared chunk by chunk. Answers differ from those of all keys, but still do
   * not depend on other requests. CPUs only, without states and `lower.numbers.exact` */
  sl_prompt_blocks prompt_blocks;
  sl_speculation speculation;
  int queue;              /* maximum requests waiting for admission; further requests fail with
                             SL_E_BUSY [1024] */
  sl_lower_options lower; /* stages, tensor, devices, processes, dtype, placement and quotas of
                             weights. Training options are ignored, and the session sets the
                             callbacks. With dtype SL_BF16, weights of products are rounded to bf16
                             and multiplied in f32 */
  const char *stored;     /* weights, as for sl_weights_load(), which `load` reads: weights of
                             products keep the file's storage format (bf16 or blocks) in memory.
                             Blocks have sums of their own (docs/exact.md); other formats do not
                             change results. NULL: the format follows from
                             `lower.numbers.dtype` */
  sl_storage storage;     /* format of the weights of products and tables in a simulation
                             (SL_STORAGE_FP8); F32: `stored` and `lower.numbers.dtype` say it.
                             SL_E_USAGE on devices that compute */
  sl_runtime_options run; /* bind, bind_arg, workers, trace_records, jitter. The job supplies
                             peers and process */
  sl_job *job;            /* job of several processes, not joined yet: all create the session, with
                             the same options; process 0 takes the requests. The session ends the
                             job, even if create fails; the job's owner closes it afterwards. NULL:
                             this process only */
  /* [nfingerprint] settings that must be equal in all processes, in addition to model and plan,
   * such as the weights (sl_job_join) */
  const sl_fingerprint_item *fingerprint;
  int nfingerprint;
  /* Fills the parameters; called once, during create. See sl_weights_load, sl_weights_copy. */
  sl_status (*load)(void *ctx, const sl_lowered *lowered, sl_runtime *rt);
  void *load_ctx;
  const char *log;          /* log file, with a line for each tick that describes its rows; NULL:
                               none. If it cannot be written, the session ends with SL_E_IO */
  const char *replay;       /* log file to replay, which determines the ticks; NULL: requests
                               determine them */
  const char *trace;        /* trace file, in sl_trace_write()'s format, written when the
                               session is destroyed. Holds the newest firings,
                               run.trace_records of each worker [2^16]; if all processes set
                               it, process 0 writes all of theirs. NULL: none */
  const sl_tick_cost *cost; /* cost of a tick, which is its duration on timed devices; NULL: derived
                               from lower.simulation.hardware */
  sl_chunks chunks;
  bool hash;       /* report the hash of the logits with each token
                      (sl_session_event.hash) */
  bool penalties;  /* requests may have penalties, biases and min_tokens; ticks reserve room for
                      them */
  bool embeddings; /* requests may ask for embeddings (sl_request.embedding) */
  /* Adapters that requests may name. adapters: [nadapters] folders in PEFT's format, loaded at the
   * beginning as adapters 1, 2, ... adapter_places: number of places [nadapters]. adapter_rank:
   * maximum rank [the largest rank in the folders, or 16]. If there are more places than folders,
   * all linear maps except the output projection have places; otherwise only those that the folders
   * name. */
  const char *const *adapters;
  int nadapters, adapter_places, adapter_rank;
  bool constraints; /* requests may have constraints (sl_request.constraint), which need an actor on
                       the host next to each tick. Ignored on devices that compute nothing */
} sl_session_options;

/* Builds the graph, lowers it, proves the plan and starts it. SL_E_UNSUPPORTED names an op that
 * cannot be served and its line in the model; SL_E_USAGE names a wrong option; other errors are
 * those of sl_lower, sl_runtime_create and `load`. Objects that the options point to must outlive
 * the call only where noted. */
sl_status sl_session_create(const sl_session_options *options, sl_session **out);
/* Ends all requests and the plan, after the ticks in flight. Pointers into events become invalid.
 * With several processes, process 0 ends the session for all. SL_E_IO names a log or trace that
 * could not be written completely; the session is destroyed nevertheless. */
sl_status sl_session_destroy(sl_session *s);
/* Blocks until process 0 ends the session; for all other processes of a job. Returns the final
 * sl_session_status. */
sl_status sl_session_wait(sl_session *s);

/* Sizes in force, and properties of the model. */
typedef struct sl_session_info {
  int64_t vocabulary, context, rows, pages;
  int64_t width; /* width of an embedding; 0: no embeddings */
  int sequences, groups;
  int states;                 /* states kept along with pages; 0 if the model has no states */
  int64_t state_bytes;        /* bytes of a sequence's states, over all stages */
  int state_slots;            /* how often a sequence has them: more than once with speculation */
  size_t device_bytes;        /* planned memory of the largest device */
  sl_serving_experts experts; /* sizes in force */
  const sl_plan *plan;        /* owned by the session */
  const sl_lowered *lowered;
  sl_runtime *rt; /* runtime for sl_runtime_run_status and sl_runtime_set_quotas; valid between
                     create and destroy */
} sl_session_info;
sl_session_info sl_session_about(const sl_session *s);
/* Returns the session of the draft model, for sl_session_about and sl_session_stat, or NULL if
 * there is none. It ends with this session. */
const sl_session *sl_session_draft(const sl_session *s);
/* Checks the model and the options like create, without allocating memory, plan and runtime, and
 * returns the sizes that would be in force. `load` and `job` are not used. */
sl_status sl_session_check(const sl_session_options *options, sl_session_info *out);

/* ---- requests ------------------------------------------------------------------- */

/* A number to add to a token's logit; -INFINITY bans the token. */
typedef struct sl_bias {
  int32_t token;
  float bias;
} sl_bias;

/* A constraint on an answer's tokens, such as a grammar. Sampling (temperature, top_k, top_p)
 * applies to the allowed tokens; reported log-probabilities are over all tokens. Threads of the
 * session call the functions, one at a time per request, until the request's END event. */
typedef struct sl_constraint {
  /* Sets the bits of tokens that may follow the answer so far and the `n` drafted tokens: bit v %
   * 32 of allowed[v / 32] for token v. All bits are 0 on entry. Called for each token and each
   * drafted token, while the model computes. Returns false if no token may follow; if the answer
   * gets there, the request ends with SL_END_FAILED. NULL: no constraint. */
  bool (*allow)(void *ctx, int n, const int32_t *drafted, uint32_t *allowed);
  /* Receives the next token of the answer. Returns true if the answer is complete; it then ends as
   * with a stop token. Must return soon. */
  bool (*take)(void *ctx, int32_t token);
  void *ctx; /* must live until the END event */
} sl_constraint;

typedef struct sl_request {
  const int32_t *prompt; /* [nprompt] tokens, at least one; copied */
  int64_t nprompt;
  int64_t max_tokens; /* maximum tokens of the answer, at least one; the context may end it earlier,
                         but not before its first token */
  float temperature;  /* 0: greedy; the first token on ties */
  int top_k;          /* only the k most likely tokens; 0: any */
  float top_p;        /* only the most likely tokens whose probabilities sum to this; 0 or 1: any */
  float min_p;        /* minimum probability of a token, as a fraction of the likeliest token's */
  /* Edits of the logits, in this order. Each bias is added. repetition_penalty, for tokens in
   * prompt or answer, divides positive logits and multiplies all others; 0 or 1: none.
   * presence_penalty is subtracted once for each token in the answer, frequency_penalty once per
   * occurrence. Reported log-probabilities are those of the unedited model. */
  const sl_bias *bias; /* [nbias], with each token at most once; copied */
  int nbias;
  float repetition_penalty, presence_penalty, frequency_penalty;
  int64_t min_tokens;  /* bans stop tokens until the answer has this many tokens */
  uint64_t seed;       /* seed of its random numbers, one per token of the answer */
  const int32_t *stop; /* [nstop] tokens that end the answer and are part of it; copied */
  int nstop;
  int logprobs; /* number of most likely tokens reported with each token, up to
                   SL_SESSION_TOP; below 0: omits even the token's own logprob */
  /* Reports the prompt's tokens too, from the second on: events PROMPT, with log-probabilities as
   * `logprobs` says. The prompt shares no prefixes. Not with a constraint. */
  bool scored;
  uint64_t salt;            /* requests share cached prefixes only if their salts are equal; 0 is a
                               salt like any other */
  sl_constraint constraint; /* requires sl_session_options.constraints */
  int adapter;              /* adapter to apply; 0: none */
  /* [sl_session_info.width] receives, before the END event, the mean of the prompt's final hidden
   * states (the input of the output projection), or with `last` the state of its last token. NULL:
   * none. A request with an embedding shares no prefixes. */
  float *embedding;
  bool last;
  void *user; /* returned with each event */
  /* The client that asks. Waiting requests of several clients take turns by their tokens, prompt
   * and max_tokens; those of one client stay in order. */
  uint64_t client;
} sl_request;

/* Submits a request. *id is never 0 and never reused. SL_E_USAGE says what is wrong with the
 * request ("a prompt of 9120 tokens is longer than the context of 8192"). SL_E_BUSY: the queue is
 * full, or the session is draining. A failed session returns the status that ended it. After SL_OK
 * exactly one event of kind END follows. */
sl_status sl_session_submit(sl_session *s, const sl_request *request, uint64_t *id);
/* Ends a request early, with SL_END_CANCELLED unless it has already ended. Its pages become free
 * when the ticks that use them have come back. An unknown or ended id is ignored. During a replay,
 * requests are cancelled where the log file says, with the same tokens, and calls are ignored until
 * the file's end. */
void sl_session_cancel(sl_session *s, uint64_t id);

/* Loads an adapter from a folder into a free place, and sets *adapter to its number; ticks wait
 * meanwhile. An answer has the same bits as with only this adapter loaded, and shares prefixes only
 * with answers of the same adapter. SL_E_BUSY: no place is free. SL_E_UNSUPPORTED: the session has
 * several processes. SL_E_INPUT says what does not fit the model. */
sl_status sl_session_load_adapter(sl_session *s, const char *dir, int *adapter);
/* Unloads an adapter: new requests may not name it, and its place becomes free once no request uses
 * it. */
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

typedef enum sl_event_kind { SL_EVENT_TOKEN, SL_EVENT_END, SL_EVENT_PROMPT } sl_event_kind;

typedef struct sl_choice {
  int32_t token;
  float logprob; /* natural logarithm of its probability, before temperature, top_k, top_p and
                    min_p */
} sl_choice;

typedef struct sl_session_event {
  uint64_t id;
  void *user;
  sl_event_kind kind;
  sl_end end;     /* reason, for END */
  int64_t place;  /* TOKEN: index in the answer, from 0; END: tokens of the answer; PROMPT: index in
                     the prompt, from 1 */
  int64_t cached; /* tokens of the prompt taken from the prefix cache */
  int32_t token;
  float logprob; /* logarithm of the token's probability, if requested */
  int ntop;
  sl_choice top[SL_SESSION_TOP]; /* [ntop] the most likely tokens, in descending order */
  uint64_t hash; /* hash of the logits it was drawn from, with sl_session_options.hash */
} sl_session_event;

/* Removes up to `most` of the oldest events and returns their number. Each event is delivered once,
 * and a request's events in order. Never blocks. */
int sl_session_poll(sl_session *s, sl_session_event *out, int most);
/* Returns an eventfd that is readable (POLLIN) while there are events. The session owns it, and
 * only sl_session_poll may read it. */
int sl_session_fd(const sl_session *s);

/* ---- rollouts --------------------------------------------------------------------- */

/* A session whose ticks are passes of a training plan (sl_rollout_options): it has a graph, but no
 * plan, runtime or thread. Each training step has `ticks` ticks, after which incomplete answers end
 * with SL_END_CANCELLED. */
typedef struct sl_session_steps {
  int ticks; /* ticks per step */
  /* Divides the model's logits, so that events have log-probabilities of softmax(logits /
   * temperature), from which requests of temperature 1 draw. [1] */
  float temperature;
  /* Called before the first tick of each step, to submit the step's requests. They should use the
   * step as salt, since pages of earlier steps were computed with other parameters. */
  void (*begin)(void *ctx, int64_t step);
  /* Receives each event when it happens, on a worker's thread, instead of sl_session_poll. Must not
   * block or call functions of the session. */
  void (*note)(void *ctx, const sl_session_event *event);
  void *ctx;
} sl_session_steps;

/* Creates the session, and its options for sl_lower. Errors are those of sl_session_create.
 * `lower`, `run`, `job`, `load`, `log` and `trace` of the options are not used. The session must be
 * destroyed after the sl_lowered made with it. */
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
  int64_t pages_most;        /* peak of pages in use so far */
  sl_session_limits limits;  /* limits in force */
  int queued, running;       /* requests waiting for admission; requests that have pages */
  int events;                /* events not yet polled */
  uint64_t ticks;            /* completed */
  uint64_t rows;             /* rows computed, of prompts and answers */
  uint64_t rows_prompt;      /* rows of prompts among these */
  uint64_t rows_again;       /* rows recomputed for preempted requests */
  uint64_t rows_shared;      /* rows taken from the prefix cache. All positions of all requests are
                                rows_shared + rows - rows_again, less drafts that were not
                                accepted */
  uint64_t pages_shared;     /* full pages found in the prefix cache at admission or readmission */
  uint64_t states_kept;      /* states that have been kept along with pages */
  int64_t pages_kept;        /* copies of pages in the storage for kept pages */
  uint64_t pages_written, pages_read; /* pages copied to this storage, and back */
  uint64_t tokens;                    /* tokens of answers */
  uint64_t rounds;                    /* drafts that were checked */
  uint64_t drafted, accepted;         /* tokens of these drafts; tokens that were accepted into
                                         answers */
  uint64_t checked;  /* drafted tokens up to and including the first wrong one of each draft, the
                        base of the acceptance rate */
  uint64_t requests; /* requests admitted so far */
  uint64_t ended[SL_END_COUNT]; /* requests by reason of ending */
  uint64_t preemptions;
  sl_expert_reads experts;  /* by this process */
  sl_row_reads tables;      /* by this process */
  sl_block_choices choices; /* likewise */
  uint64_t replayed;        /* passes of stages of this process that were replayed as CUDA graphs */
  uint64_t last_tick_ns;    /* CLOCK_MONOTONIC time at which the last tick came back; 0: none
                               yet */
  uint64_t waiting_since_ns; /* CLOCK_MONOTONIC time since which there has been work but no tick has
                                come back; 0: no work. Recent in a healthy session */
} sl_session_stats;
sl_session_stats sl_session_stat(const sl_session *s);

/* Changes limits while the session runs; 0 leaves a limit unchanged. Limits may go down, and up
 * again to at most their value at create; `queue` may take any value; pages must suffice for one
 * sequence. Ticks and sequences above a lowered limit continue, but the youngest sequences give up
 * pages. Answers do not change. SL_E_USAGE names an impossible value; nothing has changed then. */
sl_status sl_session_limit(sl_session *s, const sl_session_limits *limits);
/* Return the measured cost of the session's ticks on one stage; this needs one group. All 0: too
 * few ticks have completed, or several are in flight. sl_session_cost gives the five numbers,
 * sl_session_corners gives corners at frequent row counts, and a spread. */
sl_tick_cost sl_session_cost(const sl_session *s);
sl_tick_cost sl_session_corners(const sl_session *s);

/* Returns SL_OK while the session runs; else the status that ended it, with the text in
 * sl_detail(). */
sl_status sl_session_status(const sl_session *s);

/* Stops accepting requests (queued requests are still served) and waits up to `seconds` (below 0:
 * without limit; 0: not at all) until all requests have ended. Returns SL_OK if they have,
 * SL_E_STOPPED if some are still running. Events remain available to sl_session_poll. */
sl_status sl_session_drain(sl_session *s, double seconds);

/* ---- simulation -------------------------------------------------------------------------- */

/* A simulated request: its arrival time, and the lengths of its prompt and answer. */
typedef struct sl_arrival {
  double seconds;         /* time from the start, ascending; not used in a closed loop */
  int64_t prompt, answer; /* tokens */
} sl_arrival;

typedef struct sl_answered {
  double came;        /* time of its arrival, in seconds from the start */
  double first, last; /* times of its first and last token, in seconds from the start */
  int64_t tokens;     /* tokens of the answer; 0: rejected, because the queue was full */
} sl_answered;

typedef struct sl_session_simulation {
  sl_session_info about;  /* sizes; its pointers are NULL */
  sl_session_stats stats; /* after the last request has ended */
  double seconds;         /* time from the first arrival to the last token */
  int nstages;
  double *busy; /* [nstages] seconds of computation */
  int64_t narrivals;
  sl_answered *answered; /* [narrivals] */
  char *notes; /* a line on each op whose calls the machine's tables do not cover, or NULL */
} sl_session_simulation;

/* Simulates a session with these arrivals on the virtual clock, in the calling thread. clients:
 * size of a closed loop, in which that many requests arrive at the start and each answer that ends
 * brings the next; 0: requests arrive at their times. Scheduling,
 * pages and plan are real; timed devices (options.lower.devices) compute nothing. Unless
 * options.trace is set, one device represents all that share its stage
 * (sl_simulation_options.alike). Every token is 0, and there are no stop tokens. SL_E_USAGE names
 * an impossible arrival; other errors are those of sl_session_create. */
sl_status sl_session_simulate(const sl_session_options *options, int64_t clients, int64_t n,
                              const sl_arrival *arrivals, sl_session_simulation *out);
void sl_session_simulation_fini(sl_session_simulation *r);

/* Durations of the ticks of a plan, each stage as one pass of its devices. They are nearly those of
 * all sessions with the plan's model, stages and devices that have no larger ticks, whatever their
 * groups and pages: a few ops have the size of the largest tick, and devices may share those of
 * smaller ticks in other ways. The options must outlive them. */
typedef struct sl_session_prices sl_session_prices;
sl_status sl_session_price(const sl_session_options *options, sl_session_prices **out);
void sl_session_prices_free(sl_session_prices *p);

/* Part of the work of requests: prompts and answers, prompts with their first token, or the rest of
 * the answers. */
typedef enum sl_serving_part {
  SL_SERVING_ALL,
  SL_SERVING_PROMPTS,
  SL_SERVING_ANSWERS
} sl_serving_part;

/* Sets the requests that sl_session_prices_least() is about. */
void sl_session_prices_weigh(sl_session_prices *p, int64_t n, const sl_arrival *arrivals);
/* Returns a lower bound of the seconds in which servers with these prices compute a part of the
 * requests, with at most so many rows in a tick, sequences at once and ticks in flight. Work is
 * done in the least time by ticks that are all alike, as far as durations are convex in the rows.
 * 0: not known, since the options give the cost of ticks. */
double sl_session_prices_least(const sl_session_prices *p, sl_serving_part part, int servers,
                               int64_t rows, int64_t sequences, int groups);
/* Returns the seconds of a tick through all stages, in which so many sequences answer after the
 * mean number of positions. */
double sl_session_prices_tick(const sl_session_prices *p, int64_t sequences);

/* Servers with the same options. */
typedef struct sl_servers {
  const sl_session_options *options;
  int count;
  const sl_session_prices *prices; /* NULL: those of a plan made from the options, which is then
                                      checked against the devices' budgets */
} sl_servers;

/* Servers that share the requests of a simulation. A request goes to the server with the fewest
 * unfinished ones. If there are `prefill` servers (count above 0), these compute the prompts and
 * the first tokens; the pages then travel over the link to one of the other servers, which computes
 * the rest of the answer. A server sends and receives the pages of one prompt at a time. */
typedef struct sl_fleet {
  sl_servers servers, prefill;
  double link_seconds, link_bytes_per_second; /* between two servers; 0: takes no time */
} sl_fleet;

/* Simulates the servers as sl_session_simulate() does one, with each stage as one pass: exchanges
 * of a tick do not overlap with the passes of another. out->busy and out->nstages begin with the
 * stages of the prefill servers; busy is the mean over servers. out->stats are sums, and pages_most
 * is the largest. */
sl_status sl_fleet_simulate(const sl_fleet *fleet, int64_t clients, int64_t n,
                            const sl_arrival *arrivals, sl_session_simulation *out);

#ifdef __cplusplus
}
#endif
#endif
