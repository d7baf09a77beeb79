"""The table of a model in one call, as the command line makes it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pe_cli
from pe_cli import PeError, from_config
from pe_cli.cli import run

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (LLAMA, ["--len", "16"]),
        ({"model_type": "bloom", "n_head": 8, "hidden_size": 64}, ["--len", "16"]),
        ({"model_type": "mpt", "n_heads": 4, "attn_config": {"alibi": True}}, ["--len", "16"]),
        ({"model_type": "t5"}, ["--len", "16"]),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_it_is_the_table_of_the_command_line(tmp_path, config, rows):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert run(["gen", "model", str(path), *rows, "-o", str(tmp_path / "t.npz"), "-q"]) == 0
    made = from_config(path, np.arange(16))
    with np.load(tmp_path / "t.npz") as wanted:
        assert set(wanted) == set(made.keys())
        for name, array in wanted.items():
            assert np.array_equal(made[name].astype(array.dtype), array), name


def test_options_replace_what_the_model_has_and_a_mapping_will_do():
    made = from_config(LLAMA, [0, 5], layout="interleaved", dtype="float64")
    wanted = np.asarray(pe_cli.rope([0, 5], dim=64, base=500000.0, dtype="float64"))
    assert np.array_equal(np.asarray(made), wanted)
    assert made.facts["origins"] == {**made.facts["origins"], "base": "rope_theta", "layout": "argument"}


def test_what_was_assumed_is_a_warning():
    config = {name: value for name, value in LLAMA.items() if name != "rope_theta"}
    assert any("rope_theta" in warning for warning in from_config(config, [0]).warnings)


def test_what_it_refuses():
    with pytest.raises(PeError, match="no option of rope 'layut'; did you mean 'layout'"):
        from_config(LLAMA, [0], layut="half")
    with pytest.raises(PeError, match="positions are None"):
        from_config(LLAMA, None)
    with pytest.raises(PeError, match="learned table"):
        from_config({"model_type": "bert"}, [0])


def test_the_package_has_what_files_need():
    assert {"Graph", "Forest", "read_graph", "read_forest", "resolve", "from_config"} <= set(dir(pe_cli))
    assert pe_cli.resolve is pe_cli.models.resolve.resolve
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pe_cli.nothing  # noqa: B018
