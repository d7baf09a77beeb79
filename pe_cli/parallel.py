"""One loop over futures: a function applied to many items in several processes, results in the order of the items.

    with mapping(workers=2) as run:
        for block in run(function, items):
            ...

The processes are a pool of this machine or the workers of a Dask cluster. As many items are on their way as keep all of
them busy, so neither the items nor the results are ever all in memory. A worker that is killed costs a repetition.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from pe_cli.errors import PeError, parameter
from pe_cli.process import step

Run: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
MOST_WORKERS = 1024
REBUILDS = 3  # of a pool whose workers were killed
CONNECT = 10  # seconds
ONE_THREAD = "OPENBLAS_NUM_THREADS"


@contextmanager
def mapping(workers: int | None = None, dask: str | None = None) -> Iterator[Run]:
    """A function like `map` that computes in `workers` processes, or on the cluster whose scheduler is at `dask`."""
    if workers is not None and dask is not None:
        raise PeError(
            f"{parameter('workers')} and {parameter('dask')} both say who computes: give one of them"
        )
    if dask is not None:
        with _cluster(dask) as client:
            yield lambda function, items: _in_order(_Cluster(client, function), items)
    elif workers is not None and workers != 1:
        if not 0 < workers <= MOST_WORKERS:
            raise PeError(f"{parameter('workers')} {workers}: give 1 to {MOST_WORKERS}")
        yield lambda function, items: _in_order(_Pool(workers, function), items)
    else:
        yield map


class _Computers(Protocol):
    """Who computes: `ahead` items are on their way at once."""

    @property
    def ahead(self) -> int: ...

    def submit(self, item: Any) -> Any: ...

    def result(self, waiting: deque[list[Any]]) -> Any:
        """The result of the first of the entries [item, future]."""

    def close(self) -> None: ...


def _in_order(computers: _Computers, items: Iterable[Any]) -> Iterator[Any]:
    waiting: deque[list[Any]] = deque()
    try:
        for item in items:
            waiting.append([item, computers.submit(item)])
            if len(waiting) >= computers.ahead:
                yield _value(computers.result(waiting))
                waiting.popleft()
        while waiting:
            yield _value(computers.result(waiting))
            waiting.popleft()
    finally:
        computers.close()


def _call(function: Callable[[Any], Any], item: Any) -> tuple[str, Any]:
    """What a worker does: errors come back as text, since not every exception can be sent."""
    try:
        return "value", function(item)
    except PeError as error:
        return "error", error.args[0]


def _value(answer: tuple[str, Any]) -> Any:
    kind, value = answer
    if kind == "error":
        raise PeError(value)
    return value


# Processes of this machine

_function: list[Callable[[Any], Any]] = []  # in a worker: what it applies


def _prepare(parent: int, function: bytes) -> None:
    """In a new worker: leave signals to the parent, and end when it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _function.append(pickle.loads(function))


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _apply(item: Any) -> tuple[str, Any]:
    return _call(_function[0], item)


class _Pool:
    """A pool of processes; one that lost a worker is broken as a whole, and made anew."""

    def __init__(self, workers: int, function: Callable[[Any], Any]) -> None:
        self.ahead = 2 * workers + 2
        self._workers, self._function, self._rebuilt = workers, pickle.dumps(function), 0
        self._pool = self._new()

    def _new(self) -> Any:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        return ProcessPoolExecutor(
            self._workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(os.getpid(), self._function),
        )

    def submit(self, item: Any) -> Any:
        from concurrent.futures.process import BrokenProcessPool

        try:
            return self._pool.submit(_apply, item)
        except BrokenProcessPool:
            return None  # submitted again with all others when the first of them is asked for

    def result(self, waiting: deque[list[Any]]) -> Any:
        from concurrent.futures.process import BrokenProcessPool

        while True:
            try:
                if waiting[0][1] is not None:
                    return waiting[0][1].result()
            except BrokenProcessPool:
                pass
            self._rebuild(waiting)

    def _rebuild(self, waiting: deque[list[Any]]) -> None:
        self._rebuilt += 1
        if self._rebuilt > REBUILDS:
            raise PeError(
                f"worker processes were killed {self._rebuilt} times (out of memory?): use fewer {parameter('workers')}"
            )
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._new()
        for entry in waiting:
            future = entry[1]
            if future is None or not future.done() or future.cancelled() or future.exception() is not None:
                entry[1] = self._pool.submit(_apply, entry[0])

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


# A Dask cluster


def about_worker() -> tuple[str, str, str | None]:
    """In a worker: the versions of pe and numpy, and how many threads its BLAS may use."""
    import numpy as np

    from pe_cli.first import __version__

    return __version__, np.__version__, os.environ.get(ONE_THREAD)


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError:
        raise PeError(f"{parameter('dask')} needs dask.distributed: pip install 'pe-cli[cluster]'") from None
    import logging

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    what = f"{parameter('dask')} {address}"
    connect: Any = Client
    try:
        client: Any = connect(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        about_tls = "; tls:// needs distributed.comm.tls certificates" if address.startswith("tls") else ""
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise PeError(f"{what}: no scheduler answers there ({reason}){about_tls}") from None
    try:
        _require_same(client, what)
        yield client
    finally:
        client.close(timeout=2)


def _require_same(client: Any, what: str) -> None:
    """An error for a cluster without workers, or with another version on one of them."""
    try:
        client.wait_for_workers(1, timeout=CONNECT)
    except Exception:  # its type differs between releases of distributed
        raise PeError(
            f"{what} has no workers: start some, for example `dask worker {what.split()[-1]}`"
        ) from None
    try:
        found = client.run(about_worker)
    except Exception as error:  # whatever a worker that lacks the package raises
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise PeError(
            f"{what}: its workers cannot run pe ({reason}); install the same pe-cli there"
        ) from None
    ours = about_worker()
    for worker, theirs in found.items():
        if theirs[:2] != ours[:2]:
            raise PeError(
                f"{what}: worker {worker} has pe {theirs[0]} and numpy {theirs[1]}, here are {ours[0]} and {ours[1]}: "
                "install the same on both"
            )
        if theirs[2] != "1":
            raise PeError(
                f"{what}: worker {worker} was started without {ONE_THREAD}=1, so its last bits would differ: export it"
            )


class _Cluster:
    """The workers of a cluster, which repeats by itself what a killed worker did not finish."""

    def __init__(self, client: Any, function: Callable[[Any], Any]) -> None:
        self._client, self._function = client, function

    @property
    def ahead(self) -> int:
        return int(2 * max(1, len(self._client.scheduler_info(n_workers=-1)["workers"])) + 2)

    def submit(self, item: Any) -> Any:
        return self._client.submit(_call, self._function, item, pure=False)

    def result(self, waiting: deque[list[Any]]) -> Any:
        from distributed import KilledWorker

        future = waiting[0][1]
        while True:
            try:
                return future.result(timeout=CONNECT)
            except TimeoutError:
                if not self._client.scheduler_info(n_workers=-1)["workers"]:
                    step("waiting for workers of the cluster", 0)
            except KilledWorker as error:
                raise PeError(
                    f"the cluster gave up: the workers of one block were killed again and again ({error})"
                ) from None

    def close(self) -> None:
        """Futures that nobody waits for any more are let go with their references."""
