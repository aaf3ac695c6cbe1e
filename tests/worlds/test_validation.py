"""Validation of worlds from tables: parts by group, exact predictions, controls, and many fits at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trustirl as ti
from tests.worlds.tables import HOW, birds
from trustirl.algorithms import ALGORITHMS
from trustirl.bench.meerkats import closed, question, solved
from trustirl.rl.exact import log_likelihood, occupancy
from trustirl.rollouts.exact import sample_episodes
from trustirl.tasks.counting import Steps, counted, counted_policy
from trustirl.worlds.many import fit_many
from trustirl.worlds.validation import (
    controls,
    folds,
    held_out,
    in_sample,
    itself,
    judged,
    learnt,
    observed_flows,
    places,
    predicted_flows,
    stratum_of,
)


@pytest.fixture(scope="module")
def steps() -> Steps:
    return ti.World.from_table(birds(several=12), **(HOW | {"window": 6})).steps


def test_groups_are_never_split_and_strata_are_dealt_evenly(steps: Steps) -> None:
    strata = stratum_of(steps.groups, r"bird (\d)")
    parts = list(folds(steps, strata, 4, 3))
    assert len(parts) == 12
    for part in parts:
        learn, judge = (set(steps.group[windows]) for windows in (part.learn, part.judge))
        assert learn
        assert judge
        assert not learn & judge
        assert len(part.learn) + len(part.judge) == len(steps.ends)
        assert len(judge) == 3
    for repeat in range(3):
        found = np.concatenate([part.judge for part in parts[4 * repeat : 4 * repeat + 4]])
        assert sorted(found) == list(range(len(steps.ends)))
    with pytest.raises(ti.InputError, match="not found in the group"):
        stratum_of(steps.groups, "camera")
    with pytest.raises(ti.InputError, match="groups on both sides"):
        held_out(steps, "all", steps.groups)


@pytest.mark.parametrize("previous", [False, True])
def test_predictions_are_what_sampled_episodes_show(previous: bool) -> None:
    with ti.double_precision():
        world = ti.World.from_table(birds(several=12), **(HOW | {"window": 6, "previous": previous}))
        steps, kernel = world.steps, world.kernel
        policy = counted_policy(steps, kernel)
        log_prob = jnp.log(jnp.maximum(policy, 1e-300))
        states, _ = sample_episodes(world.task.mdp, log_prob, 7, 20_000, jax.random.key(0))
    place = places(steps)[np.asarray(states)]
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (place[:, :-1], place[:, 1:]), 1 / place[:, 1:].size)
    visits, flows = predicted_flows(policy, kernel, steps)
    np.testing.assert_allclose(flows, pairs, atol=0.006)
    np.testing.assert_allclose(visits, flows.sum(axis=1), atol=1e-12)
    assert visits.sum() == pytest.approx(1)


def test_measures_of_the_data_themselves(steps: Steps) -> None:
    kernel = counted(steps)
    visits, pairs = observed_flows(steps)
    assert visits.sum() == pytest.approx(1)
    assert itself(steps, steps)[:3] == (0, 0, 0)
    uniform = controls(steps)["uniform"](steps, kernel)
    found = judged(uniform, kernel, steps)
    assert found.nll == pytest.approx(np.log(6))
    prediction, moved = predicted_flows(uniform, kernel, steps)
    assert found.visits == pytest.approx(100 * np.abs(prediction - visits).sum())
    assert found.joint == pytest.approx(100 * np.abs(moved - pairs).sum())
    shares = np.bincount(steps.action, minlength=6) / len(steps.action)
    assert found.calibration == pytest.approx(100 * abs(1 / 6 - shares[0]))  # the likeliest is the first of equals


def test_controls_are_policies_that_do_what_they_say(steps: Steps) -> None:
    some, kernel = learnt(steps, held_out(steps, "two", ["bird 0", "bird 1"]))
    for name, control in controls(steps).items():
        policy = control(some, kernel)
        np.testing.assert_allclose(policy.sum(axis=1), 1, err_msg=name)
        assert name == "uniform" or (policy[~kernel.allowed] == 0).all()
    stays = controls(steps)["never leaves"](some, kernel)
    assert (stays[:, steps.behaviours :] == 0).all()
    _, flows = predicted_flows(stays, kernel, some)
    assert np.trace(flows) == pytest.approx(1)
    by_place = controls(steps)["counted by place"](some, kernel)
    assert np.allclose(by_place[0::2], by_place[1::2])  # the wind changes nothing


def test_closed_places_are_not_moved_to_and_others_as_before(steps: Steps) -> None:
    place, kernel = places(steps), counted(steps)
    away = [w for w in range(len(steps.ends)) if not (place[steps.part(np.array([w])).after] == 0).any()]
    some = steps.part(np.array([w for w in away if place[steps.part(np.array([w])).obs].all()]))
    shut = closed(kernel, some)
    assert not shut.allowed[:, steps.behaviours].any()
    np.testing.assert_array_equal(
        np.delete(shut.allowed, steps.behaviours, 1), np.delete(kernel.allowed, steps.behaviours, 1)
    )
    policy = solved(
        shut, np.where(np.arange(len(steps.actions)) == steps.behaviours, 9.0, 0.0) * np.ones((steps.states, 1))
    )
    visits, _ = predicted_flows(policy, shut, some)
    assert visits[0] == 0


@pytest.mark.slow  # two compiled loops
def test_many_fits_are_those_of_single_runs(steps: Steps, tmp_path: Any) -> None:
    """Fitted beside another question, a question has the answer that a run gives."""
    whole, other = in_sample(steps), held_out(steps, "two", ["bird 0", "bird 1"])
    with ti.double_precision():
        questions = [question(*learnt(steps, part)) for part in (other, whole)]
        features = steps.features()
        found = fit_many(ALGORITHMS["piro"], {}, questions, features, 12)
    world = ti.World.from_table(birds(several=12), **(HOW | {"window": 6}))
    run = ti.train("piro", world, steps=12, out=tmp_path / "run")
    np.testing.assert_allclose(found.log_prob[1], run.policy.log_prob, atol=1e-4)
    np.testing.assert_allclose(found.reward[1], run.reward.table(), atol=1e-4)
    assert np.abs(found.reward[0] - found.reward[1]).max() > 1e-3


@pytest.mark.slow
def test_mce_gives_back_the_counts(steps: Steps) -> None:
    with ti.double_precision():
        asked = question(*learnt(steps, in_sample(steps)))
        found = fit_many(ALGORITHMS["mce"], {}, [asked], steps.features(), 60)
        some, kernel = learnt(steps, in_sample(steps))
        counts = counted_policy(some, kernel)
        np.testing.assert_allclose(np.exp(found.log_prob[0]), counts, atol=0.01)
        shown, table = map(jnp.asarray, (asked.demonstrated, found.reward[0]))
        best = jnp.sum(shown * jnp.log(jnp.maximum(counts, 1e-300)))
        assert float(log_likelihood(asked.mdp, shown, table)) <= float(best) + 1e-9
        rho = occupancy(asked.mdp, jnp.asarray(found.log_prob[0]))
        assert float(jnp.abs(rho - shown).sum() / asked.mdp.mass) < 0.01
