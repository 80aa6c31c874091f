/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of actors: the calls of a task's nodes, with the place of every operand. */
#include "graph/build/build.h"
#include "graph/lower/ir.h"

/* Returns the port of the input that a task's output aliases, or SL_NONE; their places are the
 * same (alias.c). */
static int covered_input(const sli_lowering *l, const sli_task *task, int buffer) {
  int32_t over = l->plan->regs[l->buffers[buffer].reg].aliases;
  for (int i = 0; i < task->ninputs && over; i++)
    if (l->buffers[task->inputs[i]].reg + 1 == over) return i;
  return SL_NONE;
}

static sl_place tensor_place(const sli_lowering *l, int task, const sl_tensor *t) {
  if (!t) return (sl_place){SL_NONE, 0};
  const sli_task *g = &l->tasks[task];
  const sli_spot *spot = &l->spots[t->id];
  if (spot->buffer == SL_NONE) return (sl_place){g->ninputs + g->noutputs, spot->offset};
  bool made = spot->task == task;
  int under = made ? covered_input(l, g, spot->buffer) : SL_NONE;
  return (sl_place){under == SL_NONE ? sli_task_port(l, g, spot->buffer, made) : under,
                    spot->offset};
}

/* False for an output that aliases an input, in a step of one tick: it is not summed. */
static bool is_summed(const sli_lowering *l, const sli_task *task, const sl_tensor *t) {
  return !t || l->spots[t->id].buffer == SL_NONE ||
         covered_input(l, task, l->spots[t->id].buffer) == SL_NONE;
}

/* Returns the outputs to clear before use. State that a sweep updates starts from zero with each
 * slot. */
static uint32_t begun_anew(const sli_lowering *l, int task, const sli_node *n) {
  const sli_task *g = &l->tasks[task];
  uint32_t sums = n->accumulate_span;
  for (int o = 0; o < n->nout; o++)
    if (sli_bit(sums, o) && !is_summed(l, g, n->out[o])) sums &= ~(1u << o);
  return sums | (g->rate == SLI_PER_PAIR ? sli_op_memory(n->op)->updates : 0);
}

static void write_call(sli_lowering *l, int task, const sli_node *n, sl_program_call *call) {
  sl_plan *plan = l->plan;
  sl_place *in = sl_plan_alloc(plan, (size_t)n->nin * sizeof *in);
  sl_place *out = sl_plan_alloc(plan, (size_t)n->nout * sizeof *out);
  for (int i = 0; i < n->nin; i++) in[i] = tensor_place(l, task, n->in[i]);
  for (int o = 0; o < n->nout; o++) out[o] = tensor_place(l, task, n->out[o]);
  *call = (sl_program_call){.op = n->op,
                            .name = n->name,
                            .attrs = n->attrs,
                            .nin = n->nin,
                            .nout = n->nout,
                            .in_type = n->in_type,
                            .out_type = n->out_type,
                            .in = in,
                            .out = out,
                            .accumulate_span = begun_anew(l, task, n),
                            .in_length = sli_lower_lengths_of(l, n->nin, n->in),
                            .out_length = sli_lower_lengths_of(l, n->nout, n->out)};
  if (l->in->kind->times_calls || l->tasks[task].host)
    call->time = sl_plan_alloc(plan, sizeof(sl_call_time));
}

/* Writes a copy of the parameter's last version. An in-place update that writes a different slot
 * than it reads needs this version in its slot. */
static void write_copy(sli_lowering *l, int task, const sl_tensor *t, sl_program_call *call) {
  const sli_spot *spot = &l->spots[t->id];
  sl_place *places = sl_plan_alloc(l->plan, 2 * sizeof *places);
  for (int o = 0; o < 2; o++)
    places[o] = (sl_place){sli_task_port(l, &l->tasks[task], spot->buffer, o), spot->offset};
  *call = (sl_program_call){.op = &sl_op_copy,
                            .name = t->name,
                            .nin = 1,
                            .nout = 1,
                            .in_type = &t->type,
                            .out_type = &t->type,
                            .in = &places[0],
                            .out = &places[1]};
}

/* True if the tensor is updated in a different place from where it is read. */
static bool is_buffered(const sli_lowering *l, int task, const sl_tensor *t) {
  if (!t || l->spots[t->id].buffer == SL_NONE) return false;
  const sli_buffer *b = &l->buffers[l->spots[t->id].buffer];
  bool updated = t->param || b->memory == SL_MEMORY_OPTIMIZER;
  return updated && ((b->producer == task && sli_is_spilled(b)) || b->initial > 1);
}

