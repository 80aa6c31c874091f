/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/options.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/options.h>

#include "base/memory.h"

/* Options of plans that are not fields of lowering, or that a parser turns into fields. */
/* clang-format off */
static const tool_option other_options[] = {
    {"devices", SL_OPTION_TEXT, "cpu", "`SPEC`: cpu[:N[xT]] (N devices of T cores each; without xT "
     "all cores are split evenly), cuda[:N,N,...] (GPUs by number, all if none is named; stages take turns if "
     "they outnumber the GPUs), timed:N (modelled durations, no data) or null:N (no work at all)", 0, 0, GROUP_PARALLEL},
    {"nccl", SL_OPTION_TEXT, "auto", "`WHAT` goes over NCCL: auto (data between GPUs of different "
     "processes, and sums and gathers within a stage where that is cheaper, if GPU numbers differ and the library is "
     "found), on (the same on any GPUs, and on modelled devices), channels (no sums or gathers) or off (neither)", 0, 0, GROUP_PARALLEL},
    {"parallel", SL_OPTION_INT, "1", "devices of each stage that share the work, by batch rows or by "
     "tensors, whichever is cheapest; replaces --data-parallel and --tensor", 1, 1 << 16, GROUP_PARALLEL},
    {"sbp", SL_OPTION_TEXT, "", "`NAME=DATA,TENSOR`: how a parameter or an op's output is laid out "
     "over both axes of a stage's devices: S0, S1, ... (split along that dim), B (broadcast), P (partial sums), - "
     "(chosen automatically); may be repeated", 0, 0, GROUP_PARALLEL},
    {"optimizer", SL_OPTION_TEXT, "", "`NAME[:KEY=N,...]`: adamw, adam, sgd, lion or muon instead of "
     "the model's optimizer; keys: lr, min-lr, beta1, beta2, eps, decay, clip, momentum, nesterov, adamw-lr", 0, 0, GROUP_TRAINING},
    {"lr-schedule", SL_OPTION_TEXT, "", "`NAME[:KEY=N,...]` of the learning rate schedule: constant, "
     "linear, cosine or wsd; keys: warmup, decay-begin, decay-steps, min-lr; the model's if not given", 0, 0, GROUP_TRAINING},
    {"group", SL_OPTION_TEXT, "", "`PATTERN:lr=N,decay=N,optimizer=NAME`: peak learning rate, weight "
     "decay and optimizer of parameters whose names match, such as h.*.ln*; may be repeated", 0, 0, GROUP_TRAINING},
    {"freeze", SL_OPTION_TEXT, "", "`PATTERN` of parameters to freeze; may be repeated", 0,
     0, GROUP_TRAINING},
    {"lora", SL_OPTION_TEXT, "", "`PATTERN=RANK[,alpha=N]`: add LoRA adapters of this rank to the "
     "linear layers whose names match, and train only the adapters; alpha is RANK if not given; may be repeated", 0, 0, GROUP_TRAINING},
    {"adapter", SL_OPTION_TEXT, "", "`DIR` with PEFT adapters to start from; actorserve: also "
     "NAME=DIR, a model of that name; may be repeated there", 0, 0, GROUP_TRAINING},
    {"microbatches", SL_OPTION_INT, "1", "microbatches that a step's batch is cut into", 1, 1 << 20, GROUP_SCHEDULE},
    {"pieces", SL_OPTION_INT, "1", "pieces that the sequences of a microbatch are cut into, along "
     "their positions", 1, 1 << 20, GROUP_SCHEDULE},
    {"cut", SL_OPTION_TEXT, "even", "lengths of the pieces, `HOW`: even, or balanced (equal forward "
     "time)", 0, 0, GROUP_SCHEDULE},
    {"quota", SL_OPTION_TEXT, "", "`NAME[@STAGE]=N`: number of slots of the registers of that name "
     "(act.b, act.w, act for both, pool, param, load), at one stage or at all; N,N,... sets one stage after "
     "another, - leaves a stage unchanged; may be repeated", 0, 0, GROUP_MEMORY},
    {"home", SL_OPTION_TEXT, "", "`NAME[@BLOCK]=HOME`: where registers of that name (act.b, act.w, "
     "act for both, kv with --piece-order layers, state, weights), made by blocks of that name (h.31, h.*), are "
     "kept between uses: device, host (with GPUs), disk or peer:N (the N-th device further along the pipeline); may be repeated; auto chooses the fastest homes within "
     "--memory, --host-memory and --disk for everything else", 0, 0, GROUP_MEMORY},
    {"host-memory", SL_OPTION_TEXT, "", "host memory that each device may use, a `SIZE`", 0, 0, GROUP_MEMORY},
    {"disk", SL_OPTION_TEXT, "", "`DIR[:SIZE]` for data kept on disk, and the space each device may "
     "use there; $TMPDIR, or /var/tmp, if not given", 0, 0, GROUP_MEMORY},
    {"memory", SL_OPTION_TEXT, "", "memory budget of each device, a `SIZE` such as 512M or 8G", 0, 0, GROUP_MEMORY},
    {"clock", SL_OPTION_TEXT, "real", "`KIND`: real, or virtual (computes nothing; modelled "
     "durations pass as fast as possible)", 0, 0, GROUP_SCHEDULE},
    {"cost", SL_OPTION_TEXT, "", "seconds per pass of a chunk on timed devices, a `LIST` such as "
     "F=1,B=1,W=1,comm=0, or F=1:1:2,B=2 stage by stage; head.F=1:1:1 is the part of block head that "
     "--vocab-parallel spreads; per pass of a device's whole share if --schedule auto chooses the number of "
     "chunks; estimated from the ops if not given", 0, 0, GROUP_SCHEDULE},
    {"machine", SL_OPTION_TEXT, "", "modelled hardware for timed devices: a `FILE`, a shipped "
     "machine (a100-sxm-80gb, h100-sxm-80gb, h100-sxm-80gb-nvlink), here (this machine as measured by actortune "
     "machine, one device per core) or here-whole (one device with all cores)", 0, 0, GROUP_SCHEDULE},
    {"profile", SL_OPTION_TEXT, "", "`FILE` with measured op durations: the --report of an earlier "
     "run with the same microbatch size", 0, 0, GROUP_SCHEDULE},
    {"dtype", SL_OPTION_TEXT, "fp32", "`TYPE` of the inputs of matrix products: fp32, or bf16 (on "
     "CPUs with AMX or AVX512-BF16, and on GPUs, where activations are bf16 too); weights and sums stay fp32", 0, 0, GROUP_TRAINING},
    {"seed", SL_OPTION_INT, "1", "random seed of initial values and sampling", 0, 9e15, GROUP_TRAINING},
    {"config", SL_OPTION_TEXT, "", "`FILE` (TOML) with options by name; its table [model] has the "
     "model's name and options; the command line overrides it", 0, 0, GROUP_OUTPUT},
    {"print-config", SL_OPTION_FLAG, "0", "print all given options as a --config file, and exit", 0, 0, GROUP_OUTPUT},
    {"version", SL_OPTION_FLAG, "0", "show the version, and exit", 0, 0, GROUP_OUTPUT},
    {"help", SL_OPTION_FLAG, "0", "show this help, or after MODEL the model's options", 0, 0, GROUP_OUTPUT},
    {0}};
