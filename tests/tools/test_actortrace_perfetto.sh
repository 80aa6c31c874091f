#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The trace for Perfetto is one to Perfetto's own reader, or to any other of protobuf.
# labels: unthreaded
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"
need python3

traces_make
traces_read_back perfetto
