/* The command line: `TOOL [options] MODEL [model options]`.
 *
 * One table of options makes the parser, the help and the report. After MODEL
 * its own options are known too and come first. */
#include "tools/common/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/state/state.h"
#include "models/models.h"
#include "tools/common/model.h"

static const sl_option plan_options[] = {
    {"devices", SL_OPTION_TEXT, "cpu", "`SPEC`: cpu[:N[xT]] (N devices of T cores each; all cores "
     "are shared out if T is left out), cuda[:N,N,...] (GPUs by number, all if none is named; "
     "more stages than that take turns), timed:N (modelled durations, no data) or null:N (no "
     "work at all)", 0, 0},
    {"nccl", SL_OPTION_TEXT, "auto", "between GPUs of several processes, `WHEN`: auto (where the "
     "GPUs have different numbers and the library is found), on, or off (over the host)", 0, 0},
    {"stages", SL_OPTION_INT, "0", "pipeline devices the model is cut over; 0: one per device, "
     "or 1", 0, 1 << 16},
    {"chunks", SL_OPTION_INT, "0", "chunks of the model each device holds; 0: as many as the "
     "schedule is for, or 1", 0, 1 << 16},
    {"placement", SL_OPTION_TEXT, "", "`ORDER` of the chunks: line, loop or vee; the schedule's "
     "own if not given", 0, 0},
    {"data-parallel", SL_OPTION_INT, "1", "devices (or groups of --tensor devices) of each stage "
     "that share out the rows of a microbatch", 1, 1 << 16},
    {"tensor", SL_OPTION_INT, "1", "devices of each stage that share out the tensors: which way is "
     "searched for (--show-sbp shows it), or given by --sbp", 1, 1 << 16},
    {"parallel", SL_OPTION_INT, "1", "devices of each stage that share the work in whatever way is "
     "cheapest, rows of data or tensors: instead of the two above", 1, 1 << 16},
    {"shard", SL_OPTION_TEXT, "nothing", "what the --data-parallel devices share out instead of each "
     "having all, `WHAT`: nothing, optimizer, gradients (and optimizer), or parameters (and both)",
     0, 0},
    {"sbp", SL_OPTION_TEXT, "", "`NAME=DATA,TENSOR`: how a parameter, or what an op makes, lies along "
     "both axes of a stage's devices: S0, S1, ... (split along that dim), B (broadcast), P (partial "
     "sums), - (as is best); may be repeated", 0, 0},
    {"grain", SL_OPTION_TEXT, "", "`SIZE` of an actor: pass (a stage's whole pass) or layer; layer "
     "with --data-parallel, so that gradients are exchanged while others are made, else pass", 0, 0},
    {"recompute", SL_OPTION_TEXT, "none", "activations that are computed again on the way back "
     "instead of kept, `WHAT`: none, selective (by ops that cost next to nothing) or full (all of a "
     "block but what it reads of others)", 0, 0},
    {"microbatches", SL_OPTION_INT, "1", "parts a step's batch is cut into", 1, 1 << 20},
    {"pieces", SL_OPTION_INT, "1", "parts the sequences of a microbatch are cut into, along their "
     "positions", 1, 1 << 20},
    {"cut", SL_OPTION_TEXT, "even", "lengths of the pieces, `HOW`: even, or balanced (each takes "
     "the same time forward)", 0, 0},
    {"schedule", SL_OPTION_TEXT, "1f1b", "`NAME` of the quotas and class order to start from, "
     "listed below", 0, 0},
    {"backward", SL_OPTION_TEXT, "", "fused or split: input and weight gradients as one pass or "
     "two; the `WAY` of the schedule if not given", 0, 0},
    {"order", SL_OPTION_TEXT, "", "`FILE` with the passes of each device in a fixed order "
     "(lines like 0: F0 F0 B0 B0), or derive: the order that emerges without latency", 0, 0},
    {"look-ahead", SL_OPTION_FLOAT, "0", "seconds a modelled device idles for a better pass that "
     "is about to become ready", 0, 1e9},
    {"quota", SL_OPTION_TEXT, "", "`NAME[@STAGE]=N`: N slots for registers of that name (act.b, "
     "act.w, act for both, pool, param, load), at one stage or at all; N,N,... for one stage after "
     "another, - for one to leave as it is; may be repeated", 0, 0},
    {"memory", SL_OPTION_TEXT, "", "budget of each device, a `SIZE` such as 512M or 8G", 0, 0},
    {"clock", SL_OPTION_TEXT, "real", "`KIND`: real or virtual (nothing is computed; modelled "
     "durations, as fast as can be)", 0, 0},
    {"cost", SL_OPTION_TEXT, "", "seconds of one chunk's pass on timed devices, a `LIST` such as "
     "F=1,B=1,W=1,comm=0; estimated from the ops if not given", 0, 0},
    {"machine", SL_OPTION_TEXT, "", "modelled hardware for timed devices: a `FILE`, or the name of "
     "a shipped one (a100-sxm-80gb, h100-sxm-80gb, h100-sxm-80gb-nvlink)", 0, 0},
    {"profile", SL_OPTION_TEXT, "", "`FILE`: durations of ops as an earlier run measured them (its "
     "--report), at the same microbatch size", 0, 0},
    {"dtype", SL_OPTION_TEXT, "fp32", "`TYPE` of what matrix products multiply: fp32, or bf16 "
     "where the CPU has AMX or AVX512-BF16, and on GPUs, where activations are bf16 as well; "
     "weights and sums are fp32", 0, 0},
    {"seed", SL_OPTION_INT, "1", "of initial values and sampling", 0, 9e15},
    {"version", SL_OPTION_FLAG, "0", "show the version, and stop", 0, 0},
    {"help", SL_OPTION_FLAG, "0", "show this, or after MODEL its options", 0, 0},
    {0}};

