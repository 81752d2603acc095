"""How likely an emitted token was, and what else was likely there."""

import numpy as np
from numpy.typing import NDArray

from soothsay.completion import TokenLogprob
from soothsay.sampling.laws import Law, law
from soothsay.sampling.options import Sampling

_OWN = Sampling(temperature=1.0)


def logprob(token: int, row: NDArray[np.floating], drawn_from: Law, sampling: Sampling) -> TokenLogprob:
    """Give the log-probability of a token with those of the likeliest ones, as the options ask.

    `row` has the model's logits, shape (V,), and `drawn_from` is the law that the sampler made of them.
    """
    shown = law(row, _OWN) if sampling.logprobs_of == "model" else drawn_from
    return TokenLogprob(token, shown.log_probability(token), shown.top(sampling.logprobs or 0))
