/* SPDX-License-Identifier: Apache-2.0 */
/* actorrun's options, and the form in which it takes the shared plan options: one value each. */
#include "tools/actorrun/actorrun.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/gguf/gguf.h"
#include "io/shards/shards.h"
#include "graph/build/build.h"
#include "io/tokens/tokens.h"
#include "tools/actorrun/certify.h"
#include "tools/actorrun/chat.h"
#include "tools/actorrun/objective.h"
#include "tools/actorrun/rl/rl.h"

/* clang-format off */
static const tool_option options[] = {
    {"auto", SL_OPTION_FLAG, "0", "choose what of --stages, --tensor, --data-parallel, --sequence, --microbatches, "
     "--pieces, --chunks, --schedule, --recompute and --shard is not given: what takes least time within --memory "
     "on the --machine (actortune plan shows more)", 0, 0, GROUP_PARALLEL},
    {"activations", SL_OPTION_FLOAT, "0", "with --schedule auto: most microbatches' worth of "
     "activations a device may hold; 0: any number", 0, 1e9, GROUP_MEMORY},
    {"steps", SL_OPTION_INT, "100", "optimizer steps", 0, 1e15, GROUP_TRAINING},
    {"epochs", SL_OPTION_FLOAT, "0", "instead of --steps: as many as take `N` times all sequences of --data; 0: as --steps says", 0,
     1e6, GROUP_TRAINING},
    {"shuffle", SL_OPTION_INT, "0", "`SEED` of the order in which sequences of the data come, another "
     "order each time that all have been seen; 0: as they lie in the files", 0, 9e15, GROUP_DATA},
    {"eval", SL_OPTION_LIST, "", "`FILE`, or a folder, of which the loss is found while training goes "
     "on; as --data, may be repeated", 0, 0, GROUP_TRAINING},
    {"eval-every", SL_OPTION_INT, "100", "steps from one evaluation to the next, each of all rows held out. Alone, without "
     "--eval: of what the model's own data holds out", 1, 1e6, GROUP_TRAINING},
    {"eval-rows", SL_OPTION_INT, "0", "evaluate the first so many of the rows held out; 0: all", 0, 1e15, GROUP_TRAINING},
    {"patience", SL_OPTION_INT, "0", "evaluations without a smaller loss, or a better value of --best, "
     "after which the run ends; 0: any number", 0, 1e9, GROUP_TRAINING},
    {"best", SL_OPTION_TEXT, "loss", "`NAME` of the loss or a metric, by which evaluations are "
     "compared: the smallest loss is the best, or the largest metric, or what NAME:min and NAME:max say",
     0, 0, GROUP_TRAINING},
    {"init", SL_OPTION_TEXT, "", "`FILE` (safetensors or GGUF) with the values to start from, or a "
     "Hugging Face folder; its config.json, or the GGUF file, gives the model's options and makes tokens "
     "of text", 0, 0, GROUP_TRAINING},
    {"init-new", SL_OPTION_TEXT, "", "`PATTERN,...` of parameters that --init need not have: they begin as those of a new "
     "model", 0, 0, GROUP_TRAINING},
    {"upcycle", SL_OPTION_FLAG, "0", "--init has a dense model: each expert begins as its feed-forward half, scaled so that "
     "all together give what it did", 0, 0, GROUP_TRAINING},
    {"preferences", SL_OPTION_LIST, "", "`FILE` (JSON lines) of prompts, each with an answer that is chosen and one that is "
     "rejected, to learn in place of --data: the model learns to prefer the first; may be repeated", 0, 0, GROUP_TRAINING},
    {"dpo", SL_OPTION_TEXT, "beta=0.1", "how --preferences are learned: `KEY=VALUE,...` of beta, smoothing, and "
     "long=drop, which leaves out what is longer than the context", 0, 0, GROUP_TRAINING},
    {"teacher", SL_OPTION_TEXT, "", "`DIR` (Hugging Face) or GGUF file of a model whose probabilities are learned", 0, 0, GROUP_TRAINING},
    {"distill", SL_OPTION_TEXT, "kl", "`HOW` a --teacher is learned: kl:KEY=VALUE,... of top (its likeliest tokens), temperature, "
     "and data (share of the data's own loss)", 0, 0, GROUP_TRAINING},
    {"save", SL_OPTION_TEXT, "", "`FILE` (safetensors, or FILE.gguf:TYPE, with TYPE f32, f16, bf16, q8_0, q4_0 or "
     "q4_k) for the values at the end, or a folder, there already or with a / at its end, for a Hugging Face model", 0, 0, GROUP_TRAINING},
    {"save-paths", SL_OPTION_TEXT, "", "`FILE` for the paths that --skip has found, to be given by --paths", 0, 0, GROUP_SCHEDULE},
    {"tokenizer", SL_OPTION_TEXT, "", "`FILE` (a Hugging Face tokenizer.json, or GGUF) that makes "
     "tokens of text: of data, and of --prompt", 0, 0, GROUP_DATA},
    {"frozen", SL_OPTION_TEXT, "fp32", "`HOW` frozen weights lie in memory: fp32, or stored (in the "
     "blocks or halves that the file of --init has)", 0, 0, GROUP_TRAINING},
    {"save-adapter", SL_OPTION_TEXT, "", "`DIR` for the adapters of --lora at the end, as PEFT reads "
     "them; --save merges them into the weights", 0, 0, GROUP_TRAINING},
    {"checkpoint", SL_OPTION_TEXT, "", "`DIR` for all that a run needs to go on, written while it "
     "trains, at its end and on Ctrl-C", 0, 0, GROUP_TRAINING},
    {"every", SL_OPTION_INT, "100", "steps from one checkpoint to the next", 1, 1e6, GROUP_TRAINING},
    {"keep", SL_OPTION_INT, "2", "checkpoints that stay: the newest", 1, 1e6, GROUP_TRAINING},
    {"resume", SL_OPTION_FLAG, "0", "go on from the newest whole checkpoint in DIR, if there is "
     "one, up to --steps in all; the number of stages may be another", 0, 0, GROUP_TRAINING},
    {"resume-with", SL_OPTION_TEXT, "", "`NAMES` of what --resume may find other than it was, such as "
     "lr,data: options, graph (the model's ops), code (of its own ops), data", 0, 0, GROUP_TRAINING},
    LAUNCH_OPTIONS,
    {"log", SL_OPTION_LIST, "", "`FILE` (.csv, .jsonl), or a folder for TensorBoard, for the loss of "
     "each step as the run goes; may be repeated", 0, 0, GROUP_OUTPUT},
    {"logprobs", SL_OPTION_TEXT, "", "`FILE` (.jsonl) for the logarithms of the probabilities of the targets, a line "
     "for each row of a step's batch", 0, 0, GROUP_OUTPUT},
    {"report", SL_OPTION_TEXT, "", "`FILE` (JSON) for the figures of the run", 0, 0, GROUP_OUTPUT},
    {"trace", SL_OPTION_TEXT, "", "`FILE` for what ran when and waited for what (see actortrace)",
     0, 0, GROUP_OUTPUT},
    {"plan", SL_OPTION_TEXT, "", "`FILE` for the plan as text", 0, 0, GROUP_OUTPUT},
    {"dry-run", SL_OPTION_FLAG, "0", "stop before anything is allocated: show the plan, its "
     "memory and that it can finish", 0, 0, GROUP_OUTPUT},
    {"show-sbp", SL_OPTION_FLAG, "0", "show how the devices of a stage share each op, what it costs "
     "and what came second, and stop", 0, 0, GROUP_OUTPUT},
    {"print-after", SL_OPTION_TEXT, "", "print the graph after this `PASS` (docs/passes.md), without a run", 0, 0, GROUP_OUTPUT},
    {"show-placement", SL_OPTION_FLAG, "0", "show which cores the devices get, and stop", 0, 0, GROUP_OUTPUT},
    {"generate", SL_OPTION_INT, "0", "tokens to write with the model at the end", 0, 1e9, GROUP_DATA},
    {"prompt", SL_OPTION_TEXT, "", "`TEXT` to continue, a new line if not given; numbers for "
     "a vocabulary that is not bytes", 0, 0, GROUP_DATA},
    {"chat", SL_OPTION_LIST, "", "`TEXT` that a user says to the model, which answers in up to --generate "
     "tokens; given several times, what user and model said in turn", 0, 0, GROUP_DATA},
    {"chat-system", SL_OPTION_TEXT, "", "`TEXT` that tells the model before that how to answer", 0, 0, GROUP_DATA},
    {"chat-template", SL_OPTION_TEXT, "", "`NAME` or file of how --chat, and chats of --data, become a text, in the place of the model's "
     "own template", 0, 0, GROUP_DATA},
    {"learn", SL_OPTION_TEXT, "answers", "`WHAT` of chats of --data is learned: answers, or all", 0, 0, GROUP_DATA},
    {"long-chats", SL_OPTION_TEXT, "cut", "`HOW` chats of --data longer than --context are taken: cut, drop or refuse", 0, 0, GROUP_DATA},
    {"show-data", SL_OPTION_FLAG, "0", "print the first three chats of --data with what is learned marked, and stop", 0, 0, GROUP_OUTPUT},
    {"temperature", SL_OPTION_FLOAT, "0.8", "of sampling; 0: always the likeliest", 0, 1000, GROUP_DATA},
    {"rl", SL_OPTION_TEXT, "", "`METHOD`[:KEY=N,...]: learn from the model's own answers to --prompts, as many in a step "
     "as --batch says: grpo, by what --reward says, or distill, the probabilities of --teacher; with group (answers to each prompt), top-p, "
     "ticks, updates, and for grpo kl, clip, clip-high, dual-clip", 0, 0, GROUP_TRAINING},
    {"rollout-ahead", SL_OPTION_INT, "0", "updates that the parameters which answer are old: answers of --rl come beside training", 0, 8, GROUP_TRAINING},
    {"prompts", SL_OPTION_TEXT, "", "`FILE` with a prompt on each line: .jsonl with prompt or messages, answer and data; or text", 0, 0, GROUP_DATA},
    {"reward", SL_OPTION_TEXT, "", "`PROGRAM` that reads a line of JSON for each answer and writes a number for each; or exact "
     "(the answer of the prompt's line), regex:PATTERN or length:N", 0, 0, GROUP_TRAINING},
    {"reward-seconds", SL_OPTION_FLOAT, "60", "that the program may take for an answer", 0.001, 1e6, GROUP_TRAINING},
    {"reward-failed", SL_OPTION_TEXT, "end", "`WHAT` comes of a program that fails: end (of the run), or drop (of the answer)", 0, 0, GROUP_TRAINING},
    {"max-tokens", SL_OPTION_INT, "256", "most tokens of an answer of --rl", 1, 1e9, GROUP_DATA},
    {"stop", SL_OPTION_LIST, "", "`TEXT` of a token that ends an answer of --rl, beside the model's own; \\n: a new line", 0, 0, GROUP_DATA},
    {"answers", SL_OPTION_TEXT, "", "`FILE` (.jsonl, .html) for answers of --rl with their rewards", 0, 0, GROUP_OUTPUT},
    {"workers", SL_OPTION_INT, "0", "threads that run the event loops; 0: one per device", 0, 4096, GROUP_PARALLEL},
    {"jitter", SL_OPTION_FLOAT, "0", "delay every firing by up to so many microseconds at "
     "random, a test of timing", 0, 1e6, GROUP_OUTPUT},
    {"watchdog", SL_OPTION_FLOAT, "30", "seconds without any progress before showing who waits "
     "for whom; negative: never", -1, 1e9, GROUP_OUTPUT},
    {"check-finite", SL_OPTION_FLAG, "0", "look at all that is computed, and end the run with the first "
     "op, actor and microbatch whose output is not finite; a GPU then does one op at a time", 0, 0, GROUP_OUTPUT},
    {"certify", SL_OPTION_TEXT, "", "`FILE` for a line of each step: the bits of its loss, and a hash of each "
     "parameter and of its optimizer state", 0, 0, GROUP_OUTPUT},
    {"recheck", SL_OPTION_TEXT, "", "`FILE` of --certify that each step must equal; names the first tensor that "
     "differs", 0, 0, GROUP_OUTPUT},
    {"quiet", SL_OPTION_FLAG, "0", "no progress and no summary", 0, 0, GROUP_OUTPUT},
    {0}};
