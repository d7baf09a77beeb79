"""Model folders: where their weights are, what is copied of them, and new ones that appear whole or not at all.

The new folder is built under a hidden name beside its place. An existing one changes places with it in one step where
the system can (Linux): even a killed process leaves the old or the new one. Elsewhere two renames do it, and what
interrupts them puts the old one back.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import fnmatch
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pe_cli.errors import PeError
from pe_cli.files import ByteInput
from pe_cli.files.atomic import Copier, OpenOutput, already_there, cannot_write, take_over
from pe_cli.files.text import read_object
from pe_cli.files.torch import EXTENSIONS

ENDINGS = (".safetensors", ".bin")
NAMED = 3  # of the entries that would be lost
# From linux/fs.h and fcntl.h.
NOREPLACE, EXCHANGE, AT_FDCWD = 1, 2, -100
FICLONE = 0x40049409
# An old kernel, another file system, or a sandbox that does not know the call.
CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})


@dataclass(frozen=True)
class Place:
    """Where a copy of `source` is to appear: `label` is what the user typed, `path` the same without symbolic links."""

    label: str
    path: Path
    force: bool
    source: Path

    @classmethod
    def of(cls, target: Path, source: Path, force: bool) -> Place:
        """The place for an extended copy of the model in `source`.

        Errors: a target that is the source, lies in it, or holds it or files of it; one that exists, without `force`.
        """
        label = str(target)
        if target.is_symlink() and not target.exists():
            raise PeError(f"{label} is a link that leads nowhere; remove it, or make the folder it leads to")
        place = cls(label, Path(os.path.realpath(target)), force, source)
        real = Path(os.path.realpath(source))
        if _same_as_any(real, (place.path, *place.path.parents)):
            raise PeError(f"{label} is the model itself or inside it; give a folder elsewhere")
        if _same_as_any(place.path, real.parents):
            raise PeError(f"{label} holds the model itself, {source}; give a folder elsewhere")
        if not os.path.lexists(place.path):
            return place
        place._check_is_folder()
        if not force:
            raise already_there(label)
        for entry in (path for name in names_in(source) if (path := source / name).is_symlink()):
            leads = Path(os.path.realpath(entry))
            if place.path in (leads, *leads.parents):
                raise PeError(f"{label} holds what {entry} of the model links to; give a folder elsewhere")
        return place

    def check(self, known: Collection[str]) -> None:
        """Raise if something is there that is no model folder, or that holds more than the `known` relative names."""
        if not os.path.lexists(self.path):
            return
        self._check_is_folder()
        names = os.listdir(self.path)
        if names and "config.json" not in names and not any(name.endswith(ENDINGS) for name in names):
            raise PeError(f"{self.label} is no model folder, and is not replaced; remove it yourself")
        lost = [name for name in names_in(self.path, known) if name not in known]
        if lost:
            more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
            raise PeError(
                f"{self.label} holds {', '.join(lost[:NAMED])}{more}, which the new model does not have: "
                f"move {'it' if len(lost) == 1 else 'them'}, or give another folder"
            )

    def _check_is_folder(self) -> None:
        if not self.path.is_dir():
            raise PeError(f"{self.label} is no folder; give the name of a new one")

    def fill(self, known: Collection[str], build: Callable[[Path], None]) -> None:
        """Let `build` write into a new folder, and put it here when it is done; if it fails, nothing changes."""
        self.check(known)
        hidden = self.path.with_name(f".pe-{os.urandom(8).hex()}")
        # Under the hidden name is what is to go: the unfinished folder, or the one that it has replaced. It is removed
        # twice because the first removal can be interrupted; the second cannot, as `pe` hears only one signal.
        try:
            try:
                try:
                    os.mkdir(hidden)
                except FileNotFoundError as error:
                    raise PeError(
                        f"cannot write {self.label}: there is no folder {hidden.parent}; make it first"
                    ) from error
                build(hidden)
                for old in (path for path in self.source.iterdir() if (hidden / path.name).is_file()):
                    shutil.copymode(old, hidden / old.name)
                self._put(hidden, known)
            except PeError as error:
                # Files are written by code that knows the hidden name alone.
                raise PeError(str(error).replace(str(hidden), self.label)) from error
            except OSError as error:
                names = [error.filename, error.filename2]
                if error.filename is None or any(str(name).startswith(str(hidden)) for name in names):
                    raise cannot_write(self.label, error) from error
                raise
            finally:
                remove(hidden)
        finally:
            remove(hidden)
        if os.path.lexists(hidden):
            raise PeError(f"{self.label} is written; what it replaces cannot be removed, and is now {hidden}")

    def _put(self, hidden: Path, known: Collection[str]) -> None:
        """Give the finished folder its name."""
        if not self.force or not os.path.lexists(self.path):
            try:
                appear(hidden, self.path)
            except FileExistsError as error:
                if not self.force:
                    raise already_there(self.label) from error
            else:
                return
        # Again, as it may have changed or appeared meanwhile.
        self.check(known)
        with suppress(OSError):
            take_over(hidden, os.stat(self.path))
        flush(hidden)
        try:
            if not renamed(hidden, self.path, EXCHANGE):
                exchange(hidden, self.path)
        except OSError as error:
            raise cannot_write(self.label, error) from error
        with suppress(OSError):  # before the old one goes; not all file systems can
            _fsync(self.path.parent)


def names_in(folder: Path, known: Collection[str] | None = None) -> Iterator[str]:
    """The relative names of all below `folder`, with a slash behind folders; of one that is not `known` only its own."""
    for root, folders, files in os.walk(folder):
        base = Path(root).relative_to(folder)
        folders.sort()
        for name in list(folders):
            relative = f"{base / name}{os.sep}"
            if known is not None and relative not in known:
                folders.remove(name)
            yield relative
        yield from (str(base / name) for name in sorted(files))


def _same_as_any(path: Path, others: Collection[Path]) -> bool:
    """By identity, as names differ through mounts and where case does not count."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    for other in others:
        with suppress(OSError):
            if os.path.samestat(status, os.stat(other)):
                return True
    return False