/* ---- the table ------------------------------------------------------------------ */

static const sl_option *find_option(const sl_option *options, const char *name) {
  for (; options->name; options++)
    if (!strcmp(options->name, name)) return options;
  return NULL;
}

/* The shared options, each replaced by the tool's of that name if it has one, and
 * the rest of the tool's before the last two. */
static sl_option *make_table(const tool *tool) {
  size_t n = 0, own = 0;
  while (tool->options[own].name) own++;
  sl_option *table = sli_calloc(SLI_COUNT(plan_options) + own, sizeof *table);
  for (const sl_option *o = plan_options; o->name; o++) {
    if (!strcmp(o->name, "version"))
      for (const sl_option *x = tool->options; x->name; x++)
        if (!find_option(plan_options, x->name)) table[n++] = *x;
    const sl_option *other = find_option(tool->options, o->name);
    table[n++] = other ? *other : *o;
  }
  return table;
}

/* ---- help ------------------------------------------------------------------------ */

static void print_help(const settings *s) {
  printf("Usage: %s [options] MODEL [model options]\n%s\n%s MODEL is one of those below, a shared\n"
         "object (FILE.so) or a C file (FILE.c), which is compiled on the spot.\n\nModels:\n",
         s->tool->name, s->tool->usage ? s->tool->usage : "", s->tool->purpose);
  for (const sl_model *const *m = sli_models; *m; m++)
    printf("  %-22s%s\n", (*m)->name, (*m)->summary);
  printf("\nOptions:\n");
  sl_options_print(s->options, stdout);
  printf("\nSchedules:\n");
  for (const char *const *name = sl_schedule_names(); *name; name++)
    printf("  %-22s%s\n", *name, sl_schedule_summary(*name));
  printf("\nExit status: 0 done; 1 the run failed; 2 the command line or an input is wrong;\n"
         "3 the plan cannot finish or does not fit in memory.\n");
}

static void print_model_help(const settings *s) {
  printf("Usage: %s [options] %s [model options]\n\n%s\n\nModel options:\n", s->tool->name,
         s->model->name, s->model->summary);
  sl_options_print(s->model->options, stdout);
}

