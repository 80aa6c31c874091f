/* actortrace show: a step as a picture in the terminal, and below it who waited
 * for whom and what would help. */
#include "tools/actortrace/actortrace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct shower {
  const analysis *a;
  const sl_plan *plan;
  FILE *out;
  int width;
  bool color;
  step_range range;  /* of the tables */
  int64_t step;      /* of the picture */
  advices advices;
  int32_t device;    /* -1: all */
  bool queues;
} shower;

/* ---- colours ----------------------------------------------------------------------- */

/* Told apart by those who do not see red or green; as 256-colour numbers. */
static const struct paint {
  int back, text;
} paints[SL_CLASS_COUNT] = {[SL_CLASS_F] = {25, 231}, [SL_CLASS_B] = {214, 16},
                            [SL_CLASS_W] = {36, 16},  [SL_CLASS_U] = {175, 16},
                            [SL_CLASS_C] = {246, 16}, [SL_CLASS_L] = {228, 16}};

static void paint_class(const shower *s, sl_class cls) {
  if (s->color) fprintf(s->out, "\033[48;5;%d;38;5;%dm", paints[cls].back, paints[cls].text);
}
static void paint_faint(const shower *s) {
  if (s->color) fputs("\033[2m", s->out);
}
static void paint_bold(const shower *s) {
  if (s->color) fputs("\033[1m", s->out);
}
static void paint_nothing(const shower *s) {
  if (s->color) fputs("\033[0m", s->out);
}

static void heading(const shower *s, const char *text) {
  fputc('\n', s->out);
  paint_bold(s);
  fputs(text, s->out);
  paint_nothing(s);
  fputc('\n', s->out);
}

/* ---- the picture ------------------------------------------------------------------- */

static const char wait_marks[SL_WAIT_COUNT] = {[SL_WAIT_INPUT] = '.', [SL_WAIT_CREDIT] = 'c',
                                               [SL_WAIT_DEVICE] = 'd', [SL_WAIT_POLICY] = 'p',
                                               [SL_WAIT_START] = 's'};

/* One lane: for each column the piece that fills most of it, or -1. */
static void fill_columns(const line *l, uint64_t from, uint64_t to, int columns, int64_t *out) {
  size_t at = 0;
  for (int c = 0; c < columns; c++) {
    uint64_t begin = from + (to - from) / (uint64_t)columns * (uint64_t)c +
                     (to - from) % (uint64_t)columns * (uint64_t)c / (uint64_t)columns;
    uint64_t end = from + (to - from) / (uint64_t)columns * (uint64_t)(c + 1) +
                   (to - from) % (uint64_t)columns * (uint64_t)(c + 1) / (uint64_t)columns;
    uint64_t most = 0;
    out[c] = -1;
    while (at < l->count && l->pieces[at].to_ns <= begin) at++;
    for (size_t i = at; i < l->count && l->pieces[i].from_ns < end; i++) {
      uint64_t ns = SLI_MIN(l->pieces[i].to_ns, end) - SLI_MAX(l->pieces[i].from_ns, begin);
      if (ns > most) most = ns, out[c] = (int64_t)i;
    }
  }
}

/* A firing in so many columns: "F12" as far as there is room, then a bar. */
static void draw_run(const shower *s, const sl_trace_firing *f, int columns) {
  sl_class cls = s->plan->actors[f->record.actor].cls;
  char text[32];
  int n = snprintf(text, sizeof text, "%c%d", sl_class_letter(cls), f->tick.microbatch);
  if (s->plan->pieces > 1 && n + 3 < columns)
    n += snprintf(text + n, sizeof text - (size_t)n, ".%d", f->tick.piece);
  if (n > columns || (n == columns && columns > 1 && !s->color)) n = 1;
  paint_class(s, cls);
  fprintf(s->out, "%.*s", n, text);
  for (int i = n; i < columns; i++) fputs(s->color ? " " : "\xe2\x94\x80", s->out); /* ─ */
  paint_nothing(s);
}

