"""How much memory this machine has, so that a table that cannot fit is refused before the work starts."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pe_cli.errors import PeError

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def machine_memory() -> int | None:
    """Bytes of memory that this process may use: the machine's, its container's or its own limit; None where unknown."""
    known = []
    with suppress(AttributeError, ValueError, OSError):
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):
            known.append(int(limit.read_text()))
    with suppress(ImportError, OSError):
        import resource  # not on Windows

        own = resource.getrlimit(resource.RLIMIT_AS)[0]
        if own != resource.RLIM_INFINITY:
            known.append(own)
    return min(known, default=None)


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
