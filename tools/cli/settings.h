/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of the tools that make plans: `TOOL [options] MODEL [model options]`. One table
 * holds the options for what is planned and for which devices. Each tool adds its options. */
#ifndef SLUICE_TOOLS_CLI_SETTINGS_H
#define SLUICE_TOOLS_CLI_SETTINGS_H

#include <stdbool.h>

#include <sluice/lower.h>
#include <sluice/model.h>
#include <sluice/objective.h>

#include "base/base.h"
#include "tools/cli/options.h"
#include "tools/formats/formats.h"
#include "tools/hardware/hardware.h"

typedef struct settings settings;

/* An option for a first run, and a description of at most 56 letters. */
typedef struct first_option {
  const char *name, *help;
} first_option;

/* Definition of one tool's command line. */
typedef struct tool {
  const char *name;
  const char *usage;   /* additional lines of the usage, or NULL */
  const char *purpose; /* first text of the help */
  /* the tool's own options; one with the name of a shared option replaces it */
  const tool_option *options;
  const char *const *shared; /* shared options that the tool has (NULL-terminated); NULL: all */
  const first_option *first; /* options that --help shows alone (ends with {0}); NULL: all */
  /* MODEL may be a Hugging Face folder or a GGUF file, which is then also its --init */
  bool takes_weights;
  /* Reads the tool's own options, once the command line is known to be complete. */
  sl_status (*read)(settings *s);
  /* Name of an option that makes MODEL unnecessary; may be NULL. */
  const char *without_model;
  const char *commands; /* words accepted in MODEL's place, or NULL */
  bool no_model;        /* the tool never takes a MODEL */
  bool serves;          /* the tool's plans are of served graphs */
} tool;

/* Purpose of the graph: training; holding initial values, without data; or inference. */
typedef enum graph_use { USE_TRAINING, USE_VALUES, USE_INFERENCE } graph_use;

struct settings {
  const tool *tool;
  sl_option *options;     /* the tool's and the shared options */
  sl_option *offered;     /* the options that may be given */
  sl_args *run;           /* the tool's options as given */
  const char *model_word; /* MODEL as given; NULL if none was needed */
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
  bool done;              /* the help or a listing was printed, so nothing is left to do */
  sl_lower_options lower; /* plan settings, parsed from the options; callbacks are not set */
  int process;            /* number of this process of the job */
  int microbatches, pieces;
  struct {
    const char *tokenizer; /* tokenizer of text files; NULL if tokens are bytes */
    uint64_t shuffle;      /* seed that orders the sequences; 0: file order */
    const char *chat_template, *learn, *long_chats; /* chat options; NULL: the default */
  } data;
  graph_use use;
  sl_clock clock;
  struct {
    sl_hardware hardware;        /* machine of --machine, all 0 without that option */
    double spread;               /* spread of its measurements */
  } modelled;                    /* durations of modelled devices */
  profile *profile;              /* profile of --profile, or NULL */
  const sl_objective *objective; /* replaces the next-token loss of --data; NULL: next-token loss */
  struct objective_made *objective_made; /* actorrun's state: what the objective reads */
  bool choose_homes;                     /* --home auto: search for everything that is not given */
  struct sli_shards *frozen;             /* file whose storage formats are kept by frozen weights */
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

/* Returns the model and the files of its weights. */
pretrained settings_pretrained(const settings *s);
/* Reads the metadata of --init: the model's options, and its tokenizer. */
sl_status settings_read_pretrained(settings *s);
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
/* Returns the name of the rate that --dtype takes from a machine file. */
const char *settings_rate(const settings *s);

#endif
