/* SPDX-License-Identifier: Apache-2.0 */
/* Search for the cheapest signatures, by dynamic programming.
 *
 * Forward nodes are processed in order. Earlier choices affect later ones only through the
 * frontier: the layouts of tensors with reads still to come, and the layouts they have been boxed
 * into. Of all choices with the same frontier only the cheapest is kept, as a state. Each node
 * turns every state into new states, one per way. In most models few tensors are live at a time:
 * the residual stream and some of a block's intermediate results.
 *
 * A state is dropped if another one is cheaper even after boxing each live tensor into any layout
 * its readers may want. If the frontier is still wide, only the cheapest states are kept, fewer for
 * more nodes and a wider frontier, and the result may not be optimal.
 *
 * Most models repeat one block. If a block equals an earlier one and begins with the same states
 * (with weights relative to the least), its result is the same and is not recomputed. This happens
 * after a few blocks.
 *
 * Many states differ in tensors that a node does not read. The cost of a read is therefore computed
 * once for all states with the same history of that tensor.
 *
 * Ties go to the earlier state, so the result depends only on the graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/sharding/frontier.h"

enum { LEAST_STATES = 64, MOST_STATES = 256, MOST_BACK = 4, FEW = 4 };
/* Total number of frontier places examined before states must be dropped; corresponds to a few
 * seconds. */
static const int64_t most_places = 1 << 24;

/* States before or after a node. */
typedef struct states {
  int count;
  size_t seen_capacity, weight_capacity, from_capacity;
  sli_seen *seen; /* [count][width] */
  double *weight;
  struct origin {
    int from; /* index among the states before the node */
    uint8_t way;
  } * from;
} states;

/* Nodes of a block, and the states before it, with weights relative to `base`. */
typedef struct span {
  int begin, end, count;
  sli_seen *seen;
  double *weight, base;
  bool computed; /* owns its layers, which are not shared with an equal block */
} span;

/* Priced read of a node's input. */
typedef struct priced {
  uint64_t reading;    /* index of the input, wanted layout and gradient, as one word */
  sli_seen seen, left; /* layouts before and after the read */
  double weight;
} priced;

typedef struct search {
  const sli_ways *ways;
  const uint32_t *allowed;
  double limit;
  sli_frontier frontier;
  int most_states; /* states kept after a node */
  states before, after;
  size_t table_size;
  int *table; /* hash table of the states after, by contents: 1 + index, 0: free */
  size_t nprices, price_capacity, price_table_size;
  priced *prices;         /* [nprices] for the current node */
  int *price_table;       /* hash table of prices, by read and layouts before: 1 + index, 0: free */
  struct origin **layers; /* [nodes] origins of the states kept after each node */
  int nspans;
  span *spans;
  double base; /* base of the states' weights */
} search;

/* ---- states -------------------------------------------------------------------------------- */

static void states_fini(states *s) {
  free(s->seen);
  free(s->weight);
  free(s->from);
}

/* Grows the arrays to hold count + 1 states. */
static void states_grow(states *s, size_t count, size_t width) {
  while (count * width + width >= s->seen_capacity)
    SLI_GROW(s->seen, s->seen_capacity, s->seen_capacity);
  while (count >= s->weight_capacity) {
    SLI_GROW(s->weight, s->weight_capacity, s->weight_capacity);
    SLI_GROW(s->from, s->from_capacity, s->from_capacity);
  }
}

/* Moves state `index` to an earlier index. */
static void states_move(states *s, int index, int earlier, size_t width) {
  memmove(&s->seen[(size_t)earlier * width], &s->seen[(size_t)index * width],
          width * sizeof *s->seen);
  s->weight[earlier] = s->weight[index];
  s->from[earlier] = s->from[index];
}

static size_t hash_of(const sli_seen *seen, size_t width) {
  uint64_t hash = SLI_HASH_SEED;
  for (size_t i = 0; i < width; i++) {
    uint64_t word;
    memcpy(&word, &seen[i], sizeof word);
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 29;
  }
  return (size_t)hash;
}

static void rehash(search *s, size_t size) {
  size_t width = (size_t)s->frontier.width;
  s->table_size = size;
  s->table = sli_realloc(s->table, size, sizeof *s->table);
  memset(s->table, 0, size * sizeof *s->table);
  for (int i = 0; i < s->after.count; i++) {
    size_t at = hash_of(&s->after.seen[(size_t)i * width], width) & (size - 1);
    while (s->table[at]) at = (at + 1) & (size - 1);
    s->table[at] = i + 1;
  }
}

