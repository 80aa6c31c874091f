/* A process of a job as the tests of the control plane want it: it notes what it
 * is told. It sends numbers, as words of their own, so that a lost or displaced one shows. */
#ifndef SLUICE_TESTS_COMM_NODE_H
#define SLUICE_TESTS_COMM_NODE_H

#include <pthread.h>

#include "comm/control/control.h"

enum { NODE_MOST = 256 };

typedef struct node_word {
  int from;
  char word[16];
  uint64_t hash;
  size_t bytes;
} node_word;

typedef struct node {
  sli_control *control;
  int process;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t next[NODE_MOST], total; /* numbers: the next from each; all */
  bool displaced;
  node_word words[64];
  int nwords;
  int word_ms; /* for which a word keeps the control thread; set before the first */
  int aborts, culprit;
  uint64_t aborted_ns;
  char text[1100];
} node;

/* `options` without callbacks and ctx. */
sl_status node_open(node *n, const sli_control_options *options);
void node_close(node *n);
/* A number to another process, which it watches from then on. */
void node_send(node *n, int process, uint64_t number);
/* False if it does not come to that in time. */
bool node_wait_numbers(node *n, uint64_t total, int timeout_ms);
bool node_wait_words(node *n, int count, int timeout_ms);
bool node_wait_abort(node *n, int timeout_ms);

#endif