def renamed(source: Path, target: Path, flag: int) -> bool:
    """Rename as `flag` says; False where that cannot be done in one step."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    if call(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(target))


def appear(source: Path, target: Path) -> None:
    """Rename to a name that must be free."""
    if renamed(source, target, NOREPLACE):
        return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    os.rename(source, target)


def exchange(new: Path, target: Path) -> None:
    """Put `new` in the place of `target` by two renames; if that fails or is interrupted, `target` stays what it was."""
    old = target.with_name(f".pe-{os.urandom(8).hex()}.old")
    # Twice for the same reason as in `Place.fill`.
    try:
        try:
            os.rename(target, old)
            os.rename(new, target)
        finally:
            _settle(old, target)
    finally:
        _settle(old, target)


def _settle(old: Path, target: Path) -> None:
    """Where nothing has the name `target`, `old` gets it back; else it goes."""
    if os.path.lexists(target):
        remove(old)
    elif os.path.lexists(old):
        try:
            os.rename(old, target)
        except OSError as error:
            raise PeError(f"{target} cannot be put back, and is now {old}: {error.strerror}") from error


def flush(folder: Path) -> None:
    """Let all files and folders reach the disk: what is replaced by them is there already."""
    for root, _, files in os.walk(folder):
        for name in files:
            path = Path(root, name)
            if not path.is_symlink():
                _fsync(path)
        with suppress(OSError):  # not all file systems can
            _fsync(Path(root))


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(folder: Path) -> None:
    """Remove a folder, as far as that can be done, with the folders in it that are read-only."""
    with suppress(OSError):
        os.chmod(folder, stat.S_IRWXU)
    for root, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(root, name)
            if not path.is_symlink():
                with suppress(OSError):
                    os.chmod(path, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


# Other copies of the weights: they would hold the old table.
STALE = (
    *("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.onnx?data", "*.ot", "*.gguf"),
    *("*.bin.index.json", "*.safetensors.index.json", "openvino_model*", "adapter_config.json"),
)
# What a trainer keeps beside the weights, which does not depend on the table.
TRAINER = ("training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth")
STALE_FOLDERS = ("onnx", "openvino", "coreml")
FILE, FOLDER, LINK = "file", "folder", "link"


@dataclass(frozen=True)
class CopiedEntry:
    """Something to copy: `path` in the old folder, `name` relative to both, and what it is to be in the new one."""

    path: Path
    name: str
    kind: str

    @property
    def listed(self) -> str:
        """As `names_in` gives it."""
        return self.name + os.sep * (self.kind == FOLDER)

    def copy(self, new: Path, *, link: bool = False) -> None:
        """Into the folder `new`, where the folder that holds this is already; with `link` files become hard links."""
        target = new / self.name
        if self.kind == FOLDER:
            os.mkdir(target, stat.S_IMODE(self.path.stat().st_mode) | stat.S_IRWXU)
        elif self.kind == LINK:
            os.symlink(os.readlink(self.path), target)
        else:
            same_file(self.path, target, link=link)


def of_a_trainer(name: str) -> bool:
    """Whether a file is of the training and not of the weights: arguments, schedule, random states."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in TRAINER)


