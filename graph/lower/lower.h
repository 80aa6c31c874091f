/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering a graph to a plan: the interface for the schedule search, the owners of the result
 * and the tools. */
#ifndef SLUICE_GRAPH_LOWER_LOWER_H
#define SLUICE_GRAPH_LOWER_LOWER_H

#include "graph/lower/inputs.h"
#include "graph/lower/prices.h"
#include "graph/lower/roles.h"
#include "graph/schedule/schedule.h"

/* ---- inputs ---------------------------------------------------------------------------- */

/* Rejects distributions along an axis that has one device. */
sl_status sli_lower_check_given(const sl_lower_options *options);
/* Chooses the method of attention across devices, before sequences are cut. */
sl_status sli_lower_attention(sli_inputs *in);
sl_status sli_lower_share_out(const sli_inputs *in);
/* Runs both halves of the serving pass, with sharding between them. */
sl_status sli_lower_serve(const sli_inputs *in);

/* Traffic of one step: exchanges among a stage's devices with their counts, and bytes between
 * places of the pipeline. It does not depend on which device is at which place. */
typedef struct sli_sent_exchange {
  int along, axis; /* stage (place along the pipeline) and axis */
  sli_half half;
  double bytes, times;
} sli_sent_exchange;
typedef struct sli_sent_transfer {
  int from, to; /* places */
  double bytes;
} sli_sent_transfer;
typedef struct sli_sent {
  int nexchanges, ntransfers, ticks;
  sli_sent_exchange *exchanges;
  sli_sent_transfer *transfers; /* sorted by both places */
  double computing;             /* seconds of the busiest device's passes */
} sli_sent;
void sli_sent_destroy(sli_sent *sent);

/* Rejects homes (placements) that the devices do not have, and homes with unknown names or
 * blocks. */
sl_status sli_lower_check_homes(const sli_inputs *in);
void sli_lower_sweeps(const sli_inputs *in);
/* True if the user places anything off the device. */
bool sli_lower_moves(const sl_lower_options *options);
/* True if the user gives a home for this role. */
bool sli_home_given(const sl_lower_options *options, sli_role role);
bool sli_home_names(const sl_home *home, sli_role role);
/* Returns the name of the home of what an op reads as ticks want it ("experts"); NULL: the op reads
 * nothing in this way. */
const char *sli_loads_home(const sl_op *op);
/* True if a home has such a name. */
bool sli_home_is_loaded(const sl_home *home);
/* Returns the home that the user gives for a role in a block, or for what `loads` reads there;
 * NULL: no such op. */
const sl_home *sli_home_of(const sl_lower_options *options, sli_role role, const char *block,
                           const sl_op *loads);
/* True if the user gives what the op reads a home off the device. */
bool sli_loads_move(const sl_lower_options *options, const sl_op *loads);
/* Convert a list of devices by place, such as "4-7,0-3", to numbers and back. The caller frees the
 * text. */
sl_status sli_assign_read(const char *text, int places, int *to);
char *sli_assign_format(const int *device, int places);
sl_status sli_lower_read_assign(sli_inputs *in); /* sets layout.assign */
sl_status sli_lower_layout(sli_inputs *in);      /* sets layout, device_at, place_of */
/* Returns a device's number among all devices, even if one device represents a whole stage. */
int sli_layout_number(const sli_inputs *in, int along, int rank);

/* Completes in->grid, whose sizes are set, with the links of each axis on modelled hardware. */
void sli_lower_axis_links(sli_inputs *in);
/* Returns the link of an axis of the grid, on described hardware. */
sli_axis_link sli_lower_axis_link(const sli_inputs *in, int axis);
/* Returns the link between two devices. */
sl_hardware_link sli_lower_link(const sli_inputs *in, int from, int to);

/* True if durations of passes are given, so that ops need no cost model. */
bool sli_cost_is_given(const sl_cost *cost);
/* Returns the described hardware, with the number of a host's devices that compute concurrently:
 * all of the plan's devices. */
sl_hardware sli_lower_hardware(const sl_lower_options *o);
/* Returns the latency in seconds from stage to stage, without the wire's transfer time. */
double sli_lower_crossing(const sli_inputs *in);

/* ---- one lowering ------------------------------------------------------------------------ */

typedef struct sli_lowering sli_lowering;

sli_lowering *sli_lowering_create(const sli_inputs *in, const sli_pick *pick);
sl_status sli_lower(sli_lowering *l); /* call once */
/* Lowers and simulates steps on the virtual clock, for searches. Adds the firings, a measure of
 * the effort, to *firings. The caller frees `out->devices`. */
sl_status sli_lower_predict(sli_lowering *l, int64_t *firings, sl_statistics *out);
/* Also destroys the plan, unless it has been taken. */
void sli_lowering_destroy(sli_lowering *l);
const sl_plan *sli_lowering_plan(const sli_lowering *l);
sl_plan *sli_lowering_take_plan(sli_lowering *l);
const sli_pick *sli_lowering_pick(const sli_lowering *l);

/* Returns the inputs of the schedule's formulas for a stage. */
sli_at sli_lower_at(const sli_lowering *l, int stage);
/* Sets the modelled durations of a microbatch's passes on a stage, by class. */
void sli_lowering_seconds(const sli_lowering *l, int stage, double seconds[SL_CLASS_COUNT]);

/* Returns the traffic of a step; call after lowering. */
sli_sent *sli_lower_sent(const sli_lowering *l);
/* Returns the bytes that each device receives from others of its stage in a step. [devices] */
uint64_t (*sli_lower_exchanged(const sli_lowering *l, sli_arena *arena))[SLI_AXES];
/* A quota in force. Registers of one name and stage may have different quotas; `part` then
 * distinguishes them: "evaluation", "vocabulary", or NULL for the pipeline. */
typedef struct sli_quota_found {
  sl_quota quota;
  const char *part;
} sli_quota_found;
/* Fill in the results of sl_lowered_quotas() and sl_lowered_params(); return the count. */
int sli_lowering_quotas(const sli_lowering *l, sli_arena *arena, sli_quota_found **out);
int sli_params_keep(const sli_lowering *l, sli_arena *arena, const sl_param_info **out);
/* Returns the blocks of each stage, "wte h.0 | h.1 head"; the arena owns the text. */
char *sli_lowering_cut(const sli_lowering *l, sli_arena *arena);
/* Returns the prices of the blocks of a plan of one stage; call after lowering. */
sli_prices sli_lowering_prices(const sli_lowering *l, sli_arena *arena);
/* Returns the slots of trained parameters on a stage, or 0 if no parameter is trained there. */
int sli_lowering_versions(const sli_lowering *l, int stage);

/* ---- checkpoints --------------------------------------------------------------------------- */

/* State that is stored every store_every steps, and the callbacks that store it. */
sli_stores *sli_stores_create(const sl_lower_options *options);
void sli_stores_destroy(sli_stores *stores);
void sli_stores_keep(sli_stores *stores, const sli_lowering *l);
void sli_stores_attach(sli_stores *stores, sl_runtime *rt);
int sli_stores_state(const sli_stores *stores, const sl_plan *plan, sl_runtime *rt, int stage,
                     int rank, const sl_state_tensor **out);

/* ---- quotas, as users name them -------------------------------------------------------------- */

/* True if the quota applies to a register or pool of this name at this stage. "act" stands for
 * "act.b" and "act.w". */
bool sli_quota_names(const sl_quota *quota, const char *name, int stage);

/* True if slots of this name count the activations of a stage. */
bool sli_quota_counts_activations(const char *name);

#endif
