"""`pe extend` as a user runs it: files, pipes, formats, reports, errors."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pe_cli import cli
from pe_cli.commands import extend
from pe_cli.extend import request

TABLE = "bert.embeddings.position_embeddings.weight"
RNG = np.random.default_rng(11)


@pytest.fixture
def state() -> dict[str, np.ndarray]:
    angles = np.arange(40)[:, None] * np.linspace(0.02, 0.3, 16)
    return {
        "bert.embeddings.word_embeddings.weight": RNG.standard_normal((100, 16)).astype(np.float32),
        "bert.embeddings.position_ids": np.arange(40)[None],
        TABLE: (np.cos(angles) + 0.1 * RNG.standard_normal((40, 16))).astype(np.float32),
        "bert.embeddings.token_type_ids": np.zeros((1, 40), np.int64),
        "h.0.attn.bias": np.tri(40, dtype=np.bool_)[None, None],
        "odd": np.arange(7, dtype=np.uint8),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(3.5, np.float16),
    }


@pytest.fixture
def checkpoint(tmp_path: Path, state: dict[str, np.ndarray]) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(state, path, metadata={"format": "pt", "note": "mine"})
    return path


def check_grown(path: Path, state: dict[str, np.ndarray], rows: int = 100) -> None:
    """Only the table and what follows it has changed, and the library opens the file."""
    got = load_file(path)
    assert list(got) == list(state) or set(got) == set(state)
    follow = {
        TABLE: (rows, 16),
        "bert.embeddings.position_ids": (1, rows),
        "bert.embeddings.token_type_ids": (1, rows),
        "h.0.attn.bias": (1, 1, rows, rows),
    }
    for name, old in state.items():
        assert got[name].dtype == old.dtype
        if name not in follow:
            assert got[name].tobytes() == old.tobytes()
        else:
            assert got[name].shape == follow[name]
    assert np.array_equal(got["bert.embeddings.position_ids"], np.arange(rows)[None])
    assert np.array_equal(got["h.0.attn.bias"][0, 0], np.tri(rows, dtype=np.bool_))


def test_a_checkpoint_from_a_file(
    pe: Any, checkpoint: Path, state: dict[str, np.ndarray], tmp_path: Path
) -> None:
    done = pe("extend", checkpoint, "--len", "100", "--method", "tile", "-o", "out.safetensors")
    check_grown(tmp_path / "out.safetensors", state)
    assert load_file(tmp_path / "out.safetensors")[TABLE][:40].tobytes() == state[TABLE].tobytes()
    with safe_open(tmp_path / "out.safetensors", "np") as file:
        about = file.metadata()
    assert about["note"] == "mine"
    assert json.loads(about["pe"])["command"] == "pe extend model.safetensors --len=100 --method=tile"
    text = done.stderr.decode()
    assert "40 -> 100 usable" in text
    assert "40 kept where they were, 0 dropped, 60 new" in text
    assert "untrained" in text


def test_a_checkpoint_through_a_pipe_is_the_same(pe: Any, checkpoint: Path, tmp_path: Path) -> None:
    piped = pe("extend", "-", "--len", "100", "-q", stdin=checkpoint.read_bytes()).stdout
    (tmp_path / "piped.safetensors").write_bytes(piped)
    pe("extend", checkpoint, "--len", "100", "-q", "-o", "filed.safetensors")
    one, two = load_file(tmp_path / "piped.safetensors"), load_file(tmp_path / "filed.safetensors")
    assert all(one[name].tobytes() == two[name].tobytes() for name in two)


def test_the_same_command_gives_the_same_bytes(pe: Any, checkpoint: Path) -> None:
    runs = {
        pe("extend", checkpoint, "--len", "90", "--method", "random", "--seed", "5").stdout for _ in range(2)
    }
    assert len(runs) == 1


def test_a_bare_table_stays_npy_in_a_pipe(pe: Any, tmp_path: Path) -> None:
    table = RNG.standard_normal((8, 4)).astype(np.float32)
    np.save(tmp_path / "t.npy", table)
    out = pe("extend", "t.npy", "--len", "15", "--keep", "2", "--method", "stretch").stdout
    assert out.startswith(b"\x93NUMPY")
    pe("extend", "t.npy", "--len", "15", "-o", "t.safetensors")
    assert list(load_file(tmp_path / "t.safetensors")) == ["table"]
    again = pe("extend", "-", "--len", "29", stdin=out).stdout
    (tmp_path / "u.npy").write_bytes(again)
    assert np.load(tmp_path / "u.npy").shape == (29, 4)


def test_gen_into_extend(pe: Any, tmp_path: Path) -> None:
    rope = pe("gen", "rope", "--len", "32", "--dim", "8").stdout
    longer = pe("extend", "-", "--len", "63", "--method", "linear", stdin=rope).stdout
    (tmp_path / "r.npy").write_bytes(longer)
    (tmp_path / "o.npy").write_bytes(rope)
    assert np.array_equal(np.load(tmp_path / "r.npy")[::2], np.load(tmp_path / "o.npy"))


def test_a_table_of_a_formula_is_not_to_be_extended(pe: Any) -> None:
    pe("gen", "rope", "--len", "32", "--dim", "8", "-o", "rope.safetensors")
    pe("gen", "sinusoidal", "--style", "mae", "--grid", "4x4", "--dim", "8", "-o", "grid.h5")
    pe("gen", "learned", "--len", "32", "--dim", "8", "-o", "learned.safetensors")

    longer = pe("extend", "rope.safetensors", "--len", "64", "--json")
    warning = "this table was made by `pe gen rope --dim 8 --len 32`, which makes the longer one too: run it with --len 64"
    assert warning in json.loads(longer.stdout)["tables"][0]["warnings"]
    assert warning in " ".join(longer.stderr.decode().split())
    grid = pe("extend", "grid.h5", "--grid", "6x6", "--dry-run").stderr.decode()
    assert "run it with --grid 6x6" in grid
    for fine in (
        ["rope.safetensors", "--len", "16", "--method", "truncate"],
        ["learned.safetensors", "--len", "64"],
    ):
        assert "was made by" not in pe("extend", *fine, "--dry-run").stderr.decode()


def test_npy_says_what_it_leaves_out(pe: Any, checkpoint: Path) -> None:
    note = "only the table is written"
    told = " ".join(pe("extend", checkpoint, "--len", "79", "-o", "out.npy").stderr.decode().split())
    assert (
        f"{note}: .npy holds one array; 7 other tensors are left out: write .safetensors to keep them" in told
    )
    named = f"{checkpoint}:{TABLE}"
    for words in (
        [named, "-o", "a.npy"],
        [checkpoint, "--tensor", TABLE, "-o", "b.npy"],
        [checkpoint, "-o", "c.safetensors"],
    ):
        assert note not in pe("extend", *words, "--len", "79").stderr.decode()


def test_the_recorded_command_makes_the_file_again(pe: Any, tmp_path: Path) -> None:
    table = RNG.standard_normal((8, 4)).astype(np.float32)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["bert/position_embeddings"], file["x"] = table, np.zeros(2)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "max_position_embeddings": 99}))
    (tmp_path / "my config.json").write_text(json.dumps({"model_type": "bert", "max_position_embeddings": 8}))
    for config in ("none", tmp_path / "my config.json"):
        source = f"{tmp_path / 'm.h5'}:bert/position_embeddings"
        pe("extend", source, "--len", "15", "--config", config, "-o", "one.h5", "--force")
        with h5py.File(tmp_path / "one.h5") as file:
            command = shlex.split(json.loads(file.attrs["pe"])["command"])
        assert command[:3] == ["pe", "extend", "m.h5:bert/position_embeddings"]
        pe(*command[1:], "-o", "two.h5", "--force")
        assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
def test_other_formats(
    pe: Any, checkpoint: Path, state: dict[str, np.ndarray], tmp_path: Path, suffix: str
) -> None:
    pe("extend", checkpoint, "--len", "79", "-o", f"out.{suffix}")
    pe("extend", checkpoint, "--len", "79", "-o", "same.safetensors")
    want = load_file(tmp_path / "same.safetensors")
    path = tmp_path / f"out.{suffix}"
    if suffix == "npy":
        assert np.array_equal(np.load(path), want[TABLE])
    elif suffix == "npz":
        got = np.load(path)
        assert all(np.array_equal(got[name], want[name]) for name in want)
    else:
        with h5py.File(path) as file:
            assert np.array_equal(file[TABLE][:], want[TABLE])


def test_hdf5_keeps_groups_and_attributes(pe: Any, tmp_path: Path, state: dict[str, np.ndarray]) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["keras_version"] = "2.0"
        group = file.create_group("bert/position_embeddings")
        group.attrs["weight_names"] = ["embeddings:0"]
        group.create_dataset("embeddings:0", data=state[TABLE]).attrs["mine"] = 3
        file.create_dataset("bert/other", data=state["odd"], compression="gzip")
        file["text"] = "a string"
    pe("extend", "m.h5", "--len", "79", "-o", "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["bert/position_embeddings/embeddings:0"].shape == (79, 16)
        assert file["bert/position_embeddings/embeddings:0"].attrs["mine"] == 3
        assert file.attrs["keras_version"] == "2.0"
        assert list(file["bert/position_embeddings"].attrs["weight_names"]) == ["embeddings:0"]
        assert np.array_equal(file["bert/other"][:], state["odd"])
        assert file["text"][()] == b"a string"


def test_npz_checkpoint(pe: Any, tmp_path: Path, state: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "m.npz", **state)
    pe("extend", "m.npz", "--len", "79", "-o", "out.npz")
    got = np.load(tmp_path / "out.npz")
    assert got[TABLE].shape == (79, 16)
    assert np.array_equal(got["odd"], state["odd"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_low_precision_is_rounded_once(
    pe: Any, tmp_path: Path, dtype: str, state: dict[str, np.ndarray]
) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    table = state[TABLE].astype(kind)
    save_file({TABLE: table, "x": np.zeros(2)}, tmp_path / "m.safetensors")
    pe("extend", "m.safetensors", "--len", "79", "-o", "out.safetensors")
    got = load_file(tmp_path / "out.safetensors")[TABLE]
    assert got.dtype == table.dtype
    assert got[::2].tobytes() == table.tobytes()
    wide = table.astype(np.float64)
    assert np.array_equal(got[1::2], ((wide[:-1] + wide[1:]) / 2).astype(kind))


def test_json_report(pe: Any, checkpoint: Path, tmp_path: Path) -> None:
    done = pe("extend", checkpoint, "--len", "100", "--json", "-q")
    report = json.loads(done.stdout)
    assert report["schema"] == "pe.extend/1"
    assert report["output"] is None
    (table,) = report["tables"]
    assert table["rows"] == {"old": 40, "new": 100}
    assert table["kept"] + table["new"] == 100
    assert table["kept"] + table["dropped"] == 40
    assert set(table["cosine"]["old"]) == {"1", "2", "4"}
    assert 0 <= table["rounding_error"] < 1e-6
    assert [buffer["tensor"] for buffer in report["buffers"]]
    assert not done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors"]


def test_a_seam_and_duplicates_are_told(pe: Any, checkpoint: Path) -> None:
    text = pe("extend", checkpoint, "--len", "100", "--method", "tile", "--dry-run").stderr.decode()
    assert "60 rows repeat an old one" in text
    assert text.endswith("nothing was written: --dry-run\n")
    assert "between rows 39 and 40" in text


def test_outliers_are_kept_apart(pe: Any, tmp_path: Path, state: dict[str, np.ndarray]) -> None:
    state[TABLE] = RNG.standard_normal((40, 16)).astype(np.float32)
    state[TABLE][[0, 38, 39]] *= 8
    save_file(state, tmp_path / "m.safetensors")
    report = json.loads(pe("extend", "m.safetensors", "--len", "100", "--json", "-q").stdout)["tables"][0]
    assert [flagged["row"] for flagged in report["outliers"]] == [0, 38, 39]
    assert report["outliers_kept"] == 3
    pe("extend", "m.safetensors", "--len", "100", "-o", "out.safetensors")
    got = load_file(tmp_path / "out.safetensors")[TABLE]
    assert got[[0, 98, 99]].tobytes() == state[TABLE][[0, 38, 39]].tobytes()
    assert np.linalg.norm(got[1]) < 2 * np.linalg.norm(state[TABLE][1])
    ignored = pe(
        "extend", "m.safetensors", "--len", "100", "--outliers", "ignore", "--dry-run"
    ).stderr.decode()
    assert "bleed" in ignored
    cut = pe("extend", "m.safetensors", "--len", "20", "--method", "truncate", "--json")
    assert json.loads(cut.stdout)["tables"][0]["outliers_kept"] == 0
    assert "truncate makes no rows, and drops these like the others" in cut.stderr.decode()


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        (
            [0],
            "row 0 (9.00) stands out by its norm (median 1.00); 1 at the ends stays at its end and no other row",
        ),
        (
            [7],
            "row 7 (9.00) stands out by its norm (median 1.00); it is not at an end and treated like the others",
        ),
        ([0, 7], "stand out by their norm (median 1.00); 1 at the ends stays at its end and no other row"),
        ([0, 39], "stand out by their norm (median 1.00); 2 at the ends stay at their ends and no other row"),
    ],
)
def test_one_row_is_spoken_of_as_one(pe: Any, tmp_path: Path, rows: list[int], want: str) -> None:
    table = RNG.standard_normal((40, 16))
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    table[rows] *= 9
    save_file({TABLE: table, "x": np.zeros(2)}, tmp_path / "m.safetensors")
    told = " ".join(pe("extend", "m.safetensors", "--len", "60", "--dry-run").stderr.decode().split())
    assert want in told


def test_sinusoidal_weights_are_regenerated(pe: Any, tmp_path: Path) -> None:
    whisper = np.load(_saved(pe, tmp_path, "--style", "t2t", "--len", "48", "--dim", "16"))
    save_file({"encoder.embed_positions.weight": whisper, "x": np.zeros(2)}, tmp_path / "w.safetensors")
    told = pe("extend", "w.safetensors", "--len", "80", "-o", "out.safetensors").stderr.decode()
    want = np.load(_saved(pe, tmp_path, "--style", "t2t", "--len", "80", "--dim", "16"))
    assert np.array_equal(load_file(tmp_path / "out.safetensors")["encoder.embed_positions.weight"], want)
    assert "regenerated" in told


def _saved(pe: Any, folder: Path, *options: str) -> Path:
    path = folder / "sinusoidal.npy"
    path.write_bytes(pe("gen", "sinusoidal", *options).stdout)
    return path


def test_offset_rows_are_kept(pe: Any, tmp_path: Path) -> None:
    """66 rows of BART are 64 and two; 128 usable ones are 130 rows."""
    table = RNG.standard_normal((66, 8)).astype(np.float32)
    save_file({"model.decoder.embed_positions.weight": table, "x": np.zeros(2)}, tmp_path / "m.safetensors")
    text = pe("extend", "m.safetensors", "--len", "128", "-o", "out.safetensors").stderr.decode()
    got = load_file(tmp_path / "out.safetensors")["model.decoder.embed_positions.weight"]
    assert got.shape == (130, 8)
    assert got[:3].tobytes() == table[:3].tobytes()
    assert got[-1].tobytes() == table[-1].tobytes()
    assert "64 -> 128 usable (rows 66 -> 130, 2 special in front)" in text


def test_swin_index_is_made_again_and_masks_are_left_out(pe: Any, tmp_path: Path) -> None:
    attention = "layers.0.blocks.1.attn."
    save_file(
        {
            attention + "relative_position_bias_table": RNG.standard_normal((169, 3)).astype(np.float32),
            attention + "relative_position_index": np.zeros((49, 49), np.int64),
            "layers.0.blocks.1.attn_mask": np.zeros((64, 49, 49), np.float32),
            "x": np.zeros(2),
        },
        tmp_path / "m.safetensors",
    )
    pe("extend", "m.safetensors", "--window", "12", "-o", "out.safetensors")
    got = load_file(tmp_path / "out.safetensors")
    assert got[attention + "relative_position_bias_table"].shape == (23 * 23, 3)
    index = got[attention + "relative_position_index"]
    assert index.shape == (144, 144)
    assert (index[0, 0], index[0, -1], index[-1, 0]) == (11 * 23 + 11, 0, 22 * 23 + 22)
    assert "layers.0.blocks.1.attn_mask" not in got


TROUBLES = {
    "nothing asked": (["--method", "linear"], "give one of --len, --grid, --window"),
    "two sizes": (["--len", "9", "--grid", "3x3"], "--len and --grid"),
    "zero": (["--len", "0"], "at least 1"),
    "no such method": (["--len", "9", "--method", "linaer"], "did you mean 'linear'"),
    "no such anchor": (["--len", "9", "--anchor", "end"], "did you mean 'ends'"),
    "no such preset": (["--len", "9", "--preset", "tim"], "did you mean 'timm'"),
    "no such tensor": (["--len", "9", "--tensor", "nothing*"], "no tensor matches"),
    "keep without stretch": (["--len", "99", "--keep", "3"], "--keep belongs to stretch"),
    "anchor without interpolation": (
        ["--len", "99", "--method", "tile", "--anchor", "half"],
        "--anchor belongs to linear, cubic, nearest and stretch, not to tile",
    ),
    "seed without random": (["--len", "99", "--seed", "3"], "--seed belongs to random, not to linear"),
    "seed of zero": (["--len", "99", "--seed", "0"], "--seed belongs to random"),
    "anchor of regenerate": (
        ["--len", "99", "--method", "regenerate", "--anchor", "left"],
        "not to regenerate",
    ),
    "outliers of truncate": (
        ["--len", "9", "--method", "truncate", "--outliers", "keep"],
        "belongs to methods that mix or repeat rows",
    ),
    "picture": (["--len", "99", "-o", "new.safetensors", "--plot", "new.txt"], "must end in .png"),
    "outliers of a grid": (["--grid", "8x8", "--outliers", "keep"], "--outliers goes with --len"),
    "special rows of a window": (["--window", "8", "--prefix-rows", "1"], "goes with --len and --grid"),
    "special rows behind a window": (["--window", "8", "--suffix-rows", "1"], "goes with --len and --grid"),
    "shrinks only": (["--len", "99", "--method", "truncate"], "only shrinks"),
    "too short": (["--len", "99", "--method", "stretch", "--keep", "39"], "smaller --keep"),
    "not a size": (["--grid", "3by3", "--tensor", TABLE], "write sizes joined by x"),
    "not square": (["--grid", "8x8", "--tensor", TABLE], "--from-grid"),
    "sequence": (["--grid", "8x8"], "say --len N"),
    "not sinusoidal": (["--len", "99", "--method", "regenerate"], "is not a sinusoidal table"),
    "the input": (["--len", "99", "-o", "model.safetensors", "--force"], "also the input"),
    "exists": (["--len", "99", "-o", "there.safetensors"], "--force"),
    "no folder": (["--len", "99", "-o", "no/where.safetensors"], "folder"),
    "config disagrees": (["--len", "99", "--config", "wrong.json"], "says max_position_embeddings 512"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_troubles(
    checkpoint: Path,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    options, words = TROUBLES[name]
    (tmp_path / "there.safetensors").write_bytes(b"mine")
    (tmp_path / "wrong.json").write_text(json.dumps({"model_type": "bert", "max_position_embeddings": 512}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    assert cli.run(["extend", "model.safetensors", *options]) == 2
    out, told = capfd.readouterr()
    assert not out
    assert words in told
    assert told.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


NAMELESS = {
    "no rows": (np.zeros((0, 4), np.float32), ["--len", "9"], "has nothing to extend"),
    "no axes": (np.float32(3), ["--len", "9"], "has nothing to extend"),
    "integers": (np.arange(12).reshape(3, 4), ["--len", "9"], "the table is stored as int64"),
    "a name": (np.ones((3, 4), np.float32), ["--len", "9", "--tensor", "x"], "leave out 'x'"),
    "no formula": (
        np.ones((8, 4), np.float32),
        ["--len", "9", "--method", "regenerate"],
        "the table is not a sinus",
    ),
    "sides of a window": (
        np.ones((169, 4), np.float32),
        ["--window", "9x9x2"],
        "a window of 7x7, not of 3 axes",
    ),
    "sides of a grid": (np.ones((49, 4), np.float32), ["--grid", "9x9x9", "--from-grid", "7x7"], "7x7"),
    "special rows of a map": (
        np.ones((1, 7, 7, 4), np.float32),
        ["--grid", "9x9", "--suffix-rows", "1"],
        "no room for special rows",
    ),
}


@pytest.mark.parametrize("name", NAMELESS)
def test_troubles_of_a_bare_table(pe: Any, tmp_path: Path, name: str) -> None:
    table, options, words = NAMELESS[name]
    np.save(tmp_path / "t.npy", table)
    done = pe("extend", "t.npy", *options, code=2)
    assert words in done.stderr.decode()
    assert not done.stdout


def test_not_finite_is_refused_and_nothing_is_left(
    pe: Any, tmp_path: Path, state: dict[str, np.ndarray]
) -> None:
    state[TABLE][7, 3] = np.nan
    save_file(state, tmp_path / "m.safetensors")
    done = pe("extend", "m.safetensors", "--len", "99", "-o", "out.safetensors", code=2)
    assert b"not finite in row 7" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]
    assert pe("extend", "-", "--len", "99", stdin=(tmp_path / "m.safetensors").read_bytes(), code=2).stderr


@pytest.mark.parametrize("cut", [9, 400, 3000, -1])
def test_a_truncated_checkpoint(pe: Any, checkpoint: Path, tmp_path: Path, cut: int) -> None:
    part = checkpoint.read_bytes()[:cut]
    assert b"truncated" in pe("extend", "-", "--len", "99", "-o", "o.safetensors", stdin=part, code=2).stderr
    (tmp_path / "cut.safetensors").write_bytes(part)
    assert (
        b"truncated" in pe("extend", "cut.safetensors", "--len", "99", "-o", "o.safetensors", code=2).stderr
    )
    assert not (tmp_path / "o.safetensors").exists()


def test_the_config_beside_is_read_and_the_edit_told(pe: Any, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "max_position_embeddings": 40}))
    text = pe("extend", "model.safetensors", "--len", "99", "-o", "out.safetensors").stderr.decode()
    assert "max_position_embeddings: 40 -> 99" in text
    assert json.loads((tmp_path / "config.json").read_text())["max_position_embeddings"] == 40


def test_names_in_the_help_are_those_there_are() -> None:
    assert set(extend._METHODS) == set(request.NAMES)
    assert set(extend._PRESETS) == set(request.PRESETS)
