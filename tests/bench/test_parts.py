"""Seeds in parts: the row of a job does not tell how many runs it took."""

import json
from pathlib import Path

import numpy as np
import pytest

import trustirl as ti
from trustirl.core.errors import InputError
from trustirl.report.rows import result_row


@pytest.mark.slow
def test_seeds_in_two_runs_make_the_same_row_as_in_one(tmp_path: Path) -> None:
    def grid(name: str, first: int, seeds: int) -> Path:
        question = {"task_args": {"size": 3}, "steps": 3}
        ti.train("piro", "gridworld", first_seed=first, seeds=seeds, out=tmp_path / name, **question)  # type: ignore[arg-type]
        return tmp_path / name

    whole, parts = result_row([grid("whole", 0, 4)]), result_row([grid("a", 0, 2), grid("b", 2, 2)])
    assert json.loads((tmp_path / "b" / "manifest.json").read_text())["seeds"] == [2, 3]
    for name in ("returns", "drawdown", "steps_to_90", "expert_return"):
        np.testing.assert_allclose(parts.pop(name), whole.pop(name), rtol=1e-12, err_msg=name)
    for row in (whole, parts):
        assert row.pop("wall_seconds") > 0
        assert row.pop("updates_per_second") > 0
    assert whole == parts


@pytest.mark.parametrize("first", [-1, 2**31])
def test_seeds_that_no_generator_takes_are_refused(first: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seeds are numbered from 0 to"):
        ti.train("piro", "gridworld", first_seed=first, out=tmp_path / "run")
