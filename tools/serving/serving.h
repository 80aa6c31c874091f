/* SPDX-License-Identifier: Apache-2.0 */
/* Umbrella header: sessions from command lines, requests, and several servers. */
#ifndef SLUICE_TOOLS_SERVING_SERVING_H
#define SLUICE_TOOLS_SERVING_SERVING_H

#include "tools/serving/arrivals.h"
#include "tools/serving/energy.h"
#include "tools/serving/fleet.h"
#include "tools/serving/session.h"
#include "tools/serving/ticks.h"

#endif
