"""Every `--help` fits 80 columns; every example in it and in the README works as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli.catalogue import CATALOGUE

COMMANDS = ["", "gen", "inspect", "extend", "diff", "gen model", *(f"gen {name}" for name in CATALOGUE)]


def help_of(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pe_cli", *command.split(), "--help"],
        env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout


def examples(text: str) -> list[str]:
    """The command lines under `Example:` or `Examples:`, joined where they go on."""
    _, heading, rest = re.split(r"^ *(Examples?:)\n", text, maxsplit=1, flags=re.MULTILINE)
    block = rest.split("\n\n")[0]
    found = [" ".join(line.split()) for line in block.replace("\\\n", " ").splitlines()]
    assert (len(found) > 1) == (heading == "Examples:")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the examples of the four commands and of `gen model` read."""
    random = np.random.default_rng(0)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pe").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pe_cli "$@"\n')
    (programs / "pe").chmod(0o755)

    text = random.normal(size=(512, 8)).astype(np.float32)
    bert = {"embeddings.position_embeddings.weight": text, "encoder.weight": text[:4]}
    save_file(bert, tmp_path / "model.safetensors")
    save_file({"cos": text, "sin": text}, tmp_path / "theirs.safetensors")
    np.save(tmp_path / "mine.npy", text)
    np.save(tmp_path / "table.npy", text)
    np.save(tmp_path / "unknown.npy", text)
    image = random.normal(size=(1, 197, 8)).astype(np.float32)
    models = {
        "all-MiniLM-L6-v2": ({"model_type": "bert", "max_position_embeddings": 512, "hidden_size": 8}, bert),
        "vit-base": (
            {"model_type": "vit", "image_size": 224, "patch_size": 16, "hidden_size": 8},
            {"embeddings.position_embeddings": image},
        ),
        "Llama-3.1-8B": (
            {
                "model_type": "llama",
                "hidden_size": 64,
                "num_attention_heads": 4,
                "rope_theta": 500000.0,
                "max_position_embeddings": 8192,
            },
            {},
        ),
    }
    models["Qwen2.5-7B"] = ({**models["Llama-3.1-8B"][0], "model_type": "qwen2"}, {})
    for name, (config, tensors) in models.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        if tensors:
            save_file(tensors, tmp_path / name / "model.safetensors")
    return tmp_path


def shell(line: str, folder: Path) -> int:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), f"{line}\n{done.stderr.decode()}"
    return done.returncode


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_eighty_columns_and_has_an_example(command: str) -> None:
    text = help_of(command)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert examples(text), text


@pytest.mark.slow
@pytest.mark.parametrize("command", ["", "gen", "inspect", "extend", "diff", "gen model"])
def test_the_examples_of_a_help_run(command: str, folder: Path) -> None:
    for example in examples(help_of(command)):
        assert shell(example, folder) == 0, example


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_example_of_an_encoding_is_that_of_the_catalogue(name: str) -> None:
    """Which `tests/encodings/test_all.py` runs."""
    assert examples(help_of(f"gen {name}")) == [CATALOGUE[name].example(name)]


@pytest.mark.slow
def test_the_lines_of_the_readme_run(folder: Path) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    plain = re.sub(r"<!-- (main-job|tests) -->\n```bash\n.*?```", "", readme, flags=re.DOTALL)
    lines = [
        line.partition("   # ")[0].strip()
        for block in re.findall(r"```bash\n(.*?)```", plain, flags=re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(lines) >= 5
    for line in lines:
        differs = line.startswith("pe diff <(")
        written = line.rpartition(" -o ")[2] if " -o " in line else None
        if written is not None:
            (folder / written).unlink(missing_ok=True)
        assert shell(line, folder) == differs, line


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_readme_names_every_encoding(name: str) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in readme


def test_the_python_of_the_readme_runs() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    subprocess.run([sys.executable, "-c", block], check=True)


@pytest.mark.parametrize(
    "command", ["gen rope", "gen sinusoidal", "gen alibi", "gen laplacian", "gen model", "extend"]
)
def test_the_first_screen_holds_what_is_needed(command: str) -> None:
    whole = help_of(command)
    first = "\n".join(whole.splitlines()[:24])
    assert "Example" in first
    assert {"gen laplacian": "GRAPH"}.get(command, "--len") in first
    done = subprocess.run(
        [sys.executable, "-m", "pe_cli", *command.split(), "-h"],
        env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout.splitlines()[:16] == whole.splitlines()[:16]
    assert len(done.stdout.splitlines()) < len(whole.splitlines())
    assert command != "gen rope" or "https://arxiv.org/abs/2104.09864" in whole
