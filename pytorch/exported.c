/* SPDX-License-Identifier: Apache-2.0 */
/* Exported programs for users: inputs, and the program as a model. */
#include <sluice/pytorch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "pytorch/build.h"
#include "pytorch/import.h"
#include "pytorch/inputs.h"
#include "pytorch/lengths.h"
#include "pytorch/logits.h"
#include "pytorch/sizes.h"

enum { MOST_ROWS = 1 << 20 };

struct sl_exported {
  sli_pt_program *program;
  int ninputs;
  sl_exported_input *inputs;
  sli_pt_input **of; /* [ninputs] */
  int64_t rows;      /* of the exported batch */
  sl_model model;
  sl_option *options;
  char *name, *batch; /* defaults of options */
};

/* ---- opening ------------------------------------------------------------------------------- */

/* Collects the tensor arguments of forward(). Dim 0 of the first one with dims counts the rows of a
 * batch; inputs of the same length have rows. If dim 0 of an input is symbolic, it counts them. */
static sl_status find_inputs(sl_exported *e) {
  sli_pt_program *p = e->program;
  e->inputs = sli_calloc((size_t)p->ninputs + 1, sizeof *e->inputs);
  e->of = sli_calloc((size_t)p->ninputs + 1, sizeof *e->of);
  for (int i = 0; i < p->ninputs; i++) {
    sli_pt_input *in = &p->inputs[i];
    if (in->role != SLI_PT_USER) continue;
    const sli_pt_type *type = &in->value->type;
    sl_type as = {.dtype = sli_pt_floats(type->dtype) ? SL_F32 : SL_I32, .ndim = type->ndim};
    memcpy(as.dim, type->dim, sizeof as.dim);
    if (!sli_pt_dtype_bytes(type->dtype) ||
        (type->dtype >= SLI_PT_C32 && type->dtype <= SLI_PT_C128))
      return sl_fail(SL_E_UNSUPPORTED, "%s: input %s is %s, which is not supported",
                     sli_archive_path(p->archive), in->name, sli_pt_dtype_name(type->dtype));
    bool counts = p->rows ? type->rows & 1 : type->ndim && (!e->rows || type->dim[0] == e->rows);
    if (counts && !e->rows) e->rows = type->dim[0];
    if (e->rows > MOST_ROWS)
      return sl_fail(SL_E_INPUT, "%s: input %s has %lld rows, more than a batch may have",
                     sli_archive_path(p->archive), in->name, (long long)e->rows);
    e->of[e->ninputs] = in;
    e->inputs[e->ninputs++] = (sl_exported_input){in->name, as, counts};
  }
  if (e->ninputs) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: forward() takes no tensor", sli_archive_path(p->archive));
}

/* Refuses types that are not supported: complex numbers and f64. */
static sl_status check_types(const sli_pt_program *p) {
  for (int i = 0; i < p->ninputs; i++) {
    const sli_pt_input *in = &p->inputs[i];
    if (in->role == SLI_PT_PARAM && in->value->type.dtype == SLI_PT_F64)
      return sl_fail(SL_E_UNSUPPORTED,
                     "%s: parameter %s is float64; training computes in float32: call "
                     "module.float() before the export",
                     sli_archive_path(p->archive), in->name);
  }
  for (int i = 0; i < p->nvalues; i++) {
    const sli_pt_value *v = p->values[i];
    if (v->symbol || v->type.dtype < SLI_PT_C32 || v->type.dtype > SLI_PT_C128) continue;
    const sli_pt_node *n = v->def;
    return sl_fail(SL_E_UNSUPPORTED,
                   "%s: %s makes a tensor of %s at %s:%d; complex numbers are not supported",
                   sli_archive_path(p->archive), n ? n->target : v->name,
                   sli_pt_dtype_name(v->type.dtype), n && n->file ? n->file : "?", n ? n->line : 0);
  }
  return SL_OK;
}

/* ---- as a model ---------------------------------------------------------------------------- */

/* Returns whether the only inputs are ids and labels of one shape: a language model. */
static bool is_language_model(const sl_exported *e) {
  if (e->ninputs > 2 || !e->ninputs) return false;
  for (int i = 0; i < e->ninputs; i++)
    if (e->inputs[i].type.dtype != SL_I32 || e->inputs[i].type.ndim != 2 || !e->inputs[i].rows ||
        e->inputs[i].type.dim[1] != e->inputs[0].type.dim[1])
      return false;
  return true;
}

