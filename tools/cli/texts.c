/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/texts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/state.h>

#include "base/number.h"
#include "graph/devices/devices.h"
#include "graph/compile/compile.h"
#include "graph/lower/lower.h"
#include "tools/cli/cost.h"
#include "tools/cli/options.h"

const char *settings_text(const settings *s, const char *name) {
  const char *text = sl_arg_text(s->run, name);
  return *text ? text : NULL;
}

sl_dtype settings_dtype(const settings *s) {
  return strcmp(sl_arg_text(s->run, "dtype"), "bf16") ? SL_F32 : SL_BF16;
}

const char *settings_rate(const settings *s) {
  bool fp8 = !strcmp(sl_arg_text(s->run, "dtype"), "fp8");
  return fp8 ? "fp8" : sl_dtype_name(settings_dtype(s));
}

/* ---- devices ------------------------------------------------------------------------------ */

static sl_gpu_links read_links(const char *when) {
  if (!strcmp(when, "auto")) return SL_LINKS_AUTO;
  if (!strcmp(when, "channels")) return SL_LINKS_CHANNELS;
  return !strcmp(when, "on") ? SL_LINKS_DIRECT : SL_LINKS_HOST;
}

/* ---- durations and quotas ------------------------------------------------------------------ */

/* Appends the quotas of one --quota. Takes ownership of them. */
static void keep_quotas(settings *s, const sl_quota *read, int count, sl_quota *to) {
  for (int i = 0; i < count; i++) {
    sl_quota *q = &to[s->lower.memory.nquotas++];
    *q = read[i];
    q->name = sli_arena_strdup(&s->arena, read[i].name);
  }
}

static sl_status read_quotas(settings *s) {
  size_t values = 0;
  const char *text;
  for (int i = 0; (text = sl_arg_given(s->run, "quota", i)); i++, values++)
    for (; *text; text++) values += *text == ',';
  sl_quota *all = sli_arena_alloc(&s->arena, (values + 1) * sizeof *all);
  s->lower.memory.quotas = all;
  for (int i = 0; (text = sl_arg_given(s->run, "quota", i)); i++) {
    int n;
    sl_quota *read;
    sl_status status = sli_quota_read(text, &n, &read);
    if (status) return sl_fail(status, "--%s", sl_detail());
    keep_quotas(s, read, n, all);
    free(read);
  }
  return SL_OK;
}

/* Reads DIR, or DIR:SIZE if what follows the last colon is a size. */
static sl_status read_disk(settings *s) {
  const char *text = settings_text(s, "disk"), *colon = text ? strrchr(text, ':') : NULL, *at;
  if (!text) return SL_OK;
  size_t length = colon ? (size_t)(colon - text) : strlen(text);
  at = colon ? colon + 1 : NULL;
  if (!length || (colon && (!sli_number_read_size(&at, &s->lower.memory.homes.disk_bytes) || *at)))
    return sl_fail(SL_E_USAGE, "--disk %s: not DIR or DIR:SIZE, such as /var/tmp:20G", text);
  s->lower.memory.homes.disk = sli_arena_format(&s->arena, "%.*s", (int)length, text);
  return SL_OK;
}

/* Joins the --recompute values: "full,none@h.3". */
static void read_recompute(settings *s) {
  const char *text;
  s->lower.memory.recompute =
      sl_arg_given(s->run, "recompute", 0) ? "" : sl_arg_text(s->run, "recompute");
  for (int i = 0; (text = sl_arg_given(s->run, "recompute", i)); i++)
    s->lower.memory.recompute =
        sli_arena_format(&s->arena, "%s%s%s", s->lower.memory.recompute, i ? "," : "", text);
  s->lower.memory.shard = sl_arg_text(s->run, "shard");
}

sl_status settings_read_budget(settings *s) {
  const char *text = settings_text(s, "memory"), *at = text;
  if (!text || (sli_number_read_size(&at, &s->lower.devices.budget_bytes) && !*at)) return SL_OK;
  return sl_fail(SL_E_USAGE, "--memory %s: not a size such as 512M or 8G", text);
}

static sl_status read_host_memory(settings *s) {
  const char *text = settings_text(s, "host-memory"), *at = text;
  if (!text || (sli_number_read_size(&at, &s->lower.memory.homes.host_bytes) && !*at)) return SL_OK;
  return sl_fail(SL_E_USAGE, "--host-memory %s: not a size such as 64G", text);
}

