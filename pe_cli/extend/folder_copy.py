"""What surrounds the weights in a model folder, copied: files, folders, and links where they mean the same."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pe_cli.errors import PeError

# Other copies of the weights: they would hold the old table.
STALE = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.gguf", "*.bin.index.json")
STALE_FOLDERS = ("onnx", "openvino", "coreml")
FILE, FOLDER, LINK = "file", "folder", "link"


@dataclass(frozen=True)
class Entry:
    """Something to copy: `path` in the old folder, `name` relative to both, and what it is to be in the new one."""

    path: Path
    name: str
    kind: str

    @property
    def listed(self) -> str:
        """As `names_in` gives it."""
        return self.name + os.sep * (self.kind == FOLDER)

    def copy(self, new: Path) -> None:
        """Into the folder `new`, where the folder that holds this is already."""
        target = new / self.name
        if self.kind == FOLDER:
            os.mkdir(target, stat.S_IMODE(self.path.stat().st_mode) | stat.S_IRWXU)
        elif self.kind == LINK:
            os.symlink(os.readlink(self.path), target)
        else:
            shutil.copy2(self.path, target)


def left_out(folder: Path, shards: Collection[str]) -> set[str]:
    """The names in `folder` of weights but the safetensors `shards`, and of links to such weights."""
    kept = {name for name in shards if name.endswith(".safetensors")}
    patterns = (*STALE, "*.safetensors") if kept else STALE
    gone = {
        path.name
        for path in folder.iterdir()
        if path.name in STALE_FOLDERS or (any(map(path.match, patterns)) and not path.is_dir())
    } - kept
    links = {name: leads for name in os.listdir(folder) if (leads := inner_link(folder, name)) is not None}
    while more := {name for name, leads in links.items() if _top(leads) in gone} - gone:
        gone |= more
    return gone


def entries(folder: Path, top: Collection[str], gone: Collection[str]) -> Iterator[Entry]:
    """All that is at and below the `top` names of `folder`, a folder before what it holds.

    A link from one place of the folder to another stays a link, if that is not `gone`; what any other leads to is
    copied.

    Errors: a link that leads nowhere or in a circle, a pipe or a device, which no copy can be made of.
    """
    real = Path(os.path.realpath(folder))
    above = [_identity(os.stat(path)) for path in (real, *real.parents)]
    for name in sorted(top):
        for entry in _entry(folder, name, above, inside=True):
            leads = inner_link(folder, entry.name) if entry.kind == LINK else None
            if leads is None or _top(leads) not in gone:
                yield entry


def link_or_copy(source: Path, target: Path) -> None:
    """The same file under another name, or a copy where that cannot be."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)


def inner_link(folder: Path, name: str) -> str | None:
    """Where in `folder` the link called `name` leads, if it still does so in a copy of the folder."""
    path = folder / name
    if not path.is_symlink() or os.path.isabs(text := os.readlink(path)):
        return None
    leads = os.path.normpath(os.path.join(os.path.dirname(name), text))
    return leads if _top(leads) != os.pardir and os.path.lexists(folder / leads) else None


def _entry(folder: Path, name: str, above: list[tuple[int, int]], inside: bool) -> Iterator[Entry]:
    """One entry and what is below it; `inside`: not reached by a link to another place, where names mean other things."""
    path = folder / name
    try:
        status = os.stat(path)
    except OSError as error:
        if path.is_symlink():
            raise PeError(f"{path} is a link that leads nowhere: {error.strerror}; remove it") from error
        raise
    if inside and inner_link(folder, name) is not None:
        yield Entry(path, name, LINK)
    elif stat.S_ISREG(status.st_mode):
        yield Entry(path, name, FILE)
    elif not stat.S_ISDIR(status.st_mode):
        raise PeError(f"{path} is a pipe, a socket or a device, and cannot be copied; remove it")
    elif _identity(status) in above:
        raise PeError(f"{path} is a link to a folder that holds it, and cannot be copied; remove it")
    else:
        yield Entry(path, name, FOLDER)
        below = [*above, _identity(status)]
        for each in sorted(os.listdir(path)):
            yield from _entry(folder, os.path.join(name, each), below, inside and not path.is_symlink())


def _top(name: str) -> str:
    return name.split(os.sep)[0]


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
