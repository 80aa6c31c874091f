/* The plan as text, and its table of memory. */
#include "actors/plan.h"

static const char *const memory_names[SL_MEMORY_COUNT] = {
#define X(name, text) [SL_MEMORY_##name] = text,
    SL_MEMORY_TABLE(X)
#undef X
};

const char *sl_memory_name(sl_memory memory) {
  return (unsigned)memory < SL_MEMORY_COUNT ? memory_names[memory] : "?";
}

static void print_map(const sl_plan *plan, int32_t map, FILE *out) {
  const sl_map *m = &plan->maps[map];
  fprintf(out, "map %d period %u stride %lld:", map, m->period, (long long)m->stride);
  for (uint32_t i = 0; i < m->period; i++) {
    const sl_map_entry *e = &m->entries[i];
    if (i >= 8 && i + 2 < m->period && e->offset == e[-1].offset && e->flags == e[-1].flags)
      continue; /* the middle of a long span */
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
              call->accumulate & bit ? " (adds)" : call->accumulate_span & bit ? " (sums)" : "");
    }
    fputc('\n', out);
  }
}

void sl_plan_print(const sl_plan *plan, FILE *out) {
  fprintf(out, "plan: %d microbatches of %d pieces, %d devices, %d queues, %d actors, %d registers\n",
          plan->microbatches, plan->pieces, plan->ndevices, plan->nqueues, plan->nactors,
          plan->nregs);
  for (int32_t i = 0; i < plan->ndevices; i++) {
    const sl_device *d = &plan->devices[i];
    /* How many threads a device has is its own process's affair. */
    bool alone = plan->nprocesses == 1;
    fprintf(out, "device %s kind %s %s %d arena %zu workspace %zu\n", d->name, d->kind,
            alone ? "threads" : "process", alone ? d->threads : d->process, d->arena_bytes,
            d->workspace_bytes);
  }
  for (int32_t i = 0; i < plan->nqueues; i++) {
    const sl_queue *q = &plan->queues[i];
    fprintf(out, "queue %s on %s run-ahead %d order", q->name, plan->devices[q->device].name,
            q->run_ahead);
    for (int c = 0; c < SL_CLASS_COUNT; c++)
      fprintf(out, " %c%d", sl_class_letter((sl_class)c), q->class_order[c]);
    if (q->lazy_w) fprintf(out, " lazy-w watermark %d", q->watermark);
    if (q->look_ahead > 0) fprintf(out, " look-ahead %g", q->look_ahead);
    if (q->apart) fprintf(out, " apart");
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
    if (r->held) fprintf(out, " held");
    if (r->pool != SL_NONE) fprintf(out, " pool %s", plan->pools[r->pool].name);
    fputc('\n', out);
  }
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    fprintf(out, "actor %s %c on %s stage %d chunk %d ticks %d x%d rank %d", a->name,
            sl_class_letter(a->cls), plan->queues[a->queue].name, a->stage, a->chunk, a->ticks,
            a->firings_per_step, a->rank);
    if (a->every > 1) fprintf(out, " every %d", a->every);
    if (a->rank_group) fprintf(out, "+%d per %d-%d", a->rank_stride, a->rank_group, a->rank_shift);
    if (a->seconds > 0) fprintf(out, " %g s", a->seconds);
    print_ports(plan, "in", a->in, a->nin, out);
    print_ports(plan, "out", a->out, a->nout, out);
    fputc('\n', out);
    if (a->program) print_program(plan, a->program, out);
  }
}

void sl_plan_print_memory(const sl_plan *plan, FILE *out) {
  char text[32];
  fprintf(out, "%-10s", "device");
  for (int m = 0; m < SL_MEMORY_COUNT; m++) fprintf(out, " %12s", memory_names[m]);
  fprintf(out, " %12s\n", "total");
  for (int32_t d = 0; d < plan->ndevices; d++) {
    fprintf(out, "%-10s", plan->devices[d].name);
    for (int m = 0; m < SL_MEMORY_COUNT; m++)
      fprintf(out, " %12s",
              sli_format_bytes(text, (double)sl_plan_memory(plan, d, (sl_memory)m)));
    fprintf(out, " %12s\n", sli_format_bytes(text, (double)plan->devices[d].arena_bytes));
  }
}