static void draw_lane(const shower *s, const line *l, uint64_t from, uint64_t to, int columns) {
  int64_t *at = sli_calloc((size_t)columns + 1, sizeof *at);
  fill_columns(l, from, to, columns, at);
  for (int c = 0, end; c < columns; c = end) {
    for (end = c + 1; end < columns && at[end] == at[c]; end++) {}
    const piece *p = at[c] >= 0 ? &l->pieces[at[c]] : NULL;
    if (p && p->wait == SL_WAIT_NONE) {
      draw_run(s, &s->a->firings[p->firing], end - c);
      continue;
    }
    paint_faint(s);
    for (int i = c; i < end; i++) {
      if (p && p->wait == SL_WAIT_INPUT) fputs("\xc2\xb7", s->out); /* · */
      else fputc(p ? wait_marks[p->wait] : ' ', s->out);
    }
    paint_nothing(s);
  }
  fputc('\n', s->out);
  free(at);
}

/* The firings of one queue as a line of their own. */
static line queue_line(const analysis *a, int32_t queue, uint64_t from, uint64_t to) {
  line l = {0};
  size_t capacity = 0;
  uint64_t end = 0;
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_trace_record *f = &a->firings[i].record;
    if (a->plan->actors[f->actor].queue != queue || f->end_ns <= from || f->start_ns >= to)
      continue;
    SLI_GROW(l.pieces, l.count, capacity);
    uint64_t start = SLI_MAX(f->start_ns, end);
    if (start >= f->end_ns) continue;
    l.pieces[l.count++] = (piece){start, f->end_ns, (int64_t)i, SL_NONE, SL_WAIT_NONE};
    end = f->end_ns;
  }
  return l;
}

static int name_width(const shower *s) {
  size_t most = 6;
  for (int32_t d = 0; d < s->plan->ndevices; d++)
    most = SLI_MAX(most, strlen(s->plan->devices[d].name));
  for (int32_t q = 0; q < s->plan->nqueues && s->queues; q++)
    most = SLI_MAX(most, strlen(s->plan->queues[q].name) + 2);
  return (int)SLI_MIN(most, (size_t)24);
}

static void draw_axis(const shower *s, int names, uint64_t span_ns, int columns) {
  char text[32];
  fprintf(s->out, "%-*s ", names, "");
  for (int c = 0; c < columns;) {
    double ns = (double)span_ns * c / columns;
    int n = snprintf(text, sizeof text, "|%s", c ? format_ns((char[32]){0}, ns) : "0");
    if (c + n > columns) break;
    fputs(text, s->out);
    for (c += n; c % 16 && c < columns; c++) fputc(' ', s->out);
  }
  fputc('\n', s->out);
}

static void draw_step(const shower *s) {
  uint64_t from, to; /* what follows the work is the update */
  if (!work_window(s->a, s->step, &from, &to)) return;
  char text[32];
  fprintf(s->out, "step %" PRId64 ", %s from the first start to the last end\n\n", s->step,
          format_ns(text, (double)(to - from)));
  int names = name_width(s), columns = SLI_MAX(s->width - names - 1, 16);
  for (int32_t d = 0; d < s->plan->ndevices; d++) {
    if (s->device >= 0 && d != s->device) continue;
    fprintf(s->out, "%-*.*s ", names, names, s->plan->devices[d].name);
    draw_lane(s, &s->a->lines[d], from, to, columns);
    for (int32_t q = 0; q < s->plan->nqueues && s->queues; q++) {
      if (s->plan->queues[q].device != d || s->a->work_queue[q]) continue;
      line l = queue_line(s->a, q, from, to);
      fprintf(s->out, "  %-*.*s ", names - 2, names - 2, s->plan->queues[q].name);
      draw_lane(s, &l, from, to, columns);
      free(l.pieces);
    }
  }
  draw_axis(s, names, to - from, columns);
  fputs("\nF forward, B input gradient, W weight gradient, with the microbatch; idle for want of\n"
        "\xc2\xb7 input  c credit  d device  p policy  s start\n", s->out);
}

/* ---- the table of devices -------------------------------------------------------------- */

static const sl_wait shown_waits[] = {SL_WAIT_INPUT, SL_WAIT_CREDIT, SL_WAIT_DEVICE,
                                      SL_WAIT_POLICY, SL_WAIT_START};

static bool is_shown(const shower *s, int32_t device) {
  return s->device < 0 || s->device == device;
}