def left_out(folder: Path, shards: Collection[str], index: str | None) -> set[str]:
    """The names in `folder` of weights but the `shards` and their `index`, and of links to such weights."""
    kept = {*shards, *([index] if index else ())}
    patterns = (*STALE, "*.safetensors") if any(name.endswith(".safetensors") for name in shards) else STALE
    gone = {
        path.name
        for path in folder.iterdir()
        if path.name in STALE_FOLDERS
        or (any(map(path.match, patterns)) and not path.is_dir() and not of_a_trainer(path.name))
    } - kept
    links = {name: leads for name in os.listdir(folder) if (leads := inner_link(folder, name)) is not None}
    while more := {name for name, leads in links.items() if leads.split(os.sep)[0] in gone} - gone:
        gone |= more
    return gone


def entries(folder: Path, top: Collection[str], gone: Collection[str]) -> Iterator[CopiedEntry]:
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
            if leads is None or leads.split(os.sep)[0] not in gone:
                yield entry


def same_file(source: Path, target: Path, *, link: bool = False) -> None:
    """A copy of a file that shares its blocks where the file system can (a reflink), or with `link` a hard link to it."""
    if link:
        with suppress(OSError):
            os.link(os.path.realpath(source), target)
            return
    with open(source, "rb") as old, open(target, "xb") as new:
        if not _cloned(old.fileno(), new.fileno()):
            output = OpenOutput(new.fileno(), str(target), 0)
            Copier(ByteInput(old.fileno(), str(source)), output).copy(0, 0)
    shutil.copystat(source, target)


def _cloned(old: int, new: int) -> bool:
    """Whether the new file could be made to share the blocks of the old one (Btrfs, XFS and others that copy on write)."""
    try:
        fcntl.ioctl(new, FICLONE, old)
    except OSError:
        return False
    return True


def inner_link(folder: Path, name: str) -> str | None:
    """Where in `folder` the link called `name` leads, if it still does so in a copy of the folder."""
    path = folder / name
    if not path.is_symlink() or os.path.isabs(text := os.readlink(path)):
        return None
    leads = os.path.normpath(os.path.join(os.path.dirname(name), text))
    return leads if leads.split(os.sep)[0] != os.pardir and os.path.lexists(folder / leads) else None


def _entry(folder: Path, name: str, above: list[tuple[int, int]], inside: bool) -> Iterator[CopiedEntry]:
    """One entry and what is below it; `inside`: not reached by a link to another place, where names mean other things."""
    path = folder / name
    try:
        status = os.stat(path)
    except OSError as error:
        if path.is_symlink():
            raise PeError(f"{path} is a link that leads nowhere: {error.strerror}; remove it") from error
        raise
    if inside and inner_link(folder, name) is not None:
        yield CopiedEntry(path, name, LINK)
    elif stat.S_ISREG(status.st_mode):
        yield CopiedEntry(path, name, FILE)
    elif not stat.S_ISDIR(status.st_mode):
        raise PeError(f"{path} is a pipe, a socket or a device, and cannot be copied; remove it")
    elif _identity(status) in above:
        raise PeError(f"{path} is a link to a folder that holds it, and cannot be copied; remove it")
    else:
        yield CopiedEntry(path, name, FOLDER)
        below = [*above, _identity(status)]
        for each in sorted(os.listdir(path)):
            yield from _entry(folder, os.path.join(name, each), below, inside and not path.is_symlink())


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# Where the weights are

