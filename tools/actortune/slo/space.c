/* SPDX-License-Identifier: Apache-2.0 */
/* The space of server configurations. */
#include <stdlib.h>
#include <string.h>

#include "tools/actortune/slo/slo_inner.h"

enum { SPACE_MOST = 24 };

const char *const slo_dims[SLO_DIMS] = {"stages",         "tensor", "replicas", "prefill",
                                        "prefill-tensor", "groups", "rows",     "sequences",
                                        "pages",          "admit",  "dtype",    "kv"};
const char *const slo_admits[] = {
    [SL_ADMIT_RESERVE] = "reserve", [SL_ADMIT_RECOMPUTE] = "recompute", NULL};

static int64_t pages_of(int64_t positions) {
  return (positions + SL_SESSION_PAGE - 1) / SL_SESSION_PAGE;
}

static int64_t longest(const hunt *h, bool answer) {
  int64_t most = 1;
  for (int64_t i = 0; i < h->came.count; i++)
    most = SLI_MAX(most, h->came.items[i].prompt + (answer ? h->came.items[i].answer : 0));
  return most;
}

/* Returns the most requests that can be open at once. */
static int64_t most_open(const hunt *h) {
  return h->came.clients ? SLI_MIN(h->came.clients, h->came.count) : h->came.count;
}

int64_t space_most_pages(const hunt *h, int64_t sequences) {
  return pages_of(longest(h, true)) * SLI_MIN(sequences, most_open(h));
}

/* ---- lists --------------------------------------------------------------------------------- */

/* Adds every number up to a few, then doubling, and the last one. */
static void add_steps(int few, int most, numbers *to) {
  for (int n = 1; n < most; n = n < few ? n + 1 : 2 * n) numbers_add(to, n);
  numbers_add(to, most);
}

static void usual_stages(const hunt *h, numbers *to) {
  enum { FEW = 8 };
  if (!to->count) add_steps(h->costed ? FEW : 1, h->devices, to);
}

/* Devices that share a stage are of one host. */
static void usual_tensor(const hunt *h, numbers *to) {
  int host = SLI_MAX(h->settings->modelled.hardware.devices_per_host, 1);
  if (to->count) return;
  if (h->costed) numbers_add(to, 1);
  else add_steps(1, SLI_MIN(h->devices, host), to);
}

/* Adds numbers of rows, up to the most that a tick can have. */
static void usual_rows(const hunt *h, numbers *to) {
  enum { LEAST = 8, LEAST_MODELLED = 256, MOST = 4096, MOST_MODELLED = 8192, SEQUENCES = 64 };
  int64_t all = longest(h, false) + SEQUENCES;
  if (!h->costed) all = SLI_MAX(all, longest(h, false) * most_open(h));
  for (int rows = h->costed ? LEAST : LEAST_MODELLED; rows <= (h->costed ? MOST : MOST_MODELLED);
       rows *= 2) {
    numbers_add(to, rows);
    if (rows >= all) break;
  }
}

static sl_status read_admits(const hunt *h, numbers *to) {
  char *copy = sli_strdup(sl_arg_text(h->settings->run, "admit")), *state = NULL;
  sl_status status = SL_OK;
  for (char *word = strtok_r(copy, ",", &state); word && !status;
       word = strtok_r(NULL, ",", &state)) {
    status = options_check_word("admit", word, slo_admits);
    if (!status)
      numbers_add(
          to, strcmp(word, slo_admits[SL_ADMIT_RESERVE]) ? SL_ADMIT_RECOMPUTE : SL_ADMIT_RESERVE);
  }
  free(copy);
  if (status || to->count) return status;
  numbers_add(to, SL_ADMIT_RECOMPUTE);
  if (h->costed) numbers_add(to, SL_ADMIT_RESERVE);
  return status;
}

