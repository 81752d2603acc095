"""What a user asks of chance, and the road from a model's logits to the law that a token is drawn from."""

from soothsay.sampling.adjust import Adjustment, Laws, Row, check_tokens
from soothsay.sampling.grammar import Constraint, Grammar
from soothsay.sampling.laws import Law, WholeLaw, law
from soothsay.sampling.logprobs import logprob
from soothsay.sampling.options import Processor, Sampling

__all__ = [
    "Adjustment",
    "Constraint",
    "Grammar",
    "Law",
    "Laws",
    "Processor",
    "Row",
    "Sampling",
    "WholeLaw",
    "check_tokens",
    "law",
    "logprob",
]
