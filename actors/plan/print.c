/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as text, and its table of memory. */
#include "actors/plan/plan.h"

static const char *const memory_names[SL_MEMORY_COUNT] = {
#define X(name, text) [SL_MEMORY_##name] = text,
    SL_MEMORY_TABLE(X)
#undef X
};

const char *sl_memory_name(sl_memory memory) {
  return (unsigned)memory < SL_MEMORY_COUNT ? memory_names[memory] : "?";
}

const char *sl_space_name(sl_space space) {
  static const char *const names[SL_HOME_COUNT] = {
#define X(name, text) [SL_SPACE_##name] = text,
      SL_SPACE_TABLE(X)
#undef X
          [SL_SPACE_PEER] = "peer"};
  return (unsigned)space < SL_HOME_COUNT ? names[space] : "?";
}

static void print_map(const sl_plan *plan, int32_t map, FILE *out) {
  const sl_map *m = &plan->maps[map];
  fprintf(out, "map %d period %u stride %lld:", map, m->period, (long long)m->stride);
  for (uint32_t i = 0; i < m->period; i++) {
    const sl_map_entry *e = &m->entries[i];
    if (i >= 8 && i + 2 < m->period && e->offset == e[-1].offset && e->flags == e[-1].flags)
      continue; /* omits the middle of a long span */
    fprintf(out, " %u:%d%s%s%s", i, e->offset, e->flags & SL_FIRST ? "f" : "",
            e->flags & SL_LAST ? "l" : "", e->flags & SL_SKIP ? "-" : "");
  }
  fputc('\n', out);
}

static void print_ports(const sl_plan *plan, const char *word, const sl_port *ports, int32_t count,
                        FILE *out) {
  if (count) fprintf(out, " %s", word);
  for (int32_t i = 0; i < count; i++)
    fprintf(out, "%s%s/%d", i ? "," : " ", plan->regs[ports[i].reg].name, ports[i].map);
}

static void print_program(const sl_plan *plan, const sl_program *program, FILE *out) {
  for (int k = 0; program->pieces && k < plan->pieces; k++)
    fprintf(out, "%s %lld+%lld%s", k ? "" : "    pieces", (long long)program->pieces[k].row,
            (long long)program->pieces[k].rows, k + 1 < plan->pieces ? "" : "\n");
  for (int c = 0; c < program->ncalls; c++) {
    const sl_program_call *call = &program->calls[c];
    fprintf(out, "    %s = %s(", call->name, call->op->name);
    for (int i = 0; i < call->nin; i++)
      fprintf(out, "%s%d+%zu", i ? ", " : "", call->in[i].base, call->in[i].offset);
    fprintf(out, ") ->");
    for (int i = 0; i < call->nout; i++) {
      uint32_t bit = 1u << i;
      fprintf(out, " %d+%zu%s", call->out[i].base, call->out[i].offset,
              call->accumulate & bit        ? " (adds)"
              : call->accumulate_span & bit ? " (sums)"
                                            : "");
    }
    fputc('\n', out);
  }
}

static void print_rooms(const sl_device *d, FILE *out) {
  for (int s = 0; s < SL_SPACE_COUNT; s++) {
    const sl_room *room = &d->room[s];
    if (s != SL_SPACE_DEVICE && !room->arena_bytes) continue;
    if (s != SL_SPACE_DEVICE) fprintf(out, " %s", sl_space_name((sl_space)s));
    fprintf(out, " arena %zu workspace %zu", room->arena_bytes, room->workspace_bytes);
    if (room->kept_bytes) fprintf(out, " kept %zu", room->kept_bytes);
  }
  fputc('\n', out);
}

