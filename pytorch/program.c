/* SPDX-License-Identifier: Apache-2.0 */
/* Reads models/model.json and the tables of weights. */
#include "pytorch/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { MOST_JSON = 1 << 30, MOST_CONFIG = 1 << 28, SCHEMA_MAJOR = 8 };

/* ---- types --------------------------------------------------------------------------------- */

const char *sli_pt_dtype_name(sli_pt_dtype dtype) {
  switch (dtype) {
#define X(name, number, text, bytes) \
  case SLI_PT_##name: return text;
    SLI_PT_DTYPES(X)
#undef X
  case SLI_PT_NONE: break;
  }
  return "?";
}

int sli_pt_dtype_bytes(sli_pt_dtype dtype) {
  switch (dtype) {
#define X(name, number, text, bytes) \
  case SLI_PT_##name: return bytes;
    SLI_PT_DTYPES(X)
#undef X
  case SLI_PT_NONE: break;
  }
  return 0;
}

int64_t sli_pt_elements(const sli_pt_type *type) {
  int64_t n = 1;
  for (int d = 0; d < type->ndim; d++) n *= type->dim[d];
  return n;
}

/* ---- reading ------------------------------------------------------------------------------- */

typedef struct reader {
  sli_pt_program *p;
  sli_json doc;
  const cJSON *tensors, *symbols; /* tensor_values, sym_int_values */
  sli_pt_value **sorted;          /* by name, for lookups */
  size_t capacity, nodes_capacity;
  size_t *table; /* open addressing: 1 + index in values */
  size_t slots;
  int depth;    /* nesting depth of graphs */
  bool no_grad; /* within torch.no_grad() */
} reader;

/* Reads a size: a number, or an expression with its value in the example. */
static sl_status read_size(const reader *r, const cJSON *item, int64_t *out) {
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(item, "as_int");
  if (!number) {
    const cJSON *expr = cJSON_GetObjectItemCaseSensitive(item, "as_expr");
    const cJSON *hint = cJSON_GetObjectItemCaseSensitive(expr, "hint");
    number = cJSON_GetObjectItemCaseSensitive(hint, "as_int");
    if (!number) number = cJSON_GetObjectItemCaseSensitive(item, "as_hint");
  }
  if (!number)
    return sli_json_fail(&r->doc, item,
                         "a size without a number: it depends on data, as that of x[mask] does; "
                         "torch.where and products with masks keep the shape");
  return sli_json_whole(&r->doc, number, 0, INT64_C(1) << 40, out);
}

/* Returns the expression of a symbolic size, or NULL. */
static const char *size_text(const reader *r, const cJSON *item) {
  const cJSON *expr = cJSON_GetObjectItemCaseSensitive(item, "as_expr");
  const cJSON *text = cJSON_GetObjectItemCaseSensitive(expr, "expr_str");
  return cJSON_IsString(text) ? sli_arena_strdup(&r->p->arena, text->valuestring) : NULL;
}

/* Keeps the expressions of a value's sizes. */
static void read_size_texts(const reader *r, const cJSON *meta, sli_pt_value *v) {
  const cJSON *sizes = cJSON_GetObjectItemCaseSensitive(meta, "sizes"), *size;
  int d = 0;
  v->size = sli_arena_alloc(&r->p->arena, SLI_PT_DIMS * sizeof *v->size);
  if (v->symbol) v->size[0] = size_text(r, meta);
  cJSON_ArrayForEach(size, sizes) if (d < SLI_PT_DIMS) v->size[d++] = size_text(r, size);
}

static sl_status read_type(const reader *r, const cJSON *meta, sli_pt_type *out) {
  int64_t dtype = 0;
  bool trained = false;
  const cJSON *sizes = NULL;
  const sli_json_field fields[] = {
      {"dtype", SLI_JSON_WHOLE, &dtype, .least = 0, .most = 64, .needed = true},
      {"requires_grad", SLI_JSON_FLAG, &trained, .needed = false},
      {"sizes", SLI_JSON_ARRAY, &sizes, .needed = true}};
  sl_status status = sli_json_pick(&r->doc, meta, fields, SLI_COUNT(fields));
  if (status) return status;
  *out = (sli_pt_type){.dtype = (sli_pt_dtype)dtype, .trained = trained};
  if (!sli_pt_dtype_bytes(out->dtype)) out->dtype = SLI_PT_NONE;
  const cJSON *size;
  int64_t all = 1;
  cJSON_ArrayForEach(size, sizes) {
    if (out->ndim == SLI_PT_DIMS)
      return sli_json_fail(&r->doc, sizes, "more than %d dims", SLI_PT_DIMS);
    status = read_size(r, size, &out->dim[out->ndim]);
    if (status) return status;
    if (__builtin_mul_overflow(all, out->dim[out->ndim++], &all) || all > INT64_C(1) << 46)
      return sli_json_fail(&r->doc, sizes, "more elements than any machine holds");
  }
  return SL_OK;
}

/* Returns whether the strides of a tensor are those of a row-major array. */
static bool is_dense(const cJSON *meta, const sli_pt_type *type) {
  const cJSON *strides = cJSON_GetObjectItemCaseSensitive(meta, "strides");
  int64_t expected = 1;
  for (int d = type->ndim - 1; d >= 0; d--) {
    const cJSON *number =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(strides, d), "as_int");
    if (type->dim[d] == 1) continue;
    if (!cJSON_IsNumber(number) || number->valuedouble != (double)expected) return false;
    expected *= type->dim[d];
  }
  return true;
}

/* ---- names --------------------------------------------------------------------------------- */

static size_t name_slot(const reader *r, const char *name) {
  size_t at = sli_hash(SLI_HASH_SEED, name, strlen(name)) & (r->slots - 1);
  while (r->table[at] && strcmp(r->p->values[r->table[at] - 1]->name, name))
    at = (at + 1) & (r->slots - 1);
  return at;
}

static sli_pt_value *find_value(const reader *r, const char *name) {
  size_t at = name_slot(r, name);
  return r->table[at] ? r->p->values[r->table[at] - 1] : NULL;
}

