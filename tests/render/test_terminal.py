"""What a person sees at terminals of 60 and 80 columns, and what a pipe gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from pe_cli.files.text import canonical

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.normal(size=(64, 16)).astype(np.float32))
    np.save(tmp_path / "b.npy", rng.normal(size=(64, 16)).astype(np.float32))
    (tmp_path / "l3.json").write_text(json.dumps(LLAMA))
    (tmp_path / "graph.tsv").write_text("0\t1\n1\t2\n")
    return tmp_path


def at_terminal(folder, line, columns):
    """What a terminal of this width is sent, stdout and stderr together; without colours."""
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, columns.to_bytes(2, sys.byteorder).rjust(4, b"\0") + bytes(4))
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONUTF8": "1"}
    environment.pop("COLUMNS", None)
    argv = [sys.executable, "-m", "pe_cli", *line.split()]
    child = subprocess.Popen(argv, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    sent = b""
    while True:
        try:
            block = os.read(ours, 1 << 16)
        except OSError:  # nobody writes any more
            break
        if not block:
            break
        sent += block
    child.wait()
    os.close(ours)
    return sent.decode().replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "line",
    [
        "gen rope --len 64 --dim 32",
        "gen model l3.json --len 8",
        "extend a.npy --len 128",
        "inspect l3.json",
        "inspect a.npy",
        "diff a.npy b.npy",
    ],
)
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(folder, line, columns):
    shown = at_terminal(folder, line, columns)
    assert shown
    assert max(map(len, shown.split("\n"))) <= columns
    assert "…" not in shown
    lines = shown.split("\n")
    assert not [text for text in lines if text.endswith(" ")]


@pytest.mark.slow
def test_words_numbers_and_sparklines_stay_whole(folder):
    notes = at_terminal(folder, "extend a.npy --len 128", 60)
    assert "before you rely on positions beyond the old ones" in " ".join(notes.split())
    assert "row norm 4 / 4 / 4\n" in at_terminal(folder, "gen rope --len 64 --dim 32", 60)
    by_position = at_terminal(folder, "diff a.npy b.npy", 60).partition("error by position")[2]
    assert "logarithmic" in by_position.split("\n")[0]
    origins = at_terminal(folder, "inspect l3.json", 60)
    assert "original_max_position_embeddings" in "".join(origins.split())


def test_a_value_stands_once_with_its_origin(folder):
    shown = at_terminal(folder, "gen model l3.json --len 8", 100)
    assert shown.startswith("rope of llama, from l3.json\n")
    assert shown.count("original_max_position_embeddings") == 1


def test_a_name_of_a_tensor_is_never_cut_to_fit_a_column(folder):
    from safetensors.numpy import save_file

    names = [
        f"model.layers.{i}.attention.a_long_name_of_a_module.relative_position_bias_table" for i in range(5)
    ]
    save_file({name: np.zeros((9, 2), np.float32) for name in names}, folder / "many.safetensors")
    for columns in (80, 200):
        shown = at_terminal(folder, "inspect many.safetensors", columns)
        assert [name for name in names if name not in shown] == []
        assert max(map(len, shown.split("\n"))) <= columns


def test_a_plain_rope_says_little(folder):
    shown = at_terminal(folder, "gen rope --len 64 --dim 32", 80)
    said = dict(line.split("  ", 1) for line in shown.partition("\n\n")[0].split("\n")[1:])
    assert {name: value.strip() for name, value in said.items()} == {
        "dim": "32",
        "layout": "interleaved",
        "dtype": "float32",
        "len": "64",
        "base": "10000",
        "rotary width": "32",
    }
    assert "truncate" in at_terminal(
        folder, "gen rope --len 8 --dim 32 --scaling yarn --factor 4 --original-len 64 --no-truncate", 80
    )


@pytest.mark.parametrize(
    "line", ["inspect l3.json", "inspect a.npy", "diff a.npy b.npy", "gen model l3.json --len 4 -o t.npz"]
)
def test_a_pipe_gets_no_padding_and_whole_lines(folder, line):
    environment = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")
    }
    done = subprocess.run(
        [sys.executable, "-m", "pe_cli", *line.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
    )
    lines = (done.stdout + done.stderr).split("\n")
    assert not [text for text in lines if text != text.rstrip()]


def test_a_base_is_spelled_in_one_way(folder):
    for theta, spelled in ((1000000.0, "1000000"), (500000, "500000"), (10000.5, "10000.5")):
        (folder / "l3.json").write_text(json.dumps({**LLAMA, "rope_theta": theta}))
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pe_cli",
                "gen",
                "model",
                "l3.json",
                "--len",
                "4",
                "-o",
                "t.npz",
                "--force",
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        (base,) = [line for line in done.stderr.split("\n") if line.startswith("pe:   base ")]
        assert base.split()[2] == spelled


def test_json_holds_nothing_that_a_terminal_acts_on():
    """C1 control characters, marks of direction and half characters are escaped; they come back as they were."""
    names = [
        chr(code)
        for code in (
            *range(32),
            *range(0x7F, 0xA0),
            0x61C,
            *range(0x200E, 0x2010),
            *range(0x2028, 0x202F),
            *range(0x2066, 0x206A),
            0xD800,
        )
    ]
    for text in (canonical(names), canonical({name: name for name in names})):
        assert all(character.isprintable() for character in text)
    assert json.loads(canonical(names)) == names
    assert canonical(["é", "日本"]) == '["é","日本"]'
