"""Files as streams and as text, unzipped where they are gzipped, and never more of them than fits into memory."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, cast

from pe_cli.errors import PeError
from pe_cli.files.sources import open_input
from pe_cli.files.stream import ByteInput
from pe_cli.memory import machine_memory, size

GZIP = b"\x1f\x8b"
BLOCK = 1 << 22  # bytes of text read at once
LONGEST_LINE = 1 << 20
SHARE = 8  # a document is parsed into objects of about so many times its size
UNKNOWN_MEMORY = 1 << 34


class Opened(NamedTuple):
    """An open file: its name for messages, its bytes, and the first of them."""

    label: str
    stream: IO[bytes]
    head: bytes


class _Forward(io.RawIOBase):
    """A ByteInput as a stream of the standard library."""

    def __init__(self, source: ByteInput) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.readinto(memoryview(buffer).cast("B"))


@contextmanager
def opened(path: str) -> Iterator[Opened]:
    """Open a file, or standard input for `-`, and unzip it if it is gzipped."""
    with open_input(path) as source:
        if source.peek(2) == GZIP:
            stream: Any = io.BufferedReader(cast(Any, gzip.GzipFile(fileobj=_Forward(source))), BLOCK)
        else:
            stream = io.BufferedReader(_Forward(source), BLOCK)
        try:
            head = stream.peek(1)[:4096]
            yield Opened(source.label, stream, head)
        except (gzip.BadGzipFile, EOFError, zlib.error) as trouble:
            raise PeError(f"{source.label} is a broken .gz file: {trouble}") from None


def whole_bytes(file: Opened) -> bytes:
    """All of a document; an error if it is too large to be parsed here."""
    limit = (machine_memory() or UNKNOWN_MEMORY) // SHARE
    parts, length = [], 0
    while part := file.stream.read(BLOCK):
        parts.append(part)
        length += len(part)
        if length > limit:
            raise PeError(
                f"{file.label} is a document of more than {size(limit)}, too large to be parsed here"
            )
    return b"".join(parts)


def whole_text(file: Opened) -> str:
    """All of a document as text; what begins as none is not read to its end."""
    if b"\0" in file.head:
        decoded(file.head, file.label)
    return decoded(whole_bytes(file), file.label)


def blocks(file: Opened) -> Iterator[tuple[int, bytes]]:
    """(number of the first line from 1, bytes) for blocks of whole lines."""
    number, rest = 1, b""
    while part := file.stream.read(BLOCK):
        end = part.rfind(b"\n") + 1
        if not end:
            rest += part
            if len(rest) > LONGEST_LINE + BLOCK:
                break
            continue
        block = rest + part[:end]
        rest = part[end:]
        yield number, block
        number += block.count(b"\n")
    if len(rest) > LONGEST_LINE:
        raise PeError(
            f"{file.label} line {number} is longer than {size(LONGEST_LINE)}: this is not a list of lines"
        )
    if rest:
        yield number, rest


def decoded(data: bytes, label: str, line: int = 1) -> str:
    """The text of UTF-8 bytes that begin on `line`; an error for anything else."""
    if b"\0" not in data:
        try:
            return data.decode("utf-8-sig" if line == 1 else "utf-8")
        except UnicodeDecodeError as trouble:
            line += data.count(b"\n", 0, trouble.start)
    else:
        line += data.count(b"\n", 0, data.index(b"\0"))
    raise PeError(f"{label} line {line}: this is not text in UTF-8, and no format known here")
