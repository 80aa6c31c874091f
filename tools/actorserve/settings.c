/* SPDX-License-Identifier: Apache-2.0 */
/* The options of actorserve. */
#include <stdlib.h>
#include <string.h>

#include "tools/actorserve/actorserve.h"
#include "tools/actorserve/videos.h"

/* clang-format off */
static const tool_option options[] = {
    {"host", SL_OPTION_TEXT, "127.0.0.1", "`ADDRESS` to listen on; 0.0.0.0: all addresses of this "
     "machine", 0, 0, GROUP_SERVING},
    {"port", SL_OPTION_INT, "8000", "port to listen on; 0: any free port", 0, 65535, GROUP_SERVING},
    {"api-key", SL_OPTION_TEXT, "", "`KEY` that requests must send (Authorization: Bearer KEY); no "
     "key is required if not given. Other users of this machine can see it: prefer --api-key-file or the variable "
     "SLUICE_API_KEY", 0, 0, GROUP_SERVING},
    {"api-key-file", SL_OPTION_TEXT, "", "`FILE` with the key in its first line", 0, 0, GROUP_SERVING},
    {"cors", SL_OPTION_TEXT, "loopback", "`WHOSE` pages may send requests from a browser: loopback "
     "(this machine's), one origin such as https://chat.example, * (all), or off", 0, 0, GROUP_SERVING},
    {"request-memory", SL_OPTION_TEXT, "256M", "`SIZE` of the memory that all clients' requests "
     "together may use", 0, 0, GROUP_MEMORY},
    SERVING_OPTIONS,
    {"tokenizer", SL_OPTION_TEXT, "", "`FILE` with the tokenizer: a tokenizer.json, or GGUF; the one "
     "beside the weights if not given", 0, 0, GROUP_DATA},
    {"chat-template", SL_OPTION_TEXT, "", "`NAME` or file of the chat template, instead of the "
     "model's own", 0, 0, GROUP_DATA},
    {"served-model-name", SL_OPTION_TEXT, "", "`NAME`[,NAME...] of the model for clients, instead of "
     "its folder's or file's name; responses have the first", 0, 0, GROUP_SERVING},
    {"access-log", SL_OPTION_TEXT, "", "`FILE` to append a line to for each request: time, client, "
     "request, status and seconds; - is standard error", 0, 0, GROUP_OUTPUT},
    {"adapter-dir", SL_OPTION_TEXT, "", "`DIR` below which clients may load adapters while the "
     "server runs; none if not given", 0, 0, GROUP_SERVING},
    {"tool-parser", SL_OPTION_TEXT, "auto", "`NAME` of the format of tool calls in answers: hermes, "
     "qwen3-coder, llama3, mistral, gpt-oss, auto (detected from the chat template), or none", 0, 0, GROUP_SERVING},
    {"reasoning-parser", SL_OPTION_TEXT, "auto", "`NAME` of the format of reasoning in answers: "
     "think (between <think> and </think>), auto (think if the chat template has <think>), or none", 0, 0, GROUP_SERVING},
    {"pooling", SL_OPTION_TEXT, "none", "`HOW` /v1/embeddings pools hidden states: mean (of all "
     "tokens), last (the last token), or none", 0, 0, GROUP_SERVING},
    {"denoise", SL_OPTION_INT, "0", "serve clips of a model of frames, such as dit, at /v1/videos, in `N` denoising "
     "steps; 0: serve text", 0, 4096, GROUP_SERVING},
    {"guidance", SL_OPTION_FLOAT, "1", "with --denoise: scale of the class's guidance; 1: none", 0, 100, GROUP_SERVING},
    {"clip-order", SL_OPTION_TEXT, "queue", "with --denoise: `ORDER` of a clip's blocks: queue (as many at once as "
     "steps), or stream (one after another)", 0, 0, GROUP_SERVING},
    {"clips-waiting", SL_OPTION_INT, "64", "with --denoise: maximum number of clips that wait or run", 1, 1 << 20, GROUP_SERVING},
    {"rows", SL_OPTION_INT, "64", "maximum number of tokens per tick, of prompts and answers "
     "together: more makes prompts faster, but answers slower in ticks with part of a prompt", 1, 1 << 20, GROUP_SERVING},
    {"sequences", SL_OPTION_INT, "0", "maximum number of answers generated concurrently; 0: as many "
     "as --rows, at most 64", 0, 1 << 20, GROUP_SERVING},
    {"groups", SL_OPTION_INT, "0", "maximum number of ticks in flight; 0: one more than there are "
     "stages, or 1", 0, 64, GROUP_SERVING},
    {"quota", SL_OPTION_TEXT, "", "`NAME=N`: kv=N: KV cache pages per stage, each for 64 tokens of a "
     "sequence; if not given, enough for --sequences of maximum length, up to 512M; weights=N: with --weights "
     "disk, blocks whose weights are in memory [2]; experts=N: experts of each layer that are in memory [as many as "
     "--memory allows, or half]; may be repeated", 0, 0, GROUP_MEMORY},
    {"weights", SL_OPTION_TEXT, "memory", "`WHERE` weights are kept between ticks: memory; experts (those of "
     "experts on disk, except --quota experts=N of each layer; all others in memory); tables (those of embeddings on disk, "
     "read by rows; all others in memory); or disk (a few blocks, --quota weights=N, and the token tables stay in memory; "
     "--disk names the disk, --home weights@BLOCK=device the blocks that stay too)", 0, 0, GROUP_MEMORY},
    {"experts", SL_OPTION_TEXT, "whole", "`HOW` experts on disk are read: whole, or planes:A..B, in planes of one "
     "bit, of which a token's most probable expert takes B and its least probable A (2 to 8); with ,ascending expert by "
     "expert, and not those first that most rows want; with ,routed bit routers of the file choose a row's bits", 0, 0, GROUP_MEMORY},
    {"experts-held", SL_OPTION_FLOAT, "0", "with --clock virtual and experts on disk, `SHARE` of the experts asked for that "
     "are in memory; if not given, as many as --quota experts holds of all", 0, 1, GROUP_MEMORY},
    {"prefetch", SL_OPTION_INT, "0", "guess the experts of a layer `N` layers before it and read them ahead, after all that "
     "is sure; 0: read only what is wanted", 0, 1 << 10, GROUP_MEMORY},
    {"prompt-blocks", SL_OPTION_TEXT, "", "`SHARE[,CHUNK]`: each CHUNK positions of a prompt [1024] attend to this part of "
     "the pages before them, those to which their last queries give most weight; the rest of a prompt and answers attend "
     "to all", 0, 0, GROUP_SERVING},
    {"admit", SL_OPTION_TEXT, "recompute", "`WHEN` a request is admitted: reserve (when pages for "
     "its whole answer are free) or recompute (when pages for its prompt are free; if pages run out, the youngest "
     "request gives up its pages and is recomputed)", 0, 0, GROUP_SERVING},
    {"prefix-caching", SL_OPTION_TEXT, "on", "`on|off`: prompts that begin with the same tokens "
     "share the whole pages of these, computed once; host:SIZE or disk:SIZE: on, and evicted pages move there "
     "(--disk DIR) and come back", 0, 0, GROUP_SERVING},
    {"prefix-states", SL_OPTION_INT, "0", "recurrent states kept with shared pages, so that prompts "
     "can start after them; -1: none; 0: twice as many as --sequences, up to 512M", -1, 1 << 20, GROUP_SERVING},
    {"state-every", SL_OPTION_INT, "8", "`N`: keep the state with a prompt's last whole page and "
     "with every N-th page", 1,
     1 << 20, GROUP_SERVING},
    {"speculate", SL_OPTION_TEXT, "", "`ngram[:tokens=G][,match=N]`: guess up to G next tokens of an "
     "answer [6] from what followed its newest N or more tokens [2] before; draft:PATH[:tokens=G]: guess with a "
     "smaller model, a folder or GGUF file; ahead[:tokens=G]: guess with the model's own block that predicts "
     "ahead; a tick checks the guesses; used while it pays off, or always with ,always", 0, 0, GROUP_SERVING},
    {"log", SL_OPTION_TEXT, "", "`FILE` for one line per tick with the rows it took", 0, 0, GROUP_OUTPUT},
    {"replay", SL_OPTION_TEXT, "", "`FILE` written by --log: repeat its ticks for the same requests "
     "in the same order", 0, 0, GROUP_SERVING},
    {"trace", SL_OPTION_TEXT, "", "`FILE` for a trace of what ran last and what it waited for, "
     "written when the server ends (see actortrace)", 0, 0, GROUP_OUTPUT},
    {"report", SL_OPTION_TEXT, "", "`FILE` (JSON) for a report of the server, written when it ends", 0, 0, GROUP_OUTPUT},
    LAUNCH_OPTIONS,
    {"grace", SL_OPTION_FLOAT, "20", "seconds that open requests have to end after SIGTERM or "
     "Ctrl-C; the rest are cut off", 0, 1e6, GROUP_SERVING},
    {"stuck", SL_OPTION_FLOAT, "10", "seconds without a tick, while work waits, after which /health "
     "reports it", 0.1,
     1e6, GROUP_SERVING},
    SERVING_WORKLOAD_OPTIONS,
    {"replicas", SL_OPTION_INT, "1", "on --clock virtual: number of servers like this one, among "
     "which the requests are shared", 1, 1 << 12, GROUP_SERVING},
    {"prefill", SL_OPTION_TEXT, "", "on --clock virtual: `N[,tensor=T][,stages=S][,rows=R][,sequences=N][,kv=N]` "
     "servers that compute the prompts, whose pages then travel to this server or its replicas", 0, 0, GROUP_SERVING},
    {"measure", SL_OPTION_TEXT, "", "`FILE` for measured tick durations by number of rows, for "
     "--tick; measures instead of listening", 0, 0, GROUP_SERVING},
    {"quiet", SL_OPTION_FLAG, "0", "print neither the address nor progress", 0, 0, GROUP_OUTPUT},
    {0}};
