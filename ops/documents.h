/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of the record in which the documents op counts the documents of a row, for the rules of
 * ops/documents.c and their kernels. */
#ifndef SLUICE_OPS_DOCUMENTS_H
#define SLUICE_OPS_DOCUMENTS_H

#include "ops/ops.h"

enum { SLI_DOCUMENTS_COUNT, SLI_DOCUMENTS_BEGIN, SLI_DOCUMENTS_RECORD };

#endif
