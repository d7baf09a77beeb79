"""Any source into any file, with the tables of a plan changed: bare tables, npz, HDF5, torch files, safetensors.

A safetensors checkpoint is rewritten around its changed tensors, header first: all sizes are known from the old header
and the plan. What does not change is copied in ranges, without passing through memory where a pipe allows it; only the
changed tensors are ever in memory. A second thread copies, or makes what changes, meanwhile.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.extend.plan import Change, ExtensionPlan
from pe_cli.extend.table import TableChange, TableReport
from pe_cli.files import READABLE, ByteInput, as_bytes, check_memory, default_format
from pe_cli.files.atomic import Copier, Move, OpenOutput, open_output
from pe_cli.files.safetensors import Header, SafetensorsReader, TensorEntry, stored_dtype, write_header
from pe_cli.files.sinks import open_sink
from pe_cli.files.sources import Source
from pe_cli.numerics.dtypes import NOT_IN_NUMPY, SAFETENSORS_CODES, numpy_dtype
from pe_cli.process import step

NAMELESS = "table"  # what the array of an .npy is called in a file that needs a name


def target_format(source: Source, plan: ExtensionPlan, path: str | None, given: str | None) -> str:
    """The format to write: the one given, the one of the file's name; into a pipe the one that came, where it can."""
    if given is None and path is not None:
        from pe_cli.files.torch import EXTENSIONS

        if path.lower().endswith(EXTENSIONS) and source.format != "torch":
            raise PeError(
                f"{path}: a torch file is only written from a torch file, which {source.label} is not; write .safetensors"
            )
        if path.lower().endswith(EXTENSIONS):
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
        return _rewrite_safetensors(
            source.stream, source.reader.header, plan, path, metadata=metadata, force=force
        )
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
    reader: Any = source.reader
    made, reports = changed(source, plan)
    replaced: dict[str, NDArray[Any] | None] = {change.old.name: None for change in plan.changes()}
    with open_output(path, force=force) as output:
        reader.write({**replaced, **made}, output)
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
        output.reserve(source.stream.size or 0)
        Copier(source.stream, output).copy(0, 0)
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
                    f"name one of them with {parameter('tensor')}"
                )
        dataset = put_anew(file, file[name], made[name]) if name in made else None
        for group, key in links[address]:
            del group[key]
            if dataset is not None:
                group[key] = dataset


# Safetensors, around what changes

BLOCK = 4 << 20  # bytes that one thread copies before it asks for more


@dataclass(frozen=True)
class Copy:
    """`count` bytes from offset `begin` of the input to offset `to` of the output."""

    begin: int
    to: int
    count: int


@dataclass(frozen=True)
class Made:
    """A changed tensor: the bytes of `entry` are read at `begin`, and what becomes of them goes to `to`."""

    entry: TensorEntry
    begin: int
    to: int
    change: Change


Part: TypeAlias = Copy | Made


def new_header(header: Header, plan: ExtensionPlan, metadata: Mapping[str, str]) -> tuple[bytes, list[Part]]:
    """The new header's bytes, and the parts of the output in order; `metadata` is added to what there was."""
    placed: dict[str, TensorEntry] = {}
    begin = 0
    for name, entry in header.tensors.items():
        change = plan.change(name)
        spec = entry.spec if change is None else plan.new_spec(entry.spec)
        if spec is None:
            continue
        count = entry.nbytes if change is None else spec.nbytes
        code = entry.code if change is None else SAFETENSORS_CODES[spec.dtype]
        placed[name] = TensorEntry(name, code, spec.shape, begin, begin + count)
        begin += count
    about = {"format": "pt"} | (header.metadata or {}) | dict(metadata)
    kept = sum(entry.nbytes for name, entry in header.tensors.items() if plan.change(name) is None)
    text = write_header(
        [placed[name] for name in header.names if name in placed],
        about,
        page_of=header.data_start if kept >= BLOCK else 0,
    )
    parts: list[Part] = []
    for name, entry in header.tensors.items():
        if name not in placed:
            continue
        source, target = header.data_start + entry.begin, len(text) + placed[name].begin
        change = plan.change(name)
        if change is not None:
            parts.append(Made(entry, source, target, change))
        elif parts and isinstance(last := parts[-1], Copy) and last.begin + last.count == source:
            parts[-1] = replace(last, count=last.count + entry.nbytes)
        else:
            parts.append(Copy(source, target, entry.nbytes))
    return text, parts


def _rewrite_safetensors(
    stream: ByteInput,
    header: Header,
    plan: ExtensionPlan,
    path: str | Path | None,
    *,
    metadata: Mapping[str, str],
    force: bool = False,
) -> list[TableReport]:
    """Write the checkpoint at `stream` (just behind its header) to `path` (None or `-`: standard output).

    From a file to standard output all changes are made before anything is written, so that a failing one leaves
    nothing behind; from a pipe each is made when its bytes arrive.
    """
    text, parts = new_header(header, plan, metadata)
    largest = max([change.old.nbytes + change.new.nbytes for change in plan.tables.values()], default=0)
    check_memory(largest, f"{stream.label}: the table before and after")
    with open_output(path, force=force) as output, _Rewriting(stream, output, parts) as rewriting:
        if stream.seekable and not output.whole:
            rewriting.make_first()
        output.reserve(max([len(text), *(part.to + _size(part) for part in parts)]))
        output.put(memoryview(text), 0)
        if stream.seekable and output.seekable:
            rewriting.in_any_order()
        else:
            rewriting.in_turn()
    return [rewriting.reports[name] for name in plan.tables]


