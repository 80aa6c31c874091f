/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace: analyzes the trace of a run with --trace. */
#include "tools/actortrace/actortrace.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/version.h>

#include "io/atomic.h"
#include "tools/cli/cli.h"

/* ---- commands --------------------------------------------------------------------- */

typedef struct command {
  const char *name, *help;
  sl_status (*run)(const sl_trace *t, const options *o, FILE *out);
} command;

static const command commands[] = {
    {"show",
     "a step as a timeline in the terminal, where the time went, what\n"
     "            held up the devices, the critical path, and which extra slot would\n"
     "            help most",
     command_show},
    {"page", "an interactive HTML page: zoom, search, memory and credits", command_page},
    {"svg", "a step as a figure for a paper", command_svg},
    {"rows",
     "one line per firing, tab-separated, with a header line:\n"
     "            step device class stage chunk microbatch piece start_ns end_ns\n"
     "            actor; stage along the model, chunk within its device, -1 if none",
     command_rows},
    {"reasons",
     "one line per idle time, tab-separated, with a header line:\n"
     "            step device reason register producer start_ns ns; idle, busy and\n"
     "            other lines add up to the span line",
     command_reasons},
    {"shares",
     "how busy each resource of a device was, each actor's share, and what\n"
     "            running beside others cost",
     command_shares},
    {"chrome", "trace events in JSON, for chrome://tracing and compatible viewers", command_chrome},
    {"perfetto", "a Perfetto trace, for ui.perfetto.dev", command_perfetto}};

static const char purpose[] = "Analyzes a trace written by actorrun --trace FILE.";
static const char usage[] =
    "actortrace COMMAND [options] FILE\n       actortrace diff [options] FILE FILE\n";

/* clang-format off */
static const sl_option offered[] = {
    {"output", SL_OPTION_TEXT, "", "`FILE` to write instead of standard output; short form: -o FILE", 0, 0},
    {"step", SL_OPTION_INT, "", "this step only; if not given, the typical one, or all", 0, 9e15},
    {"steps", SL_OPTION_INT, "", "svg: number of steps, from --step on", 0, INT32_MAX},
    {"device", SL_OPTION_INT, "", "this device only", 0, INT32_MAX},
    {"log", SL_OPTION_TEXT, "", "`FILE` of actorserve --log: adds each tick's rows of prompts and "
     "answers", 0, 0},
    {"queues", SL_OPTION_FLAG, "0", "show, svg: links, copies, disks and host queues too", 0, 0},
    {"width", SL_OPTION_INT, "", "show: columns; if not given, the terminal's width, or 100", 0, 10000},
    {"color", SL_OPTION_FLAG, "0", "show: with colors; if neither is given, only on a terminal", 0, 0},
    {"no-color", SL_OPTION_FLAG, "0", "show: without colors", 0, 0},
    {"version", SL_OPTION_FLAG, "0", "show the version, and exit", 0, 0},
    {"help", SL_OPTION_FLAG, "0", "show this help", 0, 0},
    {0}};
/* clang-format on */

static void print_usage(FILE *out) {
  fprintf(out, "Usage: %s\n%s\n\nCommands:\n", usage, purpose);
  for (size_t i = 0; i < SLI_COUNT(commands); i++)
    fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].help);
  fputs(
      "  diff      what got slower from the first trace to the second: by actor, by\n"
      "            reason, by device\n"
      "\n"
      "Options:\n",
      out);
  sl_options_print(offered, out);
}

/* Prints a command's help without the indentation of its continuation lines. */
static void print_command_row(const char *name, const char *help) {
  char text[512];
  size_t n = 0;
  for (; *help && n + 1 < sizeof text; help++)
    if (*help != ' ' || help[1] != ' ') text[n++] = *help;
  text[n] = 0;
  manual_row(name, text);
}

static void print_manual(void) {
  manual_begin("actortrace", purpose, usage);
  manual_section("Commands");
  for (size_t i = 0; i < SLI_COUNT(commands); i++)
    print_command_row(commands[i].name, commands[i].help);
  manual_row("diff",
             "what got slower from the first trace to the second: by actor, by reason, by device");
  manual_section("Options");
  manual_options(offered);
}

static void print_completion(void) {
  completion_options("actortrace", offered);
  completion_commands("actortrace", "show page svg rows reasons shares chrome perfetto diff");
  completion_end("actortrace");
}

static const command *find_command(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(commands); i++)
    if (!strcmp(commands[i].name, name)) return &commands[i];
  return NULL;
}

/* ---- command line ------------------------------------------------------------------ */

static sl_status read_number(const sl_option *row, const char *text, int64_t *out) {
  char *end = NULL;
  long long n = strtoll(text, &end, 10);
  if (end == text || *end || n < 0 || (double)n > row->max)
    return sl_fail(SL_E_USAGE, "--%s %s: not a number between 0 and %.15g", row->name, text,
                   row->max);
  *out = n;
  return SL_OK;
}

static const sl_option *find_row(const char *word) {
  if (!strcmp(word, "-o")) return offered;
  for (const sl_option *row = offered; row->name; row++)
    if (!strncmp(word, "--", 2) && !strcmp(row->name, word + 2)) return row;
  return NULL;
}

static void set(options *o, const char *name, const char *text, int64_t n) {
  if (!strcmp(name, "output")) o->out = text;
  else if (!strcmp(name, "log")) o->log = text;
  else if (!strcmp(name, "step")) o->step = n;
  else if (!strcmp(name, "steps")) o->steps = n;
  else if (!strcmp(name, "device")) o->device = (int32_t)n;
  else if (!strcmp(name, "width")) o->width = (int)n;
  else if (!strcmp(name, "queues")) o->queues = true;
  else if (!strcmp(name, "color")) o->color = 1;
  else if (!strcmp(name, "no-color")) o->color = 0;
}