/* clang-format on */

/* Checks combinations of options that require or exclude each other. */
static sl_status check_together(const settings *s) {
  bool data = sl_device_computes(s->lower.devices.kind);
  static const char *const need_data[] = {"init", "save", "checkpoint", "adapter", "save-adapter"};
  for (size_t i = 0; i < SLI_COUNT(need_data) && !data; i++)
    if (settings_text(s, need_data[i]))
      return sl_fail(SL_E_USAGE, "--%s: %s devices hold no values", need_data[i],
                     s->lower.devices.kind);
  if (settings_text(s, "init-new") && !settings_text(s, "init"))
    return sl_fail(SL_E_USAGE, "--init-new: beside which weights? --init says");
  if (sl_arg_flag(s->run, "upcycle") && !settings_text(s, "init"))
    return sl_fail(SL_E_USAGE, "--upcycle: of which dense model? --init says");
  static const char *const need_folder[] = {"every", "keep", "resume", "resume-with"};
  for (size_t i = 0; i < SLI_COUNT(need_folder); i++)
    if (sl_arg_given(s->run, need_folder[i], 0) && !*sl_arg_text(s->run, "checkpoint"))
      return sl_fail(SL_E_USAGE, "--%s: of which checkpoints? --checkpoint DIR says",
                     need_folder[i]);
  if (sl_arg_flag(s->run, "check-finite") && !data)
    return sl_fail(SL_E_USAGE, "--check-finite: %s devices hold no values", s->lower.devices.kind);
  static const char *const need_eval[] = {"patience", "best", "eval-rows"};
  for (size_t i = 0; i < SLI_COUNT(need_eval); i++)
    if (sl_arg_given(s->run, need_eval[i], 0) && !settings_evaluate(s))
      return sl_fail(SL_E_USAGE,
                     "--%s: of what? --eval FILE says, or --eval-every N for what a model "
                     "holds out itself",
                     need_eval[i]);
  if (settings_evaluate(s) && !data)
    return sl_fail(SL_E_USAGE, "--eval: not with devices that hold no values");
  bool skips = sl_arg_float(s->run, "skip") > 0;
  if (skips && settings_text(s, "checkpoint"))
    return sl_fail(SL_E_USAGE,
                   "--skip looks for paths each time anew, --checkpoint is of a run with the same "
                   "ones: --save-paths FILE first, then --paths FILE");
  if (!skips && settings_text(s, "save-paths"))
    return sl_fail(SL_E_USAGE, "--save-paths: which paths? --skip looks for some");
  if (settings_text(s, "save-adapter") && !s->training.nlora)
    return sl_fail(SL_E_USAGE, "--save-adapter: which adapters? --lora or --adapter says");
  if (!data && settings_text(s, "logprobs"))
    return sl_fail(SL_E_USAGE, "--logprobs: %s devices hold no values", s->lower.devices.kind);
  if (!data && sl_arg_int(s->run, "generate"))
    return sl_fail(SL_E_USAGE, "--generate: %s devices hold no values", s->lower.devices.kind);
  sl_status status = certify_check(s);
  if (!status) status = rl_check(s);
  return status ? status : chat_check(s);
}

