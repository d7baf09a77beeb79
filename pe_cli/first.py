"""The first lines of the command `pe`: its version, and that a signal from here on ends it without a word, until there
is something to tidy up.

Only what Python has loaded already is imported. A program that imports the package keeps its signals.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys

__version__ = "0.2.0.dev0"

SIGNALS = {  # that end the process, as far as the system has them, and the exit code after each
    getattr(_signal, name): 128 + getattr(_signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(_signal, name)
}


def is_command() -> bool:
    """Whether this process was started as `pe` or `python -m pe_cli`, not as something that imports the package."""
    started = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return started in ("pe", "pe.exe") or (started == "-m" and "pe_cli" in sys.orig_argv)


def heard() -> dict[int, int]:
    """The signals that whoever started this process did not tell it to ignore (as nohup does), with their exit codes."""
    return {
        number: code for number, code in SIGNALS.items() if _signal.getsignal(number) is not _signal.SIG_IGN
    }


def end_at_once() -> None:
    """Let signals end the process on the spot."""
    for number, code in heard().items():
        _signal.signal(number, lambda *_, code=code: os._exit(code))


if is_command():
    end_at_once()
