#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that tools/test --changed runs the tests that a change can affect, by each rule of tests/support/changed.sh.
# labels: unthreaded outside
set -u
cd "$SLUICE_SOURCE" || exit

# selects FILE 'TEST...' 'TEST...': checks that a change of FILE selects the first tests and not the second.
selects() {
  local regex test
  regex=$(bash tests/support/changed.sh "$1") || { echo "$1: status $?" >&2; exit 1; }
  for test in $2; do [[ $test =~ $regex ]] || { echo "$1 does not select $test: $regex" >&2; exit 1; }; done
  for test in $3; do [[ ! $test =~ $regex ]] || { echo "$1 selects $test: $regex" >&2; exit 1; }; done
}
selects base/json.c "test_base_json test_kernels_table test_tools_eval test_tree_structure" ""
selects graph/build/build.c "test_graph_errors test_models_grids test_serve_bits test_python_package gpu_test_fuse" \
  "test_base_json test_kernels_table test_actors_runs test_comm_net"
selects serve/session.c "test_serve_session test_tools_actorserve" "test_graph_errors test_actors_runs gpu_test_fuse"
selects tools/cli/options.c "test_tools_help test_python_package" "test_serve_session test_graph_errors"
selects tools/actortrace/svg.c "test_tools_actortrace_figure test_tools_actortrace_exports" "test_tools_chat test_graph_errors"
selects tests/tools/test_eval.sh "test_tools_eval test_tree_layers" "test_tools_eval_metrics test_tools_help"
selects tests/gpu/test_fuse.c "test_kernels_cuda_fuse gpu_test_fuse" "test_kernels_cuda_kernels"
selects tests/support/grids.c "test_models_grids test_models_sequence" "test_models_reference test_tools_eval"
selects tests/support/trace_file.h "test_tools_trace test_fuzz_trace" "test_tools_eval test_graph_errors"
selects tests/fuzz/corpus/json/deep "test_fuzz_json" "test_fuzz_trace"
selects tests/support/tool.py "test_tools_states_cuda" "test_tools_eval test_base_json"
selects tests/support/families.py "test_tools_models" "test_tools_eval test_base_json"
selects tests/support/serve_guided.py "test_tools_serve_guided" "test_tools_models"
selects docs/messages.md "test_tree_messages" "test_tools_eval test_base_json"
selects examples/gcn.c "test_models_gcn" "test_models_grids"
selects tests/support/test.h "test_base_json test_tools_eval" ""
selects CMakeLists.txt "test_base_json test_tools_eval" ""
selects "" "test_tree_structure" "test_base_json"
