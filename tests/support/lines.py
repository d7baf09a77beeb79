"""Command lines made up from what the commands say of themselves, and what must hold whatever comes of one."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from make_completions import Command, Option, commands

NUMBERS = [*"0 1 2 3 4 7 8 12 16 64 -1 -8 1000 1000000000000 9223372036854775807 1e3 x".split(), ""]
REALS = [*"0 1 2 0.5 -1 1e-5 10000 1e30 1e300 -1e300 1e-300 nan inf x".split(), ""]
SPECIFICATIONS = (
    "0 0:8 5:1 0:64:7 8:-9:-1 0.5,1.25 @edge_index.npy @e.npy @one.npy -3 1000000 9007199254740993".split()
)
GRIDS = "2x2 3x5 2x3x4 7 1x1 0x1 4x4 14x14 24x24 1000x1000000".split()
SHARDS = ["0/1", "1/3", "9/10", "3/2"]
FORMATS = ["npy", "npz", "h5", "safetensors", "zip", ""]
TARGETS = ("new.npy", "new.npz", "new.h5", "new.safetensors")
KEYS = [
    *"a * [ embeddings.position_embeddings *embed_positions.weight model.* text_config full_attention".split(),
    "",
]

BY_NAME = {" ".join(command.words): command for command in commands()}
VALUES = {
    **dict.fromkeys(("--grid", "--from-grid", "--window", "--from-window"), GRIDS),
    **dict.fromkeys(("--tensor", "--tensor-a", "--tensor-b", "--component", "--layer-type"), KEYS),
    "--method": "linear cubic bicubic nearest repeat-last tile stretch hierarchical zeros random regenerate truncate crop knots spline".split(),
    "--config": ["none", "bert/config.json", "vit/config.json", "swin/config.json", "words", "missing.json", ""],
    "--positions": SPECIFICATIONS, "--shard": SHARDS, "--format": FORMATS,
}  # fmt: skip
ELSEWHERE = {"--help", "--output", "--force", "--plot"}


def some_options(chance: Random, command: Command) -> list[str]:
    """A few options of a command, each with a value that may suit."""
    known = [option for option in command.options if not ELSEWHERE.intersection(option.flags)]
    chosen = chance.sample(known, min(len(known), chance.choice((0, 0, 1, 1, 2, 3, 5))))
    return [word for option in chosen for word in _words(chance, option)]


def _words(chance: Random, option: Option) -> list[str]:
    flag = chance.choice(option.flags)
    if not option.takes_value:
        return [flag]
    known = next((VALUES[name] for name in option.flags if name in VALUES), option.choices)
    return [flag, chance.choice(known or [*NUMBERS, *REALS])]


def check(done: Any, argv: list[str], *, codes: tuple[int, ...] = (0, 2)) -> None:
    """No traceback; in trouble one line of error; with --json one strict JSON object."""
    assert done.code in codes, (argv, done)
    assert "PE_DEBUG" not in done.stderr, (argv, done)
    assert "Traceback" not in done.stderr, (argv, done)
    if done.code == 2:
        assert done.stderr.startswith("pe: "), (argv, done)
        assert done.stderr.count("\n") == 1, (argv, done)
    elif "--json" in argv:
        described = json.loads(done.output, parse_constant=_refuse)
        assert isinstance(described, dict), (argv, done)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
