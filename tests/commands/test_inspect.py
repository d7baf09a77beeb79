"""`pe inspect`: tables, checkpoints, configurations, files and pipes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli.cli import run

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def inspected(capfd: Any, *argv: str) -> dict[str, Any]:
    capfd.readouterr()
    assert run(["inspect", *argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5", "safetensors"])
def test_a_table_is_named_from_its_values(suffix: str, capfd: Any) -> None:
    assert run(f"gen rope --len 300 --dim 64 --base 500000 -q -o t.{suffix}".split()) == 0
    report = inspected(capfd, f"t.{suffix}")
    (tensor,) = report["tensors"]
    assert report["schema"] == "pe.inspect/1"
    assert (tensor["shape"], tensor["dtype"]) == ([300, 64], "float32")
    found = tensor["identified"]
    assert (found["encoding"], found["layout"]) == ("rope", "interleaved")
    assert found["base"] == pytest.approx(500000, rel=1e-6)
    assert tensor["statistics"]["row_norm"]["median"] == pytest.approx(np.sqrt(32), rel=1e-6)


def test_the_command_that_made_a_file_is_shown(capfd: Any) -> None:
    assert run("gen alibi --heads 4 --len 8 -q -o a.safetensors".split()) == 0
    assert inspected(capfd, "a.safetensors")["made_by"]["command"] == "pe gen alibi --heads 4 --len 8"


def test_the_command_names_the_file_of_a_tensor_whose_name_has_slashes_and_colons(
    capfd: Any, tmp_path: Path
) -> None:
    import h5py

    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["layer/pos/embeddings:0"] = np.zeros((9, 8), np.float32)
    table = f"{tmp_path}/x.h5:layer/pos/embeddings:0"
    assert (
        run(
            [
                "gen",
                "shaw",
                "--max-distance",
                "4",
                "--table",
                table,
                "--len",
                "4",
                "-q",
                "-o",
                "o.safetensors",
            ]
        )
        == 0
    )
    made_by = inspected(capfd, "o.safetensors")["made_by"]["command"]
    assert made_by == "pe gen shaw --max-distance 4 --table x.h5:layer/pos/embeddings:0 --len 4"


def test_cosines_and_sines_are_read_together(capfd: Any) -> None:
    assert run("gen rope --len 64 --dim 32 --layout half -q -o t.safetensors".split()) == 0
    for tensor in inspected(capfd, "t.safetensors")["tensors"]:
        assert tensor["identified"]["layout"] == "half"


def checkpoint() -> None:
    tensors = {f"layer.{i}.weight": np.zeros((4, 4), np.float32) for i in range(20)}
    tensors["embeddings.position_embeddings.weight"] = (
        np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    )
    save_file(tensors, "model.safetensors")


def test_a_checkpoint_is_named_from_its_header(capfd: Any) -> None:
    checkpoint()
    tensors = {t["name"]: t for t in inspected(capfd, "model.safetensors")["tensors"]}
    found = tensors["embeddings.position_embeddings.weight"]
    assert found["identified"]["encoding"] == "learned"
    assert found["identified"]["from"] == "header"
    assert "statistics" not in found
    assert "identified" not in tensors["layer.0.weight"]


def test_with_values_the_position_tensors_are_read(capfd: Any) -> None:
    checkpoint()
    tensors = {t["name"]: t for t in inspected(capfd, "model.safetensors", "--values")["tensors"]}
    assert "statistics" in tensors["embeddings.position_embeddings.weight"]
    assert "statistics" not in tensors["layer.0.weight"]


def test_one_tensor_of_a_checkpoint(capfd: Any) -> None:
    checkpoint()
    for argv in (["model.safetensors:layer.3.weight"], ["model.safetensors", "--tensor", "layer.3.weight"]):
        (tensor,) = inspected(capfd, *argv)["tensors"]
        assert tensor["name"] == "layer.3.weight"
        assert tensor["statistics"]["zeros"] == 16


def test_a_configuration(capfd: Any) -> None:
    Path("config.json").write_text(json.dumps(LLAMA))
    report = inspected(capfd, "config.json")
    (table,) = report["tables"]
    assert table["parameters"]["scaling"] == "llama3"
    assert table["origins"]["base"] == "rope_theta"
    rotary = table["rotary"]
    assert (rotary["facts"]["pairs"]) == {"kept": 29, "mixed": 6, "divided": 29}
    assert rotary["leaves_trained_range"] == pytest.approx(65536)


def test_a_model_folder_shows_the_tensors_of_its_checkpoint(capfd: Any) -> None:
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 8}))
    checkpoint()
    Path("model.safetensors").rename("model/model.safetensors")
    report = inspected(capfd, "model")
    assert report["tables"][0]["encoding"] == "learned"
    (tensor,) = report["tensors"]
    assert (tensor["name"], tensor["shape"]) == ("embeddings.position_embeddings.weight", [64, 8])
    assert run(["inspect", "model"]) == 0
    assert "model.safetensors:embeddings.position_embeddings.weight" in capfd.readouterr().out


def test_a_pipe(pe: Any) -> None:
    table = pe("gen", "sinusoidal", "--len", "32", "--dim", "16").stdout
    report = json.loads(pe("inspect", "-", "--json", stdin=table).stdout)
    assert report["tensors"][0]["identified"]["encoding"] == "sinusoidal"


@pytest.mark.parametrize(
    ("columns", "env"),
    [
        ("40", {}),
        ("80", {"FORCE_COLOR": "1"}),
        ("200", {"NO_COLOR": "1"}),
        ("80", {"PYTHONIOENCODING": "ascii"}),
    ],
)
def test_a_report_fits_its_terminal(columns: str, env: dict[str, str], pe: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(300, 200)))
    done = pe("inspect", "t.npy", env={"COLUMNS": columns, **env})
    text = done.stdout.decode("utf-8")
    assert "learned" in text or "encoding" in text
    assert ("\x1b[" in text) == ("FORCE_COLOR" in env)
    if "PYTHONIOENCODING" in env:
        assert text.isascii()


def test_names_are_never_read_as_markup(capfd: Any) -> None:
    save_file({"[red]": np.eye(3, dtype=np.float32), "[/x]": np.eye(3, dtype=np.float32)}, "t.safetensors")
    assert run(["inspect", "t.safetensors"]) == 0
    text = capfd.readouterr().out
    assert "[red]" in text
    assert "[/x]" in text


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nothing.npy"], "no file 'nothing.npy'"),
        (["t.npy:cos"], "cos"),
        (["t.npy", "--component", "text_config"], "--component"),
        ([os.devnull], "empty"),
    ],
)
def test_trouble_is_one_line(argv: list[str], sentence: str, capfd: Any) -> None:
    np.save("t.npy", np.eye(3))
    assert run(["inspect", *argv]) == 2
    error = capfd.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_what_the_numbers_do_not_tell_the_file_may_say(pe: Any, tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("0\t1\n1\t2\n2\t0\n2\t3\n")
    pe("gen", "random-walk", "graph.tsv", "--steps", "4", "-o", "walks.safetensors")
    shown = pe("inspect", "walks.safetensors").stdout.decode()
    assert "random-walk, as the file says; its numbers alone do not tell" in shown
    told = json.loads(pe("inspect", "walks.safetensors", "--json").stdout)["tensors"][0]["identified"]
    assert told == {"encoding": None, "maybe": ["learned"]}


def with_f4(name: str) -> None:
    """A safetensors file of a table `pos`, and of `q`, whose type pe does not read."""
    header = {
        "pos": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]},
        "q": {"dtype": "F4", "shape": [4, 2], "data_offsets": [32, 36]},
    }
    text = json.dumps(header).encode()
    Path(name).write_bytes(
        len(text).to_bytes(8, "little") + text + np.eye(4, 2, dtype="f4").tobytes() + bytes(4)
    )


def with_all_kinds(name: str) -> None:
    """An HDF5 file of a table `pos`, and of others that cannot be read."""
    virtual = h5py.VirtualLayout((4, 2), "f4")
    virtual[:] = h5py.VirtualSource("other.h5", "x", (4, 2))
    with h5py.File(name, "w") as file:
        file["pos"] = np.eye(4, 2, dtype="f4")
        file["text"] = "hello"
        file["fixed"] = np.array([b"abc"])
        file["pairs"] = np.zeros(3, [("a", "i4"), ("b", "f4")])
        file.create_dataset("ref", (1,), h5py.ref_dtype)
        file.create_dataset("lists", (1,), h5py.vlen_dtype(np.float32))
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((1,)))
        file.create_virtual_dataset("virtual", virtual)


UNREADABLE = {
    "q": "F4",
    "text": "strings",
    "fixed": "strings",
    "pairs": "compound",
    "ref": "references",
    "lists": "lists",
    "time": "times",
    "virtual": "float32",
}


@pytest.mark.parametrize(("make", "file"), [(with_f4, "x.safetensors"), (with_all_kinds, "x.h5")])
def test_a_tensor_that_cannot_be_read_hides_no_other(make: Any, file: str, capfd: Any) -> None:
    make(file)
    tensors = {tensor["name"]: tensor for tensor in inspected(capfd, file)["tensors"]}
    assert tensors.pop("pos")["statistics"]["zeros"] == 6
    for name, tensor in tensors.items():
        assert (tensor["dtype"], "statistics" in tensor) == (UNREADABLE[name], False)
        assert ("lies in other files" if name == "virtual" else "does not read") in tensor["not_read"]
        assert run(["inspect", f"{file}:{name}"]) == 2
    capfd.readouterr()
    assert run(["inspect", file]) == 0
    assert capfd.readouterr().out.count("values not read: ") == len(tensors)


def test_the_only_tensor_is_listed_where_its_type_is_not_read_and_else_an_error(capfd: Any) -> None:
    with h5py.File("x.h5", "w") as file:
        file["text"] = "hello"
    assert inspected(capfd, "x.h5")["tensors"][0]["dtype"] == "strings"
    assert run(["inspect", "x.h5", "--plot", "p.png"]) == 2
    assert "values not read: x.h5: text holds strings" in capfd.readouterr().err
    with h5py.File("y.h5", "w") as file:
        file.create_dataset("x", (1 << 40, 1 << 8), "f4", chunks=(1 << 10, 1 << 8))
    assert run(["inspect", "y.h5"]) == 2


@pytest.mark.slow
def test_thousands_of_tensors_are_listed_at_once(capfd: Any) -> None:
    save_file({f"layer.{i}": np.zeros(1, np.float32) for i in range(20_000)}, "x.safetensors")
    begin = time.process_time()
    assert run(["inspect", "x.safetensors"]) == 0
    assert time.process_time() - begin < 4
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 20_002
    assert lines[1].split() == ["tensor", "dtype", "shape", "size", "what", "it", "is"]
    assert lines[-1].split()[1:4] == ["float32", "[1]", "4"]
    assert len({line.index("float32") for line in lines[2:]}) == 1


def test_the_file_is_believed_where_the_numbers_look_like_something_else(pe: Any, tmp_path: Path) -> None:
    pe("gen", "xpos", "--len", "64", "--dim", "16", "-o", "xpos.safetensors")
    shown = " ".join(pe("inspect", "xpos.safetensors").stdout.decode().split())
    assert "encoding xpos, as the file says; its numbers alone do not tell" in shown
