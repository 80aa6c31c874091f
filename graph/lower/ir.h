/* What the lowering passes share.
 *
 * Pass by pass: nodes are gathered into groups (one becomes one actor), tensors
 * that leave their group into bundles (one becomes one register); what is read
 * where it does not lie is brought there by hops, groups and bundles like all
 * others; those that take turns get lanes, quotas are set, and groups and bundles
 * are written down as a plan. Groups and bundles are known by index; their order
 * follows the graph, so two processes lower the same graph to the same plan. */
#ifndef SLUICE_GRAPH_LOWER_IR_H
#define SLUICE_GRAPH_LOWER_IR_H

#include "graph/lower/lower.h"

/* How often something happens: once for each piece and each one up to it (sweep.c), per tick, per piece
 * that leaves (offload.c), per microbatch, per step, or every store_every steps. */
typedef enum sli_rate {
  SLI_PER_PAIR = -1,
  SLI_PER_TICK,
  SLI_PER_LEAVING,
  SLI_PER_MICROBATCH,
  SLI_PER_STEP,
  SLI_PER_STORE
} sli_rate;

/* How a hop goes. */
typedef enum sli_route {
  SLI_ROUTE_LINK,    /* to the host's memory of another process */
  SLI_ROUTE_DIRECT,  /* from a device's memory into that of another process's device */
  SLI_ROUTE_WIRE,    /* modelled: takes one thing after another */
  SLI_ROUTE_FLIGHT,  /* modelled: takes time, but no turn */
  SLI_ROUTE_MEMORY,  /* modelled: through the host's memory, one thing after another */
  SLI_ROUTE_H2D,     /* copied: host to device, */
  SLI_ROUTE_D2H,     /* device to host, */
  SLI_ROUTE_D2D,     /* from device to device */
  SLI_ROUTE_SPILL,   /* to where a register lives, */
  SLI_ROUTE_FILL,    /* and back */
  SLI_ROUTES
} sli_route;

typedef struct sli_route_row {
  const char *name;        /* of its queues */
  const char *verb;        /* of its actors */
  const sl_queue_ops *ops; /* a queue for each two devices; NULL: the kind's, one for each */
  bool in_turn;            /* takes one thing after another */
  bool updates;            /* and what the host updates, behind all else */
  bool homes;              /* between a home and here; else a copy between memories */
  sli_role role;           /* of what copies make; SLI_ROLES: that of what they bring */
} sli_route_row;
extern const sli_route_row sli_routes[SLI_ROUTES]; /* routes.c */

/* What a group does that computes nothing and brings a bundle to where it is read. */
typedef struct sli_hop {
  sli_route route;
  int to;          /* the device that it leads to; it runs on its group's */
  sl_space home;   /* of a route between homes: which one */
  int origin;      /* the bundle that it brings, as it was made */
  int reader;      /* the one group it is for, as often as that fires; SL_NONE: for all who read
                      there, as often as it is made */
  bool fetches;    /* with a reader: it is the first hop for it alone, */
  int nth;         /* and brings what that fetches as number nth from the device */
} sli_hop;

/* Nodes that run together, or a hop: one actor. */
typedef struct sli_group {
  const char *name;      /* "F2", "load0", "clip", "send:fwd@0>1" */
  sl_class cls;
  int stage, device, chunk; /* stage and chunk SL_NONE outside the pipeline */
  int rank;              /* which of the stage's devices */
  int phase;
  int level, part, axis; /* see group.c */
  int depth;             /* of an exchange after all ticks: one more than of those it reads from;
                            0: not known yet (lanes.c) */
  int about;             /* the group whose place in the order it has: itself, or, of a hop, the
                            one that makes what it brings, or that it is for */
  bool back;             /* of the way back */
  sli_rate rate;
  bool eval;             /* ... of an evaluation, every so many steps */
  bool host;             /* runs beside the passes, on the device's host queue */
  const sli_hop *hop;    /* NULL: it computes */
  int nnodes;
  size_t node_capacity;
  sli_node **nodes;
  int ninputs, noutputs; /* bundles read and written */
  size_t input_capacity, output_capacity;
  int *inputs, *outputs; /* ports in this order */
  size_t workspace_bytes;
  double seconds;        /* of a firing; of what computes known when the plan is written */
  int32_t actor;         /* SL_NONE: not written yet */
  int before;            /* the group of this device made before it, or SL_NONE */
} sli_group;

