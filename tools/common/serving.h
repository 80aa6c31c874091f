/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions configured by a command line, for actorserve and for actortune --slo. */
#ifndef SLUICE_TOOLS_COMMON_SERVING_H
#define SLUICE_TOOLS_COMMON_SERVING_H

#include <sluice/session.h>

#include "tools/common/arrivals.h"
#include "tools/common/settings.h"
#include "tools/common/fingerprint.h"

/* Options that both tools have. */
/* clang-format off */
#define SERVING_OPTIONS \
  {"init", SL_OPTION_TEXT, "", "`FILE` with the model's weights (safetensors, GGUF), or a Hugging Face folder", 0, 0, GROUP_DATA}, \
      {"dtype", SL_OPTION_TEXT, "stored", "`TYPE` of weights in memory: stored (as they lie in the file: bf16, Q8_0, " \
       "Q5_0 as that, Q4_1, Q4_0; all else as fp32), fp32, with the same answers, or bf16, rounded", 0, 0, GROUP_MEMORY}, \
      {"kv", SL_OPTION_TEXT, "fp32", "`TYPE` of keys and values in memory: fp32, or bf16, rounded, in half of it", 0, \
       0, GROUP_MEMORY}, \
      {"adapter-places", SL_OPTION_INT, "0", "adapters that may be loaded at once, for /v1/load_lora_adapter too; 0: as many as --adapter " \
       "names", 0, 1024, GROUP_SERVING}, \
      {"adapter-rank", SL_OPTION_INT, "0", "most rank of such an adapter; 0: the largest of those named, or 16", 0, 4096, GROUP_SERVING}, \
      {"queue", SL_OPTION_INT, "1024", "answers that may wait to be let in; more are refused with 503", 1, 1 << 20, GROUP_SERVING}, { \
    "chunks", SL_OPTION_TEXT, "times", "`HOW` a prompt that is alone is cut, where --tick is given and there are " \
    "several stages: times (chunks that take as long as each other) or rows (as long as ticks are)", 0, 0, GROUP_SERVING \
  }
/* clang-format on */

/* Options for requests that arrive at times given in a file. */
/* clang-format off */
#define SERVING_WORKLOAD_OPTIONS \
  {"arrivals", SL_OPTION_TEXT, "", "`FILE` with a line for each request, {\"time\": 0.25, \"prompt\": 300, \"answer\": 40} " \
   "in seconds and tokens: takes these, listens nowhere, and says how they were answered", 0, 0, GROUP_SERVING}, \
      {"rate", SL_OPTION_FLOAT, "1", "requests come so many times as fast as --arrivals says", 1e-6, 1e6, GROUP_SERVING}, { \
    "tick", SL_OPTION_TEXT, "", "`A,B,C,D,E`: a stage takes A seconds for a tick, B L + C x + D (2 L x + x x) for x rows behind " \
    "L positions, and E for each token that is sampled [0]; or a FILE, the report of a run of one stage with --arrivals; as --machine says if not given", 0, 0, GROUP_SERVING \
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
sl_status serving_fingerprint(const settings *s, bool (*apart)(const char *name), fingerprint *t);

/* Reads --arrivals, scaled by --rate, into the settings' arena. */
sl_status serving_arrivals(settings *s, arrivals *out);
/* Reads --tick. *given is true if it was set. See ticks_read() for *whole. */
sl_status serving_cost(const settings *s, sl_tick_cost *out, bool *given, bool *whole);

#endif