static sli_pt_value *add_value(reader *r, const char *name) {
  sli_pt_program *p = r->p;
  SLI_GROW(p->values, (size_t)p->nvalues, r->capacity);
  sli_pt_value *v = sli_arena_alloc(&p->arena, sizeof *v);
  v->name = sli_arena_strdup(&p->arena, name);
  v->id = p->nvalues;
  p->values[p->nvalues++] = v;
  return v;
}

static sl_status read_values(reader *r, const cJSON *graph) {
  sl_status status =
      sli_json_member(&r->doc, graph, "tensor_values", SLI_JSON_OBJECT, true, &r->tensors);
  if (!status)
    status = sli_json_member(&r->doc, graph, "sym_int_values", SLI_JSON_OBJECT, false, &r->symbols);
  if (status) return status;
  const cJSON *fractions = NULL;
  status = sli_json_member(&r->doc, graph, "sym_float_values", SLI_JSON_OBJECT, false, &fractions);
  if (status) return status;
  size_t count = sli_json_count(r->tensors) + (r->symbols ? sli_json_count(r->symbols) : 0) +
                 (fractions ? sli_json_count(fractions) : 0);
  for (r->slots = 16; r->slots < 2 * count + 2; r->slots *= 2) {}
  r->table = sli_calloc(r->slots, sizeof *r->table);
  const cJSON *item;
  cJSON_ArrayForEach(item, r->tensors) {
    sli_pt_value *v = add_value(r, item->string);
    status = read_type(r, item, &v->type);
    if (status) return status;
    v->dense = is_dense(item, &v->type);
    read_size_texts(r, item, v);
    r->table[name_slot(r, v->name)] = (size_t)v->id + 1;
  }
  cJSON_ArrayForEach(item, r->symbols) {
    if (find_value(r, item->string)) return sli_json_fail(&r->doc, item, "named twice");
    sli_pt_value *v = add_value(r, item->string);
    v->symbol = true;
    status = read_size(r, item, &v->hint);
    if (status) return status;
    read_size_texts(r, item, v);
    r->table[name_slot(r, v->name)] = (size_t)v->id + 1;
  }
  cJSON_ArrayForEach(item, fractions) {
    if (find_value(r, item->string)) return sli_json_fail(&r->doc, item, "named twice");
    sli_pt_value *v = add_value(r, item->string);
    v->symbol = v->fraction = true;
    r->table[name_slot(r, v->name)] = (size_t)v->id + 1;
  }
  return SL_OK;
}

static sl_status named_value(const reader *r, const cJSON *item, sli_pt_value **out) {
  const cJSON *name;
  sl_status status = sli_json_member(&r->doc, item, "name", SLI_JSON_TEXT, true, &name);
  if (status) return status;
  *out = find_value(r, name->valuestring);
  return *out ? SL_OK : sli_json_fail(&r->doc, item, "no value is named \"%s\"", name->valuestring);
}

/* ---- arguments ----------------------------------------------------------------------------- */

static sl_status read_arg(reader *r, const cJSON *item, sli_pt_arg *out);

static sl_status read_number(const reader *r, const cJSON *item, sli_pt_arg *out) {
  static const struct {
    const char *text;
    double value;
  } special[] = {
      {"Infinity", __builtin_inf()}, {"-Infinity", -__builtin_inf()}, {"NaN", __builtin_nan("")}};
  out->kind = SLI_PT_FLOAT;
  for (size_t i = 0; cJSON_IsString(item) && i < SLI_COUNT(special); i++)
    if (!strcmp(item->valuestring, special[i].text)) return out->f = special[i].value, SL_OK;
  return sli_json_number(&r->doc, item, -__builtin_inf(), __builtin_inf(), &out->f);
}

/* Reads an integer. Integers beyond 2^53, as in slices without an end, become the largest value. */
static sl_status read_int(const reader *r, const cJSON *item, sli_pt_arg *out) {
  out->kind = SLI_PT_INT;
  if (!cJSON_IsNumber(item)) return sli_json_is(&r->doc, item, SLI_JSON_WHOLE);
  double v = item->valuedouble;
  if (v >= 0x1p53) return out->i = INT64_MAX, SL_OK;
  if (v <= -0x1p53) return out->i = INT64_MIN, SL_OK;
  return sli_json_whole(&r->doc, item, INT64_MIN, INT64_MAX, &out->i);
}

static sl_status read_value(const reader *r, const cJSON *item, sli_pt_arg *out) {
  out->kind = SLI_PT_VALUE;
  return named_value(r, item, &out->value);
}

static sl_status read_flag(const reader *r, const cJSON *item, sli_pt_arg *out) {
  out->kind = SLI_PT_FLAG;
  out->flag = cJSON_IsTrue(item);
  return sli_json_is(&r->doc, item, SLI_JSON_FLAG);
}

/* Reads a symbolic number: a name, or the value it had. */
static sl_status read_symbol(const reader *r, const cJSON *item, sli_pt_arg *out) {
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "as_name");
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(item, "as_int");
  if (number) return read_int(r, number, out);
  number = cJSON_GetObjectItemCaseSensitive(item, "as_float");
  if (number) return read_number(r, number, out);
  if (!cJSON_IsString(name)) return sli_json_fail(&r->doc, item, "neither a name nor a number");
  out->kind = SLI_PT_VALUE;
  out->value = find_value(r, name->valuestring);
  return out->value ? SL_OK
                    : sli_json_fail(&r->doc, item, "no value is named \"%s\"", name->valuestring);
}

