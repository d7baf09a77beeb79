"""Which rows `pe gen` is asked for: what is given is used or refused, never passed over."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize(
    "words",
    [
        ["alibi", "--heads", "2", "--form", "slopes"],
        ["axial", "--shape", "4,4", "--dims", "2,2"],
        ["rope", "--dim", "8", "--layout", "inv-freq"],
        ["t5", "--distances", "0:4"],
    ],
    ids=lambda words: words[0],
)
def test_no_rows_are_refused_where_none_are_needed(words: list[str], pe: Any) -> None:
    assert b"--len" in pe("gen", *words, "--len", "0", "--json", code=2).stderr


def test_what_only_length_looks_at_is_refused_beside_positions(pe: Any) -> None:
    words = ["gen", "transformer-xl", "--dim", "4", "--bidirectional", "--json"]
    done = pe(*words, "--positions", "2,1", code=2)
    assert done.stderr == b"pe: --bidirectional is about --len: --positions says all\n"
    assert b'"shape":[3,4]' in pe(*words, "--len", "2").stdout


@pytest.mark.parametrize(
    ("words", "warns"),
    [(["--format", "npz"], True), (["-o", "x.npz"], True), (["-o", "x.h5"], False), ([], False)],
    ids=["npz", "file.npz", "file.h5", "pipe"],
)
def test_lost_names_are_told_where_they_are_lost(
    words: list[str], warns: bool, pe: Any, tmp_path: Path
) -> None:
    (tmp_path / "graph.txt").write_text("a b\nb c\n")
    done = pe("gen", "laplacian", "graph.txt", "-k", "1", *words)
    assert (b"carry no names" in done.stderr) == warns


def test_position_numbers_feed_positions_as_they_are_written(pe: Any, tmp_path: Path) -> None:
    ids = tmp_path / "ids.safetensors"
    pe(
        "gen",
        "position-ids",
        "--scheme",
        "mrope",
        "--segments",
        "text:2,image:1x4x4",
        "--merge",
        "2",
        "-o",
        ids,
    )
    rope = ("gen", "rope", "--dim", "12", "--sections", "2,2,2")
    table = np.load(io.BytesIO(pe(*rope, "--positions", f"@{ids}", "--format", "npy").stdout))
    text = np.load(io.BytesIO(pe(*rope, "--positions", "0,1", "--format", "npy").stdout))
    assert table.shape == (6, 12)
    np.testing.assert_array_equal(table[:2], text)
    mask = ("gen", "position-ids", "--scheme", "from-mask", "--mask")
    np.save(tmp_path / "mask.npy", np.array([False, True, True]))
    assert pe(*mask, "011").stdout == pe(*mask, tmp_path / "mask.npy").stdout


def test_a_flag_is_named_by_its_own_word_alone(pe: Any, tmp_path: Path) -> None:
    (tmp_path / "edges.tsv").write_text("0\t1\n")
    done = pe("gen", "shortest-path", "edges.tsv", "--weighted", "--paths", "2", code=2)
    assert done.stderr == b"pe: --paths 2: paths are those of fewest edges; leave out --weighted\n"
