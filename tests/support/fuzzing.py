"""What tests with random input share: how many examples, and files that were good before something changed in them.

The examples are the same in every run; with `PE_FUZZ=20000` they are so many others. Where the name of a failed test ends in
its seed, `PE_FUZZ=1@SEED` runs it again.
"""

from __future__ import annotations

import os
from random import Random

from hypothesis import HealthCheck, settings

_count, _, _begin = os.environ.get("PE_FUZZ", "0").partition("@")
MANY = int(_count)
BEGIN = int(_begin or Random().randrange(2**60))


def examples(count: int) -> settings:
    """For a test of random input: the same `count` examples in every run, unless PE_FUZZ asks for others."""
    return settings(
        max_examples=MANY or count,
        derandomize=not MANY,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )


PIECES = [
    b"\n", b"\t", b",", b" ", b"-1", b"0", b"nan", b"1e999", b"99999999999999999999", b"4611686018427387904", b"\xff", b"\0", b"\r\n",
    b"(", b")", b"[", b"]", b"{", b"}", b'"', b"<", b">", b"/>", b"&a;", b"#", b"%", b"_", b"null", b"true", b"1.5", b"\xef\xbb\xbf", b"\xe2\x80\xa8",
    b'"children":', b'"nodes":', b"<node id='a'/>", b"<edge source='a' target='a'/>", b"\x1f\x8b", b"PK\x03\x04", b"def f():", b"1-2", b"8.1",
]  # fmt: skip


def mutated(seed: bytes, chance: Random) -> bytes:
    """`seed` after some of: bytes changed, cut out, doubled, put in, and pieces of the format put where they should not be."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        length = chance.randint(0, 12)
        what = chance.randrange(6)
        if what == 0 and data:
            data[at % len(data)] = chance.randrange(256)
        elif what == 1:
            del data[at : at + length]
        elif what == 2:
            data[at:at] = data[at : at + length] * chance.randint(1, 3)
        elif what == 3:
            data[at:at] = chance.choice(PIECES)
        elif what == 4:
            data[at : at + length] = chance.choice(PIECES)
        else:
            del data[at:]
    return bytes(data)


def seeds(count: int) -> range:
    """Seeds for a test that makes up its own input: the same in every run, unless PE_FUZZ asks for others."""
    return range(count) if not MANY else range(BEGIN, BEGIN + MANY)
