/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a run of this user on this machine. */
#ifndef SLUICE_TOOLS_ACTORRUN_CTL_CLIENT_H
#define SLUICE_TOOLS_ACTORRUN_CTL_CLIENT_H

#include <sys/types.h>

#include <sluice/status.h>

/* Parses a process id. SL_E_USAGE: the word is not one. */
sl_status client_pid(const char *word, pid_t *out);
/* Returns the answer to a request as text; the caller frees it. A refusal has the status of the
 * other side. SL_E_PEER: no answer within `seconds`. PID may also be an actorrun that started the
 * run. */
sl_status client_ask(pid_t pid, const char *request, int seconds, char **out);

/* Runs `actorrun ctl PID REQUEST...` with the words after ctl. Returns the exit status. */
int client_main_ctl(int argc, char **argv);

/* Copies another process's text without control characters for a terminal; the caller frees it. */
char *client_plain(const char *text);

#endif
