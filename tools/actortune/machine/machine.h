/* actortune machine: how long things take on the machine that it runs on, as a machine file. */
#ifndef SLUICE_TOOLS_ACTORTUNE_MACHINE_H
#define SLUICE_TOOLS_ACTORTUNE_MACHINE_H

int machine_main(int argc, char **argv);

#endif