/* Returns whether the program shifts labels itself, as those of transformers do: it pads or slices
 * them. */
static bool shifts_labels(const sl_exported *e) {
  const sli_pt_value *labels = e->of[e->ninputs - 1]->value;
  for (int i = 0; i < e->program->nnodes; i++) {
    const sli_pt_node *n = e->program->nodes[i];
    if (!n->nargs || n->args[0].kind != SLI_PT_VALUE || n->args[0].value != labels) continue;
    if (!strncmp(n->target, "aten.pad.", 9) || !strcmp(n->target, "aten.slice.Tensor") ||
        !strncmp(n->target, "aten.constant_pad", 17))
      return true;
  }
  return false;
}

/* Finds the first table indexed by an input: its number of rows, or 0 if there is none, and the
 * input, the first if there is none. An export with one tensor for two inputs reads either. */
static int64_t vocabulary(const sl_exported *e, int *input) {
  *input = 0;
  for (int i = 0; i < e->program->nnodes; i++) {
    const sli_pt_node *n = e->program->nodes[i];
    const sli_pt_value *at = sli_pt_arg_value(n, "indices"), *table = sli_pt_arg_value(n, "weight");
    if (strcmp(n->target, "aten.embedding.default") || !table) continue;
    for (int k = 0; k < e->ninputs; k++)
      if (sli_pt_viewed(at) == e->of[k]->value) return *input = k, table->type.dim[0];
  }
  return 0;
}

static sl_status build_tokens(const sl_exported *e, sl_graph *g, const sl_args *args, int64_t rows,
                              sl_tensor **inputs) {
  int input;
  int64_t vocab = vocabulary(e, &input);
  sl_tensor *targets;
  inputs[0] = sl_tokens(g, sl_arg_text(args, "data"), rows, e->inputs[0].type.dim[1],
                        vocab ? vocab : 1 << 24, &targets);
  if (e->ninputs > 1) inputs[1] = shifts_labels(e) ? inputs[0] : targets;
  return sl_graph_status(g);
}

static int find_input(const sl_exported *e, const char *name, size_t length) {
  for (int i = 0; i < e->ninputs; i++)
    if (strlen(e->inputs[i].name) == length && !memcmp(e->inputs[i].name, name, length)) return i;
  return -1;
}

/* Lists all inputs, for messages: "ids [4, 16], mask [4, 16]". */
static const char *list_inputs(const sl_exported *e, sl_graph *g) {
  char *text = sli_arena_strdup(&g->arena, ""), shape[SL_TYPE_TEXT];
  for (int i = 0; i < e->ninputs; i++)
    text = sli_arena_format(&g->arena, "%s%s%s %s", text, i ? ", " : "", e->inputs[i].name,
                            sl_type_format(shape, &e->inputs[i].type));
  return text;
}

/* Reads --input NAME=FILE for every input. */
static sl_status build_files(const sl_exported *e, sl_graph *g, const sl_args *args, int64_t rows,
                             sl_tensor **inputs) {
  const char **files = sl_graph_alloc(g, ((size_t)e->ninputs + 1) * sizeof *files), *given;
  for (int k = 0; (given = sl_arg_given(args, "input", k)); k++) {
    const char *equals = strchr(given, '=');
    int at = equals ? find_input(e, given, (size_t)(equals - given)) : -1;
    if (at < 0)
      return sl_graph_fail(g, SL_E_USAGE, "--input %s: wanted NAME=FILE; the inputs are %s", given,
                           list_inputs(e, g));
    files[at] = equals + 1;
  }
  for (int i = 0; i < e->ninputs && sl_graph_reads_data(g); i++)
    if (!files[i])
      return sl_graph_fail(g, SL_E_USAGE,
                           "no data for input %s: --input %s=FILE; the inputs are %s",
                           e->inputs[i].name, e->inputs[i].name, list_inputs(e, g));
  return sli_pt_inputs(g, e->ninputs, e->inputs, files, rows, inputs);
}

/* Reads --rows-in-constants. */
static sl_status read_constants(sl_graph *g, const char *text, sl_rows_in_constants *out) {
  static const char *const names[] = {
      [SL_ROWS_ASK] = "", [SL_ROWS_NO] = "no", [SL_ROWS_YES] = "yes"};
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (!strcmp(text, names[i])) return *out = (sl_rows_in_constants)i, SL_OK;
  return sl_graph_fail(g, SL_E_USAGE, "--rows-in-constants %s: must be yes or no", text);
}