_New: TypeAlias = tuple[NDArray[Any], Callable[[], TableReport] | None]


class _Rewriting:
    """Writes the parts of a checkpoint: what does not change is copied, what does is made, written and measured.

    Two threads share this as far as pipes allow. After an exception the second one is left to itself, and writes no more.
    """

    def __init__(self, stream: ByteInput, output: OpenOutput, parts: Sequence[Part]) -> None:
        self.reports: dict[str, TableReport] = {}
        self._stream, self._output, self._parts = stream, output, parts
        self._ready: dict[str, _New] = {}
        self._lent = _Lent(output)
        self._beside = _Beside()

    def __enter__(self) -> _Rewriting:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._beside.wait()
        finally:
            self._lent.take_back()
            self._beside.end()

    def make_first(self) -> None:
        """Make all that changes, before anything is written."""
        for part in self._changing():
            self._ready[part.entry.name] = _make(part, _read(self._stream, part))

    def in_any_order(self) -> None:
        """From file to file: the second thread copies while what changes is made; then both copy."""
        blocks = deque(block for part in self._parts if isinstance(part, Copy) for block in _blocks(part))
        self._beside.do(lambda: self._copy(blocks, self._lent))
        for part in self._changing():
            self._change(part, self._output)
        self._copy(blocks, self._output)

    def in_turn(self) -> None:
        """Where one side is a pipe, front to back; out of a pipe into a file, the second thread makes what changes."""
        for part in self._parts:
            if isinstance(part, Copy):
                self._copy(deque(_blocks(part)), self._output)
            elif self._output.seekable:
                self._beside.wait()  # so that one table at a time is in memory
                self._beside.do(partial(self._change, part, self._lent, _read(self._stream, part)))
            else:
                measure = self._put(part, self._output)
                self._beside.do(measure)

    def _changing(self) -> Iterator[Made]:
        return (part for part in self._parts if isinstance(part, Made))

    def _copy(self, blocks: deque[Copy], output: OpenOutput) -> None:
        """Copy the blocks that are left; another thread may do the same."""
        # Reading a file is by offset, so that each thread has a view of its own on the same descriptor.
        stream = ByteInput(self._stream.fd, self._stream.label) if self._stream.seekable else self._stream
        copier = Copier(stream, output)
        total = max(part.to + _size(part) for part in self._parts)
        while blocks:
            try:
                block = blocks.popleft()
            except IndexError:
                return
            step("copying", block.to, total)
            copier.copy(block.begin, block.to, block.count)

    def _change(self, part: Made, output: OpenOutput, old: NDArray[Any] | None = None) -> None:
        self._put(part, output, old)()

    def _put(self, part: Made, output: OpenOutput, old: NDArray[Any] | None = None) -> Callable[[], None]:
        """Write what becomes of `old`, which is read unless it is given; what is to be done then measures it."""
        if part.entry.name in self._ready:
            made, report = self._ready.pop(part.entry.name)
        else:
            made, report = _make(part, _read(self._stream, part) if old is None else old)
        output.put(as_bytes(made), part.to)

        def measure() -> None:
            if report is not None:
                self.reports[part.entry.name] = report()

        return measure


class _Beside:
    """A thread that does what it is given, one after the other; its first error is raised in whoever waits for it."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="pe-beside", daemon=True).start()

    def do(self, job: Callable[[], None]) -> None:
        """Do `job` after all that was given before."""
        self._jobs.put(job)

    def wait(self) -> None:
        """Wait until all that was given is done."""
        done = threading.Event()
        self._jobs.put(done.set)
        done.wait()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """End the thread after what it does now."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:  # handed to the caller, whatever it is
                self._error = self._error or error


class _Lent(OpenOutput):
    """An output in the hands of a second thread, which comes to an error when it writes after the output was taken back."""

    def __init__(self, output: OpenOutput) -> None:
        super().__init__(output.fd, output.label, output.start, output.whole)
        self._owner, self._writing, self._lent = output, threading.Lock(), True

    def put(self, data: memoryview, offset: int) -> None:
        with self._mine():
            super().put(data, offset)

    def draw(self, move: Move, source: int, begin: int | None, most: int, offset: int) -> int:
        with self._mine():
            return super().draw(move, source, begin, most, offset)

    @contextmanager
    def _mine(self) -> Iterator[None]:
        with self._writing:
            if not self._lent:
                raise OSError(errno.EIO, "the output was taken back")
            yield

    def reached(self, offset: int) -> None:
        self._owner.reached(offset)

    def take_back(self) -> None:
        """Let nothing more be written; what is being written is waited for."""
        with self._writing:
            self._lent = False


def _size(part: Part) -> int:
    return part.count if isinstance(part, Copy) else part.change.new.nbytes


def _blocks(copy: Copy) -> Iterator[Copy]:
    for done in range(0, copy.count, BLOCK):
        yield Copy(copy.begin + done, copy.to + done, min(BLOCK, copy.count - done))


def _read(stream: ByteInput, part: Made) -> NDArray[Any]:
    spec = part.entry.spec
    pieces = stream.elements(part.begin, stored_dtype(spec.dtype), spec.size, spec.size)
    return next(pieces, np.empty(0, numpy_dtype(spec.dtype))).reshape(spec.shape)


def _make(part: Made, old: NDArray[Any]) -> _New:
    """What becomes of `old`, and for a table a function that measures it and gives the report."""
    report = None
    if isinstance(part.change, TableChange):
        made, report = part.change.run(old)
    else:
        assert part.change.make is not None
        made = part.change.make(old)
    return np.ascontiguousarray(made).astype(stored_dtype(part.change.new.dtype), copy=False), report
