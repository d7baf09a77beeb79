"""Runs command lines of `pe`, each in a process of its own that is forked from one with everything imported.

Reads one JSON object a line: argv, cwd, and the seconds it may take and the bytes, of memory and in a
file; `stdin` is a file to read, `onto` and `complain` are files that stdout and stderr are appended to. Answers with its exit code, its
largest resident size, and what it wrote. A fork costs milliseconds where a start costs a second.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time

from pe_cli import cli, structures
from pe_cli import extend as surgery
from pe_cli.catalogue import CATALOGUE, load
from pe_cli.commands import diff, extend, gen, inspect, model

SHOWN = 1 << 20
WARM = (structures, surgery, gen, diff, extend, inspect, model, [load(name) for name in CATALOGUE])


def child(job: dict[str, object], out: int, err: int) -> None:
    for name, limit in (
        ("RLIMIT_AS", job["bytes"]),
        ("RLIMIT_FSIZE", job["bytes"]),
        ("RLIMIT_CPU", job["seconds"]),
    ):
        resource.setrlimit(getattr(resource, name), (limit, limit))
    source = os.open(str(job.get("stdin") or os.devnull), os.O_RDONLY)
    if "onto" in job:  # as by >> of a shell
        out = os.open(str(job["onto"]), os.O_WRONLY | os.O_APPEND)
    if "complain" in job:
        err = os.open(str(job["complain"]), os.O_WRONLY | os.O_APPEND)
    for given, wanted in ((source, 0), (out, 1), (err, 2)):
        os.dup2(given, wanted)
    os.chdir(str(job["cwd"]))
    os.environ.update(job.get("env") or {})  # type: ignore[call-overload]
    sys.argv = ["pe", *(os.fsdecode(word.encode("latin-1")) for word in job["argv"])]  # type: ignore[attr-defined]
    cli.main()


def run(job: dict[str, object]) -> dict[str, object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.monotonic()
        process = os.fork()
        if not process:
            code = 70
            try:
                signal.alarm(4 * int(job["seconds"]))  # type: ignore[call-overload]
                child(job, out.fileno(), err.fileno())
            except SystemExit as done:
                code = done.code if isinstance(done.code, int) else 71
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status, usage = os.wait4(process, 0)
        out.seek(0)
        err.seek(0)
        output = out.read()
        return {
            "code": os.waitstatus_to_exitcode(status),
            "stdout": len(output),
            "output": output[:SHOWN].decode("utf-8", "replace"),
            "stderr": err.read().decode("utf-8", "replace"),
            "kilobytes": usage.ru_maxrss,
            "seconds": time.monotonic() - begun,
        }


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
