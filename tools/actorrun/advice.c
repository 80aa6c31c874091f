/* SPDX-License-Identifier: Apache-2.0 */
/* Advice for a plan that does not fit. The plan is made again with other options, first one at a
 * time and then several, without a budget, to measure the memory it takes. Memory is known before
 * anything is allocated, so nothing is estimated. */
#include "tools/actorrun/advice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/devices/devices.h"

#define SECONDS_MOST 5

/* Options to try. NULL, NULL, 1, false and 0 change nothing. */
typedef struct remedy {
  const char *recompute, *shard;
  int times;   /* factor for the number of microbatches */
  bool away;   /* offload activations */
  bool state;  /* offload the optimizer state */
  double rows; /* room of experts, as a multiple of an even share */
} remedy;

static const remedy single[] = {{.recompute = "selective", .times = 1},
                                {.recompute = "full", .times = 1},
                                {.times = 1, .away = true},
                                {.times = 1, .state = true},
                                {.times = 2},
                                {.times = 4},
                                {.times = 1, .rows = 2},
                                {.shard = "optimizer", .times = 1},
                                {.shard = "gradients", .times = 1},
                                {.shard = "parameters", .times = 1}};
static const remedy together[] = {{"selective", "parameters", 1, false, false, 0},
                                  {"full", "parameters", 1, false, false, 0},
                                  {"full", NULL, 1, true, false, 0},
                                  {NULL, NULL, 1, true, true, 0},
                                  {"full", NULL, 1, true, true, 0},
                                  {"full", "parameters", 1, true, false, 0},
                                  {"full", "parameters", 2, false, false, 0},
                                  {"full", "parameters", 4, false, false, 0},
                                  {"full", "parameters", 1, false, false, 2},
                                  {"full", "parameters", 4, false, false, 2},
                                  {"full", "parameters", 4, true, true, 2}};

/* Memory of the fullest device, by space; 0 device memory: the plan cannot be made. */
typedef struct need {
  size_t bytes[SL_SPACE_COUNT];
  double seconds; /* seconds of a step; 0 if unknown */
} need;

static int advice_place_of(const char *word, const char *const *words) {
  int i = 0;
  while (words[i] && strcmp(words[i], word)) i++;
  return i;
}

/* Returns whether an option's word saves more memory than the user's. Words are ordered by
 * strength. */
static bool is_more(const settings *s, const char *option, const char *word) {
  const char *const *words = options_words(option);
  const char *given = strcmp(option, "shard") ? s->lower.memory.recompute : s->lower.memory.shard;
  return word && advice_place_of(word, words) > advice_place_of(given, words);
}

/* Returns the nearest offload target for activations, or the device itself if there is none. */
static sl_space home_of(const settings *s) {
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind);
  return kind->move[SL_SPACE_HOST]   ? SL_SPACE_HOST
         : kind->move[SL_SPACE_DISK] ? SL_SPACE_DISK
                                     : SL_SPACE_DEVICE;
}

/* Returns whether all data of this name is already offloaded. */
static bool lives_away(const settings *s, const char *name) {
  bool away = false;
  for (int i = 0; i < s->lower.memory.homes.count; i++) {
    const sl_home *h = &s->lower.memory.homes.homes[i];
    if (!strcmp(h->name, name) && !h->block) away = h->space != SL_SPACE_DEVICE;
  }
  return away;
}

/* Removes the parts of a remedy that the user's options already include. Returns false if nothing
 * is left. */
static bool adapt(const settings *s, remedy *r) {
  if (!is_more(s, "recompute", r->recompute)) r->recompute = NULL;
  if (s->lower.parallel.data * s->lower.parallel.sequence == 1 || !is_more(s, "shard", r->shard))
    r->shard = NULL;
  if (home_of(s) == SL_SPACE_DEVICE || lives_away(s, "act")) r->away = false;
  if (home_of(s) == SL_SPACE_DEVICE || lives_away(s, "state")) r->state = false;
  if (s->lower.experts.parallel < 2 || s->lower.experts.rows > 0) r->rows = 0;
  return r->recompute || r->shard || r->times > 1 || r->away || r->state || r->rows > 0;
}

/* Returns whether --schedule auto searches. Its candidates take least memory with one slot of
 * activations in every stage. */
static bool searches(const settings *s) { return !strcmp(s->lower.schedule.name, "auto"); }