/* ---- texts of options -------------------------------------------------------------- */

/* A whole number from 1 at the start of a text. */
static bool read_count(const char **text, int *out) {
  if (!isdigit((unsigned char)**text)) return false;
  char *end;
  errno = 0;
  long v = strtol(*text, &end, 10);
  if (errno || v < 1 || v > 1 << 20) return false;
  *text = end;
  *out = (int)v;
  return true;
}

/* "0,2,0,2": GPUs by number. */
static bool read_numbers(const char **text, int *out, int *count) {
  for (int n = 0;; n++, ++*text) {
    char *end;
    errno = 0;
    long v = isdigit((unsigned char)**text) ? strtol(*text, &end, 10) : -1;
    if (v < 0 || errno || v > 1 << 20) return false;
    out[n] = (int)v;
    *count = n + 1;
    *text = end;
    if (*end != ',') return true;
  }
}

/* What stands behind the colon, for each kind of device. */
static bool read_cpus(const char **text, settings *s) {
  if (!read_count(text, &s->devices.count)) return false;
  return **text != 'x' || (++*text, read_count(text, &s->devices.threads));
}

static bool read_gpus(const char **text, settings *s) {
  s->devices.numbers = s->numbers = sli_calloc(strlen(*text) + 1, sizeof *s->numbers);
  return read_numbers(text, s->numbers, &s->devices.nnumbers);
}

static bool read_models(const char **text, settings *s) {
  return read_count(text, &s->devices.count);
}

static sl_status read_devices(const char *spec, settings *s) {
  static const struct {
    const char *name;
    bool (*read)(const char **text, settings *s);
  } kinds[] = {{"cpu", read_cpus}, {"cuda", read_gpus}, {"timed", read_models},
               {"null", read_models}};
  for (size_t i = 0; i < SLI_COUNT(kinds); i++) {
    size_t n = strlen(kinds[i].name);
    if (strncmp(spec, kinds[i].name, n)) continue;
    s->devices.kind = kinds[i].name;
    const char *at = spec + n;
    if (!*at || (*at++ == ':' && kinds[i].read(&at, s) && !*at)) return SL_OK;
    break;
  }
  return sl_fail(SL_E_USAGE, "--devices %s: not cpu[:N[xT]], cuda[:N,N,...], timed[:N] or null[:N]",
                 spec);
}

static sl_gpu_links read_links(const char *when) {
  if (!strcmp(when, "auto")) return SL_LINKS_AUTO;
  return !strcmp(when, "on") ? SL_LINKS_DIRECT : SL_LINKS_HOST;
}

bool settings_size(const char *text, const char **end, size_t *out) {
  char *at;
  double v = strtod(text, &at);
  const char *units = "KMGT", *unit = *at ? strchr(units, toupper((unsigned char)*at)) : NULL;
  double scale = 1;
  if (unit) {
    for (const char *u = units; u <= unit; u++) scale *= 1024;
    at++;
    if (*at == 'i') at++;
  }
  if (*at == 'B') at++;
  if (at == text || !(v * scale >= 1) || v * scale > 1e18) return false;
  *end = at;
  *out = (size_t)(v * scale);
  return true;
}

static sl_status read_cost(const char *text, sl_cost *out) {
  struct {
    const char *name;
    double *value;
  } parts[] = {{"F", &out->F}, {"B", &out->B}, {"W", &out->W}, {"comm", &out->comm}};
  for (const char *at = text; *at;) {
    size_t i = 0, n = strcspn(at, "=");
    while (i < SLI_COUNT(parts) && (strlen(parts[i].name) != n || strncmp(parts[i].name, at, n)))
      i++;
    char *end = NULL;
    double v = at[n] ? strtod(at + n + 1, &end) : -1;
    if (i == SLI_COUNT(parts) || !(v >= 0 && v < 1e9) || end == at + n + 1 ||
        (*end && *end != ','))
      return sl_fail(SL_E_USAGE, "--cost %s: not a list such as F=1,B=1,W=1,comm=0", text);
    *parts[i].value = v;
    at = end + (*end == ',');
  }
  return SL_OK;
}