static sl_status check_most(const char *option, const numbers *n) {
  return n->count <= SPACE_MOST
             ? SL_OK
             : sl_fail(SL_E_USAGE, "--%s: at most %d are tried", option, SPACE_MOST);
}

static sl_status read_pages(const hunt *h, numbers *to) {
  const settings *s = h->settings;
  for (int i = 0; i < s->lower.memory.nquotas; i++) {
    if (strcmp(s->lower.memory.quotas[i].name, "kv") || s->lower.memory.quotas[i].stage != SL_NONE)
      return sl_fail(SL_E_USAGE, "--quota %s: must be kv=N, the pages on each stage",
                     sl_arg_given(s->run, "quota", i));
    numbers_add(to, s->lower.memory.quotas[i].slots);
  }
  return check_most("quota", to);
}

static sl_status check_groups(const numbers *groups) {
  enum { MOST = 64 };
  for (int i = 0; i < groups->count; i++)
    if (groups->values[i] > MOST)
      return sl_fail(SL_E_USAGE, "--groups %d: must be 1 to %d ticks in flight", groups->values[i],
                     MOST);
  return check_most("groups", groups);
}

/* Reads --prefill, in which 0 is possible: prompts and answers together. */
static sl_status read_prefill(const hunt *h, numbers *to) {
  const char *text = sl_arg_text(h->settings->run, "prefill");
  if (!strcmp(text, "0")) {
    numbers_add(to, 0);
    return SL_OK;
  }
  sl_status status = numbers_read(h->settings, "prefill", to);
  if (!status && to->count && h->costed)
    return sl_fail(SL_E_USAGE,
                   "--prefill %s: needs --machine, not --tick, for the durations of prompts alone",
                   text);
  return status ? status : check_most("prefill", to);
}

/* ---- dimensions that depend on others ------------------------------------------------------- */

static int all_of(const numbers *n, int64_t *out) {
  for (int i = 0; i < n->count; i++) out[i] = n->values[i];
  return n->count;
}

static int space_groups(const hunt *h, int64_t stages, int64_t *out) {
  enum { MOST = 64 };
  int count = 0;
  if (h->space.groups.count) return all_of(&h->space.groups, out);
  if (h->costed || stages == 1) out[count++] = 1;
  int64_t more = h->costed ? 2 : 1;
  for (int64_t g = SLI_MAX(stages, 2); g <= SLI_MIN(stages + more, MOST); g++)
    if (h->costed || stages > 1) out[count++] = g;
  return count;
}

static int space_sequences(const hunt *h, int64_t rows, int64_t replicas, int64_t *out) {
  enum { MOST = 64, MOST_MODELLED = 1024, TRIED = 3, TRIED_MODELLED = 6 };
  int64_t most = h->costed ? MOST : MOST_MODELLED, open = most_open(h);
  int count = 0, step = h->costed ? 4 : 2, tried = h->costed ? TRIED : TRIED_MODELLED;
  if (h->space.sequences.count) return all_of(&h->space.sequences, out);
  for (int64_t n = SLI_MIN(SLI_MIN(rows, most), (open + replicas - 1) / replicas);
       n && count < tried; n /= step)
    out[count++] = n;
  return count;
}

static int space_pages(const hunt *h, int64_t sequences, int64_t *out) {
  int64_t enough = space_most_pages(h, sequences);
  int count = 0;
  if (h->space.pages.count) return all_of(&h->space.pages, out);
  out[count++] = 0;
  for (int64_t n = h->least_pages; h->costed && n < enough && count < SPACE_MOST; n *= 2)
    out[count++] = n;
  return count;
}

static int space_replicas(const hunt *h, int64_t devices, int64_t *out) {
  int count = 0;
  int64_t most = h->costed ? 1 : h->devices / devices;
  if (h->space.replicas.count) return all_of(&h->space.replicas, out);
  for (int64_t n = 1; n < most && count < SPACE_MOST - 1; n *= 2) out[count++] = n;
  if (most) out[count++] = most;
  return count;
}

