"""Golden cases: what a case is given, and whether what `pe` wrote and said is what is right.

`cases.json` of a folder lists the cases, `arrays.npz` holds the arrays that they name. A case has an `id`, a `family`,
`argv` (or `shell`: a line for bash), `inputs`, the `exit` status that is right, and what must hold afterwards:

expect   tensors of the file that was written, each within a tolerance: `atol` + `rtol` |want| + `per_position`
         |position|, since reference tables were computed in float32, whose error grows with the position
stdout   claims about the JSON object on standard output, by dotted paths in which * stands for every entry
says     regular expressions found in standard output and error together; `never`: found in neither
why      what is right, and who says so
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

Arrays = Mapping[str, np.ndarray]
Case = dict[str, Any]


def lay_out(case: Case, arrays: Arrays, folder: Path) -> None:
    """Write the input files of a case."""
    for name, value in case.get("inputs", {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "text" in value:
            path.write_text(value["text"])
        elif "json" in value:
            path.write_text(json.dumps(value["json"]))
        elif "base64" in value:
            path.write_bytes(base64.b64decode(value["base64"]))
        elif "array" in value:
            np.save(path, arrays[value["array"]])
        else:
            _save(path, {n: arrays[key] for n, key in value["tensors"].items()}, case.get("dtypes", {}))


def _save(path: Path, tensors: dict[str, np.ndarray], dtypes: Mapping[str, str]) -> None:
    types = {n: ml_dtypes.bfloat16 if t == "bfloat16" else np.dtype(t) for n, t in dtypes.items()}
    tensors = {n: np.ascontiguousarray(t.astype(types.get(n, t.dtype))) for n, t in tensors.items()}
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            for name, tensor in tensors.items():
                file[name] = tensor
    else:
        np.savez(path, **tensors)  # type: ignore[arg-type]


def filled(text: str, folder: Path) -> str:
    """The words of a case with the folder of its inputs, and the path of its output without an extension."""
    return text.replace("{in}", str(folder)).replace("{out}", str(folder / "out"))


def check(case: Case, arrays: Arrays, folder: Path, code: int, out: str, err: str) -> None:
    """Assert everything that the case says of the exit status, of the output and of the files."""
    assert code == case.get("exit", 0), err or out
    said = f"{err}\n{out}"
    for pattern in case.get("says", []):
        assert re.search(pattern, said, re.IGNORECASE), f"does not say /{pattern}/:\n{said}"
    for pattern in case.get("never", []):
        assert not re.search(pattern, said, re.IGNORECASE), f"says /{pattern}/:\n{said}"
    if case.get("stdout"):
        document = json.loads(out)
        for claim in case["stdout"]:
            assert holds(claim, document), f"{claim}\nfound {found(document, claim['path'])}"
    for want in case.get("expect", []):
        written = load_file(filled(want.get("file", "{out}.safetensors"), folder))
        name = want["tensor"] or next(iter(written))
        assert want["tensor"] or len(written) == 1, sorted(written)
        assert name in written, f"no tensor {name} among {sorted(written)}"
        assert_close(written[name], arrays[want["array"]], want["tolerance"])


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: Mapping[str, Any]) -> None:
    """Assert that `got` is `want` within the tolerance of a case."""
    if got.shape != want.shape and got.size == want.size and not tolerance.get("shape"):
        got = got.reshape(want.shape)
    assert got.shape == want.shape
    if tolerance.get("exact"):
        np.testing.assert_array_equal(got.astype(np.int64), want.astype(np.int64))
        return
    if tolerance.get("sign"):  # columns are known up to their sign
        flip = np.sign((got.astype(np.float64) * want).sum(0, keepdims=True))
        got = got * np.where(flip == 0, 1, flip)
    if tolerance.get("abs"):  # signs are free, column by column and graph by graph
        got, want = np.abs(got), np.abs(want)
    if got.dtype.kind == "c":
        got, want = got.view(got.real.dtype), np.ascontiguousarray(want).view(want.real.dtype)
    got, want = got.astype(np.float64), want.astype(np.float64)
    limit = tolerance.get("atol", 0) + tolerance.get("rtol", 0) * np.abs(want)
    if "per_position" in tolerance:
        rows = np.abs(np.array(tolerance["positions"], float)).reshape(-1, *[1] * (want.ndim - 1))
        limit = limit + tolerance["per_position"] * rows
    close = (np.abs(got - want) <= limit) | (got == want) | (np.isnan(got) & np.isnan(want))
    assert close.all(), f"{int((~close).sum())} of {want.size} entries differ"


def found(value: Any, path: str) -> list[Any]:
    """The values at a dotted path; * goes through all entries."""
    if not path:
        return [value]
    head, _, rest = path.partition(".")
    if head == "*":
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [x for entry in entries for x in found(entry, rest)]
    if isinstance(value, dict) and head in value:
        return found(value[head], rest)
    if isinstance(value, list) and re.fullmatch(r"-?\d+", head) and -len(value) <= int(head) < len(value):
        return found(value[int(head)], rest)
    return []


def holds(claim: Mapping[str, Any], document: Any) -> bool:
    """Whether a claim holds of one of the values at its path (`none_of`, `absent`: of all of them)."""
    values = found(document, claim["path"])
    if claim.get("absent"):
        return all(v is None for v in values)
    if "none_of" in claim:
        return not any(v in claim["none_of"] for v in values)
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if "approx" in claim:
        room = claim.get("rtol", 1e-6) * abs(claim["approx"]) + claim.get("atol", 0)
        return any(abs(v - claim["approx"]) <= room for v in numbers)
    if "at_most" in claim:
        return any(v <= claim["at_most"] for v in numbers)
    if "at_least" in claim:
        return any(v >= claim["at_least"] for v in numbers)
    if "one_of" in claim:
        return any(v in claim["one_of"] for v in values)
    if "contains" in claim:
        return any(claim["contains"] in v for v in values if isinstance(v, (str, list, dict)))
    return claim["equals"] in values
