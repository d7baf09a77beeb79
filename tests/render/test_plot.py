"""Pictures: one for every encoding, whole files, the same bytes twice, and labels a reader can find."""

from __future__ import annotations

import builtins
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.catalogue import CATALOGUE
from pe_cli.cli import run
from pe_cli.errors import PeError
from pe_cli.render.plots import graphs
from pe_cli.render.plots.drawing import mean_cosines

pytest.importorskip("matplotlib")

from pe_cli.render.plots import PICTURES, plot_difference, plot_extension, plot_tensors

PNG = b"\x89PNG\r\n\x1a\n"


def labels(path: str | Path) -> list[str]:
    """The texts of an .svg, which matplotlib keeps as comments beside their outlines."""
    return re.findall(r"<!-- (.+?) -->", Path(path).read_text(encoding="utf-8"))


def picture(*argv: str) -> list[str]:
    assert run(["gen", *argv, "--json", "-q", "--plot", "made.svg"]) == 0
    return labels("made.svg")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every file that the examples of the catalogue read."""
    random = np.random.default_rng(0)
    shapes = {"q": (2, 6, 8), "k": (2, 6, 8), "e": (4, 8), "x": (196, 4), "w": (4, 1, 3, 3)}
    for name, shape in shapes.items():
        np.save(tmp_path / f"{name}.npy", random.normal(size=shape).astype(np.float32))
    np.save(tmp_path / "f.npy", -random.random((2, 7)).astype(np.float32))
    (tmp_path / "dag.tsv").write_text("0\t1\n0\t2\n1\t2\n2\t3\n")
    (tmp_path / "graph.tsv").write_text("0\t1\n1\t2\n2\t3\n3\t4\n4\t0\n0\t2\n4\t5\n5\t6\n6\t7\n7\t8\n8\t9\n")
    (tmp_path / "parse.txt").write_text("(S (NP (D the) (N cat)) (VP (V sat)))\n")
    rows = [("the", 2), ("cat", 3), ("sat", 0)]
    lines = (f"{i}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_\n" for i, (word, head) in enumerate(rows, 1))
    (tmp_path / "parse.conllu").write_text("".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pictures_are_those_of_known_encodings() -> None:
    assert PICTURES.keys() <= CATALOGUE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_example_of_an_encoding_can_be_drawn(name: str) -> None:
    words = shlex.split(CATALOGUE[name].arguments)
    at = words.index("-o")
    del words[at : at + 2]
    assert run(["gen", name, *words, "--json", "-q", "--plot", "made.png"]) == 0
    assert Path("made.png").read_bytes().startswith(PNG)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_command_draws_the_same_bytes(suffix: str) -> None:
    for name in ("one", "two"):
        words = ["gen", "rope", "--len", "64", "--dim", "16", "--json", "-q"]
        assert run([*words, "--plot", f"{name}.{suffix}"]) == 0
    assert Path(f"one.{suffix}").read_bytes() == Path(f"two.{suffix}").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (("rope", "--len", "64", "--dim", "16"), ["pair", "positions per turn", "length 64", "mean cosine"]),
        (
            ("rope", "--len", "64", "--dim", "16", "--scaling", "linear", "--factor", "4"),
            ["without scaling", "times as long"],
        ),
        (("rope", "--dim", "16", "--grid", "4x4", "--axes", "8,8"), ["axis 0", "axis 1"]),
        (("sinusoidal", "--len", "64", "--dim", "16"), ["positions per turn", "distance in rows"]),
        (("sinusoidal", "--grid", "8x8", "--dim", "16", "--style", "mae"), ["cosine with cell (4, 4)"]),
        (("alibi", "--heads", "4", "--len", "16"), ["query", "key minus query", "head 3"]),
        (("t5", "--distances", "-8:9"), ["key minus query", "t5 by distance"]),
        (("laplacian", "graph.tsv", "-k", "4"), ["eigenvector 0 over the graph", "eigenvalue"]),
        (("random-walk", "graph.tsv", "--steps", "8"), ["return probability by steps", "probability"]),
        (("rrwp", "graph.tsv", "--steps", "8"), ["return probability by steps", "probability"]),
        (("rrwp", "graph.tsv", "--steps", "4", "--form", "dense"), ["after 1 step", "after 3 steps"]),
        (("heat-kernel", "graph.tsv", "--times", "1,2,8"), ["heat left at a node by time", "time"]),
        (("resistance-distance", "graph.tsv"), ["pairs by resistance", "resistance"]),
        (("tree", "parse.txt", "--max-depth", "8", "--max-width", "2"), ["the first tree", "cat", "depth"]),
        (
            ("dependency", "parse.conllu"),
            ["arcs from heads to dependents, first sentence", "cat", "steps to the root"],
        ),
        (("swin", "--window", "4x4"), ["relative_position_index from the middle cell"]),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_axes_say_what_they_show(argv: tuple[str, ...], wanted: list[str]) -> None:
    found = picture(*argv)
    assert [text for text in wanted if text not in found] == []


def test_pairs_that_never_turn_are_counted() -> None:
    found = picture("rope", "--len", "100", "--dim", "8")
    # Wavelengths 2 pi 10000^(i / 4): 6.3, 63, 628, 6283.
    assert "wavelengths: 2 of 4 pairs complete a turn" in found


def test_the_trained_length_is_that_of_the_scaling() -> None:
    words = (
        "rope",
        "--len",
        "64",
        "--dim",
        "8",
        "--scaling",
        "yarn",
        "--factor",
        "4",
        "--original-len",
        "1000",
    )
    found = picture(*words)
    assert "trained length 1000" in found


def test_mean_cosines_of_a_rotation_are_the_mean_of_its_cosines() -> None:
    frequencies = np.array([1.0, 0.1])
    angles = np.arange(40)[:, None] * frequencies
    rows = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    lags = np.arange(len(mean_cosines(rows)))
    np.testing.assert_allclose(
        mean_cosines(rows), np.cos(lags[:, None] * frequencies).mean(axis=1), atol=1e-12
    )


def test_rows_of_zeros_do_not_count_in_the_likeness() -> None:
    rows = np.ones((12, 3))
    rows[4] = 0
    np.testing.assert_allclose(mean_cosines(rows), 1)


def test_before_and_after_an_extension() -> None:
    table = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    plot_extension(table, np.repeat(table, 2, axis=0), "made.svg", False, name="positions")
    found = labels("made.svg")
    assert {"positions before, 16 rows", "positions after, 32 rows", "before", "after", "norm"} <= set(found)


def test_the_error_between_two_tables() -> None:
    left = np.random.default_rng(0).normal(size=(16, 8))
    right = left.copy()
    right[5, 3] += 0.5
    plot_difference(left, right, "made.svg", False, names=("mine.npy", "theirs.npy"), rows=160)
    found = labels("made.svg")
    assert {"mine.npy", "theirs.npy", "absolute error", "largest error by row", "column"} <= set(found)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3), np.complex64),
        np.zeros(5),
        np.zeros((), np.float32),
        np.full((4, 4), np.nan),
        np.ones((3, 4, 5, 6)),
        np.zeros((4, 2), bool),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_any_array_can_be_drawn(array: np.ndarray) -> None:
    plot_tensors({"x": array}, "made.png", lengths={"x": 5}, force=False)
    assert Path("made.png").read_bytes().startswith(PNG)


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(PeError, match="nothing to draw"):
        plot_tensors({"x": np.zeros((0, 4))}, "made.png", lengths={}, force=False)
    assert not Path("made.png").exists()


def test_another_suffix_is_refused_and_nothing_written(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gen", "rope", "--len", "8", "--dim", "4", "--json", "--plot", "made.jpg"]
    assert run(words) == 2
    assert "--plot made.jpg: the name must end in .png, .svg, .pdf" in capsys.readouterr().err
    assert not Path("made.jpg").exists()


def test_an_existing_picture_is_kept_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    Path("made.png").write_bytes(b"mine")
    words = ["gen", "rope", "--len", "8", "--dim", "4", "--json", "--plot", "made.png"]
    assert run(words) == 2
    assert "--force" in capsys.readouterr().err
    assert Path("made.png").read_bytes() == b"mine"
    assert run([*words, "--force"]) == 0
    assert Path("made.png").read_bytes().startswith(PNG)


def test_without_matplotlib_it_is_said_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert run(["gen", "rope", "--len", "8", "--dim", "4", "--json", "--plot", "made.png"]) == 2
    assert "needs matplotlib: pip install 'pe-cli[plot]'" in capsys.readouterr().err
    assert not Path("made.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["file", "pipe", "dry-run"])
def test_extend_draws_before_and_after(way: str, pe: Any, tmp_path: Path) -> None:
    pe("gen", "learned", "--len", "32", "--dim", "8", "-o", "table.npy", "-q")
    words = ["extend", "-" if way == "pipe" else "table.npy", "--len", "64", "-q", "--plot", "made.svg"]
    more = {"file": ["-o", "longer.npy"], "pipe": [], "dry-run": ["--dry-run"]}[way]
    done = pe(*words, *more, stdin=(tmp_path / "table.npy").read_bytes())
    assert bool(done.stdout) == (way == "pipe")
    found = labels("made.svg")
    assert {"table before, 32 rows", "table after, 64 rows", "mean cosine"} <= set(found)


@pytest.mark.slow
def test_diff_draws_the_error(pe: Any) -> None:
    pe("gen", "rope", "--len", "32", "--dim", "8", "-o", "mine.npy", "-q")
    pe("gen", "rope", "--len", "32", "--dim", "8", "--base", "500000", "-o", "theirs.npy", "-q")
    pe("diff", "mine.npy", "theirs.npy", "--plot", "made.svg", code=1)
    found = labels("made.svg")
    assert {"absolute error", "largest error by column"} <= set(found)
    assert any("base" in text for text in found)


def test_inspect_draws_what_it_reads(pe: Any) -> None:
    pe("gen", "rope", "--len", "32", "--dim", "8", "--layout", "half", "-o", "mine.safetensors", "-q")
    pe("inspect", "mine.safetensors", "--plot", "made.svg")
    assert {"cos", "sin", "likeness of rows by distance"} <= set(labels("made.svg"))


def test_frequencies_alone_have_a_picture() -> None:
    found = picture("rope", "--dim", "8", "--layout", "inv-freq")
    assert "wavelengths" in found
    assert not any(text.startswith("length") for text in found)


def test_a_checkpoint_of_which_headers_were_read_says_what_to_give() -> None:
    with pytest.raises(PeError, match="give values"):
        plot_tensors({}, "made.png", lengths={}, force=False)


@pytest.mark.parametrize(
    "command",
    [
        "inspect pin.npy",
        "inspect model",
        "inspect model/config.json",
        "gen model model/config.json --len 8 -o o.npy",
        "extend pin.npy --len 20 -o o.npy",
        "extend pin.npy --len 20 --config model/config.json -o o.npy",
        "diff pin.npy x.npy",
        "diff x.npy pin.npy",
    ],
)
def test_a_picture_never_takes_the_place_of_what_is_drawn(command: str, folder: Path, capfd: Any) -> None:
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}'
    )
    np.save("pin.npy", np.eye(12, 8))
    pinned = folder / (
        "model/config.json" if "model/" in command or command.split()[-1] == "model" else "pin.npy"
    )
    before = pinned.read_bytes()
    (folder / "pp.png").symlink_to(pinned)
    assert run([*command.split(), "--plot", "pp.png", "--force"]) == 2
    assert "pp.png is also the input" in capfd.readouterr().err
    assert pinned.read_bytes() == before
    assert not (folder / "o.npy").exists()


def test_an_older_picture_in_the_folder_of_a_model_is_replaced(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}'
    )
    for _ in range(2):
        assert run(["inspect", "model", "--plot", "model/pp.png", "--force"]) == 0
    assert (folder / "model/pp.png").read_bytes().startswith(PNG)


def test_a_picture_without_room_is_named(folder: Path, capfd: Any) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    (folder / "pp.png").symlink_to(full)
    assert run(["inspect", "e.npy", "--plot", "pp.png", "--force"]) == 2
    assert "cannot write pp.png: No space left on device" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("home", ["empty", "missing", "unwritable"])
def test_matplotlib_leaves_nothing_at_home_and_on_stderr(home: str, tmp_path: Path) -> None:
    place, temporary = tmp_path / "home", tmp_path / "tmp"
    temporary.mkdir()
    if home != "missing":
        place.mkdir(mode=0o500 if home == "unwritable" else 0o700)
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    }
    done = subprocess.run(
        [sys.executable, "-m", "pe_cli", *"gen rope --len 8 --dim 8 -q -o x.npz --plot x.png".split()],
        env={**environment, "HOME": str(place), "TMPDIR": str(temporary)},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)
    assert not place.exists() or not os.listdir(place)
    assert not os.listdir(temporary)


def test_equivalent_nodes_do_not_hide_each_other() -> None:
    places = np.array([[0.0, 0], [1, 1], [1, 1], [1, 1], [0.5, 0]])
    moved = graphs._apart(places)
    assert np.array_equal(moved[[0, 4]], places[[0, 4]])
    apart = np.linalg.norm(moved[:, None] - moved[None], axis=-1) + np.eye(5)
    assert apart.min() > 0.01
    assert np.abs(moved - places).max() < 0.021


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (("magnetic", "arcs.tsv", "-k", "2"), [">alpha<", ">beta<"]),
        (("shortest-path", "arcs.tsv", "--directed"), [">alpha<", ">gamma<"]),
        (("laplacian", "some.g6", "-k", "2"), [">graph 0<", ">graph 1<"]),
        (("magnetic", "some.g6", "-k", "2"), [">graph 0<", ">graph 1<"]),
        (("resistance-distance", "some.g6", "--shard", "1/2"), [">resistance of graph 1<"]),
        (("rrwp", "some.g6", "--steps", "3", "--form", "dense"), [">rrwp of graph 0<"]),
    ],
)
def test_nodes_have_names_and_graphs_of_a_dataset_stand_side_by_side(
    argv: tuple[str, ...], wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("arcs.tsv").write_text("alpha\tbeta\nbeta\tgamma\n")
    Path("some.g6").write_bytes(b"DqK\nDhc\n")
    assert run(["gen", *argv, "-o", "x.npz", "--plot", "x.svg", "-q"]) == 0
    drawn = Path("x.svg").read_text()
    for words in wanted:
        assert words in drawn or f"<!-- {words[1:-1]} -->" in drawn


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_the_future_of_a_causal_table_is_grey(causal: bool) -> None:
    words = ("alibi", "--heads", "2", "--len", "8", *(["--causal"] if causal else []))
    assert ("value (grey: the future)" in picture(*words)) == causal
