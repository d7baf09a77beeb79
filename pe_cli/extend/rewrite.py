"""Any source into any file, with the tables of a plan changed: bare tables, npz, HDF5, torch files, safetensors.

A safetensors checkpoint is rewritten around its changed tensors, header first: all sizes are known from the old header
and the plan. What does not change is copied in ranges through one reused buffer, from file to file by two threads
where it is much; only the changed tensors are ever in memory.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.extend.plan import Change, ExtensionPlan
from pe_cli.extend.table import TableChange, TableReport
from pe_cli.files.atomic import OpenOutput, cannot_write, open_output
from pe_cli.files.base import READABLE, ByteInput, as_bytes, check_memory, default_format
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
                    f"name one of them with {parameter('tensor')}"
                )
        dataset = put_anew(file, file[name], made[name]) if name in made else None
        for group, key in links[address]:
            del group[key]
            if dataset is not None:
                group[key] = dataset


def _copy(source: Source, output: OpenOutput) -> None:
    source.stream.seek(0)
    output.reserve(source.stream.size or 0)
    buffer = memoryview(bytearray(BUFFER))
    at = 0
    while got := source.stream.readinto(buffer):
        output.put(buffer[:got], at)
        at += got


# Safetensors, around what changes

BUFFER = 1 << 20
TWO_THREADS_FROM = 256 << 20
HEAD = 4096


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
    text = write_header([placed[name] for name in header.names if name in placed], about)
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

    From a file to a pipe all changes are made before anything is written, so that a failing one leaves nothing
    behind; from a pipe each is made when its bytes arrive. Geometry is measured while the rest is copied.
    """
    text, parts = new_header(header, plan, metadata)
    largest = max([change.old.nbytes + change.new.nbytes for change in plan.tables.values()], default=0)
    check_memory(largest, f"{stream.label}: the table before and after")
    measured = _Measured()
    ready: dict[str, NDArray[Any]] = {}
    made = [part for part in parts if isinstance(part, Made)]
    to_file = path is not None and str(path) != "-"
    if stream.seekable and not to_file:
        ready = {part.entry.name: _make(stream, part, measured) for part in made}
    with open_output(path, force=force) as output:
        output.reserve(max([len(text), *(part.to + _size(part) for part in parts)]))
        output.put(memoryview(text), 0)
        if stream.seekable and output.seekable:
            with _Copier(stream, output, [part for part in parts if isinstance(part, Copy)]) as copier:
                for part in made:
                    output.put(as_bytes(_make(stream, part, measured)), part.to)
                measured.finish()
                copier.help()
        else:
            _widen_pipes(stream, output)
            _in_turn(stream, output, parts, ready, measured)
            measured.finish()
    return [measured.reports[name] for name in plan.tables]


class _Measured:
    """Reports of tables, made in a thread while bytes are copied."""

    def __init__(self) -> None:
        self.reports: dict[str, TableReport] = {}
        self.waiting: list[tuple[str, Callable[[], TableReport]]] = []
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to make what is noted, if nothing is being made."""
        if self.waiting and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="pe-report", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait for the thread, and make what is left."""
        if self._thread is not None:
            self._thread.join()
        self._run()

    def _run(self) -> None:
        while self.waiting:
            name, report = self.waiting[0]
            self.reports[name] = report()
            del self.waiting[0]


def _size(part: Part) -> int:
    return part.count if isinstance(part, Copy) else part.change.new.nbytes


def _make(stream: ByteInput, part: Made, measured: _Measured) -> NDArray[Any]:
    spec = part.entry.spec
    pieces = stream.elements(part.begin, stored_dtype(spec.dtype), spec.size, spec.size)
    array = next(pieces, np.empty(0, numpy_dtype(spec.dtype))).reshape(spec.shape)
    if isinstance(part.change, TableChange):
        made, report = part.change.run(array)
        measured.waiting.append((spec.name, report))
    else:
        assert part.change.make is not None
        made = part.change.make(array)
    return np.ascontiguousarray(made).astype(stored_dtype(part.change.new.dtype), copy=False)