/* ---- serving ------------------------------------------------------------------------------- */

static sl_status build_served(const sl_exported *e, sl_graph *g, const sl_args *args) {
  int input;
  int64_t vocab = vocabulary(e, &input);
  const sl_type *ids = &e->inputs[input].type;
  if (ids->dtype != SL_I32 || ids->ndim != 2 || ids->dim[1] < 2)
    return sl_graph_fail(g, SL_E_UNSUPPORTED,
                         "%s cannot be served: its input must be tokens [rows, positions]; "
                         "its inputs are %s",
                         e->name, list_inputs(e, g));
  sli_pt_value *logits = sli_pt_logits(g, e->program, e->of[input]->value, vocab);
  if (logits) sli_pt_check_lengths(g, e->program, logits);
  if (!logits || sl_graph_status(g)) return sl_graph_status(g);
  vocab = logits->type.dim[logits->type.ndim - 1];
  sl_tensor *targets, *rows = sl_tokens(g, "", 1, ids->dim[1], vocab, &targets);
  bool *counts = sl_graph_alloc(g, ((size_t)e->ninputs + 1) * sizeof *counts);
  for (int i = 0; i < e->ninputs; i++) counts[i] = e->inputs[i].rows;
  const char *block = sl_arg_text(args, "block");
  const sli_pt_use of = {.program = e->program,
                         .exported = e->rows,
                         .ninputs = e->ninputs,
                         .inputs = e->of,
                         .counts = counts,
                         .block = *block ? block : NULL,
                         .show = sl_arg_flag(args, "show-import") ? stdout : NULL,
                         .constants = SL_ROWS_NO};
  return sl_graph_status(g) ? sl_graph_status(g) : sli_pt_serve(g, &of, input, logits, rows);
}

/* ---- the model ------------------------------------------------------------------------------ */

static sl_status build_model(const sl_model *model, sl_graph *g, const sl_args *args) {
  const sl_exported *e = model->ctx;
  if (g->options.serve) return build_served(e, g, args);
  if (sl_graph_infer(g))
    return sl_graph_fail(g, SL_E_UNSUPPORTED, "%s: an exported program is trained or served",
                         model->name);
  int64_t batch = sl_arg_int(args, "batch"), rows = e->rows ? sl_microbatch_rows(g, batch) : 0;
  sl_tensor **inputs = sl_graph_alloc(g, (size_t)e->ninputs * sizeof *inputs);
  bool tokens = is_language_model(e) && !sl_arg_given(args, "input", 0);
  if (sl_graph_status(g)) return sl_graph_status(g);
  if (tokens && !*sl_arg_text(args, "data") && sl_graph_reads_data(g))
    return sl_graph_fail(g, SL_E_USAGE,
                         "%s needs something to learn: --data FILE, or --input "
                         "NAME=FILE for each of %s",
                         model->name, list_inputs(e, g));
  if (!tokens && *sl_arg_text(args, "data"))
    return sl_graph_fail(g, SL_E_USAGE,
                         "%s: --data is for language models; this one's inputs are "
                         "%s: --input NAME=FILE",
                         model->name, list_inputs(e, g));
  sl_status status =
      tokens ? build_tokens(e, g, args, rows, inputs) : build_files(e, g, args, rows, inputs);
  sl_rows_in_constants constants = SL_ROWS_ASK;
  if (!status) status = read_constants(g, sl_arg_text(args, "rows-in-constants"), &constants);
  sl_optimizer optimizer = sl_arg_optimizer(args);
  const char *block = sl_arg_text(args, "block");
  const sl_exported_options options = {inputs, *block ? block : NULL, &optimizer,
                                       sl_arg_flag(args, "show-import") ? stdout : NULL, constants};
  return status ? status : sl_exported_build(e, g, &options);
}