/* clang-format on */

static const char *const shared[] = {
    "devices", "stages",  "tensor", "sequence",     "memory",  "home", "disk",  "seed", "clock",
    "machine", "adapter", "config", "print-config", "version", "help", "exact", NULL};

bool settings_have_workload(const settings *s) {
  return serving_has_arrivals(s) || settings_text(s, "measure");
}

/* Refuses devices that do not compute, unless requests come from a file of arrivals. */
static sl_status check_devices(const settings *s) {
  bool computes = sl_device_computes(s->lower.devices.kind), bounded = settings_have_workload(s);
  if (s->clock == SL_CLOCK_VIRTUAL && settings_text(s, "measure"))
    return sl_fail(SL_E_USAGE, "--measure %s: cannot measure on --clock virtual",
                   settings_text(s, "measure"));
  if (settings_text(s, "measure") && serving_has_arrivals(s))
    return sl_fail(SL_E_USAGE, "--measure %s: cannot be combined with --arrivals",
                   settings_text(s, "measure"));
  if (!serving_has_arrivals(s) &&
      (sl_arg_int(s->run, "concurrency") || sl_arg_int(s->run, "requests")))
    return sl_fail(SL_E_USAGE, "%s: needs --lengths PROMPT,ANSWER, or --arrivals FILE",
                   sl_arg_int(s->run, "concurrency") ? "--concurrency" : "--requests");
  if (s->clock == SL_CLOCK_VIRTUAL && !bounded)
    return sl_fail(SL_E_USAGE,
                   "--clock virtual: needs --arrivals FILE, or --concurrency and --lengths");
  if (!computes && !bounded)
    return sl_fail(SL_E_USAGE, "--devices %s: these devices hold no values",
                   sl_arg_text(s->run, "devices"));
  if (computes && !settings_text(s, "init") && !model_has_weights(s->model_word))
    return sl_fail(
        SL_E_USAGE,
        "%s: needs weights: give --init FILE, or a Hugging Face folder, GGUF file or FILE.pt2 "
        "instead of the model",
        s->model_word);
  return SL_OK;
}

