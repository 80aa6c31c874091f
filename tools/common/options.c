/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/lower.h>

#include "base/base.h"

static const tool_option plan_options[] = {
    {"devices", SL_OPTION_TEXT, "cpu", "`SPEC`: cpu[:N[xT]] (N devices of T cores each; all cores "
     "are shared out if T is left out), cuda[:N,N,...] (GPUs by number, all if none is named; "
     "more stages than that take turns), timed:N (modelled durations, no data) or null:N (no "
     "work at all)", 0, 0, GROUP_PARALLEL},
    {"nccl", SL_OPTION_TEXT, "auto", "between GPUs of several processes, `WHEN`: auto (where the "
     "GPUs have different numbers and the library is found), on, or off (over the host)", 0, 0, GROUP_PARALLEL},
    {"stages", SL_OPTION_INT, "0", "pipeline devices the model is cut over; 0: one per device, "
     "or 1", 0, 1 << 16, GROUP_PARALLEL},
    {"chunks", SL_OPTION_INT, "0", "chunks of the model each device holds; 0: as many as the "
     "schedule is for, or 1", 0, 1 << 16, GROUP_SCHEDULE},
    {"placement", SL_OPTION_TEXT, "", "`ORDER` of the chunks: line, loop or vee; the schedule's "
     "own if not given", 0, 0, GROUP_PARALLEL},
    {"data-parallel", SL_OPTION_INT, "1", "devices (or groups of --tensor devices) of each stage "
     "that share out the rows of a microbatch", 1, 1 << 16, GROUP_PARALLEL},
    {"sequence", SL_OPTION_INT, "1", "devices (or groups of --tensor devices) of each stage that "
     "share out the positions of every sequence", 1, 1 << 16, GROUP_PARALLEL},
    {"sequence-attention", SL_OPTION_TEXT, "", "`HOW` the --sequence devices attend to each other's "
     "positions: heads (each has some of the heads for all positions), ring (keys and values go "
     "around), auto", 0, 0, GROUP_PARALLEL},
    {"sequence-layout", SL_OPTION_TEXT, "", "`WHICH` positions each has: contiguous, or zigzag (two runs, "
     "so that with ring all have as much to do); as is best if not given", 0, 0, GROUP_PARALLEL},
    {"expert-parallel", SL_OPTION_INT, "1", "of the --data-parallel devices so many share out the experts: rows "
     "go where their experts are, and come back; if it does not divide these, of these times --tensor", 1, 1 << 16, GROUP_PARALLEL},
    {"expert-tensor", SL_OPTION_INT, "0", "on how many devices an expert lies: 1: experts have a grid of their own "
     "of all --data-parallel times --tensor devices; as many as --tensor: they are shared out as tensors are; 0: as "
     "--expert-parallel says", 0, 1 << 16, GROUP_PARALLEL},
    {"routing", SL_OPTION_TEXT, "", "with --expert-parallel on modelled devices, `HOW` many rows come to each "
     "expert: balanced (as many; so does learned, which only real devices know), zipf:S (a share of 1/(e+1)^S to "
     "expert e) or a FILE with a number for each, all rows of a microbatch together, on a line for each layer or for all", 0, 0, GROUP_PARALLEL},
    {"expert-rows", SL_OPTION_FLOAT, "0", "times an even share of rows that there is room for on a device of "
     "experts, from 1 on; 0: for all that could come", 0, 1e9, GROUP_PARALLEL},
    {"tensor", SL_OPTION_INT, "1", "devices of each stage that share out the tensors: which way is "
     "searched for (--show-sbp shows it), or given by --sbp", 1, 1 << 16, GROUP_PARALLEL},
    {"layout", SL_OPTION_TEXT, "", "`AXIS,...`: which axes lead from a device to its neighbour in a host, "
     "from the innermost on: tensor, sequence, expert, data, stage in any order; as listed here if not given",
     0, 0, GROUP_PARALLEL},
    {"assign", SL_OPTION_TEXT, "", "`LIST`: which device takes each place of the layout, such as 0,2,1,3 or "
     "4-7,0-3; the device of its number if not given", 0, 0, GROUP_PARALLEL},
    {"vocab-parallel", SL_OPTION_FLAG, "0", "each stage has a part of the vocabulary's tables, instead "
     "of the first and the last alone", 0, 0, GROUP_PARALLEL},
    {"vocab-barriers", SL_OPTION_INT, "2", "how often a microbatch waits for all stages with --vocab-parallel: "
     "with 1 each stage keeps one microbatch less, and its products for the way back are made on the way there", 1, 2, GROUP_PARALLEL},
    {"parallel", SL_OPTION_INT, "1", "devices of each stage that share the work in whatever way is "
     "cheapest, rows of data or tensors: instead of --data-parallel and --tensor", 1, 1 << 16, GROUP_PARALLEL},
    {"shard", SL_OPTION_TEXT, "nothing", "what the --data-parallel and --sequence devices share out "
     "instead of each having all, `WHAT`: nothing, optimizer, gradients (and optimizer), or parameters (and both)",
     0, 0, GROUP_MEMORY},
    {"sbp", SL_OPTION_TEXT, "", "`NAME=DATA,TENSOR`: how a parameter, or what an op makes, lies along "
     "both axes of a stage's devices: S0, S1, ... (split along that dim), B (broadcast), P (partial "
     "sums), - (as is best); may be repeated", 0, 0, GROUP_PARALLEL},
    {"grain", SL_OPTION_TEXT, "", "`SIZE` of an actor: pass (a stage's whole pass) or layer; layer "
     "with --data-parallel or --sequence, so that gradients are exchanged while others are made, else pass", 0, 0, GROUP_SCHEDULE},
    {"exchange", SL_OPTION_TEXT, "", "where what the devices of a stage exchange within a pass goes, "
     "`WHERE`: beside (passes go on with other microbatches meanwhile) or inline (a pass that has begun has its "
     "device until it is done); beside if not given", 0, 0, GROUP_PARALLEL},
    {"recompute", SL_OPTION_TEXT, "none", "`WHAT[@BLOCK]`: activations that are computed again on the "
     "way back instead of kept, of all blocks or those of that name: none, selective (by ops that cost "
     "next to nothing), full (all of a block but what it reads of others) or whole (and what the devices of a "
     "stage exchange within it); may be repeated", 0, 0, GROUP_MEMORY},
    {"optimizer", SL_OPTION_TEXT, "", "`NAME[:KEY=N,...]`: adamw, adam, sgd or lion instead of the "
     "model's, with lr, min-lr, beta1, beta2, eps, decay, clip, momentum, nesterov", 0, 0, GROUP_TRAINING},
    {"lr-schedule", SL_OPTION_TEXT, "", "`NAME[:KEY=N,...]` of the learning rate: constant, linear, "
     "cosine or wsd, with warmup, decay-begin, decay-steps, min-lr; the model's if not given", 0, 0, GROUP_TRAINING},
    {"group", SL_OPTION_TEXT, "", "`PATTERN:lr=N,decay=N`: the peak rate and the decay of parameters "
     "whose names have such components, as h.*.ln*; may be repeated", 0, 0, GROUP_TRAINING},
    {"freeze", SL_OPTION_TEXT, "", "`PATTERN` of parameters that are not trained; may be repeated", 0,
     0, GROUP_TRAINING},
    {"lora", SL_OPTION_TEXT, "", "`PATTERN=RANK[,alpha=N]`: adapters beside the linear maps of such "
     "names, trained instead of everything else; alpha is RANK if not given; may be repeated", 0, 0, GROUP_TRAINING},
    {"adapter", SL_OPTION_TEXT, "", "`DIR` with adapters as PEFT saves them, to start from", 0, 0, GROUP_TRAINING},
    {"microbatches", SL_OPTION_INT, "1", "parts a step's batch is cut into", 1, 1 << 20, GROUP_SCHEDULE},
    {"pieces", SL_OPTION_INT, "1", "parts the sequences of a microbatch are cut into, along their "
     "positions", 1, 1 << 20, GROUP_SCHEDULE},
    {"cut", SL_OPTION_TEXT, "even", "lengths of the pieces, `HOW`: even, or balanced (each takes "
     "the same time forward)", 0, 0, GROUP_SCHEDULE},
    {"piece-order", SL_OPTION_TEXT, "tokens", "which pieces come first, `HOW`: tokens (a piece goes "
     "through all blocks of a stage before the next one) or layers (all pieces of a microbatch go "
     "through a block before the next block)", 0, 0, GROUP_SCHEDULE},
    {"schedule", SL_OPTION_TEXT, "1f1b", "`NAME` of the quotas and class order to start from, "
     "listed below", 0, 0, GROUP_SCHEDULE},
    {"backward", SL_OPTION_TEXT, "", "fused or split: input and weight gradients as one pass or "
     "two; the `WAY` of the schedule if not given", 0, 0, GROUP_SCHEDULE},
    {"order", SL_OPTION_TEXT, "", "`FILE` with the passes of each device in a fixed order "
     "(lines like 0: F0 F0 B0 B0), or derive: the order that emerges without latency", 0, 0, GROUP_SCHEDULE},
    {"paths", SL_OPTION_TEXT, "", "`FILE` with the stages that each microbatch visits, in its order "
     "(lines like 3: 0 2 5 7): the first and the last always, those between them equally often", 0, 0, GROUP_SCHEDULE},
    {"skip", SL_OPTION_FLOAT, "0", "share of all visits that is to be left out: looks for --paths with "
     "which a step is short on the virtual clock", 0, 1, GROUP_SCHEDULE},
    {"swap", SL_OPTION_FLAG, "0", "with --skip: stages may be visited in another order", 0, 0, GROUP_SCHEDULE},
    {"look-ahead", SL_OPTION_FLOAT, "0", "seconds a modelled device idles for a better pass that "
     "is about to become ready", 0, 1e9, GROUP_SCHEDULE},
    {"quota", SL_OPTION_TEXT, "", "`NAME[@STAGE]=N`: N slots for registers of that name (act.b, "
     "act.w, act for both, pool, param, load), at one stage or at all; N,N,... for one stage after "
     "another, - for one to leave as it is; may be repeated", 0, 0, GROUP_MEMORY},
    {"home", SL_OPTION_TEXT, "", "`NAME[@BLOCK]=HOME`: where registers of that name (act.b, act.w, "
     "act for both, kv with --piece-order layers, state, weights), made by blocks of that name (h.31, "
     "h.*), live while nobody reads them, HOME: device, host (beside GPUs) or disk; may be repeated; or auto: what takes least time "
     "within --memory, --host-memory and --disk, of whatever is not said", 0, 0, GROUP_MEMORY},
    {"offload", SL_OPTION_TEXT, "", "`activations=SHARE`: with --pieces and --home act=..., the share of "
     "pieces, 0 to 1, whose activations go there; but for what blocks begin with and what attention "
     "makes, the others' are computed again", 0, 0, GROUP_MEMORY},
    {"update", SL_OPTION_TEXT, "", "`WHO` updates the parameters: device, host (beside GPUs), or "
     "every:K, every K-th block the device and the others the host; the device if not given", 0, 0, GROUP_MEMORY},
    {"host-memory", SL_OPTION_TEXT, "", "what each device may take of the memory of the host beside "
     "it, a `SIZE`", 0, 0, GROUP_MEMORY},
    {"disk", SL_OPTION_TEXT, "", "`DIR[:SIZE]` for what lives on disk, and how much of it each "
     "device may take; $TMPDIR, or /var/tmp, if not given", 0, 0, GROUP_MEMORY},
    {"memory", SL_OPTION_TEXT, "", "budget of each device, a `SIZE` such as 512M or 8G", 0, 0, GROUP_MEMORY},
    {"clock", SL_OPTION_TEXT, "real", "`KIND`: real or virtual (nothing is computed; modelled "
     "durations, as fast as can be)", 0, 0, GROUP_SCHEDULE},
    {"cost", SL_OPTION_TEXT, "", "seconds of one chunk's pass on timed devices, a `LIST` such as "
     "F=1,B=1,W=1,comm=0, or F=1:1:2,B=2 stage by stage, head.F=1:1:1 of what --vocab-parallel "
     "spreads of block head; of a device's whole share where "
     "--schedule auto looks for the number of chunks; estimated from the ops if not given", 0, 0, GROUP_SCHEDULE},
    {"machine", SL_OPTION_TEXT, "", "modelled hardware for timed devices: a `FILE`, or the name of "
     "a shipped one (a100-sxm-80gb, h100-sxm-80gb, h100-sxm-80gb-nvlink), or here: this machine, as actortune "
     "machine has measured it, a device for each core; here-whole: one device with all cores", 0, 0, GROUP_SCHEDULE},
    {"profile", SL_OPTION_TEXT, "", "`FILE`: durations of ops as an earlier run measured them (its "
     "--report), at the same microbatch size", 0, 0, GROUP_SCHEDULE},
    {"dtype", SL_OPTION_TEXT, "fp32", "`TYPE` of what matrix products multiply: fp32, or bf16 "
     "where the CPU has AMX or AVX512-BF16, and on GPUs, where activations are bf16 as well; "
     "weights and sums are fp32", 0, 0, GROUP_TRAINING},
    {"seed", SL_OPTION_INT, "1", "of initial values and sampling", 0, 9e15, GROUP_TRAINING},
    {"config", SL_OPTION_TEXT, "", "`FILE` (TOML) with options, by their names, and those of the model in its table [model], which has its name too; the "
     "command line goes before it", 0, 0, GROUP_OUTPUT},
    {"print-config", SL_OPTION_FLAG, "0", "print such a file, of all that is given, and stop", 0, 0, GROUP_OUTPUT},
    {"version", SL_OPTION_FLAG, "0", "show the version, and stop", 0, 0, GROUP_OUTPUT},
    {"help", SL_OPTION_FLAG, "0", "show this, or after MODEL its options", 0, 0, GROUP_OUTPUT},
    {0}};

