"""How fast `pe` is beside the usual tools, measured within one run: `python tools/benchmark.py`.

Every comparison runs its commands in turn, in a new order each round, each output removed before; a ratio is the
median of the ratios within rounds, with the smallest and the largest. Peak memory is that of the process. This script
itself needs nothing but Python, so that it does not weigh on what it measures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PYTHON = sys.executable
PE = (PYTHON, "-m", "pe_cli")


@dataclass(frozen=True)
class Contender:
    """A command to measure: words, or a line for the shell; `output` is removed before each run.

    With `inner` it is a Python script that prints the seconds of its own work, imports and setting up left out.
    """

    name: str
    argv: Sequence[str] | str
    output: Path | None = None
    inner: bool = False


@dataclass
class Figures:
    """What one command took, round by round: seconds by the clock, of the processor, and MiB at the peak."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)


def measure(contender: Contender, folder: Path) -> tuple[float, float, float]:
    """Run it once: wall and processor seconds with those of its children, and peak memory in MiB."""
    if contender.output is not None:
        contender.output.unlink(missing_ok=True)
    shell = isinstance(contender.argv, str)
    began = time.perf_counter()
    process = subprocess.Popen(
        contender.argv,
        shell=shell,
        cwd=folder,
        stdout=subprocess.PIPE if contender.inner else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    complaint = process.stderr.read()
    told = process.stdout.read() if process.stdout is not None else b""
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code
    process.stderr.close()
    if code != 0:
        sys.exit(f"{contender.name}: exit {code}: {complaint.decode(errors='replace')[-500:]}")
    cpu = used.ru_utime + used.ru_stime
    if contender.inner:
        wall, cpu = map(float, told.split())
    return wall, cpu, used.ru_maxrss / 1024


def compare(contenders: Sequence[Contender], rounds: int, folder: Path) -> dict[str, Figures]:
    """All of them in every round, starting with another one each time; the first round only warms up."""
    found = {contender.name: Figures() for contender in contenders}
    for turn in range(rounds + 1):
        start = turn % len(contenders)
        for contender in [*contenders[start:], *contenders[:start]]:
            wall, cpu, peak = measure(contender, folder)
            if turn:
                figures = found[contender.name]
                figures.wall.append(wall)
                figures.cpu.append(cpu)
                figures.peak.append(peak)
    for contender in contenders:
        if contender.output is not None:
            contender.output.unlink(missing_ok=True)
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The median of the ratios within rounds, and their range."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"


def show(title: str, found: dict[str, Figures], goal: str) -> None:
    """A table in Markdown: the first contender is ours, the ratios are ours over theirs."""
    ours = next(iter(found.values()))
    print(f"\n### {title}\n\nGoal: {goal}.\n")
    print("| | wall s | CPU s | peak MiB | wall, ours / this | CPU, ours / this |")
    print("|---|---|---|---|---|---|")
    for name, figures in found.items():
        same = figures is ours
        cells = [
            f"{statistics.median(figures.wall):.3f}",
            f"{statistics.median(figures.cpu):.3f}",
            f"{statistics.median(figures.peak):.0f}",
            "" if same else ratio(ours.wall, figures.wall),
            "" if same else ratio(ours.cpu, figures.cpu),
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def has(module: str) -> bool:
    """Whether this Python can import `module`."""
    return subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode == 0


START = """
import time
began = time.perf_counter(), time.process_time()
"""
TELL = """
print(time.perf_counter() - began[0], time.process_time() - began[1])
"""
TEXTBOOK = """
import numpy as np
angles = np.arange({rows})[:, None] * 10000.0 ** (-np.arange(64) / 64)
table = np.empty(({rows}, 128), np.float32)
table[:, 0::2], table[:, 1::2] = np.cos(angles), np.sin(angles)
{then}
"""
TORCH = """
frequencies = 1.0 / (10000.0 ** (torch.arange(0, 128, 2).float() / 128))
angles = torch.outer(torch.arange({rows}).float(), frequencies)
table = torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(1)
"""
FILL = """
import numpy as np
table = np.empty(({rows}, 128), np.float32)
table.fill(0.5)
{then}
"""
BLOCKS = """
import numpy as np
from pe_cli import positions
from pe_cli.encodings.rope.rotary import rope
from pe_cli.tables import RowTable
table = RowTable(rope, {{"dim": 128}}, positions.first({rows}), "float32")
for block in table.blocks(("rope",)):
    pass
"""
BARE_TYPER = """
import typer
app = typer.Typer(add_completion=False, rich_markup_mode=None)
@app.command()
def hello(name: str = "x"):
    print(name)
app()
"""
CHECKPOINT = """
import numpy as np
from safetensors.numpy import save_file
rows = {mib} * 256
half = np.zeros((rows // 2, 1024), np.float32)
table = np.random.default_rng(0).normal(size=(4096, 1024)).astype(np.float32)
save_file({{"a.weight": half, "embeddings.position_embeddings.weight": table, "z.weight": half}}, "model.safetensors")
"""
TABLES = """
import h5py
import numpy as np
table = np.random.default_rng(0).normal(size=({rows}, 128)).astype(np.float32)
other = table + np.float32(1e-6)
for name, array in (("a", table), ("same", table), ("b", other)):
    np.save(name + ".npy", array)
    with h5py.File(name + ".h5", "w") as file:
        file["x"] = array
"""
ACCURACY = """
import random
import mpmath
import numpy as np
from pe_cli import rope
mpmath.mp.dps = 60
draw = random.Random(0)
for limit in (4096, 10**6, 10**7):
    rows = np.array([draw.randrange(limit) for _ in range({count})])
    pairs = np.array([draw.randrange(64) for _ in range({count})])
    exact = [mpmath.cos(int(p) * mpmath.mpf(10000) ** (-mpmath.mpf(int(i)) / 64)) for p, i in zip(rows, pairs)]
    rounded = np.array([np.float32(float(value)) for value in exact])
    ours = np.asarray(rope(rows, dim=128))[np.arange({count}), 2 * pairs]
    usual = np.cos(rows.astype(np.float32) * (1 / np.float32(10000) ** (pairs.astype(np.float32) / 64)))
    for name, values in (("pe", ours), ("float32 angles", usual)):
        right = (values == rounded).mean()
        error = max(abs(float(value) - want) for value, want in zip(values.tolist(), exact))
        print(f"| below {{limit}} | {{name}} | {{100 * right:.2f}} % | {{float(error):.2g}} |")
"""


def accuracy(size: float, rounds: int, folder: Path) -> None:
    """Share of values that are correctly rounded."""
    print(
        "\n### Float32 values against a reference of 60 digits\n\nGoal: 100 % correctly rounded up to 10^7.\n"
    )
    if not has("mpmath"):
        print("mpmath is not installed.")
        return
    print("| positions | | correctly rounded | largest error |\n|---|---|---|---|", flush=True)
    count = max(200, int(4000 * size))
    print(subprocess.check_output([PYTHON, "-c", ACCURACY.format(count=count)], text=True).rstrip())


def kernel(size: float, rounds: int, folder: Path) -> None:
    """The table alone, not written."""
    rows = int(1048576 * size)
    contenders = [
        timed("pe, block by block", "import numpy", BLOCKS.format(rows=rows)),
        timed("filling an array of that size", "import numpy", FILL.format(rows=rows, then="")),
        timed("numpy, cos and sin in float64", "import numpy", TEXTBOOK.format(rows=rows, then="")),
    ]
    if has("torch"):
        contenders.append(timed("torch in float32", "import torch", TORCH.format(rows=rows)))
    goal = "at most 3x the CPU of the filling, a tenth of numpy's"
    show(f"{rows} x 128 float32, computed and not written", compare(contenders, rounds, folder), goal)


def timed(name: str, before: str, work: str, output: Path | None = None) -> Contender:
    """A script of which only `work` is measured."""
    return Contender(name, (PYTHON, "-c", f"{before}{START}{work}{TELL}"), output, inner=True)


def generate(size: float, rounds: int, folder: Path) -> None:
    """The table in a file."""
    rows = int(1048576 * size)
    save = "np.save('theirs.npy', table)"
    theirs = folder / "theirs.npy"
    contenders = [
        Contender(
            f"pe gen rope -o x.{suffix}", (*PE, *rope_words(rows), f"x.{suffix}"), folder / f"x.{suffix}"
        )
        for suffix in ("npy", "safetensors", "h5")
    ]
    piped = f"{PYTHON} -m pe_cli {' '.join(rope_words(rows))} - | cat > y"
    contenders += [
        timed("np.save of a ready array, alone", FILL.format(rows=rows, then=""), save, theirs),
        Contender("numpy: cos, sin, np.save", (PYTHON, "-c", TEXTBOOK.format(rows=rows, then=save)), theirs),
        Contender("pe gen rope, through cat", piped, folder / "y"),
    ]
    goal = "not above np.save, at most 0.25 of the textbook way, at most 100 MiB"
    show(f"{rows} x 128 float32 ({rows // 2048} MiB) in a file", compare(contenders, rounds, folder), goal)


def rope_words(rows: int) -> list[str]:
    return ["gen", "rope", "--len", str(rows), "--dim", "128", "-q", "-o"]


def extend(size: float, rounds: int, folder: Path) -> None:
    """A checkpoint with a longer table."""
    mib = int(2048 * size)
    subprocess.run([PYTHON, "-c", CHECKPOINT.format(mib=mib)], cwd=folder, check=True)
    words = "extend model.safetensors --len 16384 --method linear -q -o".split()
    piped = f"cat model.safetensors | {PYTHON} -m pe_cli extend - --len 16384 --method linear -q > y"
    contenders = [
        Contender("pe extend", (*PE, *words, "x.safetensors"), folder / "x.safetensors"),
        Contender("cp", ("cp", "model.safetensors", "y"), folder / "y"),
        Contender("cat into a file", "cat model.safetensors > y", folder / "y"),
        Contender("pe extend in a pipe", piped, folder / "y"),
        Contender("cat in a pipe", "cat model.safetensors | cat > y", folder / "y"),
    ]
    found = compare(contenders, rounds, folder)
    pipes = {name: found.pop(name) for name in list(found) if name.endswith("in a pipe")}
    title = f"A checkpoint of {mib} MiB, table from 16 to 64 MiB"
    show(title, found, "at most 1.1x cp, at most 100 MiB and twice the table")
    show(f"{title}, in a pipe", pipes, "at most 1.1x cat, at most 100 MiB and twice the table")
    (folder / "model.safetensors").unlink()


def difference(size: float, rounds: int, folder: Path) -> None:
    """Two tables compared."""
    rows = int(1048576 * size)
    subprocess.run([PYTHON, "-c", TABLES.format(rows=rows)], cwd=folder, check=True)
    allclose = "import numpy as np; np.allclose(np.load('a.npy'), np.load('b.npy'), 0, 1e-3)"
    contenders = [
        Contender("pe diff --atol 1e-3", (*PE, "diff", "a.npy", "b.npy", "--atol", "1e-3", "-q")),
        Contender("cmp, equal files", ("cmp", "a.npy", "same.npy")),
        Contender("np.allclose", (PYTHON, "-c", allclose)),
    ]
    small = "import numpy as np; np.save('small.npy', np.zeros((8, 128), np.float32))"
    subprocess.run([PYTHON, "-c", small], cwd=folder, check=True)
    start = Contender("pe diff of two small tables", (*PE, "diff", "small.npy", "small.npy", "-q"))
    contenders.append(start)
    equal = [
        Contender("pe diff, equal files", (*PE, "diff", "a.npy", "same.npy", "-q")),
        Contender("cmp, equal files", ("cmp", "a.npy", "same.npy")),
        start,
    ]
    if shutil.which("h5diff"):
        contenders.insert(2, Contender("h5diff -d 1e-3", ("h5diff", "-q", "-d", "1e-3", "a.h5", "b.h5")))
        equal.insert(2, Contender("h5diff", ("h5diff", "-q", "a.h5", "same.h5")))
    mib = rows // 2048
    goal = "at most 3x cmp, the start, the search and a reading for each cause told; at most 100 MiB"
    show(f"Two different tables of {mib} MiB", compare(contenders, rounds, folder), goal)
    show(f"Two equal tables of {mib} MiB", compare(equal, rounds, folder), "at most 1x cmp and the start")
    for path in [*folder.glob("*.npy"), *folder.glob("*.h5")]:
        path.unlink()


def start(size: float, rounds: int, folder: Path) -> None:
    """What short commands cost."""
    typer = folder / "bare_typer.py"
    typer.write_text(BARE_TYPER)
    save = "np.save('theirs.npy', table)"
    theirs = folder / "theirs.npy"
    script = TEXTBOOK.format(rows=4096, then=save)
    rounds = 4 * rounds
    show(
        "Help",
        compare(
            [
                Contender("pe --help", (*PE, "--help")),
                Contender("a bare Typer app --help", (PYTHON, str(typer), "--help")),
                Contender("python -c pass", (PYTHON, "-c", "pass")),
            ],
            rounds,
            folder,
        ),
        "at most 1.3x the bare app",
    )
    show(
        "A small table: 4096 x 128",
        compare(
            [
                Contender("pe gen rope -o x.npy", (*PE, *rope_words(4096), "x.npy"), folder / "x.npy"),
                Contender("numpy script", (PYTHON, "-c", script), theirs),
                Contender("import numpy", (PYTHON, "-c", "import numpy")),
            ],
            rounds,
            folder,
        ),
        "at most 1.7x the script",
    )


SECTIONS: dict[str, Callable[[float, int, Path], None]] = {
    "accuracy": accuracy,
    "start": start,
    "kernel": kernel,
    "generate": generate,
    "extend": extend,
    "diff": difference,
}


def main() -> None:
    """Run the sections asked for and print their tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sections", nargs="*", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument(
        "--folder", type=Path, help="where the large temporary files go (default: a temp folder)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison")
    parser.add_argument("--size", type=float, default=1.0, help="share of the full sizes (512 MiB, 2 GiB)")
    asked = parser.parse_args()
    unknown = [name for name in asked.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    with tempfile.TemporaryDirectory(prefix="pe-benchmark-", dir=asked.folder) as folder:
        for name in asked.sections or SECTIONS:
            SECTIONS[name](asked.size, asked.rounds, Path(folder))


if __name__ == "__main__":
    main()
