/* actortrace: reads what a run left with --trace. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <sluice/trace.h>

#include "base/base.h"

/* One line per firing, for other programs. */
static void print_rows(const sl_trace *t, FILE *out) {
  fprintf(out, "step\tdevice\tclass\tstage\tchunk\tmicrobatch\tpiece\tstart_ns\tend_ns\tactor\n");
  for (size_t i = 0; i < t->nfirings; i++) {
    const sl_trace_firing *f = &t->firings[i];
    const sl_trace_actor *a = &t->actors[f->record.actor];
    fprintf(out, "%" PRId64 "\t%d\t%c\t%d\t%d\t%d\t%d\t%" PRIu64 "\t%" PRIu64 "\t%s\n",
            f->tick.step, a->device, sl_class_letter(a->cls), a->stage, a->chunk,
            f->tick.microbatch, f->tick.piece, f->record.start_ns, f->record.end_ns, a->name);
  }
}

static void mention_gaps(const sl_trace *t, const char *path) {
  if (t->truncated)
    sli_log("note: %s is truncated; its newest firings are missing", path);
  if (t->dropped)
    sli_log("note: the %" PRIu64 " oldest firings did not fit into %s", t->dropped, path);
}

static const char usage[] =
    "Usage: actortrace rows FILE\n\n"
    "Reads a trace that actorrun --trace FILE has written.\n\n"
    "  rows    one line per firing, tab-separated, with a header line:\n"
    "          step device class stage chunk microbatch piece start_ns end_ns actor;\n"
    "          stage along the model, chunk within its device, -1 where there is none\n";

static sl_status rows(const char *path) {
  sl_trace *trace;
  sl_status status = sl_trace_read(path, &trace);
  if (status) return status;
  mention_gaps(trace, path);
  print_rows(trace, stdout);
  sl_trace_destroy(trace);
  if (fflush(stdout) != 0 || ferror(stdout))
    return sl_fail(SL_E_IO, "writing the rows failed");
  return SL_OK;
}

int main(int argc, char **argv) {
  sl_status status;
  if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
    fputs(usage, stdout);
    return 0;
  }
  if (argc < 2)
    status = sl_fail(SL_E_USAGE, "no command was given; actortrace --help lists them");
  else if (strcmp(argv[1], "rows"))
    status = sl_fail(SL_E_USAGE, "unknown command %s; actortrace --help lists them", argv[1]);
  else if (argc != 3)
    status = sl_fail(SL_E_USAGE, "actortrace rows takes one FILE");
  else
    status = rows(argv[2]);
  if (status) fprintf(stderr, "actortrace: %s\n", sl_detail());
  return sl_status_exit(status);
}
