#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests random --exact runs of odd sizes: all families, losses and exported modules have one
# certificate on random grids and levels (certificates.py).
# labels: random
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
mkdir -p modules
for name in gpt2 bert whisper t5; do tar -xzf "$SLUICE_SOURCE/tests/reference/pytorch/$name.tar.gz" -C modules; done
count=${SLUICE_LONG:+100}
exec python3 "$SLUICE_SOURCE/tests/models/certificates.py" --count "${count:-8}" --modules modules "$@"
