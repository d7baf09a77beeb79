"""Models that do not rotate: their tables against numbers of transformers 5.24.0, made by its own classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.models.read import Configuration
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.table import from_config

DEBERTA = {"relative_attention": True, "max_relative_positions": -1}


def refusal(config: dict[str, Any], **options: Any) -> str:
    with pytest.raises(PeError) as caught:
        resolve_configuration(
            Configuration("config.json", config, model_type=str(config["model_type"])), **options
        )
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "column", "row"),
    [
        ({"model_type": "deberta", "max_position_embeddings": 5}, [5, 6, 7, 8, 9, 9, 9, 9], [5, 4, 3, 2, 1, 0, 0, 0]),
        ({"model_type": "deberta-v2", "max_position_embeddings": 16, "position_buckets": 4}, [4, 5, 6, 7, 7, 7, 7, 7], [4, 3, 2, 1, 1, 1, 1, 1]),
    ],
)  # fmt: skip
def test_deberta_without_a_maximum_goes_by_its_positions(
    config: dict[str, Any], column: list[int], row: list[int]
) -> None:
    for values in (config | DEBERTA, config | {"relative_attention": True}):
        index = from_config(values, np.arange(8))["relative_index"]
        assert index[:, 0].tolist() == column
        assert index[0].tolist() == row


def test_deberta_says_which_length_it_took() -> None:
    found = from_config({"model_type": "deberta", **DEBERTA}, [0, 1])
    assert found.facts["parameters"]["max_relative_positions"] == 512
    assert "since max_relative_positions is -1" in found.facts["origins"]["max_relative_positions"]


def test_the_rows_of_roberta_count_those_in_front() -> None:
    """nn.Embedding(max_position_embeddings, hidden_size) there, and rows more than that in BART and OPT."""
    sizes = {"max_position_embeddings": 514, "hidden_size": 768, "d_model": 768}
    assert "(514, 768), with 2 rows in front" in refusal({"model_type": "roberta", **sizes})
    assert "(516, 768), with 2 rows in front" in refusal({"model_type": "bart", **sizes})
