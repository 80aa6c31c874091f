/* SPDX-License-Identifier: Apache-2.0 */
/* Shipped and pretrained models, in libsluice_tools: anything that actorrun accepts as MODEL, with
 * its options.
 *
 *     sl_shipped *m = NULL;
 *     const char *words[] = {"--data", "book.txt", "--context", "256"};
 *     status = sl_shipped_open("SmolLM2-135M", 4, words, &m);
 *     sl_graph *g = sl_graph_create(&options);
 *     if (!status) status = sl_shipped_model(m)->build(g, sl_shipped_args(m));
 *     ... sl_lower(), sl_runtime_create(), sl_params_init()
 *     if (!status && sl_shipped_weights(m)) status = sl_weights_load(sl_shipped_weights(m),
 * lowered, rt);
 *     ... sl_job_run()
 *     if (!status) status = sl_shipped_save(m, "tuned/", lowered, rt, job);
 *     sl_shipped_close(m);                           after graph and plan */
#ifndef SLUICE_SHIPPED_H
#define SLUICE_SHIPPED_H

#include <sluice/model.h>
#include <sluice/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the built-in models, NULL-terminated. */
const sl_model *const *sl_shipped_models(void);

typedef struct sl_shipped sl_shipped;

/* Opens a model: the name of a built-in model, FILE.c, FILE.so, a Hugging Face folder or a GGUF
 * file. `words` are its options as on a command line, and --init FILE, --tokenizer FILE. SL_E_USAGE
 * names a wrong option, SL_E_INPUT something missing or unsupported. */
sl_status sl_shipped_open(const char *word, int nwords, const char *const *words, sl_shipped **out);
/* Closes the model. Call it after the graphs built from it are destroyed. */
void sl_shipped_close(sl_shipped *m);

const sl_model *sl_shipped_model(const sl_shipped *m);
const sl_args *sl_shipped_args(const sl_shipped *m);
/* Return the model's weights, for sl_weights_load(), and its tokenizer file, for
 * sl_tokenizer_open() and sl_graph_options; NULL if it has none. */
const char *sl_shipped_weights(const sl_shipped *m);
const char *sl_shipped_tokenizer(const sl_shipped *m);

/* Formats a conversation with the model's chat template, up to where the answer begins. *end
 * becomes the text of the token that ends an answer, or NULL if unknown. The caller frees *prompt
 * and *end with free(). SL_E_USAGE: the model has no template. SL_E_INPUT: the template rejects the
 * messages. */
sl_status sl_shipped_chat(const sl_shipped *m, int nmessages, const char *const *roles,
                          const char *const *contents, char **prompt, char **end);

/* Writes the parameters, config.json and the tokenizer's files to a Hugging Face folder, which is
 * created if necessary. All processes of the job call it. SL_E_USAGE: no config.json can describe
 * the model. */
sl_status sl_shipped_save(const sl_shipped *m, const char *folder, const sl_lowered *lowered,
                          sl_runtime *rt, sl_job *job);

/* Fills the parameters "teacher.NAME" of a run that distills this model (sl_distill_create) with
 * its weights. SL_E_USAGE: the model has no weights. */
sl_status sl_shipped_teach(const sl_shipped *m, const sl_lowered *lowered, sl_runtime *rt);

#ifdef __cplusplus
}
#endif
#endif