static void pick_least(settings *t, sl_quota *quotas) {
  t->lower.schedule.name = "1f1b";
  if (!t->lower.schedule.chunks)
    t->lower.schedule.chunks = sl_schedule_chunks(t->lower.schedule.name);
  memcpy(quotas, t->lower.memory.quotas, (size_t)t->lower.memory.nquotas * sizeof *quotas);
  quotas[t->lower.memory.nquotas++] = (sl_quota){"act", SL_NONE, t->pieces};
  t->lower.memory.quotas = quotas;
}

static void send_away(settings *t, const remedy *r, sl_home *homes) {
  sl_home_options *o = &t->lower.memory.homes;
  if (o->count) memcpy(homes, o->homes, (size_t)o->count * sizeof *homes);
  if (r->away) homes[o->count++] = (sl_home){.name = "act", .space = home_of(t)};
  if (r->state) homes[o->count++] = (sl_home){.name = "state", .space = home_of(t)};
  o->homes = homes;
}

/* Returns whether all durations of a plan with this remedy are known. */
static bool knows_times(const settings *s, const remedy *r) {
  const sl_hardware *h = &s->modelled.hardware;
  bool moves = r->away || r->state || s->lower.memory.homes.count;
  bool rates = home_of(s) == SL_SPACE_HOST
                   ? h->copy_bytes_per_second > 0
                   : h->disk_read_bytes_per_second > 0 && h->disk_write_bytes_per_second > 0;
  return (s->profile || h->flops_per_second > 0) && (!moves || rates);
}

static double step_seconds(const sl_plan *plan) {
  sl_statistics f;
  if (sl_plan_predict(plan, NULL, &f)) return 0;
  free(f.devices);
  return f.step_seconds;
}

static size_t fullest_bytes(const sl_plan *plan, sl_space space) {
  size_t most = 0;
  for (int32_t d = 0; d < plan->ndevices; d++)
    most = SLI_MAX(most, plan->devices[d].room[space].arena_bytes);
  return most;
}

static need need_with(const settings *s, const sl_lower_options *run, const remedy *r) {
  settings t = *s;
  sl_lower_options other = *run;
  sl_quota quotas[s->lower.memory.nquotas + 1];
  sl_home homes[s->lower.memory.homes.count + 2];
  planned p;
  if (searches(s)) pick_least(&t, quotas);
  send_away(&t, r, homes);
  other.memory.recompute = r->recompute;
  other.memory.shard = r->shard;
  if (r->rows > 0) t.lower.experts.rows = r->rows;
  other.print.sharing = NULL, other.print.after = NULL;             /* no output */
  other.schedule.chosen = NULL, other.schedule.skip_in_turn = true; /* no search within this one */
  t.microbatches *= r->times;
  t.lower.devices.budget_bytes = 0;
  if (plan_make(&t, &other, &p)) return (need){0};
  need n = {.seconds = knows_times(s, r) ? step_seconds(p.plan) : 0};
  for (int space = 0; space < SL_SPACE_COUNT; space++)
    n.bytes[space] = fullest_bytes(p.plan, (sl_space)space);
  plan_free(&p);
  return n;
}

static void say(FILE *to, const char *option, const char *value) {
  if (value) fprintf(to, "--%s %s ", option, value);
}

/* Prints the memory needed. Host memory for sending to other processes is not mentioned. */
static void say_need(FILE *to, const settings *s, const remedy *r, const need *n) {
  char text[32];
  fprintf(to, "(%s", sli_format_bytes(text, (double)n->bytes[SL_SPACE_DEVICE]));
  for (int i = 0; i < SL_SPACE_COUNT; i++) {
    bool meant = i == SL_SPACE_DISK || ((r->away || r->state) && i == (int)home_of(s));
    if (i == SL_SPACE_DEVICE || !meant || !n->bytes[i]) continue;
    fprintf(to, ", and %s of %s", sli_format_bytes(text, (double)n->bytes[i]),
            sl_space_name((sl_space)i));
  }
  if (n->seconds > 0) fprintf(to, "; %s a step", sli_format_seconds(text, n->seconds));
  fprintf(to, ")");
}