static sl_status read_quota(settings *s, const char *text) {
  int n;
  sl_quota *read;
  sl_status status = sli_quota_read(text, &n, &read);
  if (status) return sl_fail(status, "--%s", sl_detail());
  s->quota_texts[s->ntexts++] = read;
  for (int i = 0; i < n; i++) s->quotas[s->nquotas++] = read[i];
  return SL_OK;
}

static sl_status read_quotas(settings *s) {
  size_t texts = 0, values = 0;
  for (const char *text; (text = sl_arg_given(s->run, "quota", (int)texts)); texts++, values++)
    for (; *text; text++) values += *text == ',';
  s->quotas = sli_calloc(values, sizeof *s->quotas);
  s->quota_texts = sli_calloc(texts, sizeof *s->quota_texts);
  sl_status status = SL_OK;
  for (size_t i = 0; i < texts && !status; i++)
    status = read_quota(s, sl_arg_given(s->run, "quota", (int)i));
  return status;
}

sl_status settings_check_word(const char *option, const char *text, const char *const *words) {
  char list[512] = "";
  size_t at = 0;
  for (; *words; words++) {
    if (!strcmp(text, *words)) return SL_OK;
    if (**words && at < sizeof list)
      at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", *words);
  }
  return sl_fail(SL_E_USAGE, "--%s %s: it is one of %s", option, text, list);
}

const char *settings_text(const settings *s, const char *name) {
  const char *text = sl_arg_text(s->run, name);
  return *text ? text : NULL;
}

sl_dtype settings_dtype(const settings *s) {
  return strcmp(sl_arg_text(s->run, "dtype"), "bf16") ? SL_F32 : SL_BF16;
}

static const struct {
  const char *option, *words[5];
} checks[] = {{"placement", {"", "line", "loop", "vee"}},
              {"backward", {"", "fused", "split"}},
              {"cut", {"even", "balanced"}},
              {"shard", {"nothing", "optimizer", "gradients", "parameters"}},
              {"grain", {"", "pass", "layer"}},
              {"recompute", {"none", "selective", "full"}},
              {"clock", {"real", "virtual"}},
              {"nccl", {"auto", "on", "off"}},
              {"dtype", {"fp32", "bf16"}}};

const char *const *settings_words(const char *option) {
  for (size_t i = 0; i < SLI_COUNT(checks); i++)
    if (!strcmp(checks[i].option, option)) return checks[i].words;
  return NULL;
}

static sl_status check_words(const settings *s) {
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(checks) && !status; i++)
    status = settings_check_word(checks[i].option, sl_arg_text(s->run, checks[i].option),
                                 checks[i].words);
  return status;
}

/* "S0", "B", "P" up to *end, or "-": *found is false. */
static bool read_sbp(const char *text, const char **end, sl_sbp *out, bool *found) {
  *found = *text != '-';
  *end = text + 1;
  *out = (sl_sbp){*text == 'P' ? SL_PARTIAL : *text == 'S' ? SL_SPLIT : SL_BROADCAST, 0};
  if (*text != 'S') return *text && strchr("BP-", *text);
  out->dim = text[1] - '0';
  *end = text + 2;
  return out->dim >= 0 && out->dim < SL_MAX_DIMS;
}

/* "wte.weight=B,S0" */
static sl_status read_given(settings *s, const char *text) {
  const char *equals = strrchr(text, '='), *at = equals ? equals + 1 : text;
  bool good = equals && equals > text;
  char *name = sli_format("%.*s", equals ? (int)(equals - text) : 0, text);
  s->given_names[s->ngiven_names++] = name;
  for (int axis = 0; axis < 2 && good; axis++) {
    sl_sbp sbp;
    bool found;
    good = read_sbp(at, &at, &sbp, &found) && *at == (axis ? 0 : ',');
    if (good && found) s->given[s->ngiven++] = (sl_given_sbp){name, axis, sbp};
    at++;
  }
  if (good) return SL_OK;
  return sl_fail(SL_E_USAGE, "--sbp %s: not NAME=DATA,TENSOR with S0..S%d, B, P or - for each", text,
                 SL_MAX_DIMS - 1);
}

