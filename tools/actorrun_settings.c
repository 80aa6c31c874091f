/* The command line: `actorrun [options] MODEL [model options]`.
 *
 * One table of options makes the parser, the help and the report. After MODEL
 * its own options are known too and come first. */
#include "tools/actorrun.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "models/models.h"

const sl_option run_options[] = {
    {"devices", SL_OPTION_TEXT, "cpu", "`SPEC`: cpu[:N[xT]] (N devices of T cores each; all cores "
     "are shared out if T is left out), timed:N (modelled durations, no data) or null:N (no work "
     "at all)", 0, 0},
    {"stages", SL_OPTION_INT, "0", "pipeline devices the model is cut over; 0: one per device, "
     "or 1", 0, 1 << 16},
    {"chunks", SL_OPTION_INT, "0", "chunks of the model each device holds; 0: as many as the "
     "schedule is for, or 1", 0, 1 << 16},
    {"placement", SL_OPTION_TEXT, "", "`ORDER` of the chunks: line, loop or vee; the schedule's "
     "own if not given", 0, 0},
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
     "act.w, act for both, pool, param, load), at one stage or at all; may be repeated", 0, 0},
    {"memory", SL_OPTION_TEXT, "", "budget of each device, a `SIZE` such as 512M or 8G", 0, 0},
    {"activations", SL_OPTION_FLOAT, "0", "with --schedule auto: most microbatches' worth of "
     "activations a device may hold; 0: any number", 0, 1e9},
    {"clock", SL_OPTION_TEXT, "real", "`KIND`: real or virtual (nothing is computed; modelled "
     "durations, as fast as can be)", 0, 0},
    {"cost", SL_OPTION_TEXT, "", "seconds of one chunk's pass on timed devices, a `LIST` such as "
     "F=1,B=1,W=1,comm=0; estimated from the ops if not given", 0, 0},
    {"machine", SL_OPTION_TEXT, "", "modelled hardware for timed devices: a `FILE`, or the name of "
     "a shipped one (a100-sxm-80gb, h100-sxm-80gb, h100-sxm-80gb-nvlink)", 0, 0},
    {"profile", SL_OPTION_TEXT, "", "`FILE`: durations of ops as an earlier run measured them (its "
     "--report), at the same microbatch size", 0, 0},
    {"dtype", SL_OPTION_TEXT, "fp32", "`TYPE` of what matrix products multiply: fp32, or bf16 where "
     "the CPU has AMX or AVX512-BF16; weights and sums are fp32", 0, 0},
    {"steps", SL_OPTION_INT, "100", "optimizer steps", 0, 1e15},
    {"seed", SL_OPTION_INT, "1", "of initial values and sampling", 0, 9e15},
    {"init", SL_OPTION_TEXT, "", "`FILE` (safetensors) with the values to start from", 0, 0},
    {"save", SL_OPTION_TEXT, "", "`FILE` (safetensors) for the values at the end", 0, 0},
    {"report", SL_OPTION_TEXT, "", "`FILE` (JSON) for the figures of the run", 0, 0},
    {"trace", SL_OPTION_TEXT, "", "`FILE` for what ran when and waited for what (see actortrace)",
     0, 0},
    {"plan", SL_OPTION_TEXT, "", "`FILE` for the plan as text", 0, 0},
    {"dry-run", SL_OPTION_FLAG, "0", "stop before anything is allocated: show the plan, its "
     "memory and that it can finish", 0, 0},
    {"show-placement", SL_OPTION_FLAG, "0", "show which cores the devices get, and stop", 0, 0},
    {"generate", SL_OPTION_INT, "0", "tokens to write with the model at the end", 0, 1e9},
    {"prompt", SL_OPTION_TEXT, "", "`TEXT` to continue, a new line if not given; numbers for "
     "a vocabulary that is not bytes", 0, 0},
    {"temperature", SL_OPTION_FLOAT, "0.8", "of sampling; 0: always the likeliest", 0, 1000},
    {"workers", SL_OPTION_INT, "0", "threads that run the event loops; 0: one per device", 0, 4096},
    {"jitter", SL_OPTION_FLOAT, "0", "delay every firing by up to so many microseconds at "
     "random, a test of timing", 0, 1e6},
    {"watchdog", SL_OPTION_FLOAT, "30", "seconds without any progress before showing who waits "
     "for whom; negative: never", -1, 1e9},
    {"quiet", SL_OPTION_FLAG, "0", "no progress and no summary", 0, 0},
    {"version", SL_OPTION_FLAG, "0", "show the version, and stop", 0, 0},
    {"help", SL_OPTION_FLAG, "0", "show this, or after MODEL its options", 0, 0},
    {0}};

/* ---- help ------------------------------------------------------------------------ */

