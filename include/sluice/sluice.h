/* SPDX-License-Identifier: Apache-2.0 */
/* Everything a model or an embedding program needs. */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H
#include <sluice/attention.h>
#include <sluice/batch.h>
#include <sluice/delay.h>
#include <sluice/frames.h>
#include <sluice/generation.h>
#include <sluice/graph.h>
#include <sluice/job.h>
#include <sluice/run_status.h>
#include <sluice/lower.h>
#include <sluice/model.h>
#include <sluice/objective.h>
#include <sluice/op.h>
#include <sluice/ops.h>
#include <sluice/optimizer.h>
#include <sluice/options.h>
#include <sluice/placement.h>
#include <sluice/plan.h>
#include <sluice/runtime.h>
#include <sluice/rollouts.h>
#include <sluice/session.h>
#include <sluice/state.h>
#include <sluice/status.h>
#include <sluice/tokenizer.h>
#include <sluice/trace.h>
#include <sluice/version.h>
#endif
