#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Folders and GGUF files that actorrun writes are read by transformers and by the package gguf, with
# the log-probabilities of actorrun --logprobs. SLUICE_TORCH_PYTHON names a python3 that has them. Each
# day some families, with tools/test --long all of them.
# labels: outside numbers
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
python=${SLUICE_TORCH_PYTHON:-python3}
need "$python"
"$python" -c 'import importlib.util, sys; sys.exit(any(importlib.util.find_spec(m) is None for m in ("torch", "transformers", "gguf")))' ||
  skip "torch, transformers or gguf is not installed"

families=(gpt_oss mamba2 qwen3)
[[ ! ${SLUICE_LONG-} ]] || families=(gpt2 llama llama3 mistral qwen2 qwen3 olmo2 phi3 gemma3 mixtral qwen2_moe qwen3_moe gpt_oss
  deepseek_v3 mamba2 qwen3_next qwen3_next_dense)
ends 0 "$python" "$SLUICE_SOURCE/tests/support/read_back.py" "$actorrun" "$reference" "${families[@]}"
cat out