static int write_copies(sli_lowering *l, int task, const sli_node *n, sl_program_call *calls) {
  int count = 0;
  for (int o = 0; o < n->nout; o++)
    if (is_buffered(l, task, n->out[o])) write_copy(l, task, n->out[o], &calls[count++]);
  return count;
}

/* Returns an upper bound on the number of copies. */
static size_t copies(const sli_lowering *l, int task) {
  size_t n = 0;
  for (int i = 0; i < l->tasks[task].nnodes; i++)
    for (int o = 0; o < l->tasks[task].nodes[i]->nout; o++)
      n += is_buffered(l, task, l->tasks[task].nodes[i]->out[o]);
  return n;
}

/* Returns the same call for pieces of another length. */
static sl_program_call vary_call(const sl_program_call *call, const sli_node *n, int variant) {
  sl_program_call other = *call;
  if (!n->shapes) return other;
  other.attrs = n->shapes[variant].attrs;
  other.in_type = n->shapes[variant].in;
  other.out_type = n->shapes[variant].out;
  return other;
}

/* Changes a node's call into the variant for offloaded pieces, which reads inputs that have been
 * brought back, in other places. Recomputation then does nothing. */
static void leave_call(sli_lowering *l, int task, const sli_node *n, sl_program_call *call) {
  if (n->rematerialized) {
    *call = (sl_program_call){.op = &sl_op_keep, .name = n->name};
    return;
  }
  sl_place *in = sl_plan_alloc(l->plan, (size_t)n->nin * sizeof *in);
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *kept = n->in[i] ? n->in[i]->kept : NULL;
    in[i] = kept ? tensor_place(l, task, kept) : call->in[i];
  }
  call->in = in;
}

/* True if a check of its inputs precedes a node's call. */
static bool is_checked(const sli_lowering *l, const sli_node *n) {
  return n->op->check && (l->in->kind->cores || l->in->options->numbers.check_finite);
}

/* Returns the number of calls of all nodes, including checks of inputs and outputs. */
static size_t count_calls(const sli_lowering *l, const sli_task *task) {
  size_t n = (size_t)task->nnodes * (l->in->options->numbers.check_finite ? 2 : 1);
  for (int i = 0; i < task->nnodes; i++) n += is_checked(l, task->nodes[i]);
  return n;
}

/* Writes the calls of a node and returns their number. `first`: calls for the longest pieces, or
 * NULL when writing these. */
static int write_node(sli_lowering *l, int task, const sli_node *n, int variant,
                      const sl_program_call *first, sl_program_call *calls) {
  if (n->nout && n->out[0] && sli_delay_before(n->out[0])) return 0; /* its readers have a slot */
  int own = is_checked(l, n), count = own + 1;
  int lengths = SLI_MAX(l->in->g->cut.nvariants, 1);
  if (first) calls[own] = vary_call(&first[own], n, variant % lengths);
  else write_call(l, task, n, &calls[own]);
  if (variant >= lengths) leave_call(l, task, n, &calls[own]);
  if (own && calls[own].op != n->op) calls[0] = calls[own];
  else if (own) sli_lower_check(l, task, &calls[own], &calls[0]);
  bool checked = l->in->options->numbers.check_finite && !n->along; /* its readers check */
  if (checked) sli_lower_finite(l, task, &calls[own], &calls[count++]);
  return count;
}

/* Names a copy: after its buffer for transfers between homes, so that messages about failing disks
 * name the buffer. The plan owns the name, since it outlives the lowering. */
static const char *name_of_copy(const sli_lowering *l, const sli_task *task) {
  bool homes = sli_transfer_kinds[task->transfer->kind].homes;
  return homes ? sl_plan_format(l->plan, "%s", l->buffers[task->transfer->origin].name)
               : sli_roles[l->buffers[task->outputs[0]].role].name;
}

/* Returns the type of a slot's numbers, row by row where it has rows. */
static sl_type slot_type(const sli_buffer *b) {
  if (!b->valid_length) return SL_TYPE(SL_F32, (int64_t)(b->bytes / sizeof(float)));
  int64_t row = (int64_t)b->payload_bytes / b->valid_length->rows;
  sl_dtype dtype = row % (int64_t)sizeof(float) ? SL_BF16 : SL_F32;
  return SL_TYPE(dtype, b->valid_length->rows, row / (int64_t)sl_dtype_bytes(dtype));
}