/* Converts --epochs to steps, rounding up, so the last step may begin another epoch. */
static sl_status count_steps(const settings *s, double epochs, int64_t *out) {
  const sl_option *all = s->model->options;
  int64_t dropped, pairs = objective_pairs(s, &dropped);
  if (pairs && sl_options_find(all, "batch")) {
    *out = (int64_t)ceil(2 * epochs * (double)pairs / (double)sl_arg_int(s->model_args, "batch"));
    return SL_OK;
  }
  if (!sl_options_find(all, "data") || !sl_options_find(all, "context") ||
      !sl_options_find(all, "batch") || !sl_options_find(all, "vocab"))
    return sl_fail(
        SL_E_USAGE,
        "--epochs: %s has no --data, --context, --batch and --vocab to count them by; --steps says "
        "how long to learn",
        s->model->name);
  if (!*sl_arg_text(s->model_args, "data"))
    return sl_fail(SL_E_USAGE, "--epochs: of which --data?");
  sl_graph *g;
  int64_t context, batch;
  sl_status status = plan_data(s, &g);
  const sli_tokens *tokens = status ? NULL : sli_graph_tokens(g, &context, &batch);
  if (tokens) *out = (int64_t)ceil(epochs * (double)sli_tokens_sequences(tokens) / (double)batch);
  sl_graph_destroy(g);
  return status;
}