/* The copy of a bundle that is stored: where it begins in the slot of `store`, and how long each
 * version is there, whole pages or not where the bundle lives. */
typedef struct sli_image {
  bool stored;           /* checkpoints hold something of it */
  size_t offset, bytes;
} sli_image;

/* Whose slots a bundle has, where several have the same. */
typedef struct sli_lane {
  int leader;            /* a bundle before it; SL_NONE: it has its own, or is the first of a lane */
  int least;             /* slots that the lane cannot do without; 0: nobody has the same */
} sli_lane;

/* Tensors that travel together: one register. */
typedef struct sli_bundle {
  const char *name;
  sli_role role;
  int producer;          /* group, or SL_NONE: parameters nobody updates */
  int nconsumers;        /* who use what it holds, where it is or at the end of hops */
  int *consumers;        /* groups, ascending; those of a hop's end are its origin's */
  int origin;            /* the bundle it brings, as it was made; itself where no hop made it */
  int source;            /* the bundle the hop reads; SL_NONE: no hop made it */
  sli_rate rate;         /* of its slots */
  bool eval;             /* ... of an evaluation */
  sl_memory memory;      /* what it is counted as */
  int device;
  sl_space home;         /* in which memory of the device it lies */
  sl_space stay;         /* where it lives until the way back: SL_SPACE_DEVICE, or elsewhere,
                            and this is only where it is made (home.c) */
  bool held;
  int initial;
  int quota, quota_most;
  bool transient;        /* not to be there for all at once: in a lane, see lanes.c */
  sli_lane lane;
  int over;              /* the bundle before it in whose memory it can lie, or SL_NONE */
  int cover;             /* 1 + the bundle that lies over it, 0: none is known to */
  bool credit;           /* stands for the activations of its stage */
  bool aside;            /* of no pass: a loss, a norm, the clip's factor */
  double activation;
  size_t bytes, payload_bytes; /* the latter without what aligns tensors */
  sl_tensor *extent;     /* of the one tensor that it holds, of which not all rows need be valid; else
                            NULL */
  bool frozen;           /* parameters that only go on to the next step, where those may live
                            elsewhere */
  sli_image image;
  int32_t reg;
} sli_bundle;

/* Who has to do with each tensor. */
typedef struct sli_uses {
  int *producer;      /* [ntensors] group, or SL_NONE */
  int *count;         /* [ntensors] reading groups */
  int **groups;       /* [ntensors] ascending, without the producer */
  int *first, *last;  /* [ntensors] node index within the producing group; first: of all that
                         have this place, one after another */
  int *over;          /* [ntensors] the tensor whose place it has: itself, unless one that is
                         made of it lies over it */
  bool *summed;       /* [ntensors] accumulated over the step */
  bool *state;        /* [ntensors] updated in place by its producer */
  bool *swept;        /* [ntensors] read for later pieces, too */
} sli_uses;

/* Where a tensor lies: in a bundle's slots, or (bundle SL_NONE) in the workspace
 * of its group. */
typedef struct sli_spot {
  int bundle;
  int group;
  size_t offset;
} sli_spot;

/* Which part of its block a group is, where it is several: levels from the first, and to the last. */
typedef struct sli_section {
  int first, last;
} sli_section;

typedef struct sli_sections {
  int count;
  sli_section *of;       /* [count] by group */
} sli_sections;

/* The ticks of a step in which something fires, or is made, in their order. */
typedef struct sli_visits {
  int count;
  const int32_t *tick;   /* [count] ascending */
} sli_visits;

/* A bundle for one way: what it is taken for where it is made, and where it is read. */
typedef struct sli_passage {
  int made_as, read_as; /* numbers that these bundles had; SL_NONE: it is no way */
  int from, to;         /* stages */
  sli_visits visits;
} sli_passage;

typedef struct sli_walks {
  sli_visits *stage;    /* [stages]; with all ticks of a step: not told apart (is_all) */
  int *next;            /* [m][stages] the stage behind it on a microbatch's path, or SL_NONE */
  int nways;
  sli_passage *of;              /* [nways] by bundle */
} sli_walks;

