/* SPDX-License-Identifier: Apache-2.0 */
/* Model families: the rows of families.json, and what they say. docs/families.md describes a row.
 */
#ifndef SLUICE_TOOLS_FORMATS_FAMILY_H
#define SLUICE_TOOLS_FORMATS_FAMILY_H

#include <stdio.h>

#include "tools/formats/config.h"

/* An option with one value in all models of a family. */
typedef struct fixed_option {
  const char *option, *value;
} fixed_option;

typedef struct family {
  const char *type, *architecture, *model;
  const char *other;  /* a model that can start from such weights; NULL if none */
  const char *inside; /* key of the part of config.json that describes the text model; NULL: all */
  const char *bias;   /* value of --bias; NULL: attention_bias decides */
  const char *theta;  /* value if rope_theta is absent */
  /* value if rope_local_base_freq is absent; NULL: all layers have the same attention */
  const char *local_theta;
  const char
      *original;    /* value of a key original_max_position_embeddings beside the rope, which counts
                     * more than the rope's, if absent; NULL: the family has no such key */
  const char *part; /* value if partial_rotary_factor is absent; NULL: all of a head is rotated */
  const char *window; /* value if sliding_window is absent; NULL: the family has no --window */
  bool switched;      /* sliding_window applies only if use_sliding_window is set */
  int full_every; /* N if every N-th layer has no window and no key says so; 0: layers are alike */
  config_field *fields;
  sli_key *keys;       /* known keys besides the fields and those of all families */
  sli_key *rope_keys;  /* known keys of rope_parameters besides those of all families */
  fixed_option *fixed; /* ends with {0} */
  const cJSON *row;    /* all of it */
} family;

/* Returns the i-th family, or NULL after the last. */
const family *family_at(int i);
/* Returns a member of the first row, which holds what all families share. */
const cJSON *family_common(const char *key);
/* Returns a table of keys that are known in all families. */
const sli_key *family_keys(const char *name);
/* Returns the family of a model_type, or NULL. */
const family *family_find(const char *type);
/* Returns whether the list of words `key` of the family's row has a word. */
bool family_says(const family *f, const char *key, const char *word);
/* Returns the value that a family fixes for an option, or NULL if it fixes none. */
const char *family_fixes(const family *f, const char *option);
/* Prints the families as a table in Markdown. */
void family_print(FILE *out);
/* Returns the types of all families, separated by commas; the caller frees it. */
char *family_types(void);

#endif