static void print_help(void) {
  printf("Usage: actorrun [options] MODEL [model options]\n"
         "       actorrun ctl PID quota [NAME[@STAGE]=N]\n\n"
         "Trains a model over a pipeline of devices. MODEL is one of those below, a shared\n"
         "object (FILE.so) or a C file (FILE.c), which is compiled on the spot.\n\nModels:\n");
  for (const sl_model *const *m = sli_models; *m; m++)
    printf("  %-22s%s\n", (*m)->name, (*m)->summary);
  printf("\nOptions:\n");
  sl_options_print(run_options, stdout);
  printf("\nSchedules:\n");
  for (const char *const *name = sl_schedule_names(); *name; name++)
    printf("  %-22s%s\n", *name, sl_schedule_summary(*name));
  printf("\nExit status: 0 done; 1 the run failed; 2 the command line or an input is wrong;\n"
         "3 the plan cannot finish or does not fit in memory.\n");
}

static void print_model_help(const sl_model *model) {
  printf("Usage: actorrun [options] %s [model options]\n\n%s\n\nModel options:\n", model->name,
         model->summary);
  sl_options_print(model->options, stdout);
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

static sl_status read_devices(const char *spec, sl_device_options *out) {
  static const char *const kinds[] = {"cpu", "timed", "null"};
  for (size_t i = 0; i < SLI_COUNT(kinds); i++) {
    size_t n = strlen(kinds[i]);
    if (strncmp(spec, kinds[i], n)) continue;
    sl_device_options devices = {.kind = kinds[i]};
    const char *at = spec + n;
    bool good = !*at || (*at++ == ':' && read_count(&at, &devices.count));
    if (good && i == 0 && *at == 'x') at++, good = read_count(&at, &devices.threads);
    if (!good || *at) break;
    *out = devices;
    return SL_OK;
  }
  return sl_fail(SL_E_USAGE, "--devices %s: not cpu[:N[xT]], timed[:N] or null[:N]", spec);
}

/* "512M", "8G", "1.5GiB". */
static sl_status read_size(const char *text, size_t *out) {
  char *end;
  double v = strtod(text, &end);
  const char *units = "KMGT", *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
  double scale = 1;
  if (unit) {
    for (const char *u = units; u <= unit; u++) scale *= 1024;
    end++;
    if (*end == 'i') end++;
  }
  if (*end == 'B') end++;
  if (end == text || *end || !(v * scale >= 1) || v * scale > 1e18)
    return sl_fail(SL_E_USAGE, "--memory %s: not a size such as 512M or 8G", text);
  *out = (size_t)(v * scale);
  return SL_OK;
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

/* "act.b@2=4" */
static sl_status read_quota(const char *text, sl_quota *quota, char **name) {
  const char *equals = strchr(text, '='), *at = strchr(text, '@');
  if (at && equals && at > equals) at = NULL;
  if (!equals || equals == text || at == text)
    return sl_fail(SL_E_USAGE, "--quota %s: not NAME=N or NAME@STAGE=N", text);
  char *end;
  long stage = SL_NONE;
  if (at) {
    stage = strtol(at + 1, &end, 10);
    if (end == at + 1 || end != equals || stage < 0 || stage > 1 << 20)
      return sl_fail(SL_E_USAGE, "--quota %s: the stage is not a number", text);
  }
  errno = 0;
  long slots = strtol(equals + 1, &end, 10);
  if (end == equals + 1 || *end || errno || slots > 1 << 24)
    return sl_fail(SL_E_USAGE, "--quota %s: the number of slots is not a number", text);
  if (slots < 1)
    return sl_fail(SL_E_USAGE, "--quota %s: a register needs at least one slot", text);
  *name = sli_format("%.*s", (int)((at ? at : equals) - text), text);
  *quota = (sl_quota){.name = *name, .stage = (int)stage, .slots = (int)slots};
  return SL_OK;
}

static sl_status read_quotas(settings *s) {
  int n = 0;
  while (sl_arg_given(s->run, "quota", n)) n++;
  s->quotas = sli_calloc((size_t)n, sizeof *s->quotas);
  s->quota_names = sli_calloc((size_t)n, sizeof *s->quota_names);
  for (; s->nquotas < n; s->nquotas++) {
    sl_status status = read_quota(sl_arg_given(s->run, "quota", s->nquotas),
                                  &s->quotas[s->nquotas], &s->quota_names[s->nquotas]);
    if (status) return status;
  }
  return SL_OK;
}

/* One of a few words; "" passes where it is allowed. */
static sl_status check_word(const sl_args *args, const char *option, const char *const *words) {
  const char *text = sl_arg_text(args, option);
  char list[512] = "";
  size_t at = 0;
  for (; *words; words++) {
    if (!strcmp(text, *words)) return SL_OK;
    if (**words && at < sizeof list)
      at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", *words);
  }
  return sl_fail(SL_E_USAGE, "--%s %s: it is one of %s", option, text, list);
}

static sl_status read_texts(settings *s) {
  const sl_args *run = s->run;
  sl_status status = check_word(run, "placement", (const char *[]){"", "line", "loop", "vee", 0});
  if (!status) status = check_word(run, "backward", (const char *[]){"", "fused", "split", 0});
  if (!status) status = check_word(run, "cut", (const char *[]){"even", "balanced", 0});
  if (!status) status = check_word(run, "clock", (const char *[]){"real", "virtual", 0});
  if (!status) status = check_word(run, "dtype", (const char *[]){"fp32", "bf16", 0});
  if (!status) status = check_word(run, "schedule", sl_schedule_names());
  if (!status) status = read_devices(sl_arg_text(run, "devices"), &s->devices);
  if (!status && *sl_arg_text(run, "memory"))
    status = read_size(sl_arg_text(run, "memory"), &s->devices.budget_bytes);
  if (!status) status = read_cost(sl_arg_text(run, "cost"), &s->cost);
  if (!status && *sl_arg_text(run, "profile"))
    status = profile_read(sl_arg_text(run, "profile"), &s->profile);
  if (!status && *sl_arg_text(run, "machine"))
    status = hardware_read(sl_arg_text(run, "machine"), SL_F32, &s->hardware);
  if (s->hardware.memory_bytes && !s->devices.budget_bytes)
    s->devices.budget_bytes = s->hardware.memory_bytes;
  if (!status) status = read_quotas(s);
  if (status) return status;
  s->clock = !strcmp(sl_arg_text(run, "clock"), "virtual") ? SL_CLOCK_VIRTUAL : SL_CLOCK_REAL;
  if (s->clock == SL_CLOCK_VIRTUAL && !strcmp(s->devices.kind, "cpu")) {
    if (sl_arg_given(run, "devices", 0))
      return sl_fail(SL_E_USAGE, "--clock virtual runs on timed or null devices, not on %s",
                     sl_arg_text(run, "devices"));
    s->devices.kind = "timed";
  }
  s->stages = (int)sl_arg_int(run, "stages");
  if (!s->stages) s->stages = s->devices.count ? s->devices.count : 1;
  if (!s->devices.count) s->devices.count = s->stages;
  s->chunks = (int)sl_arg_int(run, "chunks");
  bool searched = !strcmp(sl_arg_text(run, "schedule"), "auto"); /* chunks too */
  if (!s->chunks && !searched) s->chunks = sl_schedule_chunks(sl_arg_text(run, "schedule"));
  return SL_OK;
}

/* What makes sense only together, or not together. */
static sl_status check_together(const settings *s) {
  bool data = !strcmp(s->devices.kind, "cpu");
  static const char *const need_data[] = {"init", "save"};
  for (size_t i = 0; i < SLI_COUNT(need_data) && !data; i++)
    if (*sl_arg_text(s->run, need_data[i]))
      return sl_fail(SL_E_USAGE, "--%s: %s devices hold no values", need_data[i], s->devices.kind);
  if (!data && sl_arg_int(s->run, "generate"))
    return sl_fail(SL_E_USAGE, "--generate: %s devices hold no values", s->devices.kind);
  return SL_OK;
}

/* ---- words --------------------------------------------------------------------------- */

static sl_status unknown_option(const settings *s, const char *word) {
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
  const char *bare = name + strspn(name, "-");
  const char *near = s->model ? sl_options_nearest(s->model->options, bare) : NULL;
  if (!near) near = sl_options_nearest(run_options, bare);
  if (near) return sl_fail(SL_E_USAGE, "unknown option %s; did you mean --%s?", name, near);
  return sl_fail(SL_E_USAGE, "unknown option %s; actorrun --help lists them", name);
}

/* Takes one option from the front of the words. */
static sl_status take_option(settings *s, int nwords, char **words, int *used) {
  sl_status status = SL_OK;
  *used = 0;
  if (!strcmp(words[0], "-h")) {
    *used = 1;
    return sl_args_set(s->run, "help", "1");
  }
  if (s->model) status = sl_args_take(s->model_args, nwords, words, used);
  if (!status && !*used) status = sl_args_take(s->run, nwords, words, used);
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

sl_status settings_read(int argc, char **argv, settings *out) {
  *out = (settings){0};
  sl_status status = sl_args_create(run_options, &out->run);
  if (!status) status = take_words(out, argc - 1, argv + 1);
  if (status) return status;
  out->done = true;
  if (sl_arg_flag(out->run, "help")) {
    out->model ? print_model_help(out->model) : print_help();
    return SL_OK;
  }
  if (sl_arg_flag(out->run, "version")) {
    printf("actorrun %s\n", SLUICE_VERSION);
    return SL_OK;
  }
  out->done = false;
  if (!out->model && !sl_arg_flag(out->run, "show-placement"))
    return sl_fail(SL_E_USAGE, "no MODEL was given; actorrun --help shows how");
  if (out->model && (status = sl_args_complete(out->model_args))) return status;
  status = read_texts(out);
  return status ? status : check_together(out);
}

void settings_fini(settings *s) {
  profile_destroy(s->profile);
  sl_args_destroy(s->run);
  sl_args_destroy(s->model_args);
  for (int i = 0; i < s->nquotas; i++) free(s->quota_names[i]);
  free(s->quota_names);
  free(s->quotas);
}
