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
#include "text/tokens/tokens.h"
#include "tools/actorrun/certify.h"
#include "tools/actorrun/chat.h"
#include "tools/actorrun/clips.h"
#include "tools/actorrun/commands.h"
#include "tools/actorrun/objective.h"
#include "tools/actorrun/rl/rl.h"

/* clang-format off */
static const tool_option options[] = {
    {"auto", SL_OPTION_FLAG, "0", "choose those of --stages, --tensor, --data-parallel, --sequence, "
     "--microbatches, --pieces, --chunks, --schedule, --recompute and --shard that are not given, for the fastest "
     "step within --memory on the --machine (actortune plan shows more)", 0, 0, GROUP_PARALLEL},
    {"activations", SL_OPTION_FLOAT, "0", "with --schedule auto: maximum number of microbatches "
     "whose activations a device may hold; 0: no limit", 0, 1e9, GROUP_MEMORY},
    {"steps", SL_OPTION_INT, "100", "optimizer steps", 0, 1e15, GROUP_TRAINING},
    {"epochs", SL_OPTION_FLOAT, "0", "train for `N` epochs of --data instead of --steps; 0: use "
     "--steps", 0,
     1e6, GROUP_TRAINING},
    {"shuffle", SL_OPTION_INT, "0", "`SEED` for shuffling the sequences of the data, anew each "
     "epoch; 0: the order of the files", 0, 9e15, GROUP_DATA},
    {"eval", SL_OPTION_LIST, "", "`FILE` or folder, as in --data, to evaluate the loss on during "
     "training; may be repeated", 0, 0, GROUP_TRAINING},
    {"eval-every", SL_OPTION_INT, "100", "steps between evaluations on all held-out rows; without "
     "--eval, on the rows that the model's data holds out", 1, 1e6, GROUP_TRAINING},
    {"eval-rows", SL_OPTION_INT, "0", "number of held-out rows to evaluate, from the first on; 0: all", 0, 1e15, GROUP_TRAINING},
    {"patience", SL_OPTION_INT, "0", "evaluations without a better value of --best after which the "
     "run ends; 0: no limit", 0, 1e9, GROUP_TRAINING},
    {"best", SL_OPTION_TEXT, "loss", "`NAME` of the loss or metric that ranks evaluations: smaller "
     "is better for the loss, larger for a metric; NAME:min or NAME:max overrides that",
     0, 0, GROUP_TRAINING},
    {"init", SL_OPTION_TEXT, "", "`FILE` (safetensors or GGUF) with initial weights, or a Hugging "
     "Face folder; a folder or GGUF file also sets the model's options and the tokenizer", 0, 0, GROUP_TRAINING},
    {"init-new", SL_OPTION_TEXT, "", "`PATTERN,...` of parameters that may be missing from --init: "
     "they are initialized as in a new model", 0, 0, GROUP_TRAINING},
    {"upcycle", SL_OPTION_FLAG, "0", "--init is a dense model: each expert starts as a copy of its "
     "feed-forward layer, scaled so that the output stays the same", 0, 0, GROUP_TRAINING},
    {"preferences", SL_OPTION_LIST, "", "`FILE` (JSON lines) of prompts, each with a chosen and a "
     "rejected answer, to learn to prefer the chosen one; replaces --data; may be repeated", 0, 0, GROUP_TRAINING},
    {"dpo", SL_OPTION_TEXT, "beta=0.1", "settings of --preferences: `KEY=VALUE,...` of beta, "
     "smoothing, and long=drop, which skips pairs longer than the context", 0, 0, GROUP_TRAINING},
    {"teacher", SL_OPTION_TEXT, "", "`DIR` (Hugging Face) or GGUF file of the teacher model for "
     "distillation", 0, 0, GROUP_TRAINING},
    {"distill", SL_OPTION_TEXT, "kl", "`HOW` to learn from the --teacher: kl:KEY=VALUE,... of top "
     "(its most likely tokens), temperature, and data (weight of the loss on the data)", 0, 0, GROUP_TRAINING},
    {"save", SL_OPTION_TEXT, "", "`FILE` (safetensors, or FILE.gguf:TYPE, with TYPE f32, f16, bf16, "
     "q8_0, q4_0 or q4_k) for the final weights, or a folder (existing, or written with a trailing /) for a "
     "Hugging Face model", 0, 0, GROUP_TRAINING},
    {"planes", SL_OPTION_TEXT, "", "with --save FILE: writes experts in nested bit planes of one bit, from `A..B` "
     "bits; a server reads them with --experts planes:A..B. A..B,routed trains bit routers, and nothing else, with "
     "the keys alpha (weight of the mean bits) and capacity (shares of rows): 2..4,routed:alpha=0.01,capacity=.3/.4/.3",
     0, 0, GROUP_TRAINING},
    {"save-paths", SL_OPTION_TEXT, "", "`FILE` for the paths that --skip found, for use with --paths", 0, 0, GROUP_SCHEDULE},
    {"tokenizer", SL_OPTION_TEXT, "", "`FILE` (a Hugging Face tokenizer.json, or GGUF) with the "
     "tokenizer for text data and --prompt", 0, 0, GROUP_DATA},
    {"frozen", SL_OPTION_TEXT, "fp32", "`HOW` frozen weights are held in memory: fp32, or stored "
     "(the quantized or 16-bit format of --init)", 0, 0, GROUP_TRAINING},
    {"save-adapter", SL_OPTION_TEXT, "", "`DIR` for the final --lora adapters in PEFT format; --save "
     "merges them into the weights", 0, 0, GROUP_TRAINING},
    {"checkpoint", SL_OPTION_TEXT, "", "`DIR` for checkpoints, written during training, at its end "
     "and on Ctrl-C", 0, 0, GROUP_TRAINING},
    {"every", SL_OPTION_INT, "100", "steps between checkpoints", 1, 1e6, GROUP_TRAINING},
    {"keep", SL_OPTION_INT, "2", "number of checkpoints to keep, the newest ones", 1, 1e6, GROUP_TRAINING},
    {"resume", SL_OPTION_FLAG, "0", "resume from the newest complete checkpoint in DIR, if there is "
     "one, up to --steps in total; the number of stages may differ", 0, 0, GROUP_TRAINING},
    {"resume-with", SL_OPTION_TEXT, "", "`NAMES` of what may have changed at --resume, such as "
     "lr,data: options, graph (the model's ops), code (of its own ops), data", 0, 0, GROUP_TRAINING},
    LAUNCH_OPTIONS,
    {"log", SL_OPTION_LIST, "", "`FILE` (.csv, .jsonl), or a folder for TensorBoard, for the loss of "
     "each step during the run; may be repeated", 0, 0, GROUP_OUTPUT},
    {"logprobs", SL_OPTION_TEXT, "", "`FILE` (.jsonl) for the log probabilities of the targets, one "
     "line per row of a step's batch", 0, 0, GROUP_OUTPUT},
    {"report", SL_OPTION_TEXT, "", "`FILE` (JSON) for a report of the run", 0, 0, GROUP_OUTPUT},
    {"trace", SL_OPTION_TEXT, "", "`FILE` for a trace of what ran when and what it waited for (see "
     "actortrace)",
     0, 0, GROUP_OUTPUT},
    {"plan", SL_OPTION_TEXT, "", "`FILE` for the plan as text", 0, 0, GROUP_OUTPUT},
    {"dry-run", SL_OPTION_FLAG, "0", "show the plan, its memory and the proof that it can finish, "
     "and exit before anything is allocated", 0, 0, GROUP_OUTPUT},
    {"show-sbp", SL_OPTION_FLAG, "0", "show how the devices of a stage share each op, its cost and "
     "the second choice, and exit", 0, 0, GROUP_OUTPUT},
    {"print-after", SL_OPTION_TEXT, "", "print the graph after this `PASS` (docs/passes.md), and exit", 0, 0, GROUP_OUTPUT},
    {"families", SL_OPTION_FLAG, "0", "list the model families whose folders can be read, and exit", 0, 0, GROUP_DATA},
    {"show-placement", SL_OPTION_FLAG, "0", "show which cores the devices get, and exit", 0, 0, GROUP_OUTPUT},
    {"generate", SL_OPTION_INT, "0", "tokens to generate with the model after training", 0, 1e9, GROUP_DATA},
    {"prompt", SL_OPTION_TEXT, "", "`TEXT` to continue, a newline if not given; token numbers if the "
     "vocabulary is not bytes", 0, 0, GROUP_DATA},
    {"chat", SL_OPTION_LIST, "", "`TEXT` of a user message, answered in up to --generate tokens; "
     "given several times, the messages of user and model in turn", 0, 0, GROUP_DATA},
    {"chat-system", SL_OPTION_TEXT, "", "`TEXT` of a system message before --chat", 0, 0, GROUP_DATA},
    {"chat-template", SL_OPTION_TEXT, "", "`NAME` or file of the chat template for --chat and chats "
     "of --data, instead of the model's own", 0, 0, GROUP_DATA},
    {"learn", SL_OPTION_TEXT, "answers", "`WHAT` to learn from chats of --data: answers, or all", 0, 0, GROUP_DATA},
    {"long-chats", SL_OPTION_TEXT, "cut", "`HOW` to treat chats of --data longer than --context: "
     "cut, drop or refuse", 0, 0, GROUP_DATA},
    {"show-data", SL_OPTION_FLAG, "0", "print the first three chats of --data with the learned parts "
     "marked, and exit", 0, 0, GROUP_OUTPUT},
    {"clips", SL_OPTION_TEXT, "", "`CLASS[xFRAMES][@SEED],...` to generate with a model of frames, such as dit, "
     "and no training; class none: any", 0, 0, GROUP_DATA},
    {"denoise", SL_OPTION_INT, "8", "denoising steps of a block of --clips", 1, 4096, GROUP_DATA},
    {"guidance", SL_OPTION_FLOAT, "1", "scale of the class's guidance of --clips; 1: none", 0, 100, GROUP_DATA},
    {"clip-order", SL_OPTION_TEXT, "queue", "`ORDER` of the blocks of --clips: queue (as many blocks at once as "
     "--denoise), or stream (one block after another)", 0, 0, GROUP_DATA},
    {"first-frames", SL_OPTION_INT, "0", "frames of the first block of each of --clips; 0: a whole block", 0, 1e6, GROUP_DATA},
    {"frame-rate", SL_OPTION_FLOAT, "0", "frames per second at which --clips are shown, for their deadlines and --video; "
     "0: no deadlines", 0, 1e6, GROUP_DATA},
    {"frame-wait", SL_OPTION_FLOAT, "0", "seconds from the start until the first frame of --clips is due", 0, 1e9, GROUP_DATA},
    {"video", SL_OPTION_TEXT, "", "`FILE` (.y4m, or .npy with numbers) for the frames of --clips", 0, 0, GROUP_OUTPUT},
    {"temperature", SL_OPTION_FLOAT, "0.8", "sampling temperature; 0: always the most likely token", 0, 1000, GROUP_DATA},
    {"rl", SL_OPTION_TEXT, "", "`METHOD`[:KEY=N,...]: learn from the model's own answers to "
     "--prompts, --batch of them per step: grpo, by --reward, or distill, from the probabilities of --teacher; "
     "keys: group (answers per prompt), top-p, ticks, updates, and for grpo kl, clip, clip-high, dual-clip", 0, 0, GROUP_TRAINING},
    {"rollout-ahead", SL_OPTION_INT, "0", "generate answers of --rl during training, with parameters "
     "that are this many updates old", 0, 8, GROUP_TRAINING},
    {"prompts", SL_OPTION_TEXT, "", "`FILE` with one prompt per line: .jsonl with prompt or "
     "messages, answer and data; or text", 0, 0, GROUP_DATA},
    {"reward", SL_OPTION_TEXT, "", "`PROGRAM` that reads one line of JSON per answer and writes one "
     "number for each; or exact (the answer in the prompt's line), regex:PATTERN or length:N", 0, 0, GROUP_TRAINING},
    {"reward-seconds", SL_OPTION_FLOAT, "60", "time limit of the reward program per answer, in "
     "seconds", 0.001, 1e6, GROUP_TRAINING},
    {"reward-failed", SL_OPTION_TEXT, "end", "`WHAT` to do when the reward program fails: end (the "
     "run), or drop (the answer)", 0, 0, GROUP_TRAINING},
    {"max-tokens", SL_OPTION_INT, "256", "maximum number of tokens in an answer of --rl", 1, 1e9, GROUP_DATA},
    {"stop", SL_OPTION_LIST, "", "`TEXT` of a token that ends an answer of --rl, besides the model's "
     "own; \\n: newline", 0, 0, GROUP_DATA},
    {"answers", SL_OPTION_TEXT, "", "`FILE` (.jsonl, .html) for the answers of --rl with their "
     "rewards", 0, 0, GROUP_OUTPUT},
    {"workers", SL_OPTION_INT, "0", "threads that run the event loops; 0: one per device", 0, 4096, GROUP_PARALLEL},
    {"jitter", SL_OPTION_FLOAT, "0", "delay each firing by a random time of up to this many "
     "microseconds, to test timing", 0, 1e6, GROUP_OUTPUT},
    {"watchdog", SL_OPTION_FLOAT, "30", "seconds without progress before reporting who waits for "
     "whom; negative: never", -1, 1e9, GROUP_OUTPUT},
    {"check-finite", SL_OPTION_FLAG, "0", "check every computed value, and end the run with the "
     "first op, actor and microbatch whose output is not finite; a GPU then runs one op at a time", 0, 0, GROUP_OUTPUT},
    {"certify", SL_OPTION_TEXT, "", "`FILE` for one line per step: the bits of its loss, and hashes "
     "of each parameter and its optimizer state", 0, 0, GROUP_OUTPUT},
    {"recheck", SL_OPTION_TEXT, "", "`FILE` of --certify that each step must match; names the first "
     "tensor that differs", 0, 0, GROUP_OUTPUT},
    {"quiet", SL_OPTION_FLAG, "0", "print no progress and no summary", 0, 0, GROUP_OUTPUT},
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
    return sl_fail(SL_E_USAGE, "--init-new: needs --init with the other weights");
  if (sl_arg_flag(s->run, "upcycle") && !settings_text(s, "init"))
    return sl_fail(SL_E_USAGE, "--upcycle: needs --init with a dense model");
  static const char *const need_folder[] = {"every", "keep", "resume", "resume-with"};
  for (size_t i = 0; i < SLI_COUNT(need_folder); i++)
    if (sl_arg_given(s->run, need_folder[i], 0) && !*sl_arg_text(s->run, "checkpoint"))
      return sl_fail(SL_E_USAGE, "--%s: needs --checkpoint DIR", need_folder[i]);
  if (sl_arg_flag(s->run, "check-finite") && !data)
    return sl_fail(SL_E_USAGE, "--check-finite: %s devices hold no values", s->lower.devices.kind);
  static const char *const need_eval[] = {"patience", "best", "eval-rows"};
  for (size_t i = 0; i < SLI_COUNT(need_eval); i++)
    if (sl_arg_given(s->run, need_eval[i], 0) && !settings_evaluate(s))
      return sl_fail(
          SL_E_USAGE,
          "--%s: needs --eval FILE, or --eval-every N for rows that the model's data holds out",
          need_eval[i]);
  if (settings_evaluate(s) && !data)
    return sl_fail(SL_E_USAGE, "--eval: cannot be used with devices that hold no values");
  bool skips = sl_arg_float(s->run, "skip") > 0;
  if (skips && settings_text(s, "checkpoint"))
    return sl_fail(
        SL_E_USAGE,
        "--skip searches for new paths in each run, but a --checkpoint needs the same ones: use --save-paths FILE first, then --paths FILE");
  if (!skips && settings_text(s, "save-paths"))
    return sl_fail(SL_E_USAGE, "--save-paths: needs --skip, which searches for paths");
  if (settings_text(s, "save-adapter") && !s->training.nlora)
    return sl_fail(SL_E_USAGE, "--save-adapter: needs --lora or --adapter");
  if (!data && settings_text(s, "logprobs"))
    return sl_fail(SL_E_USAGE, "--logprobs: %s devices hold no values", s->lower.devices.kind);
  if (!data && sl_arg_int(s->run, "generate"))
    return sl_fail(SL_E_USAGE, "--generate: %s devices hold no values", s->lower.devices.kind);
  sl_status status = clips_check(s);
  if (!status) status = certify_check(s);
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
        "--epochs: %s lacks --data, --context, --batch or --vocab, which count epochs; use --steps",
        s->model->name);
  if (!*sl_arg_text(s->model_args, "data")) return sl_fail(SL_E_USAGE, "--epochs: needs --data");
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
  if (!init) return sl_fail(SL_E_USAGE, "--frozen stored: needs --init with the stored weights");
  SLI_TRY(sli_shards_open(init, &s->frozen));
  s->training.storage = pretrained_storage;
  s->training.storage_ctx = s->frozen;
  return SL_OK;
}

