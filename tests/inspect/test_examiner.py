"""Six hundred tables with known answers, made by code that shares nothing with the package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from examiner import mistake, named, questions

from pe_cli.inspect import identify

SEED, TABLES, SHARE = 20261130, 600, 0.99


@pytest.mark.slow
def test_no_table_gets_a_wrong_name_and_nearly_all_get_one() -> None:
    wrong, silent = [], []
    for question in questions(SEED, TABLES):
        others = {name: array for name, array in question.companions.items() if name != question.name}
        answer = identify(question.array, question.name, others).to_dict()
        trouble = mistake(question, answer)
        if trouble is not None:
            wrong.append(f"{question.kind}, {question.told}: {trouble}")
        elif not named(question, answer):
            silent.append(f"{question.kind}, {question.told}")
    assert not wrong, "\n".join(wrong)
    assert len(silent) <= (1 - SHARE) * TABLES, "\n".join(silent)