/* Lists numbers of servers for prompts with `left` devices. */
static int space_prefill(const hunt *h, int64_t left, int64_t tensor, int64_t *out) {
  enum { FEW = 4 };
  int count = 0;
  if (h->space.prefill.count) return all_of(&h->space.prefill, out);
  for (int64_t n = 1; n * tensor <= left && count < SPACE_MOST; n = n < FEW ? n + 1 : 2 * n)
    out[count++] = n;
  return count;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static const shape *find_shape(const hunt *h, int64_t stages, int64_t tensor, int format) {
  for (size_t i = 0; i < h->nshapes; i++) {
    const shape *x = &h->shapes[i];
    if (x->stages == stages && x->tensor == tensor && x->format == format) return x;
  }
  return NULL;
}

const shape *hunt_shape(const hunt *h, const server *c) {
  return find_shape(h, c->at[SLO_STAGES], c->at[SLO_TENSOR], hunt_format(h, c));
}

const shape *hunt_prompts_shape(const hunt *h, const server *c) {
  return find_shape(h, 1, c->at[SLO_PREFILL_TENSOR], hunt_format(h, c));
}

/* ---- all configurations ---------------------------------------------------------------------- */

static void add_server(hunt *h, const server *c) {
  SLI_GROW(h->servers, h->count, h->capacity);
  h->servers[h->count++] = *c;
}

/* Adds a server with all formats. */
static void add_formats(hunt *h, server c) {
  for (int d = 0; d < h->dtypes.count; d++)
    for (int k = 0; k < h->kvs.count; k++) {
      c.at[SLO_DTYPE] = d;
      c.at[SLO_KV] = k;
      add_server(h, &c);
    }
}

/* Adds a server with all ticks, sequences, pages, admissions and formats. */
static void add_ticks(hunt *h, server c) {
  int64_t groups[SPACE_MOST], sequences[SPACE_MOST], pages[SPACE_MOST];
  const space *s = &h->space;
  for (int g = space_groups(h, c.at[SLO_STAGES], groups); g--;)
    for (int r = 0; r < s->rows.count; r++)
      for (int q = space_sequences(h, s->rows.values[r], c.at[SLO_REPLICAS], sequences); q--;)
        for (int p = space_pages(h, sequences[q], pages); p--;)
          for (int a = 0; a < s->admits.count; a++) {
            c.at[SLO_GROUPS] = groups[g];
            c.at[SLO_ROWS] = s->rows.values[r];
            c.at[SLO_SEQUENCES] = sequences[q];
            c.at[SLO_PAGES] = pages[p];
            c.at[SLO_ADMIT] = s->admits.values[a];
            add_formats(h, c);
          }
}

/* Adds a server alone, and with servers for prompts. */
static void add_apart(hunt *h, server c) {
  const numbers *given = &h->space.prefill;
  int64_t counts[SPACE_MOST];
  bool together = !given->count;
  for (int i = 0; i < given->count; i++) together |= !given->values[i];
  if (together) add_ticks(h, c);
  if (h->costed) return;
  int own = c.devices;
  for (int t = 0; t < h->space.tensor.count; t++) {
    c.at[SLO_PREFILL_TENSOR] = h->space.tensor.values[t];
    for (int n = space_prefill(h, h->devices - own, c.at[SLO_PREFILL_TENSOR], counts); n--;) {
      c.at[SLO_PREFILL] = counts[n];
      c.devices = own + (int)(counts[n] * c.at[SLO_PREFILL_TENSOR]);
      if (counts[n] && c.devices <= h->devices) add_ticks(h, c);
    }
  }
}

static bool can_be(const hunt *h, int stages, int tensor) {
  return (int64_t)stages * tensor <= h->devices;
}

/* Adds a shape in each format. */
static void add_shapes(hunt *h, int stages, int tensor) {
  for (int f = 0; f < h->dtypes.count * h->kvs.count; f++) {
    if (find_shape(h, stages, tensor, f)) continue;
    h->shapes = sli_realloc(h->shapes, h->nshapes + 1, sizeof *h->shapes);
    h->shapes[h->nshapes++] = (shape){.stages = stages, .tensor = tensor, .format = f};
  }
}

void space_list(hunt *h) {
  const space *s = &h->space;
  int64_t replicas[SPACE_MOST];
  for (int p = 0; p < s->stages.count; p++)
    for (int t = 0; t < s->tensor.count; t++) {
      int stages = s->stages.values[p], tensor = s->tensor.values[t], devices = stages * tensor;
      if (!can_be(h, stages, tensor)) continue;
      add_shapes(h, stages, tensor);
      for (int r = space_replicas(h, devices, replicas); r--;) {
        server c = {
            .at = {[SLO_STAGES] = stages, [SLO_TENSOR] = tensor, [SLO_REPLICAS] = replicas[r]},
            .devices = devices * (int)replicas[r]};
        if (c.devices <= h->devices) add_apart(h, c);
      }
    }
  for (int t = 0; t < s->tensor.count && !h->costed; t++)
    if (can_be(h, 1, s->tensor.values[t])) add_shapes(h, 1, s->tensor.values[t]);
}

/* ---- options ------------------------------------------------------------------------------- */

/* Returns the number of devices: those given, or those of the largest server. */
static int count_devices(const hunt *h) {
  const numbers *all[] = {&h->space.stages, &h->space.tensor, &h->space.replicas};
  int devices = 1;
  if (sl_arg_given(h->settings->run, "devices", 0)) return h->settings->lower.devices.count;
  for (size_t i = 0; i < SLI_COUNT(all); i++) {
    int most = 1;
    for (int k = 0; k < all[i]->count; k++) most = SLI_MAX(most, all[i]->values[k]);
    devices *= most;
  }
  return devices;
}

/* Finds the pages of one sequence. */
static sl_status find_least(hunt *h) {
  sl_session_options o = serving_options(h->settings);
  sl_session_info about;
  o.lower.parallel.stages = o.lower.parallel.tensor = o.lower.parallel.sequence =
      o.lower.devices.count = 1;
  o.lower.devices.budget_bytes = 0;
  sl_status status = sl_session_check(&o, &about);
  if (status) return sl_fail(status, "%s", options_named(sl_detail()));
  h->least_pages = pages_of(about.context);
  return SL_OK;
}

sl_status space_read(hunt *h) {
  static const char *const names[] = {"stages", "tensor", "replicas",
                                      "rows",   "groups", "sequences"};
  space *s = &h->space;
  numbers *const lists[] = {&s->stages, &s->tensor, &s->replicas,
                            &s->rows,   &s->groups, &s->sequences};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(lists) && !status; i++) {
    status = numbers_read(h->settings, names[i], lists[i]);
    if (!status) status = check_most(names[i], lists[i]);
  }
  if (!status) status = check_groups(&s->groups);
  if (!status) status = read_prefill(h, &s->prefill);
  if (!status) status = read_pages(h, &s->pages);
  if (!status) status = read_admits(h, &s->admits);
  if (!status) status = find_least(h);
  if (status) return status;
  h->devices = count_devices(h);
  if (!s->rows.count) usual_rows(h, &s->rows);
  usual_stages(h, &s->stages);
  usual_tensor(h, &s->tensor);
  space_list(h);
  if (h->count) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "no combination of --stages, --tensor, --replicas and --prefill fits %d device%s",
                 h->devices, h->devices > 1 ? "s" : "");
}

void space_fini(space *s) {
  free(s->stages.values);
  free(s->tensor.values);
  free(s->replicas.values);
  free(s->prefill.values);
  free(s->groups.values);
  free(s->rows.values);
  free(s->sequences.values);
  free(s->admits.values);
  free(s->pages.values);
}
