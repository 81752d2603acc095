"""What the machine can do at most: figures that a loop the compiler had removed could not give."""

import math

import pytest

from soothsay._native import Probe
from soothsay.model.native import runtime
from tests.runtimes import ISAS

POSSIBLE_PER_SECOND = 4e12
"""More bytes and more products than a thread of any processor manages; a loop that is not there gives far more."""


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 3])
def test_the_work_is_really_done(isa: str, threads: int) -> None:
    probe = Probe(runtime(threads, isa), read_bytes=(1 << 24) + 1)
    for found in (probe.read_bandwidth(), probe.peak_products()):
        assert math.isfinite(found)
        assert 1e6 < found < threads * POSSIBLE_PER_SECOND


def test_nothing_to_read() -> None:
    with pytest.raises(ValueError, match="one byte at least"):
        Probe(runtime(1), read_bytes=0)
