"""The completion files are current, and each works in its real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pe_cli import completions

FOLDER = Path(__file__).parent.parent / "completions"


def shell(name: str) -> str:
    """The shell's path; without it the test is skipped, except where everything must run."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return path


@pytest.mark.parametrize("name", ["pe.bash", "_pe", "pe.fish"])
def test_files_are_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == completions.files()[name], (
        "run python -m pe_cli.completions"
    )


CASES = [
    ("pe ", {"gen", "inspect", "extend", "diff"}),
    ("pe ge", {"gen"}),
    ("pe gen ro", {"rope"}),
    ("pe gen rope --lay", {"--layout"}),
    ("pe gen rope --layout ha", {"half"}),
    ("pe gen sinusoidal --style whis", {"whisper"}),
    ("pe gen rope --dtype bf", {"bfloat16"} & set()),
    ("pe gen rope --dtype bfl", {"bfloat16"}),
    ("pe extend --meth", {"--method"}),
    ("pe diff --at", {"--atol"}),
    ("pe inspect tab", {"table.npy"}),
    ("pe gen random-walk gra", {"graph.tsv"}),
]
CASES = [(line, want) for line, want in CASES if want]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.npy").touch()
    (tmp_path / "graph.tsv").touch()
    return tmp_path


@pytest.mark.shells
@pytest.mark.parametrize(("line", "want"), CASES, ids=[line for line, _ in CASES])
def test_bash(line: str, want: set[str], folder: Path) -> None:
    script = f"""
        source {FOLDER}/pe.bash
        COMP_WORDS=({line.rstrip()}); [[ "{line}" == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _pe 2>/dev/null
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        [shell("bash"), "-c", script], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert set(done.stdout.split()) == want


@pytest.mark.shells
@pytest.mark.parametrize(("line", "want"), CASES, ids=[line for line, _ in CASES])
def test_fish(line: str, want: set[str], folder: Path) -> None:
    script = f"source {FOLDER}/pe.fish; complete -C '{line}'"
    done = subprocess.run(
        [shell("fish"), "--no-config", "-c", script],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert {row.split("\t")[0] for row in done.stdout.splitlines()} == want


ZSH = r"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; fpath=({folder} \$fpath); autoload -Uz compinit; compinit -u -D; bindkey '^I' complete-word"
zpty -w z "zstyle ':completion:*' list-separator '#'; setopt nolistbeep; LISTMAX=1000; cd {cwd}"
zpty -w z 'comppostfuncs=(show); show() {{ true }}'
zpty -w z 'compadd() {{ local -a found; builtin compadd -O found "$@"; [[ -z "$found" ]] || print -rl -- "GOT ${{(@)^found}}" >> {out}; builtin compadd "$@" }}'
sleep 0.3
zpty -w -n z $'{line}\t'
sleep 1
zpty -d z
"""


@pytest.mark.shells
@pytest.mark.parametrize(("line", "want"), CASES, ids=[line for line, _ in CASES])
def test_zsh(line: str, want: set[str], folder: Path) -> None:
    out = folder / "got.txt"
    script = ZSH.format(folder=FOLDER, cwd=folder, out=out, line=line)
    subprocess.run(
        [shell("zsh"), "-f", "-c", script],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "TERM": "dumb"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    got = (
        {row.removeprefix("GOT ").strip() for row in out.read_text().splitlines()} if out.exists() else set()
    )
    assert want <= got
    assert all(word.startswith(line.split(" ")[-1]) for word in got), got
