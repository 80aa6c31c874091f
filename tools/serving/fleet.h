/* SPDX-License-Identifier: Apache-2.0 */
/* Several servers that share requests on the virtual clock: --replicas and --prefill; and their
 * energy. */
#ifndef SLUICE_TOOLS_SERVING_FLEET_H
#define SLUICE_TOOLS_SERVING_FLEET_H

#include <sluice/session.h>

#include "tools/cli/cli.h"

/* Sizes of servers that compute prompts only. */
typedef struct fleet_prefill {
  int servers; /* 0: none */
  int stages, tensor, sequences;
  int64_t rows, pages;
} fleet_prefill;

/* Reads "2,tensor=4,rows=8192"; what it does not name comes from `like`. SL_E_USAGE names the
 * error. */
sl_status fleet_read_prefill(const char *text, const sl_session_options *like, fleet_prefill *out);

/* Makes the options of prefill servers from those of the others. */
sl_session_options fleet_prefill_options(const fleet_prefill *p, const sl_session_options *like);
/* Returns the number of devices of a server. */
int fleet_devices_of(const sl_session_options *o);
/* Returns the number of devices of all servers. */
int fleet_devices(const sl_fleet *f);
/* Sets the link between servers that compute prompts and others, which have a host's if all devices
 * fit in one. */
void fleet_set_link(sl_fleet *f);

/* Returns the joules that all servers took in a simulation; 0 if the hardware has no watts. */
double fleet_joules(const sl_fleet *f, const sl_session_simulation *r);

#endif
