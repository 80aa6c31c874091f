/* SPDX-License-Identifier: Apache-2.0 */
/* An exported program: PyTorch's graph of ATen calls, as described by models/model.json. Constants
 * and weights stay in the archive until they are requested.
 *
 * Threads: one at a time. */
#ifndef SLUICE_PYTORCH_PROGRAM_H
#define SLUICE_PYTORCH_PROGRAM_H

#include <stdint.h>
#include <string.h>

#include "base/base.h"
#include "pytorch/archive.h"

enum { SLI_PT_DIMS = 8 };

/* Element types, by PyTorch's numbers in the file. X(name, number, text, bytes) */
/* clang-format off */
#define SLI_PT_DTYPES(X)                                                       \
  X(U8, 1, "uint8", 1) X(I8, 2, "int8", 1) X(I16, 3, "int16", 2)               \
  X(I32, 4, "int32", 4) X(I64, 5, "int64", 8) X(F16, 6, "float16", 2)          \
  X(F32, 7, "float32", 4) X(F64, 8, "float64", 8)                              \
  X(C32, 9, "complex32", 4) X(C64, 10, "complex64", 8)                         \
  X(C128, 11, "complex128", 16) X(BOOL, 12, "bool", 1) X(BF16, 13, "bfloat16", 2)
/* clang-format on */
typedef enum sli_pt_dtype {
  SLI_PT_NONE,
#define X(name, number, text, bytes) SLI_PT_##name = number,
  SLI_PT_DTYPES(X)
#undef X
} sli_pt_dtype;
const char *sli_pt_dtype_name(sli_pt_dtype dtype); /* "float32"; "?" */
int sli_pt_dtype_bytes(sli_pt_dtype dtype);
static inline bool sli_pt_floats(sli_pt_dtype d) {
  return d == SLI_PT_F16 || d == SLI_PT_F32 || d == SLI_PT_F64 || d == SLI_PT_BF16;
}

typedef struct sli_pt_type {
  sli_pt_dtype dtype;
  bool trained; /* has a gradient */
  int ndim;
  int64_t dim[SLI_PT_DIMS]; /* as exported; for a symbol, its example value */
  uint32_t rows; /* bit d: the symbolic number of rows enters dim d; see sli_pt_sizes_find_rows */
} sli_pt_type;

static inline bool sli_pt_same_dims(const sli_pt_type *a, const sli_pt_type *b) {
  return a->ndim == b->ndim && !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

/* A named value of the program: a tensor, a symbolic number, or a list of tensors. */
typedef struct sli_pt_value sli_pt_value;
typedef struct sli_pt_node sli_pt_node;
typedef struct sli_pt_input sli_pt_input;

typedef enum sli_pt_kind {
  SLI_PT_ABSENT, /* None */
  SLI_PT_VALUE,  /* a tensor or a symbolic number: `value` */
  SLI_PT_INT,
  SLI_PT_FLOAT,
  SLI_PT_FLAG,
  SLI_PT_TEXT,
  SLI_PT_DTYPE, /* `i` is an sli_pt_dtype */
  SLI_PT_OTHER, /* a device, layout or memory format, which affect no number; otherwise `text` names
                   what is not supported */
  SLI_PT_LIST   /* `count` arguments */
} sli_pt_kind;

typedef struct sli_pt_arg {
  const char *name; /* parameter's name; NULL in a list */
  sli_pt_kind kind;
  bool read; /* since sli_pt_forget_arguments() */
  union {
    sli_pt_value *value;
    int64_t i;
    double f;
    bool flag;
    const char *text;
    struct {
      int count;
      struct sli_pt_arg *of;
    } list;
  };
} sli_pt_arg;

struct sli_pt_value {
  const char *name;
  bool symbol;         /* a number instead of a tensor */
  sli_pt_type type;    /* for a tensor */
  bool fraction;       /* for a symbol: not a whole number; it has no hint */
  int64_t hint;        /* for a symbol: its value when exported */
  bool dense;          /* for a tensor: its elements were in row-major order when exported */
  const char **size;   /* [dims, or 1 for a symbol] expression of a symbolic size, or NULL */
  sli_pt_node *def;    /* NULL for an input of the program */
  int output;          /* index among the outputs of def */
  sli_pt_input *input; /* or NULL */
  int id;
};

struct sli_pt_node {
  const char *target; /* "aten.add.Tensor" */
  int nargs, nouts;
  sli_pt_arg *args;
  sli_pt_value **outs;
  const char *module; /* path of the innermost module, "model.h.3.attn" */
  const char *file;   /* Python file and line of the call; NULL if unknown */
  int line, id;
  bool no_grad; /* within torch.no_grad() */
};

/* Origin of a value that no call makes. */
typedef enum sli_pt_role { SLI_PT_PARAM, SLI_PT_BUFFER, SLI_PT_CONSTANT, SLI_PT_USER } sli_pt_role;
struct sli_pt_input {
  sli_pt_role role;
  const char *name;  /* path of a parameter, buffer or constant in the module; for a user's input,
                        the argument's name */
  const char *entry; /* entry in the archive, or NULL */
  sli_pt_value *value;
  int64_t stride[SLI_PT_DIMS], offset; /* in the entry, in elements */
  bool dense;                          /* the strides are those of a row-major array */
  sli_pt_input *same;    /* an earlier input with the same elements (tied weights), or NULL */
  bool follows;          /* a buffer that batch norm updates */
  sli_pt_value *mutated; /* for a buffer: its new contents; or NULL */
};

typedef struct sli_pt_program {
  sli_archive *archive;
  sli_arena arena;
  int nvalues, nnodes, ninputs, nouts;
  sli_pt_value **values;
  sli_pt_node **nodes;
  sli_pt_input *inputs;
  sli_pt_value **outs; /* results of forward(), without mutations */
  int *leaf;           /* [nouts] their places among all leaves of the result, None included */
  int nleaves;
  const char *out_spec; /* PyTorch's description of the result as a tree, in JSON; or NULL */
  int loss; /* index of the loss: the output marked as loss, or the first scalar; -1 if none */
  const char *rows; /* name of the symbolic number of rows; NULL: the batch size is a number */
} sli_pt_program;

/* Reads the program of an archive, which it then owns. SL_E_INPUT names the file and the location
 * in it. */
sl_status sli_pt_program_read(const char *path, sli_pt_program **out);
void sli_pt_program_free(sli_pt_program *p);
/* Reads the contents of an input as row-major elements of its type; the caller frees them. */
sl_status sli_pt_input_read(const sli_pt_program *p, const sli_pt_input *in, void **out);
/* Reads `count` of these elements, starting at element `first`. Any thread. */
sl_status sli_pt_input_part(const sli_pt_program *p, const sli_pt_input *in, int64_t first,
                            int64_t count, void *out);
/* Finds an argument by its parameter's name, or returns NULL. It counts as read. */
const sli_pt_arg *sli_pt_arg_find(const sli_pt_node *n, const char *name);
/* Finds an argument without reading it. */
sli_pt_arg *sli_pt_arg_peek(const sli_pt_node *n, const char *name);
int64_t sli_pt_elements(const sli_pt_type *type);

#endif
