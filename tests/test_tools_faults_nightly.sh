#!/bin/bash
# The faults of test_tools_faults.sh, with fifty kills.
exec bash "$SLUICE_SOURCE/tests/test_tools_faults.sh" 50