typedef sl_status read_fn(const reader *r, const cJSON *item, sli_pt_arg *out);
static sl_status read_nothing(const reader *r, const cJSON *item, sli_pt_arg *out) {
  (void)r, (void)item;
  out->kind = SLI_PT_ABSENT;
  return SL_OK;
}
static sl_status read_other(const reader *r, const cJSON *item, sli_pt_arg *out) {
  (void)r;
  out->kind = SLI_PT_OTHER;
  out->text = item->string;
  return SL_OK;
}
static sl_status read_text(const reader *r, const cJSON *item, sli_pt_arg *out) {
  out->kind = SLI_PT_TEXT;
  sl_status status = sli_json_is(&r->doc, item, SLI_JSON_TEXT);
  if (!status) out->text = sli_arena_strdup(&r->p->arena, item->valuestring);
  return status;
}
static sl_status read_dtype(const reader *r, const cJSON *item, sli_pt_arg *out) {
  out->kind = SLI_PT_DTYPE;
  return sli_json_whole(&r->doc, item, 0, 64, &out->i);
}
/* Reads an element of as_optional_tensors: {"as_tensor": ..} or {"as_none": ..}. */
static sl_status read_optional(const reader *r, const cJSON *item, sli_pt_arg *out) {
  const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(item, "as_tensor");
  return tensor ? read_value(r, tensor, out) : read_nothing(r, item, out);
}

/* Kinds of arguments, by their key in the file. */
static const struct kind {
  const char *key;
  read_fn *one;
  bool list;
} kinds[] = {{"as_tensor", read_value, false},
             {"as_int", read_int, false},
             {"as_ints", read_int, true},
             {"as_tensors", read_value, true},
             {"as_bool", read_flag, false},
             {"as_float", read_number, false},
             {"as_none", read_nothing, false},
             {"as_sym_int", read_symbol, false},
             {"as_sym_ints", read_symbol, true},
             {"as_sym_float", read_symbol, false},
             {"as_sym_bool", read_other, false},
             {"as_floats", read_number, true},
             {"as_bools", read_flag, true},
             {"as_string", read_text, false},
             {"as_strings", read_text, true},
             {"as_scalar_type", read_dtype, false},
             {"as_optional_tensors", read_optional, true},
             {"as_optional_tensor", read_optional, false},
             {"as_device", read_other, false},
             {"as_layout", read_other, false},
             {"as_memory_format", read_other, false}};

static sl_status read_list(const reader *r, const cJSON *item, read_fn *one, sli_pt_arg *out) {
  sl_status status = sli_json_is(&r->doc, item, SLI_JSON_ARRAY);
  if (status) return status;
  int count = (int)sli_json_count(item), i = 0;
  out->kind = SLI_PT_LIST;
  out->list.count = count;
  out->list.of = sli_arena_alloc(&r->p->arena, (size_t)(count + 1) * sizeof *out->list.of);
  const cJSON *member;
  cJSON_ArrayForEach(member, item) {
    status = one(r, member, &out->list.of[i++]);
    if (status) return status;
  }
  return SL_OK;
}

static sl_status read_arg(reader *r, const cJSON *item, sli_pt_arg *out) {
  const cJSON *only = cJSON_IsObject(item) ? item->child : NULL;
  if (!only || only->next) return sli_json_fail(&r->doc, item, "wanted one kind of argument");
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (!strcmp(only->string, kinds[i].key))
      return kinds[i].list ? read_list(r, only, kinds[i].one, out) : kinds[i].one(r, only, out);
  out->kind = SLI_PT_OTHER;
  out->text = sli_arena_strdup(&r->p->arena, only->string);
  return SL_OK;
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* Finds the innermost module: the path in the last entry "key,path,class" of the stack. */
static const char *innermost_module(sli_arena *arena, const char *stack) {
  const char *last = strrchr(stack, ';'), *comma = strchr(last ? last : stack, ',');
  const char *end = comma ? strchr(comma + 1, ',') : NULL;
  return end ? sli_arena_format(arena, "%.*s", (int)(end - comma - 1), comma + 1) : "";
}

/* Returns whether a path, which ends with a quote, is that of an installed PyTorch's own file. */
static bool is_pytorch(const char *path) {
  const char *inside = strstr(path, "-packages/torch/"), *end = strchr(path, '"');
  return inside && end && inside < end;
}

/* Finds the innermost Python line outside PyTorch, or the innermost one: `File "NAME", line N`. The
 * folder is dropped. */
static void innermost_line(sli_arena *arena, const char *trace, sli_pt_node *n) {
  const char *at = trace, *last = NULL;
  while ((at = strstr(at, "File \""))) {
    at += 6;
    if (!last || is_pytorch(last) || !is_pytorch(at)) last = at;
  }
  const char *quote = last ? strchr(last, '"') : NULL;
  if (!quote || strncmp(quote, "\", line ", 8)) return;
  const char *name = quote;
  while (name > last && name[-1] != '/') name--;
  n->file = sli_arena_format(arena, "%.*s", (int)(quote - name), name);
  n->line = atoi(quote + 8);
}

static sl_status read_outputs(reader *r, const cJSON *list, sli_pt_node *n) {
  int count = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, list) {
    const cJSON *many = cJSON_GetObjectItemCaseSensitive(item, "as_tensors");
    count += many ? (int)sli_json_count(many) : 1;
  }
  n->outs = sli_arena_alloc(&r->p->arena, (size_t)(count + 1) * sizeof *n->outs);
  cJSON_ArrayForEach(item, list) {
    sli_pt_arg arg = {0};
    sl_status status = read_arg(r, item, &arg);
    if (status) return status;
    int members = arg.kind == SLI_PT_LIST ? arg.list.count : 1;
    for (int i = 0; i < members; i++) {
      const sli_pt_arg *one = arg.kind == SLI_PT_LIST ? &arg.list.of[i] : &arg;
      sli_pt_value *v = one->kind == SLI_PT_VALUE ? one->value : NULL;
      if (v && (v->def || v->input))
        return sli_json_fail(&r->doc, item, "%s is made twice", v->name);
      if (v) v->def = n, v->output = n->nouts;
      n->outs[n->nouts++] = v;
    }
  }
  return SL_OK;
}

/* Refuses arguments that no earlier node makes: the list must be in execution order. */
static sl_status check_order(const reader *r, const cJSON *item, const sli_pt_arg *arg) {
  for (int i = 0; arg->kind == SLI_PT_LIST && i < arg->list.count; i++) {
    sl_status status = check_order(r, item, &arg->list.of[i]);
    if (status) return status;
  }
  if (arg->kind != SLI_PT_VALUE || arg->value->def || arg->value->input) return SL_OK;
  return sli_json_fail(&r->doc, item, "%s is read before it is made", arg->value->name);
}

