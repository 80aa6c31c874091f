/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of the tools that make plans: `TOOL [options] MODEL [model options]`. One table
 * holds the options for what is planned and for which devices; a tool adds its own. */
#ifndef SLUICE_TOOLS_COMMON_SETTINGS_H
#define SLUICE_TOOLS_COMMON_SETTINGS_H

#include <stdbool.h>

#include <sluice/lower.h>
#include <sluice/model.h>
#include <sluice/objective.h>

#include "base/base.h"
#include "tools/common/hardware.h"
#include "tools/common/options.h"
#include "tools/common/profile.h"

typedef struct settings settings;

/* An option that a first run needs, and its effect in at most 56 letters. */
typedef struct first_option {
  const char *name, *help;
} first_option;

/* Definition of one tool's command line. */
typedef struct tool {
  const char *name;
  const char *usage;   /* more lines of the usage, or NULL */
  const char *purpose; /* first text of the help */
  /* the tool's own options; one with the name of a shared option replaces it */
  const tool_option *options;
  const char *const *shared; /* shared options that the tool has (NULL-terminated); NULL: all */
  const first_option *first; /* options that --help shows alone (ends with {0}); NULL: all */
  /* MODEL may be a Hugging Face folder or a GGUF file, which then is its --init */
  bool takes_weights;
  /* Reads the tool's own options, once the command line is known to be complete. */
  sl_status (*read)(settings *s);
  /* Name of an option with which the tool needs no MODEL; may be NULL. */
  const char *without_model;
  const char *commands; /* words that may stand in MODEL's place, or NULL */
  bool no_model;        /* the tool never takes a MODEL */
} tool;

/* Purpose of the graph: training; holding initial values, which needs no data; or inference. */
typedef enum graph_use { USE_TRAINING, USE_VALUES, USE_INFERENCE } graph_use;

struct settings {
  const tool *tool;
  sl_option *options;     /* the tool's and the shared options */
  sl_option *offered;     /* the options that may be given */
  sl_args *run;           /* the tool's options as given */
  const char *model_word; /* MODEL as given; NULL: none was needed */
  const sl_model *model;
  sl_args *model_args;
  struct {
    const char *path; /* --config, or NULL */
    char *text;
    size_t bytes;
    const char *model; /* MODEL that the file names, or NULL */
    bool print;        /* --print-config */
  } config;
  const char *help_group; /* GROUP of --help GROUP, or NULL */
  bool done;              /* the help or a listing was printed: nothing is left to do */
  sl_lower_options lower; /* plan settings, parsed from the options; but for callbacks */
  int process;            /* number of this process of the job */
  int microbatches, pieces;
  struct {
    const char *tokenizer; /* tokenizer of text files; NULL: tokens are bytes */
    uint64_t shuffle;      /* seed of the sequences' order; 0: file order */
    const char *chat_template, *learn, *long_chats; /* of chats; NULL: as is usual */
  } data;
  graph_use use;
  sl_clock clock;
  struct {
    sl_hardware hardware;                /* machine of --machine, all 0 without it */
    double spread;                       /* spread of its measurements */
  } modelled;                            /* durations of modelled devices */
  profile *profile;                      /* profile of --profile, or NULL */
  const sl_objective *objective;         /* in place of the next token of --data; NULL: that */
  struct objective_made *objective_made; /* actorrun's: what the objective reads */
  bool choose_homes;                     /* --home auto: search for whatever is not given */
  struct sli_shards *frozen;             /* file whose storage formats frozen weights keep */
  const char *adapter;                   /* --adapter DIR, or NULL */
  struct {
    int count;
    const char **names, **folders; /* [count] */
  } adapters;                      /* --adapter NAME=DIR */
  sl_training training;            /* training options that override the model's */
  sli_arena arena;                 /* holds the arrays and names above */
};

/* Reads the whole command line; messages name the option. Calls tool->read at the end. */
sl_status settings_read(const tool *tool, int argc, char **argv, settings *out);
void settings_fini(settings *s);

/* Returns the number of devices in a stage's grid. */
int settings_ranks(const settings *s);

/* Returns the text of an option, or NULL if it is empty. */
const char *settings_text(const settings *s, const char *name);
/* Gives each process at least one device, if the user does not say how many there are. */
void settings_occupy(settings *s);
/* Reads --memory if it is a single size: the budget of each device. */
sl_status settings_read_budget(settings *s);
/* Warns if the numbers of --machine are rough. */
void settings_warn(const settings *s);
/* Returns the type of matrix products: --dtype. */
sl_dtype settings_dtype(const settings *s);

#endif