static char *advice_describe(const settings *s, const remedy *r, const need *n) {
  char *text = NULL;
  size_t size;
  FILE *to = sli_memory_stream(&text, &size);
  if (searches(s)) fprintf(to, "--schedule 1f1b --quota act=%d ", s->pieces);
  say(to, "recompute", r->recompute);
  if (r->away) fprintf(to, "--home act=%s ", sl_space_name(home_of(s)));
  if (r->state) fprintf(to, "--home state=%s ", sl_space_name(home_of(s)));
  say(to, "shard", r->shard);
  if (r->rows > 0) fprintf(to, "--expert-rows %g ", r->rows);
  if (r->times > 1) fprintf(to, "--microbatches %d ", s->microbatches * r->times);
  say_need(to, s, r, n);
  fclose(to);
  return text;
}

typedef struct trial {
  const settings *s;
  const sl_lower_options *run;
  uint64_t until_ns;
  FILE *fits; /* remedies that fit, one after another */
  int nfits;
  char *least; /* the remedy that takes least memory, less than the refused plan; NULL: none does */
  size_t least_bytes; /* its bytes; before, those of the refused plan */
} trial;

static void try_one(trial *t, remedy r) {
  if (!adapt(t->s, &r) || sli_now_ns() > t->until_ns) return;
  need n = need_with(t->s, t->run, &r);
  size_t bytes = n.bytes[SL_SPACE_DEVICE], budget = t->s->lower.devices.budget_bytes;
  if (!bytes) return;
  char *text = advice_describe(t->s, &r, &n);
  if (!budget || bytes <= budget) fprintf(t->fits, "%s%s", t->nfits++ ? ", " : "", text);
  if (t->least_bytes && t->least_bytes <= bytes) {
    free(text);
    return;
  }
  free(t->least);
  t->least = text;
  t->least_bytes = bytes;
}

void advice_give(const settings *s, const sl_lower_options *run) {
  char *why = sli_strdup(sl_detail()), *text = NULL;
  size_t size;
  trial t = {.s = s, .run = run, .until_ns = sli_now_ns() + SECONDS_MOST * UINT64_C(1000000000)};
  t.fits = sli_memory_stream(&text, &size);
  t.least_bytes = need_with(s, run, &(remedy){.times = 1}).bytes[SL_SPACE_DEVICE];
  for (size_t i = 0; i < SLI_COUNT(single); i++) try_one(&t, single[i]);
  for (size_t i = 0; i < SLI_COUNT(together) && !t.nfits; i++) try_one(&t, together[i]);
  fclose(t.fits);
  if (t.nfits) sl_fail(SL_E_BUDGET, "%s; these would fit: %s", why, text);
  else if (t.least) sl_fail(SL_E_BUDGET, "%s; the smallest plan tried is %s", why, t.least);
  else sl_fail(SL_E_BUDGET, "%s; no other options that were tried take less", why);
  free(t.least);
  free(text);
  free(why);
}

/* ---- host memory --------------------------------------------------------------------------- */

/* Computes the memory of the job's devices on one host. Consecutive processes share a host. */
static size_t host_bytes(const settings *s, const sl_plan *plan, int nlocal, int *devices) {
  size_t bytes = 0;
  *devices = 0;
  for (int32_t d = 0; d < plan->ndevices; d++) {
    if (plan->devices[d].process / nlocal != s->process / nlocal) continue;
    bytes += sl_device_bytes(&plan->devices[d]);
    ++*devices;
  }
  return bytes;
}

sl_status advice_check_host(const settings *s, const sl_lower_options *run, const sl_plan *plan,
                            int nlocal) {
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind);
  int devices;
  size_t need = host_bytes(s, plan, SLI_MAX(nlocal, 1), &devices), have = sli_memory_bytes();
  if (!kind->cores || s->clock == SL_CLOCK_VIRTUAL || s->lower.devices.budget_bytes || need <= have)
    return SL_OK;
  char needs[32], has[32];
  sli_format_bytes(needs, (double)need);
  sli_format_bytes(has, (double)have);
  if (devices == 1) sl_fail(SL_E_BUDGET, "the plan needs %s but this host has %s", needs, has);
  else
    sl_fail(SL_E_BUDGET, "the plan's %d devices on this host need %s together but it has %s",
            devices, needs, has);
  sl_fail(SL_E_BUDGET, "%s (--memory SIZE plans for another budget per device)", sl_detail());
  settings t = *s;
  t.lower.devices.budget_bytes = have / (size_t)devices;
  advice_give(&t, run);
  return SL_E_BUDGET;
}
