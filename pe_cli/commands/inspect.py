"""`pe inspect`: what is in a file, and which encoding a table is."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import typer

from pe_cli.commands import options
from pe_cli.commands.options import argument, option
from pe_cli.errors import PeError
from pe_cli.files.sources import open_source, split_spec
from pe_cli.files.text import canonical, jsonable
from pe_cli.inspect import FileReport, look_at
from pe_cli.process import DIFFERENT


@dataclass(frozen=True)
class What:
    """What is looked at."""

    heading: ClassVar[str] = "Source"
    source: str = argument("SOURCE", "FILE, FILE:TENSOR, config.json, a model folder, or - (stdin).")
    tensor: str | None = option("KEY", "The tensor, where there are several.", common=True)
    values: bool = option(
        None, "In a checkpoint, read the position tensors, not their headers alone.", default=False
    )


@dataclass(frozen=True)
class OfModel:
    """What is asked of a configuration or a model folder."""

    heading: ClassVar[str] = "Configurations and model folders"
    component: str | None = option("NAME", "Only this part, such as text_config.")
    layer_type: str | None = option("NAME", "Only these layers.")
    seq_len: int | None = option("N", "The length that is served.", minimum=1)
    strict: bool = option(
        None,
        "Exit 1 where the files of a folder contradict each other (findings).",
        default=False,
        common=True,
    )


def inspect(what: What, model: OfModel, output: options.Shown) -> None:
    """Say what is in a file, and which encoding a table is.

    For a table: its shape, its numbers, its picture, and the encoding, layout and parameters that reproduce it, with
    what remains in units of the stored precision. For a checkpoint: its position tensors, from the headers. For a
    config.json: the scheme, every value with where it came from, and the wavelengths. For a model folder also what
    contradicts itself between configuration, weights and tokenizer: --strict makes that a check.

    \b
    Example:
      pe gen rope --len 4096 --dim 128 | pe inspect -
    """
    source = what.source
    if _is_configuration(source):
        if what.tensor or what.values:
            raise PeError(f"{source} is a configuration: --tensor and --values are for files of tensors")
        found = _inspect_model(source, model, output)
        if model.strict and found:
            raise typer.Exit(DIFFERENT)
        return
    if model.strict:
        raise PeError(f"{source} is a file of tensors: --strict is for model folders and configurations")
    if model != OfModel():
        raise PeError(
            f"{source} is a file of tensors: --component, --layer-type and --seq-len are for configurations"
        )
    with open_source(source, tensor=what.tensor) as opened:
        named = what.tensor is not None or split_spec(source)[1] is not None
        output.require_picture()
        report = look_at(opened, named, values=what.values)
    if output.plot:
        _plot(report, output.plot, output.force)
    of_gguf = _model_of_gguf(source) if report.format == "gguf" and not named else None
    if output.json:
        said = report.to_dict() | ({"model": of_gguf} if of_gguf else {})
        print(canonical(jsonable(said)))
    else:
        from pe_cli.render.summary import show_file

        show_file(report)
        if of_gguf:
            from pe_cli.render.summary import show_model

            show_model(of_gguf)


def _model_of_gguf(source: str) -> dict[str, Any] | None:
    """What the metadata of a GGUF file say of the model's positions; None for a file of no model."""
    from pe_cli.models.describe import inspect_config, unresolved

    try:
        return inspect_config(source)
    except PeError as error:
        return unresolved(source, error) if "general.architecture" not in str(error) else None


def _is_configuration(source: str) -> bool:
    if not source:
        raise PeError("SOURCE '': the name of a file is missing")
    path = Path(source)
    if source == "-" or not path.is_file():  # a pipe gives its bytes only once
        return source != "-" and path.is_dir()
    try:
        with path.open("rb") as stream:
            head = stream.read(64)
    except OSError:
        return False  # whoever opens it next says why
    # The length in front of a safetensors header may begin with any byte, but it has zeros.
    return head.removeprefix(BOM_UTF8).lstrip()[:1] == b"{" and b"\0" not in head


def _inspect_model(source: str, asked: OfModel, output: options.Shown) -> list[dict[str, Any]]:
    """Show a configuration or a model folder; returns what contradicts itself in it."""
    from pe_cli.extend.findings import findings
    from pe_cli.models.describe import inspect_config, unresolved

    output.require_picture()
    found = [finding.to_dict() for finding in findings(source)]
    tensors = _position_tensors(Path(source)) if Path(source).is_dir() else []
    try:
        report = inspect_config(
            source, component=asked.component, layer_type=asked.layer_type, seq_len=asked.seq_len
        )
    except PeError as error:
        if not (found or tensors):
            raise
        report = unresolved(source, error)
    report["tensors"] = tensors
    report["findings"] = found
    if output.plot:
        from pe_cli.render.plots import plot_model

        plot_model(report, output.plot, force=output.force)
    if output.json:
        print(canonical(jsonable(report)))
    else:
        from pe_cli.render.summary import show_model

        show_model(report)
    return found


def _position_tensors(folder: Path) -> list[dict[str, Any]]:
    """The position tensors in the checkpoint files of a model folder, from their headers."""
    from pe_cli.extend.findings import weight_files
    from pe_cli.inspect.learned import describe_checkpoint

    found = []
    for path in weight_files(folder):
        with open_source(str(path)) as source:
            for name, role in describe_checkpoint(source.tensors).items():
                spec = source.tensors[name]
                header = {
                    "file": path.name,
                    "shape": list(spec.shape),
                    "dtype": spec.dtype,
                    "bytes": spec.nbytes,
                }
                found.append({**role.to_dict(), **header})
    return found


def _plot(report: FileReport, path: str, force: bool) -> None:
    from pe_cli.render.plots import plot_tensors

    shown: dict[str, Any] = {t.spec.name: t.values for t in report.tensors if t.values is not None}
    why = [t.not_read for t in report.tensors if t.not_read is not None]
    if why and not shown:
        raise PeError(f"--plot {path}: values not read: {why[0]}")
    lengths = {name: len(array) for name, array in shown.items() if array.ndim}
    plot_tensors(shown, path, lengths=lengths, force=force, title=f"pe inspect {report.label}")


inspect_command = options.of_groups(inspect, What, OfModel, options.Shown)
