/* SPDX-License-Identifier: Apache-2.0 */
/* Models in files of other programs: Hugging Face folders and GGUF files. */
#ifndef SLUICE_TOOLS_FORMATS_FORMATS_H
#define SLUICE_TOOLS_FORMATS_FORMATS_H

#include "tools/formats/gguf.h"
#include "tools/formats/gguf_save.h"
#include "tools/formats/huggingface.h"
#include "tools/formats/planes_save.h"
#include "tools/formats/pretrained.h"

#endif