/* Keeps a state if it is new, or cheaper than the state with the same contents. `seen` points just
 * past the last of the states after. */
static void offer(search *s, const sli_seen *seen, double weight, struct origin from) {
  states *to = &s->after;
  size_t width = (size_t)s->frontier.width, mask = s->table_size - 1;
  size_t at = hash_of(seen, width) & mask;
  for (; s->table[at]; at = (at + 1) & mask) {
    int i = s->table[at] - 1;
    if (memcmp(&to->seen[(size_t)i * width], seen, width * sizeof *seen)) continue;
    if (weight < to->weight[i]) {
      to->weight[i] = weight;
      to->from[i] = from;
    }
    return;
  }
  to->weight[to->count] = weight;
  to->from[to->count] = from;
  s->table[at] = ++to->count;
  if ((size_t)to->count * 2 > s->table_size) rehash(s, 2 * s->table_size);
}

/* ---- a step -------------------------------------------------------------------------------- */

static double begin_param(const search *s, const sl_tensor *t, sli_reading r, sli_seen *seen) {
  const sli_ways *w = s->ways;
  sl_sbp lies =
      w->fixed[t->param_index] ? w->params[t->param_index] : sli_code_sbp(sli_param_lies(r.want));
  *seen = (sli_seen){.layout = (uint16_t)sli_sbp_code(lies)};
  return sli_cost_weight(&w->costs, sli_cost_update(&w->costs, t, lies));
}

static size_t price_hash(uint64_t reading, sli_seen seen) {
  uint64_t word;
  memcpy(&word, &seen, sizeof word);
  return (size_t)sli_hash_word(sli_hash_word(SLI_HASH_SEED, reading), word);
}

static void rehash_prices(search *s, size_t size) {
  s->price_table_size = size;
  s->price_table = sli_realloc(s->price_table, size, sizeof *s->price_table);
  memset(s->price_table, 0, size * sizeof *s->price_table);
  for (size_t i = 0; i < s->nprices; i++) {
    size_t at = price_hash(s->prices[i].reading, s->prices[i].seen) & (size - 1);
    while (s->price_table[at]) at = (at + 1) & (size - 1);
    s->price_table[at] = (int)i + 1;
  }
}

/* Returns the weight of one more read of an input, and records the read in *seen. */
static double price_reading(search *s, int input, const sl_tensor *t, sli_reading r,
                            sli_seen *seen) {
  const sli_costs *c = &s->ways->costs;
  uint64_t reading =
      (uint64_t)input << 24 | (uint64_t)r.want << 16 | (uint64_t)r.gradient << 8 | r.again;
  size_t mask = s->price_table_size - 1, at = price_hash(reading, *seen) & mask;
  for (; s->price_table[at]; at = (at + 1) & mask) {
    const priced *p = &s->prices[s->price_table[at] - 1];
    if (p->reading != reading || memcmp(&p->seen, seen, sizeof *seen)) continue;
    *seen = p->left;
    return p->weight;
  }
  priced p = {.reading = reading, .seen = *seen};
  p.weight = sli_cost_weight(c, sli_cost_reading(c, t, r, seen));
  p.left = *seen;
  SLI_GROW(s->prices, s->nprices, s->price_capacity);
  s->prices[s->nprices++] = p;
  s->price_table[at] = (int)s->nprices;
  if (2 * s->nprices > s->price_table_size) rehash_prices(s, 2 * s->price_table_size);
  return p.weight;
}

static bool begins_at(const search *s, int k, int i) {
  const sli_node *n = s->ways->nodes[k];
  for (int j = 0; j < i; j++)
    if (n->in[j] == n->in[i]) return false;
  return n->in[i]->param && s->frontier.first[n->in[i]->id] == k;
}

/* Records the reads of node k's inputs for one of its ways; returns the weight of the reads and of
 * the way. */
static double read_inputs(search *s, int k, const sli_way *way, sli_seen *seen) {
  const sli_node *n = s->ways->nodes[k];
  double weight = way->weight;
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    if (!t || s->frontier.place[t->id] < 0) continue;
    sli_seen *at = &seen[s->frontier.place[t->id]];
    sli_reading r = sli_way_in(way, i);
    if (begins_at(s, k, i)) weight += begin_param(s, t, r, at);
    weight += price_reading(s, i, t, r, at);
  }
  return weight;
}

