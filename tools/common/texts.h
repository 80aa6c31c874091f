/* What the texts of the shared options say. */
#ifndef SLUICE_TOOLS_COMMON_TEXTS_H
#define SLUICE_TOOLS_COMMON_TEXTS_H

#include "tools/common/settings.h"

/* From the options' texts to what is planned; messages name the option. */
sl_status texts_read(settings *s);

#endif
