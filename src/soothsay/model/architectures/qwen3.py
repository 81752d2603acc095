"""Qwen3 (arXiv 2505.09388): a norm over each head's queries and keys instead of biases; heads of their own width."""

from soothsay.model.architectures.family import Family

QWEN3 = Family("qwen3", interleaved=False, query_key_norm=True, rope_factors=False)