/* The plan's queues, by device. */
typedef struct sli_queues {
  int32_t *pass, *host;
  int32_t *exchange[SLI_AXES]; /* by the axis of a group */
  int32_t *store;              /* where something is stored */
  int32_t *source;             /* where a source waits */
} sli_queues;

/* How sequences are cut. */
typedef struct sli_pieces {
  sl_program_piece *pieces;  /* [k], the plan's; NULL where they are not */
  sl_program_piece *leaving; /* [k] the same, with variants for those that leave */
} sli_pieces;

struct sli_lowering {
  const sli_inputs *in;
  sli_pick pick;
  int stages;            /* p * v */
  int *stage_of;         /* [g->nblocks] */
  int *device_of, *chunk_of; /* [stages] along the pipeline */
  int ngroups;
  int ncomputing;        /* those before the hops */
  size_t group_capacity;
  sli_group *groups;
  int *group_of;         /* [g->nnodes] */
  int *newest;           /* [1 + stages][ranks] groups, see sli_newest_on */
  int *places;           /* [ncomputing] their places in one order for all of a tick (turns.c) */
  sli_sections sections;
  sli_walks *walks;      /* of microbatches, where these do not all go from stage to stage; else NULL */
  int nbundles;
  size_t bundle_capacity;
  sli_bundle *bundles;
  sli_spot *spots;       /* [g->ntensors] */
  int *alike;            /* [1 + stages][ranks][SLI_ROLES] bundles of tensors so far */
  int *act_b, *act_w;    /* [stages] credits */
  int *pools;            /* [p] credits of each device of a stage together, 0: no pool */
  int *watermarks;       /* [p] W such a device may hold back, -1: not lazy */
  bool store;            /* the plan has store actors */
  sli_arena arena;
  sl_plan *plan;
  sli_queues queues;
  sli_pieces cut;
  int *numbers;          /* [g->ntensors] of an extent, by its first tensor, in the program that is
                            being written; SL_NONE */
};

/* Ticks of a step, or of an evaluation. */
static inline int sli_lower_ticks(const sli_lowering *l, bool eval) {
  return (eval ? l->in->g->evaluated.microbatches : l->in->m) * l->in->k;
}

/* ---- the passes, in this order ---------------------------------------------------------- */

void sli_lower_group(sli_lowering *l);           /* nodes -> groups */
void sli_lower_bundle(sli_lowering *l);          /* tensors -> bundles, workspace */
sl_status sli_lower_versions(sli_lowering *l);   /* parameters in two slots */
void sli_lower_store(sli_lowering *l);           /* groups and bundles of checkpoints */
void sli_lower_sections(sli_lowering *l);        /* which part of its block a group is */
sl_status sli_lower_homes(sli_lowering *l);      /* bundles that live elsewhere */
void sli_lower_hops(sli_lowering *l);            /* ... and of what is read elsewhere */
void sli_lower_lanes(sli_lowering *l);           /* bundles that take turns in the same slots */
void sli_lower_cover(sli_lowering *l);           /* gradients that lie over activations */
sl_status sli_lower_quotas(sli_lowering *l);     /* schedule and user -> quotas */
sl_status sli_lower_emit(sli_lowering *l);       /* groups, bundles -> plan */

/* ---- groups and bundles ------------------------------------------------------------------- */

/* Add one; ports of those who make it and use it follow. Returns its number. Pointers into the
 * array are no longer good then. */
int sli_add_group(sli_lowering *l, sli_group group);
int sli_add_bundle(sli_lowering *l, sli_bundle bundle);
void sli_put_bundle(sli_lowering *l, int at, sli_bundle bundle); /* in the place of one that is nobody's */
void sli_add_port(sli_group *group, int bundle, bool output);
/* The port at which a group has a bundle, which may have come to it by hops: inputs first. */
int sli_group_port(const sli_lowering *l, const sli_group *group, int bundle, bool output);
/* What tells `to` that `from` has fired; `first`: it need not be told the first time. */
void sli_add_turn(sli_lowering *l, int from, int to, bool first);
/* Tensors that its nodes make, at most. */
int sli_group_results(const sli_group *group);
/* The bundle that has it where it lives: itself, unless a hop brings it there. */
int sli_bundle_home(const sli_lowering *l, int bundle);
/* Is a node, or a group, a stage's part of a pass over what is spread over all of them? */
static inline bool sli_is_spread_node(const sli_lowering *l, const sli_node *n) {
  bool in_pass = n->phase == SLI_PHASE_MAIN || n->phase == SLI_PHASE_EVAL;
  return in_pass && n->block >= 0 && l->in->g->blocks[n->block].spread;
}
static inline bool sli_is_spread_group(const sli_lowering *l, const sli_group *g) {
  return g->nnodes && sli_is_spread_node(l, g->nodes[0]);
}

