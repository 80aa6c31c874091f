/* SPDX-License-Identifier: Apache-2.0 */
/* actortune machine: measures this machine and writes a machine file. */
#ifndef SLUICE_TOOLS_ACTORTUNE_MACHINE_MACHINE_H
#define SLUICE_TOOLS_ACTORTUNE_MACHINE_MACHINE_H

int machine_main(int argc, char **argv);

#endif