static sl_status check_parsers(const settings *s) {
  static const char *const thinking[] = {"auto", "think", "none", NULL};
  const char *name = sl_arg_text(s->run, "tool-parser");
  if (!strcmp(name, "auto") || !strcmp(name, "none") || answer_format_named(name))
    return options_check_word("reasoning-parser", sl_arg_text(s->run, "reasoning-parser"),
                              thinking);
  char *names = answer_format_names();
  sl_status status =
      sl_fail(SL_E_USAGE, "--tool-parser %s: must be auto, none, or one of %s", name, names);
  free(names);
  return status;
}

/* Refuses several servers where they are not simulated. */
static sl_status check_servers(const settings *s) {
  static const char *const alone[] = {"log", "replay", "trace", "speculate"};
  const char *word = settings_text(s, "prefill") ? "--prefill" : "--replicas";
  if (!settings_text(s, "prefill") && sl_arg_int(s->run, "replicas") == 1) return SL_OK;
  if (s->clock != SL_CLOCK_VIRTUAL)
    return sl_fail(SL_E_USAGE,
                   "%s: several servers are simulated, on --clock virtual; start each of them with "
                   "its own command",
                   word);
  for (size_t i = 0; i < SLI_COUNT(alone); i++)
    if (settings_text(s, alone[i]))
      return sl_fail(SL_E_USAGE, "--%s: cannot be combined with %s", alone[i], word);
  return SL_OK;
}

