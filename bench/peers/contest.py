"""Every engine answers every prompt, in turn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.peers.process import Peer, PeerFailed

WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine in one setting: who guesses, and how many tokens a step (None: the engine's own choice)."""

    engine: str
    drafter: str
    gamma: int | str | None = None

    @property
    def setting(self) -> str:
        words = {"none": "plain", "model": "draft model", "ngram": "n-gram", "self": "self-draft"}[self.drafter]
        return words if self.gamma is None else f"{words}, gamma {self.gamma}"


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt as token ids, the same for all."""

    name: str
    category: str
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a contender made of a prompt; `seconds` from the first emitted token to the last."""

    contender: Contender
    prompt: str
    tokens: list[int]
    first_token_seconds: float
    seconds: float

    @property
    def pace(self) -> float | None:
        """Tokens a second after the first; None for an answer that has no more than came at once."""
        return (len(self.tokens) - 1) / self.seconds if self.seconds > 0 else None


@dataclass(slots=True)
class Results:
    """Answers in the order in which they came, and for those that could not go on, why."""

    answers: list[Answer] = field(default_factory=list)
    failures: dict[Contender, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


class Team:
    """The peers by engine, each opened when it is first asked, and anew after it has died."""

    def __init__(self, pythons: Mapping[str, str | None], open_peer: Callable[[str, str], Peer]) -> None:
        self._pythons, self._open = pythons, open_peer
        self._peers: dict[str, Peer] = {}

    def ask(self, engine: str, ask: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raise PeerFailed for an engine that has no interpreter, cannot be opened, or fails."""
        return self.peer(engine).ask("generate", **ask)

    def peer(self, engine: str) -> Peer:
        if engine in self._peers and not self._peers[engine].alive:
            self._peers.pop(engine).close()
        if engine not in self._peers:
            if (python := self._pythons[engine]) is None:
                raise PeerFailed("no interpreter was named that has it")
            self._peers[engine] = self._open(engine, python)
        return self._peers[engine]

    def close(self) -> None:
        while self._peers:
            self._peers.popitem()[1].close()


def run(
    team: Team,
    contenders: Sequence[Contender],
    warm_up: Question,
    questions: Sequence[Question],
    law: Mapping[str, Any],
) -> Iterator[Results]:
    """Give the results so far after each question; a contender that fails once is asked no more.

    `law` are the fields of an `Ask` that are the same for all. A few tokens of `warm_up` go before, so that everything
    is loaded before anything counts. Who begins changes from question to question.
    """
    results = Results()
    for contender in contenders:
        _turn(team, contender, warm_up, {**law, "max_tokens": WARM_UP_TOKENS}, results)
    results.answers.clear()
    for turn, question in enumerate(questions):
        for place in range(len(contenders)):
            _turn(team, contenders[(turn + place) % len(contenders)], question, law, results)
        yield results


def _turn(team: Team, contender: Contender, question: Question, law: Mapping[str, Any], results: Results) -> None:
    if contender in results.failures:
        return
    ask = {"tokens": question.tokens, "drafter": contender.drafter, "gamma": contender.gamma, **law}
    try:
        answer = team.ask(contender.engine, ask)
        results.versions[contender.engine] = team.peer(contender.engine).version
    except PeerFailed as error:
        results.failures[contender] = str(error)
    else:
        results.answers.append(Answer(contender, question.name, **answer))


def as_json(results: Results) -> dict[str, Any]:
    return {
        "versions": results.versions,
        "failures": [asdict(contender) | {"reason": reason} for contender, reason in results.failures.items()],
        "answers": [asdict(answer) for answer in results.answers],
    }