static account sum_accounts(const shower *s, int32_t device) {
  account sum = {0};
  for (int64_t step = s->range.first; step <= s->range.last; step++) {
    account x = account_make(s->a, device, step);
    sum.to_ns += account_span(&x);
    sum.busy_ns += x.busy_ns;
    sum.other_ns += x.other_ns;
    for (int w = 0; w < SL_WAIT_COUNT; w++) sum.idle_ns[w] += x.idle_ns[w];
  }
  return sum;
}

static double percent(uint64_t part, uint64_t whole) {
  return whole ? 100 * (double)part / (double)whole : 0;
}

static void print_device(const shower *s, int names, const char *name, const account *x,
                         int64_t steps, uint64_t peak, uint64_t arena) {
  char span[32], bytes[32], all[32];
  fprintf(s->out, "%-*.*s %9s %6.1f%%", names, names, name,
          format_ns(span, (double)account_span(x) / (double)steps),
          percent(x->busy_ns, account_span(x)));
  for (size_t w = 0; w < SLI_COUNT(shown_waits); w++)
    fprintf(s->out, " %6.1f%%", percent(x->idle_ns[shown_waits[w]], account_span(x)));
  fprintf(s->out, " %6.1f%%  %s of %s\n", percent(x->other_ns, account_span(x)),
          sli_format_bytes(bytes, (double)peak), sli_format_bytes(all, (double)arena));
}

static void print_devices(const shower *s) {
  int names = name_width(s);
  int64_t steps = s->range.last - s->range.first + 1;
  char title[96];
  snprintf(title, sizeof title, steps > 1 ? "Where the time went, mean of steps %" PRId64
           " to %" PRId64 : "Where the time went in step %" PRId64, s->range.first, s->range.last);
  heading(s, title);
  fprintf(s->out, "%-*s %9s %7s", names, "device", "span", "busy");
  for (size_t w = 0; w < SLI_COUNT(shown_waits); w++)
    fprintf(s->out, " %7s", sl_wait_name(shown_waits[w]));
  fprintf(s->out, " %7s  peak memory in use\n", "other");
  uint64_t busy = 0, longest = 0, devices = 0;
  for (int32_t d = 0; d < s->plan->ndevices; d++) {
    if (!is_shown(s, d)) continue;
    account x = sum_accounts(s, d);
    print_device(s, names, s->plan->devices[d].name, &x, steps, peak_bytes(s->a, d),
                 sl_device_bytes(&s->plan->devices[d]));
    busy += x.busy_ns;
    longest = SLI_MAX(longest, account_span(&x));
    devices++;
  }
  if (longest)
    fprintf(s->out, "bubble %.1f%% of the longest span\n",
            100 - percent(busy, longest) / (double)devices);
}

/* ---- waits ------------------------------------------------------------------------------- */

/* Time by actor, by register and by what has neither. */
typedef struct tally {
  const analysis *a;
  uint64_t *actor, *input, *credit, wait[SL_WAIT_COUNT], total;
} tally;

static tally tally_create(const analysis *a) {
  size_t nregs = (size_t)a->plan->nregs + 1;
  return (tally){.a = a, .actor = sli_calloc((size_t)a->plan->nactors + 1, sizeof(uint64_t)),
                 .input = sli_calloc(nregs, sizeof(uint64_t)),
                 .credit = sli_calloc(nregs, sizeof(uint64_t))};
}

static void tally_fini(tally *t) {
  free(t->actor);
  free(t->input);
  free(t->credit);
}

static void count_wait(void *ctx, const piece *p) {
  tally *t = ctx;
  uint64_t ns = p->to_ns - p->from_ns;
  t->total += ns;
  if (p->wait == SL_WAIT_INPUT && p->reg >= 0) t->input[p->reg] += ns;
  else if (p->wait == SL_WAIT_CREDIT && p->reg >= 0) t->credit[p->reg] += ns;
  else t->wait[p->wait] += ns;
}

/* A register is short of slots if one more would help, as a replay has shown: by
 * a fiftieth of the step. Many a wait for credit only moves the bubble. */
static bool is_short_of_slots(const shower *s, int32_t reg) {
  for (int32_t i = 0; i < s->advices.count; i++) {
    const advice *k = &s->advices.items[i];
    if (k->step_seconds <= 0.98 * s->advices.step_seconds &&
        (k->stage != SL_NONE || k->pool != SL_NONE) && answers(s->plan, reg, k))
      return true;
  }
  return false;
}

