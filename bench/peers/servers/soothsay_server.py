"""soothsay itself, on the same terms as its peers: a process of its own, asked by token ids."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from answers import Ask

from soothsay import Engine, Sampling


class Server:
    def __init__(self, model: str, context: int, threads: int, draft: str | None = None) -> None:
        """`context` is as long as it grows."""
        self.version = _version()
        self._model, self._draft_model, self._threads = model, draft, threads
        self._engines: dict[str, Engine] = {}

    def generate(self, ask: Ask) -> dict[str, Any]:
        """Of `Ask.end` the engine knows by itself: it stands in the file."""
        sampling = Sampling(temperature=ask.temperature, seed=ask.seed, max_tokens=ask.max_tokens)
        answer = self._engine(ask).generate(ask.tokens, sampling)
        first = answer.stats.first_token_seconds
        return {
            "tokens": list(answer.tokens),
            "first_token_seconds": first,
            "seconds": answer.stats.seconds - first,
        }

    def _engine(self, ask: Ask) -> Engine:
        if ask.drafter not in self._engines:
            self._engines[ask.drafter] = self._build(ask)
        return self._engines[ask.drafter]

    def _build(self, ask: Ask) -> Engine:
        if ask.drafter == "none":
            return Engine(self._model, draft="none", threads=self._threads)
        draft = self._draft_model if ask.drafter == "model" else ask.drafter
        return Engine(self._model, draft=draft, gamma=ask.gamma, threads=self._threads)


def _version() -> str:
    try:
        return version("soothsay")
    except PackageNotFoundError:
        return "from its source"
