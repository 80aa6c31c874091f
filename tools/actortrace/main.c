/* actortrace: analyzes the trace of a run with --trace. */
#include "tools/actortrace/actortrace.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "io/atomic.h"
#include "tools/common/common.h"

/* ---- commands --------------------------------------------------------------------- */

typedef struct command {
  const char *name, *help;
  sl_status (*run)(const sl_trace *t, const options *o, FILE *out);
} command;

static const command commands[] = {
    {"show", "a step as a picture in the terminal, where the time went, what held\n"
     "            the devices up, the critical path, and which extra slot would help most",
     command_show},
    {"page", "one HTML file to look around in: zoom, search, memory and credits", command_page},
    {"svg", "a step as a figure for a paper", command_svg},
    {"rows", "one line per firing, tab-separated, with a header line:\n"
     "            step device class stage chunk microbatch piece start_ns end_ns\n"
     "            actor; stage along the model, chunk within its device, -1: none",
     command_rows},
    {"reasons", "one line per idle time, tab-separated, with a header line:\n"
     "            step device reason register producer start_ns ns; with the lines of\n"
     "            busy and other they add up to the line of the span",
     command_reasons},
    {"chrome", "trace events in JSON, for chrome://tracing and its relatives",
     command_chrome},
    {"perfetto", "a Perfetto trace, for ui.perfetto.dev", command_perfetto}};

static void print_usage(FILE *out) {
  fputs("Usage: actortrace COMMAND [options] FILE\n"
        "       actortrace diff [options] FILE FILE\n\n"
        "Reads a trace that actorrun --trace FILE has written.\n\n"
        "Commands:\n", out);
  for (size_t i = 0; i < SLI_COUNT(commands); i++)
    fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].help);
  fputs("  diff      what got slower from the first trace to the second: by actor, by\n"
        "            reason, by device\n\n"
        "Options:\n"
        "  -o FILE       write there and not to the standard output\n"
        "  --step N      this step; else the typical one, or all\n"
        "  --steps N     svg: so many steps, from --step on\n"
        "  --device N    this device only\n"
        "  --log FILE    of actorserve --log: rows of prompts and answers of each tick\n"
        "  --queues      show, svg: links, copies, disks and host queues too\n"
        "  --width N     show: columns; else the terminal's width, or 100\n"
        "  --color, --no-color\n"
        "                show: with colours or without; else as the output is a terminal\n"
        "  --help, --version\n", out);
}

static const command *find_command(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(commands); i++)
    if (!strcmp(commands[i].name, name)) return &commands[i];
  return NULL;
}

/* ---- command line ------------------------------------------------------------------ */

static sl_status read_number(const char *option, const char *text, int64_t most, int64_t *out) {
  char *end = NULL;
  long long n = text ? strtoll(text, &end, 10) : 0;
  if (!text) return sl_fail(SL_E_USAGE, "%s needs a value", option);
  if (end == text || *end || n < 0 || n > most)
    return sl_fail(SL_E_USAGE, "%s %s: not a number between 0 and %lld", option, text,
                   (long long)most);
  *out = n;
  return SL_OK;
}

static sl_status read_option(char **argv, int *at, options *o) {
  const char *word = argv[*at];
  int64_t n = 0;
  sl_status status;
  if (!strcmp(word, "--color")) return o->color = 1, SL_OK;
  if (!strcmp(word, "--no-color")) return o->color = 0, SL_OK;
  if (!strcmp(word, "--queues")) return o->queues = true, SL_OK;
  if (!strcmp(word, "-o")) {
    o->out = argv[++*at];
    return o->out ? SL_OK : sl_fail(SL_E_USAGE, "-o needs a value");
  }
  if (!strcmp(word, "--log")) {
    o->log = argv[++*at];
    return o->log ? SL_OK : sl_fail(SL_E_USAGE, "--log needs a value");
  }
  if (!strcmp(word, "--step")) {
    status = read_number(word, argv[++*at], INT64_MAX, &n);
    if (!status) o->step = n;
  } else if (!strcmp(word, "--steps")) {
    status = read_number(word, argv[++*at], INT32_MAX, &n);
    if (!status) o->steps = n;
  } else if (!strcmp(word, "--device")) {
    status = read_number(word, argv[++*at], INT32_MAX, &n);
    if (!status) o->device = (int32_t)n;
  } else if (!strcmp(word, "--width")) {
    status = read_number(word, argv[++*at], 10000, &n);
    if (!status) o->width = (int)n;
  } else {
    status = sl_fail(SL_E_USAGE, "unknown option %s; actortrace --help lists them", word);
  }
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
    sli_log("note: the firings of %s are damaged; %" PRIu64 " are left out, and others may be "
            "wrong", path, t->impossible);
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
    return sl_fail(SL_E_IO, "writing %s failed: %s", out == stdout ? "the standard output" : o->out, strerror(errno ? errno : EIO));
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

static sl_status run(char **argv) {
  options o = {.step = -1, .device = -1, .color = -1};
  const command *c = find_command(argv[1]);
  bool diff = !strcmp(argv[1], "diff");
  if (!c && !diff)
    return sl_fail(SL_E_USAGE, "unknown command %s; actortrace --help lists them", argv[1]);
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
  if (argc == 2 && !strcmp(argv[1], "--version")) {
    printf("actortrace %s\n", SLUICE_VERSION);
    return outputs_end("actortrace", SL_OK, 0);
  }
  sl_status status =
      argc < 2 ? sl_fail(SL_E_USAGE, "no command was given; actortrace --help lists them")
               : run(argv);
  return outputs_end("actortrace", status, 0);
}
