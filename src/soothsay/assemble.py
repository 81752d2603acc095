"""From an engine's options to its target, its drafters and its policy."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from soothsay.calibrate import DRAFT_ROWS, TARGET_ROWS, shape
from soothsay.draft.base import Drafter
from soothsay.draft.model import ModelDrafter
from soothsay.draft.ngram import NgramDrafter
from soothsay.errors import OptionError
from soothsay.hub import cache_folder, draft_partner
from soothsay.load import Loaded, Loader
from soothsay.model.base import Model
from soothsay.schedule.cost import Cost, Shape
from soothsay.schedule.gamma import Controller
from soothsay.schedule.plan import Helper
from soothsay.schedule.policy import FixedGamma, Policy

Gamma: TypeAlias = int | Literal["auto"]

DRAFT_TOP_K = 32
FIRST_WINDOW = 32
"""Tokens that a draft model reads before its first guess, under the controller; the rest as the savings pay for it."""

GUESSED_ACCEPTANCE = {"model": 0.75, "ngram": 0.4}
"""Before anything was seen."""


class Assembly:
    """What an engine is made of: `model`, `loaded` (None for a model object), `drafters` by name, and `policy`."""

    def __init__(
        self,
        model: str | Path | Model,
        draft: str | Path | Drafter,
        gamma: Gamma,
        *,
        threads: int | None,
        top_k: int | None,
        requantise: bool,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._gamma = _checked(gamma)
        self.loaded, loader = _target(model, threads)
        self.model: Model = self.loaded.model if self.loaded is not None else model  # type: ignore[assignment]
        if not _is_model_name(draft) and (top_k, requantise) != (DRAFT_TOP_K, True):
            raise OptionError("draft_top_k and draft_requantise are options of draft models that are loaded by name")
        self._draft_name: str | Path | None = self._model_name(draft)
        self.drafters: dict[str, Drafter] = self._simple(draft)
        if self._draft_name is not None:
            self._add_model(loader, top_k, requantise)
        self.policy = self._policy()

    def _model_name(self, draft: str | Path | Drafter) -> str | Path | None:
        """Give the name of the draft model to load, if any."""
        if draft == "auto" and self.loaded is not None:
            return draft_partner(self.loaded.path)
        if not _is_model_name(draft) or draft == "auto":
            return None
        if self.loaded is None:
            raise OptionError(f"draft is {str(draft)!r}; for a model object it must be none, ngram or a drafter object")
        return draft  # type: ignore[return-value]

    def _simple(self, draft: str | Path | Drafter) -> dict[str, Drafter]:
        if draft == "none":
            return {}
        if not isinstance(draft, str | Path):
            if not hasattr(draft, "propose"):
                raise OptionError(f"draft is {draft!r}; it must be a name or a drafter object")
            return {"draft": draft}
        return {"ngram": NgramDrafter()} if self._draft_name is None or self._gamma == "auto" else {}

    def _add_model(self, loader: Loader | None, top_k: int | None, requantise: bool) -> None:
        assert loader is not None
        assert self.loaded is not None
        assert self._draft_name is not None
        self._draft_model = loader.draft_model(self._draft_name, self.loaded, requantise=requantise)
        window = FIRST_WINDOW if self._gamma == "auto" else None
        self.drafters["model"] = ModelDrafter(self._draft_model, self.model.vocab_size, top_k, window)

    def _policy(self) -> Policy:
        if not self.drafters or self._gamma == 0:
            return FixedGamma(None, 0)
        if self._gamma != "auto":
            return FixedGamma(next(reversed(self.drafters)), self._gamma)
        target = Cost(self._shape(self.model, self.loaded.path.name, TARGET_ROWS) if self.loaded else Shape.prior())
        helpers = {name: Helper(self._cost(name, target), GUESSED_ACCEPTANCE.get(name, 0.7)) for name in self.drafters}
        return Controller(target, helpers)

    def _cost(self, name: str, target: Cost) -> Cost:
        if name != "model":
            return Cost(Shape.reading(), beside=target)
        assert self._draft_name is not None
        return Cost(self._shape(self._draft_model, f"draft {Path(self._draft_name).name}", DRAFT_ROWS), beside=target)

    def _shape(self, model: Model, name: str, rows: tuple[int, ...]) -> Shape:
        return shape(model, name, rows, cache_folder() / "costs.json", self._clock)


def _target(model: str | Path | Model, threads: int | None) -> tuple[Loaded | None, Loader | None]:
    if isinstance(model, str | Path):
        loader = Loader(threads)
        return loader.target(model), loader
    if threads is not None:
        raise OptionError("threads is an option of models that are loaded by name; this one is already built")
    return None, None


def _is_model_name(draft: str | Path | Drafter) -> bool:
    """Tell the name of a draft model from the drafters that need no file."""
    return isinstance(draft, str | Path) and draft not in ("none", "ngram")


def _checked(gamma: Gamma) -> Gamma:
    if gamma != "auto" and (isinstance(gamma, bool) or not isinstance(gamma, int) or gamma < 0):
        raise OptionError(f"gamma is {gamma!r}; it must be auto, or an integer, 0 (no drafts) or more")
    return gamma
