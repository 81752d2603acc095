"""Llama 1 to 3 and its kin (SmolLM2, Mistral without a sliding window).

GGUF stores each head's query and key rows so that rotary pairs are neighbours. Llama 3's scaled frequencies arrive
as a tensor of divisors.
"""

from soothsay.model.architectures.family import Family

LLAMA = Family("llama", interleaved=True, query_key_norm=False, rope_factors=True)