/* Copies a slot of one port to another's. */
static void write_transfer(sli_lowering *l, const sli_task *task, int in, int out,
                           const int16_t *valid_length, sl_program_call *call) {
  sl_plan *plan = l->plan;
  sl_place *places = sl_plan_alloc(plan, 2 * sizeof *places);
  sl_type *type = sl_plan_alloc(plan, sizeof *type);
  places[0] = (sl_place){in, 0};
  places[1] = (sl_place){task->ninputs + out, 0};
  *type = slot_type(&l->buffers[task->outputs[out]]);
  *call = (sl_program_call){.op = &sl_op_copy,
                            .name = name_of_copy(l, task),
                            .nin = 1,
                            .nout = 1,
                            .in_type = type,
                            .out_type = type,
                            .in = &places[0],
                            .out = &places[1],
                            .in_length = valid_length ? &valid_length[in] : NULL,
                            .out_length = valid_length ? &valid_length[task->ninputs + out] : NULL};
}

static int with_bytes(const sli_lowering *l, int count, const int *buffers) {
  int n = 0;
  while (n < count && (!n || l->buffers[buffers[n]].bytes)) n++;
  return n;
}

/* Writes copies from each input to each output. One side has one port; if the other side has
 * several, each firing uses one of them (sweep.c). Ports without bytes (turns) come last and are
 * not copied. */
static sl_program *transfer_program(sli_lowering *l, const sli_task *task) {
  if (sli_transfer_kinds[task->transfer->kind].ops)
    return NULL; /* the link itself moves the data */
  int nin = with_bytes(l, task->ninputs, task->inputs),
      nout = with_bytes(l, task->noutputs, task->outputs);
  sl_program *program = sl_plan_alloc(l->plan, sizeof *program);
  sl_program_call *calls = sl_plan_alloc(l->plan, (size_t)(nin * nout) * sizeof *calls);
  *program = (sl_program){.ncalls = nin * nout,
                          .calls = calls,
                          .nbases = task->ninputs + task->noutputs + 1,
                          .nvariants = 1};
  sli_lower_lengths(l, task, program);
  for (int i = 0; i < nin * nout; i++)
    write_transfer(l, task, i / nout, i % nout, program->base_length, &calls[i]);
  return program;
}

/* Writes the calls of a variant. Tasks that fire every tick update no parameter, so all calls
 * are of nodes. */
static void vary_program(sli_lowering *l, int task, int variant, sl_program *program) {
  const sli_task *g = &l->tasks[task];
  sl_program_call *calls = program->calls + variant * program->ncalls;
  for (int i = 0, at = 0; i < g->nnodes; i++)
    at += write_node(l, task, g->nodes[i], variant, &program->calls[at], &calls[at]);
}

sl_program *sli_lower_program(sli_lowering *l, int task) {
  const sli_task *g = &l->tasks[task];
  if (g->transfer) return transfer_program(l, g);
  if (g->rate == SLI_PER_STORE) return sli_lower_store_program(l, task);
  sl_program *program = sl_plan_alloc(l->plan, sizeof *program);
  bool cut = l->cut.pieces && g->rate <= SLI_PER_TICK;
  bool leaving = cut && sli_lower_reads_leaving(g);
  int nvariants = cut ? (leaving + 1) * l->in->g->cut.nvariants : 1;
  size_t most = (size_t)nvariants * count_calls(l, g) + copies(l, task) +
                (size_t)sli_lower_store_calls(l, task);
  program->calls = sl_plan_alloc(l->plan, most * sizeof *program->calls);
  program->nbases = g->ninputs + g->noutputs + 1;
  sli_lower_lengths(l, g, program);
  program->nvariants = nvariants;
  program->pieces = !cut ? NULL : leaving ? l->cut.leaving : l->cut.pieces;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    program->ncalls += write_copies(l, task, n, &program->calls[program->ncalls]);
    program->ncalls += write_node(l, task, n, 0, NULL, &program->calls[program->ncalls]);
  }
  program->ncalls += sli_lower_store_copies(l, task, program->calls + program->ncalls);
  for (int v = 1; v < nvariants; v++) vary_program(l, task, v, program);
  return program;
}