/* Is it a source that may block, and is asked for ticks as others come back (sl_source.behind)? */
static inline bool sli_waits(const sli_group *g) {
  const sli_node *n = g->nnodes ? g->nodes[0] : NULL;
  return n && n->op == &sl_op_source && ((const sl_source *)n->attrs.user)->behind > 0;
}

/* The stage at which it was made, whose quotas count; SL_NONE: at none. */
int sli_bundle_stage(const sli_lowering *l, const sli_bundle *b);
/* Whose turn is before whose: as the data goes, there and back, level by level, and block by block within a
 * level; where blocks take turns, block by block, and level by level within one. Below 0: a's. */
int sli_lower_turn(const sli_lowering *l, int a, int b);
/* [ncomputing] Places of groups in one order in which those of a tick could run one after another. */
int *sli_lower_places(sli_lowering *l);
/* In which memory of its device a group works. */
sl_space sli_lower_space(const sli_lowering *l, const sli_group *g);

/* Of what lives elsewhere: does this group read it from there, and not where it is made? So do those
 * of the way back, and all that read parameters. */
bool sli_is_filled(const sli_lowering *l, const sli_bundle *b, const sli_group *g);
/* Is it made elsewhere than where it lives? */
static inline bool sli_is_spilled(const sli_bundle *b) {
  return b->stay != SL_SPACE_DEVICE && b->stay != b->home;
}
/* Does the stage finish each microbatch before it begins the next? */
bool sli_is_one_at_a_time(const sli_lowering *l, int stage);

/* The device of a stage with this rank. */
static inline int sli_lower_device(const sli_lowering *l, int stage, int rank) {
  return sli_device_at(l->in, l->device_of[stage], rank);
}

/* The newest of the groups that compute on a device of a stage, or (SL_NONE) of all stages; each
 * knows the one before it. */
static inline int *sli_newest_on(const sli_lowering *l, int stage, int rank) {
  return &l->newest[(stage + 1) * l->in->ranks + rank];
}

/* ---- places in memory (fit.c) ---------------------------------------------------------------- */

/* What is there from one moment to another; moments are numbers. */
typedef struct sli_stay {
  int id;                /* the caller's; of equal sizes the smaller one comes first */
  int first, last;
  size_t bytes, offset;
} sli_stay;

