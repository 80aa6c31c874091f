/* Queues like streams of one device: what they are given runs later, those of several
 * overtaking each other as far as their waits for one another allow. */
#ifndef SLUICE_TESTS_ACTORS_STREAMS_H
#define SLUICE_TESTS_ACTORS_STREAMS_H

#include <sluice/program.h>

extern const sl_queue_ops stream_queue;

/* Waits asked for, in all streams so far. */
unsigned long streams_waits(void);

#endif
