"""`pe diff` as a process: exit codes, streams, JSON, files of several tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli import cli
from pe_cli.encodings.rope.rotary import rope


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64, 16)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "same.npy", a)
    np.save(tmp_path / "near.npy", a + np.float32(1e-4))
    np.save(tmp_path / "other.npy", rng.standard_normal((64, 16)).astype(np.float32))
    half = {k: np.asarray(v, np.float32) for k, v in rope(np.arange(64), 32, layout="half").items()}
    save_file(half, tmp_path / "half.safetensors")
    save_file({"cos": half["sin"], "sin": half["cos"]}, tmp_path / "swapped.safetensors")
    save_file({"table": a, "extra": a}, tmp_path / "two.safetensors")
    np.save(tmp_path / "rope.npy", np.asarray(rope(np.arange(64), 32)["rope"], np.float32))
    return tmp_path


def told(pe: Any, *argv: str, code: int = 1) -> dict[str, Any]:
    done = pe("diff", *argv, "--json", code=code)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema"] == "pe.diff/1"
    return found


def test_exit_codes(pe: Any, folder: Path) -> None:
    assert b"byte for byte" in pe("diff", "a.npy", "same.npy", code=0).stdout
    assert b"differ" in pe("diff", "a.npy", "other.npy", code=1).stdout
    done = pe("diff", "a.npy", "missing.npy", code=2)
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("options", [("--atol", "2e-4"), ("--rtol", "1e9"), ("--ulp", "100000000")])
def test_tolerances(pe: Any, folder: Path, options: tuple[str, str]) -> None:
    pe("diff", "a.npy", "near.npy", *options, code=0)
    pe("diff", "a.npy", "near.npy", code=1)


def test_the_smallest_tolerance_that_is_printed_passes(pe: Any, folder: Path) -> None:
    needed = told(pe, "a.npy", "near.npy")["smallest_atol"]
    pe("diff", "a.npy", "near.npy", "--atol", repr(needed), code=0)
    pe("diff", "a.npy", "near.npy", "--atol", repr(needed * 0.999), code=1)


def test_json(pe: Any, folder: Path) -> None:
    found = told(pe, "a.npy", "near.npy", "--rtol", "1e-9")
    assert found["equal"] is False
    assert found["max_abs"] == pytest.approx(1e-4, rel=1e-2)
    assert found["rule"].startswith("|a-b| <= 0 + 1e-09*|b|")
    assert told(pe, "a.npy", "same.npy", code=0)["equal"] is True


def test_stdin_is_a_side(pe: Any, folder: Path) -> None:
    data = (folder / "a.npy").read_bytes()
    pe("diff", "-", "same.npy", stdin=data, code=0)
    pe("diff", "other.npy", "-", stdin=data, code=1)
    assert b"once" in pe("diff", "-", "-", code=2).stderr


def test_files_of_several_tensors(pe: Any, folder: Path) -> None:
    pe("diff", "half.safetensors", "half.safetensors", code=0)
    found = told(pe, "half.safetensors", "swapped.safetensors")
    assert [cause["cause"] for cause in found["causes"]] == ["swap-sin-cos"]
    assert b"extra" in pe("diff", "a.npy", "two.safetensors:nope", code=2).stderr
    pe("diff", "a.npy", "two.safetensors:table", code=0)
    pe("diff", "a.npy", "two.safetensors", "--tensor-b", "extra", code=0)


def test_one_table_against_cosines_and_sines(pe: Any, folder: Path) -> None:
    found = told(pe, "rope.npy", "half.safetensors")
    assert [cause["cause"] for cause in found["causes"]] == ["layout"]


def test_shapes_differ(pe: Any, folder: Path) -> None:
    np.save(folder / "short.npy", np.load(folder / "a.npy")[3:40])
    found = told(pe, "a.npy", "short.npy")
    (cause,) = found["causes"]
    assert (cause["cause"], cause["residual_after"], cause["rows"]) == ("offset", 0, 3)
    assert found["max_abs"] == 0
    assert found["shared_rows"] == {"first_a": 3, "first_b": 0, "rows": 37}


def test_nan_is_counted(pe: Any, folder: Path) -> None:
    a = np.load(folder / "a.npy")
    a[3, 4] = np.nan
    np.save(folder / "nan.npy", a)
    found = told(pe, "nan.npy", "same.npy")
    assert found["nan"] == {"a": 1, "b": 0, "unmatched": 1}
    pe("diff", "nan.npy", "same.npy", "--atol", "1e9", code=1)
    pe("diff", "nan.npy", "nan.npy", code=0)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_plot(pe: Any, folder: Path, suffix: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    picture = folder / f"made.{suffix}"
    pe("diff", "a.npy", "near.npy", "--plot", str(picture), code=1)
    assert picture.read_bytes().startswith(begins)
    refused = pe("diff", "a.npy", "near.npy", "--plot", str(picture), code=2)
    assert b"--force" in refused.stderr
    pe("diff", "a.npy", "near.npy", "--plot", str(picture), "--force", code=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shapes", [((16, 8), (1, 16, 8)), ((), ()), ((), (1, 1)), ((5,), (5, 1)), ((2, 3, 4), (2, 1, 3, 4))]
)
def test_tables_of_one_shape_but_for_axes_of_length_1_are_drawn(
    pe: Any, shapes: tuple[Any, Any], tmp_path: Path
) -> None:
    for name, shape in zip("xy", shapes, strict=True):
        np.save(tmp_path / f"{name}.npy", np.full(shape, ord(name), np.float32))
    pe("diff", "x.npy", "y.npy", "--plot", "new.svg", code=1)
    assert (tmp_path / "new.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_batch_axis_does_not_hide_the_cause(pe: Any, tmp_path: Path) -> None:
    """Rows of a table too long to be looked at whole are counted behind axes of length 1."""
    table = np.random.default_rng(0).normal(size=(1 << 17, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", table[None])
    np.save(tmp_path / "y.npy", np.roll(table, 3, axis=0))
    found = told(pe, "x.npy", "y.npy")
    assert [cause["cause"] for cause in found["causes"]] == ["offset"]
    assert found["causes"][0]["residual_after"] == 0


def test_a_type_that_is_not_read_is_named_with_its_file(pe: Any, tmp_path: Path) -> None:
    for name, code in (("x", "F8_E8M0"), ("y", "U8")):
        header = json.dumps({"q": {"dtype": code, "shape": [4], "data_offsets": [0, 4]}}).encode()
        (tmp_path / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    for sides in (("x", "x"), ("x", "y"), ("y", "x")):
        done = pe("diff", *(f"{side}.safetensors" for side in sides), code=2)
        assert b"x.safetensors: q holds F8_E8M0, whose values pe does not read" in done.stderr


def test_a_small_pipe_is_explained_as_a_file_is(pe: Any, tmp_path: Path) -> None:
    for name, base in (("x", 10000.0), ("y", 500000.0)):
        np.save(tmp_path / f"{name}.npy", np.asarray(rope(np.arange(64), 32, base=base)["rope"], np.float32))
    found = told(pe, "x.npy", "y.npy")
    piped = json.loads(
        pe("diff", "-", "y.npy", "--json", stdin=(tmp_path / "x.npy").read_bytes(), code=1).stdout
    )
    assert piped["causes"] == found["causes"]
    assert [cause["cause"] for cause in found["causes"]] == ["base"]


def test_a_large_pipe_claims_nothing_of_causes(
    pe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1 << 13, 600), np.float32))
    np.save(tmp_path / "y.npy", np.ones((1 << 13, 600), np.float32))
    shown = pe("diff", "-", "y.npy", stdin=(tmp_path / "x.npy").read_bytes(), code=1).stdout.decode()
    assert "a pipe is read once" in shown
    assert "why" not in shown


@pytest.mark.parametrize(("other", "code"), [("same.npy", 0), ("short.npy", 1)])
def test_a_picture_does_not_change_the_verdict(pe: Any, folder: Path, other: str, code: int) -> None:
    np.save(folder / "short.npy", np.load(folder / "a.npy")[:9])
    done = pe("diff", "a.npy", other, "--plot", "new.svg", code=code)
    assert b"nothing is drawn" in done.stderr
    assert not (folder / "new.svg").exists()


def test_of_many_tensors_those_that_are_the_same_are_counted(pe: Any, tmp_path: Path) -> None:
    tensors = {f"layer.{i}": np.full((2, 3), i, np.float32) for i in range(20)}
    save_file(tensors, tmp_path / "x.safetensors")
    save_file({**tensors, "layer.7": np.zeros((2, 3), np.float32)}, tmp_path / "y.safetensors")
    shown = pe("diff", "x.safetensors", "y.safetensors", code=1).stdout.decode()
    assert "19 tensors are the same" in shown
    assert shown.count("layer.") == 1


@pytest.mark.parametrize("rows", [1024, 30000])
def test_a_table_that_begins_like_the_other(pe: Any, tmp_path: Path, rows: int) -> None:
    table = np.random.default_rng(0).normal(size=(rows, 384)).astype(np.float32)
    np.save(tmp_path / "x.npy", table[:512])
    np.save(tmp_path / "y.npy", table)
    found = told(pe, "x.npy", "y.npy")
    (cause,) = found["causes"]
    assert (cause["cause"], cause["a"], cause["b"]) == ("rows", {"rows": 512}, {"rows": rows})
    shown = pe("diff", "x.npy", "y.npy", code=1).stdout.decode()
    assert f"b has {rows - 512} rows more at its end" in shown


def test_a_search_can_be_left_out(pe: Any, folder: Path) -> None:
    found = told(pe, "a.npy", "near.npy", "--no-explain")
    assert (found["causes"], found["max_abs"]) == ([], pytest.approx(1e-4, rel=1e-2))
    assert b"why" not in pe("diff", "a.npy", "near.npy", "--no-explain", code=1).stdout


def test_equal_tensors_of_other_names(pe: Any, folder: Path) -> None:
    half = {k: np.asarray(v, np.float32) for k, v in rope(np.arange(64), 32, layout="half").items()}
    save_file({f"rotary.{k}_cached": v for k, v in half.items()}, folder / "named.safetensors")
    found = told(pe, "half.safetensors", "named.safetensors")
    assert [(c["cause"], c["a"]["name"], c["b"]["name"]) for c in found["causes"]] == [
        ("names", "cos", "rotary.cos_cached"),
        ("names", "sin", "rotary.sin_cached"),
    ]
    assert found["explained"]
    np.save(folder / "cos.npy", half["cos"])
    found = told(pe, "cos.npy", "named.safetensors")
    assert [(c["cause"], c["b"]["name"]) for c in found["causes"]] == [("names", "rotary.cos_cached")]


def test_a_cause_is_a_sentence(pe: Any, folder: Path) -> None:
    def cosines(base: float) -> Any:
        return np.asarray(rope(np.arange(64), 32, base=base)["rope"], np.float32)

    np.save(folder / "x.npy", cosines(1e4))
    np.save(folder / "y.npy", cosines(5e5))
    shown = pe("diff", "x.npy", "y.npy", code=1).stdout.decode()
    assert "why  a has base 10000, b has base 500000: make a with --base 500000; then" in shown


def test_infinities_are_close_only_to_themselves(pe: Any, folder: Path) -> None:
    a = np.load(folder / "a.npy")
    b = a.copy()
    b[2, 3] = -np.inf
    np.save(folder / "inf.npy", b)
    for options in (("--rtol", "1e-3"), ("--atol", "1e30"), ("--ulp", "2000000000")):
        pe("diff", "a.npy", "inf.npy", *options, code=1)
        pe("diff", "inf.npy", "a.npy", *options, code=1)
        pe("diff", "inf.npy", "inf.npy", *options, code=0)


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((3, 4), np.float32))
    Path("old.png").write_text("mine")
    for command in (["diff", "a.npy", "a.npy"], ["inspect", "a.npy"]):
        assert cli.run([*command, "--plot", "picture.txt"]) == 2
        assert "the name must end in" in capsys.readouterr().err
        assert cli.run([*command, "--plot", "old.png"]) == 2
        said = capsys.readouterr()
        assert "not overwritten" in said.err
        assert said.out == ""
    assert Path("old.png").read_text() == "mine"
