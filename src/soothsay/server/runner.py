"""The engine on a thread of its own: orders wait in line, run, and are handed on. Nobody else steps the engine."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from soothsay.completion import Completion, Piece
from soothsay.engine import Engine
from soothsay.errors import SoothsayError
from soothsay.request import Request
from soothsay.sampling import Sampling
from soothsay.schedule.wish import NO_WISH, Wish
from soothsay.server.refusals import Broken, Busy, Leaving, TooLate, refusal_of

log = logging.getLogger(__name__)


class Listener(Protocol):
    """Hears what becomes of an order, on the runner's thread: it neither waits nor raises."""

    def hear(self, pieces: Sequence[Piece]) -> bool:
        """Take the next pieces of the answer; False when nobody wants more of it."""
        ...

    def fail(self, error: Exception) -> None:
        """Learn that the answer ends here, unfinished."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """One answer that is wanted: a prompt's token ids, how to sample and guess, and who listens.

    It has `seconds` from when it was placed; None: as long as it takes.
    """

    prompt: Sequence[int]
    sampling: Sampling
    listener: Listener
    verify: str | None = None
    wish: Wish = NO_WISH
    seconds: float | None = None
    placed: float = field(default_factory=time.monotonic)

    @property
    def late(self) -> bool:
        """Whether its time is over."""
        return self.seconds is not None and time.monotonic() > self.placed + self.seconds


class Watcher(Protocol):
    """Hears how orders end, on the runner's thread."""

    def answered(self, completion: Completion, waited_seconds: float) -> None: ...

    def unanswered(self, why: str) -> None: ...


class Runner:
    """Runs up to `max_batch` orders at once while up to `max_queue` more wait, first come, first served."""

    def __init__(self, engine: Engine, watcher: Watcher, *, max_batch: int, max_queue: int) -> None:
        self._engine = engine
        self._watcher = watcher
        self._max_batch = max_batch
        self._room = max_batch + max_queue
        self._news = threading.Condition()
        self._waiting: deque[Order] = deque()
        self._running: dict[Order, tuple[Request, float]] = {}  # and how long the order waited
        self._cancelled: set[Order] = set()
        self._leave_at: float | None = None
        self._over = False
        self.held_tokens = 0
        self._thread = threading.Thread(target=self._run, name="soothsay-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End at once, with an error for everyone who is still here."""
        with self._news:
            self._over = True
            self._news.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def accepting(self) -> bool:
        return self.alive and self._leave_at is None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def submit(self, orders: Sequence[Order]) -> None:
        """Take all of the orders or none; Busy when the line has no room for them, Leaving after `drain`."""
        with self._news:
            if self._over or self._leave_at is not None:
                raise Leaving
            here = len(self._waiting) + len(self._running)
            if here + len(orders) > self._room:
                raise Busy(f"{here} answers are running or waiting, of at most {self._room}; try again later", 1)
            self._waiting.extend(orders)
            self._news.notify()

    def cancel(self, orders: Sequence[Order]) -> None:
        """End what has not ended by itself, before the next step; nobody is told."""
        with self._news:
            self._cancelled.update(orders)
            self._news.notify()

    def drain(self, seconds: float) -> None:
        """Take no more orders; those that are here have so many seconds. Never waits: fit for a signal's handler."""
        self._leave_at = time.monotonic() + seconds

    def _run(self) -> None:
        while self._next():
            if self._running:
                self._step()
        self._fail(Leaving())

    def _next(self) -> bool:
        """Wait for something to do, let go and let in; False when it is time to end."""
        with self._news:
            self._news.wait_for(lambda: self._over or self._waiting or self._running or self._cancelled)
            cancelled, self._cancelled = self._cancelled, set()
            cancelled |= self._late()
            stay = [order for order in self._waiting if order not in cancelled]
            gone = len(self._waiting) - len(stay)
            free = self._max_batch - len(self._running.keys() - cancelled)
            entering, self._waiting = stay[:free], deque(stay[free:])
            self._part(cancelled, gone)
            for order in entering:
                self._enter(order)
            return not self._over

    def _late(self) -> set[Order]:
        """Tell those whose time is over so; they are to part."""
        late = {order for order in (*self._waiting, *self._running) if order.late}
        for order in late:
            order.listener.fail(TooLate(order.seconds or 0.0))
        return late

    def _part(self, cancelled: set[Order], waiting: int) -> None:
        ended = [order for order in cancelled if order in self._running]
        self._engine.cancel([self._running.pop(order)[0] for order in ended])
        for _ in range(waiting + len(ended)):
            self._watcher.unanswered("cancelled")

    def _enter(self, order: Order) -> None:
        waited = time.monotonic() - order.placed
        try:
            request = self._engine.submit(order.prompt, order.sampling, verify=order.verify, wish=order.wish)
            self._running[order] = request, waited
        except SoothsayError as error:
            order.listener.fail(refusal_of(error))
            self._watcher.unanswered("failed")

    def _step(self) -> None:
        if self._leave_at is not None and time.monotonic() > self._leave_at:
            self._fail(Leaving("the server is shutting down, and the time for this answer is over"))
            return
        try:
            self._engine.step()
        except Exception as error:
            log.exception("a step failed")
            self._fail(
                Broken(f"the model failed: {error}" if isinstance(error, SoothsayError) else "the engine failed")
            )
            return
        self.held_tokens = self._engine.held_tokens
        for order, (request, waited) in list(self._running.items()):
            self._hand_on(order, request, waited)

    def _hand_on(self, order: Order, request: Request, waited: float) -> None:
        pieces = [request.pieces.popleft() for _ in range(len(request.pieces))]
        if pieces and not order.listener.hear(pieces) and request.completion is None:
            self.cancel([order])
        if request.error is not None:
            del self._running[order]
            order.listener.fail(refusal_of(request.error))
            self._watcher.unanswered("failed")
        elif request.completion is not None:
            del self._running[order]
            self._watcher.answered(request.completion, waited)

    def _fail(self, error: Exception) -> None:
        """End everything that is here."""
        with self._news:
            orders = [*self._running, *self._waiting]
            self._engine.cancel([request for request, _ in self._running.values()])
            self._running.clear()
            self._waiting.clear()
        for order in orders:
            order.listener.fail(error)
            self._watcher.unanswered("failed")
