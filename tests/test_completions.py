"""The completion files are current, and each works in its real shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import make_completions as completions
import pytest

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
        "run python tools/make_completions.py"
    )


CASES = [
    ("pe ", {"gen", "inspect", "extend", "diff"}),
    ("pe ge", {"gen"}),
    ("pe gen ro", {"rope"}),
    ("pe gen rope --lay", {"--layout"}),
    ("pe gen rope --layout ha", {"half"}),
    ("pe gen rope --layout=ha", {"half"}),
    ("pe gen model config.json --table q", {"query-temperature"}),
    ("pe gen model config.json --table=ro", {"rotated-layers"}),
    ("pe inspect --tensor=x tab", {"table.npy"}),
    ("pe gen sinusoidal --style whis", {"whisper"}),
    ("pe gen rope --dtype bfl", {"bfloat16"}),
    ("pe extend --meth", {"--method"}),
    ("pe diff --at", {"--atol"}),
    ("pe inspect tab", {"table.npy"}),
    ("pe gen random-walk gra", {"graph.tsv"}),
]


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
        COMP_WORDS=({line.replace("=", " = ").rstrip()}); [[ "{line}" == *" " ]] && COMP_WORDS+=("")
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
    assert {row.split("\t")[0].rpartition("=")[2] for row in done.stdout.splitlines()} == want
    if re.search("--[a-z]+[ =]", line):  # the description of an option is not said of each choice
        assert "\t" not in done.stdout


# What an interactive zsh reads at its start: completion as users have it, and `compadd` telling what it was given.
ZSH_SETUP = r"""
PS1=
fpath=({folder} $fpath)
autoload -Uz compinit
compinit -u -D
unsetopt auto_list auto_menu beep
compadd() {{
    if [[ " ${{(j: :)@[1,(i)(-|--)]}} " == *" -"[a-zA-Z]#[OAD]" "* ]]; then
        builtin compadd "$@"
        return
    fi
    local -a hits
    builtin compadd -O hits "$@"
    (( $#hits )) && print -rl -- $hits >> {out}
    builtin compadd "$@"
}}
cd {cwd}
"""
ZSH_TYPE = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'setopt extended_glob; source {setup}'
zpty -w -n shell $'{line}\t'
zpty -w -n shell $'\C-a\C-k'
zpty -w shell 'print END > {end}; exit'
repeat 200; do [[ -e {end} ]] && break; zpty -r -t shell >/dev/null; sleep 0.05; done
"""


@pytest.mark.shells
@pytest.mark.parametrize(("line", "want"), CASES, ids=[line for line, _ in CASES])
def test_zsh(line: str, want: set[str], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    own = tmp_path_factory.mktemp("zsh")
    out, end, setup = own / "got", own / "end", own / "setup.zsh"
    setup.write_text(ZSH_SETUP.format(folder=FOLDER, cwd=folder, out=out))
    subprocess.run(
        [shell("zsh"), "-f", "-c", ZSH_TYPE.format(setup=setup, line=line, end=end)],
        cwd=folder,
        env={**os.environ, "HOME": str(own), "TERM": "dumb"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert end.exists()
    got = {row.rstrip("=") for row in out.read_text().split()} if out.exists() else set()
    assert want <= got
    assert all(word.startswith(re.split("[ =]", line)[-1]) for word in got), got