enum { MOST_DEVICES = 1 << 16 };

static sl_status read_grid(settings *s) {
  size_t texts = 0;
  while (sl_arg_given(s->run, "sbp", (int)texts)) texts++;
  s->given = sli_calloc(2 * texts, sizeof *s->given);
  s->given_names = sli_calloc(texts, sizeof *s->given_names);
  sl_status status = SL_OK;
  for (size_t i = 0; i < texts && !status; i++)
    status = read_given(s, sl_arg_given(s->run, "sbp", (int)i));
  s->data_parallel = (int)sl_arg_int(s->run, "data-parallel");
  s->tensor = (int)sl_arg_int(s->run, "tensor");
  int parallel = (int)sl_arg_int(s->run, "parallel");
  if (!status && parallel > 1 && s->data_parallel * s->tensor > 1)
    status = sl_fail(SL_E_USAGE, "--parallel %d decides by itself what --data-parallel and --tensor "
                     "would say: not both", parallel);
  if (!status && (int64_t)s->data_parallel * s->tensor > MOST_DEVICES)
    status = sl_fail(SL_E_USAGE, "--data-parallel %d times --tensor %d: at most %d devices can share "
                     "a stage", s->data_parallel, s->tensor, MOST_DEVICES);
  if (status) return status;
  s->free_data = parallel > 1;
  if (s->free_data) s->tensor = parallel;
  if (!status && s->data_parallel == 1 && strcmp(sl_arg_text(s->run, "shard"), "nothing"))
    status = sl_fail(SL_E_USAGE, "--shard %s: among which devices? --data-parallel says",
                     sl_arg_text(s->run, "shard"));
  return status;
}

/* As many stages as there are devices for, or as many devices as the stages need. */
static sl_status count_devices(settings *s) {
  int ranks = s->data_parallel * s->tensor;
  int devices = s->devices.count ? s->devices.count : s->devices.nnumbers;
  s->stages = (int)sl_arg_int(s->run, "stages");
  if (!s->stages) s->stages = SLI_MAX(devices / ranks, 1);
  if ((int64_t)s->stages * ranks > MOST_DEVICES)
    return sl_fail(SL_E_USAGE, "%d stages of %d devices each: at most %d devices are possible",
                   s->stages, ranks, MOST_DEVICES);
  if (!s->devices.count) s->devices.count = s->stages * ranks;
  if (s->devices.nnumbers > s->devices.count)
    return sl_fail(SL_E_USAGE, "--devices %s: %d GPUs for %d stages%s", sl_arg_text(s->run, "devices"),
                   s->devices.nnumbers, s->stages, ranks > 1 ? " with their grids" : "");
  return SL_OK;
}

/* On the virtual clock there are no CPU devices: they are modelled ones. */
static sl_status read_clock(settings *s) {
  s->clock = !strcmp(sl_arg_text(s->run, "clock"), "virtual") ? SL_CLOCK_VIRTUAL : SL_CLOCK_REAL;
  if (s->clock == SL_CLOCK_REAL || !sl_device_computes(s->devices.kind)) return SL_OK;
  if (sl_arg_given(s->run, "devices", 0))
    return sl_fail(SL_E_USAGE, "--clock virtual runs on timed or null devices, not on %s",
                   sl_arg_text(s->run, "devices"));
  s->devices.kind = "timed";
  return SL_OK;
}

