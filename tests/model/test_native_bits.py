"""A row's logits are the same bits whatever is computed with it. Compared as integers, so that -0.0 is not 0.0."""

import ctypes
import mmap
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from soothsay.model.base import Feed, Slot
from soothsay.model.native import NativeModel, runtime
from tests.checkpoints import Kind, Recipe, prompt
from tests.runtimes import ISAS, Checkpoint, Floats, alone, load, read, same_bits

LENGTH = 280  # past the first partition of 256 keys
RECIPES = {
    "7to1": Recipe("qwen2", Kind.Q5_0, width=96, heads=14, kv_heads=2, head_width=16, max_length=700),
    "3to1": Recipe("llama", Kind.Q4_0, width=64, heads=9, kv_heads=3, head_width=64, layers=1, max_length=700),
    "wide-head": Recipe("qwen3", Kind.Q8_0, width=64, heads=4, kv_heads=2, head_width=128, layers=1, max_length=700),
    "floats": Recipe("llama", Kind.F16, width=48, heads=3, kv_heads=1, head_width=16, max_length=700),
    "Q4_K": Recipe("llama", Kind.Q4_K, width=256, heads=8, feed_forward_width=256, layers=1, max_length=700),
    "Q6_K": Recipe("qwen2", Kind.Q6_K, width=256, heads=8, feed_forward_width=256, layers=1, max_length=700),
}
MORE_KINDS = (Kind.F32, Kind.BF16, Kind.Q4_1, Kind.Q5_1)

on_every_isa = pytest.mark.parametrize("isa", ISAS)
of_every_shape = pytest.mark.parametrize("name", RECIPES)


class Subject:
    """A model, a text, and the logits after each of its tokens, one row a pass."""

    def __init__(self, model: NativeModel, recipe: Recipe) -> None:
        self.model = model
        self.tokens = prompt(recipe, LENGTH)
        self._whole = model.open()
        self.rows = read(model, self._whole, self.tokens, chunk=1)

    def opened(self, length: int) -> Slot:
        """Give a slot that holds the text's first `length` tokens."""
        slot = self.model.fork(self._whole)
        self.model.truncate(slot, length)
        return slot


@pytest.fixture(scope="module")
def subject(checkpoint: Checkpoint) -> Callable[[str, str], Subject]:
    made: dict[tuple[str, str], Subject] = {}

    def make(name: str, isa: str) -> Subject:
        if (name, isa) not in made:
            made[name, isa] = Subject(load(checkpoint, RECIPES[name], isa, threads=1), RECIPES[name])
        return made[name, isa]

    return make


Subjects = Callable[[str, str], Subject]


@on_every_isa
@of_every_shape
def test_prompt_chunks(subject: Subjects, name: str, isa: str) -> None:
    s = subject(name, isa)
    for chunk in (2, 3, 5, 8, 31, 32, 33, 63, 64, 65, 100, 257, LENGTH):
        start = 224 if chunk <= 8 else 128 if chunk <= 100 else 0
        found = read(s.model, s.opened(start), s.tokens[start:], chunk)
        assert same_bits(found, s.rows[start:]), f"chunks of {chunk}"


@on_every_isa
@of_every_shape
def test_1_to_64_rows(subject: Subjects, name: str, isa: str) -> None:
    """As verification asks for them: from one place in the text, over the border of blocks and partitions."""
    s, start = subject(name, isa), 211
    slot = s.opened(start)
    for rows in range(1, 65):
        found = read(s.model, slot, s.tokens[start : start + rows])
        assert same_bits(found, s.rows[start : start + rows]), f"{rows} rows"
        s.model.truncate(slot, start)


@on_every_isa
@of_every_shape
def test_batch_mates(subject: Subjects, name: str, isa: str) -> None:
    """Each feed lands at other rows of the pass, among others, in each order."""
    s = subject(name, isa)
    places = [(0, 5), (250, 9), (31, 2), (100, 70), (255, 1), (20, 44)]
    for turn in range(len(places)):
        order = places[turn:] + places[:turn]
        slots = [s.opened(start) for start, _ in order]
        feeds = [
            Feed(slot, s.tokens[start : start + count], count)
            for slot, (start, count) in zip(slots, order, strict=True)
        ]
        for (start, count), found in zip(order, s.model.forward(feeds), strict=True):
            assert same_bits(found, s.rows[start : start + count])


