/* SPDX-License-Identifier: Apache-2.0 */
/* Pretrained models: a Hugging Face folder, or a GGUF file. */
#ifndef SLUICE_TOOLS_FORMATS_PRETRAINED_H
#define SLUICE_TOOLS_FORMATS_PRETRAINED_H

#include <sluice/job.h>
#include <sluice/lower.h>
#include <sluice/model.h>

#include "base/base.h"
#include "graph/state/state.h"

/* A model that is read from files or written to files. */
typedef struct pretrained {
  const sl_model *model;
  sl_args *args;
  const char *init;      /* folder or file of its weights; NULL: none */
  const char *adapter;   /* folder of an adapter; NULL: none */
  const char *tokenizer; /* NULL: tokens are bytes */
  sli_arena *arena;      /* holds the texts above */
  bool part;             /* the files hold more than the model */
} pretrained;

/* Reads metadata beside the weights of --init: the model's options, and its tokenizer unless
 * --tokenizer names another. */
sl_status pretrained_read(pretrained *p);
/* Returns the shipped model of a folder or file, or NULL if `path` is neither. SL_E_INPUT names
 * what is unknown. */
sl_status pretrained_model(const char *path, const char **out);
/* Loads the values of --init, if given, and of --adapter. `lacks`: see sli_weights_load(). */
sl_status pretrained_load(const pretrained *p, const sli_weights_lacks *lacks,
                          const sl_lowered *lowered, sl_runtime *rt);
/* Saves the weights from all processes to a Hugging Face folder; the first process writes its other
 * files. */
sl_status pretrained_save(const pretrained *p, const char *folder, const sl_lowered *lowered,
                          sl_runtime *rt, sl_job *job);

/* Returns the storage format of a parameter in weight files. `shards` holds the files; suits
 * sl_training.storage. */
sl_storage pretrained_storage(void *shards, const char *param);

#endif
