"""Which rows `pe gen` is asked for: what is given is used or refused, never passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