static sl_status read_args(reader *r, const cJSON *list, sli_pt_node *n) {
  n->nargs = (int)sli_json_count(list);
  n->args = sli_arena_alloc(&r->p->arena, (size_t)(n->nargs + 1) * sizeof *n->args);
  const cJSON *item;
  int i = 0;
  cJSON_ArrayForEach(item, list) {
    const cJSON *name, *arg;
    sl_status status = sli_json_member(&r->doc, item, "name", SLI_JSON_TEXT, true, &name);
    if (!status) status = sli_json_member(&r->doc, item, "arg", SLI_JSON_OBJECT, true, &arg);
    if (!status) status = read_arg(r, arg, &n->args[i]);
    if (!status) status = check_order(r, arg, &n->args[i]);
    if (status) return status;
    n->args[i++].name = sli_arena_strdup(&r->p->arena, name->valuestring);
  }
  return SL_OK;
}

static const char *plain_target(const char *target) {
  static const char prefix[] = "torch.ops.";
  return strncmp(target, prefix, sizeof prefix - 1) ? target : target + sizeof prefix - 1;
}

static sl_status read_each(reader *r, const cJSON *of, const char *key,
                           sl_status (*one)(reader *, const cJSON *));

static sli_pt_node *add_node(reader *r, const char *target) {
  sli_pt_program *p = r->p;
  sli_pt_node *n = sli_arena_alloc(&p->arena, sizeof *n);
  n->target = target;
  n->module = "";
  n->id = p->nnodes;
  n->no_grad = r->no_grad;
  SLI_GROW(p->nodes, (size_t)p->nnodes, r->nodes_capacity);
  p->nodes[p->nnodes++] = n;
  return n;
}

/* ---- nested graphs -------------------------------------------------------------------------- */

/* Adds a call that passes a value on under another name. */
static sl_status pass_on(reader *r, const cJSON *item, const char *target, sli_pt_value *from,
                         sli_pt_value *to) {
  if (!from->def && !from->input)
    return sli_json_fail(&r->doc, item, "%s is read before it is made", from->name);
  if (to->def || to->input) return sli_json_fail(&r->doc, item, "%s is made twice", to->name);
  sli_pt_node *n = add_node(r, target);
  n->nargs = n->nouts = 1;
  n->args = sli_arena_alloc(&r->p->arena, sizeof *n->args);
  n->args[0] = (sli_pt_arg){.name = "self", .kind = SLI_PT_VALUE, .value = from};
  n->outs = sli_arena_alloc(&r->p->arena, sizeof(sli_pt_value *));
  n->outs[0] = to;
  to->def = n;
  return SL_OK;
}

/* A call of a graph. Its operands follow the graph among the arguments. */
typedef struct region {
  const cJSON *graph, *operands, *outputs; /* operands: the first argument after the graph */
  const char *leaves;                      /* target of the calls that pass its results on */
  bool no_grad;
} region;

/* Names of an inner graph, which hide those of the outer one while it is read. */
typedef struct scope {
  const cJSON *tensors, *symbols;
  size_t *table, slots;
} scope;

static scope enter_scope(reader *r) {
  scope outer = {r->tensors, r->symbols, r->table, r->slots};
  r->tensors = r->symbols = NULL;
  r->table = NULL, r->slots = 0;
  return outer;
}

static void leave_scope(reader *r, const scope *outer) {
  free(r->table);
  r->tensors = outer->tensors, r->symbols = outer->symbols;
  r->table = outer->table, r->slots = outer->slots;
}

static sl_status tensor_of(reader *r, const cJSON *arg, sli_pt_value **out) {
  const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(arg, "as_tensor");
  if (!tensor) return sli_json_fail(&r->doc, arg, "only tensors go into and out of a graph");
  return named_value(r, tensor, out);
}

/* Reads the names of a list of tensors, at most `most` of them. */
static sl_status tensors_of(reader *r, const cJSON *list, size_t most, sli_pt_value **out) {
  const cJSON *item;
  size_t i = 0;
  cJSON_ArrayForEach(item, list) {
    sl_status status = i == most ? sli_json_fail(&r->doc, list, "more tensors than are passed on")
                                 : tensor_of(r, item, &out[i++]);
    if (status) return status;
  }
  return i == most ? SL_OK : sli_json_fail(&r->doc, list, "fewer tensors than are passed on");
}

static sl_status read_node(reader *r, const cJSON *item);

static sl_status read_inside(reader *r, const region *of, sli_pt_value **operands, size_t count,
                             sli_pt_value **results, size_t outs) {
  const cJSON *inputs, *outputs;
  sl_status status = read_values(r, of->graph);
  if (!status)
    status = sli_json_member(&r->doc, of->graph, "inputs", SLI_JSON_ARRAY, true, &inputs);
  if (!status)
    status = sli_json_member(&r->doc, of->graph, "outputs", SLI_JSON_ARRAY, true, &outputs);
  sli_pt_value **inner = sli_calloc(count + outs + 1, sizeof *inner);
  if (!status) status = tensors_of(r, inputs, count, inner);
  for (size_t i = 0; i < count && !status; i++)
    status = pass_on(r, inputs, "aten.alias.default", operands[i], inner[i]);
  if (!status) status = read_each(r, of->graph, "nodes", read_node);
  if (!status) status = tensors_of(r, outputs, outs, inner);
  for (size_t i = 0; i < outs && !status; i++)
    status = pass_on(r, outputs, of->leaves, inner[i], results[i]);
  free(inner);
  return status;
}

