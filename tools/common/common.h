/* SPDX-License-Identifier: Apache-2.0 */
/* Umbrella header of what planning tools share: command lines, models, machines, durations and
 * plans. */
#ifndef SLUICE_TOOLS_COMMON_COMMON_H
#define SLUICE_TOOLS_COMMON_COMMON_H

#include "tools/common/arrivals.h"
#include "text/chats/chats.h"
#include "tools/common/cost.h"
#include "tools/common/ctl/ctl.h"
#include "tools/common/each.h"
#include "tools/common/energy.h"
#include "tools/common/fleet.h"
#include "tools/common/launch/launch.h"
#include "tools/common/machine.h"
#include "tools/common/model.h"
#include "tools/common/options.h"
#include "tools/common/outputs.h"
#include "tools/common/plan.h"
#include "tools/common/planner/planner.h"
#include "tools/common/serving.h"
#include "tools/common/settings.h"
#include "tools/common/solver.h"
#include "tools/common/fingerprint.h"
#include "tools/common/ticks.h"
#include "tools/common/words.h"
#include "tools/common/manual.h"
#include "tools/formats/formats.h"

#endif