static void count_segment(const shower *s, tally *t, const segment *x, uint64_t ns) {
  t->total += ns;
  if (x->credit != SL_NONE && is_short_of_slots(s, x->credit)) t->credit[x->credit] += ns;
  else if (x->wait == SL_WAIT_NONE) t->actor[t->a->firings[x->firing].record.actor] += ns;
  else t->wait[x->wait] += ns;
}

/* A step's critical path, latest first. */
typedef struct blame {
  const shower *shower;
  tally *tally;
  const segment *path;
  size_t count;
} blame;

/* An idle device waits for what the critical path was at meanwhile. */
static void blame_path(void *ctx, const piece *p) {
  const blame *b = ctx;
  size_t low = 0, high = b->count; /* the first segment that begins before the piece ends */
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (b->path[middle].from_ns >= p->to_ns) low = middle + 1;
    else high = middle;
  }
  for (size_t i = low; i < b->count && b->path[i].to_ns > p->from_ns; i++)
    count_segment(b->shower, b->tally, &b->path[i], SLI_MIN(b->path[i].to_ns, p->to_ns) -
                                             SLI_MAX(b->path[i].from_ns, p->from_ns));
}

typedef struct entry {
  uint64_t ns;
  char text[160];
} entry;

static int by_ns(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->ns != y->ns) return x->ns > y->ns ? -1 : 1;
  return strcmp(x->text, y->text);
}

static void print_entries(const shower *s, entry *all, size_t count, uint64_t total) {
  enum { MOST = 6 };
  int64_t steps = s->range.last - s->range.first + 1;
  qsort(all, count, sizeof *all, by_ns);
  for (size_t i = 0; i < count && i < MOST && all[i].ns; i++) {
    char text[32];
    fprintf(s->out, "%9s %5.1f%%  %s\n", format_ns(text, (double)all[i].ns / (double)steps),
            percent(all[i].ns, total), all[i].text);
  }
  if (!count || !all[0].ns) fputs("nothing\n", s->out);
}

static const char *producer_name(const sl_plan *plan, int32_t reg) {
  int32_t producer = plan->regs[reg].producer;
  return producer == SL_NONE ? "nobody" : plan->actors[producer].name;
}

static void describe_credit(const sl_plan *plan, int32_t reg, bool culprit, char *out,
                            size_t bytes) {
  const sl_register *r = &plan->regs[reg];
  const char *held = culprit ? ", held while others waited" : "";
  if (r->pool != SL_NONE)
    snprintf(out, bytes, "credit: register %s, %d slots, in pool %s of %d%s", r->name, r->quota,
             plan->pools[r->pool].name, plan->pools[r->pool].quota, held);
  else
    snprintf(out, bytes, "credit: register %s has only %d slot%s%s", r->name, r->quota,
             r->quota == 1 ? "" : "s", held);
}

static entry *list_entries(const shower *s, const tally *t, bool culprits, size_t *count) {
  const sl_plan *plan = s->plan;
  entry *all = sli_calloc((size_t)(plan->nactors + 2 * plan->nregs) + SL_WAIT_COUNT, sizeof *all);
  size_t n = 0;
  for (int32_t i = 0; i < plan->nactors; i++) {
    if (!t->actor[i]) continue;
    all[n].ns = t->actor[i];
    snprintf(all[n++].text, sizeof all->text, "%s on %s was running", plan->actors[i].name,
             plan->queues[plan->actors[i].queue].name);
  }
  for (int32_t r = 0; r < plan->nregs; r++) {
    if (t->input[r]) {
      all[n].ns = t->input[r];
      snprintf(all[n++].text, sizeof all->text, "input: register %s from %s", plan->regs[r].name,
               producer_name(plan, r));
    }
    if (!t->credit[r]) continue;
    all[n].ns = t->credit[r];
    describe_credit(plan, r, culprits, all[n++].text, sizeof all->text);
  }
  static const char *const why[SL_WAIT_COUNT] = {
      [SL_WAIT_DEVICE] = "device: could have gone; the worker was busy or had not heard yet",
      [SL_WAIT_POLICY] = "policy: held back by the plan's order",
      [SL_WAIT_START] = "start: the run or the trace had not begun"};
  for (int w = 0; w < SL_WAIT_COUNT; w++) {
    if (!t->wait[w]) continue;
    all[n].ns = t->wait[w];
    snprintf(all[n++].text, sizeof all->text, "%s", why[w] ? why[w] : sl_wait_name((sl_wait)w));
  }
  *count = n;
  return all;
}

