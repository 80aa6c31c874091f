/* How long messages take from one process of this host to another. */
#ifndef SLUICE_TOOLS_ACTORTUNE_LINKS_H
#define SLUICE_TOOLS_ACTORTUNE_LINKS_H

#include <sluice/sluice.h>

enum { LINK_SIZES = 4 };
extern const double link_sizes[LINK_SIZES]; /* bytes */

/* Over the data plane, as `-n 2` has it: seconds of a message of each size, with nothing else to do, and with `devices`
 * cores at work. While it runs this process has no other threads. */
sl_status links_measure(int devices, double seconds[LINK_SIZES][2]);

#endif