/* Reads one --home. "auto" covers everything that other --home options do not mention. */
static sl_status read_home(settings *s, const char *text, sl_home *to) {
  bool choose = !strcmp(text, "auto");
  s->choose_homes |= choose;
  s->lower.memory.homes.count += !choose;
  return choose ? SL_OK : sli_home_read(text, &s->arena, to);
}

static sl_status read_homes(settings *s) {
  int n = 0;
  while (sl_arg_given(s->run, "home", n)) n++;
  sl_home *all = sli_arena_alloc(&s->arena, (size_t)(n + 1) * sizeof *all);
  s->lower.memory.homes.homes = all;
  sl_status status = SL_OK;
  for (int i = 0; i < n && !status; i++)
    status = read_home(s, sl_arg_given(s->run, "home", i), &all[s->lower.memory.homes.count]);
  if (status) return sl_fail(status, "--%s", sl_detail());
  status = read_host_memory(s);
  return status ? status : read_disk(s);
}

/* ---- training ------------------------------------------------------------------------------ */

/* Returns all values given for an option. */
static const char *const *given_texts(settings *s, const char *name, int *count) {
  for (*count = 0; sl_arg_given(s->run, name, *count);) ++*count;
  const char **texts = sli_arena_alloc(&s->arena, (size_t)(*count + 1) * sizeof *texts);
  for (int i = 0; i < *count; i++) texts[i] = sl_arg_given(s->run, name, i);
  return texts;
}

static bool is_known(const settings *s, const char *name) {
  for (int i = 0; i < s->adapters.count; i++)
    if (!strcmp(s->adapters.names[i], name)) return true;
  return false;
}

/* Reads NAME=DIR. *named is false if it is a folder without a name. */
static sl_status read_named(settings *s, const char *text, bool *named) {
  const char *equals = strchr(text, '=');
  *named = equals && access(text, F_OK);
  if (!*named) return SL_OK;
  char *name = sli_arena_format(&s->arena, "%.*s", (int)(equals - text), text);
  if (!*name || !equals[1]) return sl_fail(SL_E_USAGE, "--adapter %s: must be NAME=DIR", text);
  if (is_known(s, name))
    return sl_fail(SL_E_USAGE, "--adapter %s: the name %s is given twice", text, name);
  s->adapters.names[s->adapters.count] = name;
  s->adapters.folders[s->adapters.count++] = equals + 1;
  return SL_OK;
}

/* Reads --adapter: folders with names, and at most one without. */
static sl_status read_folders(settings *s, const char **dir) {
  int n;
  sl_status status = SL_OK;
  const char *const *given = given_texts(s, "adapter", &n);
  s->adapters.names = sli_arena_alloc(&s->arena, (size_t)(n + 1) * sizeof(char *));
  s->adapters.folders = sli_arena_alloc(&s->arena, (size_t)(n + 1) * sizeof(char *));
  for (int i = 0; i < n && !status; i++) {
    bool named;
    status = read_named(s, given[i], &named);
    if (status || named || !*given[i]) continue;
    if (*dir)
      return sl_fail(SL_E_USAGE, "--adapter %s: %s has no name either; give NAME=DIR", given[i],
                     *dir);
    *dir = given[i];
  }
  return status;
}

/* Reads the adapters. Adapters from a folder keep the ranks they were saved with, regardless of
 * patterns. */
static sl_status read_adapters(settings *s) {
  const char *dir = NULL;
  int given, found = 0;
  sl_status wrong = read_folders(s, &dir);
  if (wrong) return wrong;
  s->adapter = dir;
  const char *const *texts = given_texts(s, "lora", &given);
  char **modules = NULL;
  sl_status status = dir ? sl_adapter_modules(dir, &found, &modules) : SL_OK;
  if (status) return status;
  const char **all = sli_arena_alloc(&s->arena, (size_t)(given + found + 1) * sizeof *all);
  for (int i = 0; i < given; i++) all[i] = texts[i];
  for (int i = 0; i < found; i++) all[given + i] = sli_arena_strdup(&s->arena, modules[i]);
  free(modules);
  s->training.lora = all;
  s->training.nlora = given + found;
  return SL_OK;
}

/* Refuses a warm-up of the model beside a constant rate, which has none but its own. */
static sl_status check_warmup(const settings *s) {
  const char *schedule = settings_text(s, "lr-schedule"), *steps;
  bool has = s->model && sl_options_find(s->model->options, "warmup");
  steps = has ? sl_arg_given(s->model_args, "warmup", 0) : NULL;
  size_t name = schedule ? strcspn(schedule, ":") : 0;
  bool constant = name == strlen("constant") && !strncmp(schedule, "constant", name);
  if (!constant || !steps || !strtol(steps, NULL, 10)) return SL_OK;
  return sl_fail(SL_E_USAGE, "--lr-schedule %s: has no --warmup; constant:warmup=%s has", schedule,
                 steps);
}

