#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Perfetto's own reader, or any other protobuf reader, parses the trace exported for Perfetto.
# labels: unthreaded
set -u
# shellcheck source=tests/support/traces.sh
source "$SLUICE_SOURCE/tests/support/traces.sh"
need python3

traces_make
traces_read_back perfetto
