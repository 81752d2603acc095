"""The joint law of the next few tokens, through the whole engine, beside the model's own probabilities."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from soothsay.audit.fit import FEWEST, Fit, fit
from soothsay.audit.oracle import Oracle, Tokens
from soothsay.audit.subject import Subject, Way
from soothsay.record import Details, Record
from soothsay.sampling import Law, Sampling

TOKENS = 3
BATCH = 32
CLEAR, CLEAR_RUNS = 1e-9, 200
"""A p-value below that, of so many runs at least, is not waited for."""

Cell = tuple[int | None, ...]
"""Tokens of an answer; None at its end stands for any others."""


class Tree:
    """The joint law of up to TOKENS tokens after a context: exact for those that `runs` runs say often enough."""

    def __init__(self, oracle: Oracle, context: Sequence[int], sampling: Sampling, runs: int) -> None:
        self.laws: dict[Tokens, Law] = {}
        self.cells: dict[Cell, float] = {}
        self._ends = oracle.end_ids
        masses: dict[Tokens, float] = {(): 1.0}
        for _ in range(TOKENS):
            prefixes = list(masses)
            self.laws |= zip(prefixes, oracle.laws(context, prefixes, sampling), strict=True)
            masses = {
                said: mass for prefix in prefixes for said, mass in self._grow(prefix, masses[prefix], FEWEST / runs)
            }
        for said, mass in masses.items():
            self.cells[said] = mass

    def cell(self, tokens: Tokens) -> Cell:
        """Give the cell that an answer falls into."""
        for length in range(len(tokens) + 1):
            if tokens[:length] not in self.laws:
                return tokens[:length] if tokens[:length] in self.cells else (*tokens[: length - 1], None)
        return tokens

    def _grow(self, prefix: Tokens, mass: float, least: float) -> Iterator[tuple[Tokens, float]]:
        """Give the continuations that are often enough, and note the ends and what is left over."""
        law, rest = self.laws[prefix], mass
        for token, logarithm in law.top(min(len(law.ids), math.ceil(mass / least))):
            share = mass * math.exp(logarithm)
            if share < least:
                break
            rest -= share
            if token in self._ends:
                self.cells[*prefix, token] = share
            else:
                yield (*prefix, token), share
        self.cells[*prefix, None] = max(0.0, rest)


@dataclass(frozen=True, slots=True)
class LawCase:
    """What is sampled: a rule, a drafter and options, after one context."""

    rule: str
    drafter: str
    options: str
    sampling: Sampling
    context: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LawTest:
    """What came of a case; `drafts` tests the drafted tokens beside the laws that they came with, where they have any.

    `sampler` says that some law of the target was not the one of the text before it; `stopped` that the failure was
    clear before all runs were made.
    """

    rule: str
    drafter: str
    options: str
    temperature: float
    fit: Fit
    drafts: Fit | None
    sampler: bool
    drafted: int
    accepted: int
    stopped: bool

    def __str__(self) -> str:
        return f"law by {self.rule} with {self.drafter}, temperature {self.temperature:g}, options {self.options}"


@dataclass(slots=True)
class _Tally:
    """Watches the steps of a case's engine."""

    tree: Tree
    context: tuple[int, ...]
    drafts: Counter[Cell] = field(default_factory=Counter)
    draft_laws: dict[Tokens, Law] = field(default_factory=dict)
    sampler: bool = False

    def __call__(self, record: Record) -> None:
        for draft in record.drafts:
            if draft.details is not None:
                self._note(draft.details)

    def _note(self, details: Details) -> None:
        said, drafted = tuple(details.request.context[len(self.context) : details.position]), details.draft.tokens
        for place in range(len(drafted) + 1):
            before = (*said, *drafted[:place])
            if details.kept.laws.known(place) and before in self.tree.laws:
                token = drafted[place] if place < len(drafted) else details.kept.pieces[-1].token
                self.sampler |= not _agree(details.kept.laws[place], self.tree.laws[before], token)
        if said == () and details.gamma > 0:
            self.drafts[drafted] += 1
            for place, law in enumerate(details.draft.laws or ()):
                self.draft_laws.setdefault(drafted[:place], law)

    def draft_law(self, gamma: int) -> dict[Cell, float]:
        """Give the joint law of a draft, as the laws that came with drafts have it."""
        cells: dict[Cell, float] = {}
        masses: dict[Tokens, float] = {(): 1.0}
        for _ in range(gamma):
            grown: dict[Tokens, float] = {}
            for prefix, mass in masses.items():
                if (law := self.draft_laws.get(prefix)) is None:
                    cells[*prefix, None] = mass
                    continue
                pairs = zip(law.ids.tolist(), law.log_probabilities.tolist(), strict=True)
                grown |= {(*prefix, token): mass * math.exp(logarithm) for token, logarithm in pairs}
            masses = grown
        return cells | masses


def _agree(law: Law, other: Law, token: int) -> bool:
    """Tell whether two laws say the same of a token, and of which one is the likeliest."""
    return law.log_probability(token) == other.log_probability(token) and law.likeliest() == other.likeliest()


def run(
    subject: Subject,
    oracle: Oracle,
    case: LawCase,
    runs: int,
    seed: int,
    tests: int,
    tick: Callable[[str], None],
) -> LawTest:
    """Sample a case `runs` times, in batches of one seed each, as one of so many tests; `tick` after each batch."""
    tree = Tree(oracle, case.context, case.sampling, runs)
    tally = _Tally(tree, case.context)
    gamma = TOKENS - 1
    engine = subject.engine(Way(case.drafter, gamma), case.rule, tally)
    counts: Counter[Cell] = Counter()
    drafted = accepted = 0
    stopped = False
    for number in range(math.ceil(runs / BATCH)):
        wanted = min(BATCH, runs - number * BATCH)
        answers = engine.samples(case.context, wanted, replace(case.sampling, max_tokens=TOKENS, seed=seed + number))
        counts.update(tree.cell(answer.tokens) for answer in answers)
        drafted += sum(answer.stats.drafted for answer in answers)
        accepted += sum(answer.stats.accepted for answer in answers)
        tick(f"law by {case.rule}, temperature {case.sampling.temperature:g}, {case.drafter}")
        if counts.total() >= CLEAR_RUNS and fit(counts, tree.cells).p_value < CLEAR:
            stopped = number * BATCH + wanted < runs
            break
    return LawTest(
        rule=case.rule,
        drafter=case.drafter,
        options=case.options,
        temperature=case.sampling.temperature,
        fit=fit(counts, tree.cells, tests),
        drafts=fit(tally.drafts, tally.draft_law(gamma), tests) if tally.draft_laws else None,
        sampler=tally.sampler,
        drafted=drafted,
        accepted=accepted,
        stopped=stopped,
    )