static sl_status read_training(settings *s) {
  sl_training *t = &s->training;
  t->optimizer = settings_text(s, "optimizer");
  t->schedule = settings_text(s, "lr-schedule");
  t->steps = 1; /* plans do not depend on it; a run sets the real number */
  t->groups = given_texts(s, "group", &t->ngroups);
  t->frozen = given_texts(s, "freeze", &t->nfrozen);
  SLI_TRY(check_warmup(s));
  return read_adapters(s);
}

/* ---- grids --------------------------------------------------------------------------------- */

/* Reads one axis of a signature, "S0", "B" or "P", and sets *end after it. For "-" *found is
 * false. */
static bool read_sbp(const char *text, const char **end, sl_sbp *out, bool *found) {
  *found = *text != '-';
  *end = text + 1;
  *out = (sl_sbp){*text == 'P' ? SL_PARTIAL : *text == 'S' ? SL_SPLIT : SL_BROADCAST, 0};
  if (*text != 'S') return *text && strchr("BP-", *text);
  out->dim = text[1] - '0';
  *end = text + 2;
  return out->dim >= 0 && out->dim < SL_MAX_DIMS;
}

/* Reads one --sbp: "wte.weight=B,S0". */
static sl_status read_given(settings *s, const char *text, sl_given_sbp *to) {
  const char *equals = strrchr(text, '='), *at = equals ? equals + 1 : text;
  bool good = equals && equals > text;
  char *name = sli_arena_format(&s->arena, "%.*s", equals ? (int)(equals - text) : 0, text);
  for (int axis = 0; axis < 2 && good; axis++) {
    sl_sbp sbp;
    bool found;
    good = read_sbp(at, &at, &sbp, &found) && *at == (axis ? 0 : ',');
    if (good && found) to[s->lower.parallel.ngiven++] = (sl_given_sbp){name, axis, sbp};
    at++;
  }
  if (good) return SL_OK;
  return sl_fail(SL_E_USAGE, "--sbp %s: not NAME=DATA,TENSOR with S0..S%d, B, P or - for each",
                 text, SL_MAX_DIMS - 1);
}

enum { MOST_DEVICES = 1 << 16 };

int settings_ranks(const settings *s) {
  return s->lower.parallel.data * s->lower.parallel.sequence * s->lower.parallel.tensor;
}

static sl_status check_ranks(const settings *s) {
  int64_t ranks = (int64_t)s->lower.parallel.data *
                  s->lower.parallel.sequence; /* each factor is at most 2^16 */
  if (ranks <= MOST_DEVICES && ranks * s->lower.parallel.tensor <= MOST_DEVICES) return SL_OK;
  char *sequence = s->lower.parallel.sequence > 1
                       ? sli_format(" times --sequence %d", s->lower.parallel.sequence)
                       : sli_strdup("");
  sl_fail(SL_E_USAGE,
          "--data-parallel %d%s times --tensor %d: at most %d devices can share "
          "a stage",
          s->lower.parallel.data, sequence, s->lower.parallel.tensor, MOST_DEVICES);
  free(sequence);
  return SL_E_USAGE;
}

static sl_status read_grid(settings *s) {
  size_t texts = 0;
  while (sl_arg_given(s->run, "sbp", (int)texts)) texts++;
  sl_given_sbp *all = sli_arena_alloc(&s->arena, (2 * texts + 1) * sizeof *all);
  s->lower.parallel.given = all;
  sl_status status = SL_OK;
  for (size_t i = 0; i < texts && !status; i++)
    status = read_given(s, sl_arg_given(s->run, "sbp", (int)i), all);
  int *const sizes[] = {&s->lower.parallel.data, &s->lower.parallel.sequence,
                        &s->lower.parallel.tensor, &s->lower.experts.parallel};
  for (size_t i = 0; i < SLI_COUNT(sizes); i++) *sizes[i] = SLI_MAX(*sizes[i], 1);
  int parallel = (int)sl_arg_int(s->run, "parallel");
  if (!status && parallel > 1 && s->lower.parallel.data * s->lower.parallel.tensor > 1)
    status = sl_fail(SL_E_USAGE,
                     "--parallel %d replaces --data-parallel and --tensor: give one or the other",
                     parallel);
  if (!status) status = check_ranks(s);
  if (status) return status;
  s->lower.parallel.free_data = parallel > 1;
  if (s->lower.parallel.free_data) s->lower.parallel.tensor = parallel;
  if (!status && s->lower.parallel.data * s->lower.parallel.sequence == 1 &&
      strcmp(s->lower.memory.shard, "nothing"))
    status = sl_fail(
        SL_E_USAGE, "--shard %s: needs several devices per stage, by --data-parallel or --sequence",
        s->lower.memory.shard);
  return status;
}

