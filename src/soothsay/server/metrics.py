"""What Prometheus may ask: requests, the line, time, rows, the cache, and what became of the drafts."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from soothsay.completion import Completion
from soothsay.record import Drafted, Record

SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
LONG = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
Price = Callable[[int, int], float | None]
"""(rows, sequences) -> seconds of a pass, or None."""

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 32)

disable_created_metrics()  # type: ignore[no-untyped-call]  # one more line for every figure, that says nothing of it


class Metrics:
    """The figures of one server. Tokens a step, over five minutes:

    rate(soothsay_generated_tokens_total[5m]) / rate(soothsay_sequence_steps_total[5m])

    and the speedup over plain decoding, by what its passes cost here:

    rate(soothsay_plain_seconds_total[5m]) / rate(soothsay_decoding_seconds_total[5m])
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"soothsay_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"soothsay_{name}", text, labels, buckets=buckets, registry=registry)

        self._requests = counter("requests", "HTTP requests by path and status.", "path", "status")
        self._answers = counter("answers", "Answers by how they ended.", "finish_reason")
        self._prompt = counter("prompt_tokens", "Tokens of prompts that were answered.")
        self._cached = counter("cached_prompt_tokens", "Those of them that were already in the cache.")
        self._generated = counter("generated_tokens", "Tokens emitted.")
        self._steps = counter("sequence_steps", "Steps, each sequence that emits in one counted.")
        self._drafted = counter("drafted_tokens", "Tokens drafted, by drafter and position.", "drafter", "position")
        self._accepted = counter("accepted_tokens", "Tokens accepted, by drafter and position.", "drafter", "position")
        self._seconds = counter("step_seconds", "Where the time of steps went.", "part")
        self._waited = histogram("queue_seconds", "From a request to its start.", LONG)
        self._first = histogram("time_to_first_token_seconds", "From a request to its first token.", LONG)
        self._pace = histogram("time_per_token_seconds", "Between later tokens, the mean of an answer.", SHORT)
        self._rows = histogram("batch_rows", "Rows of the target's passes.", ROWS)
        self._decoding = counter("decoding_seconds", "Of steps in which everyone decodes and passes are priced.")
        self._plain = counter(
            "plain_seconds", "What plain decoding would have taken for their tokens, by measured costs."
        )
        self._spent = self._saved_from = 0.0
        self.price: Price = lambda rows, sequences: None
        self._gamma = histogram("gamma_tokens", "Tokens drafted a step, by drafter.", TOKENS, "drafter")

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show a figure that is read when it is asked for."""
        Gauge(f"soothsay_{name}", text, registry=self._registry).set_function(read)

    @property
    def speedup(self) -> float | None:
        """The estimated speedup over plain decoding so far; None where passes have no price."""
        return self._saved_from / self._spent if self._spent > 0 else None

    def text(self) -> bytes:
        """Give all figures in Prometheus's text format."""
        return generate_latest(self._registry)

    def requested(self, path: str, status: int) -> None:
        self._requests.labels(path, str(status)).inc()

    def answered(self, completion: Completion, waited_seconds: float) -> None:
        """Count an answer that ended by itself."""
        stats = completion.stats
        self._answers.labels(completion.finish_reason).inc()
        self._prompt.inc(stats.prompt_tokens)
        self._cached.inc(stats.cached_tokens)
        self._waited.observe(waited_seconds)
        self._first.observe(waited_seconds + stats.first_token_seconds)
        if stats.tokens_per_second:
            self._pace.observe(1 / stats.tokens_per_second)

    def unanswered(self, why: str) -> None:
        self._answers.labels(why).inc()

    def watch(self, step: Record) -> None:
        """Hear of a step of the engine, on its thread."""
        self._rows.observe(step.rows)
        for part in ("draft", "target", "verify"):
            self._seconds.labels(part).inc(getattr(step, f"{part}_seconds"))
        self._compare(step)
        for one in step.drafts:
            self._steps.inc()
            self._generated.inc(one.emitted)
            if one.drafter is not None:
                self._watch_draft(one, one.drafter)

    def _compare(self, step: Record) -> None:
        """Put a step in which everyone decodes beside the plain steps that would have given as much."""
        sequences = len(step.drafts)
        if sequences == 0 or step.rows != sequences + sum(one.drafted for one in step.drafts):
            return
        if (price := self.price(sequences, sequences)) is None:
            return
        plain = price * sum(one.emitted for one in step.drafts) / sequences
        spent = step.draft_seconds + step.target_seconds + step.verify_seconds
        self._plain.inc(plain)
        self._decoding.inc(spent)
        self._saved_from += plain
        self._spent += spent

    def _watch_draft(self, one: Drafted, drafter: str) -> None:
        self._gamma.labels(drafter).observe(one.drafted)
        for position in range(1, one.drafted + 1):
            self._drafted.labels(drafter, str(position)).inc()
            if position <= one.accepted:
                self._accepted.labels(drafter, str(position)).inc()