static void print_tally(const shower *s, const char *title, const tally *t, bool culprits) {
  heading(s, title);
  size_t count;
  entry *all = list_entries(s, t, culprits, &count);
  print_entries(s, all, count, t->total);
  free(all);
}

static void print_waits(const shower *s) {
  tally waits = tally_create(s->a), culprits = tally_create(s->a);
  for (int64_t step = s->range.first; step <= s->range.last; step++) {
    blame b = {.shower = s, .tally = &culprits};
    segment *path = critical_path(s->a, step, &b.count);
    b.path = path;
    for (int32_t d = 0; d < s->plan->ndevices; d++) {
      if (!is_shown(s, d)) continue;
      account x = account_make(s->a, d, step);
      visit_idle(s->a, &x, d, count_wait, &waits);
      visit_idle(s->a, &x, d, blame_path, &b);
    }
    free(path);
  }
  print_tally(s, "Idle devices waited for", &waits, false);
  print_tally(s, "Traced back to what held them up", &culprits, true);
  tally_fini(&waits);
  tally_fini(&culprits);
}

/* ---- critical path --------------------------------------------------------------------- */

/* "F0 x4 -> F1 -> ...": consecutive firings of one actor together. */
static void print_chain(const shower *s, const segment *path, size_t count) {
  enum { MOST = 24 };
  const char *arrow = " \xe2\x86\x92 ";
  int shown = 0, column = 0;
  for (size_t i = count; i > 0;) {
    const segment *l = &path[i - 1];
    int32_t actor = l->wait == SL_WAIT_NONE ? s->a->firings[l->firing].record.actor : -1;
    int times = 0;
    for (; i > 0; i--, times++) {
      const segment *m = &path[i - 1];
      int32_t other = m->wait == SL_WAIT_NONE ? s->a->firings[m->firing].record.actor : -1;
      if (other != actor || (actor < 0 && m->wait != l->wait)) break;
    }
    if (shown++ == MOST) {
      fputs(arrow, s->out), fputs("...", s->out);
      break;
    }
    char text[128];
    if (actor < 0) snprintf(text, sizeof text, "(%s)", sl_wait_name((sl_wait)l->wait));
    else if (times > 1)
      snprintf(text, sizeof text, "%s\xc3\x97%d", s->plan->actors[actor].name, times);
    else snprintf(text, sizeof text, "%s", s->plan->actors[actor].name);
    if (column && column + (int)strlen(text) + 3 > s->width) {
      fprintf(s->out, "%s\n", arrow);
      column = 0;
    } else if (column) {
      fputs(arrow, s->out);
      column += 3;
    }
    fputs(text, s->out);
    column += (int)strlen(text);
  }
  fputc('\n', s->out);
}

static void print_path(const shower *s) {
  size_t length, count;
  segment *path = critical_path(s->a, s->step, &length);
  tally t = tally_create(s->a);
  for (size_t i = 0; i < length; i++) {
    segment x = path[i];
    x.credit = SL_NONE; /* who ran, whatever brought it there */
    count_segment(s, &t, &x, x.to_ns - x.from_ns);
  }
  char title[128], text[32];
  snprintf(title, sizeof title, "The critical path of step %" PRId64 ": %s in %zu firings", s->step,
           format_ns(text, (double)t.total), length);
  heading(s, title);
  print_chain(s, path, length);
  shower one = *s;
  one.range = (step_range){s->step, s->step};
  entry *all = list_entries(s, &t, false, &count);
  print_entries(&one, all, count, t.total);
  free(all);
  free(path);
  tally_fini(&t);
}

/* ---- advice --------------------------------------------------------------------------------- */