/* Makes stages match the devices, or devices match what the stages need. */
static sl_status count_devices(settings *s) {
  int ranks = settings_ranks(s);
  int devices = s->lower.devices.count ? s->lower.devices.count : s->lower.devices.nnumbers;
  if (!s->lower.parallel.stages) s->lower.parallel.stages = SLI_MAX(devices / ranks, 1);
  if (s->lower.parallel.stages == 1 && s->lower.vocabulary.parallel)
    return sl_fail(SL_E_USAGE, "--vocab-parallel: needs several --stages");
  if ((int64_t)s->lower.parallel.stages * ranks > MOST_DEVICES)
    return sl_fail(SL_E_USAGE,
                   "%d stages of %d devices each are more than the maximum of %d devices",
                   s->lower.parallel.stages, ranks, MOST_DEVICES);
  if (!s->lower.devices.count) s->lower.devices.count = s->lower.parallel.stages * ranks;
  if (s->lower.devices.nnumbers > s->lower.devices.count)
    return sl_fail(SL_E_USAGE, "--devices %s: %d GPUs for %d stages%s",
                   sl_arg_text(s->run, "devices"), s->lower.devices.nnumbers,
                   s->lower.parallel.stages, ranks > 1 ? " with their grids" : "");
  return SL_OK;
}

void settings_occupy(settings *s) {
  int ranks = settings_ranks(s);
  bool said = sl_arg_given(s->run, "stages", 0) || sl_arg_given(s->run, "devices", 0);
  if (s->lower.devices.count >= s->lower.parallel.processes || said) return;
  s->lower.parallel.stages = (s->lower.parallel.processes + ranks - 1) / ranks;
  s->lower.devices.count = s->lower.parallel.stages * ranks;
}

/* Reads --clock. On the virtual clock no device computes: modelled devices replace real ones. */
static sl_status read_clock(settings *s) {
  s->clock = !strcmp(sl_arg_text(s->run, "clock"), "virtual") ? SL_CLOCK_VIRTUAL : SL_CLOCK_REAL;
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind), *model = sli_kind_model(kind);
  if (s->clock == SL_CLOCK_REAL || model == kind) return SL_OK;
  if (sl_arg_given(s->run, "devices", 0))
    return sl_fail(SL_E_USAGE, "--clock virtual runs on timed or null devices, not on %s",
                   sl_arg_text(s->run, "devices"));
  s->lower.devices.kind = model->name;
  return SL_OK;
}

void settings_warn(const settings *s) {
  const char *word = settings_text(s, "machine");
  if (word) hardware_warn(word, s->modelled.spread);
}

sl_status texts_read(settings *s) {
  sl_status status = options_check_words(s->run, s->tool->options);
  options_lower(s->run, s->tool->options, &s->lower);
  s->lower.numbers.dtype = settings_dtype(s);
  s->lower.numbers.seed = (uint64_t)sl_arg_int(s->run, "seed");
  if (!status)
    status = sli_devices_read(sl_arg_text(s->run, "devices"), &s->arena, &s->lower.devices);
  if (!status) s->lower.devices.links = read_links(sl_arg_text(s->run, "nccl"));
  if (!status) status = cost_read(s, sl_arg_text(s->run, "cost"));
  if (!status && settings_text(s, "profile"))
    status = profile_read(settings_text(s, "profile"), &s->profile);
  if (!status && settings_text(s, "machine"))
    status = hardware_read(settings_text(s, "machine"), settings_rate(s), s->tool->serves,
                           &s->arena, &s->modelled.hardware, &s->modelled.spread);
  if (!status) status = read_quotas(s);
  if (!status) status = read_homes(s);
  read_recompute(s);
  if (!status) status = read_grid(s);
  if (!status) status = read_clock(s);
  if (!status) status = read_training(s);
  if (status) return status;
  s->lower.devices.budget_bytes = s->modelled.hardware.memory_bytes;
  return count_devices(s);
}
