"""Whole command lines for an hour: `PYTHONPATH=.:tests/support:tests/faults python tests/faults/hour.py [SECONDS] [SEED]`.

Each line is one that works with other values that should work, and in less than half of the cases with something wrong in
it: an odd value, an option of anything, a file that is cut, garbled or another one. Every line has 1 GB of memory and 20
seconds. Prints one JSON object for each kind of finding, and at the end how many lines there were and how many worked.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from conftest import Done, Launch, fill, launcher
from fuzzing import mutated
from lines import BY_NAME, check, some_options
from test_source_lines import LINES, add_models, any_array, state

from pe_cli.catalogue import CATALOGUE
from pe_cli.files.sources import open_source

BYTES = 1 << 30
SECONDS = 20
LARGEST_LENGTH = 64
GRAPHS = {
    "plain.tsv": "0\t1\n1\t2\n2\t3\n3\t0\n0\t2\n",
    "weights.csv": "source,target,weight\n0,1,0.5\n1,2,2\n2,0,1\n",
    "names.txt": "anna bert\nbert carl\ncarl anna\n",
    "zero.tsv": "0 1 0\n1 2 1\n2 3 0.5\n",
    "both.tsv": "0 1\n1 0\n1 2\n2 1\n",
    "sym.mtx": "%%MatrixMarket matrix coordinate real symmetric\n% a\n4 4 3\n2 1 1.5\n3 1 2\n4 3 1\n",
    "dense.mtx": "%%MatrixMarket matrix array real general\n2 2\n0\n1\n1\n0\n",
    "links.json": '{"directed": false, "nodes": [{"id": 0}, {"id": "b"}, {"id": "c"}], "edges": [{"source": 0, "target": "b"}, {"source": "b", "target": "c", "weight": 2}]}',
    "g.graphml": '<graphml><key id="w" for="edge" attr.name="weight" attr.type="double"/><graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>'
    '<edge source="a" target="b"><data key="w">2.5</data></edge><edge source="b" target="c"/></graph></graphml>',
    "g.gml": 'graph [\n node [ id 1 label "a" ]\n node [ id 2 label "b" ]\n node [ id 3 label "c" ]\n edge [ source 1 target 2 ]\n edge [ source 2 target 3 weight 2.0 ]\n]\n',
    "g.net": '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n*Edges\n1 2 1.5\n2 3\n',
    "edge_index.npy": None,
}  # fmt: skip
TREES = ("parse.txt", "parse.conllu", "good.json", "good.heads", "good.py")
MODELS = ("llama/config.json", "llama", "gemma3.json --layer-type full_attention", "t5.json", "mpt.json")
CONFIGURATIONS = {
    "gemma3.json": {"model_type": "gemma3_text", "head_dim": 16, "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 1e6,
                    "rope_local_base_freq": 1e4, "max_position_embeddings": 256, "num_hidden_layers": 6, "sliding_window_pattern": 6},
    "t5.json": {"model_type": "t5", "num_heads": 4, "d_model": 64, "d_kv": 16, "relative_attention_num_buckets": 8},
    "mpt.json": {"model_type": "mpt", "n_heads": 4, "d_model": 64, "max_seq_len": 128, "attn_config": {"alibi": True}},
}  # fmt: skip
KINDS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
TARGETS = ("new.npz", "new.h5", "new.safetensors", "new.npy")


class Lines:
    """Makes command lines over the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = fill(folder)
        self.sources = add_models(folder)
        for name, text in GRAPHS.items():
            if text is not None:
                (folder / name).write_text(text)
        for name, config in CONFIGURATIONS.items():
            (folder / name).write_text(json.dumps(config))
        (folder / "good.json").write_text(
            '{"label": "S", "children": [{"label": "a"}, {"label": "b", "children": ["c"]}]}'
        )
        (folder / "good.heads").write_text("2 0 2\n0 1\n")
        (folder / "good.py").write_text("def f(a, *b):\n    return [a for a in b if a]\n")
        self.examples = [self._example(name) for name in CATALOGUE]

    def _example(self, name: str) -> list[str]:
        words = shlex.split(CATALOGUE[name].arguments)
        words = words[: words.index("-o")] if "-o" in words else words
        for at, word in enumerate(words[:-1]):
            if word in ("--len", "--q-len", "--k-len") and words[at + 1].isdecimal():
                words[at + 1] = str(min(int(words[at + 1]), LARGEST_LENGTH))
        return ["gen", name, *words]

    def one(self, chance: Random) -> tuple[list[str], bool]:
        """A command line, and whether it should work."""
        kind = chance.choices(("gen", "model", "inspect", "extend", "diff"), (10, 3, 2, 3, 2))[0]
        if kind == "gen":
            argv = self._gen(chance)
        elif kind == "model":
            argv = [
                "gen",
                "model",
                *shlex.split(chance.choice(MODELS)),
                "--len",
                str(chance.randint(1, LARGEST_LENGTH)),
            ]
        else:
            argv = [kind, *shlex.split(chance.choice(LINES[kind]))]
        wrong = chance.random() < 0.42
        if wrong:
            self._spoil(argv, chance)
        if chance.random() < 0.2:
            argv.append("--json")
        if chance.random() < 0.1 and argv[0] != "inspect":
            argv.append("-q")
        if argv[0] in ("gen", "extend") and chance.random() < 0.8:
            argv += ["-o", chance.choice(TARGETS)]
        if chance.random() < 0.01:
            argv += ["--plot", "new.svg"]
        return argv, not wrong

    def _gen(self, chance: Random) -> list[str]:
        argv = list(chance.choice(self.examples))
        if argv[1] in CATALOGUE and CATALOGUE[argv[1]].family == "structural" and not argv[2].startswith("-"):
            tree = argv[1] in ("tree", "dependency")
            argv[2] = chance.choice(TREES if tree else list(GRAPHS))
        for at, word in enumerate(argv[:-1]):
            if (
                word in ("--len", "--k-len", "--steps", "--dim")
                and chance.random() < 0.5
                and argv[at + 1].isdecimal()
            ):
                argv[at + 1] = str(max(2, int(argv[at + 1]) // chance.choice((1, 2, 4))))
        if chance.random() < 0.2 and argv[1] in (
            "rope",
            "sinusoidal",
            "alibi",
            "learned",
            "fourier",
            "laplacian",
            "random-walk",
        ):
            argv += ["--dtype", chance.choice(KINDS)]
        return argv

    def _spoil(self, argv: list[str], chance: Random) -> None:
        files = [at for at, word in enumerate(argv) if (self.folder / word.split(":")[0]).is_file()]
        what = chance.randrange(4)
        if what == 0 and files:
            at = chance.choice(files)
            name = argv[at].split(":")[0]
            made = f"changed{Path(name).suffix}"
            (self.folder / made).write_bytes(mutated((self.folder / name).read_bytes(), chance))
            argv[at] = made
        elif what == 1 and files:
            (self.folder / "made").write_bytes(any_array(chance))
            argv[chance.choice(files)] = chance.choice(["made", "made:a", *self.sources])
        elif what == 2 and len(argv) > 3:
            at = chance.randrange(2, len(argv))
            argv[at] = chance.choice(
                ["0", "-1", "1e300", "nan", "x", "", "9223372036854775807", "3x3", "1,2", "0:8", argv[at] * 2]
            )
        else:
            command = BY_NAME[" ".join(argv[:2]) if argv[0] == "gen" else argv[0]]
            argv += some_options(chance, command)


def signature(done: Done, reason: str) -> str:
    """What findings of one kind have in common: names, numbers and places aside."""
    said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    return f"{reason}: {re.sub(r'[0-9]+', 'N', said)[:100]}"


def examined(lines: Lines, launch: Launch, argv: list[str]) -> tuple[Done, str | None]:
    """Run the line; what is wrong with what came of it, if anything."""
    before = state(lines.folder)
    done = launch(argv, lines.folder, seconds=SECONDS, bytes=BYTES)
    after = state(lines.folder)
    made = [Path(path) for path in after if path not in before]
    try:
        check(done, argv, codes=(0, 1, 2) if argv[0] == "diff" else (0, 2))
        if {path: after.get(path) for path in before} != before:
            return done, "an input was changed"
        if made and done.code == 2:
            return done, "a file was left behind"
        for path in made:
            if path.suffix not in (".svg", ".json") and path.is_file():
                with open_source(str(path)) as written:
                    written.require_tensors()
    except Exception as trouble:
        return done, f"{type(trouble).__name__} {'(killed)' if done.code not in (0, 1, 2) else ''}"
    finally:
        for path in made:
            path.unlink(missing_ok=True)
        for place in lines.folder.glob("new*"):
            shutil.rmtree(place, ignore_errors=True)
    if "out of memory" in done.stderr:
        return done, "out of memory"
    return done, None


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    counts: Counter[str] = Counter()
    kinds: set[str] = set()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name, launcher() as launch:
        lines = Lines(Path(name))
        while time.monotonic() < end:
            argv, meant = lines.one(Random(seed))
            done, reason = examined(lines, launch, argv)
            counts["lines"] += 1
            counts["worked"] += done.code in (0, 1)
            counts["meant to work"] += meant
            counts["meant to work and refused"] += meant and done.code == 2
            if reason is not None and (found := signature(done, reason)) not in kinds:
                kinds.add(found)
                print(
                    json.dumps(
                        {
                            "seed": seed,
                            "argv": argv,
                            "reason": reason,
                            "code": done.code,
                            "said": done.stderr[-600:],
                        }
                    ),
                    flush=True,
                )
            elif meant and done.code == 2 and (found := signature(done, "refused")) not in kinds:
                kinds.add(found)
                print(
                    json.dumps({"seed": seed, "argv": argv, "reason": "refused", "said": done.stderr[-300:]}),
                    flush=True,
                )
            seed += 1
            if counts["lines"] % 500 == 0:
                print(json.dumps(dict(counts)), flush=True)
    print(json.dumps({**counts, "kinds": len(kinds)}), flush=True)


if __name__ == "__main__":
    main()
