"""Query temperatures and the layers that rotate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pe_cli.encodings.rope_layers import query_temperature, rotating_layers
from pe_cli.errors import PeError


def test_llama4_starts_one_position_early() -> None:
    found = query_temperature(np.array([0, 8190, 8191, 16383]), scheme="llama4", original_len=8192)
    np.testing.assert_allclose(found, [1, 1, 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(3)], rtol=1e-15)


def test_ministral_starts_at_its_length() -> None:
    found = query_temperature(np.array([16383, 16384]), scheme="ministral", original_len=16384, beta=0.2)
    np.testing.assert_allclose(found, [1, 1 + 0.2 * math.log(2)], rtol=1e-15)


def test_log_n() -> None:
    found = query_temperature(np.array([0, 511, 512**2 - 1]), scheme="log-n", original_len=512)
    np.testing.assert_allclose(found, [1, 1, 2], rtol=1e-15)


def test_no_rope_layers_says_which_rotate() -> None:
    assert rotating_layers(4, no_rope_layers=[1, 1, 1, 0]).tolist() == [True, True, True, False]
    assert rotating_layers(8, interval=4).tolist() == [True, True, True, False] * 2
    assert rotating_layers(4, no_rope_layers=[], interval=2).tolist() == [True, False] * 2


def test_what_is_refused() -> None:
    with pytest.raises(PeError, match="did you mean 'llama4'"):
        query_temperature(np.arange(3), scheme="llama", original_len=8192)
    with pytest.raises(PeError, match="whole positions"):
        query_temperature(np.array([-1]), scheme="llama4", original_len=8192)
    with pytest.raises(PeError, match="--original-len 0"):
        query_temperature(np.arange(3), scheme="llama4", original_len=0)
    with pytest.raises(PeError, match="3 entries for 4 layers"):
        rotating_layers(4, no_rope_layers=[1, 0, 1])
    with pytest.raises(PeError, match="must be at least 1"):
        rotating_layers(4)
