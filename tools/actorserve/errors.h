/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as OpenAI's JSON. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ERRORS_H
#define SLUICE_TOOLS_ACTORSERVE_ERRORS_H

/* Returns {"error": {...}}, which the caller frees; param and code may be NULL. */
char *reply_error(int status, const char *param, const char *code, const char *text);

#endif
