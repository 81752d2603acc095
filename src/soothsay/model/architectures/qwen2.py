"""Qwen2 and Qwen2.5 (arXiv 2407.10671): query, key and value have biases; rotary pairs are half a head apart."""

from soothsay.model.architectures.family import Family

QWEN2 = Family("qwen2", interleaved=False, query_key_norm=False, rope_factors=False)
