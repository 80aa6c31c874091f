/* SPDX-License-Identifier: Apache-2.0 */
/* Queues that behave like streams of one device. They run firings later, and firings of several
 * streams overtake each other as far as their waits allow. */
#ifndef SLUICE_TESTS_SUPPORT_ACTORS_STREAMS_H
#define SLUICE_TESTS_SUPPORT_ACTORS_STREAMS_H

#include <sluice/program.h>

extern const sl_queue_ops stream_queue;

/* Returns the number of waits so far, over all streams. */
unsigned long streams_waits(void);

#endif
