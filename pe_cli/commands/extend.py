"""`pe extend`: resample a learned position table, alone, inside a checkpoint, or in a whole model folder."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pe_cli.commands.options import Force, Format, Json, OutputPath, Plot, Quiet
from pe_cli.errors import PeError
from pe_cli.process import refuse_input

if TYPE_CHECKING:
    from pe_cli.extend.presets import ResizeRequest

SCHEMA = "pe.extend/1"
NO_CONFIG = "none"
_METHODS = [
    "linear",
    "cubic",
    "bilinear",
    "bicubic",
    "nearest",
    "repeat-last",
    "tile",
    "stretch",
    "hierarchical",
    "zeros",
    "random",
    "regenerate",
    "truncate",
    "crop",
    "knots",
    "linear-knots",
]
_PRESETS = ["timm", "torch", "dinov2", "jax", "torchvision", "swin", "beit", "long-clip", "longformer"]
_ANCHORS = ["ends", "half", "left"]
_SCALINGS = ["yarn", "linear", "ntk", "dynamic-ntk", "llama3"]


def extend_command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="FILE, FILE:TENSOR, a model folder, or - for stdin.")
    ],
    length: Annotated[
        int | None,
        typer.Option("--len", metavar="N", help="Usable positions; special rows are kept besides."),
    ] = None,
    grid: Annotated[
        str | None, typer.Option("--grid", metavar="HxW", help="New grid of image patches.")
    ] = None,
    from_grid: Annotated[
        str | None, typer.Option("--from-grid", metavar="HxW", help="Present grid, where it is not square.")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="HxW", help="New attention window (Swin, BEiT).")
    ] = None,
    from_window: Annotated[
        str | None,
        typer.Option("--from-window", metavar="HxW", help="Present window, where it is not square."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help=f"{', '.join(_METHODS)}. Default: linear; on grids and windows bicubic; sinusoidal tables that a "
            "checkpoint stores are regenerated.",
            autocompletion=lambda: _METHODS,
        ),
    ] = None,
    anchor: Annotated[
        str | None,
        typer.Option(
            "--anchor",
            metavar="NAME",
            help="What stays: ends (align_corners=True; default in 1-D), half (align_corners=False; default in 2-D), "
            "left (the first row; default of nearest and stretch).",
            autocompletion=lambda: _ANCHORS,
        ),
    ] = None,
    antialias: Annotated[
        bool | None,
        typer.Option(
            "--antialias/--no-antialias", help="Widen the kernel when shrinking. Default: on for grids."
        ),
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", metavar="K", help="stretch: rows kept (20).")] = None,
    alpha: Annotated[
        float | None,
        typer.Option("--alpha", metavar="A", help="hierarchical: share of the coarse part (0.4)."),
    ] = None,
    prefix_rows: Annotated[
        int | None, typer.Option("--prefix-rows", metavar="P", help="Special rows in front (class tokens).")
    ] = None,
    suffix_rows: Annotated[
        int | None, typer.Option("--suffix-rows", metavar="P", help="Special rows behind (detection tokens).")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="R", help="Rows before position 0 (RoBERTa, BART: 2).")
    ] = None,
    outliers: Annotated[
        str | None,
        typer.Option(
            "--outliers",
            metavar="keep|ignore",
            help="Rows at the ends that stand out by their norm: keep them apart (default in checkpoints), or not.",
            autocompletion=lambda: ["keep", "ignore"],
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="S", help="Seed of --method random (0).")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help=f"As the original implementation does it: {', '.join(_PRESETS)}.",
            autocompletion=lambda: _PRESETS,
        ),
    ] = None,
    tensor: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor", metavar="KEY", help="The table, where there are several; a glob, or given twice."
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The model's config.json; default: beside SOURCE; none to do without.",
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            "--scaling",
            metavar="NAME",
            help=f"For models that rotate: {', '.join(_SCALINGS)}. The configuration changes, the weights do not.",
            autocompletion=lambda: _SCALINGS,
        ),
    ] = None,
    factor: Annotated[
        float | None,
        typer.Option(
            "--factor", metavar="X", help="Of --scaling: by how much (new length / original length)."
        ),
    ] = None,
    force_scaling: Annotated[
        bool, typer.Option("--force-scaling", help="Put --scaling in place of one that the model has.")
    ] = False,
    link: Annotated[
        bool, typer.Option("--link", help="Make hard links of the files of a folder that do not change.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show the report, and every change to a folder.")
    ] = False,
    output: OutputPath = None,
    format: Format = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    plot: Plot = None,
) -> None:
    """Lengthen, shorten or regrid a learned position table, alone or inside a checkpoint.

    SOURCE is a bare table, a checkpoint (every other tensor keeps its bytes; only the table is held in memory, also in a
    pipe), or a model folder, in which config, tokenizer and image processor limits change along.

    The table is found by its name. Rows that are no positions (offset rows, class tokens) and rows that stand apart
    stay as they are. New rows are untrained: fine-tune where you can.

    \b
    Examples:
      cat model.safetensors | pe extend - --len 1024 > longer.safetensors
      pe extend ./all-MiniLM-L6-v2 --len 1024 --method tile -o ./longer
      pe extend ./vit-base --grid 24x24 --preset timm -o ./vit-384
      pe extend ./Qwen2.5-7B --len 131072 --scaling yarn -o ./Qwen2.5-7B-128k
    """
    from pe_cli.extend.presets import ResizeRequest

    request = ResizeRequest(
        length=length,
        grid=_sides("--grid", grid),
        from_grid=_sides("--from-grid", from_grid),
        window=_sides("--window", window),
        from_window=_sides("--from-window", from_window),
        method=method,
        anchor=anchor,
        antialias=antialias,
        keep=keep,
        alpha=alpha,
        prefix=prefix_rows,
        suffix=suffix_rows,
        offset=offset,
        outliers=outliers,
        seed=seed,
        preset=preset,
        tensors=tuple(tensor or ()),
    )
    target = Target(output, format, force, json, quiet, dry_run, plot)
    if plot:
        from pe_cli.render.plots.drawing import require_picture

        require_picture(plot, force=force, beside=output)
    if scaling is not None:
        given = [name for name in _parameters(request) if name != "length"]
        if given or config is not None:
            options = ", ".join(
                f"--{_OPTIONS.get(n, n)}" for n in (*given, *["config"][: config is not None])
            )
            raise PeError(f"{options}: not for --scaling, which changes no table")
        if length is None:
            raise PeError("--scaling: for how many positions? Give --len N")
        _stretch(source, Scaling(scaling, length, factor, force_scaling, link), target)
    elif factor is not None or force_scaling:
        option = "--force-scaling" if force_scaling else f"--factor {factor:g}"
        raise PeError(
            f"{option}: by which rule? Give --scaling {', '.join(_SCALINGS)} for a model that rotates"
        )
    elif Path(source).is_dir():
        _extend_folder(source, request, target, config, link)
    elif link:
        raise PeError("--link is for model folders; a single file is written anew")
    else:
        _extend_file(source, request, target, config)


@dataclass(frozen=True)
class Target:
    """Where the result goes, and what is said about it."""

    output: str | None
    format: str | None
    force: bool
    json: bool
    quiet: bool
    dry_run: bool
    plot: str | None

    def __post_init__(self) -> None:
        if self.output == "-" and (self.json or sys.stdout.isatty()):
            raise PeError("-o - writes bytes: send stdout into a pipe or file, without --json")

    @property
    def writes(self) -> bool:
        """Bytes go out: to a file, or into a pipe that nothing else was asked to fill."""
        return not self.dry_run and (self.output is not None or not (self.json or sys.stdout.isatty()))

    @property
    def path(self) -> str | None:
        return None if self.output == "-" else self.output


def _extend_file(spec: str, request: ResizeRequest, target: Target, config: str | None) -> None:
    from dataclasses import replace

    from pe_cli.extend import containers, report
    from pe_cli.extend.plan import make_plan
    from pe_cli.files.sources import open_source, split_spec
    from pe_cli.files.text import canonical, metadata
    from pe_cli.render.console import shown

    path, named = split_spec(spec)
    if named is not None:
        request = replace(request, tensors=(*request.tensors, named))
    model = _config_of(path, config)
    if not target.writes and target.format:
        raise PeError(f"--format {target.format}: nothing is written to a terminal; give -o FILE or a pipe")
    made: dict[str, Any] = {}
    seen: list[Any] = []
    with open_source(path) as source, shown(quiet=target.quiet):
        text = "" if model is None else canonical(model.data)
        plan = make_plan(source.tensors, request, model, source.label, text)
        command = shlex.join(command_words(spec, request, config))
        about = metadata(command, "extend", _parameters(request), {})
        if target.plot:
            plan.watch_first(_watch(seen, target.plot))
        if target.writes:
            reports = containers.rewrite(
                source, plan, target.path, metadata=about, format=target.format, force=target.force
            )
        else:
            made, reports = containers.changed(source, plan)
    notes = list(plan.notes)
    report.warn_of_formula(source, request, reports)
    if target.writes:
        notes += containers.left_out(source, plan, target.path, target.format, named=bool(request.tensors))
    if plan.edits and model is not None:
        fields = "; ".join(map(str, plan.edits))
        notes.append(
            f"{model.label} must follow, and is not written: {fields} (extend the folder to have it done)"
        )
    _plot(seen, target)
    _tell(command, target, reports, plan.buffers.values(), notes, None)
    if made and sys.stdout.isatty() and not (target.json or target.quiet):
        _draw(plan, made)


def _watch(seen: list[Any], plot: str) -> Any:
    """Keeps the rows of the first table; by then all inputs are open, and none of them may become the picture."""

    def watch(*rows: Any) -> None:
        refuse_input(plot, plot)
        seen.append(rows)

    return watch


def _plot(seen: list[Any], target: Target) -> None:
    """The first table before and after, in the picture that was asked for."""
    if target.plot:
        from pe_cli.render.plots import plot_extension

        before, after = seen[-1]
        plot_extension(before, after, target.plot, target.force)


def _draw(plan: Any, made: dict[str, Any]) -> None:
    """The first new table as a heat map."""
    from pe_cli.render.console import console
    from pe_cli.render.summary import draw

    name, change = next(iter(plan.tables.items()))
    draw(console(), change.layout.rows_of(made[name]))


@dataclass(frozen=True)
class Scaling:
    """What is asked for a model that rotates."""

    scaling: str
    length: int
    factor: float | None
    force: bool
    link: bool

    def words(self, source: str) -> list[str]:
        """The command line that does it again."""
        words = ["pe", "extend", PurePath(source).name, f"--len={self.length}", f"--scaling={self.scaling}"]
        words += [] if self.factor is None else [f"--factor={self.factor:g}"]
        return [*words, *["--force-scaling"][: self.force]]


def _stretch(source: str, asked: Scaling, target: Target) -> None:
    """A rotary model for a longer context: a new folder or configuration, or the options of llama.cpp."""
    from pe_cli.extend.folder import stretch_folder, stretched_text
    from pe_cli.extend.rotary import gguf_flags, stretch_model
    from pe_cli.files.atomic import open_output
    from pe_cli.files.text import canonical, jsonable
    from pe_cli.models.read import is_gguf
    from pe_cli.render.console import tell

    if target.format:
        raise PeError(f"--format {target.format}: --scaling writes a configuration, not a table")
    if source == "-":
        raise PeError(
            "--scaling: give the model folder or its config.json; a pipe of weights does not say how they turn"
        )
    found = stretch_model(source, asked.length, asked.scaling, factor=asked.factor, force=asked.force)
    path, folder, flags = Path(source), Path(source).is_dir(), None
    files: list[Any] = []
    out = None if target.output == "-" else target.output
    if target.plot:
        from pe_cli.render.plots import plot_stretch

        plot_stretch(found, target.plot, target.force)
    if is_gguf(source):
        flags = gguf_flags(found)
        if out is not None:
            raise PeError(f"-o {out}: a .gguf is served as it is; give llama.cpp the options {flags}")
    config = path / "config.json" if folder else path
    if flags is None and not config.is_file():
        raise PeError(f"{source} has no config.json, in which the scaling is to stand")
    if flags is None and folder and (out is not None or target.dry_run):
        where = None if target.dry_run else Path(str(out))
        files = stretch_folder(path, where, found, force=target.force, link=asked.link)
    elif asked.link:
        raise PeError("--link is for a folder that is written with -o FOLDER")
    elif flags is None and out is not None and not target.dry_run:
        with open_output(out, force=target.force) as output:
            output.put(memoryview(stretched_text(config, found).encode()), 0)
    elif not target.json and not target.dry_run:
        print(flags if flags is not None else stretched_text(config, found), end="\n" if flags else "")
    command = shlex.join(asked.words(source))
    if target.json:
        record = {
            "schema": SCHEMA,
            "command": command,
            "output": target.output,
            "rotary": found.report(),
            "hf_overrides": None if flags else found.overrides(),
            "llama_cpp": flags,
            "files": [change.json() for change in files],
            "notes": list(found.notes),
        }
        print(canonical(jsonable(record)))
    if not target.quiet:
        said = [line for change in files for line in change.lines()]
        for line in (*found.lines(), *said, *(f"pe: note: {note}" for note in found.notes)):
            tell(line)


def _extend_folder(path: str, request: ResizeRequest, target: Target, config: str | None, link: bool) -> None:
    from pe_cli.extend.folder import extend_folder
    from pe_cli.files.text import metadata

    if target.output is None and not target.dry_run:
        raise PeError(
            f"{path} is a folder: give the new one with -o FOLDER, or --dry-run to see what would change"
        )
    if target.output == "-" or target.format:
        raise PeError("a folder goes to -o FOLDER, in the format that it has")
    if config is not None:
        raise PeError("a folder brings its own config.json; --config is for single files")
    command = shlex.join(command_words(path, request))
    about = metadata(command, "extend", _parameters(request), {})
    seen: list[Any] = []
    result = extend_folder(
        Path(path),
        None if target.dry_run else Path(str(target.output)),
        request,
        metadata=about,
        force=target.force,
        watch=_watch(seen, target.plot) if target.plot else None,
        link=link,
    )
    _plot(seen, target)
    _tell(command, target, result.reports, result.plan.buffers.values(), result.plan.notes, result.files)


def _config_of(path: str, config: str | None) -> Any:
    """The configuration that was named, or the one beside the file; None where there is none."""
    from pe_cli.extend.config import read_config

    if config == NO_CONFIG:
        return None
    if config is not None:
        return read_config(config)
    beside = Path(path).parent / "config.json"
    is_checkpoint = Path(path).suffix in (".safetensors", ".bin", ".pt", ".pth", ".h5")
    return read_config(beside) if path != "-" and is_checkpoint and beside.is_file() else None


def _sides(option: str, text: str | None) -> tuple[int, ...] | None:
    """`24x32` as (24, 32); one number is both sides."""
    if text is None:
        return None
    from pe_cli.positions import parse_grid

    sides = parse_grid(text, option)
    return sides * 2 if len(sides) == 1 else sides


_OPTIONS = {
    "length": "len",
    "prefix": "prefix-rows",
    "suffix": "suffix-rows",
    "from_grid": "from-grid",
    "from_window": "from-window",
}


def command_words(spec: str, request: ResizeRequest, config: str | None = None) -> list[str]:
    """The command line that makes this file again: paths are cut to names, defaults left out."""
    from pe_cli.files.sources import split_spec

    path, named = split_spec(spec)
    words = ["pe", "extend", PurePath(path).name + (f":{named}" if named is not None else "")]
    for field, value in vars(request).items():
        option = _OPTIONS.get(field, field)
        if field == "tensors":
            words += [f"--tensor={key}" for key in value if key != named]
        elif field == "antialias" and value is not None:
            words.append("--antialias" if value else "--no-antialias")
        elif isinstance(value, tuple):
            words.append(f"--{option}={'x'.join(map(str, value))}")
        elif value is not None:
            words.append(f"--{option}={value}")
    if config is not None:
        words.append(f"--config={PurePath(config).name}")
    return words


def _parameters(request: ResizeRequest) -> dict[str, Any]:
    return {name: value for name, value in vars(request).items() if value not in (None, ())}


def _tell(command: str, target: Target, reports: Any, buffers: Any, notes: list[str], files: Any) -> None:
    changed = [{"tensor": b.old.name, "what": b.what, "shape": list(b.new.shape)} for b in buffers]
    if target.json:
        from pe_cli.files.text import canonical, jsonable

        record = {
            "schema": SCHEMA,
            "command": command,
            "output": target.output if target.writes else None,
            "tables": [report.json() for report in reports],
            "buffers": changed,
            "files": None if files is None else [change.json() for change in files],
            "notes": notes,
        }
        print(canonical(jsonable(record)))
    if not target.quiet:
        from pe_cli.render.extend import show

        where = (target.output or "stdout") if target.writes else None
        show(reports, changed, notes, files, where=where, dry_run=target.dry_run)
