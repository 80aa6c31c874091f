/* SPDX-License-Identifier: Apache-2.0 */
/* The table of lowering options: field, name, type, default, bounds and help. */
#include <sluice/options.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define ROW(name, field, kind, value, min, max, words, help) \
  { #field, offsetof(sl_lower_options, field), {name, kind, value, help, min, max }, words }
#define INT(name, field, value, min, max, help) \
  ROW(name, field, SL_OPTION_INT, value, min, max, NULL, help)
#define FLOAT(name, field, value, min, max, help) \
  ROW(name, field, SL_OPTION_FLOAT, value, min, max, NULL, help)
#define FLAG(name, field, help) ROW(name, field, SL_OPTION_FLAG, "0", 0, 0, NULL, help)
#define TEXT(name, field, value, words, help) \
  ROW(name, field, SL_OPTION_TEXT, value, 0, 0, words, help)
/* A field that a special reader sets from the option's text. */
#define READ(name, field) ROW(name, field, SL_OPTION_TEXT, "", 0, 0, NULL, NULL)

/* clang-format off */
static const sl_lower_field fields[] = {
    INT("stages", parallel.stages, "0", 0, 1 << 16,
         "pipeline devices the model is cut over; 0: one per device, or 1"),
    TEXT("placement", parallel.placement, "", WORDS("line", "loop", "vee"),
         "`ORDER` of the chunks: line, loop or vee; the schedule's own if not given"),
    INT("data-parallel", parallel.data, "1", 1, 1 << 16,
         "devices (or groups of parallel.tensor devices) of each stage that share out the rows of a "
         "microbatch"),
    INT("sequence", parallel.sequence, "1", 1, 1 << 16,
         "devices (or groups of parallel.tensor devices) of each stage that share out the positions of "
         "every sequence"),
    TEXT("sequence-attention", parallel.sequence_attention, "", NULL,
         "`HOW` the parallel.sequence devices attend to each other's positions: heads (each has some "
         "of the heads for all positions), ring (keys and values go around), auto"),
    TEXT("sequence-states", parallel.sequence_states, "", NULL,
         "`HOW` they go on with each other's states of linear attention: heads (each has some of the "
         "heads for all positions), exchange (each keeps its positions; states are exchanged), auto"),
    TEXT("sequence-layout", parallel.sequence_layout, "", NULL,
         "`WHICH` positions each has: contiguous, or zigzag (two runs, so that with ring all have as "
         "much to do); as is best if not given"),
    INT("tensor", parallel.tensor, "1", 1, 1 << 16,
         "devices of each stage that share out the tensors: which way is searched for (print.sharing "
         "shows it), or given by parallel.given"),
    READ("parallel", parallel.free_data),
    TEXT("layout", parallel.layout, "", NULL,
         "`AXIS,...`: which axes lead from a device to its neighbour in a host, from the innermost on: "
         "tensor, sequence, expert, data, stage in any order; as listed here if not given"),
    TEXT("assign", parallel.assign, "", NULL,
         "`LIST`: which device takes each place of the layout, such as 0,2,1,3 or 4-7,0-3; the device "
         "of its number if not given"),
    TEXT("exchange", parallel.exchange, "", WORDS("beside", "inline"),
         "where what the devices of a stage exchange within a pass goes, `WHERE`: beside (passes go on "
         "with other microbatches meanwhile) or inline (a pass that has begun has its device until it "
         "is done); beside if not given"),
    READ("processes", parallel.processes),
    READ("sbp", parallel.given),
    INT("expert-parallel", experts.parallel, "1", 1, 1 << 16,
         "of the parallel.data devices so many share out the experts: rows go where their experts are, "
         "and come back; if it does not divide these, of these times parallel.tensor"),
    INT("expert-tensor", experts.tensor, "0", 0, 1 << 16,
         "on how many devices an expert lies: 1: experts have a grid of their own of all parallel.data "
         "times parallel.tensor devices; as many as parallel.tensor: they are shared out as tensors "
         "are; 0: as experts.parallel says"),
    FLOAT("expert-rows", experts.rows, "0", 0, 1e9,
         "times an even share of rows that there is room for on a device of experts, from 1 on; 0: for "
         "all that could come"),
    TEXT("routing", experts.routing, "", NULL,
         "with experts.parallel on modelled devices, `HOW` many rows come to each expert: balanced (as "
         "many; so does learned, which only real devices know), zipf:S (a share of 1/(e+1)^S to expert "
         "e) or a FILE with a number for each, all rows of a microbatch together, on a line for each "
         "layer or for all"),
    FLAG("vocab-parallel", vocabulary.parallel,
         "each stage has a part of the vocabulary's tables, instead of the first and the last alone"),
    INT("vocab-barriers", vocabulary.barriers, "2", 1, 2,
         "how often a microbatch waits for all stages with vocabulary.parallel: with 1 each stage "
         "keeps one microbatch less, and its products for the way back are made on the way there"),
    TEXT("schedule", schedule.name, "1f1b", NULL,
         "`NAME` of the quotas and class order to start from, listed below"),
    INT("chunks", schedule.chunks, "0", 0, 1 << 16,
         "chunks of the model each device holds; 0: as many as the schedule is for, or 1"),
    TEXT("backward", schedule.backward, "", WORDS("fused", "split"),
         "fused or split: input and weight gradients as one pass or two; the `WAY` of the schedule if "
         "not given"),
    TEXT("order", schedule.order, "", NULL,
         "`FILE` with the passes of each device in a fixed order (lines like 0: F0 F0 B0 B0), or "
         "derive: the order that emerges without latency"),
    TEXT("paths", schedule.paths, "", NULL,
         "`FILE` with the stages that each microbatch visits, in its order (lines like 3: 0 2 5 7): "
         "the first and the last always, those between them equally often"),
    FLOAT("skip", schedule.skip, "0", 0, 1,
         "share of all visits that is to be left out: looks for schedule.paths with which a step is "
         "short on the virtual clock"),
    FLAG("swap", schedule.swap,
         "with schedule.skip: stages may be visited in another order"),
    TEXT("grain", schedule.grain, "", WORDS("pass", "layer"),
         "`SIZE` of an actor: pass (a stage's whole pass) or layer; layer with parallel.data or "
         "parallel.sequence, so that gradients are exchanged while others are made, else pass"),
    TEXT("piece-order", schedule.piece_order, "tokens", WORDS("tokens", "layers"),
         "which pieces come first, `HOW`: tokens (a piece goes through all blocks of a stage before "
         "the next one) or layers (all pieces of a microbatch go through a block before the next "
         "block)"),
    FLOAT("look-ahead", schedule.look_ahead, "0", 0, 1e9,
         "seconds a modelled device idles for a better pass that is about to become ready"),
    TEXT("shard", memory.shard, "nothing", WORDS("nothing", "optimizer", "gradients", "parameters"),
         "what the parallel.data and parallel.sequence devices share out instead of each having all, "
         "`WHAT`: nothing, optimizer, gradients (and optimizer), or parameters (and both)"),
    TEXT("recompute", memory.recompute, "none", WORDS("none", "selective", "full", "whole"),
         "`WHAT[@BLOCK]`: activations that are computed again on the way back instead of kept, of all "
         "blocks or those of that name: none, selective (by ops that cost next to nothing), full (all "
         "of a block but what it reads of others) or whole (and what the devices of a stage exchange "
         "within it); may be repeated"),
    READ("quota", memory.quotas),
    READ("home", memory.homes),
    TEXT("offload", memory.homes.offload, "", NULL,
         "`activations=SHARE`: with --pieces and memory.homes act=..., the share of pieces, 0 to 1, "
         "whose activations go there; but for what blocks begin with and what attention makes, the "
         "others' are computed again"),
    TEXT("update", memory.homes.update, "", NULL,
         "`WHO` updates the parameters: device, host (beside GPUs), or every:K, every K-th block the "
         "device and the others the host; the device if not given"),
    READ("host-memory", memory.homes.host_bytes),
    READ("disk", memory.homes.disk),
    READ("dtype", numbers.dtype),
    FLAG("exact", numbers.exact,
         "numbers that do not depend on the grid either: the same bits on any parallel.data, "
         "parallel.tensor, microbatches and stages (docs/exact.md)"),
    INT("exact-leaf", numbers.leaf, "0", 0, 1 << 20,
        "with numbers.exact, the positions of a sequence over which a gradient is summed in one go, a "
        "multiple of 32: pieces and devices of parallel.sequence have whole leaves; 0: whole sequences"),
    READ("seed", numbers.seed),
    READ("devices", devices.kind),
    READ("nccl", devices.links),
    READ("memory", devices.budget_bytes),
    READ("cost", simulation.cost),
    READ("machine", simulation.hardware),
    READ("show-sbp", print.sharing),
    READ("print-after", print.after),
    READ("check-finite", numbers.check_finite),
    READ("activations", schedule.activations),
    {0}};
/* clang-format on */

const sl_lower_field *sl_lower_fields(void) { return fields; }
