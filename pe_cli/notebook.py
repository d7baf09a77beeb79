"""What a notebook shows of tables and of results: HTML with heat maps, without matplotlib."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli import heatmap

MOST_ROWS, MOST_COLUMNS = 256, 512
LEAST_SIDE = 160  # a cell of a small table is drawn as a square of several pixels
LARGEST_CELL = 16


def tables_as_html(
    tables: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], warnings: Iterable[str]
) -> str:
    """Each table with its name, type, shape and heat map, then what there is to say about them."""
    parts = [_table(name, array) for name, array in tables.items()]
    return f"<div>{''.join(parts)}{facts_as_html(facts)}{_warnings(warnings)}</div>"


def facts_as_html(facts: Mapping[str, Any]) -> str:
    """Two columns: what, and its value."""
    rows = "".join(
        f"<tr><td style='text-align:left'>{escape(name.replace('_', ' '))}</td>"
        f"<td style='text-align:left'>{escape(_shown(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>" if rows else ""


def _table(name: str, array: NDArray[Any]) -> str:
    shape = " × ".join(map(str, array.shape)) or "one number"
    head = f"<div><b>{escape(name)}</b> &nbsp;{array.dtype.name} &nbsp;{shape}</div>"
    plane = heatmap.as_plane(array)
    if not plane.size:
        return head
    seen = heatmap.excerpt(plane, MOST_ROWS, MOST_COLUMNS)
    shrunk = seen.cells
    low, high = heatmap.limits(plane)
    side = min(LARGEST_CELL, max(1, LEAST_SIDE // max(shrunk.shape)))
    width, height = shrunk.shape[1] * side, shrunk.shape[0] * side
    picture = b64encode(png(heatmap.colours(shrunk))).decode("ascii")
    which = f", the first of {array.size // plane.size}" if array.ndim > 2 and array.size > plane.size else ""
    return (
        f"{head}<img alt='heat map of {escape(name)}' width='{width}' height='{height}' "
        f"style='image-rendering:pixelated' src='data:image/png;base64,{picture}'>"
        f"<div><small>{seen.caption()}{which}; {low:.3g} (blue) to {high:.3g} (orange)</small></div>"
    )


def _warnings(warnings: Iterable[str]) -> str:
    return "".join(f"<div><b>warning:</b> {escape(warning)}</div>" for warning in warnings)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}…"


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of (height, width, 3) pixels."""
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with the number of its filter, none
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
