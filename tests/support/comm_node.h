/* SPDX-License-Identifier: Apache-2.0 */
/* A process of a job in the control plane tests, which records its callbacks. It sends consecutive
 * numbers, one per message, so that the receiver detects lost or reordered messages. */
#ifndef SLUICE_TESTS_SUPPORT_COMM_NODE_H
#define SLUICE_TESTS_SUPPORT_COMM_NODE_H

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
  /* next: the next number expected from each process; total: numbers received */
  uint64_t next[NODE_MOST], total;
  bool displaced;
  node_word words[64];
  int nwords;
  int word_ms; /* time for which a message blocks the control thread; set it first */
  int aborts, culprit;
  uint64_t aborted_ns;
  char text[1100];
} node;

/* Opens a node. `options` must have no callbacks and no ctx. */
sl_status node_open(node *n, const sli_control_options *options);
void node_close(node *n);
/* Sends a number to another process, and watches that process from then on. */
void node_send(node *n, int process, uint64_t number);
/* Waits until `total` numbers have arrived. Returns false on timeout. */
bool node_wait_numbers(node *n, uint64_t total, int timeout_ms);
bool node_wait_words(node *n, int count, int timeout_ms);
bool node_wait_abort(node *n, int timeout_ms);

#endif
