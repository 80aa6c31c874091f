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
  sli_pt_value **sorted;          /* by name, for look-ups */
  size_t capacity, nodes_capacity;
  size_t *table; /* open addressing: 1 + index in values */
  size_t slots;
} reader;

/* Reads a size: a number, or an expression with the example it had. */
static sl_status read_size(const reader *r, const cJSON *item, int64_t *out) {
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(item, "as_int");
  if (!number) {
    const cJSON *expr = cJSON_GetObjectItemCaseSensitive(item, "as_expr");
    const cJSON *hint = cJSON_GetObjectItemCaseSensitive(expr, "hint");
    number = cJSON_GetObjectItemCaseSensitive(hint, "as_int");
    if (!number) number = cJSON_GetObjectItemCaseSensitive(item, "as_hint");
  }
  if (!number)
    return sli_json_fail(&r->doc, item, "a size without a number: export with example inputs");
  return sli_json_whole(&r->doc, number, 0, INT64_C(1) << 40, out);
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
  size_t count = sli_json_count(r->tensors) + (r->symbols ? sli_json_count(r->symbols) : 0);
  for (r->slots = 16; r->slots < 2 * count + 2; r->slots *= 2) {}
  r->table = sli_calloc(r->slots, sizeof *r->table);
  const cJSON *item;
  cJSON_ArrayForEach(item, r->tensors) {
    sli_pt_value *v = add_value(r, item->string);
    status = read_type(r, item, &v->type);
    if (status) return status;
    r->table[name_slot(r, v->name)] = (size_t)v->id + 1;
  }
  cJSON_ArrayForEach(item, r->symbols) {
    if (find_value(r, item->string)) return sli_json_fail(&r->doc, item, "named twice");
    sli_pt_value *v = add_value(r, item->string);
    v->symbol = true;
    status = read_size(r, item, &v->hint);
    if (status) return status;
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

/* Reads a whole number; those beyond 2^53, as in slices without an end, come out as the largest. */
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

/* A symbolic number: a name, or what it turned out to be. */
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
/* An element of as_optional_tensors: {"as_tensor": ..} or {"as_none": ..}. */
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

/* Finds the innermost Python line: `File "NAME", line N`. The name goes without its folder. */
static void innermost_line(sli_arena *arena, const char *trace, sli_pt_node *n) {
  const char *at = trace, *last = NULL;
  while ((at = strstr(at, "File \""))) last = at += 6;
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

/* Refuses arguments that no earlier node makes: the list is in an order that can run. */
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
  sli_pt_node *n = sli_arena_alloc(&p->arena, sizeof *n);
  n->target = sli_arena_strdup(&p->arena, plain_target(target));
  n->module = innermost_module(&p->arena, stack);
  n->id = p->nnodes;
  innermost_line(&p->arena, trace, n);
  SLI_GROW(p->nodes, (size_t)p->nnodes, r->nodes_capacity);
  p->nodes[p->nnodes++] = n;
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
  if (!strcmp(only->string, "constant_input")) return SL_OK; /* a number that is in the calls */
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
  const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(arg, "as_tensor");
  if (!tensor) tensor = cJSON_GetObjectItemCaseSensitive(arg, "name") ? arg : NULL;
  if (!tensor) return SL_OK; /* a number or None among the outputs */
  return named_value(r, tensor, &p->outs[p->nouts++]);
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
  status = read_each(r, signature, "input_specs", read_input);
  return status ? status : read_each(r, signature, "output_specs", read_output);
}

/* ---- weights ------------------------------------------------------------------------------- */

static sl_status bind_weight(reader *r, const cJSON *item, const char *folder, sli_pt_input *in) {
  const char *path;
  const cJSON *meta;
  bool pickled = false;
  const sli_json_field fields[] = {{"path_name", SLI_JSON_TEXT, &path, .needed = true},
                                   {"use_pickle", SLI_JSON_FLAG, &pickled, .needed = false},
                                   {"tensor_meta", SLI_JSON_OBJECT, &meta, .needed = true}};
  sl_status status = sli_json_pick(&r->doc, item, fields, SLI_COUNT(fields));
  sli_pt_type type;
  if (!status) status = read_type(r, meta, &type);
  if (status) return status;
  if (pickled)
    return sli_json_fail(&r->doc, item,
                         "pickled contents, which are never opened (a tensor "
                         "subclass?)");
  int64_t expected = 1;
  const cJSON *strides = cJSON_GetObjectItemCaseSensitive(meta, "strides");
  for (int d = type.ndim - 1; d >= 0; d--) {
    int64_t stride = expected;
    const cJSON *stated = cJSON_GetArrayItem(strides, d);
    if (stated) status = read_size(r, stated, &stride);
    if (status) return status;
    if (type.dim[d] > 1 && stride != expected)
      return sli_json_fail(&r->doc, item, "not contiguous: call .contiguous() before the export");
    expected *= type.dim[d];
  }
  if (type.dtype != in->value->type.dtype ||
      sli_pt_elements(&type) != sli_pt_elements(&in->value->type))
    return sli_json_fail(&r->doc, item, "another type than the program's");
  in->entry = sli_arena_format(&r->p->arena, "%s%s", folder, path);
  return SL_OK;
}

/* Reads one of the two tables that say which entry has the numbers of which name. */
static sl_status read_entries(reader *r, const char *folder, const char *table) {
  sli_pt_program *p = r->p;
  if (!sli_archive_has(p->archive, table, NULL)) return SL_OK;
  char *text, *shown = sli_format("%s: %s", sli_archive_path(p->archive), table);
  size_t bytes;
  sli_json program = r->doc;
  sl_status status = sli_archive_read(p->archive, table, MOST_CONFIG, &text, &bytes);
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

/* Finds inputs with one entry: tied weights. */
static void find_tied(sli_pt_program *p) {
  for (int i = 0; i < p->ninputs; i++)
    for (int k = 0; k < i && p->inputs[i].entry && !p->inputs[i].same; k++)
      if (p->inputs[k].entry && p->inputs[k].role == p->inputs[i].role && !p->inputs[k].same &&
          !strcmp(p->inputs[k].entry, p->inputs[i].entry))
        p->inputs[i].same = &p->inputs[k];
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
  if (!status) find_tied(r->p);
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
  return status ? status : read_weights(r);
}

sl_status sli_pt_program_read(const char *path, sli_pt_program **out) {
  static const char name[] = "models/model.json";
  sli_pt_program *p = sli_calloc(1, sizeof *p);
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

sl_status sli_pt_input_read(const sli_pt_program *p, const sli_pt_input *in, void **out) {
  const sli_pt_type *type = &in->value->type;
  size_t wanted = (size_t)sli_pt_elements(type) * (size_t)sli_pt_dtype_bytes(type->dtype), bytes;
  char *data;
  sl_status status = sli_archive_read(p->archive, in->entry, wanted, &data, &bytes);
  if (status) return status;
  if (bytes == wanted) return *out = data, SL_OK;
  free(data);
  return sl_fail(SL_E_INPUT, "%s: %s: %zu bytes for %s, whose shape takes %zu",
                 sli_archive_path(p->archive), in->entry, bytes, in->name, wanted);
}

const sli_pt_arg *sli_pt_arg_find(const sli_pt_node *n, const char *name) {
  for (int i = 0; i < n->nargs; i++)
    if (!strcmp(n->args[i].name, name)) return n->args[i].kind ? &n->args[i] : NULL;
  return NULL;
}
