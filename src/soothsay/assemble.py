"""From an engine's options to its target, its drafters and its policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from soothsay.calibrate import DRAFT_ROWS, READ_ROWS, TARGET_ROWS, VERIFIED_ROWS, Guest, greet, shape
from soothsay.draft.base import Drafter
from soothsay.draft.model import ModelDrafter
from soothsay.draft.ngram import NgramDrafter
from soothsay.draft.own import SelfDrafter
from soothsay.errors import OptionError
from soothsay.hub import cache_folder, draft_partner
from soothsay.load import Loaded, Loader
from soothsay.model.base import Model
from soothsay.schedule.cost import Cost, Shape
from soothsay.schedule.gamma import Controller
from soothsay.schedule.plan import Helper
from soothsay.schedule.policy import FixedGamma, Policy

Gamma: TypeAlias = int | Literal["auto"]
Name: TypeAlias = str | Path

DRAFT_TOP_K = 32

GUESSED_ACCEPTANCE = {"model": 0.85, "ngram": 0.5, "object": 0.8}
"""Before anything was seen: rather too much than too little, since only who is tried can show what it is worth."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine is made of; `loaded` is None for a model object."""

    model: Model
    loaded: Loaded | None
    drafters: Mapping[str, Drafter]
    policy: Policy


class _Probed(NamedTuple):
    """A model whose passes can be timed, and the label that the figures are kept under."""

    model: Model
    label: str
    rows: tuple[int, ...]


def assemble(
    model: Name | Model,
    draft: Name | Drafter,
    gamma: Gamma,
    *,
    threads: int | None,
    top_k: int | None,
    requantise: bool,
    clock: Callable[[], float],
) -> Parts:
    """Load what is to be loaded and choose who guesses, and how far; OptionError for options that do not fit."""
    _check_gamma(gamma)
    name = _draft_name(model, draft)
    if name is None and (top_k, requantise) != (DRAFT_TOP_K, True):
        raise OptionError("draft_top_k and draft_requantise are options of draft models that are loaded by name")
    if not isinstance(model, str | Path):
        if threads is not None:
            raise OptionError("threads is an option of models that are loaded by name; this one is already built")
        drafters = _without_file(draft, gamma)
        return Parts(model, None, drafters, _policy(gamma, drafters, {}, clock))
    loader = Loader(threads)
    target = loader.target(model)
    label = f"{target.path.name} on {threads or 'all'} threads"
    probed = {"target": _Probed(target.model, label, TARGET_ROWS)}
    if name is None:
        drafters = _without_file(draft, gamma)
    else:
        light = loader.draft_model(name, target, requantise=requantise)
        kind = SelfDrafter if name == "self" else ModelDrafter
        drafters = _by_model(kind(light, target.model.vocab_size, top_k), gamma)
        label = f"{Path(name).name} {'made light' if requantise else 'as it is'} for {label}"
        probed["model"] = _Probed(light, label, DRAFT_ROWS)
    return Parts(target.model, target, drafters, _policy(gamma, drafters, probed, clock))


def _check_gamma(gamma: Gamma) -> None:
    if gamma != "auto" and (isinstance(gamma, bool) or not isinstance(gamma, int) or gamma < 0):
        raise OptionError(f"gamma is {gamma!r}; it must be auto, or an integer, 0 (no drafts) or more")


def _draft_name(model: Name | Model, draft: Name | Drafter) -> Name | None:
    """Give the name of the draft model to load, if any."""
    if not isinstance(draft, str | Path):
        if not isinstance(draft, Drafter):
            legal = "auto, none, ngram, self, a path, an alias or a drafter object"
            raise OptionError(f"draft is {draft!r}; it must be {legal}")
        return None
    if draft in ("none", "ngram"):
        return None
    if isinstance(model, str | Path):
        return draft_partner(model) if draft == "auto" else draft
    if draft == "auto":
        return None
    legal = "auto, none, ngram or a drafter object"
    raise OptionError(f"draft is {str(draft)!r}; for a model object it must be {legal}")


def _without_file(draft: Name | Drafter, gamma: Gamma) -> dict[str, Drafter]:
    """Give the drafter that a draft without a file stands for, if any."""
    if not isinstance(draft, str | Path):
        return {"object": draft}
    return {} if draft == "none" else {"ngram": _ngram(gamma)}


def _by_model(drafter: ModelDrafter, gamma: Gamma) -> dict[str, Drafter]:
    """Under the controller the n-gram drafter, next to free, stands by."""
    return {"model": drafter} if gamma != "auto" else {"ngram": _ngram(gamma), "model": drafter}


def _ngram(gamma: Gamma) -> NgramDrafter:
    """The controller knows what a match of one token is worth; a fixed gamma would draft from every one of them."""
    return NgramDrafter(min_match=1) if gamma == "auto" else NgramDrafter()


def _policy(
    gamma: Gamma, drafters: Mapping[str, Drafter], probed: Mapping[str, _Probed], clock: Callable[[], float]
) -> Policy:
    if gamma != "auto":
        return FixedGamma(next(iter(drafters), None), gamma)
    if not drafters:
        return FixedGamma(None, 0)
    file = cache_folder() / "costs.json"
    shapes = {name: shape(one.model, one.label, one.rows, file, clock) for name, one in probed.items()}
    target = Cost(shapes.get("target", Shape.prior()))  # what was not measured begins with a guess
    costs = {name: Cost(shapes.get(name, Shape.reading()), beside=target) for name in drafters}
    if "model" in probed:
        pair = (("target", target, VERIFIED_ROWS), ("model", costs["model"], READ_ROWS))
        greet([Guest(probed[name].model, cost, rows) for name, cost, rows in pair], clock)
    return Controller(target, {name: Helper(cost, GUESSED_ACCEPTANCE[name]) for name, cost in costs.items()})
