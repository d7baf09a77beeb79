"""The Python API: every function with its types, what is understood, what it returns, and errors for a Python caller."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pe_cli
from pe_cli.catalogue import CATALOGUE, load
from pe_cli.errors import PeError
from pe_cli.signature import Meaning, parameters

FUNCTIONS = sorted(entry.function for entry in CATALOGUE.values())
WRONG = """from pe_cli import rope, rpoe
import pe_cli
rope(16, dmi=8)
rope(16, dim="8")
pe_cli.sinusoidall(4)
pe_cli.compare("a.npy", "b.npy", atlo=1.0)
rope("abc", dim=8)
"""
RIGHT = """import numpy as np
import pe_cli
from pe_cli import alibi, identify, rope, t5

table = rope([0, 1, 2], dim=8, dtype=np.float16)
cosines = rope(4, dim=8, layout="half")["cos"].shape
bias = alibi(16, heads=4) + t5(4, np.arange(4), table=np.zeros((32, 4)))
base = identify(table).base
longer = pe_cli.extend(np.zeros((4, 8)), 9).shape
causes = pe_cli.compare(table, "b.npy").causes[0].cause
"""


def test_every_encoding_is_exported_and_typed() -> None:
    assert set(FUNCTIONS) <= set(pe_cli.__all__)
    text = Path(pe_cli.__file__).read_text(encoding="utf-8")
    typed = re.findall(r"^    from pe_cli\.encodings\.(\S+) import (.*)$", text, re.MULTILINE)
    targets = {f"{module}:{name}" for module, names in typed for name in names.split(", ")}
    assert targets == {entry.target for entry in CATALOGUE.values()}
    for name in pe_cli.__all__:
        assert getattr(pe_cli, name) is not None


@pytest.mark.slow
def test_a_type_checker_sees_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "right.py").write_text(RIGHT)
    root = str(Path(pe_cli.__file__).parent.parent)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(tmp_path / "cache"),
            "wrong.py",
            "right.py",
        ],
        cwd=tmp_path,
        env={"MYPYPATH": root, "PATH": "", "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = {int(n) for n in re.findall(r"^wrong\.py:(\d+): error", done.stdout, re.MULTILINE)}
    assert lines == {1, 3, 4, 5, 6, 7}, done.stdout
    assert "right.py" not in done.stdout


@pytest.mark.parametrize(
    "first",
    [
        "import pe_cli.extend.plan",
        "import pe_cli.extend",
        "from pe_cli.extend import plan",
        "import pe_cli.library",
    ],
)
def test_the_function_wins_over_the_package_of_its_name(first: str) -> None:
    lines = f"{first}\nimport pe_cli\nimport pe_cli.extend.resample\nassert callable(pe_cli.extend)\n"
    subprocess.run([sys.executable, "-c", lines], check=True)


ROWS = {
    "sinusoidal": {"dim": 8},
    "timestep": {"dim": 8},
    "fourier": {"num_bands": 3},
    "learned": {"dim": 8},
    "rope": {"dim": 8},
    "xpos": {"dim": 8},
    "transformer_xl": {"dim": 8},
    "axial": {"shape": (4, 4), "dims": (2, 2)},
    "t5": {},
    "shaw": {},
    "alibi": {"heads": 2},
    "kerple": {"heads": 2},
    "sandwich": {"heads": 2, "dim": 8},
    "fire": {"heads": 2},
    "deberta": {},
    "tupe": {},
}


def test_rows_name_every_encoding_that_takes_positions() -> None:
    taking = {
        name.replace("-", "_")
        for name in CATALOGUE
        if any(p.meaning in (Meaning.POSITIONS, Meaning.QUERIES) for p in parameters(load(name)).values())
    }
    assert taking == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_an_int_and_a_list_stand_for_positions(name: str) -> None:
    function, options = getattr(pe_cli, name), ROWS[name]
    want = function(np.arange(16), **options)
    for given in (16, np.int64(16), list(range(16)), range(16), np.arange(16, dtype=np.uint8)):
        made = function(given, **options)
        assert list(made.keys()) == list(want.keys())
        for key, array in want.items():
            np.testing.assert_array_equal(made[key], array)


PAIRS = [name for name in ROWS if "queries" in inspect.signature(getattr(pe_cli, name)).parameters]


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_spelled_one_way(name: str) -> None:
    function, options = getattr(pe_cli, name), ROWS[name]
    alone, both = function(5, **options), function(5, 5, **options)
    for key, array in both.items():
        np.testing.assert_array_equal(alone[key], array)
    with pytest.raises(PeError, match="whole numbers on one axis"):
        function(np.zeros((3, 3), int), **options)
    with pytest.raises(PeError, match=r"needs queries|which pairs"):
        function(**options)
    if "distances" in parameters(function):
        sign = -1 if name == "deberta" else 1
        pairs = sign * (np.arange(5)[None, :] - np.arange(5)[:, None])
        for key, array in function(distances=pairs, **options).items():
            np.testing.assert_array_equal(array, both[key])
        with pytest.raises(PeError, match="leave queries and keys out"):
            function(5, distances=pairs, **options)
        with pytest.raises(PeError, match="distances 5"):
            function(distances=5, **options)


def test_dtypes_are_names_and_types() -> None:
    import ml_dtypes

    for given in (np.float16, np.dtype("float16"), "float16", "FP16", "half"):
        assert pe_cli.rope(4, dim=8, dtype=given).dtype == np.float16
    assert pe_cli.sinusoidal(4, dim=8, dtype=ml_dtypes.bfloat16).dtype.name == "bfloat16"
    with pytest.raises(PeError, match="no dtype 'int8'"):
        pe_cli.rope(4, dim=8, dtype=np.int8)


CALLS = [
    lambda: pe_cli.rope(4, dim=7),
    lambda: pe_cli.rope(4),
    lambda: pe_cli.rope(4, dmi=8),
    lambda: pe_cli.rope(4, dim="8"),
    lambda: pe_cli.rope(4, dim=8.5),
    lambda: pe_cli.rope(4, dim=8, scaling="linear"),
    lambda: pe_cli.rope(4, dim=8, factor=2.0),
    lambda: pe_cli.rope(4, dim=8, original_len=4),
    lambda: pe_cli.rope(4, dim=8, scaling="longrope", original_len=4),
    lambda: pe_cli.rope(4, dim=8, sections=(1, 1)),
    lambda: pe_cli.rope(4, dim=8, grid=(2, 2)),
    lambda: pe_cli.rope(4, dim=8, base=-1),
    lambda: pe_cli.rope(4, dim=8, layout="hafl"),
    lambda: pe_cli.rope(4, dim=8, truncate=1),
    lambda: pe_cli.rope(0, dim=8),
    lambda: pe_cli.rope([[1], [1, 2]], dim=8),
    lambda: pe_cli.rope(["a"], dim=8),
    lambda: pe_cli.rope([np.nan], dim=8),
    lambda: pe_cli.rope(4, dim=8, short_factor=[1.0, np.nan]),
    lambda: pe_cli.xpos(4, dim=8, scale_base=-1),
    lambda: pe_cli.sinusoidal(4, dim=0),
    lambda: pe_cli.sinusoidal(4, dim=8, style="mae"),
    lambda: pe_cli.sinusoidal(4, dim=8, base_size=3),
    lambda: pe_cli.timestep(4, dim=1),
    lambda: pe_cli.fourier(4),
    lambda: pe_cli.learned(-1, dim=4),
    lambda: pe_cli.learned([0.5], dim=4),
    lambda: pe_cli.learned(4, dim=4, init="zeros", std=1.0),
    lambda: pe_cli.t5(4, num_buckets=1),
    lambda: pe_cli.t5(4, table=np.zeros((3, 3))),
    lambda: pe_cli.t5(4, heads_first=True),
    lambda: pe_cli.shaw(4, max_distance=0),
    lambda: pe_cli.transformer_xl(4, dim=7),
    lambda: pe_cli.alibi(4, heads=0),
    lambda: pe_cli.alibi(4, heads=2, form="key", bidirectional=False),
    lambda: pe_cli.kerple(4, heads=2, bias_p=[1.0, 1.0]),
    lambda: pe_cli.sandwich(4, heads=2, first_index=3),
    lambda: pe_cli.fire(4, heads=2, threshold=0.0),
    lambda: pe_cli.deberta(4, max_relative_positions=0),
    lambda: pe_cli.tupe(4, num_buckets=3),
    lambda: pe_cli.tupe(4, table=np.zeros((5, 4))),
    lambda: pe_cli.swin(window=(7,)),
    lambda: pe_cli.swin(window=(7, 7), pretrained_window=(7, 7)),
    lambda: pe_cli.axial(4, shape=(2,), dims=(2, 2)),
    lambda: pe_cli.sparse_transformer(4, stride=0),
    lambda: pe_cli.position_ids(4, scheme="pose"),
    lambda: pe_cli.global_tokens(4, block=8),
    lambda: pe_cli.cope(np.zeros((2, 4, 3))),
    lambda: pe_cli.fox(log_gates=np.ones((1, 3))),
    lambda: pe_cli.peg(hidden=np.zeros((4, 2)), grid=(3, 3), weight=np.zeros((2, 1, 3, 3))),
    lambda: pe_cli.identify("nothing.npy"),
    lambda: pe_cli.compare(np.zeros(3), np.zeros(3), atol=-1),
]


@pytest.mark.parametrize("call", CALLS)
def test_errors_name_parameters_and_come_from_here(call: object) -> None:
    with pytest.raises(PeError) as caught:
        call()  # type: ignore[operator]
    said = str(caught.value)
    assert "--" not in said
    assert "\x1a" not in said
    assert said.count("\n") == 0


def test_one_table_is_an_array_and_several_go_by_name() -> None:
    one, two = pe_cli.sinusoidal(6, dim=4), pe_cli.rope(6, dim=4, layout="half")
    assert one.shape == (6, 4)
    assert len(one) == 6
    assert one.ndim == 2
    np.testing.assert_array_equal(one[2], np.asarray(one)[2])
    np.testing.assert_array_equal(one["sinusoidal"][:, 1], one[:, 1])
    np.testing.assert_array_equal(2 * one - one, np.asarray(one))
    np.testing.assert_array_equal(np.stack(list(one)), one)
    assert one.max() == np.asarray(one).max()
    assert list(two) == list(two.keys()) == ["cos", "sin"]
    assert {**two}.keys() == {"cos", "sin"}
    assert not hasattr(two, "shape")
    with pytest.raises(PeError, match="'cos', 'sin'"):
        np.asarray(two)
    for table in (one, two):
        assert "float32" in repr(table)
        assert "data:image/png;base64," in table._repr_html_()


def test_results_are_attributes_dictionaries_and_html(tmp_path: Path) -> None:
    table = pe_cli.rope(64, dim=16, base=5000.0, layout="half")
    found = pe_cli.identify(table)
    assert (found.encoding, found.layout, found.base, found.style) == ("rope", "half", 5000, None)
    with pytest.raises(AttributeError, match="laoyut"):
        _ = found.laoyut
    assert found.to_dict()["encoding"] == "rope"
    assert "encoding='rope'" in repr(found)
    assert "rope" in found._repr_html_()
    np.save(tmp_path / "a.npy", pe_cli.sinusoidal(64, dim=16))
    same = pe_cli.compare(str(tmp_path / "a.npy"), pe_cli.sinusoidal(64, dim=16))
    assert same.equal
    assert same.causes == []
    why = pe_cli.compare(tmp_path / "a.npy", pe_cli.sinusoidal(64, dim=16, base=5000.0))
    assert not why.equal
    cause = next(cause for cause in why.causes if cause.cause == "base")
    assert (cause.a["base"], cause.b["base"]) == (10000, 5000)
    assert pe_cli.read(tmp_path / "a.npy").shape == (64, 16)
    assert pe_cli.extend(np.random.default_rng(0).normal(size=(8, 4)), 12).shape == (12, 4)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"metod": "tile"}, "did you mean 'method'"), ({"output": "x.npy"}, "output is for a file or a folder")],
)
def test_extend_names_what_it_does_not_take(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PeError, match=said):
        pe_cli.extend(np.zeros((4, 2)), 7, **options)


def test_a_configuration_means_the_same_as_a_mapping_and_as_a_file() -> None:
    timm = {"architecture": "vit_base_patch16_224", "pretrained_cfg": {"input_size": [3, 224, 224]}}
    with pytest.raises(PeError, match="configuration of timm"):
        pe_cli.from_config(timm, 8)
