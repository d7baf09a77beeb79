"""Standard streams that are closed, full, read in part or of another encoding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli import cli
from pe_cli.process import DONE, TROUBLE

TABLE = "gen rope --len 64 --dim 8"
LONG = "gen rope --len 200000 --dim 64"
full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is a device of Linux")


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which `pe` is this one; a pipeline fails if any part of it does."""
    script = f'set -o pipefail; pe() {{ "{sys.executable}" -m pe_cli "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=folder,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32))
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [f"pe {LONG} --format {kind} | head -c 10" for kind in ("npy", "npz", "h5", "safetensors")]
    + [
        "pe inspect t.npy | true",
        "pe inspect t.npy --json | true",
        "pe --help | true",
        "pe gen --help | true",
    ],
)
def test_a_closed_pipe_ends_quietly(line: str, table: Path) -> None:
    done = shell(line, table)
    assert (done.returncode, done.stderr) == (DONE, b"")


def test_a_verdict_that_nobody_reads_is_not_the_same(table: Path) -> None:
    done = shell("pe diff t.npy t.npy --json | true", table)
    assert done.returncode in (DONE, TROUBLE)
    assert done.stderr == b""


@pytest.mark.parametrize(
    "line",
    [
        f"pe {TABLE} >&-",
        f"pe {TABLE} --format npz >&-",
        "pe inspect t.npy >&-",
        "pe inspect t.npy --json >&-",
        "pe --help >&-",
        *(
            pytest.param(line, marks=full)
            for line in (
                *(f"pe {TABLE} --format {kind} >/dev/full" for kind in ("npy", "npz", "h5", "safetensors")),
                f"pe {TABLE} --json >/dev/full",
                "pe inspect t.npy >/dev/full",
                "pe inspect t.npy --json >/dev/full",
                "pe gen --help >/dev/full",
                "pe --version >/dev/full",
                "pe extend t.npy --len 128 >/dev/full",
            )
        ),
    ],
)
def test_what_cannot_be_said_is_an_error(line: str, table: Path) -> None:
    done = shell(line, table)
    assert done.returncode == TROUBLE
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("pe: cannot write standard output: ")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", pytest.param("2>/dev/full", marks=full)]
)
def test_a_file_needs_no_streams(closed: str, table: Path) -> None:
    done = shell(f"pe {TABLE} -o new.npy {closed}", table)
    assert (done.returncode, done.stdout) == (DONE, b"")
    assert np.load(table / "new.npy").shape == (64, 8)


@pytest.mark.parametrize("closed", ["2>&-", pytest.param("2>/dev/full", marks=full)])
def test_an_error_that_cannot_be_said_is_still_one(closed: str, table: Path) -> None:
    assert shell(f"pe gen rope --len 0 --dim 8 -o new.npy {closed}", table).returncode == TROUBLE
    assert os.listdir(table) == ["t.npy"]


def test_a_closed_stdin_is_no_file(table: Path) -> None:
    done = shell("pe inspect - <&-", table)
    assert done.returncode == TROUBLE
    assert done.stderr.decode().count("\n") == 1
    assert b"standard input" in done.stderr


ENVIRONMENTS = [
    {"LC_ALL": "C"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONUNBUFFERED": "1"},
    {"TERM": "dumb"},
    {"NO_COLOR": "1"},
    {"FORCE_COLOR": "1"},
    {"FORCE_COLOR": "0"},
    {"PYTHONWARNINGS": "error"},
    {"COLUMNS": "0"},
    {"COLUMNS": "wide"},
    {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment", ENVIRONMENTS, ids=lambda e: " ".join(f"{k}={v}" for k, v in e.items())
)
def test_any_environment_will_do(environment: dict[str, str], table: Path) -> None:
    """Reports, JSON, errors with letters that the encoding lacks, and bytes that are the same everywhere."""
    report = shell("pe inspect t.npy", table, **environment)
    assert (report.returncode, report.stderr) == (DONE, b"")
    assert b"64" in report.stdout
    told = shell("pe inspect t.npy --json", table, **environment)
    assert json.loads(told.stdout)["tensors"][0]["shape"] == [64, 8]
    missing = shell("pe inspect 'é\N{SNOWMAN}\N{SNAKE}.npy'", table, **environment)
    assert missing.returncode == TROUBLE
    assert missing.stderr.startswith(b"pe: no file ")
    assert missing.stderr.count(b"\n") == 1
    piped = shell(f"pe {TABLE} -q | md5sum; pe {TABLE} -q -o new.npy; md5sum <new.npy", table, **environment)
    assert (piped.returncode, piped.stderr) == (DONE, b"")
    assert len(set(piped.stdout.splitlines())) == 1


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("line", ["inspect t.npy", "diff t.npy t.npy"])
def test_a_report_keeps_to_the_width(
    line: str, columns: int, table: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(table)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.run(line.split()) == DONE
    assert max(len(row) for row in capfd.readouterr().out.splitlines()) <= columns


def test_names_do_not_command_the_terminal(table: Path) -> None:
    """Escapes in names of tensors and files are shown, not sent; markup is text."""
    for name in ("a\x1b[2Jb", "a\x9b2Jb", "[red]a[/x]", "\u202eab"):
        save_file({name: np.zeros((4, 8), np.float32)}, table / "named.safetensors")
        done = shell("pe inspect named.safetensors", table, FORCE_COLOR="0")
        assert done.returncode == DONE
        assert all(sign.isprintable() for line in done.stdout.decode().split("\n") for sign in line)
        assert name.startswith("[") == (name in done.stdout.decode())
    done = shell(f"pe {TABLE} -o $'a\\n\\x1b[2J.npy'", table)
    assert done.returncode == DONE
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.decode().rstrip("\n").isprintable()


@pytest.mark.slow
def test_names_that_the_locale_cannot_print_are_escaped(pe: Any, tmp_path: Path) -> None:
    save_file({"é\u202ename": np.zeros((2, 2), np.float32)}, tmp_path / "x.safetensors")
    (tmp_path / "é.tsv").write_text("0\t1\n")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for argv in (["inspect", "x.safetensors"], ["inspect", "x.safetensors", "--json"], ["gen", "shortest-path", "é.tsv", "-o", "é.npy"],
                 ["gen", "shortest-path", "ü.tsv"], ["inspect", "x.safetensors:ü"]):  # fmt: skip
        done = pe(*argv, env=ascii_only, code=None)
        assert done.returncode == (2 if "ü" in "".join(argv) else 0), done.stderr
        assert b"unexpected" not in done.stderr
        assert (done.stdout + done.stderr).isascii()


@pytest.mark.parametrize("kind", ["LinAlgError", "ArpackNoConvergence"])
def test_a_solver_that_fails_is_no_surprise(kind: str) -> None:
    error = type(kind, (Exception,), {})("did not converge")
    assert "too far apart for the eigenvalue solver" in cli._sentence(error, [])
    assert "nested too deeply" in cli._sentence(RecursionError(), [])
