"""Position tables of checkpoints, resized: `run` does what `pe extend` and `pe_cli.extend` ask for, whatever the source.

The package finds the tables, plans their change and what has to follow them, and writes a file or a folder around it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pe_cli.errors import PeError, in_python, option_name, parameter, spelled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pe_cli.extend.config import ModelConfig
    from pe_cli.extend.find import BufferChange
    from pe_cli.extend.folder import FileChange
    from pe_cli.extend.plan import ExtensionPlan
    from pe_cli.extend.request import ResizeRequest
    from pe_cli.extend.rotary import Stretch
    from pe_cli.extend.table import TableReport, Watch
    from pe_cli.files.sources import Source

SCALINGS = ("yarn", "linear", "ntk", "dynamic-ntk", "llama3")
NO_CONFIG = "none"
# What a file of weights may be called that has its configuration beside it.
CHECKPOINTS = (".safetensors", ".bin", ".pt", ".pth", ".h5")
STARTING_VALUES = "learned"  # the one encoding of `pe gen` that is trained afterwards


@dataclass(frozen=True)
class Target:
    """Where the result goes: `output` is a file or folder, `-` for standard output, None to write nothing.

    `link` makes hard links of the files of a folder that do not change.
    """

    output: str | None = None
    format: str | None = None
    force: bool = False
    link: bool = False

    @property
    def path(self) -> Path | None:
        """The file or folder, where it is one."""
        return None if self.output in (None, "-") else Path(str(self.output))


@dataclass
class Extension:
    """What was done to a source, or would be done where nothing is written.

    `tables` are the new values where they went to no file; `text` is the changed configuration, or for a .gguf the
    options of llama.cpp, where that went to no file.
    """

    command: str
    reports: list[TableReport] = field(default_factory=list)
    buffers: list[BufferChange] = field(default_factory=list)
    files: list[FileChange] | None = None
    notes: list[str] = field(default_factory=list)
    tables: dict[str, NDArray[Any]] = field(default_factory=dict)
    stretch: Stretch | None = None
    text: str | None = None

    def to_dict(self, spell: Callable[[str], str] = in_python) -> dict[str, Any]:
        """Plain data, as `--json` prints it; `spell` writes the names of parameters in sentences."""
        files = None if self.files is None else [change.json() for change in self.files]
        told: dict[str, Any] = {"command": self.command, "files": files, "notes": self.notes}
        if self.stretch is not None:
            flags = self.text if self.stretch.of_gguf else None
            overrides = None if self.stretch.of_gguf else self.stretch.overrides()
            told |= {"rotary": self.stretch.report(), "hf_overrides": overrides, "llama_cpp": flags}
        else:
            told["tables"] = [report.json() for report in self.reports]
            told["buffers"] = [buffer.json() for buffer in self.buffers]
        plain: dict[str, Any] = _spelled(told, spell)
        return plain


def _spelled(value: Any, spell: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name: _spelled(item, spell) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(item, spell) for item in value]
    return spelled(value, spell) if isinstance(value, str) else value


def run(
    source: str,
    *,
    scaling: str | None = None,
    factor: float | None = None,
    force_scaling: bool = False,
    config: str | None = None,
    output: str | None = None,
    format: str | None = None,
    force: bool = False,
    link: bool = False,
    watch: Watch | None = None,
    **sizes: Any,
) -> Extension:
    """Resize the position tables of `source`, a file or a model folder, or scale a rotary model.

    `sizes` are the fields of `ResizeRequest`; `output`, `format`, `force` and `link` are those of `Target`; `watch` is
    told the rows of the first table before and after.
    """
    target = Target(output, format, force, link)
    if scaling is not None:
        return _scale(source, scaling, factor, force_scaling, {**sizes, "config": config}, target)
    if factor is not None or force_scaling:
        said = parameter("force_scaling") if force_scaling else f"{parameter('factor')} {factor:g}"
        raise PeError(
            f"{said}: by which rule? Give {parameter('scaling')} {', '.join(SCALINGS)} for a model that rotates"
        )
    from pe_cli.extend.request import ResizeRequest

    request = ResizeRequest.of(**sizes)
    command = command_line(source, {**request.said(), "config": config})
    extend = _folder if os.path.isdir(source) else _file
    return extend(source, request, command, config, target, watch)


def command_line(source: str, said: Mapping[str, Any]) -> str:
    """The command line that does it again: paths are cut to names, defaults left out."""
    import shlex

    from pe_cli.files.sources import without_folder

    words = ["pe", "extend", without_folder(source)]
    for name, value in said.items():
        option = option_name(name)
        if name == "tensor":
            words += [f"{option}={key}" for key in value]
        elif value is True or value is False:
            words += [option if value else option.replace("--", "--no-", 1)] * (value or name == "antialias")
        elif value is not None:
            words.append(f"{option}={_word(name, value)}")
    return shlex.join(words)


def _word(name: str, value: Any) -> str:
    if name == "config":
        return PurePath(value).name
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _file(
    spec: str,
    request: ResizeRequest,
    command: str,
    config: str | None,
    target: Target,
    watch: Watch | None,
) -> Extension:
    """One file: a bare table, or a checkpoint."""
    from dataclasses import replace

    from pe_cli.extend import rewrite
    from pe_cli.extend.plan import make_plan
    from pe_cli.files.sources import open_source, split_spec
    from pe_cli.files.text import canonical, metadata

    if target.link:
        raise PeError(f"{parameter('link')} is for model folders; a single file is written anew")
    path, named = split_spec(spec)
    about = metadata(command, "extend", request.said(), {})
    if named is not None:
        request = replace(request, tensor=(*request.tensor, named))
    if target.output is None and target.format:
        raise PeError(
            f"{parameter('format')} {target.format}: nothing is written; give {parameter('output')} FILE or a pipe"
        )
    model, file = _config_of(path, config), None if target.path is None else str(target.output)
    made = Extension(command)
    with open_source(path) as source:
        text = "" if model is None else canonical(model.data)
        plan = make_plan(source.tensors, request, model, source.label, text)
        if watch is not None:
            plan.watch_first(watch)
        if target.output is None:
            made.tables, made.reports = rewrite.changed(source, plan)
        else:
            made.reports = rewrite.rewrite(
                source, plan, file, metadata=about, format=target.format, force=target.force
            )
            kind = rewrite.target_format(source, plan, file, target.format)
            made.notes += _left_out(source, plan, kind, named=bool(request.tensor))
        _warn_of_formula(source, request, made.reports)
    made.buffers, made.notes[:0] = list(plan.buffers.values()), plan.notes
    if plan.edits and model is not None:
        fields = "; ".join(map(str, plan.edits))
        made.notes.append(
            f"{model.label} must follow, and is not written: {fields} (extend the folder to have it done)"
        )
    return made


def _config_of(path: str, config: str | None) -> ModelConfig | None:
    """The configuration that was named, or the one beside the file; None where there is none."""
    if config == NO_CONFIG:
        return None
    if config is None:
        beside = Path(path).parent / "config.json"
        if path == "-" or Path(path).suffix not in CHECKPOINTS or not beside.is_file():
            return None
    from pe_cli.extend.config import ModelConfig
    from pe_cli.files.text import read_object

    path = str(beside) if config is None else config
    return ModelConfig(read_object(path), path)


def _left_out(source: Source, plan: ExtensionPlan, format: str, *, named: bool) -> Iterator[str]:
    """Notes of what a file of `format` has no room for; `named` says that the table was asked for by its name."""
    from pe_cli.files import shown

    others = len(source.tensors) - len(plan.tables)
    are, them = ("other tensor is", "it") if others == 1 else ("other tensors are", "them")
    if others and format == "npy" and not named:
        yield f"only the table is written: .npy holds one array; {others} {are} left out: write .safetensors to keep {them}"
    elif others and source.format == "gguf":
        yield (
            f"only the table is written, as pe writes no GGUF; {others} {are} left out, with the model's settings: to have a longer "
            "GGUF, extend the model that it was converted from and convert that"
        )
    entries = getattr(source.reader, "others", ())  # of a torch file: what is no tensor
    if entries and format != "torch":
        listed = ", ".join(map(shown, entries[:6])) + (" …" if len(entries) > 6 else "")
        them = "it" if len(entries) == 1 else "them"
        yield f"left out, since {format} holds tensors alone: {listed}; write .pt to keep {them}"


def _warn_of_formula(source: Source, request: ResizeRequest, reports: list[TableReport]) -> None:
    """Add a warning to `reports` of rows made from their neighbours, where the file says that a formula gives them."""
    from pe_cli.files import shown
    from pe_cli.files.text import made_by

    record = made_by(source.metadata) or {}
    command, encoding = record.get("command"), record.get("encoding")
    if not isinstance(command, str) or not command.startswith("pe gen ") or encoding == STARTING_VALUES:
        return
    for report in reports:
        if report.new and report.way != "regenerate":
            size = "longer" if sum(report.shape[1]) > sum(report.shape[0]) else "smaller"
            report.warnings.append(
                f"this table was made by `{shown(command)}`, which makes the {size} one too: {_again(command, request)}"
            )


def _again(command: str, request: ResizeRequest) -> str:
    """What to do instead: the size stands in the command, whose parameters in the file do not always tell it."""
    import shlex

    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if request.length is not None and "--len" in words:
        return f"run it with --len {request.length}"
    if request.grid is not None and "--grid" in words:
        return f"run it with --grid {'x'.join(map(str, request.grid))}"
    return "run it for that size"


def _folder(
    path: str,
    request: ResizeRequest,
    command: str,
    config: str | None,
    target: Target,
    watch: Watch | None,
) -> Extension:
    """A model folder, into a new one."""
    from pe_cli.extend.folder import extend_folder
    from pe_cli.files.text import metadata

    if target.output == "-" or target.format:
        raise PeError(f"a folder goes to {parameter('output')} FOLDER, in the format that it has")
    if config is not None:
        raise PeError(f"a folder brings its own config.json; {parameter('config')} is for single files")
    about = metadata(command, "extend", request.said(), {})
    done = extend_folder(
        Path(path),
        target.path,
        request,
        metadata=about,
        force=target.force,
        watch=watch,
        link=target.link,
    )
    plan = done.plan
    return Extension(command, done.reports, list(plan.buffers.values()), done.files, list(plan.notes))


def _scale(
    source: str,
    scaling: str,
    factor: float | None,
    force_scaling: bool,
    other: Mapping[str, Any],
    target: Target,
) -> Extension:
    """A rotary model for a longer context: a new folder or configuration, or the options of llama.cpp."""
    from pe_cli.extend.folder import stretch_folder, stretched_text
    from pe_cli.extend.rotary import gguf_flags, stretch_model
    from pe_cli.files.atomic import open_output

    length = other.get("length")
    given = [parameter(name) for name, value in other.items() if name != "length" and value not in (None, ())]
    if given:
        raise PeError(f"{', '.join(given)}: not for {parameter('scaling')}, which changes no table")
    if length is None:
        raise PeError(f"{parameter('scaling')}: for how many positions? Give {parameter('length')} N")
    if target.format:
        raise PeError(
            f"{parameter('format')} {target.format}: {parameter('scaling')} writes a configuration, not a table"
        )
    if source == "-":
        raise PeError(
            f"{parameter('scaling')}: give the model folder or its config.json; a pipe of weights does not say how they turn"
        )
    found = stretch_model(source, length, scaling, factor=factor, force=force_scaling)
    said = {"length": length, "scaling": scaling, "factor": factor, "force_scaling": force_scaling}
    done = Extension(command_line(source, said), files=[], notes=list(found.notes), stretch=found)
    if found.of_gguf:
        done.text = gguf_flags(found)
        if target.path is not None:
            raise PeError(
                f"{target.path}: a .gguf is served as it is; give llama.cpp the options {done.text}"
            )
    if target.link and (target.path is None or not os.path.isdir(source)):
        raise PeError(
            f"{parameter('link')} is for a folder that is written with {parameter('output')} FOLDER"
        )
    if found.of_gguf:
        return done
    config = Path(source, "config.json") if os.path.isdir(source) else Path(source)
    if not config.is_file():
        raise PeError(f"{source} has no config.json, in which the scaling is to stand")
    done.text = stretched_text(config, found)
    if os.path.isdir(source) and target.output != "-":
        done.files = stretch_folder(Path(source), target.path, found, force=target.force, link=target.link)
    elif target.path is not None:
        with open_output(target.path, force=target.force) as file:
            file.put(memoryview(done.text.encode()), 0)
    return done