/* clang-format on */

/* ---- names -------------------------------------------------------------------------------- */

static bool goes_on(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Returns the longest field name that begins here, or NULL if there is none. */
static const sl_lower_field *field_at(const char *text, size_t *length) {
  const sl_lower_field *found = NULL;
  *length = 0;
  for (const sl_lower_field *f = sl_lower_fields(); f->field; f++) {
    size_t n = strlen(f->field);
    bool whole = !strncmp(text, f->field, n) && !goes_on(text[n]) &&
                 (text[n] != '.' || !goes_on(text[n + 1]));
    if (whole && n > *length) found = f, *length = n;
  }
  return found;
}

char *options_named(const char *text) {
  char *out = NULL;
  size_t bytes, length;
  FILE *to = sli_memory_stream(&out, &bytes);
  for (const char *at = text; *at; at += length) {
    bool inside = at > text && (goes_on(at[-1]) || at[-1] == '.' || at[-1] == '/');
    const sl_lower_field *f = inside ? NULL : field_at(at, &length);
    if (f) fprintf(to, "--%s", f->option.name);
    else fputc(*at, to), length = 1;
  }
  fclose(to);
  return out;
}

/* ---- tables ------------------------------------------------------------------------------- */

static option_group group_of(const sl_lower_field *f) {
  static const struct {
    const char *fields;
    option_group group;
  } groups[] = {
      {"schedule.", GROUP_SCHEDULE}, {"memory.", GROUP_MEMORY}, {"numbers.", GROUP_TRAINING}};
  for (size_t i = 0; i < SLI_COUNT(groups); i++)
    if (!strncmp(f->field, groups[i].fields, strlen(groups[i].fields))) return groups[i].group;
  return GROUP_PARALLEL;
}

enum { MOST_OPTIONS = 128 };
static tool_option
    plan_options[MOST_OPTIONS]; /* fields of lowering, then other_options; ends with {0} */
static pthread_once_t made = PTHREAD_ONCE_INIT;

/* Makes the table. The texts are never freed. */
static void make_plan_options(void) {
  size_t n = 0;
  for (const sl_lower_field *f = sl_lower_fields(); f->field; f++) {
    const sl_option *o = &f->option;
    if (!o->help) continue;
    SLI_CHECK(n + SLI_COUNT(other_options) < MOST_OPTIONS, "no room for --%s", o->name);
    plan_options[n++] = (tool_option){o->name, o->kind, o->value,   options_named(o->help),
                                      o->min,  o->max,  group_of(f)};
  }
  memcpy(plan_options + n, other_options, sizeof other_options);
}

static const tool_option *shared_options(void) {
  pthread_once(&made, make_plan_options);
  return plan_options;
}

static const tool_option *find_option(const tool_option *options, const char *name) {
  for (; options->name; options++)
    if (!strcmp(options->name, name)) return options;
  return NULL;
}

static sl_option plain(const tool_option *o) {
  return (sl_option){o->name, o->kind, o->value, o->help, o->min, o->max};
}

/* Inserts the tool's additional options before the last two. */
sl_option *options_table(const tool_option *own) {
  size_t n = 0, count = 0;
  while (own[count].name) count++;
  sl_option *table = sli_calloc(MOST_OPTIONS + count, sizeof *table);
  for (const tool_option *o = shared_options(); o->name; o++) {
    if (!strcmp(o->name, "version"))
      for (const tool_option *x = own; x->name; x++)
        if (!find_option(shared_options(), x->name)) table[n++] = plain(x);
    const tool_option *other = find_option(own, o->name);
    table[n++] = plain(other ? other : o);
  }
  return table;
}

option_group options_group(const tool_option *own, const char *name) {
  const tool_option *o = find_option(own, name);
  if (!o) o = find_option(shared_options(), name);
  SLI_CHECK(o, "there is no option --%s", name);
  return o->group;
}

static bool has_word(const char *const *words, const char *word) {
  while (*words && strcmp(*words, word)) words++;
  return *words;
}

sl_option *options_offered(const sl_option *table, const tool_option *own,
                           const char *const *shared) {
  size_t n = 0, count = 0;
  while (table[count].name) count++;
  sl_option *offered = sli_calloc(count + 1, sizeof *offered);
  for (const sl_option *o = table; o->name; o++)
    if (!shared || has_word(shared, o->name) || find_option(own, o->name)) offered[n++] = *o;
  return offered;
}

/* ---- words ------------------------------------------------------------------------------ */

sl_status options_check_word(const char *option, const char *text, const char *const *words) {
  char list[512] = "", meant[SLI_MEANT_TEXT];
  size_t at = 0;
  sli_meant(meant, words, text);
  for (; *words; words++) {
    if (!strcmp(text, *words)) return SL_OK;
    if (**words && at < sizeof list)
      at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", *words);
  }
  return sl_fail(SL_E_USAGE, "--%s %s: must be one of %s%s", option, text, list, meant);
}

static const struct {
  const char *option, *words[5];
} checks[] = {{"cut", {"even", "balanced"}},
              {"clock", {"real", "virtual"}},
              {"nccl", {"auto", "on", "channels", "off"}},
              {"dtype", {"fp32", "bf16"}}};

const char *const *options_words(const char *option) {
  for (size_t i = 0; i < SLI_COUNT(checks); i++)
    if (!strcmp(checks[i].option, option)) return checks[i].words;
  for (const sl_lower_field *f = sl_lower_fields(); f->field; f++)
    if (!strcmp(f->option.name, option)) return f->words;
  return NULL;
}

const char *const *options_completed(const tool_option *own, const char *option) {
  if (!strcmp(option, "schedule")) return sl_schedule_names();
  return find_option(own, option) ? NULL : options_words(option);
}

/* Checks a text. Of WORD@BLOCK, which --recompute accepts, only the word is checked. */
static sl_status check_text(const tool_option *o, const char *text) {
  if (!*text && !*o->value) return SL_OK;
  char *word = sli_strdup(text);
  if (!strcmp(o->name, "recompute")) word[strcspn(word, "@")] = 0;
  sl_status status = options_check_word(o->name, word, options_words(o->name));
  free(word);
  return status;
}

sl_status options_check_words(const sl_args *args, const tool_option *own) {
  sl_status status = SL_OK;
  for (const tool_option *o = shared_options(); o->name; o++) {
    const char *text;
    bool free_text = find_option(own, o->name) || !options_words(o->name);
    for (int n = 0; !free_text && !status && (text = sl_arg_given(args, o->name, n)); n++)
      status = check_text(o, text);
  }
  return status;
}

/* ---- as fields of lowering ------------------------------------------------------------------ */

static void set_field(const sl_args *args, const sl_lower_field *f, void *at) {
  const char *name = f->option.name;
  switch (f->option.kind) {
  case SL_OPTION_INT: *(int *)at = (int)sl_arg_int(args, name); return;
  case SL_OPTION_FLOAT: *(double *)at = sl_arg_float(args, name); return;
  case SL_OPTION_FLAG: *(bool *)at = sl_arg_flag(args, name); return;
  case SL_OPTION_TEXT:
  case SL_OPTION_LIST: break;
  }
  const char *text = sl_arg_text(args, name);
  *(const char **)at = *text ? text : NULL;
}

void options_lower(const sl_args *args, const tool_option *own, sl_lower_options *to) {
  for (const sl_lower_field *f = sl_lower_fields(); f->field; f++)
    if (f->option.help && !find_option(own, f->option.name) &&
        sl_arg_given(args, f->option.name, 0))
      set_field(args, f, (char *)to + f->offset);
}
