"""What people type for an option leads them to ours."""

from __future__ import annotations

import pytest
import typer.main

from pe_cli.cli import app, run
from pe_cli.commands.synonyms import SYNONYMS, meant


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("gen rope --theta 1e6", "--base"),
        ("gen rope --rope-theta=1e6", "--base"),
        ("gen rope --rope_base 1e6", "--base"),
        ("gen rope --head-dim 128", "--dim"),
        ("gen rope --hidden-size 128", "--dim"),
        ("gen rope --max-len 8", "--len"),
        ("gen rope --length 8", "--len"),
        ("gen rope --seq 8", "--len"),
        ("gen rope --num-positions 8", "--len"),
        ("gen rope --out x.npy", "--output"),
        ("gen rope --output-file x.npy", "--output"),
        ("gen rope --seq_len 8 --original_len 4", "--seq-len"),
        ("gen alibi --num-heads 8", "--heads"),
        ("gen alibi --n-heads 8", "--heads"),
        ("gen timestep --theta 1e4", "--max-period"),
        ("gen rope --bsae 8", "--base"),
        ("extend t.npy --max-length 8", "--len"),
        ("diff a b --tolerance 1", "--atol"),
    ],
)
def test_another_word_leads_to_the_option(line, option, capsys):
    assert run(line.split()) == 2
    said = capsys.readouterr().err
    assert f"(did you mean {option}?); see 'pe " in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("line", ["gen rope --num-heads 8", "gen rope --xyzzy", "gen shaw --theta 1"])
def test_an_option_that_the_command_has_not_is_not_offered(line, capsys):
    assert run(line.split()) == 2
    assert "did you mean" not in capsys.readouterr().err


def options(command, context):
    return {option for p in command.get_params(context) for option in (*p.opts, *p.secondary_opts)}


def test_the_words_lead_to_options_that_there_are():
    root = typer.main.get_command(app)
    context = typer.Context(root)
    known = set()
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        for below in command.list_commands(context) if name == "gen" else ():
            known |= options(command.get_command(context, below), context)
        known |= options(command, context)
    assert set(SYNONYMS) <= known
    for option, words in SYNONYMS.items():
        assert option.lstrip("-") not in words
        assert all(meant(word, [option]) == option for word in words)