def _in_turn(
    stream: ByteInput,
    output: OpenOutput,
    parts: Sequence[Part],
    ready: dict[str, NDArray[Any]],
    measured: _Measured,
) -> None:
    """Front to back, where one side is a pipe."""
    total, done = sum(map(_size, parts)), 0
    pump = _Pump(stream, output)
    for part in parts:
        if isinstance(part, Made):
            made = ready.pop(part.entry.name) if part.entry.name in ready else _make(stream, part, measured)
            output.put(as_bytes(made), part.to)
            del made
            measured.start()
        else:
            for begin, count in _blocks(part.begin, part.count):
                pump.move(begin, begin - part.begin + part.to, count)
                step("copying", done + begin - part.begin, total)
        done += _size(part)


class _Pump:
    """Moves bytes of the input to the end of the output, inside the kernel where that can be done."""

    def __init__(self, stream: ByteInput, output: OpenOutput) -> None:
        self._stream, self._output = stream, output
        self._buffer = memoryview(bytearray(BUFFER))
        self._base = os.lseek(stream.fd, 0, os.SEEK_CUR) if stream.seekable else 0
        self._splices = hasattr(os, "splice") and sys.platform == "linux"

    def move(self, begin: int, to: int, count: int) -> None:
        """Write `count` (at most a buffer of) bytes from offset `begin` to offset `to`, which on a pipe is next."""
        done = 0
        if self._splices:
            # What was read ahead is in memory, not in the pipe any more: an ordinary read takes that first.
            done = min(count, HEAD)
            self._through_memory(begin, to, done)
            done += self._splice(begin + done, to + done, count - done)
        if done < count:
            self._through_memory(begin + done, to + done, count - done)

    def _through_memory(self, begin: int, to: int, count: int) -> None:
        self._stream.fill(begin, self._buffer[:count])
        self._output.put(self._buffer[:count], to)

    def _splice(self, begin: int, to: int, count: int) -> int:
        """How many bytes were moved; fewer than `count` where the system does not splice these, or the input ends."""
        moved = 0
        while moved < count:
            places: dict[str, Any] = {
                "offset_src": self._base + begin + moved if self._stream.seekable else None,
                "offset_dst": to + moved if self._output.seekable else None,
            }
            try:
                got = os.splice(self._stream.fd, self._output.fd, count - moved, **places)
            except BlockingIOError:
                select.select([self._stream.fd], [], [])
                select.select([], [self._output.fd], [])
                continue
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
                    self._splices = False  # no pipe on either side, or a file that is appended to
                    return moved
                raise cannot_write(self._output.label, error) from error
            if got == 0:
                return moved
            moved += got
            self._stream.position += 0 if self._stream.seekable else got
        return moved


def _blocks(begin: int, count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, BUFFER):
        yield begin + start, min(BUFFER, count - start)


class _Copier:
    """Copies ranges from file to file: a thread from the start where they are large, and whoever calls `help`."""

    def __init__(self, stream: ByteInput, output: OpenOutput, copies: Sequence[Copy]) -> None:
        self._stream, self._output = stream, output
        self._total = sum(copy.count for copy in copies)
        self._done = 0
        self._blocks = (
            (begin, copy.to - copy.begin, count)
            for copy in copies
            for begin, count in _blocks(copy.begin, copy.count)
        )
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = (
            threading.Thread(target=self._beside, name="pe-copy") if self._total >= TWO_THREADS_FROM else None
        )

    def __enter__(self) -> _Copier:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopped = True
        if self._thread is not None:
            self._thread.join()

    def help(self) -> None:
        """Copy along until all is done; raises what went wrong in the thread."""
        self._work()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _beside(self) -> None:
        try:
            self._work()
        except BaseException as error:  # handed to the caller, whatever it is
            self._error = error

    def _work(self) -> None:
        # A view of its own on the same descriptor: reading is by offset, and only the position is remembered.
        stream = ByteInput(self._stream.fd, self._stream.label)
        buffer = memoryview(bytearray(BUFFER))
        while not self._stopped and self._error is None:
            with self._lock:
                block = next(self._blocks, None)
                if block is None:
                    return
                self._done += block[2]
                step("copying", self._done, self._total)
            begin, shift, count = block
            stream.fill(begin, buffer[:count])
            self._output.put(buffer[:count], begin + shift)


def _widen_pipes(stream: ByteInput, output: OpenOutput) -> None:
    """Larger pipes, fewer switches between processes; where the system refuses, they stay as they are."""
    import fcntl

    widen = getattr(fcntl, "F_SETPIPE_SZ", None)
    for fd in (stream.fd, output.fd):
        with suppress(OSError):
            if widen is not None:
                fcntl.fcntl(fd, widen, BUFFER)
