"""A safetensors checkpoint rewritten around its changed tensors: header first, every other byte as it was.

All sizes are known from the old header and the plan, so the new header is written before any data is read. What does
not change is copied in ranges through one reused buffer, from file to file by two threads where it is much; only
the changed tensors are ever in memory.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.dtypes import SAFETENSORS_CODES, numpy_dtype
from pe_cli.formats import refuse_same_file
from pe_cli.formats.atomic import Output, cannot_write, open_output
from pe_cli.formats.base import as_bytes, check_memory
from pe_cli.formats.safetensors import Entry, Header, write_header
from pe_cli.formats.stream import ByteInput
from pe_cli.progress import step
from pe_cli.surgery.plan import Change, Plan
from pe_cli.surgery.report import TableReport
from pe_cli.surgery.table import TableChange

BUFFER = 1 << 20
TWO_THREADS_FROM = 256 << 20
PIPE_SIZE = 1 << 20
F_SETPIPE_SZ = 1031  # Linux; fcntl.F_SETPIPE_SZ only from Python 3.10's newer builds


@dataclass(frozen=True)
class Copy:
    """`count` bytes from offset `begin` of the input to offset `to` of the output."""

    begin: int
    to: int
    count: int


@dataclass(frozen=True)
class Made:
    """A changed tensor: the bytes of `entry` are read at `begin`, and what becomes of them goes to `to`."""

    entry: Entry
    begin: int
    to: int
    change: Change


Part: TypeAlias = Copy | Made


def new_header(header: Header, plan: Plan, metadata: Mapping[str, str]) -> tuple[bytes, list[Part]]:
    """The new header's bytes, and the parts of the output in order; `metadata` is added to what there was."""
    placed: dict[str, Entry] = {}
    begin = 0
    for name, entry in header.tensors.items():
        change = plan.change(name)
        spec = entry.spec if change is None else plan.new_spec(entry.spec)
        if spec is None:
            continue
        count = entry.nbytes if change is None else spec.nbytes
        code = entry.code if change is None else SAFETENSORS_CODES[spec.dtype]
        placed[name] = Entry(name, code, spec.shape, begin, begin + count)
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


def rewrite(
    stream: ByteInput,
    header: Header,
    plan: Plan,
    path: str | Path | None,
    *,
    metadata: Mapping[str, str],
    force: bool = False,
) -> list[TableReport]:
    """Write the checkpoint at `stream` (just behind its header) to `path` (None or `-`: standard output).

    From a file all changes are made before anything is written, so that a failing one leaves nothing behind; from a
    pipe each is made when its bytes arrive.
    """
    refuse_same_file(path, stream.fd)
    text, parts = new_header(header, plan, metadata)
    largest = max([change.old.nbytes + change.new.nbytes for change in plan.tables.values()], default=0)
    check_memory(largest, f"{stream.label}: the table before and after")
    reports: dict[str, TableReport] = {}
    ready: dict[str, NDArray[Any]] = {}
    if stream.seekable:
        for part in parts:
            if isinstance(part, Made):
                ready[part.entry.name] = _make(stream, part, reports)
    with open_output(path, force=force) as output:
        end = max([len(text), *(part.to + _size(part) for part in parts)])
        output.reserve(end)
        _put(output, memoryview(text), 0)
        copies = [part for part in parts if isinstance(part, Copy)]
        if stream.seekable and output.seekable:
            for part in parts:
                if isinstance(part, Made):
                    _put(output, as_bytes(ready.pop(part.entry.name)), part.to)
            _copy_anywhere(stream, output, copies)
        else:
            _widen_pipes(stream, output)
            _in_turn(stream, output, parts, ready, reports)
    return [reports[name] for name in plan.tables]


def dry_run(stream: ByteInput, header: Header, plan: Plan) -> list[TableReport]:
    """The reports of all changes, with nothing written; from a pipe only as far as the last table is read."""
    reports: dict[str, TableReport] = {}
    for part in new_header(header, plan, {})[1]:
        if isinstance(part, Made) and isinstance(part.change, TableChange):
            _make(stream, part, reports)
    return [reports[name] for name in plan.tables]


def _size(part: Part) -> int:
    return part.count if isinstance(part, Copy) else part.change.new.nbytes