/* Gives each its offset and returns where the last ends. all[count] in another order then. */
size_t sli_lower_fit(sli_stay *all, int count);
/* What tensors take: each begins on a cache line. */
static inline size_t sli_lower_aligned(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* ---- parts of passes ------------------------------------------------------------------------- */

/* Extents of a group's program (extents.c): numbered, before its calls are written; and which ones
 * the arguments of a call have, NULL: none. */
void sli_lower_extents(sli_lowering *l, const sli_group *g, sl_program *program);
const int16_t *sli_lower_extents_of(const sli_lowering *l, int count, sl_tensor *const *tensors);
/* How many of a tensor's rows are expected to be valid in a tick of a step; and on modelled devices a
 * table of that by tick, or of these ticks alone; NULL: all. */
int64_t sli_lower_expected(const sl_tensor *extent, int32_t tick);
const int32_t *sli_lower_expected_table(const sli_lowering *l, const sl_tensor *extent,
                                        const sli_visits *visits);

void sli_lower_over(const sli_lowering *l, sli_uses *u); /* of bundles: who lies over whom */
void sli_lower_check_places(const sli_lowering *l, const sli_uses *u); /* asserts what must hold */

/* ---- what hops bring for one reader alone (fetched.c) ------------------------------------------ */

/* Does an exchange read parameters that are kept elsewhere, and has them fetched? */
bool sli_is_fetched(const sli_lowering *l, const sli_bundle *b, const sli_group *g);
/* How many it fetches from the same device before this one; and how many of a role have been filled for
 * it, of what is there for all pieces or for those alone that leave. */
int sli_fetched_before(const sli_lowering *l, int bundle, const sli_group *g);
int sli_filled_before(const sli_lowering *l, const sli_group *g, sli_role role, bool some);

/* ---- pieces whose activations leave (offload.c) ----------------------------------------------- */

bool sli_lower_leaves(const sli_lowering *l, int piece);
double sli_lower_again(const sli_lowering *l); /* the share of pieces that are computed again */
/* From firings to keys of what leaves, and to ticks, for those that fire so often. */
int32_t sli_lower_leaving_map(sli_lowering *l, const sli_group *g);
int32_t sli_lower_leaving_ticks(sli_lowering *l, const sli_group *g);
/* Has its program another variant for what has left? */
bool sli_lower_reads_leaving(const sli_group *g);

/* ---- blocks, where all pieces of a microbatch go through one before the next (layers.c) ---------- */

/* Zeros where blocks do not take turns. */
sli_section sli_lower_section(const sli_lowering *l, int group);
/* Of a bundle that lives elsewhere: which it is of where it is made. */
sli_role sli_staging_role(const sli_lowering *l, const sli_bundle *b);
/* Does another block read it, on the same way? */
bool sli_leaves_block(const sli_lowering *l, const sli_bundle *b);
/* A microbatch after the other, and in each block after block. */
void sli_lower_rank(const sli_lowering *l, const sli_group *g, sl_actor *a);

/* ---- sweeps: what a piece looks back to comes piece by piece (sweep.c) ---------------------------- */

/* Pieces, and pairs of a piece and one up to it, of a microbatch. */
static inline int sli_lower_pairs(const sli_lowering *l) { return l->in->k * (l->in->k + 1) / 2; }
/* Firings of a group in a microbatch, a step, or an evaluation. */
int sli_lower_firings(const sli_lowering *l, const sli_group *g);
/* Is it read for later pieces, too? Then it lives elsewhere. */
static inline bool sli_is_swept(const sli_bundle *b) {
  return (b->role == SLI_ROLE_KV || b->role == SLI_ROLE_KV_SPILL) && b->rate == SLI_PER_TICK;
}
/* What is there of a swept bundle where it lives: one for each piece. */
bool sli_is_piece(const sli_lowering *l, const sli_bundle *b);
/* The maps of a group that takes part, and its ticks: `end` of so many that are counted. */
int32_t sli_sweep_map(const sli_lowering *l, const sli_group *g, const sli_bundle *b);
int32_t sli_piece_map(const sli_lowering *l, const sli_bundle *b);
int32_t sli_sweep_ticks(const sli_lowering *l, const sli_group *g, int32_t end);

/* ---- microbatches that do not go through all stages (visits.c) -------------------------------------- */

/* Behind bundles: what goes from stage to stage goes where paths lead (ways.c). */
sl_status sli_lower_ways(sli_lowering *l);
/* Is it a group of a pass, or an exchange within one, at a stage? */
static inline bool sli_is_of_pass(const sli_group *g) {
  return !g->hop && !g->host && !g->eval && g->stage >= 0 && g->rate == SLI_PER_TICK;
}
/* The ticks in which a group fires, or a bundle is made; NULL: in all. */
const sli_visits *sli_group_visits(const sli_lowering *l, const sli_group *g);
const sli_visits *sli_bundle_visits(const sli_lowering *l, const sli_bundle *b);
/* For which bundle a group takes one that it reads or writes: itself, or what would be in its place
 * were there no paths. Those taken for one have one base. */
int sli_bundle_taken_for(const sli_lowering *l, const sli_group *g, int bundle);
/* The map of a port, and that of a group's ticks, where one of the two has visits. */
const int32_t *sli_visits_bases(const sli_lowering *l, const sli_group *g); /* sl_actor.bases */
int32_t sli_visits_map(const sli_lowering *l, const sli_group *g, const sli_bundle *b);
int32_t sli_visits_ticks(const sli_lowering *l, const sli_visits *v);

/* ---- passes and what they wait for (line.c) --------------------------------------------------------- */

/* Is it an exchange that takes its turn on the queue of the passes? */
bool sli_lower_is_in_line(const sli_lowering *l, const sli_group *g);
void sli_lower_line(sli_lowering *l); /* behind bundles: what a pass begins with */
/* Does it go on with a pass that has begun, where exchanges are in line? */
bool sli_lower_goes_on(const sli_lowering *l, const sli_group *g);

/* Slots of a stage's activations at most, by the schedule and the user. */
void sli_lower_credits(sli_lowering *l);
/* The last that the user gives for a role at a stage, or 0. */
int sli_lower_given(const sli_lowering *l, sli_role role, int stage);
/* What a role gives a bundle, or a hop's end of it, where the user says nothing. */
int sli_role_slots(const sli_lowering *l, sli_role role, const sli_bundle *b);

/* Writes a group's program; of a hop, NULL where nothing is copied. */
sl_program *sli_lower_program(sli_lowering *l, int group);

/* A call in front of another of a group, that ends the run if sl_op.check says so; and one behind it,
 * that ends it if what it has made is not finite. `of` stays where it is. */
void sli_lower_check(const sli_lowering *l, int group, const sl_program_call *of,
                     sl_program_call *to);
void sli_lower_finite(const sli_lowering *l, int group, const sl_program_call *of,
                      sl_program_call *to);

/* Modelled durations of a group that computes. */
sl_status sli_lower_check_cost(const sli_lowering *l); /* as many stages as there are? */
double sli_lower_seconds(const sli_lowering *l, const sli_group *g);
/* [devices] how much longer passes take beside exchanges, for free(); NULL: they do not. And that of a
 * group. */
double *sli_lower_slowdowns(const sli_lowering *l);
double sli_lower_slowdown(const double *slowdowns, const sli_group *g);
/* The first by tick of a step, where that differs for how many rows are valid, and passes take so much
 * longer; NULL: it does not. */
const double *sli_lower_seconds_table(const sli_lowering *l, const sli_group *g, double slowdown);
/* Of a copy, whose seconds are those of a full slot: of the rows that are expected. */
double sli_lower_copied(const sli_lowering *l, const sli_group *g, int32_t tick);
/* Of what goes to a home and back at so many bytes a second; 0: that takes no time. */
double sli_home_seconds(const sli_lowering *l, sl_space home, bool back, size_t bytes);

/* How attention finds the positions of other devices (sequence.c): what is said of it, and, before sequences are
 * cut, which way is gone. */
sl_status sli_lower_read_sequence(sli_inputs *in);

/* Completes in->grid, whose sizes are set, with what devices exchange on modelled hardware. */
void sli_lower_axis_links(sli_inputs *in);
sli_axis_link sli_lower_axis_link(const sli_inputs *in, int axis); /* of its rows, on described hardware */
sl_hardware_link sli_lower_link(const sli_inputs *in, int from, int to); /* two devices' */
/* Of what goes from a device of one process to one of another besides, where both are of one host. Nothing may be chosen
 * by it: what is learned must not depend on which processes drive devices. */
double sli_lower_process_link(const sli_inputs *in, int from, int to, size_t bytes);
/* Bytes that a group receives from other devices of its stage, by all its nodes: by axis, and by what is done with them;
 * and how often in a step it does. */
void sli_lower_received(const sli_lowering *l, const sli_group *g, double to[SLI_AXES][SLI_ALL_TO_ALL + 1]);
double sli_lower_times(const sli_lowering *l, sli_rate rate);
/* How long that takes. */
double sli_lower_exchange_seconds(const sli_lowering *l, const sli_group *g);
/* Is that all of what a node of an exchange takes? */
bool sli_lower_is_measured(const sli_lowering *l, const sli_node *n);
/* Modelled: bytes a second of the host's memory that fall to one of the devices beside it, for its
 * copies and for what is updated there; 0: any number. */
double sli_lower_host_rate(const sli_inputs *in);
/* Does the host update parameters here? */
bool sli_updates_on_host(const sli_group *g);
/* ---- checkpoints ------------------------------------------------------------------------------ */

/* What is stored every so many steps, and the callbacks that do it. */
struct sli_store_user {
  sli_stores *stores;
  int stage, rank; /* stage SL_NONE: the commit */
};

/* Programs of checkpoints: the calls that copy what a group updates (how many at
 * most, and themselves), and the whole program of a store or commit group. */
int sli_lower_store_calls(const sli_lowering *l, int group);
int sli_lower_store_copies(sli_lowering *l, int group, sl_program_call *calls);
sl_program *sli_lower_store_program(sli_lowering *l, int group);

#endif