void sl_plan_print(const sl_plan *plan, FILE *out) {
  fprintf(
      out, "plan: %d microbatches of %d pieces, %d devices, %d queues, %d actors, %d registers\n",
      plan->microbatches, plan->pieces, plan->ndevices, plan->nqueues, plan->nactors, plan->nregs);
  for (int32_t i = 0; i < plan->ndevices; i++) {
    const sl_device *d = &plan->devices[i];
    /* The number of a device's threads is private to its process. */
    bool alone = plan->nprocesses == 1;
    fprintf(out, "device %s kind %s %s %d", d->name, d->kind, alone ? "threads" : "process",
            alone ? d->threads : d->process);
    print_rooms(d, out);
  }
  for (int32_t i = 0; i < plan->nqueues; i++) {
    const sl_queue *q = &plan->queues[i];
    fprintf(out, "queue %s on %s run-ahead %d order", q->name, plan->devices[q->device].name,
            q->run_ahead);
#define X(letter, number, name) fprintf(out, " " #letter "%d", q->class_order[number]);
    SL_CLASS_TABLE(X)
#undef X
    if (q->lazy_w) fprintf(out, " lazy-w watermark %d", q->watermark);
    if (q->look_ahead > 0) fprintf(out, " look-ahead %g", q->look_ahead);
    if (q->space) fprintf(out, " space %s", sl_space_name(q->space));
    if (q->apart) fprintf(out, " apart");
    if (q->lane) fprintf(out, " lane %s", q->lane);
    if (q->group) fprintf(out, " group %d", q->group - 1);
    if (q->order) fprintf(out, " fixed:");
    for (int32_t o = 0; o < q->norder; o++) fprintf(out, " %s", plan->actors[q->order[o]].name);
    fputc('\n', out);
  }
  for (int32_t i = 0; i < plan->npools; i++)
    fprintf(out, "pool %s quota %d\n", plan->pools[i].name, plan->pools[i].quota);
  for (int32_t i = 0; i < plan->nmaps; i++) print_map(plan, i, out);
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    fprintf(out, "register %s on %s quota %s=%d slot %zu at %zu (%s)", r->name,
            plan->devices[r->device].name, r->quota_name, r->quota, r->slot_bytes, r->offset,
            sl_memory_name(r->memory));
    if (r->initial) fprintf(out, " initial %d", r->initial);
    if (r->space) fprintf(out, " space %s", sl_space_name(r->space));
    if (r->held) fprintf(out, " held");
    if (r->pool != SL_NONE) fprintf(out, " pool %s", plan->pools[r->pool].name);
    if (r->shares) fprintf(out, " shares %s", plan->regs[r->shares - 1].name);
    if (r->aliases) fprintf(out, " over %s", plan->regs[r->aliases - 1].name);
    fputc('\n', out);
  }
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    fprintf(out, "actor %s %c on %s stage %d chunk %d ticks %d x%d rank %d", a->name,
            sl_class_letter(a->cls), plan->queues[a->queue].name, a->stage, a->chunk, a->ticks,
            a->firings_per_step, a->rank);
    if (a->urgent) fputs(" urgent", out);
    if (a->every > 1) fprintf(out, " every %d", a->every);
    if (a->rank_group) fprintf(out, "+%d per %d-%d", a->rank_stride, a->rank_group, a->rank_shift);
    if (a->seconds > 0) fprintf(out, " %g s", a->seconds);
    if (a->nshares) fprintf(out, " share %g at %g", a->shares[0].part, a->shares[0].rate);
    if (a->nshares > 1) fprintf(out, " (of %d)", a->nshares);
    print_ports(plan, "in", a->in, a->nin, out);
    print_ports(plan, "out", a->out, a->nout, out);
    fputc('\n', out);
    if (a->program) print_program(plan, a->program, out);
  }
}

static void print_room(const sl_plan *plan, int32_t device, sl_space space, FILE *out) {
  char text[32];
  const char *name = plan->devices[device].name;
  int width = fprintf(out, space ? "%s %s" : "%s", name, sl_space_name(space));
  fprintf(out, "%*s", SLI_MAX(10 - width, 0), "");
  for (int m = 0; m < SL_MEMORY_COUNT; m++) {
    double bytes = (double)sli_plan_memory(plan, device, space, (sl_memory)m);
    fprintf(out, " %12s", sli_format_bytes(text, bytes));
  }
  double total = (double)plan->devices[device].room[space].arena_bytes;
  fprintf(out, " %12s\n", sli_format_bytes(text, total));
}

void sl_plan_print_memory(const sl_plan *plan, FILE *out) {
  fprintf(out, "%-10s", "device");
  for (int m = 0; m < SL_MEMORY_COUNT; m++) fprintf(out, " %12s", memory_names[m]);
  fprintf(out, " %12s\n", "total");
  for (int32_t d = 0; d < plan->ndevices; d++)
    for (int s = 0; s < SL_SPACE_COUNT; s++)
      if (s == SL_SPACE_DEVICE || plan->devices[d].room[s].arena_bytes)
        print_room(plan, d, (sl_space)s, out);
}
