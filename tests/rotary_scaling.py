"""rotary_scaling.py - the frequencies that transformers makes of a config's rope_scaling, as rows for test_layer.c.

pip install torch transformers, into an environment of their own: nothing else in the project needs them."""
import types

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CASES = [  # head width, base, rule, its numbers
    (128, 500000.0, "llama3", dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=8192)),
    (128, 1000000.0, "yarn", dict(factor=4.0, original_max_position_embeddings=32768)),
    (64, 10000.0, "yarn", dict(factor=16.0, original_max_position_embeddings=2048, beta_fast=8.0, beta_slow=2.0)),
    (64, 10000.0, "linear", dict(factor=2.5)),
]


class Config(types.SimpleNamespace):
    def standardize_rope_params(self):
        pass


for width, base, rule, numbers in CASES:
    scaling = dict(numbers, rope_type=rule, rope_theta=base)
    config = Config(rope_theta=base, rope_scaling=scaling, rope_parameters=scaling, hidden_size=width,
                    num_attention_heads=1, head_dim=width, partial_rotary_factor=1.0,
                    max_position_embeddings=numbers.get("original_max_position_embeddings", 4096))
    f, magnitude = ROPE_INIT_FUNCTIONS[rule](config, torch.device("cpu"))
    picked = [0, 1] + list(range(width // 8, width // 2, width // 16)) + [width // 2 - 1]
    print(f"/* {width}, {base:g}, {rule} {numbers}: magnitude {magnitude!r} */")
    print("    " + ", ".join(f"{{ {i}, {f[i].item()!r} }}" for i in picked))