/* Updates the frontier: tensors read for the last time leave, new tensors enter, and layouts that
 * no later reader wants are dropped. */
static void leave_frontier(const search *s, int k, const sli_way *way, sli_seen *seen) {
  const sli_node *n = s->ways->nodes[k];
  const sli_frontier *p = &s->frontier;
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && p->place[n->in[i]->id] >= 0 && p->last[n->in[i]->id] == k)
      seen[p->place[n->in[i]->id]] = (sli_seen){0};
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && p->place[n->out[o]->id] >= 0)
      seen[p->place[n->out[o]->id]] =
          (sli_seen){.layout = (uint16_t)sli_sbp_code(sli_signature_out(&way->signature, o))};
  for (int at = 0; at < p->width; at++) {
    uint16_t wants = p->wants[k * p->width + at] & (uint16_t) ~(1 << seen[at].layout);
    seen[at].forward &= wants;
    seen[at].backward &= wants;
  }
}

static void try_ways(search *s, int k, int state) {
  size_t width = (size_t)s->frontier.width;
  for (int a = 0; a < s->ways->nways[k]; a++) {
    const sli_way *way = &s->ways->of[k][a];
    if (!(s->allowed[k] >> a & 1)) continue;
    states_grow(&s->after, (size_t)s->after.count, width);
    sli_seen *seen = &s->after.seen[(size_t)s->after.count * width];
    memcpy(seen, &s->before.seen[(size_t)state * width], width * sizeof *seen);
    double weight = s->before.weight[state] + read_inputs(s, k, way, seen);
    if (s->base + weight >= s->limit) continue;
    leave_frontier(s, k, way, seen);
    offer(s, seen, weight, (struct origin){state, (uint8_t)a});
  }
}

/* ---- pruning ------------------------------------------------------------------------------ */

/* Returns an upper bound for the weights of states to keep: the weight of the best state after any
 * boxing it may need. */
static double most_weight(const search *s, int k) {
  const sli_frontier *p = &s->frontier;
  double most = INFINITY;
  for (int i = 0; i < s->after.count; i++) {
    double weight = s->after.weight[i];
    for (int at = 0; at < p->width; at++)
      weight +=
          p->boxing[(k * p->width + at) * SLI_SBP_CODES + s->after.seen[i * p->width + at].layout];
    most = SLI_MIN(most, weight);
  }
  return most;
}

/* Lists the cheapest states after node k, the cheapest first; returns their number. */
static int list_cheapest(const search *s, int *to) {
  int count = 0;
  for (int i = 0; i < s->after.count; i++) {
    int slot = SLI_MIN(count, FEW - 1);
    if (count == FEW && s->after.weight[i] >= s->after.weight[to[slot]]) continue;
    for (; slot && s->after.weight[i] < s->after.weight[to[slot - 1]]; slot--)
      to[slot] = to[slot - 1];
    to[slot] = i;
    count = SLI_MIN(count + 1, FEW);
  }
  return count;
}

/* Returns whether state `cheap` costs less than state i even after boxing each tensor whose layouts
 * differ into any layout that its readers may want. */
static bool dominates(const search *s, int k, int cheap, int i) {
  const sli_frontier *p = &s->frontier;
  const sli_seen *x = &s->after.seen[cheap * p->width], *y = &s->after.seen[i * p->width];
  double spare = s->after.weight[i] - s->after.weight[cheap];
  for (int place = 0; place < p->width && spare > 0; place++)
    if (memcmp(&x[place], &y[place], sizeof *x))
      spare -= p->boxing[(k * p->width + place) * SLI_SBP_CODES + x[place].layout];
  return spare > 0;
}

/* Drops states that one of the cheapest dominates. Their order stays. */
static void drop_dominated(search *s, int k) {
  states *to = &s->after;
  int cheapest[FEW], count = list_cheapest(s, cheapest), kept = 0;
  size_t width = (size_t)s->frontier.width;
  bool *dropped = sli_calloc((size_t)to->count + 1, sizeof *dropped);
  for (int i = 0; i < to->count; i++)
    for (int c = 0; c < count && !dropped[i]; c++) dropped[i] = dominates(s, k, cheapest[c], i);
  for (int i = 0; i < to->count; i++)
    if (!dropped[i]) states_move(to, i, kept++, width);
  to->count = kept;
  free(dropped);
}

