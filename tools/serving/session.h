/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions configured by a command line, for actorserve and for actortune serve. */
#ifndef SLUICE_TOOLS_SERVING_SESSION_H
#define SLUICE_TOOLS_SERVING_SESSION_H

#include <sluice/session.h>

#include "tools/cli/cli.h"
#include "tools/serving/arrivals.h"

/* Options that both tools have. */
/* clang-format off */
#define SERVING_OPTIONS \
  {"init", SL_OPTION_TEXT, "", "`FILE` with the model's weights (safetensors, GGUF), or a Hugging Face folder", 0, 0, GROUP_DATA}, \
      {"dtype", SL_OPTION_TEXT, "stored", "`TYPE` of weights in memory: stored (bf16, Q8_0, Q4_1 and " \
       "Q4_0 as in the file, Q5_0 as Q8_0, all others as fp32), fp32 (same answers as stored), bf16 (rounded), or fp8 (modelled devices only)", 0, 0, GROUP_MEMORY}, \
      {"kv", SL_OPTION_TEXT, "fp32", "`TYPE` of the KV cache: fp32, bf16 (rounded, half the " \
       "memory), q8_0 (a byte per number, and scales), or fp8 (a byte per number)", 0, \
       0, GROUP_MEMORY}, \
      {"adapter-places", SL_OPTION_INT, "0", "maximum number of loaded adapters, including those of " \
       "/v1/load_lora_adapter; 0: as many as --adapter names", 0, 1024, GROUP_SERVING}, \
      {"adapter-rank", SL_OPTION_INT, "0", "maximum rank of an adapter; 0: the largest of --adapter, " \
       "or 16", 0, 4096, GROUP_SERVING}, \
      {"queue", SL_OPTION_INT, "1024", "maximum number of waiting answers; further requests get 503", 1, 1 << 20, GROUP_SERVING}, { \
    "chunks", SL_OPTION_TEXT, "times", "`HOW` a prompt that runs alone is cut, with --tick and " \
       "several stages: times (chunks of equal duration) or rows (chunks of --rows tokens)", 0, 0, GROUP_SERVING \
  }
/* clang-format on */

/* Options for requests that arrive at times given in a file. */
/* clang-format off */
#define SERVING_WORKLOAD_OPTIONS \
  {"arrivals", SL_OPTION_TEXT, "", "`FILE` with one request per line, {\"time\": 0.25, \"prompt\": " \
       "300, \"answer\": 40} in seconds and tokens: serves these instead of listening, and reports how they were " \
       "answered", 0, 0, GROUP_SERVING}, \
      {"concurrency", SL_OPTION_INT, "0", "closed loop of `N` clients, each of which sends its next request when it " \
       "is answered: takes --lengths, or the lengths of --arrivals without its times", 0, 1 << 20, GROUP_SERVING}, \
      {"lengths", SL_OPTION_TEXT, "", "`PROMPT,ANSWER` tokens of each request of --concurrency; a third number is the fraction by which " \
       "answers vary", 0, 0, GROUP_SERVING}, \
      {"requests", SL_OPTION_INT, "0", "number of requests with --lengths; 0: eight for each client", 0, 1 << 24, GROUP_SERVING}, \
      {"rate", SL_OPTION_FLOAT, "1", "requests arrive this many times as fast as --arrivals says", 1e-6, 1e6, GROUP_SERVING}, { \
    "tick", SL_OPTION_TEXT, "", "`A,B,C,D,E`: a stage takes A seconds per tick, B L + C x + D (2 L x " \
       "+ x x) for x rows after L positions, and E per sampled token [0]; or a FILE, the report of a one-stage run " \
       "with --arrivals; derived from --machine if not given", 0, 0, GROUP_SERVING \
  }
/* clang-format on */

/* Reads the settings that all sessions share; a tool's `read` calls it. Training options of the
 * plan get the values that sessions need. The model's context is set to what its weights
 * support. */
sl_status serving_read(settings *s);

/* Returns session options for the settings' model. The tool itself sets sizes, threads, processes
 * and files. The options point into `s`. */
sl_session_options serving_options(const settings *s);

/* Collects what must agree between all processes of a session: the model, all options except those
 * that `apart` accepts, and the contents of weights, adapters and code. SL_E_INPUT names an
 * unreadable file. */
sl_status serving_fingerprint(const settings *s, bool (*apart)(const char *name),
                              fingerprint *fingerprint);

/* Returns whether requests come from --arrivals or --lengths, not from users. */
bool serving_has_arrivals(const settings *s);
/* Reads --arrivals, scaled by --rate, into the settings' arena. */
sl_status serving_arrivals(settings *s, arrivals *out);
/* Reads --tick. *given is true if it was set. See ticks_read() for *whole. */
sl_status serving_cost(const settings *s, sl_tick_cost *out, bool *given, bool *whole);

#endif