static const tool_option *find_option(const tool_option *options, const char *name) {
  for (; options->name; options++)
    if (!strcmp(options->name, name)) return options;
  return NULL;
}

static sl_option plain(const tool_option *o) {
  return (sl_option){o->name, o->kind, o->value, o->help, o->min, o->max};
}

/* Puts the rest of the tool's options before the last two. */
sl_option *options_table(const tool_option *own) {
  size_t n = 0, count = 0;
  while (own[count].name) count++;
  sl_option *table = sli_calloc(SLI_COUNT(plan_options) + count, sizeof *table);
  for (const tool_option *o = plan_options; o->name; o++) {
    if (!strcmp(o->name, "version"))
      for (const tool_option *x = own; x->name; x++)
        if (!find_option(plan_options, x->name)) table[n++] = plain(x);
    const tool_option *other = find_option(own, o->name);
    table[n++] = plain(other ? other : o);
  }
  return table;
}

option_group options_group(const tool_option *own, const char *name) {
  const tool_option *o = find_option(own, name);
  if (!o) o = find_option(plan_options, name);
  SLI_CHECK(o, "there is no option --%s", name);
  return o->group;
}

static bool has_word(const char *const *words, const char *word) {
  while (*words && strcmp(*words, word)) words++;
  return *words;
}