/* Reads the calls of an inner graph in place of the call to it. */
static sl_status read_region(reader *r, const region *of) {
  enum { DEEPEST = 16 };
  size_t count = 0, outs = sli_json_count(of->outputs);
  for (const cJSON *i = of->operands; i; i = i->next) count++;
  if (r->depth == DEEPEST) return sli_json_fail(&r->doc, of->graph, "graphs in graphs too deep");
  sli_pt_value **operands = sli_calloc(count + outs + 1, sizeof *operands), **results;
  results = operands + count;
  sl_status status = SL_OK;
  size_t k = 0;
  for (const cJSON *i = of->operands; i && !status; i = i->next)
    status = tensor_of(r, cJSON_GetObjectItemCaseSensitive(i, "arg"), &operands[k++]);
  k = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, of->outputs) {
    const cJSON *many = cJSON_GetObjectItemCaseSensitive(item, "as_tensors");
    if (!status && many)
      status = sli_json_fail(&r->doc, item, "a list of tensors out of a graph is not supported");
    if (!status) status = tensor_of(r, item, &results[k++]);
  }
  if (!status) {
    scope outer = enter_scope(r);
    const bool no_grad = r->no_grad;
    r->no_grad = of->no_grad;
    r->depth++;
    status = read_inside(r, of, operands, count, results, outs);
    r->depth--;
    r->no_grad = no_grad;
    leave_scope(r, &outer);
  }
  free(operands);
  return status;
}

/* Finds the graph of a call that only affects how it is computed: torch.no_grad(), and autocast,
 * whose smaller types are computed as f32. Returns false for any other call. */
static bool find_region(const reader *r, const char *target, const cJSON *inputs,
                        const cJSON *outputs, region *out) {
  bool grad = !strcmp(target, "torch.ops.higher_order.wrap_with_set_grad_enabled");
  if (!grad && strcmp(target, "torch.ops.higher_order.wrap_with_autocast")) return false;
  *out = (region){.outputs = outputs, .leaves = "aten.alias.default", .no_grad = r->no_grad};
  const cJSON *item;
  cJSON_ArrayForEach(item, inputs) {
    const cJSON *arg = cJSON_GetObjectItemCaseSensitive(item, "arg");
    const cJSON *graph = cJSON_GetObjectItemCaseSensitive(arg, "as_graph");
    const cJSON *flag = cJSON_GetObjectItemCaseSensitive(arg, "as_bool");
    if (grad && flag) out->no_grad = cJSON_IsFalse(flag);
    if (out->no_grad) out->leaves = "aten.detach.default";
    if (!graph) continue;
    out->graph = cJSON_GetObjectItemCaseSensitive(graph, "graph");
    out->operands = item->next;
    return cJSON_IsObject(out->graph);
  }
  return false;
}

static sl_status read_node(reader *r, const cJSON *item) {
  sli_pt_program *p = r->p;
  const cJSON *inputs, *outputs, *metadata = NULL;
  const char *target, *stack = "", *trace = "";
  const sli_json_field fields[] = {{"target", SLI_JSON_TEXT, &target, .needed = true},
                                   {"inputs", SLI_JSON_ARRAY, &inputs, .needed = true},
                                   {"outputs", SLI_JSON_ARRAY, &outputs, .needed = true},
                                   {"metadata", SLI_JSON_OBJECT, &metadata, .needed = false}};
  sl_status status = sli_json_pick(&r->doc, item, fields, SLI_COUNT(fields));
  const sli_json_field details[] = {{"nn_module_stack", SLI_JSON_TEXT, &stack, .needed = false},
                                    {"stack_trace", SLI_JSON_TEXT, &trace, .needed = false}};
  if (!status && metadata) status = sli_json_pick(&r->doc, metadata, details, SLI_COUNT(details));
  if (status) return status;
  region inner;
  if (find_region(r, target, inputs, outputs, &inner)) return read_region(r, &inner);
  sli_pt_node *n = add_node(r, sli_arena_strdup(&p->arena, plain_target(target)));
  n->module = innermost_module(&p->arena, stack);
  innermost_line(&p->arena, trace, n);
  status = read_args(r, inputs, n);
  return status ? status : read_outputs(r, outputs, n);
}

/* ---- inputs and outputs -------------------------------------------------------------------- */

static const struct role {
  const char *key, *name;
  sli_pt_role role;
} roles[] = {{"parameter", "parameter_name", SLI_PT_PARAM},
             {"buffer", "buffer_name", SLI_PT_BUFFER},
             {"tensor_constant", "tensor_constant_name", SLI_PT_CONSTANT}};

static sl_status bind_input(reader *r, const cJSON *item, sli_pt_input *in, sli_pt_role role,
                            const cJSON *arg, const char *name) {
  sl_status status = named_value(r, arg, &in->value);
  if (status) return status;
  if (in->value->input) return sli_json_fail(&r->doc, item, "%s is bound twice", in->value->name);
  in->role = role;
  in->name = sli_arena_strdup(&r->p->arena, name ? name : in->value->name);
  in->value->input = in;
  r->p->ninputs++;
  return SL_OK;
}

static sl_status read_input(reader *r, const cJSON *item) {
  sli_pt_input *in = &r->p->inputs[r->p->ninputs];
  const cJSON *only = cJSON_IsObject(item) ? item->child : NULL, *arg, *name;
  if (!only || only->next) return sli_json_fail(&r->doc, item, "wanted one kind of input");
  for (size_t i = 0; i < SLI_COUNT(roles); i++) {
    if (strcmp(only->string, roles[i].key)) continue;
    sl_status status = sli_json_member(&r->doc, only, "arg", SLI_JSON_OBJECT, true, &arg);
    if (!status) status = sli_json_member(&r->doc, only, roles[i].name, SLI_JSON_TEXT, true, &name);
    return status ? status : bind_input(r, item, in, roles[i].role, arg, name->valuestring);
  }
  if (!strcmp(only->string, "constant_input")) return SL_OK; /* a number that occurs in the calls */
  if (strcmp(only->string, "user_input"))
    return sli_json_fail(&r->doc, item, "an input of a kind that is not supported: %s",
                         only->string);
  sl_status status = sli_json_member(&r->doc, only, "arg", SLI_JSON_OBJECT, true, &arg);
  if (status) return status;
  const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(arg, "as_tensor");
  if (cJSON_GetObjectItemCaseSensitive(arg, "as_none")) return SL_OK;
  if (!tensor) return sli_json_fail(&r->doc, item, "an argument of forward() that is no tensor");
  return bind_input(r, item, in, SLI_PT_USER, tensor, NULL);
}