/* Sets --steps, for everything that reads it later. */
static sl_status read_epochs(settings *s) {
  double epochs = sl_arg_float(s->run, "epochs");
  int64_t steps = 0;
  sl_status status = epochs > 0 && s->model ? count_steps(s, epochs, &steps) : SL_OK;
  if (status || !steps) return status;
  if (sl_arg_given(s->run, "steps", 0) && sl_arg_int(s->run, "steps") != steps)
    return sl_fail(SL_E_USAGE, "--steps %lld contradicts --epochs %g, which are %lld",
                   (long long)sl_arg_int(s->run, "steps"), epochs, (long long)steps);
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)steps);
  return sl_args_set(s->run, "steps", text);
}

static sl_status read_chats(settings *s) {
  static const char *const what[] = {"answers", "all", NULL};
  static const char *const how[] = {"cut", "drop", "refuse", NULL};
  s->data.shuffle = (uint64_t)sl_arg_int(s->run, "shuffle");
  s->data.chat_template = settings_text(s, "chat-template");
  s->data.learn = sl_arg_text(s->run, "learn");
  s->data.long_chats = sl_arg_text(s->run, "long-chats");
  sl_status status = options_check_word("learn", s->data.learn, what);
  return status ? status : options_check_word("long-chats", s->data.long_chats, how);
}

