"""The packed products against NumPy: the same integers, on every instruction set, for every kind of matrix."""

import numpy as np
import pytest
from numpy.typing import NDArray

from soothsay import _native
from soothsay.model.kinds import Kind as AnyKind
from soothsay.model.kinds import OwnKind, block_sizes, dequantise_blocks
from soothsay.model.native import runtime
from tests.checkpoints import K_KINDS, Kind, Numbers, matrix
from tests.runtimes import ISAS, Floats, same_bits

FLOATS = (Kind.F32, Kind.F16, Kind.BF16)
FLAT = (Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0)
KINDS = (*FLOATS, *FLAT, *K_KINDS, OwnKind.D3)
GROUP = 32

on_every_isa = pytest.mark.parametrize("isa", ISAS)
of_every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


class Case:
    """A matrix in a file's bytes, the same in floats, and the product with rows."""

    def __init__(self, kind: AnyKind, data: NDArray[np.generic]) -> None:
        self.kind = kind
        self.data = np.ascontiguousarray(data).view(np.uint8)
        self.outputs = len(data)
        self.weights: Floats = dequantise_blocks(self.data, kind).astype(np.float32).reshape(self.outputs, -1)
        self.inputs = self.weights.shape[1]

    @classmethod
    def random(cls, kind: AnyKind, outputs: int, inputs: int, seed: int = 0) -> "Case":
        return cls(kind, random_matrix(kind, outputs, inputs, seed))

    def product(self, rows: Floats, isa: str, threads: int = 2) -> Floats:
        team = runtime(threads, isa)
        return team.product(team.pack(int(self.kind), self.outputs, self.inputs, self.data), rows)

    def expected(self, rows: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give the product in float64 and, to measure errors by, the sum of what it adds up in absolute value."""
        seen = rows if self.kind in FLOATS else quantised(rows)
        wide, weights = seen.astype(np.float64), self.weights.astype(np.float64)
        return wide @ weights.T, np.abs(wide) @ np.abs(weights).T


def random_matrix(kind: AnyKind, outputs: int, inputs: int, seed: int = 0) -> NDArray[np.generic]:
    if not isinstance(kind, OwnKind):
        return matrix(Numbers(seed), kind, (outputs, inputs), 0.5)
    blocks = Numbers(seed).octets((outputs * inputs // 128, 60))
    blocks[:, :4] = np.array([0.5 / 128 / 3.5, 0.5 / 128], "<f2").view(np.uint8)  # a mean of about 0
    return blocks.reshape(outputs, -1)


def quantised(rows: Floats) -> NDArray[np.float64]:
    """Give each row in 8 bits: groups of 32 with the scale max|x| / 127, codes rounded half to even."""
    groups = rows.reshape(len(rows), -1, GROUP)
    scales = np.abs(groups).max(axis=-1, keepdims=True) / np.float32(127)
    inverses = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    codes = np.clip(np.rint(groups * inverses), -127, 127)
    rounded: NDArray[np.float64] = codes.astype(np.float64) * scales
    return rounded.reshape(rows.shape)


def random_rows(count: int, inputs: int, seed: int = 1) -> Floats:
    """Rows whose groups differ in size by powers of ten, so that a scale at the wrong group shows."""
    generator = np.random.default_rng(seed)
    sizes = 10.0 ** generator.integers(-2, 3, (count, inputs // GROUP, 1))
    rows: Floats = (generator.standard_normal((count, inputs // GROUP, GROUP)) * sizes).astype(np.float32)
    return rows.reshape(count, inputs)


def assert_product(case: Case, rows: Floats, isa: str) -> None:
    expected, size = case.expected(rows)
    found = case.product(rows, isa)
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= 1e-5 * size).all()


@on_every_isa
@of_every_kind
def test_products_are_those_of_the_same_integers(kind: AnyKind, isa: str) -> None:
    case = Case.random(kind, 53, 512)
    assert_product(case, random_rows(11, 512), isa)


@on_every_isa
@of_every_kind
def test_rows_do_not_depend_on_their_mates(kind: AnyKind, isa: str) -> None:
    """1 to 64 rows take kernels of different shapes; each row has the bits that it has alone."""
    case = Case.random(kind, 37, 256)
    rows = random_rows(64, 256)
    team = runtime(3, isa)
    packed = team.pack(int(kind), case.outputs, case.inputs, case.data)
    alone = np.concatenate([team.product(packed, rows[r : r + 1]) for r in range(64)])
    for count in range(1, 65):
        assert same_bits(team.product(packed, rows[64 - count :]), alone[64 - count :]), f"{count} rows"


@on_every_isa
@pytest.mark.parametrize("inputs", [128, 896])
def test_blocks_of_3_bits_need_not_come_in_pairs(inputs: int, isa: str) -> None:
    assert_product(Case.random(OwnKind.D3, 37, inputs), random_rows(5, inputs), isa)


@on_every_isa
@of_every_kind
@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 31, 33, 48])
def test_outputs_need_not_fill_tiles(kind: AnyKind, outputs: int, isa: str) -> None:
    assert_product(Case.random(kind, outputs, 256, seed=outputs), random_rows(3, 256), isa)


@on_every_isa
@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("inputs", [1, 31, 33, 100])
def test_floats_need_not_fill_groups(kind: AnyKind, inputs: int, isa: str) -> None:
    rows = np.random.default_rng(0).standard_normal((3, inputs)).astype(np.float32)
    assert_product(Case.random(kind, 17, inputs), rows, isa)


@on_every_isa
@of_every_kind
def test_extreme_codes_do_not_saturate(kind: AnyKind, isa: str) -> None:
    """Products summed in 16 bits overflow first where every code and every activation is as large as it can be."""
    data, size = random_matrix(kind, 16, 512), block_sizes(kind)[1]
    if kind in FLAT:
        blocks = data.reshape(-1, size)
        blocks[:, 4 if kind in (Kind.Q4_1, Kind.Q5_1) else 2 :] = 0x80 if kind is Kind.Q8_0 else 0xFF
    if kind in K_KINDS:
        blocks = data.reshape(-1, size)
        blocks[:, 192 if kind is Kind.Q6_K else 4 : 208 if kind is Kind.Q6_K else 16] = 0x7F  # scales and minima
        blocks[:, : 192 if kind is Kind.Q6_K else 0] = 0xFF  # codes
        blocks[:, (16 if kind is not Kind.Q6_K else 210) :] = 0xFF
    if kind is OwnKind.D3:
        data.reshape(-1, size)[:, 4:] = 0xFF
    signs = np.where(np.random.default_rng(0).random((4, 512)) < 0.5, -1, 1)
    signs[0], signs[1] = 1, -1
    assert_product(Case(kind, data), (signs * 0.01).astype(np.float32), isa)


@on_every_isa
@of_every_kind
def test_odd_rows(kind: AnyKind, isa: str) -> None:
    """Zeros have no scale, equal values are all at its end, huge ones must not overflow on the way."""
    rows = random_rows(5, 256)
    rows[0] = 0
    rows[1] = -3.7
    rows[2, 32:64] = 0
    rows[3] *= np.float32(1e30)
    rows[4] *= np.float32(1e-30)
    case = Case.random(kind, 19, 256)
    assert_product(case, rows, isa)
    assert not case.product(rows[:1], isa).any()


@on_every_isa
@of_every_kind
def test_denormal_rows_stay_small(kind: AnyKind, isa: str) -> None:
    """The inverse of their scale is infinite."""
    rows = np.full((2, 256), 1e-42, np.float32)
    rows[1, ::3] = 0
    found = Case.random(kind, 19, 256).product(rows, isa)
    assert (np.abs(found) < 1e-37).all()


@on_every_isa
@of_every_kind
def test_infinity_is_not_hidden(kind: AnyKind, isa: str) -> None:
    """Logits that are no numbers are reported by the sampler; finite ones in their place would be believed."""
    rows = random_rows(3, 256)
    rows[0, 40], rows[1, 40] = np.inf, np.nan
    found = Case.random(kind, 19, 256).product(rows, isa)
    assert not np.isfinite(found[:2]).any()
    assert np.isfinite(found[2]).all()


@on_every_isa
def test_codes_round_half_to_even(isa: str) -> None:
    row = np.zeros((1, GROUP), np.float32)
    row[0, :8] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5]
    case = Case(Kind.Q8_0, identity_of_8_bits())
    assert case.product(row, isa)[0, :8].tolist() == [127, 0, 2, 2, 0, -2, -2, 126]


def identity_of_8_bits() -> NDArray[np.uint8]:
    blocks = np.zeros((GROUP, 34), np.uint8)
    blocks[:, :2] = np.array([1], "<f2").view(np.uint8)
    blocks[:, 2:] = np.eye(GROUP)
    return blocks


@of_every_kind
def test_threads_and_tiles_do_not_show(kind: AnyKind) -> None:
    case = Case.random(kind, 333, 256)
    rows = random_rows(7, 256)
    alone = case.product(rows, ISAS[0], threads=1)
    for threads in (2, 3, 7):
        assert same_bits(case.product(rows, ISAS[0], threads), alone)


@of_every_kind
def test_dequantised_rows_are_those_of_gguf(kind: AnyKind) -> None:
    """Up to one rounding: the order of the two multiplications by scales is not laid down."""
    case = Case.random(kind, 7, 512)
    found = _native.dequantise(int(kind), case.outputs, case.inputs, case.data)
    np.testing.assert_allclose(found, case.weights, rtol=3e-7, atol=1e-7 * float(np.abs(case.weights).max()))


@of_every_kind
def test_bytes_of_another_shape_are_refused(kind: AnyKind) -> None:
    case = Case.random(kind, 7, 512)
    with pytest.raises(ValueError, match="the bytes given are not those of the matrix"):
        runtime(1).pack(int(kind), 8, 512, case.data)
    with pytest.raises(ValueError, match="the bytes given are not those of the matrix"):
        _native.dequantise(int(kind), 8, 512, case.data)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="a tensor kind that cannot be packed"):
        runtime(1).pack(9, 1, 32, np.zeros(36, np.uint8))


@pytest.mark.parametrize(("kind", "inputs", "size"), [(Kind.Q4_K, 128, 72), (OwnKind.D3, 64, 30)])
def test_part_of_a_block_is_refused(kind: AnyKind, inputs: int, size: int) -> None:
    with pytest.raises(ValueError, match="not a whole number of blocks"):
        runtime(1).pack(int(kind), 1, inputs, np.zeros(size, np.uint8))
