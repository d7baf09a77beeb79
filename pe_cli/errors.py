"""The one exception a user can cause, and the sentences that are shared by many places.

It is raised where the fact is known and printed in one place, `pe_cli.cli.main`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PeError(ValueError):
    """Something the user can mend: what is wrong, where, and what would work, in one line.

    A subclass of ValueError, so that callers of the Python API need not know it.
    """


def no_such(kind: str, given: str, known: Iterable[str]) -> PeError:
    """`no style 'whispr'; did you mean 'whisper'?`, or the list of what there is."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return PeError(f"no {kind} {given!r}; {remedy}")
