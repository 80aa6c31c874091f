/* Talking to a run of this user on this machine. */
#ifndef SLUICE_TOOLS_ACTORRUN_CLIENT_H
#define SLUICE_TOOLS_ACTORRUN_CLIENT_H

#include <sys/types.h>

#include <sluice/status.h>

/* The process id in a word; SL_E_USAGE if it is none. */
sl_status client_pid(const char *word, pid_t *out);
/* The answer to a request, as text that is the caller's to free(). A refusal has its
 * status on the other side. SL_E_PEER: there is
 * none within so many seconds. PID may also be of an actorrun whose child the run is. */
sl_status client_ask(pid_t pid, const char *request, int seconds, char **out);

/* `actorrun ctl PID REQUEST...`: the words behind ctl. Returns the exit status. */
int client_main_ctl(int argc, char **argv);

/* A text of another process, without what a terminal would act on; the caller's to free(). */
char *client_plain(const char *text);

#endif