static sl_status read_output(reader *r, const cJSON *item) {
  sli_pt_program *p = r->p;
  const cJSON *only = cJSON_IsObject(item) ? item->child : NULL, *arg, *name;
  if (!only) return sli_json_fail(&r->doc, item, "wanted one kind of output");
  sl_status status = sli_json_member(&r->doc, only, "arg", SLI_JSON_OBJECT, true, &arg);
  if (status) return status;
  if (!strcmp(only->string, "buffer_mutation")) {
    sli_pt_value *v;
    status = named_value(r, arg, &v);
    if (!status) status = sli_json_member(&r->doc, only, "buffer_name", SLI_JSON_TEXT, true, &name);
    for (int i = 0; !status && i < p->ninputs; i++)
      if (p->inputs[i].role == SLI_PT_BUFFER && !strcmp(p->inputs[i].name, name->valuestring))
        p->inputs[i].mutated = v;
    return status;
  }
  if (!strcmp(only->string, "user_input_mutation")) return SL_OK; /* a step has inputs of its own */
  if (strcmp(only->string, "user_output") && strcmp(only->string, "loss_output"))
    return sli_json_fail(&r->doc, item, "an output of a kind that is not supported: %s",
                         only->string);
  const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(arg, "as_tensor");
  if (!tensor) tensor = cJSON_GetObjectItemCaseSensitive(arg, "name") ? arg : NULL;
  const int leaf = p->nleaves++;
  if (!tensor) return SL_OK; /* a number or None among the outputs */
  if (!strcmp(only->string, "loss_output")) p->loss = p->nouts;
  p->leaf[p->nouts] = leaf;
  return named_value(r, tensor, &p->outs[p->nouts++]);
}

/* Keeps the description of the result, if the file has one. */
static void read_out_spec(const reader *r, const cJSON *module) {
  const cJSON *calls = cJSON_GetObjectItemCaseSensitive(module, "module_call_graph");
  const cJSON *whole = cJSON_GetArrayItem(calls, 0); /* the call of the module itself */
  const cJSON *path = cJSON_GetObjectItemCaseSensitive(whole, "fqn");
  const cJSON *signature = cJSON_GetObjectItemCaseSensitive(whole, "signature");
  const cJSON *spec = cJSON_GetObjectItemCaseSensitive(signature, "out_spec");
  if (cJSON_IsString(path) && !*path->valuestring && cJSON_IsString(spec))
    r->p->out_spec = sli_arena_strdup(&r->p->arena, spec->valuestring);
}

/* Finds the loss among the results of forward(), unless an output is marked. */
static void find_loss(sli_pt_program *p) {
  for (int i = 0; i < p->nouts && p->loss < 0; i++)
    if (!p->outs[i]->symbol && !p->outs[i]->type.ndim && sli_pt_floats(p->outs[i]->type.dtype))
      p->loss = i;
}

static sl_status read_each(reader *r, const cJSON *of, const char *key,
                           sl_status (*one)(reader *, const cJSON *)) {
  const cJSON *list, *item;
  sl_status status = sli_json_member(&r->doc, of, key, SLI_JSON_ARRAY, true, &list);
  if (status) return status;
  cJSON_ArrayForEach(item, list) {
    status = one(r, item);
    if (status) return status;
  }
  return SL_OK;
}

static sl_status read_signature(reader *r, const cJSON *module) {
  const cJSON *signature, *inputs, *outputs;
  sl_status status =
      sli_json_member(&r->doc, module, "signature", SLI_JSON_OBJECT, true, &signature);
  if (!status)
    status = sli_json_member(&r->doc, signature, "input_specs", SLI_JSON_ARRAY, true, &inputs);
  if (!status)
    status = sli_json_member(&r->doc, signature, "output_specs", SLI_JSON_ARRAY, true, &outputs);
  if (status) return status;
  sli_pt_program *p = r->p;
  p->inputs = sli_arena_alloc(&p->arena, (sli_json_count(inputs) + 1) * sizeof *p->inputs);
  p->outs = sli_arena_alloc(&p->arena, (sli_json_count(outputs) + 1) * sizeof *p->outs);
  p->leaf = sli_arena_alloc(&p->arena, (sli_json_count(outputs) + 1) * sizeof *p->leaf);
  read_out_spec(r, module);
  status = read_each(r, signature, "input_specs", read_input);
  return status ? status : read_each(r, signature, "output_specs", read_output);
}

/* ---- weights ------------------------------------------------------------------------------- */

/* Reads the layout of an input's elements in its entry. */
static sl_status read_layout(const reader *r, const cJSON *meta, const sli_pt_type *type,
                             sli_pt_input *in) {
  const cJSON *strides = cJSON_GetObjectItemCaseSensitive(meta, "strides");
  const cJSON *offset = cJSON_GetObjectItemCaseSensitive(meta, "storage_offset");
  int64_t expected = 1;
  in->dense = true;
  in->offset = 0;
  if (strides && cJSON_GetArraySize(strides) != type->ndim)
    return sli_json_fail(&r->doc, strides, "wanted a stride for each of the %d dims", type->ndim);
  sl_status status = offset ? read_size(r, offset, &in->offset) : SL_OK;
  for (int d = type->ndim - 1; d >= 0 && !status; d--) {
    const cJSON *stated = cJSON_GetArrayItem(strides, d);
    in->stride[d] = expected;
    if (stated) status = read_size(r, stated, &in->stride[d]);
    if (type->dim[d] == 1) in->stride[d] = 0;
    else if (in->stride[d] != expected) in->dense = false;
    expected *= type->dim[d];
  }
  return status;
}

/* Returns the number of elements of an entry up to the last one of an input, or -1 if no file can
 * have that many. */
static int64_t last_element(const sli_pt_input *in, const sli_pt_type *type) {
  int64_t last = in->offset, span;
  if (!sli_pt_elements(type)) return 0;
  for (int d = 0; d < type->ndim; d++)
    if (__builtin_mul_overflow(in->stride[d], type->dim[d] - 1, &span) ||
        __builtin_add_overflow(last, span, &last) || last > INT64_C(1) << 46)
      return -1;
  return last + 1;
}

