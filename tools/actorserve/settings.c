/* SPDX-License-Identifier: Apache-2.0 */
/* The options of actorserve. */
#include <stdlib.h>
#include <string.h>

#include "tools/actorserve/actorserve.h"

/* clang-format off */
static const tool_option options[] = {
    {"host", SL_OPTION_TEXT, "127.0.0.1", "`ADDRESS` to listen at; 0.0.0.0: all of this machine's", 0, 0, GROUP_SERVING},
    {"port", SL_OPTION_INT, "8000", "to listen at; 0: any that is free", 0, 65535, GROUP_SERVING},
    {"api-key", SL_OPTION_TEXT, "", "`KEY` that requests must have (Authorization: Bearer KEY); anybody may "
     "ask if not given. Others on this machine can read it there: --api-key-file, or the variable SLUICE_API_KEY, says it as well", 0, 0, GROUP_SERVING},
    {"api-key-file", SL_OPTION_TEXT, "", "`FILE` with that key in its first line", 0, 0, GROUP_SERVING},
    {"cors", SL_OPTION_TEXT, "loopback", "`WHOSE` pages may ask from a browser: loopback (those of this machine), one origin such as "
     "https://chat.example, * (all), or off", 0, 0, GROUP_SERVING},
    {"request-memory", SL_OPTION_TEXT, "256M", "`SIZE` of what clients make the server hold and compute with, all together", 0, 0, GROUP_MEMORY},
    SERVING_OPTIONS,
    {"tokenizer", SL_OPTION_TEXT, "", "`FILE` that says how text becomes tokens: a tokenizer.json, or GGUF; if not "
     "given, what lies with the weights", 0, 0, GROUP_DATA},
    {"chat-template", SL_OPTION_TEXT, "", "`NAME` or file of how a chat becomes a text, in the place of the model's "
     "own template", 0, 0, GROUP_DATA},
    {"served-model-name", SL_OPTION_TEXT, "", "`NAME`[,NAME...] that the model has for clients, in the place of its folder's or file's; the first "
     "is that of answers", 0, 0, GROUP_SERVING},
    {"access-log", SL_OPTION_TEXT, "", "`FILE` to which a line is added for each request: when, from where, what, status, and seconds; "
     "- is standard error", 0, 0, GROUP_OUTPUT},
    {"tool-parser", SL_OPTION_TEXT, "auto", "`NAME` of the format in which answers call tools: hermes, qwen3-coder, llama3, mistral, "
     "gpt-oss, auto (the one that the chat template shows), or none", 0, 0, GROUP_SERVING},
    {"reasoning-parser", SL_OPTION_TEXT, "auto", "`NAME` of how reasoning is told from an answer: think (by <think> and </think>), "
     "auto (if the chat template has <think>), or none", 0, 0, GROUP_SERVING},
    {"pooling", SL_OPTION_TEXT, "none", "`HOW` hidden states become an embedding, for /v1/embeddings: mean (of all tokens), last (that of the "
     "last one), or none", 0, 0, GROUP_SERVING},
    {"rows", SL_OPTION_INT, "64", "tokens that a tick takes in at most, of prompts and answers together: more make "
     "prompts faster, and all others wait longer for a tick that has a part of one", 1, 1 << 20, GROUP_SERVING},
    {"sequences", SL_OPTION_INT, "0", "answers under way at once; 0: as many as --rows, at most 64", 0, 1 << 20, GROUP_SERVING},
    {"groups", SL_OPTION_INT, "0", "ticks under way at once; 0: one more than there are stages, or 1", 0, 64, GROUP_SERVING},
    {"quota", SL_OPTION_TEXT, "", "`NAME=N`: kv=N: N pages of keys and values on each stage, of 64 tokens of a sequence each; "
     "if not given, as many as --sequences of the longest need, as far as 512M hold them; weights=N: with --weights disk, of N "
     "blocks weights are in memory [2]; may be repeated", 0, 0, GROUP_MEMORY},
    {"weights", SL_OPTION_TEXT, "memory", "`WHERE` weights are between ticks: memory, or disk, with those of a few blocks in "
     "memory (--quota weights=N) and tables of tokens (--disk says which disk, --home weights@BLOCK=device what stays)", 0, 0, GROUP_MEMORY},
    {"admit", SL_OPTION_TEXT, "recompute", "`WHEN` a request is let in: reserve (when there are pages for all of its "
     "answer) or recompute (for its prompt: when pages run out, the youngest gives its own up, and is computed "
     "again)", 0, 0, GROUP_SERVING},
    {"prefix-caching", SL_OPTION_TEXT, "on", "`on|off`: prompts that begin with the same tokens share the pages of these, "
     "whole ones, computed once; host:SIZE or disk:SIZE: on, and pages whose memory others need go there (--disk DIR) and come back", 0, 0, GROUP_SERVING},
    {"prefix-states", SL_OPTION_INT, "0", "states kept beside pages, of models that have any, so that prompts can begin behind "
     "these; -1: none; 0: twice as many as --sequences, as far as 512M hold them", -1, 1 << 20, GROUP_SERVING},
    {"state-every", SL_OPTION_INT, "8", "`N`: the state is kept beside a prompt's last whole page and beside each N-th page", 1,
     1 << 20, GROUP_SERVING},
    {"speculate", SL_OPTION_TEXT, "", "`ngram[:tokens=G][,match=N]`: up to G next tokens of an answer [6] are guessed, by what followed its newest "
     "N or more [2] before; draft:PATH[:tokens=G]: by a smaller model, a folder or GGUF file; a tick checks them; done as long as it pays, or "
     "always with ,always", 0, 0, GROUP_SERVING},
    {"log", SL_OPTION_TEXT, "", "`FILE` that gets a line for each tick, of what it took", 0, 0, GROUP_OUTPUT},
    {"replay", SL_OPTION_TEXT, "", "`FILE` that --log has written: the same requests, in the same order, are taken by "
     "ticks as they were then", 0, 0, GROUP_SERVING},
    {"trace", SL_OPTION_TEXT, "", "`FILE` for what ran when and waited for what, the newest of it (see actortrace), "
     "when the server ends", 0, 0, GROUP_OUTPUT},
    {"report", SL_OPTION_TEXT, "", "`FILE` for what it was and has done, as JSON, when it ends", 0, 0, GROUP_OUTPUT},
    LAUNCH_OPTIONS,
    {"stuck", SL_OPTION_FLOAT, "10", "seconds without a tick, while work waits, after which /health says so", 0.1,
     1e6, GROUP_SERVING},
    SERVING_WORKLOAD_OPTIONS,
    {"measure", SL_OPTION_TEXT, "", "`FILE` for what ticks of the model take here, by how many rows they have, for --tick: runs some, "
     "and listens nowhere", 0, 0, GROUP_SERVING},
    {"quiet", SL_OPTION_FLAG, "0", "do not say where it listens, and what it does", 0, 0, GROUP_OUTPUT},
    {0}};
