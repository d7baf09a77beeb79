"""The one exception a user can cause, and the sentences that are shared by many places.

It is raised where the fact is known and printed in one place, `pe_cli.cli.main`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


class PeError(ValueError):
    """Something the user can mend: what is wrong, where, and what would work, in one line.

    A subclass of ValueError, so that callers of the Python API need not know it. Where the sentence names a parameter
    (see `parameter`), `str(error)` names it as Python does and `spelled` as the caller wants, so that the command line
    speaks of `--original-len` where Python speaks of `original_len`.
    """

    def __str__(self) -> str:
        return self.spelled(in_python)

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The sentence with every parameter as `spell` writes it; nothing else in it is changed."""
        return spelled(super().__str__(), spell)


_PARAMETER = re.compile("\x1a([a-z][a-z0-9_]*)\x1a")


def parameter(name: str) -> str:
    """`name` as it stands in the sentence of a `PeError`: a parameter, to be spelled when the sentence is shown."""
    return f"\x1a{name}\x1a"


def spelled(sentence: str, spell: Callable[[str], str]) -> str:
    """`sentence` with every parameter as `spell` writes it; nothing else in it is changed."""
    return _PARAMETER.sub(lambda found: spell(found[1]), sentence)


def in_python(name: str) -> str:
    """A parameter as Python writes it: by its name."""
    return name


def no_such(kind: str, given: str, known: Iterable[str], aliases: Iterable[str] = ()) -> PeError:
    """`no style 'whispr'; did you mean 'whisper'?`, or the list of what there is, without the aliases."""
    names = list(known)
    near = nearest(given, [*names, *aliases])
    remedy = f"did you mean {near!r}?" if near else f"known: {', '.join(names)}"
    return PeError(f"no {kind} {given!r}; {remedy}")


def folded(name: str) -> str:
    """A name as it is compared: in small letters, with hyphens."""
    return name.lower().replace("_", "-")


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The one of `known` that a slip of the fingers, another case or a cut-off end makes into `given`; or None.

    A wrong guess is worse than none: a short word may differ by one letter or two exchanged ones, a longer one by a
    quarter of its letters.
    """
    word = folded(given)
    names = {folded(name): name for name in known}
    if word in names:
        return names[word]
    longer = [name for other, name in names.items() if len(word) >= 3 and other.startswith(word)]
    if longer:
        return longer[0] if len(longer) == 1 else None
    near = [other for other in names if abs(len(other) - len(word)) <= 3 and min(len(other), len(word)) > 1]
    wrong = {other: slips(word, other) for other in near}
    best = min(wrong, key=lambda other: wrong[other], default=None)
    if best is not None and wrong[best] <= max(1, min(len(word), len(best)) // 4):
        return names[best]
    begun = [name for other, name in names.items() if len(word) >= 6 and other[:6] == word[:6]]
    return begun[0] if len(begun) == 1 else None


def slips(a: str, b: str) -> int:
    """How many letters are wrong, missing, too many or exchanged with their neighbour."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and (x, a[i - 2]) == (b[j - 2], y):
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def needs(what: str, library: str, extra: str) -> PeError:
    """`what` is done by a library that is not installed, and which extra of pe brings it."""
    return PeError(f"{what} needs {library}: pip install 'pe-cli[{extra}]'")


def counted(number: int, one: str, many: str) -> str:
    """`1 node lies` or `3 nodes lie`: the number with the words that go with it."""
    return f"{number} {one if number == 1 else many}"


def ordinal(number: int) -> str:
    """`2nd`, `85th`."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def option_name(parameter: str) -> str:
    """A parameter as it is typed: `original_len` is `--original-len`, and `length` is `--len`."""
    return "--len" if parameter == "length" else "--" + parameter.replace("_", "-")


# Characters that a terminal acts on instead of showing them: control characters, marks of direction, half characters.
TERMINAL_COMMANDS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
LONGEST = 1000


def one_line(text: str) -> str:
    """`text` as one line that a terminal shows as it is: what cannot be printed is escaped, and the middle of much left out."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST * 3 // 4]} … {text[-LONGEST // 4 :]}"
    text = " ".join(text.splitlines())
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )
