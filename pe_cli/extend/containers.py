"""Any source into any file, with the tables of a plan changed: bare tables, npz, HDF5, torch checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.extend import stream
from pe_cli.extend.plan import ExtensionPlan
from pe_cli.extend.report import TableReport
from pe_cli.extend.table import TableChange
from pe_cli.files.atomic import OpenOutput, open_output
from pe_cli.files.base import READABLE, default_format, shown
from pe_cli.files.safetensors import SafetensorsReader
from pe_cli.files.sinks import open_sink
from pe_cli.files.sources import Source
from pe_cli.files.torch import EXTENSIONS, TorchReader
from pe_cli.numerics.dtypes import NOT_IN_NUMPY

COPY = 1 << 20
NAMELESS = "table"  # what the array of an .npy is called in a file that needs a name


def target_format(source: Source, plan: ExtensionPlan, path: str | None, given: str | None) -> str:
    """The format to write: the one given, the one of the file's name; into a pipe the one that came, where it can."""
    if given is None and path is not None and path.lower().endswith(EXTENSIONS):
        if source.format != "torch":
            raise PeError(
                f"{path}: a torch file is only written from a torch file, which {source.label} is not; write .safetensors"
            )
        return "torch"
    if given is None and path is None:
        several = len(source.tensors) > 1
        return {"safetensors": "safetensors", "npy": "npy"}.get(
            source.format, "safetensors" if several else "npy"
        )
    return default_format(path, [change.new for change in plan.tables.values()], given)


def rewrite(
    source: Source,
    plan: ExtensionPlan,
    path: str | None,
    *,
    metadata: Mapping[str, str],
    format: str | None = None,
    force: bool = False,
) -> list[TableReport]:
    """Write `source` with the changes of `plan` to `path` (None: standard output), and give the reports.

    What does not change keeps its bytes: from safetensors to safetensors, and from HDF5 to HDF5, all of the file;
    from torch to torch all entries; into another format the values of all tensors. What has several names changes under each. An `.npy` takes the one
    changed table alone, and of a GGUF, which is not written, only the changed tables are taken.
    """
    target = target_format(source, plan, path, format)
    if target == "safetensors" and isinstance(source.reader, SafetensorsReader):
        return stream.rewrite(source.stream, source.reader.header, plan, path, metadata=metadata, force=force)
    if target == "npy" and len(plan.tables) > 1:
        raise PeError(
            f"{len(plan.tables)} tables change, and an .npy file takes one; write .safetensors or .npz"
        )
    if target == "torch" and path is not None:
        return _into_torch(source, plan, path, force=force)
    plain = all(change.new.dtype not in NOT_IN_NUMPY for change in plan.changes())
    if target == "h5" and source.format == "hdf5" and path is not None and plain:
        return _into_hdf5(source, plan, path, metadata=metadata, force=force)
    kept = plan.tables if target == "npy" or source.format == "gguf" else source.tensors
    names = {name: name or NAMELESS for name in kept}
    twins = _twins(source, plan)
    specs = [
        replace(new, name=names[name])
        for name in kept
        if (new := plan.new_spec(source.tensors[twins.get(name, name)])) is not None
    ]
    for spec in specs:
        if spec.dtype not in READABLE:
            raise PeError(
                f"{source.label}: {spec.name} holds {spec.dtype}, which cannot be written as {target}"
            )
    made, reports = changed(source, plan) if source.stream.seekable else ({}, [])
    about = {**source.metadata, **metadata}
    with open_sink(path, specs, metadata=about, format=target, force=force) as sink:
        own = {new: old for old, new in names.items()}
        for spec in sink.specs:
            name = own[spec.name]
            if not source.stream.seekable and plan.change(name) is not None:
                one, told = changed(source, plan, name)
                made |= one
                reports += told
            if (origin := twins.get(name, name)) in made:
                sink.write(spec.name, 0, made[origin] if twins else made.pop(origin))
                continue
            start = 0
            for rows in source.blocks(name):
                sink.write(spec.name, start, rows)
                start += len(rows) if rows.ndim else 1
    return reports


def _twins(source: Source, plan: ExtensionPlan) -> dict[str, str]:
    """Tensors that do not change by the plan, but are by another name one that does: which."""
    first = {name: source.links.get(name, f"/{name}") for name in source.tensors}
    changing = {first[change.old.name]: change.old.name for change in plan.changes()}
    return {
        name: changing[place]
        for name, place in first.items()
        if place in changing and plan.change(name) is None
    }


def changed(
    source: Source, plan: ExtensionPlan, only: str | None = None
) -> tuple[dict[str, NDArray[Any]], list[TableReport]]:
    """The new values of all changed tensors, or of `only` one, and the reports of the tables among them."""
    made: dict[str, NDArray[Any]] = {}
    reports: list[TableReport] = []
    wanted = [name for name in source.tensors if only is None or name == only]
    for name in sorted(
        wanted, key=lambda name: name not in plan.tables
    ):  # what follows a table comes after it
        change = plan.change(name)
        if isinstance(change, TableChange):
            made[name], report = change.run(source.read(name))
            reports.append(report())
        elif change is not None and change.make is not None:
            made[name] = change.make(source.read(name))
    return made, reports


def _into_torch(source: Source, plan: ExtensionPlan, path: str, *, force: bool) -> list[TableReport]:
    """The torch file with the changed tensors in their places; torch files have no room for a record of how they were made."""
    assert isinstance(source.reader, TorchReader)
    made, reports = changed(source, plan)
    replaced: dict[str, NDArray[Any] | None] = {change.old.name: None for change in plan.changes()}
    with open_output(path, force=force) as output:
        source.reader.write({**replaced, **made}, output)
    return reports


def _into_hdf5(
    source: Source, plan: ExtensionPlan, path: str, *, metadata: Mapping[str, str], force: bool
) -> list[TableReport]:
    """A copy of the whole file, groups and attributes too, in which the changed datasets are put anew."""
    import h5py

    made, reports = changed(source, plan)
    with open_output(path, force=force) as output:
        if not output.seekable:
            raise PeError(f"{path} cannot seek, which HDF5 needs; write to a file")
        _copy(source, output)
        with os.fdopen(os.dup(output.fd), "r+b", buffering=0) as raw, h5py.File(raw, "r+") as file:
            _put_datasets(source.label, file, [change.old.name for change in plan.changes()], made)
            for key, text in sorted(metadata.items()):
                file.attrs[key] = text
    return reports


def _put_datasets(label: str, file: Any, names: list[str], made: Mapping[str, NDArray[Any]]) -> None:
    """Put the datasets `names` anew under every name they have, or take them out where nothing was made of them."""
    from pe_cli.files.hdf5 import address_of, names_of, put_anew

    same: dict[Any, list[str]] = {}
    for name in names:
        same.setdefault(address_of(file[name]), []).append(name)
    # All names are looked up first: what is put anew may come to lie where a changed dataset was.
    links = names_of(file, set(same))
    for address, (name, *others) in same.items():
        for other in others:
            if (name in made) != (other in made) or (
                name in made and made[name].tobytes() != made[other].tobytes()
            ):
                raise PeError(
                    f"{label}: {name} and {other} are one dataset, and would become two that differ; "
                    "name one of them with --tensor"
                )
        dataset = put_anew(file, file[name], made[name]) if name in made else None
        for group, key in links[address]:
            del group[key]
            if dataset is not None:
                group[key] = dataset


def _copy(source: Source, output: OpenOutput) -> None:
    source.stream.seek(0)
    output.reserve(source.stream.size or 0)
    buffer = memoryview(bytearray(COPY))
    at = 0
    while got := source.stream.readinto(buffer):
        output.put(buffer[:got], at)
        at += got


def left_out(
    source: Source, plan: ExtensionPlan, path: str | None, format: str | None, *, named: bool
) -> list[str]:
    """Notes of what the file that is written has no room for; `named` says that the table was asked for by its name."""
    target = target_format(source, plan, path, format)
    others = len(source.tensors) - len(plan.tables)
    are, them = ("other tensor is", "it") if others == 1 else ("other tensors are", "them")
    notes = []
    if others and target == "npy" and not named:
        notes.append(
            f"only the table is written: .npy holds one array; {others} {are} left out: write .safetensors to keep {them}"
        )
    elif others and source.format == "gguf":
        notes.append(
            f"only the table is written, as pe writes no GGUF; {others} {are} left out, with the model's settings: to have a longer "
            "GGUF, extend the model that it was converted from and convert that"
        )
    if isinstance(source.reader, TorchReader) and target != "torch" and source.reader.others:
        listed = ", ".join(map(shown, source.reader.others[:6])) + (
            " …" if len(source.reader.others) > 6 else ""
        )
        notes.append(
            f"left out, since {target} holds tensors alone: {listed}; write .pt to keep {'it' if len(source.reader.others) == 1 else 'them'}"
        )
    return notes