/* Reads the settings. A run without steps does not train, so its graph needs no training data. A
 * checkpoint, however, belongs to a training graph, and so does everything it is compared with. */
static sl_status read_settings(settings *s) {
  sl_status known = s->model ? settings_read_pretrained(s) : SL_OK;
  s->microbatches = (int)sl_arg_int(s->run, "microbatches");
  s->pieces = (int)sl_arg_int(s->run, "pieces");
  if (!known) known = read_chats(s);
  if (!known) known = objective_read(s);
  if (!known) known = read_epochs(s);
  if (known) return known;
  s->training.steps = SLI_MAX(sl_arg_int(s->run, "steps"), 1);
  s->lower.schedule.name = sl_arg_text(s->run, "schedule");
  if (settings_text(s, "clips")) s->use = USE_INFERENCE;
  else if (!sl_arg_int(s->run, "steps") && !settings_text(s, "checkpoint"))
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
    {"microbatches", "microbatches that each step's batch is cut into"},
    {"schedule", "`NAME`: 1f1b, gpipe, zb-h1, ...; see --help schedule"},
    {"memory", "memory budget of each device, a `SIZE` such as 8G"},
    {"steps", "optimizer steps; 100 if not given"},
    {"init", "`FILE` or Hugging Face folder with initial weights"},
    {"checkpoint", "`DIR` for checkpoints; --resume continues from there"},
    {"dry-run", "show the plan and its memory, and exit"},
    {0}};

const tool actorrun_tool = {
    .name = "actorrun",
    .usage = "       actorrun [options] DIR | FILE.gguf | FILE.pt2\n" COMMANDS_USAGE,
    .purpose = "Trains a model over a pipeline of devices. DIR is a Hugging Face folder.",
    .options = options,
    .first = first,
    .commands = COMMANDS_NAMES,
    .read = read_settings,
    .takes_weights = true,
    .without_model = "show-placement"};
