/* The command line of the tools that make plans: `TOOL [options] MODEL [model
 * options]`. One table holds the options that say what is planned and for which
 * devices; a tool adds its own. */
#ifndef SLUICE_TOOLS_COMMON_SETTINGS_H
#define SLUICE_TOOLS_COMMON_SETTINGS_H

#include <stdbool.h>

#include <sluice/lower.h>
#include <sluice/model.h>

#include "base/base.h"
#include "tools/common/hardware.h"
#include "tools/common/profile.h"

typedef struct settings settings;

/* What makes one tool's command line differ from another's. */
typedef struct tool {
  const char *name;
  const char *usage;          /* more lines of the usage, or NULL */
  const char *purpose;        /* what the help says first */
  const sl_option *options;   /* its own; one with the name of a shared option takes its place */
  const char *const *shared;  /* the shared options that it has, NULL-terminated; NULL: all */
  bool takes_weights;         /* MODEL may be a Hugging Face folder or a GGUF file, which is its --init then */
  /* Reads the tool's own texts, once the command line is known to be whole. */
  sl_status (*read)(settings *s);
  /* The option of that name lets the tool do something without a MODEL; may be NULL. */
  const char *without_model;
  bool no_model;              /* it never takes one */
} tool;

/* What the graph is for: steps of training; to hold the values that they begin with, which takes no
 * data; or inference. */
typedef enum graph_use { USE_TRAINING, USE_VALUES, USE_INFERENCE } graph_use;

struct settings {
  const tool *tool;
  sl_option *options;     /* the tool's and the shared ones */
  sl_option *offered;     /* of these, those that may be given */
  sl_args *run;           /* the tool's options as given */
  const char *model_word; /* as given; NULL: none was needed */
  const sl_model *model;
  sl_args *model_args;
  bool done;              /* help or the like was printed: nothing is left to do */
  /* What is planned, from the options' texts. */
  sl_device_options devices;
  int processes, process; /* that run the job, and which of them this is */
  int stages;
  struct {
    int data, sequence, tensor, experts;
    int expert_tensor;    /* devices that an expert lies on; 0: as `experts` says */
    bool free_data;       /* those of `tensor` may share the rows of the data too */
  } grid;                 /* devices of each stage */
  struct {
    int count;
    sl_given_sbp *of;
  } given;                /* how tensors lie, by --sbp */
  int chunks;             /* on each device; 0: the search of --schedule auto decides */
  int microbatches, pieces;
  const char *schedule;
  double activations;     /* that a device may hold, of --schedule auto; 0: any number */
  struct {
    const char *tokenizer; /* of text files; NULL: their bytes are the tokens */
    uint64_t shuffle;      /* seed of the order of sequences; 0: as they lie in the files */
  } data;
  graph_use use;
  sl_clock clock;
  struct {
    sl_cost cost;
    sl_hardware hardware; /* of --machine, all 0 without it */
    double spread;        /* of how it was measured */
  } modelled;             /* durations of timed devices */
  profile *profile;       /* of --profile, or NULL */
  int nquotas;
  sl_quota *quotas;
  struct {
    sl_home_options homes; /* of --home, --host-memory and --disk */
    bool choose;           /* --home auto: whatever else is not said is searched for */
    const char *recompute; /* all of --recompute, with commas */
    const char *shard;
  } kept;                  /* what of a plan is kept, and where */
  sl_training training;   /* what is said of it instead of what the model says */
  sli_arena arena;        /* of the arrays and names above */
};

/* Reads everything; messages name the option. Ends with tool->read. */
sl_status settings_read(const tool *tool, int argc, char **argv, settings *out);
void settings_fini(settings *s);

/* Devices of a stage's grid. */
int settings_ranks(const settings *s);

/* The text of an option, or NULL if it is empty. */
const char *settings_text(const settings *s, const char *name);
/* Has each of the processes drive a device at least, where the user does not say how many there are. */
void settings_occupy(settings *s);
/* Reads --memory, where it is one size: the budget of each device. */
sl_status settings_read_budget(settings *s);
/* Says what is known of --machine beside its numbers: that they are rough. */
void settings_warn(const settings *s);
/* Of products: --dtype. */
sl_dtype settings_dtype(const settings *s);

#endif
