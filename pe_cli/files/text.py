"""Files as text and as JSON, unzipped where they are gzipped, and never more of them than fits into memory; JSON as pe
writes it; and what a file says about how it was made: one key, `pe`, without time, host or path.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import TERMINAL_COMMANDS, PeError
from pe_cli.files import ByteInput, open_input
from pe_cli.first import __version__
from pe_cli.process import machine_memory, size

SCHEMA = "pe.table/1"
GZIP = b"\x1f\x8b"
BLOCK = 1 << 22  # bytes of text read at once
LONGEST_LINE = 1 << 20
SHARE = 32  # a document is parsed into objects of up to so many times its size
LARGEST_CONFIGURATION = 64 << 20
DEEPEST = 1000  # levels of lists and objects in JSON
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
    with open_input(path) as source, unzipped(source) as file:
        yield file


@contextmanager
def unzipped(source: ByteInput) -> Iterator[Opened]:
    """An open input as a stream of the standard library, unzipped if it is gzipped."""
    import gzip  # with all it brings, for nothing in most runs

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


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a file, or on standard input for `-`: a configuration, a tokenizer, the index of a model.

    Raises PeError where it cannot be read, is larger than 64 MiB, or is no JSON object.
    """
    with open_input(path) as source:
        content = source.read(LARGEST_CONFIGURATION + 1)
        if len(content) > LARGEST_CONFIGURATION:
            raise PeError(
                f"{source.label} is larger than {size(LARGEST_CONFIGURATION)}: this is no configuration"
            )
        data = parse_json(content, source.label)
        if not isinstance(data, dict):
            raise PeError(f"{source.label} is JSON, but not an object")
        return data


def parse_json(
    content: bytes | str,
    label: str,
    *,
    line: int = 1,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """The value of a JSON text, which begins on `line` of what the messages call `label`.

    `pairs` makes an object of its keys and values, as `json.loads` takes it.

    Raises PeError for what is not JSON in UTF-8, is nested deeper than a thousand levels, or has a number of thousands
    of digits.
    """
    text = content if isinstance(content, str) else decoded(content, label, line)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _stack_depth() + DEEPEST + 64))
    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except PeError:  # of `pairs`
        raise
    except json.JSONDecodeError as trouble:
        where = f"line {trouble.lineno + line - 1}, column {trouble.colno}"
        raise PeError(f"{label} is not JSON at {where}: {trouble.msg}") from None
    except RecursionError:
        raise _too_deep(label) from None
    except ValueError:  # Python refuses to read whole numbers of thousands of digits
        raise PeError(f"{label} has a number of thousands of digits, which nothing needs") from None
    finally:
        sys.setrecursionlimit(before)
    _refuse_deep(value, label)
    return value


def _stack_depth() -> int:
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def _refuse_deep(value: Any, label: str) -> None:
    """Raise for lists and objects that are nested too deeply; level by level, since a stack has its limit too."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise _too_deep(label)


def _too_deep(label: str) -> PeError:
    return PeError(f"{label} is nested too deeply: JSON is read to {DEEPEST:,} levels")


def decoded(data: bytes, label: str, line: int = 1) -> str:
    """The text of UTF-8 bytes that begin on `line`, each line ended by a line feed; an error for anything else."""
    if b"\0" not in data:
        try:
            text = data.decode("utf-8-sig" if line == 1 else "utf-8")
            return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
        except UnicodeDecodeError as trouble:
            line += data.count(b"\n", 0, trouble.start)
    else:
        line += data.count(b"\n", 0, data.index(b"\0"))
    raise PeError(f"{label} line {line}: this is not text in UTF-8, and no format known here")


def metadata(
    command: str, encoding: str, parameters: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, str]:
    """The metadata of a file: canonical JSON under `pe`."""
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "version": __version__,
        "command": command,
        "encoding": encoding,
        "parameters": {name: jsonable(value) for name, value in parameters.items() if value is not None},
    }
    if facts:
        record["facts"] = jsonable(dict(facts))
    return {"pe": canonical(record)}


def made_by(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """The record that `metadata` made, from the metadata of any file; None where it has none."""
    try:
        record = json.loads(metadata.get("pe", "null"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text.

    What a terminal would act on, in the name of a tensor or a file, is escaped, and so is half of a character.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return TERMINAL_COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def jsonable(value: Any) -> Any:
    """Plain data: an array becomes its shape, dtype and hash; NaN and infinities become text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, np.ndarray):
        import hashlib  # it loads a library, for the few tables that are made from arrays

        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"shape": list(value.shape), "dtype": value.dtype.name, "sha256": digest}
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def numbers_of(lines: list[str], **options: Any) -> NDArray[Any]:
    """`np.loadtxt` of the lines; ValueError where a number is not of the type, in every version of numpy.

    numpy before 2.3 reads 2.5 as the integer 2, and only warns.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.asarray(np.loadtxt(lines, **options))
        except DeprecationWarning as warning:
            raise ValueError(str(warning)) from None