# The files that hold the weights, in the order in which libraries look for them: (index of several, a single one).
WEIGHTS = (
    ("model.safetensors.index.json", "model.safetensors"),
    ("diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model.safetensors"),
    (None, "open_clip_model.safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model.bin"),
    ("diffusion_pytorch_model.bin.index.json", "diffusion_pytorch_model.bin"),
    (None, "open_clip_pytorch_model.bin"),
    (None, "tf_model.h5"),
)


def shards_of(folder: Path) -> tuple[list[str], str | None]:
    """The files that hold the weights, safetensors first, and the name of their index if they have one."""
    for index, single in WEIGHTS:
        if index is not None and (folder / index).is_file():
            return _named_by(folder / index), index
        if (folder / single).is_file():
            return [single], None
    files = sorted(path.name for path in folder.glob("*.safetensors") if not path.name.startswith("adapter_"))
    if len(files) == 1:
        return files, None
    if files:
        raise PeError(
            f"{folder} holds no model.safetensors, its index, or pytorch_model.bin; name one of {', '.join(files)}"
        )
    torch = sorted(
        path.name
        for ending in EXTENSIONS
        for path in folder.glob(f"*{ending}")
        if not of_a_trainer(path.name)
    )
    if len(torch) == 1:
        return torch, None
    raise PeError(_no_weights(folder, torch))


# What a folder holds instead of weights that pe extends, and what to do: (pattern, sentence).
INSTEAD = (
    (
        "adapter_config.json",
        "it is an adapter, and the tables are in its base model: extend that, and load or train the adapter on it",
    ),
    (
        "flax_model*.msgpack",
        "its weights are in Flax's MessagePack, which pe does not read: load them and save safetensors (from_flax=True)",
    ),
    (
        "tf_model*.h5",
        "its weights are TensorFlow's in several files: load them and save safetensors (from_tf=True)",
    ),
    (
        "*.onnx",
        "an ONNX graph has its shapes built in: extend the model it was exported from, and export that",
    ),
    (
        "*.gguf",
        "give the .gguf file itself, of which the table alone is written; or extend the model it was converted from",
    ),
    ("*.ckpt.index", "a checkpoint of TensorFlow is not read: save its weights as .h5 or .safetensors"),
)


def _no_weights(folder: Path, torch: list[str]) -> str:
    if torch:
        return f"{folder} holds {len(torch)} files of torch; name one of {', '.join(torch)}"
    below = [path.name for path in sorted(folder.iterdir()) if path.is_dir() and _has_weights(path)]
    if below:
        what = "holds no weights itself"
        if (folder / "model_index.json").is_file():
            what = "is a pipeline of diffusers"
        elif (folder / "modules.json").is_file():
            what = "is a model of sentence-transformers"
        return (
            f"{folder} {what}: its models are in {', '.join(below)}; extend the one that has the table, as in "
            f"`pe extend {folder / below[0]} …`, and put the result in its place"
        )
    for pattern, sentence in INSTEAD:
        if any(folder.glob(pattern)):
            return f"{folder} holds no weights that can be extended: {sentence}"
    return f"{folder} holds no model.safetensors, its index, or pytorch_model.bin"


def _has_weights(path: Path) -> bool:
    with suppress(PeError):
        return bool(shards_of(path)[0])
    return False


def _named_by(index: Path) -> list[str]:
    """The files that an index names, all of them there and in its own folder."""
    data = read_object(index)
    weights = data.get("weight_map")
    if not isinstance(weights, dict):
        raise PeError(
            f"{index}: weight_map is {json.dumps(weights)[:40]}, not an object of tensor and file names"
        )
    for tensor, name in weights.items():
        if not isinstance(name, str):
            raise PeError(
                f"{index}: weight_map gives {json.dumps(name)[:40]} for {tensor}, not the name of a file"
            )
        if os.sep in name or name.startswith("."):
            raise PeError(f"{index} names {name}, which is outside the folder")
        if not (index.parent / name).is_file():
            raise PeError(f"{index} names {json.dumps(name)[:40]}, which is not there")
    if not weights:
        raise PeError(f"{index} names no files: weight_map is empty")
    if not isinstance(data.get("metadata"), (dict, type(None))):
        raise PeError(f"{index}: metadata is {json.dumps(data['metadata'])[:40]}, not an object")
    return sorted(set(weights.values()))
