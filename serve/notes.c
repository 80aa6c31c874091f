/* SPDX-License-Identifier: Apache-2.0 */
/* Notes on calls of a simulation that the tables of the machine file do not cover.
 *
 * Only machines with tables are held to them. Products and attention to pages without a table take
 * the longer of arithmetic and traffic. Calls far beyond the points of a table are extrapolated. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/cost/cost.h"
#include "ops/facets.h"
#include "serve/serve.h"

enum { FAR = 4 }; /* multiple of the last point of a table beyond which a call is far outside */

/* Appends a line that is not there yet. */
static void __attribute__((format(printf, 2, 3))) add(char **notes, const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  size_t had = *notes ? strlen(*notes) : 0, own = strlen(line);
  if (had && strstr(*notes, line)) return;
  *notes = sli_realloc(*notes, had + own + 1, 1);
  memcpy(*notes + had, line, own + 1);
}

static bool has_tables(const sl_hardware *h) {
  for (int i = 0; h && i < h->nrows; i++)
    if (h->rows[i].curve.seconds) return true;
  return false;
}

static bool is_paged(const sl_op *op) {
  return sli_op_memory(op)->updates && !sli_op_serve(op)->slots;
}

static bool is_product(const sl_hardware *h, const sli_work *work) {
  enum { FEWEST_TERMS = 16 };
  return sli_work_along(h, work, SL_CURVE_K) >= FEWEST_TERMS;
}

static void note_far(char **notes, const sl_hardware *h, const sli_work *work,
                     const sl_curve *curve) {
  for (int d = 0; d < curve->ndims && !is_paged(work->op); d++) {
    double x = sli_work_along(h, work, curve->axis[d]), last = curve->at[d][curve->count[d] - 1];
    if (curve->count[d] > 1 && x > FAR * last)
      add(notes, "%s: %s %.0f is far beyond its table, which ends at %.0f: extrapolated\n",
          work->op->name, sli_curve_axes[curve->axis[d]], x, last);
  }
}

static void note_call(char **notes, const sl_hardware *h, const sli_work *work) {
  const sl_hardware_row *row = sli_work_row(h, work);
  if (row && row->curve.seconds) note_far(notes, h, work, &row->curve);
  else if (is_paged(work->op) || is_product(h, work))
    add(notes, "%s has no table: the longer of arithmetic and traffic is taken\n", work->op->name);
}

char *sli_price_notes(const sl_session *s) {
  const sl_hardware *h = s->options.lower.simulation.hardware;
  const sl_plan *p = s->about.plan;
  char *notes = NULL;
  for (int32_t a = 0; has_tables(h) && !s->options.cost && a < p->nactors; a++) {
    const sl_program *program = p->actors[a].by_rows.count ? p->actors[a].program : NULL;
    for (int c = 0; program && c < program->ncalls; c++) {
      const sli_work work = sli_work_of_call(&program->calls[c]);
      note_call(&notes, h, &work);
    }
  }
  return notes;
}
