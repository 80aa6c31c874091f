#!/bin/bash
# The random tests of schedules, with many more seeds.
# labels: nightly
set -euo pipefail
"$SLUICE_BUILD/tests/test_models_schedules_beyond" 1000 80
"$SLUICE_BUILD/tests/test_models_schedules_auto" 1000 12
"$SLUICE_BUILD/tests/test_models_schedules_proof" 1000 1500
