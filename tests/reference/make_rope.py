#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes rope.txt: RoPE frequencies from Hugging Face transformers.

    python3 make_rope.py > rope.txt

Each line has the text for sl_rope_parse, theta, the pairs of a head, the factor of cosines and
sines, and the frequency of every pair (fp32 in transformers).
"""
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
import transformers

CASES = [
    (64, 10000.0, {"rope_type": "linear", "factor": 4.0}),
    (128, 500000.0, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192}),
    (64, 500000.0, {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192}),
    (16, 10000.0, {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 64}),
    (128, 1000000.0, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    (64, 10000.0, {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096,
                   "beta_slow": 2.0, "beta_fast": 24.0, "attention_factor": 1.5}),
    (16, 10000.0, {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}),
    (12, 10000.0, {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 64,
                   "short_factor": [1.0, 1.05, 1.1, 1.3, 1.45, 2.0], "long_factor": [1.25, 2.0, 4.5, 9.0, 20.0, 64.0]}),
    (16, 10000.0, {"rope_type": "longrope", "factor": 32.0, "original_max_position_embeddings": 4096, "attention_factor": 1.25,
                   "partial_rotary_factor": 0.75, "short_factor": [1.0, 1.05, 1.1, 1.3, 1.45, 2.0], "long_factor": [3.0] * 6}),
    (24, 1000000.0, {"rope_type": "proportional", "partial_rotary_factor": 0.3}),
    (16, 1000.0, {"rope_type": "proportional", "factor": 2.0}),
]


def main():
    print(f"# transformers={transformers.__version__}")
    for dim, theta, given in CASES:
        config = LlamaConfig(hidden_size=2 * dim, num_attention_heads=2,
                             max_position_embeddings=int(given.get("factor", 1)
                                                         * given.get("original_max_position_embeddings", 2048)),
                             rope_parameters=dict(given, rope_theta=theta))
        frequency, scale = ROPE_INIT_FUNCTIONS[given["rope_type"]](config, "cpu")
        keys = ",".join(f"{k}=" + ("/".join(map(str, v)) if isinstance(v, list) else f"{v:g}") for k, v in given.items() if k != "rope_type")
        print(f"{given['rope_type']}:{keys} {theta:g} {len(frequency)} {scale:.17g}",
              " ".join(f"{f:.9g}" for f in frequency.tolist()))


if __name__ == "__main__":
    main()
