"""`pe` against tables that other people's code made (transformers, timm, diffusers, PyG, …).

`golden/cases.json` holds argument lists, input files and the tensors expected in the file that is written,
`golden/arrays.npz` their values. A tolerance is `atol` + `rtol`·|want| + `per_position`·|position|: the reference
tables were computed in float32, whose error grows with the position.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from pe_cli.cli import run

FOLDER = Path(__file__).parent / "golden"
CASES = json.loads((FOLDER / "cases.json").read_text())


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "arrays.npz") as stored:
        return dict(stored)


def lay_out(inputs: dict[str, Any], arrays: dict[str, np.ndarray], folder: Path) -> None:
    for name, value in inputs.items():
        if "array" in value:
            np.save(folder / name, arrays[value["array"]])
        else:
            (folder / name).write_text(value.get("text") or json.dumps(value["json"]))


def limit(tolerance: dict[str, Any], want: np.ndarray) -> np.ndarray:
    allowed = tolerance.get("atol", 0) + tolerance.get("rtol", 0) * np.abs(want)
    if "per_position" in tolerance:
        positions = np.abs(np.array(tolerance["positions"], float)).reshape(-1, *[1] * (want.ndim - 1))
        allowed = allowed + tolerance["per_position"] * positions
    return allowed


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_golden(case: dict[str, Any], arrays: dict[str, np.ndarray], tmp_path: Path, capfd: Any) -> None:
    lay_out(case["inputs"], arrays, tmp_path)
    places = {"{in}": str(tmp_path), "{out}": str(tmp_path / "out")}
    argv = case["argv"]
    for mark, path in places.items():
        argv = [word.replace(mark, path) for word in argv]
    assert run(argv) == 0, capfd.readouterr().err
    written = load_file(tmp_path / "out.safetensors")
    for expected in case["expect"]:
        got = written[expected["tensor"] or next(iter(written))]
        want = arrays[expected["array"]]
        got = got.reshape(want.shape) if got.size == want.size else got
        assert got.shape == want.shape
        if expected["tolerance"].get("exact"):
            np.testing.assert_array_equal(got.astype(np.int64), want.astype(np.int64))
        else:
            want = want.astype(np.float64)
            assert (np.abs(got.astype(np.float64) - want) <= limit(expected["tolerance"], want)).all()