static sl_status read_settings(settings *s) {
  static const char *const admits[] = {"reserve", "recompute", NULL};
  sl_status status = check_devices(s);
  if (!status) status = videos_check(s);
  if (!status) status = check_servers(s);
  if (!status) status = homes_check(s);
  if (!status) status = options_check_word("admit", sl_arg_text(s->run, "admit"), admits);
  sl_prefixes prefixes;
  sl_kept_pages kept;
  if (!status) status = prefixes_read(s, &prefixes, &kept);
  static const char *const poolings[] = {"none", "mean", "last", NULL};
  if (!status) status = options_check_word("pooling", sl_arg_text(s->run, "pooling"), poolings);
  speculate speculation = {0};
  if (!status) status = speculate_read(s, &speculation);
  free(speculation.path);
  if (!status) status = launch_check(s);
  if (!status) status = access_check(s);
  if (!status) status = check_parsers(s);
  return status ? status : serving_read(s);
}

static const first_option first[] = {
    {"host", "`ADDRESS` to listen on; 127.0.0.1 if not given"},
    {"port", "port to listen on; 8000 if not given"},
    {"api-key-file", "`FILE` with the key that requests must send"},
    {"devices", "`SPEC`: cpu, cpu:4 or cuda"},
    {"stages", "pipeline stages; one per device if not given"},
    {"tensor", "devices of each stage that share the tensors"},
    {"memory", "memory budget of each device, a `SIZE` such as 8G"},
    {"dtype", "`TYPE` of weights: stored, fp32, bf16 or fp8"},
    {"sequences", "maximum of concurrent answers; 64 or less if not given"},
    {"log", "`FILE` for one line per tick"},
    {0}};

const tool actorserve_tool = {
    .name = "actorserve",
    .usage = "       actorserve [options] DIR | FILE.gguf | FILE.pt2\n",
    .purpose = "Serves a model by an OpenAI-compatible HTTP API. DIR is a Hugging Face folder.",
    .options = options,
    .first = first,
    .shared = shared,
    .takes_weights = true,
    .read = read_settings,
    .serves = true};
