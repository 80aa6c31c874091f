/* The control socket of a run. */
#ifndef SLUICE_TOOLS_ACTORRUN_CONTROL_H
#define SLUICE_TOOLS_ACTORRUN_CONTROL_H

#include <pthread.h>

#include <sluice/sluice.h>

#include "base/base.h"

typedef struct control control;

/* Listens, on a thread of its own, until closed; both outlive it. */
sl_status control_open(const sl_lowered *lowered, sl_runtime *rt, control **out);
void control_close(control *c);

/* `actorrun ctl PID REQUEST...`: the words behind ctl. Returns the exit status. */
int control_main_ctl(int argc, char **argv);

#endif
