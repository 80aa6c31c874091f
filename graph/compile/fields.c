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
         "pipeline devices to cut the model over; 0: one per device, or 1"),
    TEXT("placement", parallel.placement, "", WORDS("line", "loop", "vee"),
         "`ORDER` of the chunks: line, loop or vee; the schedule's own if not given"),
    INT("data-parallel", parallel.data, "1", 1, 1 << 16,
         "devices of each stage (or groups of parallel.tensor devices) that split the rows of a "
         "microbatch"),
    INT("sequence", parallel.sequence, "1", 1, 1 << 16,
         "devices of each stage (or groups of parallel.tensor devices) that split the positions "
         "of every sequence"),
    TEXT("sequence-attention", parallel.sequence_attention, "", NULL,
         "`HOW` parallel.sequence devices attend across each other's positions: heads (each "
         "computes some of the heads for all positions), ring (keys and values travel around), "
         "auto"),
    TEXT("sequence-states", parallel.sequence_states, "", NULL,
         "`HOW` parallel.sequence devices continue each other's states of linear attention: "
         "heads (each computes some of the heads for all positions), exchange (each keeps its "
         "positions and exchanges states), auto"),
    TEXT("sequence-layout", parallel.sequence_layout, "", NULL,
         "`WHICH` positions each device has: contiguous, or zigzag (two runs, which balance the "
         "work of ring attention); the better one if not given"),
    INT("tensor", parallel.tensor, "1", 1, 1 << 16,
         "devices of each stage that split the tensors, each in the way that a search finds"),
    READ("parallel", parallel.free_data),
    TEXT("layout", parallel.layout, "", NULL,
         "`AXIS,...`: order of the axes, from adjacent devices of a host outward: tensor, "
         "sequence, expert, data, stage in any order; as listed here if not given"),
    TEXT("assign", parallel.assign, "", NULL,
         "`LIST`: the device for each place of the layout, such as 0,2,1,3 or 4-7,0-3; device N "
         "for place N if not given"),
    TEXT("exchange", parallel.exchange, "", WORDS("beside", "inline"),
         "`WHERE` the devices of a stage exchange data within a pass: beside (they run other "
         "microbatches meanwhile) or inline (a pass keeps its device until it is done); beside "
         "if not given"),
    TEXT("boundary", parallel.boundary, "", WORDS("whole", "scattered"),
         "`HOW` a tensor that all parallel.tensor devices have crosses to the next stage: whole "
         "(each sends all of it) or scattered (each sends a part, and the receivers gather the "
         "parts); whole if not given"),
    READ("processes", parallel.processes),
    READ("sbp", parallel.given),
    INT("expert-parallel", experts.parallel, "1", 1, 1 << 16,
         "devices the experts are spread over, out of the parallel.data devices (times "
         "parallel.tensor, if it does not divide parallel.data); rows travel to their experts "
         "and back"),
    INT("expert-tensor", experts.tensor, "0", 0, 1 << 16,
         "devices that each expert is split over: 1: none, experts have their own grid of all "
         "parallel.data times parallel.tensor devices; same as parallel.tensor: experts are "
         "split like other tensors; 0: follows from experts.parallel"),
    FLOAT("expert-rows", experts.rows, "0", 0, 1e9,
         "room for rows on a device of experts, as a multiple of an even share, at least 1; 0: "
         "room for all rows that could come"),
    TEXT("routing", experts.routing, "", NULL,
         "with experts.parallel on modelled devices, `HOW` many rows each expert gets: balanced "
         "(the same number each; so does learned, which only real devices know), zipf:S (in "
         "proportion to 1/(e+1)^S for expert e) or a FILE with a number per expert for all rows "
         "of a microbatch, one line per layer or one for all"),
    TEXT("expert-placement", experts.placement, "", WORDS("order", "load"),
         "with experts.routing on modelled devices, `HOW` experts are placed: order (theirs), or "
         "load (those with most rows first, each on the device with fewest rows); order if not "
         "given"),
    INT("expert-replicas", experts.replicas, "0", 0, 1 << 16,
         "with experts.placement load, copies of the experts with most rows, which share their "
         "rows; sums of gradients between copies are left out"),
    FLAG("vocab-parallel", vocabulary.parallel,
         "split the vocabulary's tables over all stages instead of the first and the last alone"),
    INT("vocab-barriers", vocabulary.barriers, "2", 1, 2,
         "how often a microbatch waits for all stages with vocabulary.parallel; with 1 each "
         "stage keeps one microbatch less and computes products for the backward pass during the "
         "forward pass"),
    TEXT("schedule", schedule.name, "1f1b", NULL,
         "`NAME` of the quotas and class order to start from, listed below"),
    INT("chunks", schedule.chunks, "0", 0, 1 << 16,
         "chunks of the model per device; 0: the schedule's own number, or 1"),
    TEXT("backward", schedule.backward, "", WORDS("fused", "split"),
         "`WAY` of the backward pass: fused or split, input and weight gradients in one pass or "
         "two; the schedule's own if not given"),
    TEXT("order", schedule.order, "", NULL,
         "`FILE` with the passes of each device in a fixed order (lines like 0: F0 F0 B0 B0), or "
         "derive: the order that emerges without latency"),
    TEXT("paths", schedule.paths, "", NULL,
         "`FILE` with the stages that each microbatch visits, in order (lines like 3: 0 2 5 7), "
         "always the first and the last"),
    FLOAT("skip", schedule.skip, "0", 0, 1,
         "share of all visits to leave out: searches for schedule.paths with a short step on the "
         "virtual clock"),
    FLAG("swap", schedule.swap,
         "with schedule.skip: stages may be visited in another order"),
    TEXT("grain", schedule.grain, "", WORDS("pass", "layer"),
         "`SIZE` of an actor: pass (a stage's whole pass) or layer; layer with parallel.data or "
         "parallel.sequence, so that exchanging gradients overlaps computing them, else pass"),
    TEXT("piece-order", schedule.piece_order, "tokens", WORDS("tokens", "layers"),
         "`HOW` pieces are ordered: tokens (a piece goes through all blocks of a stage before "
         "the next piece) or layers (all pieces of a microbatch go through a block before the "
         "next block)"),
    FLOAT("look-ahead", schedule.look_ahead, "0", 0, 1e9,
         "seconds a modelled device idles for a better pass that is about to be ready"),
    INT("ranges", schedule.ranges, "1", 1, 1 << 16,
         "`N` microbatches that count as one for the schedule: ranges of its rows, one of which "
         "can exchange while another computes"),
    TEXT("shard", memory.shard, "nothing", WORDS("nothing", "optimizer", "gradients", "parameters"),
         "`WHAT` the parallel.data and parallel.sequence devices shard instead of replicating: "
         "nothing, optimizer, gradients (and optimizer), or parameters (and both)"),
    TEXT("recompute", memory.recompute, "none", WORDS("none", "selective", "full", "whole"),
         "`WHAT[@BLOCK]`: activations to recompute in the backward pass instead of keeping them, "
         "of all blocks or those of that name: none, selective (of ops that cost next to "
         "nothing), full (all of a block except what it reads from others) or whole (also what "
         "the devices of a stage exchange within it); may be repeated"),
    READ("quota", memory.quotas),
    READ("home", memory.homes),
    TEXT("offload", memory.homes.offload, "", NULL,
         "`activations=SHARE`: with --pieces and memory.homes act=..., the share of pieces, 0 to "
         "1, whose activations move there; the rest are recomputed, except block inputs and the "
         "results of attention"),
    TEXT("update", memory.homes.update, "", NULL,
         "`WHO` updates the parameters: device, host (with GPUs), or every:K (the device for "
         "every K-th block, the host for the rest); device if not given"),
    READ("host-memory", memory.homes.host_bytes),
    READ("disk", memory.homes.disk),
    READ("dtype", numbers.dtype),
    FLAG("exact", numbers.exact,
         "results that do not depend on the grid: the same bits on any parallel.data, "
         "parallel.tensor, microbatches and stages (docs/exact.md)"),
    INT("exact-leaf", numbers.leaf, "0", 0, 1 << 20,
        "with numbers.exact, the number of positions over which a gradient is summed in one go, "
        "a multiple of 32; pieces and parallel.sequence devices must hold whole leaves; 0: whole "
        "sequences"),
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