@on_every_isa
@of_every_shape
def test_shared_prefixes(subject: Subjects, name: str, isa: str) -> None:
    """Forked around the border of a block of 32 and of a partition; the branches go on in the same passes."""
    s = subject(name, isa)
    for length in (1, 30, 31, 32, 33, 34, 63, 64, 65, 255, 256, 257):
        trunk = s.opened(length)
        branch, twin = s.model.fork(trunk), s.model.fork(trunk)
        fresh = s.model.open()
        other = s.tokens[:12][::-1]
        expected = read(s.model, fresh, [*s.tokens[:length], *other])[length:]
        for start in range(0, 12, 4):
            kept = s.tokens[length + start :][:4]
            feeds = [Feed(trunk, kept, 4), Feed(branch, other[start : start + 4], 4), Feed(twin, kept, 4)]
            a, b, c = s.model.forward(feeds)
            assert same_bits(a, s.rows[length + start :][:4]), (length, start)
            assert same_bits(b, expected[start : start + 4]), (length, start)
            assert same_bits(c, a)
        for slot in (trunk, branch, twin, fresh):
            s.model.close(slot)


@on_every_isa
@of_every_shape
def test_regrowth_over_rejected_tokens(subject: Subjects, name: str, isa: str) -> None:
    s = subject(name, isa)
    for length in (0, 1, 31, 32, 33, 240, 256):
        slot = s.opened(length)
        s.model.forward([Feed(slot, s.tokens[:60][::-1], 0)])
        s.model.truncate(slot, length)
        assert s.model.length(slot) == length
        assert same_bits(read(s.model, slot, s.tokens[length : length + 20], chunk=7), s.rows[length : length + 20])


@on_every_isa
@of_every_shape
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads(checkpoint: Checkpoint, subject: Subjects, name: str, isa: str, threads: int) -> None:
    """The bits to meet come from one thread."""
    s = subject(name, isa)
    model = load(checkpoint, RECIPES[name], isa, threads)
    assert same_bits(read(model, model.open(), s.tokens, chunk=77), s.rows)
    assert same_bits(read(model, model.open(), s.tokens[:20], chunk=1), s.rows[:20])


@on_every_isa
@pytest.mark.parametrize("kind", MORE_KINDS, ids=lambda kind: kind.name)
def test_the_other_kinds(checkpoint: Checkpoint, kind: Kind, isa: str) -> None:
    recipe = Recipe("llama", kind, biases=True)
    model, tokens = load(checkpoint, recipe, isa), prompt(recipe, 64)
    rows = alone(model, tokens)
    for chunk in (2, 3, 7, 8, 64):
        assert same_bits(read(model, model.open(), tokens, chunk), rows), f"chunks of {chunk}"


@on_every_isa
def test_a_long_text(checkpoint: Checkpoint, isa: str) -> None:
    """Three partitions, combined in order."""
    tokens = prompt(RECIPES["7to1"], 600)
    rows = alone(load(checkpoint, RECIPES["7to1"], isa, threads=1), tokens)
    for threads, chunk in ((1, 64), (2, 100), (3, 600)):
        model = load(checkpoint, RECIPES["7to1"], isa, threads)
        assert same_bits(read(model, model.open(), tokens, chunk), rows), f"chunks of {chunk}"


# --- The floating-point environment of the calling thread

FLUSH_TO_ZERO, TOWARDS_ZERO = 0x1F80 | 0x8040, 0x1F80 | 0x6000
LOAD_CONTROL = bytes.fromhex("57 0fae1424 5f c3")  # push rdi; ldmxcsr [rsp]; pop rdi; ret
STORE_CONTROL = bytes.fromhex("50 0fae1c24 58 c3")  # push rax; stmxcsr [rsp]; pop rax; ret
on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="sets the control register of x86")


class Control:
    """The control register of x86's floating-point unit, reached by a few bytes of machine code."""

    def __init__(self) -> None:
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._code.write(LOAD_CONTROL.ljust(16) + STORE_CONTROL)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._load = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(start)
        self.value = ctypes.CFUNCTYPE(ctypes.c_uint32)(start + 16)

    @contextmanager
    def set(self, value: int) -> Iterator[None]:
        before = self.value()
        self._load(value)
        try:
            yield
        finally:
            self._load(before)


@on_x86
@on_every_isa
@pytest.mark.parametrize("environment", [FLUSH_TO_ZERO, TOWARDS_ZERO], ids=["flush-to-zero", "towards-zero"])
def test_the_callers_rounding_does_not_show(subject: Subjects, isa: str, environment: int) -> None:
    s, control = subject("3to1", isa), Control()
    slot = s.model.open()
    with control.set(environment):
        found = s.model.forward([Feed(slot, s.tokens[:40], 40)])[0]
        after = control.value()
    assert same_bits(found, s.rows[:40])
    assert after & ~0x3F == environment, "the caller's own environment came back"


@on_x86
@on_every_isa
def test_denormal_products_survive_the_callers_flush(isa: str) -> None:
    team = runtime(1, isa)
    one = team.pack(int(Kind.F32), 1, 1, np.ones(1, np.float32).view(np.uint8))
    tiny: Floats = np.full((1, 1), 1e-40, np.float32)
    with Control().set(FLUSH_TO_ZERO):
        found = team.product(one, tiny)
    assert same_bits(found, tiny)