static void print_one_advice(const shower *s, const advices *all, const advice *k) {
  char saved[32], step[32], bytes[32], where[48] = "", option[64];
  if (k->stage != SL_NONE)
    snprintf(where, sizeof where, " of stage %d", k->stage);
  else if (k->nregs > 1 && k->pool == SL_NONE)
    snprintf(where, sizeof where, " at every stage");
  double gain = all->step_seconds - k->step_seconds;
  fprintf(s->out, "%9s %5.1f%%  one more slot of %s%s (%s has %d): a step of %s for %s more",
          format_ns(saved, gain * 1e9), 100 * gain / all->step_seconds, k->knob, where,
          k->pool == SL_NONE ? s->plan->regs[k->reg].name : "it", k->slots,
          format_ns(step, k->step_seconds * 1e9), sli_format_bytes(bytes, (double)k->more_bytes));
  if (k->stage != SL_NONE) {
    snprintf(option, sizeof option, "%s@%d=%d", k->knob, k->stage, k->slots + 1);
    fprintf(s->out, "  (--quota %s)", option);
  }
  fputc('\n', s->out);
}

static void print_advice(const shower *s) {
  enum { MOST = 3 };
  const advices *all = &s->advices;
  char text[32], title[128];
  snprintf(title, sizeof title, "One more slot would save, of the %s a step takes when replayed",
           format_ns(text, all->step_seconds * 1e9));
  heading(s, title);
  for (int32_t i = 0; i < all->count && i < MOST; i++) print_one_advice(s, all, &all->items[i]);
  if (!all->count) fputs("nothing: no single quota holds this plan up\n", s->out);
  if (all->tried < all->candidates)
    fprintf(s->out, "(%d of %d quotas tried, those most waited for)\n", all->tried,
            all->candidates);
  uint64_t from, to;
  double replayed = all->step_seconds * 1e9;
  if (work_window(s->a, s->step, &from, &to) && (double)(to - from) > 1.1 * replayed)
    fprintf(s->out,
            "(step %" PRId64 " took %s: the rest is noise, which the virtual clock does not "
            "know)\n",
            s->step, format_ns(text, (double)(to - from)));
}

/* ---- all of it ------------------------------------------------------------------------ */

static int find_width(const options *o, FILE *out) {
  struct winsize size;
  if (o->width) return SLI_MAX(o->width, 40);
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col) return SLI_MAX(size.ws_col, 40);
  const char *columns = getenv("COLUMNS");
  int width = columns ? atoi(columns) : 0;
  return width >= 40 && width < 10000 ? width : 100;
}

static void print_facts(const shower *s) {
  const sl_trace *t = s->a->trace;
  fprintf(s->out, "%zu firings of %d actors on %d devices, %" PRId64 " steps of %d microbatches",
          t->nfirings, s->plan->nactors, s->plan->ndevices, t->steps, s->plan->microbatches);
  if (s->plan->pieces > 1) fprintf(s->out, " of %d pieces", s->plan->pieces);
  fprintf(s->out, ", %s clock; ", t->clock == SL_CLOCK_VIRTUAL ? "virtual" : "real");
}

sl_status command_show(const sl_trace *t, const options *o, FILE *out) {
  analysis *a = analysis_create(t);
  bool color = o->color >= 0 ? o->color : isatty(fileno(out)) && !getenv("NO_COLOR");
  shower s = {.a = a, .plan = t->plan, .out = out, .width = find_width(o, out), .color = color,
              .range = steps_to_count(a), .device = o->device, .queues = o->queues};
  s.step = o->step >= 0 ? o->step : typical_step(a);
  if (o->step >= 0) s.range = (step_range){o->step, o->step};
  sl_status status = SL_OK;
  if (!t->nfirings)
    status = sl_fail(SL_E_INPUT, "%s has no firings to show", o->path);
  else if (!find_step(t, s.step))
    status = sl_fail(SL_E_USAGE, "step %" PRId64 " is not in %s, which has %" PRId64 " to %" PRId64,
                     s.step, o->path, t->step[0].step, t->step[t->nsteps - 1].step);
  if (!status) status = advise(a, 5, &s.advices);
  if (!status) {
    print_facts(&s);
    draw_step(&s);
    print_devices(&s);
    print_waits(&s);
    print_path(&s);
    print_advice(&s);
    free(s.advices.items);
  }
  analysis_destroy(a);
  return status;
}
