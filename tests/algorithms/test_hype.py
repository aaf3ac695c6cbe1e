"""HyPE: without demonstrated rows it is MM, and with them it must know what followed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.control.small import cartpole_demo, experiment
from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import DemoError, InputError
from trustirl.demos.schema import Demos
from trustirl.irl.loop import iterate, seed_keys
from trustirl.worlds.simulator import build, prepared


def metrics(algorithm: str, **changes: Any) -> list[Mapping[str, np.ndarray]]:
    """Of a first round of practice and of one after an update."""
    parts = build(experiment(algorithm, inner_steps=3, past_share=0.5, **changes), cartpole_demo())
    try:
        return [
            {name: np.asarray(value) for name, value in told.items()}
            for _, told in iterate(parts.loop, seed_keys(2), 1)
        ]
    finally:
        parts.close()


def test_without_demonstrated_rows_it_is_the_same_question_as_mms() -> None:
    hybrid, plain = ALGORITHMS["hype"], ALGORITHMS["mm"]
    assert (hybrid.build, hybrid.config) == (plain.build, plain.config)
    assert experiment("hype", demo_share=0.0, demo_half_life=None).settings == experiment("mm").settings


@pytest.mark.slow
def test_without_demonstrated_rows_its_metrics_are_those_of_mm() -> None:
    hybrid, plain = metrics("hype", demo_share=0.0), metrics("mm")
    for one, other in zip(hybrid, plain, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    mixed = metrics("hype", demo_share=0.5, demo_half_life=1000)
    assert (mixed[-1]["gap"] != plain[-1]["gap"]).all()


def test_by_default_half_of_a_minibatch_is_demonstrated_and_none_of_mms() -> None:
    shares = {name: ALGORITHMS[name].defaults.of("Hopper-v4")["demo_share"] for name in ("hype", "mm")}
    assert shares == {"hype": 0.5, "mm": 0.0}


def test_rows_of_which_it_is_not_known_what_followed_are_refused() -> None:
    lone = Demos.from_numpy(np.zeros((3, 4)), np.zeros(3, int), [1, 2, 3])
    with pytest.raises(DemoError, match="hype must know what followed"):
        prepared(experiment("hype"), lone)
    assert prepared(experiment("mm"), lone)


def test_who_needs_demonstrated_rows_to_the_end_cannot_give_them_up() -> None:
    with pytest.raises(InputError, match="iq-learn needs demonstrated rows to the end"):
        prepared(experiment("iq-learn", demo_half_life=100), cartpole_demo())
