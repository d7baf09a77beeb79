from __future__ import annotations

import math

import numpy as np
import pytest

from pe_cli.encodings import contextual
from pe_cli.encodings.biases import alibi
from pe_cli.encodings.contextual import cope, fox, global_tokens, peg
from pe_cli.encodings.distances import t5_buckets
from pe_cli.errors import PeError

RANDOM = np.random.default_rng(0)
QUERY, KEY = RANDOM.normal(size=(2, 9, 4)), RANDOM.normal(size=(2, 9, 4))
ROWS = RANDOM.normal(size=(5, 4))
LOG_GATES = -RANDOM.exponential(size=(2, 9))


def plain_cope(query: np.ndarray, key: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    heads, length, width = query.shape
    positions, bias = np.zeros((heads, length, length)), np.zeros((heads, length, length))
    for h in range(heads):
        for i in range(length):
            for j in range(i + 1):
                p = sum(
                    1 / (1 + math.exp(-(query[h, i] @ key[h, t]) / math.sqrt(width))) for t in range(j, i + 1)
                )
                p = min(p, len(rows) - 1)
                low, part = math.floor(p), p - math.floor(p)
                positions[h, i, j] = p
                bias[h, i, j] = (1 - part) * (query[h, i] @ rows[low])
                bias[h, i, j] += part * (query[h, i] @ rows[math.ceil(p)])
    return positions, bias


def test_cope_equals_a_plain_loop() -> None:
    positions, bias = plain_cope(QUERY, KEY, ROWS)
    for table in (ROWS, ROWS.T[None]):
        made = cope(QUERY, key=KEY, table=table, dtype="float64")
        np.testing.assert_allclose(made["positions"], positions, atol=1e-12)
        np.testing.assert_allclose(made["bias"], bias, atol=1e-12)
    logits = QUERY @ KEY.transpose(0, 2, 1) / 2
    np.testing.assert_allclose(
        cope(QUERY, logits=logits, table=ROWS, dtype="float64")["bias"], bias, atol=1e-12
    )


def test_cope_with_open_gates_counts_tokens() -> None:
    made = cope(QUERY, logits=np.full((2, 9, 9), 1e3), table=ROWS, dtype="float64")
    apart = np.arange(9)[:, None] - np.arange(9)[None, :]
    want = np.where(apart >= 0, np.minimum(apart + 1, 4), 0)
    np.testing.assert_array_equal(made["positions"][1], want)
    np.testing.assert_allclose(made["bias"][1][8], (QUERY[1, 8] @ ROWS.T)[want[8]], atol=1e-12)


def test_cope_without_a_table_counts_as_far_as_it_is_let() -> None:
    free = cope(QUERY, key=KEY, dtype="float64")["positions"]
    assert list(cope(QUERY[0], key=KEY[0]).keys()) == ["positions"]
    capped = cope(QUERY, key=KEY, max_position=2, dtype="float64")["positions"]
    np.testing.assert_array_equal(capped, np.minimum(free, 2))
    assert (np.diff(free[0, 8]) <= 0).all()


def test_fox_equals_a_plain_loop() -> None:
    made = fox(log_gates=LOG_GATES, dtype="float64")["bias"]
    for h in range(2):
        for i in range(9):
            for j in range(9):
                want = math.fsum(LOG_GATES[h, j + 1 : i + 1]) if j <= i else 0.0
                assert made[h, i, j] == pytest.approx(want, abs=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_fox_with_constant_gates_is_alibi_exactly(dtype: str) -> None:
    tokens = np.arange(500)
    slopes = -alibi(heads=12, form="slopes", dtype="float64")
    made = fox(log_gates=np.repeat(slopes[:, None], 500, axis=1), dtype=dtype)
    want = alibi(tokens, tokens, heads=12, bidirectional=False, dtype=dtype)
    np.testing.assert_array_equal(made["bias"], want)


def test_fox_gate_logits_are_put_through_the_log_sigmoid() -> None:
    logits = np.array([[-800.0, -3.0, 0.0, 2.0, 40.0, 800.0]])
    made = fox(log_gates=logits, gate_logits=True, dtype="float64")["bias"][0]
    want = [-0.0, -math.log1p(math.exp(3.0)), -math.log(2), -math.log1p(math.exp(-2)), -math.exp(-40), 0.0]
    np.testing.assert_allclose(np.diagonal(made, -1), want[1:], rtol=1e-13, atol=1e-25)


def test_fox_shut_gate_forgets_all_before_it() -> None:
    made = fox(log_gates=np.array([-1.0, -np.inf, -1.0, -2.0]), dtype="float64")["bias"][0]
    shut = -np.inf
    assert made.tolist() == [[0, 0, 0, 0], [shut, 0, 0, 0], [shut, -1, 0, 0], [shut, -3, -2, 0]]


def test_blocks_of_queries_join_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = np.where(RANDOM.random((2, 9)) < 0.2, -np.inf, LOG_GATES)
    made = [fox(log_gates=gates)["bias"], cope(QUERY, key=KEY, table=ROWS)["bias"]]
    monkeypatch.setattr(contextual, "BLOCK_VALUES", 20)
    np.testing.assert_array_equal(fox(log_gates=gates)["bias"], made[0])
    np.testing.assert_allclose(cope(QUERY, key=KEY, table=ROWS)["bias"], made[1], atol=1e-6)


@pytest.mark.parametrize("side", [1, 3, 5, 7])
@pytest.mark.parametrize("grid", [(4, 6), (1, 7), (2, 2)])
def test_peg_equals_a_plain_loop(grid: tuple[int, int], side: int) -> None:
    height, width = grid
    x = RANDOM.normal(size=(height * width, 3))
    weight, bias = RANDOM.normal(size=(3, 1, side, side)), RANDOM.normal(size=3)
    made = peg(hidden=x, grid=grid, weight=weight, bias=bias, dtype="float64")
    padded = np.pad(x.reshape(height, width, 3), [(side // 2,) * 2, (side // 2,) * 2, (0, 0)])
    for y in range(height):
        for z in range(width):
            patch = padded[y : y + side, z : z + side]
            want = np.einsum("ijc,cij->c", patch, weight[:, 0]) + bias
            np.testing.assert_allclose(made[y * width + z], want, atol=1e-12)
    added = peg(hidden=x, grid=grid, weight=weight, bias=bias, add=True, dtype="float64")
    np.testing.assert_allclose(added, x + made, atol=1e-12)


def test_peg_leaves_prefix_tokens_alone() -> None:
    x, weight = RANDOM.normal(size=(13, 2)), RANDOM.normal(size=(2, 1, 3, 3))
    made = peg(hidden=x, grid=(3, 4), weight=weight, prefix_tokens=1)
    assert not made[0].any()
    np.testing.assert_array_equal(made[1:], peg(hidden=x[1:], grid=(3, 4), weight=weight))


def test_peg_takes_tokens_as_a_hook_gives_them() -> None:
    x, weight = RANDOM.normal(size=(12, 2)), RANDOM.normal(size=(2, 1, 3, 3))
    made = peg(hidden=x, grid=(3, 4), weight=weight)
    field = x.T.reshape(2, 3, 4)
    for hidden in (x[None], field, field[None]):
        np.testing.assert_array_equal(peg(hidden=hidden, grid=(3, 4), weight=weight), made)
    with_class = np.concatenate([np.zeros((1, 2)), x])
    made = peg(hidden=with_class[None], grid=(3, 4), weight=weight, prefix_tokens=1)
    np.testing.assert_array_equal(made, peg(hidden=with_class, grid=(3, 4), weight=weight, prefix_tokens=1))


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ((3, 4, 2), r"channels come last here: x.reshape\(-1, 2\)"),
        ((5, 2, 3, 4), r"one image, x\[0\], of the 5"),
        ((5, 12, 2), r"one image, x\[0\], of the 5"),
        ((2, 4, 3), r"\(12, 2\), \(1, 12, 2\), \(2, 3, 4\) or \(1, 2, 3, 4\)"),
        ((24,), "are needed"),
    ],
)
def test_peg_says_how_to_shape_other_tokens(shape: tuple[int, ...], remedy: str) -> None:
    with pytest.raises(PeError, match=remedy):
        peg(hidden=np.zeros(shape), grid=(3, 4), weight=np.zeros((2, 1, 3, 3)))


def test_longt5_side_positions() -> None:
    made = global_tokens(11, block=4)
    assert made["block_ids"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert made["side_positions"][0].tolist() == [0, 1]
    assert made["side_positions"][10].tolist() == [-1, 0]
    np.testing.assert_array_equal(made["side_buckets"], t5_buckets(made["side_positions"]))
    table = RANDOM.normal(size=(32, 3))
    bias = global_tokens(11, block=4, table=table, dtype="float64")["bias"]
    np.testing.assert_array_equal(bias, table[made["side_buckets"]].transpose(2, 0, 1))


def test_etc_side_ids() -> None:
    made = global_tokens(10, scheme="etc", block=3, max_distance=2)
    assert made["global_to_long"].tolist() == [
        [6, 6, 6, 5, 5, 5, 5, 5, 5, 5],
        [5, 5, 5, 6, 6, 6, 5, 5, 5, 5],
        [5, 5, 5, 5, 5, 5, 6, 6, 6, 5],
        [5, 5, 5, 5, 5, 5, 5, 5, 5, 6],
    ]
    np.testing.assert_array_equal(made["long_to_global"], made["global_to_long"].T)
    assert made["global_to_global"].tolist() == [[0, 1, 2, 2], [3, 0, 1, 2], [4, 3, 0, 1], [4, 4, 3, 0]]


@pytest.mark.parametrize(
    "call",
    [
        lambda: cope(QUERY),
        lambda: cope(QUERY, key=KEY, logits=KEY),
        lambda: cope(QUERY, key=KEY[:, :5]),
        lambda: cope(QUERY, logits=KEY),
        lambda: cope(QUERY, key=KEY, table=ROWS[:, :3]),
        lambda: cope(QUERY, key=KEY, table=ROWS, max_position=3),
        lambda: cope(QUERY, key=KEY, max_position=-1),
        lambda: cope(QUERY * np.nan, key=KEY),
        lambda: fox(log_gates=-LOG_GATES),
        lambda: fox(log_gates=LOG_GATES * np.nan),
        lambda: fox(log_gates=np.zeros((2, 2, 2))),
        lambda: fox(log_gates=np.array(["a"])),
        lambda: peg(hidden=np.zeros((6, 2)), grid=(2, 2), weight=np.zeros((2, 1, 3, 3))),
        lambda: peg(hidden=np.zeros((6, 2)), grid=(2, 3), weight=np.zeros((2, 1, 2, 2))),
        lambda: peg(hidden=np.zeros((6, 2)), grid=(2, 3), weight=np.zeros((3, 1, 3, 3))),
        lambda: peg(hidden=np.zeros((6, 2)), grid=(2, 3), weight=np.zeros((2, 1, 3, 3)), bias=np.zeros(3)),
        lambda: global_tokens(15),
        lambda: global_tokens(32, block=0),
        lambda: global_tokens(32, scheme="etc", bidirectional=False),
        lambda: global_tokens(32, scheme="etc", max_distance=0),
        lambda: global_tokens(32, scheme="etc", num_buckets=32),
        lambda: global_tokens(32, dtype="float16"),
    ],
)
def test_what_makes_no_sense_is_refused(call) -> None:
    with pytest.raises(PeError):
        call()


@pytest.mark.interop
def test_peg_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    conv = torch.nn.Conv2d(6, 6, 3, padding=1, groups=6)
    x = torch.randn(1, 6, 5, 7)
    with torch.no_grad():
        want = conv(x)[0].permute(1, 2, 0).reshape(35, 6).numpy()
    weight, bias = conv.weight.detach().numpy(), conv.bias.detach().numpy()
    hidden = x[0].permute(1, 2, 0).reshape(35, 6).numpy()
    np.testing.assert_allclose(peg(hidden=hidden, grid=(5, 7), weight=weight, bias=bias), want, atol=1e-6)


@pytest.mark.interop
@pytest.mark.parametrize("length", [64, 75, 16, 31])
def test_longt5_equals_transformers(length: int) -> None:
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.longt5.modeling_longt5")
    mask = torch.ones(1, length)
    blocks, _ = modeling._make_global_fixed_block_ids(mask, 16)
    side = modeling._make_side_relative_position_ids(mask, 16)
    made = global_tokens(length)
    np.testing.assert_array_equal(made["block_ids"], blocks[0].numpy())
    np.testing.assert_array_equal(made["side_positions"], side[0].numpy())


def test_gates_whose_table_no_machine_holds_are_refused_before_they_are_summed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contextual, "_running_sums", lambda _: pytest.fail("they were summed"))
    with pytest.raises(PeError, match="of memory"):
        fox(log_gates=np.full(20_000_000, -1, np.float32))