static sl_status check_entry(const reader *r, const cJSON *item, const sli_pt_input *in,
                             const sli_pt_type *type) {
  size_t bytes = 0;
  int64_t elements = last_element(in, type);
  if (!sli_archive_has(r->p->archive, in->entry, &bytes))
    return sli_json_fail(&r->doc, item, "the archive has no entry %s", in->entry);
  if (!bytes && elements)
    return sli_json_fail(&r->doc, item,
                         "%s has no numbers: the module was exported without its weights (fake or "
                         "meta tensors); load them before the export",
                         in->entry);
  int width = sli_pt_dtype_bytes(type->dtype);
  if (elements < 0 || (size_t)elements * (size_t)width > bytes)
    return sli_json_fail(&r->doc, item, "%s has %zu bytes, fewer than the shape takes", in->entry,
                         bytes);
  return SL_OK;
}

static sl_status bind_weight(reader *r, const cJSON *item, const char *folder, sli_pt_input *in) {
  const char *path;
  const cJSON *meta = NULL;
  bool pickled = false;
  const sli_json_field fields[] = {{"path_name", SLI_JSON_TEXT, &path, .needed = true},
                                   {"use_pickle", SLI_JSON_FLAG, &pickled, .needed = false}};
  sl_status status = sli_json_pick(&r->doc, item, fields, SLI_COUNT(fields));
  if (status) return status;
  if (pickled)
    return sli_json_fail(&r->doc, item,
                         "pickled contents, which are never opened (a tensor subclass?)");
  sli_pt_type type;
  status = sli_json_member(&r->doc, item, "tensor_meta", SLI_JSON_OBJECT, true, &meta);
  if (!status) status = read_type(r, meta, &type);
  if (!status) status = read_layout(r, meta, &type, in);
  if (status) return status;
  const sli_pt_type *wanted = &in->value->type;
  bool same = type.dtype == wanted->dtype && type.ndim == wanted->ndim;
  for (int d = 0; same && d < type.ndim; d++) same = type.dim[d] == wanted->dim[d];
  if (!same) return sli_json_fail(&r->doc, item, "another type than the program's");
  in->entry = sli_arena_format(&r->p->arena, "%s%s", folder, path);
  return check_entry(r, item, in, &type);
}

/* Reads one of the two tables that map names to entries. */
static sl_status read_entries(reader *r, const char *folder, const char *table) {
  sli_pt_program *p = r->p;
  if (!sli_archive_has(p->archive, table, NULL)) return SL_OK;
  char *text, *shown = sli_format("%s: %s", sli_archive_path(p->archive), table);
  size_t bytes;
  sli_json program = r->doc;
  sl_status status = sli_archive_read(p->archive, table, MOST_CONFIG, &text, &bytes);
  r->doc = (sli_json){0};
  if (!status) {
    status = sli_json_read(shown, text, bytes, 0, &r->doc);
    free(text);
    const cJSON *config = NULL;
    if (!status)
      status = sli_json_member(&r->doc, r->doc.root, "config", SLI_JSON_OBJECT, true, &config);
    for (int i = 0; !status && i < p->ninputs; i++) {
      const cJSON *item = p->inputs[i].role == SLI_PT_USER || p->inputs[i].entry
                              ? NULL
                              : cJSON_GetObjectItemCaseSensitive(config, p->inputs[i].name);
      if (item) status = bind_weight(r, item, folder, &p->inputs[i]);
    }
    if (r->doc.root) sli_json_fini(&r->doc);
  }
  r->doc = program;
  free(shown);
  return status;
}

/* Returns whether two inputs have the same elements of one entry. */
static bool same_layout(const sli_pt_input *a, const sli_pt_input *b) {
  const sli_pt_type *x = &a->value->type, *y = &b->value->type;
  bool same = a->offset == b->offset && x->ndim == y->ndim && x->dtype == y->dtype;
  for (int d = 0; same && d < x->ndim; d++)
    same = x->dim[d] == y->dim[d] && a->stride[d] == b->stride[d];
  return same;
}

static bool overlap(const sli_pt_input *a, const sli_pt_input *b) {
  return a->offset < last_element(b, &b->value->type) &&
         b->offset < last_element(a, &a->value->type);
}

/* Finds inputs that share an entry: tied weights. Parameters that are different views of the same
 * elements would be trained separately, so they are refused. */
static sl_status find_tied(sli_pt_program *p) {
  for (int i = 0; i < p->ninputs; i++) {
    sli_pt_input *in = &p->inputs[i];
    for (int k = 0; k < i && in->entry && !in->same; k++) {
      sli_pt_input *other = &p->inputs[k];
      if (!other->entry || other->role != in->role || other->same ||
          strcmp(other->entry, in->entry))
        continue;
      if (same_layout(in, other)) in->same = other;
      else if (in->role == SLI_PT_PARAM && overlap(in, other))
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: parameters %s and %s share numbers but differ in shape or order; "
                       "make one of them of the other in forward()",
                       sli_archive_path(p->archive), other->name, in->name);
    }
  }
  return SL_OK;
}

/* Marks the running statistics of batch norm, which it changes without any trace in the program. */
static void find_statistics(sli_pt_program *p) {
  static const char *const names[] = {"running_mean", "running_var"};
  for (int i = 0; i < p->nnodes; i++)
    for (size_t k = 0; k < SLI_COUNT(names); k++) {
      const sli_pt_arg *arg = sli_pt_arg_find(p->nodes[i], names[k]);
      if (arg && arg->kind == SLI_PT_VALUE && arg->value->input) arg->value->input->follows = true;
    }
}

static sl_status read_weights(reader *r) {
  sl_status status = read_entries(r, "data/weights/", "data/weights/model_weights_config.json");
  if (!status)
    status = read_entries(r, "data/constants/", "data/constants/model_constants_config.json");
  const sli_pt_program *p = r->p;
  for (int i = 0; !status && i < p->ninputs; i++)
    if (p->inputs[i].role != SLI_PT_USER && !p->inputs[i].entry)
      status = sl_fail(SL_E_INPUT, "%s: the archive has no numbers for %s",
                       sli_archive_path(p->archive), p->inputs[i].name);
  if (!status) status = find_tied(r->p);
  if (!status) find_statistics(r->p);
  return status;
}