/* clang-format on */

static const char *const shared[] = {
    "devices", "stages",  "tensor", "memory",       "home",    "disk", "seed",  "clock",
    "machine", "adapter", "config", "print-config", "version", "help", "exact", NULL};

bool settings_have_workload(const settings *s) {
  return settings_text(s, "arrivals") || settings_text(s, "measure");
}

/* Refuses devices that do not compute, unless requests come from a file of arrivals. */
static sl_status check_devices(const settings *s) {
  bool computes = sl_device_computes(s->lower.devices.kind), bounded = settings_have_workload(s);
  if (s->clock == SL_CLOCK_VIRTUAL && settings_text(s, "measure"))
    return sl_fail(SL_E_USAGE, "--measure %s: nothing takes time on --clock virtual",
                   settings_text(s, "measure"));
  if (settings_text(s, "measure") && settings_text(s, "arrivals"))
    return sl_fail(SL_E_USAGE, "--measure %s: has requests of its own, not those of --arrivals",
                   settings_text(s, "measure"));
  if (s->clock == SL_CLOCK_VIRTUAL && !bounded)
    return sl_fail(SL_E_USAGE, "--clock virtual: who comes when? --arrivals FILE says");
  if (!computes && !bounded)
    return sl_fail(SL_E_USAGE, "--devices %s: they hold no values", sl_arg_text(s->run, "devices"));
  if (computes && !settings_text(s, "init"))
    return sl_fail(
        SL_E_USAGE,
        "%s: which weights? --init FILE says, or a Hugging Face folder or GGUF file in the "
        "place of the model",
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
      sl_fail(SL_E_USAGE, "--tool-parser %s: it is auto, none, or one of %s", name, names);
  free(names);
  return status;
}

static sl_status read_settings(settings *s) {
  static const char *const admits[] = {"reserve", "recompute", NULL};
  sl_status status = check_devices(s);
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
    {"host", "`ADDRESS` to listen at; 127.0.0.1 if not given"},
    {"port", "port to listen at; 8000 if not given"},
    {"api-key-file", "`FILE` with the key that requests must have"},
    {"devices", "`SPEC`: cpu, cpu:4 or cuda"},
    {"stages", "pipeline stages; one per device if not given"},
    {"tensor", "devices of each stage that share the tensors"},
    {"memory", "budget of each device, a `SIZE` such as 8G"},
    {"dtype", "`TYPE` of weights: stored, fp32 or bf16"},
    {"sequences", "answers under way at once; at most 64 if not given"},
    {"log", "`FILE` for a line about each tick"},
    {0}};

const tool actorserve_tool = {
    .name = "actorserve",
    .usage = "       actorserve [options] DIR | FILE.gguf\n",
    .purpose =
        "Serves a model over HTTP, as OpenAI's API has it. DIR is a Hugging "
        "Face folder.",
    .options = options,
    .first = first,
    .shared = shared,
    .takes_weights = true,
    .read = read_settings};