sl_option *options_offered(const sl_option *table, const tool_option *own, const char *const *shared) {
  size_t n = 0, count = 0;
  while (table[count].name) count++;
  sl_option *offered = sli_calloc(count + 1, sizeof *offered);
  for (const sl_option *o = table; o->name; o++)
    if (!shared || has_word(shared, o->name) || find_option(own, o->name)) offered[n++] = *o;
  return offered;
}

/* ---- words ------------------------------------------------------------------------------ */

sl_status options_check_word(const char *option, const char *text, const char *const *words) {
  sl_option names[32] = {{0}};
  char list[512] = "";
  size_t at = 0, n = 0;
  for (; *words; words++) {
    if (!strcmp(text, *words)) return SL_OK;
    if (**words && n + 1 < SLI_COUNT(names)) names[n++].name = *words;
    if (**words && at < sizeof list)
      at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", *words);
  }
  const char *near = sl_options_nearest(names, text);
  return sl_fail(SL_E_USAGE, "--%s %s: it is one of %s%s%s%s", option, text, list, near ? "; did you mean " : "",
                 near ? near : "", near ? "?" : "");
}

static const struct {
  const char *option, *words[5];
  bool blocks; /* WORD@BLOCK says it of some */
} checks[] = {{.option = "placement", .words = {"", "line", "loop", "vee"}},
              {.option = "backward", .words = {"", "fused", "split"}},
              {.option = "cut", .words = {"even", "balanced"}},
              {.option = "piece-order", .words = {"tokens", "layers"}},
              {.option = "shard", .words = {"nothing", "optimizer", "gradients", "parameters"}},
              {.option = "grain", .words = {"", "pass", "layer"}},
              {.option = "exchange", .words = {"", "beside", "inline"}},
              {.option = "recompute", .words = {"none", "selective", "full", "whole"}, .blocks = true},
              {.option = "clock", .words = {"real", "virtual"}},
              {.option = "nccl", .words = {"auto", "on", "off"}},
              {.option = "dtype", .words = {"fp32", "bf16"}}};

const char *const *options_words(const char *option) {
  for (size_t i = 0; i < SLI_COUNT(checks); i++)
    if (!strcmp(checks[i].option, option)) return checks[i].words;
  return NULL;
}

const char *const *options_completed(const tool_option *own, const char *option) {
  if (!strcmp(option, "schedule")) return sl_schedule_names();
  return find_option(own, option) ? NULL : options_words(option);
}

static sl_status check_text(size_t check, const char *text) {
  char *word = sli_strdup(text);
  if (checks[check].blocks) word[strcspn(word, "@")] = 0;
  sl_status status = options_check_word(checks[check].option, word, checks[check].words);
  free(word);
  return status;
}

sl_status options_check_words(const sl_args *args, const tool_option *own) {
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(checks); i++) {
    const char *text;
    bool other = find_option(own, checks[i].option);
    for (int n = 0; !other && !status && (text = sl_arg_given(args, checks[i].option, n)); n++)
      status = check_text(i, text);
  }
  return status;
}
