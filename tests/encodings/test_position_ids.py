from __future__ import annotations

import numpy as np
import pytest

from pe_cli.encodings.position_ids import position_ids
from pe_cli.errors import PeError


def ids(scheme: str, length: int = 10, **options: object) -> dict:
    return {n: t.tolist() for n, t in position_ids(length, scheme=scheme, **options).items()}


def test_stride_and_anchors_fill_the_others() -> None:
    assert ids("stride", stride=3, start=1)["position_ids"] == [-1, 1, 1, 1, 4, 4, 4, 7, 7, 7]
    assert ids("stride", stride=4, fill="nearest")["position_ids"] == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8]
    assert ids("anchors", anchors=(7, 2), fill="none")["position_ids"] == [
        *[-1, -1, 2, -1, -1],
        *[-1, -1, 7, -1, -1],
    ]


def test_sinks_are_ranked_in_the_cache() -> None:
    assert ids("sinks", window=3, sinks=2) == {"position_ids": [0, 1, 2, 3, 4], "kept": [0, 1, 7, 8, 9]}
    assert ids("streaming-llm", length=3, window=3)["kept"] == [0, 1, 2]


def test_randomised_draws_are_sorted_and_distinct() -> None:
    drawn = ids("randomised", length=50, max_position=60, seed=2)["position_ids"]
    assert drawn == sorted(set(drawn))
    assert len(drawn) == 50
    assert 0 <= drawn[0] <= drawn[-1] < 60
    assert drawn != ids("randomised", length=50, max_position=60, seed=3)["position_ids"]


@pytest.mark.parametrize("seed", range(20))
def test_pose_has_one_gap_and_stays_below(seed: int) -> None:
    made = position_ids(10, scheme="pose", max_position=40, seed=seed)
    drawn = made["position_ids"]
    steps = np.diff(drawn)
    assert drawn[0] == 0
    assert drawn[-1] == 9 + made.facts["skip"] < 40
    assert sorted(steps)[:-1] == [1] * 8
    assert 1 <= made.facts["first_run"] <= 5


@pytest.mark.parametrize(("group", "window"), [(2, 4), (3, 7), (8, 8)])
def test_self_extend_by_its_formula(group: int, window: int) -> None:
    made = position_ids(40, scheme="self-extend", group=group, window=window, pairs=True)
    for i in range(40):
        for j in range(40):
            far = i // group - j // group + window - window // group
            want = -1 if j > i else i - j if i - j < window else far
            assert made["distances"][i, j] == want
            assert made["group_query_ids"][i] - made["group_key_ids"][j] == far
    assert made["distances"].max() == made.facts["largest_distance"]


def test_dual_chunk_never_leaves_the_trained_distances() -> None:
    made = position_ids(100, scheme="dual-chunk", max_position=16, pairs=True)
    chunk, size = 12, 10
    for i in range(100):
        for j in range(i + 1):
            apart = i // size - j // size
            query = [i % size, min(i % size + size, chunk)][apart] if apart < 2 else min(2 * size - 1, chunk)
            assert made["distances"][i, j] == query - j % size
    assert made["distances"].max() < 16


def test_lm_infinite_sees_sinks_and_a_window() -> None:
    row = ids("lm-infinite", window=3, sinks=1, max_distance=5)["distances"][8]
    assert row == [5, -1, -1, -1, -1, -1, 2, 1, 0, -1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: ids("strides", stride=2),
        lambda: ids("stride"),
        lambda: ids("stride", stride=2, group=3),
        lambda: ids("stride", stride=0),
        lambda: ids("stride", stride=2, start=10),
        lambda: ids("anchors", anchors=(10,)),
        lambda: ids("sinks", window=2, seed=1),
        lambda: ids("randomised", max_position=9),
        lambda: ids("pose", max_position=9),
        lambda: ids("dual-chunk", max_position=1),
        lambda: ids("sinks", length=0, window=2),
    ],
)
def test_what_makes_no_sense_is_refused(call) -> None:
    with pytest.raises(PeError):
        call()
