"""Try something in a child process that might take the process down."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress


def survives(work: Callable[[], object], *, cpu_seconds: int) -> bool:
    """Whether a child process does `work` without being killed by a signal, in `cpu_seconds` of processor time.

    An exception is an answer too. Where processes cannot be forked safely, nothing is tried.
    """
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return True
    with warnings.catch_warnings():
        # The threads that Python warns of are those of the linear algebra library, which the child does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _work_and_exit(work, cpu_seconds)
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return not os.WIFSIGNALED(status)


def _work_and_exit(work: Callable[[], object], cpu_seconds: int) -> None:
    import resource

    with suppress(BaseException):
        faulthandler.disable()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        work()
    os._exit(0)
