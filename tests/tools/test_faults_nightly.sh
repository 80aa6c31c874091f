#!/bin/bash
# The faults of test_faults.sh, with fifty kills.
# labels: nightly outside
exec bash "$SLUICE_SOURCE/tests/tools/test_faults.sh" 50