static int by_weight(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double cheapest(const search *s, double most) {
  if (s->after.count <= s->most_states) return most;
  size_t n = (size_t)s->after.count;
  double *sorted = sli_calloc(n, sizeof *sorted);
  memcpy(sorted, s->after.weight, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, by_weight);
  most = SLI_MIN(most, sorted[s->most_states - 1]);
  free(sorted);
  return most;
}

static void keep(search *s, int k) {
  states *to = &s->after;
  size_t width = (size_t)s->frontier.width;
  drop_dominated(s, k);
  double most = cheapest(s, most_weight(s, k));
  int kept = 0;
  for (int i = 0; i < to->count; i++)
    if (to->weight[i] <= most && kept < s->most_states) states_move(to, i, kept++, width);
  to->count = kept;
  s->layers[k] = sli_calloc((size_t)kept + 1, sizeof **s->layers);
  memcpy(s->layers[k], to->from, (size_t)kept * sizeof **s->layers);
  states was = s->before;
  s->before = s->after;
  s->after = was;
}

/* ---- repeated blocks ----------------------------------------------------------------------- */

static bool same_ways(const search *s, int a, int b) {
  const sli_ways *w = s->ways;
  if (w->nways[a] != w->nways[b] || s->allowed[a] != s->allowed[b]) return false;
  for (int i = 0; i < w->nways[a]; i++) {
    const sli_way *x = &w->of[a][i], *y = &w->of[b][i];
    if (x->weight != y->weight) return false;
    for (int o = 0; o < SL_SIGNATURE_ARGS; o++) {
      const sli_reading *r = &x->in[o], *q = &y->in[o];
      if (!sli_sbp_equal(x->signature.out[o], y->signature.out[o])) return false;
      if (r->want != q->want || r->gradient != q->gradient || r->again != q->again) return false;
    }
  }
  return true;
}

static int share_search_place_of(const search *s, const sl_tensor *t) {
  return t ? s->frontier.place[t->id] : -1;
}

static bool same_inputs(const search *s, int a, int b) {
  const sli_node *n = s->ways->nodes[a], *m = s->ways->nodes[b];
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i], *u = m->in[i];
    if (share_search_place_of(s, t) != share_search_place_of(s, u)) return false;
    if (share_search_place_of(s, t) < 0) continue;
    if (t->param || u->param || !sl_type_equal(&t->type, &u->type)) return false;
    if ((s->frontier.last[t->id] == a) != (s->frontier.last[u->id] == b)) return false;
  }
  return true;
}

static bool same_nodes(const search *s, int a, int b) {
  const sli_node *n = s->ways->nodes[a], *m = s->ways->nodes[b];
  size_t width = (size_t)s->frontier.width;
  if (n->op != m->op || n->nin != m->nin || n->nout != m->nout) return false;
  const uint16_t *wants = s->frontier.wants;
  if (memcmp(&wants[(size_t)a * width], &wants[(size_t)b * width], width * sizeof *wants))
    return false;
  for (int o = 0; o < n->nout; o++)
    if (share_search_place_of(s, n->out[o]) != share_search_place_of(s, m->out[o])) return false;
  return same_inputs(s, a, b) && same_ways(s, a, b);
}

static bool same_blocks(const search *s, const span *x, const span *y) {
  if (x->end - x->begin != y->end - y->begin) return false;
  for (int k = 0; k < x->end - x->begin; k++)
    if (!same_nodes(s, x->begin + k, y->begin + k)) return false;
  return true;
}

/* True if the current states equal those with which another block began; weights may differ by
 * rounding. */
static bool same_states(const search *s, const span *x) {
  const states *now = &s->before;
  double most = 0;
  if (now->count != x->count) return false;
  if (memcmp(now->seen, x->seen, (size_t)(now->count * s->frontier.width) * sizeof *now->seen))
    return false;
  for (int i = 0; i < now->count; i++) most = SLI_MAX(most, x->weight[i]);
  for (int i = 0; i < now->count; i++)
    if (fabs(now->weight[i] - x->weight[i]) > 1e-9 * most) return false;
  return true;
}

