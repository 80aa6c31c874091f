/* SPDX-License-Identifier: Apache-2.0 */
/* A server of clips (--denoise): POST /v1/videos streams the frames of a clip as they are done. */
#ifndef SLUICE_TOOLS_ACTORSERVE_VIDEOS_H
#define SLUICE_TOOLS_ACTORSERVE_VIDEOS_H

#include "tools/actorserve/actorserve.h"

/* Returns whether the settings ask for a server of clips. */
bool videos_given(const settings *s);
sl_status videos_check(const settings *s);
/* Serves until a signal ends the server. */
sl_status videos_serve(settings *s);

#endif
