"""A start from a clone of the demonstrations, and the pull towards it."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trustirl as ti
from tests.control.small import SETTINGS, experiment, pendulum_demo, stopping
from tests.rl.batches import ACTIONS, OBS, TEMPERATURE, agent_of, filled, make, transitions
from trustirl.core.types import ExpertData, IrlState, Transition
from trustirl.irl.plan import Plan
from trustirl.irl.start import begun_as_clone, pulled
from trustirl.nets.policies import GaussianActor
from trustirl.worlds.simulator import build

CLONE = filled(lambda key: GaussianActor(OBS, ACTIONS, 16, 2, key), 7)


def state(agent: Any) -> IrlState:
    return IrlState(agent, reward=None, optimizer=None)


def divergence(actor: Any, other: Any, obs: jax.Array) -> jax.Array:
    """KL between two Gaussians, which is that of their tanh: both are squashed alike."""
    one, two = actor(obs), other(obs)
    ratio = jnp.exp(2 * (one.log_std - two.log_std))
    apart = ((one.mean - two.mean) * jnp.exp(-two.log_std)) ** 2
    return jnp.sum(two.log_std - one.log_std + (ratio + apart - 1) / 2, axis=-1)


def test_the_pulls_gradient_is_that_of_the_divergence_from_the_clone() -> None:
    """What a hold takes from the soft value, at many actions in one state, against the closed form."""
    weight, solver = 3.0, make("sac")
    free = replace(agent_of("sac"), hold=jnp.float32(0), prior=CLONE)
    held = solver.hold(agent_of("sac"), jnp.float32(weight), CLONE)
    obs = jnp.tile(jnp.asarray([[0.3, -0.5, 0.8]], jnp.float32), (20_000, 1))

    def paid(actor: Any) -> jax.Array:
        key = jax.random.key(0)
        less, more = (solver.v(replace(agent, actor=actor), obs, key) for agent in (free, held))
        return jnp.mean(less - more)

    actor = agent_of("sac").actor
    expected = jax.value_and_grad(lambda a: TEMPERATURE * weight * divergence(a, CLONE, obs[0]))(actor)
    value, gradient = jax.value_and_grad(paid)(actor)
    assert float(expected[0]) > 0.1
    assert float(value) == pytest.approx(float(expected[0]), rel=0.04)
    for one, two in zip(
        *(jax.tree.leaves(eqx.filter(g, eqx.is_array)) for g in (gradient, expected[1])), strict=True
    ):
        np.testing.assert_allclose(one, two, atol=0.05 * float(jnp.abs(two).max()) + 0.01)


def test_it_falls_linearly_to_exactly_nothing_and_the_clone_stays() -> None:
    solver, plan = make("sac"), Plan(clone_start=1, clone_pull=8.0, clone_fade=400)
    irl = state(solver.hold(agent_of("sac"), jnp.float32(8), CLONE))
    left = [float(pulled(solver, irl, plan, jnp.asarray(steps)).policy.hold) for steps in (0, 100, 399, 400, 10_000)]
    np.testing.assert_allclose(left, [8, 6, 0.02, 0, 0], rtol=1e-5)
    assert left[-2:] == [0, 0]
    assert bool(eqx.tree_equal(pulled(solver, irl, plan, jnp.asarray(300)).policy.prior, CLONE))
    gone = pulled(solver, irl, plan, jnp.asarray(400)).policy
    batch, key = transitions("sac"), jax.random.key(1)
    np.testing.assert_array_equal(solver.v(gone, batch.obs, key), solver.v(agent_of("sac"), batch.obs, key))


def test_the_policy_that_begins_does_what_was_demonstrated() -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(200, OBS)).astype(np.float32)
    action = np.tanh(obs[:, :ACTIONS] + 0.05 * rng.normal(size=(200, ACTIONS))).astype(np.float32)
    after_end = np.full((20, OBS), 9, np.float32), np.ones((20, ACTIONS), np.float32)
    rows = [jnp.asarray(np.concatenate(pair)) for pair in zip((obs, action), after_end, strict=True)]
    expert = ExpertData(Transition(*rows, jnp.ones(220)), 200)  # of the last ones nobody acted in
    solver = make("sac")
    irl = state(solver.init(jax.random.key(0)))
    plan = Plan(clone_start=600, clone_pull=2.0, batch=64)
    begun = jax.jit(lambda key: begun_as_clone(solver, irl, expert, plan, key))(jax.random.key(1)).policy
    np.testing.assert_allclose(solver.mode(begun.actor, jnp.asarray(obs)), action, atol=0.25)
    assert float(begun.hold) == 2
    for copy in (begun.average, begun.prior):
        assert bool(eqx.tree_equal(copy, begun.actor))
    assert bool(eqx.tree_equal(begun.critic, irl.policy.critic))
    alone = begun_as_clone(solver, irl, expert, replace(plan, clone_pull=0.0, clone_start=1), jax.random.key(1))
    assert alone.policy.prior is None
    assert alone.policy.hold is None


def test_nobody_is_held_unless_asked_and_what_cannot_be_is_refused() -> None:
    """Without a start the agent has no prior, and so is the very program of before."""
    parts = build(experiment("ml-irl", "Pendulum-v1"), pendulum_demo())
    parts.close()
    first = eqx.filter_eval_shape(parts.loop.blank, jax.random.split(jax.random.key(0), 2)).irl.policy
    assert first.prior is None
    assert first.hold is None
    for settings, why in (
        ({"clone_pull": 1.0}, "there is none: give clone_start"),
        ({"clone_start": -1}, "clone_start must be at least 0"),
        ({"clone_start": 1, "clone_fade": 0}, "clone_fade must be at least 1"),
    ):
        with pytest.raises(ti.InputError, match=why):
            Plan(**settings)
    for algorithm, task, more, why in (
        ("trirl", "Pendulum-v1", {}, "trirl holds its policy near another one"),
        ("ml-irl", "Pendulum-v1", {"learn_temperature": True}, "set learn_temperature to False"),
        ("ml-irl", "CartPole-v1", {}, "clone_start is for continuous actions"),
    ):
        demos = pendulum_demo() if task == "Pendulum-v1" else None
        asked = experiment(algorithm, task, clone_start=10, clone_pull=1.0, **more)
        with pytest.raises(ti.InputError, match=why):
            build(asked if demos else replace(asked, demos="packaged"), demos)


@pytest.mark.slow
def test_a_run_that_is_held_resumes_as_if_it_had_not_stopped(tmp_path: Any) -> None:
    settings = SETTINGS | {"clone_start": 30, "clone_pull": 5.0, "clone_fade": 300}
    whole = ti.train("ml-irl", "Pendulum-v1", pendulum_demo(), seeds=2, steps=260, out=tmp_path / "whole", **settings)
    make = stopping("Pendulum-v1", tmp_path / "part")
    with pytest.raises(ti.Interrupted, match="of 2"):
        ti.train("ml-irl", make, pendulum_demo(), seeds=2, steps=260, out=tmp_path / "part", **settings)
    again = ti.resume(tmp_path / "part", "Pendulum-v1").metrics()
    for name in ("return_mean", "log_likelihood", "q"):
        np.testing.assert_array_equal(whole.metrics()[name], again[name])