static sl_status check_byteorder(sli_archive *a) {
  char *text;
  size_t bytes;
  if (!sli_archive_has(a, "byteorder", NULL)) return SL_OK;
  sl_status status = sli_archive_read(a, "byteorder", 64, &text, &bytes);
  if (status) return status;
  if (strncmp(text, "little", 6))
    status =
        sl_fail(SL_E_INPUT, "%s: byteorder: wanted little, not %.16s", sli_archive_path(a), text);
  free(text);
  return status;
}

static sl_status check_version(reader *r) {
  const cJSON *version;
  int64_t major = 0;
  sl_status status =
      sli_json_member(&r->doc, r->doc.root, "schema_version", SLI_JSON_OBJECT, true, &version);
  const sli_json_field field = {"major",    SLI_JSON_WHOLE, &major,
                                .least = 0, .most = 1e6,    .needed = true};
  if (!status) status = sli_json_pick(&r->doc, version, &field, 1);
  if (status || major == SCHEMA_MAJOR) return status;
  return sl_fail(SL_E_INPUT,
                 "%s: schema version %lld, and %d is read; export it again with PyTorch 2.8 or "
                 "later",
                 sli_archive_path(r->p->archive), (long long)major, SCHEMA_MAJOR);
}

static sl_status read_program(reader *r) {
  const cJSON *module, *graph;
  sl_status status = check_version(r);
  if (!status)
    status = sli_json_member(&r->doc, r->doc.root, "graph_module", SLI_JSON_OBJECT, true, &module);
  if (!status) status = sli_json_member(&r->doc, module, "graph", SLI_JSON_OBJECT, true, &graph);
  if (!status) status = read_values(r, graph);
  if (!status) {
    const cJSON *signature = cJSON_GetObjectItemCaseSensitive(module, "signature");
    status = signature ? read_signature(r, module) : sli_json_fail(&r->doc, module, "no signature");
  }
  if (!status) status = read_each(r, graph, "nodes", read_node);
  for (int i = 0; !status && i < r->p->nouts; i++)
    if (!r->p->outs[i]->def && !r->p->outs[i]->input)
      status = sli_json_fail(&r->doc, module, "output %s is never made", r->p->outs[i]->name);
  if (!status) find_loss(r->p);
  return status ? status : read_weights(r);
}

sl_status sli_pt_program_read(const char *path, sli_pt_program **out) {
  static const char name[] = "models/model.json";
  sli_pt_program *p = sli_calloc(1, sizeof *p);
  p->loss = -1;
  reader r = {.p = p};
  char *text = NULL, *shown = sli_format("%s: %s", path, name);
  size_t bytes;
  sl_status status = sli_archive_open(path, &p->archive);
  if (!status) status = check_byteorder(p->archive);
  if (!status) status = sli_archive_read(p->archive, name, MOST_JSON, &text, &bytes);
  if (!status) status = sli_json_read(shown, text, bytes, 0, &r.doc);
  free(text);
  if (!status) status = read_program(&r);
  if (r.doc.root) sli_json_fini(&r.doc);
  free(shown);
  free(r.table);
  if (status) sli_pt_program_free(p);
  else *out = p;
  return status;
}

void sli_pt_program_free(sli_pt_program *p) {
  if (!p) return;
  sli_archive_close(p->archive);
  free(p->values);
  free(p->nodes);
  sli_arena_fini(&p->arena);
  free(p);
}

/* Picks elements of an entry that are not in row-major order. */
static void pick_elements(const sli_pt_input *in, const char *storage, int64_t first, int64_t count,
                          char *out) {
  const sli_pt_type *type = &in->value->type;
  size_t width = (size_t)sli_pt_dtype_bytes(type->dtype);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = 0, rest = first + i;
    for (int d = type->ndim - 1; d >= 0; d--) {
      at += rest % type->dim[d] * in->stride[d];
      rest /= type->dim[d];
    }
    memcpy(out + (size_t)i * width, storage + (size_t)at * width, width);
  }
}

sl_status sli_pt_input_part(const sli_pt_program *p, const sli_pt_input *in, int64_t first,
                            int64_t count, void *out) {
  const sli_pt_type *type = &in->value->type;
  size_t width = (size_t)sli_pt_dtype_bytes(type->dtype), begin = (size_t)in->offset * width;
  if (!count) return SL_OK;
  if (in->dense)
    return sli_archive_part(p->archive, in->entry, begin + (size_t)first * width,
                            (size_t)count * width, out);
  size_t bytes = (size_t)(last_element(in, type) - in->offset) * width;
  char *storage = malloc(bytes);
  if (!storage) return sl_fail(SL_E_MEMORY, "%s: no memory for %s", in->entry, in->name);
  sl_status status = sli_archive_part(p->archive, in->entry, begin, bytes, storage);
  if (!status) pick_elements(in, storage, first, count, out);
  free(storage);
  return status;
}

sl_status sli_pt_input_read(const sli_pt_program *p, const sli_pt_input *in, void **out) {
  const sli_pt_type *type = &in->value->type;
  int64_t count = sli_pt_elements(type);
  char *data = malloc((size_t)count * (size_t)sli_pt_dtype_bytes(type->dtype) + 1);
  if (!data) return sl_fail(SL_E_MEMORY, "%s: no memory for %s", in->entry, in->name);
  sl_status status = sli_pt_input_part(p, in, 0, count, data);
  if (status) free(data);
  else *out = data;
  return status;
}

sli_pt_arg *sli_pt_arg_peek(const sli_pt_node *n, const char *name) {
  for (int i = 0; i < n->nargs; i++)
    if (!strcmp(n->args[i].name, name)) return n->args[i].kind ? &n->args[i] : NULL;
  return NULL;
}

const sli_pt_arg *sli_pt_arg_find(const sli_pt_node *n, const char *name) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (arg) arg->read = true;
  return arg;
}
