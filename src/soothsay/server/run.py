"""A server from its options to its end: assemble, listen, and leave when told to."""

import socket
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import uvicorn

from soothsay.assemble import DRAFT_TOP_K, Gamma, Parts, assemble
from soothsay.engine import Engine
from soothsay.errors import OptionError, Unsupported
from soothsay.model.base import Model
from soothsay.record import Record, Watch
from soothsay.server.app import application
from soothsay.server.door import LOOPBACK
from soothsay.server.metrics import Metrics
from soothsay.server.recent import Recent
from soothsay.server.runner import Runner
from soothsay.server.service import Limits, Service
from soothsay.verify.rules import Rule

MOST_CONNECTIONS = 1024
UNREAD_MILLISECONDS = 60_000
"""A connection whose client takes nothing for so long is cut, where the system can do that."""


def load(
    model: str,
    *,
    draft: str = "auto",
    gamma: Gamma = "auto",
    verify: str = "coupled",
    threads: int | None = None,
    limits: Limits | None = None,
    trace: Watch | None = None,
) -> Service:
    """Load a model and its drafters, ready to be served; raises what they raise."""
    Rule(verify)  # a slip of the pen should not wait for a model to load
    parts = assemble(model, draft, gamma, threads=threads, top_k=DRAFT_TOP_K, requantise=True, clock=time.perf_counter)
    name = model if not model.endswith(".gguf") else Path(model).stem
    return service_of(parts, name, verify=verify, limits=limits or Limits(), trace=trace)


def service_of(
    parts: Parts, name: str, *, verify: str = "coupled", limits: Limits, trace: Watch | None = None
) -> Service:
    """Make a service of what is already there."""
    if parts.loaded is None:
        raise Unsupported("a server needs a model with words")
    metrics, recent = Metrics(), Recent()

    def watch(record: Record) -> None:
        metrics.watch(record)
        recent.watch(record)
        if trace is not None:
            trace(record)

    engine = Engine.of(parts, verify=verify, capacity=limits.capacity, watch=watch, details=trace is not None)
    metrics.price = engine.pass_seconds
    runner = Runner(engine, metrics, max_batch=limits.capacity.max_batch, max_queue=limits.max_queue)
    metrics.gauge("queue_requests", "Answers that wait.", lambda: runner.waiting)
    metrics.gauge("running_requests", "Answers that run.", lambda: runner.running)
    metrics.gauge("cache_tokens", "Tokens that the target's cache holds.", lambda: runner.held_tokens)
    return Service(engine, parts.loaded, name, _fingerprint(parts.model), limits, runner, metrics, recent)


def _fingerprint(model: Model) -> str:
    """Give what a token depends on beside model, request and seed: the build and its instruction set."""
    release = f"soothsay-{version('soothsay')}"
    if find_spec("soothsay._native") is None:
        return release
    from soothsay.model.native import NativeModel

    return f"{release}-{model.runtime.isa}" if isinstance(model, NativeModel) else release


def listen(host: str, port: int) -> socket.socket:
    """Open the address; port 0 takes any that is free. OptionError when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except (OSError, OverflowError) as error:
        raise OptionError(f"cannot listen on host {host!r}, port {port}: {error}") from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
    return listener


def server(
    service: Service, listener: socket.socket, keys: Sequence[str] = (), ready: Callable[[str], None] = lambda _: None
) -> uvicorn.Server:
    """Make a server to `run([listener])` until a signal; `ready` hears the address once requests are taken.

    At SIGTERM or SIGINT no new requests are taken, and answers on their way have the service's grace to end; those
    that do not are told so.
    """
    host, port = listener.getsockname()[:2]
    hosts = LOOPBACK if host in ("127.0.0.1", "::1") else None
    grace = service.limits.grace_seconds
    config = uvicorn.Config(
        application(service, keys=keys, hosts=hosts),
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=int(grace) + 5,
    )
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return _Server(config, lambda: service.runner.drain(grace), lambda: ready(address))


class _Server(uvicorn.Server):
    """Uvicorn's server, which also tells the runner to let its answers end."""

    def __init__(self, config: uvicorn.Config, leave: Callable[[], None], ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._leave = leave
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._leave()
        super().handle_exit(sig, frame)
