"""How much memory this machine has, so that a table that cannot fit is refused before the work starts."""

from __future__ import annotations

import os
from pathlib import Path

from pe_cli.errors import PeError

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def machine_memory() -> int | None:
    """Bytes of memory that this process may use: the machine's, or its container's; None where unknown."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(total, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):
        return total


def require_memory(nbytes: int, what: str, remedy: str) -> None:
    """Refuse `what` if it needs more memory than there is; `remedy` says what to do instead."""
    there_is = machine_memory()
    if there_is is not None and nbytes > there_is:
        raise PeError(f"{what} needs {size(nbytes)} of memory, this machine has {size(there_is)}: {remedy}")


def size(nbytes: float) -> str:
    """`7.3 TiB`"""
    unit = 0
    while nbytes >= 1024 and unit + 1 < len(_UNITS):
        nbytes /= 1024
        unit += 1
    return f"{nbytes:.3g} {_UNITS[unit]}" if nbytes < 1000 else f"{nbytes:.0f} {_UNITS[unit]}"