static void make_model(sl_exported *e, const char *path) {
  static const sl_option common[] = {
      {"data", SL_OPTION_LIST, "",
       "`FILE` to learn, for language models: text, .npy, or flat tokens; or a folder; may be "
       "repeated",
       0, 0},
      {"input", SL_OPTION_LIST, "",
       "`NAME=FILE` data of an argument of forward(): rows of a .npy or .safetensors file", 0, 0},
      {"block", SL_OPTION_TEXT, "",
       "`PATTERN` modules that are blocks, between which a pipeline is cut (\"h.*\"); empty: "
       "found",
       0, 0},
      {"rows-in-constants", SL_OPTION_TEXT, "",
       "`yes|no` whether numbers beside sums over rows are the number of rows; asked if they may be",
       0, 0},
      {"show-import", SL_OPTION_FLAG, "0", "print what became of each call", 0, 0},
      {"batch", SL_OPTION_INT, "1", "rows per step", 1, MOST_ROWS},
      SL_OPTIMIZER_OPTIONS,
      {0}};
  const char *slash = strrchr(path, '/');
  e->name = sli_strdup(slash ? slash + 1 : path);
  e->batch = sli_format("%lld", (long long)SLI_MAX(e->rows, 1));
  e->options = sli_calloc(SLI_COUNT(common), sizeof *common);
  memcpy(e->options, common, sizeof common);
  for (sl_option *o = e->options; o->name; o++)
    if (!strcmp(o->name, "batch")) o->value = e->batch;
  e->model = (sl_model){.abi = SL_MODEL_ABI,
                        .name = e->name,
                        .summary = "a program exported from PyTorch",
                        .options = e->options,
                        .build_own = build_model,
                        .ctx = e};
}

/* ---- interface ----------------------------------------------------------------------------- */

sl_status sl_exported_open(const char *path, sl_exported **out) {
  sl_exported *e = sli_calloc(1, sizeof *e);
  sl_status status = sli_pt_program_read(path, &e->program);
  if (!status) status = check_types(e->program);
  if (!status) status = sli_pt_functional(e->program);
  if (!status) status = sli_pt_sizes_find_rows(e->program);
  if (!status) status = find_inputs(e);
  if (!status) make_model(e, path);
  if (!status) status = sli_memory_check();
  if (status) sl_exported_close(e);
  else *out = e;
  return status;
}

void sl_exported_close(sl_exported *e) {
  if (!e) return;
  sli_pt_program_free(e->program);
  free(e->inputs);
  free(e->of);
  free(e->options);
  free(e->name);
  free(e->batch);
  free(e);
}

int sl_exported_inputs(const sl_exported *e, const sl_exported_input **out) {
  *out = e->inputs;
  return e->ninputs;
}

int64_t sl_exported_rows(const sl_exported *e) { return e->rows; }

const sl_model *sl_exported_model(const sl_exported *e) { return &e->model; }

/* Returns the rows of a microbatch, from the first input that has rows. */
static int64_t rows_of(const sl_exported *e, const sl_exported_options *options) {
  for (int i = 0; i < e->ninputs; i++)
    if (e->inputs[i].rows) return sl_dim(options->inputs[i], 0);
  return 0;
}

/* Checks data against the exported types. */
static void check_inputs(const sl_exported *e, sl_graph *g, const sl_exported_options *options,
                         int64_t rows) {
  char has[SL_TYPE_TEXT], wants[SL_TYPE_TEXT];
  for (int i = 0; i < e->ninputs && !sl_graph_status(g); i++) {
    sl_type type = e->inputs[i].type;
    if (e->inputs[i].rows) type.dim[0] = rows;
    if (!options->inputs[i] || !sl_type_equal(sl_tensor_type(options->inputs[i]), &type))
      sl_graph_fail(g, SL_E_SHAPE, "%s: input %s is %s, and must be %s", e->name, e->inputs[i].name,
                    sl_type_format(has, sl_tensor_type(options->inputs[i])),
                    sl_type_format(wants, &type));
  }
}

sl_status sl_exported_build(const sl_exported *e, sl_graph *g, const sl_exported_options *options) {
  if (sl_graph_status(g)) return sl_graph_status(g);
  int64_t rows = rows_of(e, options);
  check_inputs(e, g, options, rows);
  if (sl_graph_status(g)) return sl_graph_status(g);
  bool *counts = sl_graph_alloc(g, ((size_t)e->ninputs + 1) * sizeof *counts);
  for (int i = 0; i < e->ninputs; i++) counts[i] = e->inputs[i].rows;
  const sli_pt_use of = {.program = e->program,
                         .exported = e->rows,
                         .rows = rows,
                         .ninputs = e->ninputs,
                         .inputs = e->of,
                         .tensors = options->inputs,
                         .counts = counts,
                         .block = options->block,
                         .optimizer = options->optimizer,
                         .show = options->show,
                         .constants = options->rows_in_constants};
  return sli_pt_build(g, &of);
}