def _make(stream: ByteInput, part: Made, reports: dict[str, TableReport]) -> NDArray[Any]:
    spec = part.entry.spec
    old = np.empty(spec.size, numpy_dtype(spec.dtype).newbyteorder("<"))
    stream.fill(part.begin, old.view(np.uint8).data)
    array = old.astype(old.dtype.newbyteorder("="), copy=False).reshape(spec.shape)
    if isinstance(part.change, TableChange):
        made, reports[spec.name] = part.change.run(array)
    else:
        assert part.change.make is not None
        made = part.change.make(array)
    return np.ascontiguousarray(made).astype(made.dtype.newbyteorder("<"), copy=False)


def _in_turn(
    stream: ByteInput,
    output: Output,
    parts: Sequence[Part],
    ready: dict[str, NDArray[Any]],
    reports: dict[str, TableReport],
) -> None:
    """Front to back, where one side is a pipe."""
    buffer = memoryview(bytearray(BUFFER))
    total, done = sum(map(_size, parts)), 0
    for part in parts:
        if isinstance(part, Made):
            made = ready.pop(part.entry.name) if part.entry.name in ready else _make(stream, part, reports)
            _put(output, as_bytes(made), part.to)
            del made
        else:
            for begin, to, count in _blocks(part):
                stream.fill(begin, buffer[:count])
                _put(output, buffer[:count], to)
                step("copying", done + to - part.to, total)
        done += _size(part)


def _blocks(copy: Copy) -> Iterator[tuple[int, int, int]]:
    for start in range(0, copy.count, BUFFER):
        yield copy.begin + start, copy.to + start, min(BUFFER, copy.count - start)


def _put(output: Output, data: memoryview, offset: int) -> None:
    """Write all of `data`: at `offset` of a file, or next on a pipe."""
    while data:
        try:
            done = os.pwrite(output.fd, data, offset) if output.seekable else os.write(output.fd, data)
        except BlockingIOError:
            select.select([], [output.fd], [])
            continue
        except OSError as error:
            raise cannot_write(output.label, error) from error
        data, offset = data[done:], offset + done


def _copy_anywhere(stream: ByteInput, output: Output, copies: Sequence[Copy]) -> None:
    """From file to file; two threads, each with a half of the bytes, where there are many."""
    total = sum(copy.count for copy in copies)
    if total < TWO_THREADS_FROM:
        _copy_all(stream, output, copies, total)
        return
    first, second = _halves(copies, total // 2 // BUFFER * BUFFER)
    failed: list[BaseException] = []
    stop = threading.Event()

    def other() -> None:
        try:
            _copy_all(ByteInput(stream.fd, stream.label), output, second, None, stop)
        except BaseException as error:  # handed to the caller, whatever it is
            failed.append(error)

    thread = threading.Thread(target=other, name="pe-copy")
    thread.start()
    try:
        _copy_all(stream, output, first, total // 2)
    except BaseException:
        stop.set()
        raise
    finally:
        thread.join()
    if failed:
        raise failed[0]


def _halves(copies: Sequence[Copy], first: int) -> tuple[list[Copy], list[Copy]]:
    """The copies up to `first` bytes, and the rest."""
    front: list[Copy] = []
    back: list[Copy] = []
    for copy in copies:
        here = min(copy.count, first)
        first -= here
        if here:
            front.append(replace(copy, count=here))
        if here < copy.count:
            back.append(Copy(copy.begin + here, copy.to + here, copy.count - here))
    return front, back


def _copy_all(
    stream: ByteInput,
    output: Output,
    copies: Sequence[Copy],
    total: int | None,
    stop: threading.Event | None = None,
) -> None:
    buffer = memoryview(bytearray(BUFFER))
    done = 0
    for copy in copies:
        for begin, to, count in _blocks(copy):
            if stop is not None and stop.is_set():
                return
            stream.fill(begin, buffer[:count])
            _put(output, buffer[:count], to)
            done += count
            if total is not None:
                step("copying", done, total)


def _widen_pipes(stream: ByteInput, output: Output) -> None:
    """Larger pipes, fewer switches between processes; where the system refuses, they stay as they are."""
    import fcntl

    for fd in (stream.fd, output.fd):
        try:
            fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE)
        except OSError:
            continue
