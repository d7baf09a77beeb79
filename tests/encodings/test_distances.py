from __future__ import annotations

import numpy as np
import pytest

from pe_cli import process, rope, sinusoidal, timestep
from pe_cli.encodings.biases import alibi, fire, kerple
from pe_cli.encodings.contextual import cope, fox, global_tokens
from pe_cli.encodings.distances import head_table, over_distances
from pe_cli.encodings.mixed import deberta, tupe
from pe_cli.encodings.position_ids import position_ids
from pe_cli.encodings.relative import shaw, swin, t5, transformer_xl
from pe_cli.encodings.sparse import axial, sparse_transformer
from pe_cli.errors import PeError

TOKENS = np.arange(64)


@pytest.mark.parametrize("shift", [0, 5, -5, 10**9, -(10**15)])
def test_a_rule_sees_each_distance_once_and_every_pair_gets_its_value(shift: int) -> None:
    seen: list[int] = []

    def rule(distances: np.ndarray) -> np.ndarray:
        seen.extend(distances.tolist())
        return np.stack([distances * 2.0, distances + 0.5])

    pairs = TOKENS[None, :] - TOKENS[:, None] + shift
    got = over_distances(rule, pairs)
    np.testing.assert_array_equal(got, np.stack([pairs * 2.0, pairs + 0.5]))
    assert len(seen) == len(set(seen)) == 127


def test_sparse_distances_are_taken_one_by_one() -> None:
    far = np.array([[10**15, -3], [0, 7]])
    np.testing.assert_array_equal(over_distances(lambda d: d + 1, far), far + 1)
    assert over_distances(lambda d: d, np.zeros((3, 0), np.int64)).shape == (3, 0)


def test_one_distance_and_unsigned_ones() -> None:
    assert over_distances(lambda d: np.stack([d, 2 * d]), np.array(3)).tolist() == [3, 6]
    right = np.array([1, 1, 200], np.uint8)
    np.testing.assert_array_equal(t5(distances=right, bidirectional=False), [0, 0, 0])
    few = TOKENS[:4].astype(np.uint8)
    np.testing.assert_array_equal(alibi(few, few, heads=2), alibi(TOKENS[:4], TOKENS[:4], heads=2))


def test_head_table_finds_its_rows() -> None:
    table = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(head_table(table, 3, rows_are="rows"), table)
    np.testing.assert_array_equal(head_table(table, 2, rows_are="rows"), table.T)
    with pytest.raises(PeError, match="one of its axes must be 5, the buckets"):
        head_table(table, 5, rows_are="the buckets")


@pytest.mark.parametrize(
    "call",
    [
        lambda: alibi(TOKENS, TOKENS, heads=2),
        lambda: fire(TOKENS, TOKENS, heads=2),
        lambda: deberta(TOKENS, TOKENS),
        lambda: tupe(TOKENS, TOKENS),
        lambda: cope(np.zeros((64, 2)), key=np.zeros((64, 2))),
        lambda: fox(log_gates=np.zeros(64)),
        lambda: global_tokens(64, block=2),
        lambda: axial(shape=(64, 64), dims=(8, 8), expand=True),
        lambda: sparse_transformer(64, stride=8),
        lambda: position_ids(64, scheme="dual-chunk", max_position=16, pairs=True),
        lambda: position_ids(64, scheme="self-extend", group=2, window=16, pairs=True),
    ],
)
def test_what_cannot_fit_is_refused_before_it_is_begun(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "machine_memory", lambda: 4000)
    with pytest.raises(PeError, match=r"needs .* of memory, this machine has 3\.91 KiB"):
        call()


@pytest.mark.parametrize(
    "function",
    [
        lambda q, k: alibi(q, k, heads=2),
        lambda q, k: alibi(q, k, heads=2, form="mpt"),
        lambda q, k: fire(q, k, heads=2)["bias"],
        lambda q, k: tupe(q, k)["relative_index"],
        lambda q, k: deberta(q, k)["relative_index"],
    ],
)
def test_positions_may_be_lists_or_unsigned(function) -> None:
    want = function(TOKENS[:5], TOKENS[:5])
    np.testing.assert_array_equal(function([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]), want)
    np.testing.assert_array_equal(function(TOKENS[:5].astype(np.uint8), TOKENS[:5].astype(np.uint8)), want)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: alibi(TOKENS, TOKENS, heads=2, form="keys"), "no form 'keys'; did you mean 'key'"),
        (lambda: kerple(distances=TOKENS, heads=2, kernel="logs"), "no kernel 'logs'"),
        (lambda: sinusoidal(TOKENS, 8, compute="float16"), "known: exact, float32"),
        (lambda: timestep(TOKENS, 8, compute="float16"), "known: exact, float32"),
        (lambda: rope(TOKENS, 8, compute="float16"), "known: exact, float32"),
        (lambda: rope(TOKENS, 8, scaling="longrope", original_len=8, policy="longer"), "no policy 'longer'"),
        (lambda: transformer_xl(TOKENS, dim=4, style="xl-net"), "no style 'xl-net'; did you mean 'xlnet'"),
        (lambda: shaw(distances=TOKENS, numbering="etcetera"), "no numbering 'etcetera'"),
        (lambda: swin(window=(2, 2), version="v3"), "no version 'v3'"),
        (lambda: deberta(TOKENS, TOKENS, convention="orignal"), "did you mean 'original'"),
        (lambda: global_tokens(64, scheme="ect"), "no scheme 'ect'"),
        (lambda: axial(shape=(8, 8), dims=(2, 2), combine="add"), "no combine 'add'"),
        (lambda: axial(shape=(8, 8), dims=(2, 2), init="zeros"), "no init 'zeros'"),
        (lambda: sparse_transformer(64, stride=8, pattern="stride"), "did you mean 'strided'"),
        (lambda: sparse_transformer(64, stride=8, variant="papers"), "did you mean 'paper'"),
        (lambda: position_ids(64, scheme="stride", stride=8, fill="right"), "no fill 'right'"),
    ],
)
def test_a_misspelt_choice_is_an_error_in_python_too(call, message: str) -> None:
    with pytest.raises(PeError, match=message):
        call()