/* Opens the file whose storage formats are kept by frozen weights. */
static sl_status read_frozen(settings *s) {
  static const char *const hows[] = {"fp32", "stored", NULL};
  const char *how = sl_arg_text(s->run, "frozen"), *init = settings_text(s, "init");
  SLI_TRY(options_check_word("frozen", how, hows));
  if (strcmp(how, "stored")) return SL_OK;
  if (!init) return sl_fail(SL_E_USAGE, "--frozen stored: as in which file? --init says");
  SLI_TRY(sli_shards_open(init, &s->frozen));
  s->training.storage = pretrained_storage;
  s->training.storage_ctx = s->frozen;
  return SL_OK;
}

/* Reads the settings. A run without steps does not train, so its graph needs no training data. A
 * checkpoint, however, belongs to a training graph, and so does everything it is compared with. */
static sl_status read_settings(settings *s) {
  sl_status known = s->model ? pretrained_read(s) : SL_OK;
  s->microbatches = (int)sl_arg_int(s->run, "microbatches");
  s->pieces = (int)sl_arg_int(s->run, "pieces");
  if (!known) known = read_chats(s);
  if (!known) known = objective_read(s);
  if (!known) known = read_epochs(s);
  if (known) return known;
  s->training.steps = SLI_MAX(sl_arg_int(s->run, "steps"), 1);
  s->lower.schedule.name = sl_arg_text(s->run, "schedule");
  if (!sl_arg_int(s->run, "steps") && !settings_text(s, "checkpoint"))
    s->use = sl_arg_int(s->run, "generate") ? USE_INFERENCE : USE_VALUES;
  sl_status status = options_check_word("schedule", s->lower.schedule.name, sl_schedule_names());
  if (!status) status = settings_read_budget(s);
  if (!status) status = read_frozen(s);
  if (status) return status;
  s->lower.schedule.chunks = (int)sl_arg_int(s->run, "chunks");
  bool searched = !strcmp(s->lower.schedule.name, "auto"); /* and chunks */
  if (searched) s->lower.schedule.activations = sl_arg_float(s->run, "activations");
  if (!s->lower.schedule.chunks && !searched)
    s->lower.schedule.chunks = sl_schedule_chunks(s->lower.schedule.name);
  status = check_together(s);
  return status ? status : launch_check(s);
}

static const first_option first[] = {
    {"devices", "`SPEC`: cpu, cpu:4, cuda, or timed:8 (a simulation)"},
    {"stages", "pipeline stages; one per device if not given"},
    {"data-parallel", "devices of each stage that share the batch"},
    {"microbatches", "parts of each step's batch"},
    {"schedule", "`NAME`: 1f1b, gpipe, zb-h1, ...; see --help schedule"},
    {"memory", "budget of each device, a `SIZE` such as 8G"},
    {"steps", "optimizer steps; 100 if not given"},
    {"init", "`FILE` or Hugging Face folder with initial weights"},
    {"checkpoint", "`DIR` to save to; --resume goes on from there"},
    {"dry-run", "show the plan and its memory, and stop"},
    {0}};

const tool actorrun_tool = {
    .name = "actorrun",
    .usage =
        "       actorrun [options] DIR | FILE.gguf\n"
        "       actorrun status [--json] [PID]\n"
        "       actorrun ctl PID quota [NAME[@STAGE]=N]\n"
        "       actorrun ctl PID trace [FILE | off]\n",
    .purpose = "Trains a model over a pipeline of devices. DIR is a Hugging Face folder.",
    .options = options,
    .first = first,
    .commands = "status ctl",
    .read = read_settings,
    .takes_weights = true,
    .without_model = "show-placement"};
