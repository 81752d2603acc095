"""The stages of a step, and what is wrong when one of them fails."""

from typing import Literal

Stage = Literal["noise", "cache", "forward", "sampler", "draft", "verify"]
STAGES: dict[Stage, str] = {
    "noise": "the random numbers of different places, samples or purposes are not independent",
    "cache": "the target's cache does not hold the text that was kept",
    "forward": "the target's logits depend on what else is in the pass",
    "sampler": "the options are not applied to the text that a place would have",
    "draft": "drafted tokens do not follow the law that they are said to be drawn from",
    "verify": "the verdict, or the token drawn instead of a draft, is wrong",
}
"""In the order of a step: what goes wrong early goes wrong later too."""
