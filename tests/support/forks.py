"""`pe` run in forks of a process that has imported it: what it reads, writes and returns is that of a process of its
own, but the start, which takes longer than most tests, is paid once.

The process is this file as a program. It has no threads and runs nothing itself, so that a fork has the state of a
program that has just started. Where an environment or standard streams matter, a test starts a process of its own.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LIBRARIES = (
    "h5py",
    "ml_dtypes",
    "safetensors",
    "rich.table",
    "scipy.io",
    "scipy.linalg",
    "scipy.sparse.csgraph",
    "scipy.sparse.linalg",
    "networkx",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
)


class Forks:
    """The process whose forks run `pe`, and the way to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def run(
        self, argv: Sequence[str], folder: Path, stdin: bytes = b"", timeout: float = 120
    ) -> subprocess.CompletedProcess[bytes]:
        """What `pe` with these words returns and says, in a folder."""
        pipes = [os.pipe() for _ in range(3)]
        (given, feed), (out, to_out), (err, to_err) = pipes
        said: dict[int, bytes] = {}
        threads = [threading.Thread(target=_feed, args=(feed, stdin))]
        threads += [threading.Thread(target=lambda fd=fd: said.update({fd: _drain(fd)})) for fd in (out, err)]
        request = json.dumps([list(argv), str(folder)]).encode() + b"\n"
        try:
            socket.send_fds(self._socket, [request[:1]], [given, to_out, to_err])
            self._socket.sendall(request[1:])
        finally:
            for fd in (given, to_out, to_err):
                os.close(fd)
        for thread in threads:
            thread.start()
        self._socket.settimeout(timeout)
        try:
            status = int.from_bytes(self._socket.recv(2), "little")
        except TimeoutError:
            self.close()
            raise
        for thread in threads:
            thread.join()
        return subprocess.CompletedProcess(
            ["pe", *argv], os.waitstatus_to_exitcode(status), said[out], said[err]
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()


def _feed(fd: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(fd, "wb") as stream:
        stream.write(data)


def _drain(fd: int) -> bytes:
    with open(fd, "rb") as stream:
        return stream.read()


def _import_all() -> None:
    from pe_cli import catalogue

    for name in catalogue.CATALOGUE:
        catalogue.load(name)
    for name in ("gen", "model", "inspect", "extend", "diff"):
        importlib.import_module(f"pe_cli.commands.{name}")
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)


def _serve(connection: socket.socket) -> None:
    while True:
        start, streams, _, _ = socket.recv_fds(connection, 1, 3)
        if not start:
            return
        request = bytearray(start)
        while not request.endswith(b"\n"):
            request += connection.recv(1 << 16)
        child = os.fork()
        if child == 0:
            connection.close()
            _run(*json.loads(request), streams)
        for fd in streams:
            os.close(fd)
        connection.sendall(os.waitpid(child, 0)[1].to_bytes(2, "little"))


def _run(argv: list[str], folder: str, streams: list[int]) -> None:
    """Be `pe`: this does not return."""
    from pe_cli.__main__ import main

    code = 2
    try:
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
            os.close(fd)
        os.chdir(folder)
        sys.argv = ["pe", *argv]
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        with suppress(OSError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.path[0] = ""  # not the folder of this file, whose modules are those of tests
    _import_all()
    _serve(socket.socket(fileno=int(sys.argv[1])))