static sl_status read_texts(settings *s) {
  sl_status status = check_words(s);
  if (!status) status = read_devices(sl_arg_text(s->run, "devices"), s);
  if (!status) s->devices.links = read_links(sl_arg_text(s->run, "nccl"));
  if (!status) status = read_cost(sl_arg_text(s->run, "cost"), &s->cost);
  if (!status && settings_text(s, "profile"))
    status = profile_read(settings_text(s, "profile"), &s->profile);
  if (!status && settings_text(s, "machine"))
    status = hardware_read(settings_text(s, "machine"), settings_dtype(s), &s->hardware);
  if (!status) status = read_quotas(s);
  if (!status) status = read_grid(s);
  if (!status) status = read_clock(s);
  if (status) return status;
  s->devices.budget_bytes = s->hardware.memory_bytes;
  if ((status = count_devices(s))) return status;
  return s->tool->read(s);
}

/* ---- words --------------------------------------------------------------------------- */

static sl_status unknown_option(const settings *s, const char *word) {
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
  const char *bare = name + strspn(name, "-");
  const char *near = s->model ? sl_options_nearest(s->model->options, bare) : NULL;
  if (!near) near = sl_options_nearest(s->options, bare);
  if (near) return sl_fail(SL_E_USAGE, "unknown option %s; did you mean --%s?", name, near);
  return sl_fail(SL_E_USAGE, "unknown option %s; %s --help lists them", name, s->tool->name);
}

/* Takes one option from the front of the words. */
static sl_status take_option(settings *s, int nwords, char **words, int *used) {
  static char help[] = "--help", processes[] = "--processes"; /* -h and -n */
  char *full = !strcmp(words[0], "-h") ? help : !strcmp(words[0], "-n") ? processes : NULL;
  sl_status status = SL_OK;
  *used = 0;
  if (full)
    status = sl_args_take(s->run, nwords, (char *[]){full, nwords > 1 ? words[1] : NULL}, used);
  else if (s->model) status = sl_args_take(s->model_args, nwords, words, used);
  if (!full && !status && !*used) status = sl_args_take(s->run, nwords, words, used);
  if (!status && !*used) status = unknown_option(s, words[0]);
  return status;
}

static sl_status take_model(settings *s, const char *word) {
  s->model_word = word;
  sl_status status = model_find(word, &s->model);
  return status ? status : sl_args_create(s->model->options, &s->model_args);
}

static sl_status take_words(settings *s, int nwords, char **words) {
  for (int i = 0, used; i < nwords; i += used) {
    sl_status status;
    used = 1;
    if (words[i][0] == '-' && words[i][1])
      status = take_option(s, nwords - i, words + i, &used);
    else if (!s->model)
      status = take_model(s, words[i]);
    else
      status = sl_fail(SL_E_USAGE, "%s: one model at a time, and this is no option", words[i]);
    if (status) return status;
  }
  return SL_OK;
}

sl_status settings_read(const tool *tool, int argc, char **argv, settings *out) {
  *out = (settings){.tool = tool, .options = make_table(tool)};
  sl_status status = sl_args_create(out->options, &out->run);
  if (!status) status = take_words(out, argc - 1, argv + 1);
  if (status) return status;
  out->done = true;
  if (sl_arg_flag(out->run, "help")) {
    out->model ? print_model_help(out) : print_help(out);
    return SL_OK;
  }
  if (sl_arg_flag(out->run, "version")) {
    printf("%s %s\n", tool->name, SLUICE_VERSION);
    return SL_OK;
  }
  out->done = false;
  bool needed = !tool->without_model || !sl_arg_flag(out->run, tool->without_model);
  if (!out->model && needed)
    return sl_fail(SL_E_USAGE, "no MODEL was given; %s --help shows how", tool->name);
  if (out->model && (status = sl_args_complete(out->model_args))) return status;
  return read_texts(out);
}

void settings_fini(settings *s) {
  profile_destroy(s->profile);
  sl_args_destroy(s->run);
  sl_args_destroy(s->model_args);
  for (int i = 0; i < s->ntexts; i++) free(s->quota_texts[i]);
  for (int i = 0; i < s->ngiven_names; i++) free(s->given_names[i]);
  free(s->given_names);
  free(s->given);
  free(s->quota_texts);
  free(s->quotas);
  free(s->numbers);
  free(s->options);
}