static sl_status read_option(char **argv, int *at, options *o) {
  const char *word = argv[*at], *text = NULL;
  const sl_option *row = find_row(word);
  int64_t n = 0;
  sl_status status = SL_OK;
  if (!row || !strcmp(row->name, "help") || !strcmp(row->name, "version"))
    return sl_fail(SL_E_USAGE, "unknown option %s; actortrace --help lists them", word);
  if (row->kind != SL_OPTION_FLAG && !(text = argv[++*at]))
    return sl_fail(SL_E_USAGE, "%s needs a value", word);
  if (row->kind == SL_OPTION_INT) status = read_number(row, text, &n);
  if (!status) set(o, row->name, text, n);
  return status;
}

static sl_status read_words(char **argv, options *o) {
  for (int i = 2; argv[i]; i++) {
    sl_status status = SL_OK;
    if (argv[i][0] == '-' && argv[i][1]) status = read_option(argv, &i, o);
    else if (!o->path) o->path = argv[i];
    else if (!o->other) o->other = argv[i];
    else status = sl_fail(SL_E_USAGE, "%s: one file too many", argv[i]);
    if (status) return status;
  }
  return SL_OK;
}

/* ---- running a command ---------------------------------------------------------------- */

static sl_status read_trace(const char *path, const options *o, sl_trace **out) {
  sl_trace *t;
  sl_status status = sl_trace_read(path, &t);
  if (status) return status;
  if (t->truncated) sli_log("note: %s is truncated; its newest firings are missing", path);
  if (t->damaged)
    sli_log("note: the firings of %s are damaged; %" PRIu64
            " are left out, and others may be "
            "wrong",
            path, t->impossible);
  if (t->dropped)
    sli_log("note: the %" PRIu64 " oldest firings did not fit into %s", t->dropped, path);
  if (o->device >= t->plan->ndevices) {
    status = sl_fail(SL_E_USAGE, "--device %d: %s has %d devices, from 0", o->device, path,
                     t->plan->ndevices);
    sl_trace_destroy(t);
    return status;
  }
  *out = t;
  return SL_OK;
}

static sl_status run_command(const command *c, const options *o, const sl_trace *a,
                             const sl_trace *b, FILE *out) {
  sl_status status = c ? c->run(a, o, out) : command_diff(a, b, o, out);
  if (status) return status;
  if (fflush(out) != 0 || ferror(out))
    return sl_fail(SL_E_IO, "writing %s failed: %s", out == stdout ? "the standard output" : o->out,
                   strerror(errno ? errno : EIO));
  return SL_OK;
}

static sl_status run_to_file(const command *c, const options *o, const sl_trace *a,
                             const sl_trace *b) {
  if (!o->out || !strcmp(o->out, "-")) return run_command(c, o, a, b, stdout);
  sli_atomic_file file;
  sl_status status = sli_atomic_open(o->out, &file);
  if (status) return status;
  status = run_command(c, o, a, b, file.stream);
  if (!status) return sli_atomic_commit(&file);
  sli_atomic_abandon(&file);
  return status;
}

static sl_status unknown_command(const char *word) {
  const char *names[SLI_COUNT(commands) + 2] = {"diff"};
  for (size_t i = 0; i < SLI_COUNT(commands); i++) names[i + 1] = commands[i].name;
  const char *near = sli_nearest(names, word);
  if (near) return sl_fail(SL_E_USAGE, "unknown command %s; did you mean %s?", word, near);
  return sl_fail(SL_E_USAGE, "unknown command %s; actortrace --help lists them", word);
}

static sl_status actortrace_main_run(char **argv) {
  options o = {.step = -1, .device = -1, .color = -1};
  const command *c = find_command(argv[1]);
  bool diff = !strcmp(argv[1], "diff");
  if (!c && !diff) return unknown_command(argv[1]);
  sl_status status = read_words(argv, &o);
  if (status) return status;
  if (!o.path || diff != (o.other != NULL))
    return sl_fail(SL_E_USAGE, "actortrace %s takes %s", argv[1], diff ? "two FILEs" : "one FILE");
  sl_trace *a = NULL, *b = NULL;
  ticks taken = {0};
  status = read_trace(o.path, &o, &a);
  if (!status && diff) status = read_trace(o.other, &o, &b);
  if (!status && o.log) status = ticks_open(o.log, a, &taken);
  if (o.log) o.ticks = &taken;
  if (!status) status = run_to_file(c, &o, a, b);
  ticks_close(&taken);
  sl_trace_destroy(a);
  sl_trace_destroy(b);
  return status;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_DFL); /* exit silently if a pager is closed */
  if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
    print_usage(stdout);
    return outputs_end("actortrace", SL_OK, 0);
  }
  bool manual = argc == 2 && !strcmp(argv[1], "--print-man");
  if (manual || (argc == 2 && !strcmp(argv[1], "--print-completion"))) {
    manual ? print_manual() : print_completion();
    return outputs_end("actortrace", SL_OK, 0);
  }
  if (argc == 2 && !strcmp(argv[1], "--version")) {
    printf("actortrace %s\n", sl_version());
    return outputs_end("actortrace", SL_OK, 0);
  }
  sl_status status = argc < 2
                         ? sl_fail(SL_E_USAGE, "no command was given; actortrace --help lists them")
                         : actortrace_main_run(argv);
  return outputs_end("actortrace", status, 0);
}
