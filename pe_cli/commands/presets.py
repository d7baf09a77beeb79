"""`pe gen rope --preset NAME`: what a well-known model uses, unless an option says otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from pe_cli.commands import derive
from pe_cli.commands.gen import Filled
from pe_cli.encodings.rope.scaling import scaling_options
from pe_cli.errors import PeError


def _names() -> list[str]:
    from pe_cli.models.read import preset_names

    return preset_names()


Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Values of a well-known model, such as llama-3.1 or gemma-3-4b:sliding_attention; "
        "an option beside it wins.",
        autocompletion=_names,
    ),
]


def declarations(own: Mapping[str, derive.Parameter]) -> list[inspect.Parameter]:
    """The options of `rope`, of which none is required beside a preset."""
    kind = inspect.Parameter.KEYWORD_ONLY
    optional = [replace(p, default=None) if p.required else p for p in own.values()]
    return [
        inspect.Parameter("preset", kind, default=None, annotation=Preset),
        *map(derive.typer_parameter, optional),
        inspect.Parameter("context", kind, annotation=typer.Context),
    ]


def fill(own: Mapping[str, derive.Parameter], values: dict[str, Any]) -> Filled:
    """The arguments that the preset gives: those that the command line does not name itself."""
    context, name = values.pop("context"), values.pop("preset")
    if name is None:
        if values["dim"] is None and values["axes"] is None:
            raise PeError("which width? Give --dim N, or --preset NAME for the values of a well-known model")
        return Filled()
    from pe_cli.models.resolve import preset

    named = {n for n in own if _is_named(context, n)}
    resolved = preset(name, seq_len=values["seq_len"])
    if "scaling" in named:
        # Another scaling does not take what belongs to the model's own.
        named |= set(scaling_options(resolved.parameters.get("scaling", "none")))
    kept = {n: value for n, value in resolved.parameters.items() if n not in named and n != "layout"}
    origins = {n: f"{resolved.origins[n]}, preset {name}" for n in kept if n in resolved.origins}
    return Filled(kept, origins, resolved.warnings, ("--preset", name))


def _is_named(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
