"""The whole sampler stack on a real model: fifty prompts, four drafter settings, the same tokens as without drafts."""

import pytest

from soothsay import Engine, Sampling, hub
from soothsay.assemble import Gamma

WORDS = (
    "Count",
    "List",
    "Repeat",
    "Describe",
    "Spell",
    "Explain",
    "Name",
    "Tell me about",
    "Write a line on",
    "Sing of",
)
THINGS = (
    "the numbers from one to nine",
    "three red birds",
    "the word banana",
    "a loop in Python",
    "rain and rain again",
)
PROMPTS = [f"Say it again: {word} {thing}, {word} {thing}, {word}" for word in WORDS for thing in THINGS]
STACK = Sampling(
    temperature=0.7,
    seed=11,
    max_tokens=20,
    top_k=60,
    top_p=0.97,
    min_p=0.005,
    repetition_penalty=1.02,
    frequency_penalty=0.1,
    presence_penalty=0.1,
    logit_bias={28: -0.5, 30: 0.5, 198: 0.3},
    banned_tokens=(17, 42),
    min_tokens=6,
    stop=("###",),
    logprobs=2,
)
SETTINGS: list[tuple[str, Gamma]] = [("ngram", 2), ("ngram", 7), ("ngram", "auto"), ("smollm2-135m", 3)]


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, ...]]:
    if hub.cached(hub.MODELS["smollm2-135m"]) is None:
        pytest.skip("smollm2-135m is not in the cache folder")
    engine = Engine("smollm2-135m", draft="none")
    return [engine.generate(prompt, STACK).tokens for prompt in PROMPTS]


@pytest.mark.parametrize(("draft", "gamma"), SETTINGS)
def test_fifty_answers_are_the_same(plain: list[tuple[int, ...]], draft: str, gamma: Gamma) -> None:
    engine = Engine("smollm2-135m", draft=draft, gamma=gamma)
    answers = engine.generate(PROMPTS, STACK)
    assert [answer.tokens for answer in answers] == plain
    if gamma != "auto":  # which guesses nothing that would not pay
        assert sum(answer.stats.accepted for answer in answers) > 20
    assert len(plain) == 50