/* Makes the states' weights relative to the least, and records the states. */
static void begin_span(search *s, span *x) {
  states *now = &s->before;
  size_t count = (size_t)now->count, cells = count * (size_t)s->frontier.width;
  double least = INFINITY;
  for (int i = 0; i < now->count; i++) least = SLI_MIN(least, now->weight[i]);
  for (int i = 0; i < now->count; i++) now->weight[i] -= least;
  if (now->count) s->base += least;
  x->base = s->base;
  x->count = now->count;
  x->seen = sli_calloc(cells + 1, sizeof *x->seen);
  x->weight = sli_calloc(count + 1, sizeof *x->weight);
  memcpy(x->seen, now->seen, cells * sizeof *x->seen);
  memcpy(x->weight, now->weight, count * sizeof *x->weight);
}

/* Copies the result of block `like` to block x. */
static void repeat(search *s, const span *like, const span *x) {
  const span *next = like + 1;
  size_t count = (size_t)next->count, width = (size_t)s->frontier.width;
  for (int k = 0; k < x->end - x->begin; k++) s->layers[x->begin + k] = s->layers[like->begin + k];
  states_grow(&s->before, count, width);
  memcpy(s->before.seen, next->seen, count * width * sizeof *next->seen);
  memcpy(s->before.weight, next->weight, count * sizeof *next->weight);
  s->before.count = next->count;
  s->base += next->base - like->base;
}

/* ---- the search ---------------------------------------------------------------------------- */

static void step(search *s, int k) {
  s->after.count = 0;
  s->nprices = 0;
  memset(s->table, 0, s->table_size * sizeof *s->table);
  memset(s->price_table, 0, s->price_table_size * sizeof *s->price_table);
  for (int i = 0; i < s->before.count; i++) try_ways(s, k, i);
  keep(s, k);
}

/* Solves block j by copying an equal preceding block, or node by node. */
static void step_span(search *s, int j) {
  span *x = &s->spans[j];
  begin_span(s, x);
  for (const span *like = x - 1; like >= s->spans && like >= x - MOST_BACK; like--)
    if (same_states(s, like) && same_blocks(s, like, x)) {
      repeat(s, like, x);
      return;
    }
  for (int k = x->begin; k < x->end; k++) step(s, k);
  x->computed = true;
}

static void share_search_begin(search *s) {
  const sli_ways *w = s->ways;
  s->layers = sli_calloc((size_t)w->count + 1, sizeof *s->layers);
  s->spans = sli_calloc((size_t)w->count + 2, sizeof *s->spans);
  for (int k = 0; k < w->count; k++) {
    if (!k || sli_starts_block(w, k)) s->spans[s->nspans++].begin = k;
    s->spans[s->nspans - 1].end = k + 1;
  }
  states_grow(&s->before, 0, (size_t)s->frontier.width);
  s->before.count = 1;
  s->before.weight[0] = 0;
  rehash(s, 1024);
  rehash_prices(s, 256);
}

/* Traces back the result. At the end all tensors have been read, so at most one state is left. */
static double finish(const search *s, int *way) {
  double weight = s->before.count ? s->base + s->before.weight[0] : INFINITY;
  if (weight >= s->limit) return INFINITY;
  for (int k = s->ways->count - 1, state = 0; k >= 0; k--) {
    way[k] = s->layers[k][state].way;
    state = s->layers[k][state].from;
  }
  return weight;
}

static void search_fini(search *s) {
  for (int j = 0; j < s->nspans; j++) {
    for (int k = s->spans[j].begin; k < s->spans[j].end && s->spans[j].computed; k++)
      free(s->layers[k]);
    free(s->spans[j].seen);
    free(s->spans[j].weight);
  }
  free(s->spans);
  free(s->layers);
  free(s->table);
  free(s->prices);
  free(s->price_table);
  states_fini(&s->before);
  states_fini(&s->after);
  sli_frontier_fini(&s->frontier);
}

double sli_ways_search(const sli_ways *w, const uint32_t *allowed, double limit, int *way) {
  search s = {.ways = w, .allowed = allowed, .limit = limit};
  sli_frontier_init(&s.frontier, w);
  int64_t places = SLI_MAX((int64_t)w->count * s.frontier.width, 1);
  s.most_states = (int)SLI_MIN(SLI_MAX(most_places / places, LEAST_STATES), MOST_STATES);
  share_search_begin(&s);
  for (int j = 0; j < s.nspans; j++) step_span(&s, j);
  double weight = finish(&s, way);
  search_fini(&s);
  return weight;
}
