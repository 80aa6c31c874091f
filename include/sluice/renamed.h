/* SPDX-License-Identifier: Apache-2.0 */
/* Names from the previous version, kept for one version. SLUICE_NO_OLD_NAMES omits them. */
#ifndef SLUICE_RENAMED_H
#define SLUICE_RENAMED_H

/* Declares a field under its current and its previous name. */
#ifdef SLUICE_NO_OLD_NAMES
#define SL_RENAMED(now, before) now;
#else
#define SL_RENAMED(now, before) \
  union {                       \
    now;                        \
    before;                     \
  };
#endif

#ifndef SLUICE_NO_OLD_NAMES

/* ---- operators, programs and plans ------------------------------------------------------- */

#define sl_rest sl_storage
#define SL_REST_F32 SL_STORAGE_F32
#define SL_REST_BF16 SL_STORAGE_BF16
#define SL_REST_Q8_0 SL_STORAGE_Q8_0
#define SL_REST_Q4_1 SL_STORAGE_Q4_1
#define SL_OVERS SL_IN_PLACE_OUTPUTS
#define SL_ROUTED SL_DISPATCHED

/* ---- runs, traces, sessions and jobs ------------------------------------------------------ */

#define sl_tally sl_counter
#define sl_tally_at sl_counter_at
#define sl_tally_values sl_counter_values
#define sl_trace_tally sl_trace_counter
#define sl_trace_write_tallies sl_trace_write_counters

#define sl_term sl_fingerprint_item
#define sl_lowered_terms sl_lowered_fingerprint

#define SL_RECEIPT_BYTES SL_MANIFEST_ENTRY_BYTES

#define sl_rehearsal sl_session_simulation
#define sl_rehearsal_fini sl_session_simulation_fini
#define sl_session_rehearse sl_session_simulate

#define sl_figures sl_statistics
#define sl_device_figures sl_device_statistics
#define sl_runtime_figures sl_runtime_statistics

#define sl_excerpt sl_trace_snapshot
#define sl_excerpt_write sl_trace_snapshot_write
#define sl_runtime_excerpt sl_runtime_trace_snapshot

#define sl_look sl_run_status
#define sl_queue_look sl_queue_status
#define sl_look_create sl_run_status_create
#define sl_look_destroy sl_run_status_destroy
#define sl_look_import sl_run_status_import
#define sl_look_actor_wait sl_run_status_actor_wait
#define sl_look_queue_wait sl_run_status_queue_wait
#define sl_runtime_look sl_runtime_run_status
#define sl_runtime_look_export sl_runtime_run_status_export

#define sl_parcel sl_wire_message
#define sl_runtime_parcel sl_runtime_wire_message

#define sl_spread_cost sl_sharded_cost
#define sl_params_spread sl_params_copy_versions

#endif
#endif
