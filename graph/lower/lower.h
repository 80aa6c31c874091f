/* Lowering a graph to a plan: what the search for a schedule, those who keep the result and the
 * tools see of it. */
#ifndef SLUICE_GRAPH_LOWER_H
#define SLUICE_GRAPH_LOWER_H

#include "graph/lower/inputs.h"
#include "graph/lower/roles.h"
#include "graph/schedule/schedule.h"

/* ---- inputs ---------------------------------------------------------------------------- */

/* Several devices for a stage: reads the options; refuses what they say of tensors if there is
 * no such axis; chooses how calls are shared and has the graph expanded. */
sl_status sli_lower_grid(sli_inputs *in);
sl_status sli_lower_check_given(const sl_lower_options *options);
sl_status sli_lower_attention(sli_inputs *in); /* how it finds positions of other devices: before the cut */
sl_status sli_lower_share_out(const sli_inputs *in);
sl_status sli_lower_serve(const sli_inputs *in); /* both halves of the pass, and that between them */

/* What a step sends: exchanges of a stage's devices, so often, and bytes from place to place of the pipeline. It
 * does not hang on which device is where. */
typedef struct sli_sent_exchange {
  int along, axis; /* of which stage's devices, along what */
  sli_half half;
  double bytes, times;
} sli_sent_exchange;
typedef struct sli_sent_hop {
  int from, to; /* places */
  double bytes;
} sli_sent_hop;
typedef struct sli_sent {
  int nexchanges, nhops, ticks;
  sli_sent_exchange *exchanges;
  sli_sent_hop *hops;  /* by both places */
  double computing;    /* seconds of the busiest device's passes */
} sli_sent;
void sli_sent_destroy(sli_sent *sent);
/* An order of the devices that does not hang on their numbers. */
void sli_lower_canon(const sl_hardware *h, int devices, int *order);
/* The device for each place with which that takes the least time that is found on this hardware, as `assign` has it;
 * the caller's to free(). NULL: none with which it takes less than now. */
char *sli_lower_anneal(const sli_inputs *in, const sli_sent *sent, const sl_hardware *h, uint64_t seed);

/* Refuses homes that nothing can live in, or of what is not there. */
sl_status sli_lower_check_homes(const sli_inputs *in);
void sli_lower_sweeps(const sli_inputs *in);
/* Does the user say of anything that it is to live elsewhere? */
bool sli_lower_moves(const sl_lower_options *options);
bool sli_home_given(const sl_lower_options *options, sli_role role); /* ... of what has this role? */
bool sli_home_names(const sl_home *home, sli_role role);
/* "4-7,0-3": the devices at so many places; and back, the caller's to free(). */
sl_status sli_assign_read(const char *text, int places, int *to);
char *sli_assign_format(const int *device, int places);
sl_status sli_lower_read_assign(sli_inputs *in); /* sets layout.assign */
sl_status sli_lower_layout(sli_inputs *in); /* sets layout, device_at, place_of */
/* Of all devices there would be, were none to stand for others, the number of one. */
int sli_layout_number(const sli_inputs *in, int along, int rank);
sl_status sli_lower_read_offload(sli_inputs *in); /* sets leaving */
sl_status sli_lower_read_update(sli_inputs *in); /* sets update_every; and the kind, where only its
                                                    like beside a host can do that */
/* "act=disk", "act@h.31=device"; what is wrong is said of "home TEXT". */
sl_status sli_home_read(const char *text, sli_arena *arena, sl_home *out);

/* Are there durations of passes, so that ops need none? */
bool sli_cost_is_given(const sl_cost *cost);
/* As it is described, and how many devices of a host compute at once: all that there are of the plan. */
sl_hardware sli_lower_hardware(const sl_lower_options *o);
/* Seconds on the way from stage to stage, without the wire. */
double sli_lower_crossing(const sli_inputs *in);

/* ---- one lowering ------------------------------------------------------------------------ */

typedef struct sli_lowering sli_lowering;

sli_lowering *sli_lowering_create(const sli_inputs *in, const sli_pick *pick);
sl_status sli_lower(sli_lowering *l); /* once */
/* The same, and its steps on the virtual clock, for searches: they add the firings to *firings, which is their
 * effort. `out->devices` is the caller's to free. */
sl_status sli_lower_predict(sli_lowering *l, int64_t *firings, sl_figures *out);
/* With its plan, unless somebody has taken that. */
void sli_lowering_destroy(sli_lowering *l);
const sl_plan *sli_lowering_plan(const sli_lowering *l);
sl_plan *sli_lowering_take_plan(sli_lowering *l);
const sli_pick *sli_lowering_pick(const sli_lowering *l);

/* What the schedule's formulas see at a stage. */
sli_at sli_lower_at(const sli_lowering *l, int stage);
/* Modelled durations of a microbatch's passes on a stage, by class. */
void sli_lowering_seconds(const sli_lowering *l, int stage, double seconds[SL_CLASS_COUNT]);

/* Once it is lowered. */
sli_sent *sli_lower_sent(const sli_lowering *l);
/* What a step moves to each device from others of its stage. [devices] */
uint64_t (*sli_lower_exchanged(const sli_lowering *l, sli_arena *arena))[SLI_AXES];
/* Of that, and of all else that the plan moves, what goes from host to host; of all devices. */
void sli_lower_crossed(const sli_inputs *in, const sl_plan *plan, uint64_t (*exchanged)[SLI_AXES],
                       int per_host, double to[SL_TRAFFIC_COUNT]);
/* What sl_lowered_quotas() and sl_lowered_params() give. Return how many. */
int sli_lowering_quotas(const sli_lowering *l, sli_arena *arena, sl_quota **out);
int sli_params_keep(const sli_lowering *l, sli_arena *arena, const sl_param_info **out);
/* The blocks of each stage, "wte h.0 | h.1 head"; in the arena. */
char *sli_lowering_cut(const sli_lowering *l, sli_arena *arena);
/* Slots of what is trained on a stage; 0: nothing is. */
int sli_lowering_versions(const sli_lowering *l, int stage);

/* ---- checkpoints --------------------------------------------------------------------------- */

/* What is stored every so many steps, and the callbacks that do it. */
sli_stores *sli_stores_create(const sl_lower_options *options);
void sli_stores_destroy(sli_stores *stores);
void sli_stores_keep(sli_stores *stores, const sli_lowering *l);
void sli_stores_attach(sli_stores *stores, sl_runtime *rt);
int sli_stores_state(const sli_stores *stores, const sl_plan *plan, sl_runtime *rt, int stage,
                     int rank, const sl_state_tensor **out);

/* ---- quotas, as users name them --------------------------------------------------------------- */

/* Reads "act.b=4", "act.b@2=4", "act.b=4,3,2,1" (from stage 0 on) or "fwd@1=3,-,2" (from stage 1
 * on, but not at 2). What is wrong is said of "quota TEXT". The quotas and their name are one
 * allocation, for free(). */
sl_status sli_quota_read(const char *text, int *count, sl_quota **out);

/* Is a register or pool of this name, of this stage, meant? "act" stands for "act.b" and "act.w". */
bool sli_quota_names(const sl_quota *quota, const char *name, int stage);

/* Do slots of this name count the activations of a stage? */
bool sli_quota_counts_activations(const char *name);

#endif
