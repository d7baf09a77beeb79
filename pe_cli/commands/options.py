"""The options that commands share, each declared once."""

from __future__ import annotations

import inspect
from copy import copy
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args

import typer

from pe_cli.numerics.dtypes import FLOATS

FORMATS = ("npy", "npz", "h5", "safetensors")

OutputPath = Annotated[
    str | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="Write FILE (.npy .npz .h5 .safetensors); - is stdout."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"{', '.join(FORMATS)}, whatever the file is called.",
        autocompletion=lambda: list(FORMATS),
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing on stderr but errors.")]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Draw it: .png, .svg or .pdf.")]
TensorKey = Annotated[
    str | None, typer.Option("--tensor", metavar="KEY", help="The tensor, where there are several.")
]


@dataclass(frozen=True)
class Output:
    """Where a table goes and what is said about it; the fields are the options of `gen`."""

    output: OutputPath = None
    format: Format = None
    force: Force = False
    json: Json = False
    quiet: Quiet = False
    plot: Plot = None


@dataclass(frozen=True)
class Naming:
    """What the tensors are called and what type they have."""

    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="NAME",
            help=f"{', '.join(FLOATS)} (default float32); computed in float64 and rounded once.",
            autocompletion=lambda: list(FLOATS),
        ),
    ] = None
    name: Annotated[str | None, typer.Option("--name", metavar="KEY", help="Tensor name in the file.")] = None


Length = Annotated[int | None, typer.Option("--len", metavar="N", help="Positions 0..N-1.")]
PositionSpec = Annotated[
    str | None,
    typer.Option(
        "--positions",
        metavar="SPEC",
        help="0,5,7 or 0:4096 or 0:1000000:64 or 15:-16:-1 or @FILE; comma-joined.",
    ),
]


Shard = Annotated[
    str | None, typer.Option("--shard", metavar="I/N", help="Only the I-th (from 0) of N equal row blocks.")
]


@dataclass(frozen=True)
class RowChoice:
    """Which rows of a row-wise encoding."""

    len: Length = None
    positions: PositionSpec = None
    shard: Shard = None
    prefix_rows: Annotated[
        int,
        typer.Option(
            "--prefix-rows", metavar="N", min=0, help="Zero rows in front (class or register tokens)."
        ),
    ] = 0


@dataclass(frozen=True)
class PairChoice:
    """Which pairs of query and key."""

    len: Annotated[int | None, typer.Option("--len", metavar="N", help="Queries and keys 0..N-1.")] = None
    q_len: Annotated[
        int | None, typer.Option("--q-len", metavar="N", help="The last N positions as queries.")
    ] = None
    k_len: Annotated[int | None, typer.Option("--k-len", metavar="N", help="Keys 0..N-1.")] = None
    positions: Annotated[
        str | None,
        typer.Option("--positions", metavar="SPEC", help="Only these query positions (see `pe gen rope`)."),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only the I-th (from 0) of N equal blocks of queries."),
    ] = None


@dataclass(frozen=True)
class DistanceChoice(PairChoice):
    """Pairs, or a plain list of distances."""

    distances: Annotated[
        str | None,
        typer.Option(
            "--distances", metavar="A:B", help="A list of distances, key minus query, instead of pairs."
        ),
    ] = None


@dataclass(frozen=True)
class GraphChoice:
    """Which graphs of a dataset."""

    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="Of a dataset, only the I-th (from 0) of N runs of graphs of nearly equal number.",
        ),
    ] = None


@dataclass(frozen=True)
class Computing:
    """Who computes the blocks of a table; the bytes are the same."""

    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Compute in N processes of this machine."),
    ] = None
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            metavar="ADDRESS",
            help="Compute on the Dask cluster whose scheduler is there; it runs what it is sent, so both must trust each other.",
        ),
    ] = None


def declarations(group: type) -> list[inspect.Parameter]:
    """The Typer parameters of a group of options, under the group's heading."""
    signature = inspect.signature(group, eval_str=True)
    return [_under(HEADINGS[group], parameter) for parameter in signature.parameters.values()]


def _under(heading: str, parameter: inspect.Parameter) -> inspect.Parameter:
    annotation, option = get_args(parameter.annotation)
    option = replace_heading(option, heading)
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[annotation, option])


def replace_heading(option: Any, heading: str) -> Any:
    """The same Typer option under another heading of the help."""
    moved = copy(option)
    moved.rich_help_panel = heading
    return moved


HEADINGS = {
    Output: "Output",
    Naming: "Output",
    RowChoice: "Rows",
    PairChoice: "Pairs",
    DistanceChoice: "Pairs",
    GraphChoice: "Rows",
    Computing: "Rows",
}


def take(group: type, values: dict[str, Any]) -> Any:
    """Build the group from the values of a command line, removing them there."""
    return group(**{field.name: values.pop(field.name) for field in fields(group)})
