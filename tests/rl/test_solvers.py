"""What every sampled solver owes its caller, whatever the kind of actions."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import PyTree
from scipy.special import logsumexp

from tests.rl.batches import (
    ACTIONS,
    DISCOUNT,
    END_REWARD,
    OBS,
    TAU,
    TEMPERATURE,
    agent_of,
    differs,
    forward,
    make,
    quick_jit,
    reward,
    shared_spy,
    spied,
    transitions,
)
from trustirl.core.errors import InputError
from trustirl.core.records import Solver
from trustirl.core.types import Transition
from trustirl.rl.config import SolverConfig
from trustirl.rl.targets import Fit

UPDATES = 5
solvers = pytest.mark.parametrize("name", ["sac", "softq"])
close = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)


def drawn(data: Transition) -> Callable[[jax.Array], Transition]:
    """Minibatches of eight rows."""

    def draw(key: jax.Array) -> Transition:
        rows = jax.random.randint(key, (8,), 0, len(data.weight))
        return jax.tree.map(lambda x: x[rows], data)

    return draw


@cache
def train(name: str) -> tuple[Callable[..., PyTree], list[tuple[int, ...]]]:
    """A few updates for a scaled reward, and the keys they drew with; compiling twice is an error."""
    solver = make(name, {"updates": UPDATES})
    seen: list[tuple[int, ...]] = []

    def recorded(key: jax.Array) -> jax.Array:
        jax.debug.callback(lambda k: seen.append(tuple(np.asarray(k).tolist())), jax.random.key_data(key))
        return key

    @quick_jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def improve(agent: PyTree, data: Transition, scale: jax.Array, key: jax.Array) -> PyTree:
        return solver.improve(agent, lambda k: drawn(data)(recorded(k)), lambda batch: scale * reward(batch), key)

    return improve, seen


@solvers
def test_everything_stays_in_float32_although_jax_would_take_float64(name: str) -> None:
    learn = {"learn_temperature": True} if name == "sac" else {}
    solver = make(name, {"layer_norm": True, **learn}, obs_mean=np.zeros(OBS), obs_std=np.ones(OBS))
    wide = lambda batch: reward(batch).astype(jnp.float64)  # noqa: E731
    improve = partial(solver.improve, draw=drawn(transitions(name)), reward=wide, key=jax.random.key(1))
    agent = jax.eval_shape(solver.init, jax.random.key(0))
    program, results = jax.make_jaxpr(improve, return_shape=True)(agent)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((agent, results))}
    assert dtypes <= {jnp.dtype("float32"), jnp.dtype("int32")}
    float64_arrays = set(re.findall(r"f64\[\d[\d,]*\]", str(program)))
    # The caller's reward of a batch, of a stack of batches and of the absorbing pair.
    assert float64_arrays <= {"f64[8]", "f64[1,8]", "f64[1]"}


@solvers
def test_new_rewards_and_data_do_not_compile_again_and_matter(name: str) -> None:
    agents = [
        train(name)[0](agent_of(name), transitions(name, 32, seed), jnp.float32(scale), jax.random.key(0))[0]
        for seed, scale in ((0, 1.0), (1, 1.0), (0, 2.0))
    ]
    assert differs(agents[0].critic, agents[1].critic)
    assert differs(agents[0].critic, agents[2].critic)


@solvers
def test_the_same_key_gives_the_same_agent_and_another_key_another(name: str) -> None:
    improve = partial(train(name)[0], agent_of(name), transitions(name, 32), jnp.float32(1))
    once, again, other = (improve(jax.random.key(k)) for k in (1, 1, 2))
    assert not differs(once, again)
    assert differs(once[0].critic, other[0].critic)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(once))


@solvers
def test_seeds_under_vmap_are_the_single_runs(name: str) -> None:
    data = transitions(name, 32)
    solver = make(name, {"updates": UPDATES})
    keys = jax.random.split(jax.random.key(0), 3)
    singles = [jax.tree.map(lambda x, s=s: s * np.asarray(x), agent_of(name)) for s in (1, 2, 3)]
    agents = jax.tree.map(lambda *xs: np.stack(xs).astype(xs[0].dtype), *singles)
    seeds = eqx.filter_vmap(lambda agent, key: solver.improve(agent, drawn(data), reward, key))
    together = jax.device_get(quick_jit(lambda *args: seeds(*args))(agents, keys))
    for i, key in enumerate(keys):
        alone = train(name)[0](jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), agents), data, jnp.float32(1), key)
        jax.tree.map(lambda x, y, i=i: close(x[i], y), together, alone)


@solvers
def test_every_update_draws_with_its_own_key(name: str) -> None:
    improve, seen = train(name)
    jax.effects_barrier()
    seen.clear()
    improve(agent_of(name), transitions(name, 32), jnp.float32(1), jax.random.key(3))
    jax.effects_barrier()
    assert len(seen) == len(set(seen)) == UPDATES


@solvers
def test_the_target_critic_is_the_polyak_average(name: str) -> None:
    agent = agent_of(name)
    _, improved, _ = shared_spy(name)(agent, transitions(name))
    assert differs(agent.critic, improved.critic)
    jax.tree.map(
        lambda new, old, got: np.testing.assert_allclose(got, TAU * new + (1 - TAU) * old, rtol=1e-5, atol=1e-7),
        improved.critic,
        agent.target_critic,
        improved.target_critic,
    )


@solvers
@pytest.mark.parametrize("termination", ["T0", "T2"])
def test_a_new_reward_shows_in_the_very_next_target(name: str, termination: str) -> None:
    batch = transitions(name)
    before, after = (shared_spy(name, termination)(agent_of(name), batch, bonus)[0] for bonus in (0.0, 1.0))
    at_an_end = 1.0 if termination == "T0" else 1 + DISCOUNT / (1 - DISCOUNT)
    np.testing.assert_allclose(after - before, np.where(batch.terminated, at_an_end, 1.0), rtol=1e-4)


def played(solver: Solver, agent: PyTree, batch: Transition) -> tuple[jax.Array, ...]:
    """All that a policy says of a batch."""
    return quick_jit(
        lambda agent, batch: (
            solver.mode(solver.actor(agent), batch.obs),
            solver.act(solver.actor(agent), batch.obs, jax.random.key(1)),
            solver.log_prob(solver.actor(agent), batch.obs, batch.action),
        )
    )(agent, batch)


@solvers
def test_capped_values_promise_no_more_than_the_best_reward_on_record(name: str) -> None:
    agent, batch = agent_of(name), transitions(name)
    last = lambda a: a.target_critic.nets.layers[-1].bias  # noqa: E731
    hopeful, modest = (eqx.tree_at(last, agent, replace_fn=lambda b, by=by: b + by) for by in (1e4, -1e4))
    best = float(jnp.max(reward(batch))) / (1 - DISCOUNT)
    chance = TEMPERATURE / (1 - DISCOUNT) * np.log(2.0) * (ACTIONS if name == "sac" else 1)  # softq: two actions
    end = END_REWARD / (1 - DISCOUNT)
    expected = np.asarray(reward(batch)) + DISCOUNT * np.where(batch.terminated, end, best + chance)
    capped, free = (spied(name, "T2", cap_values=cap) for cap in (True, False))
    np.testing.assert_allclose(capped(hopeful, batch)[0], expected, rtol=1e-5)
    assert np.all(free(hopeful, batch)[0][~np.asarray(batch.terminated)] > 1000)
    np.testing.assert_array_equal(capped(modest, batch)[0], free(modest, batch)[0])  # what is below it stays


@solvers
def test_raw_observations_enter_standardised_everywhere(name: str) -> None:
    mean, std = np.asarray([0.5, -1.0, 2.0], np.float32), np.asarray([2.0, 0.5, 3.0], np.float32)
    solver, agent, batch = make(name, obs_mean=mean, obs_std=std), agent_of(name), transitions(name)
    raw = eqx.tree_at(lambda b: (b.obs, b.next_obs), batch, (batch.obs * std + mean, batch.next_obs * std + mean))
    jax.tree.map(close, played(make(name), agent, batch), played(solver, agent, raw))
    target, improved, _ = shared_spy(name)(agent, batch)
    raw_target, raw_improved, _ = spied(name, obs_mean=mean, obs_std=std)(agent, raw)
    close(target - reward(batch), raw_target - reward(raw))  # the reward sees raw observations, and only it
    assert differs(agent.critic, raw_improved.critic)
    assert jax.tree.structure(improved) == jax.tree.structure(raw_improved)  # nothing to train in the statistics


@solvers
def test_actions_are_rated_by_the_policy_that_plays_them(name: str) -> None:
    solver, obs = make(name), jnp.ones((4000, OBS), jnp.float32)
    actor = solver.actor(agent_of(name))
    action = quick_jit(solver.act)(actor, obs, jax.random.key(1))
    rated = np.exp(np.asarray(quick_jit(solver.log_prob)(actor, obs, action), float))
    if name == "softq":
        for choice in range(ACTIONS):
            chosen = np.asarray(action) == choice
            np.testing.assert_allclose(rated[chosen], chosen.mean(), atol=0.03)
    else:
        assert (np.abs(action) < 1).all()
        assert np.mean(1 / rated) == pytest.approx(4.0, rel=0.1)  # E_pi[1/pi] is the area of the actions' square
    assert solver.act(actor, obs[0], jax.random.key(1)).shape == solver.mode(actor, obs[0]).shape == action.shape[1:]


@solvers
def test_the_critic_loss_slot_can_replace_the_bellman_error(name: str) -> None:
    """This one asks for soft values of 3, whatever the reward."""

    def loss(fit: Fit, batch: Transition) -> jax.Array:
        assert fit.q(batch.obs, batch.action).shape == (2, *fit.target.shape)
        return jnp.mean((fit.v(batch.obs) - 3) ** 2)

    data = transitions(name)
    solver = make(name, {"updates": 60}, critic_loss=loss)
    improve = quick_jit(lambda agent, key: solver.improve(agent, lambda _: data, reward, key))
    agent, early = improve(agent_of(name), jax.random.key(1))
    _, late = improve(agent, jax.random.key(2))
    assert float(late["critic_loss"]) < 0.3 < float(early["critic_loss"])
    assert float(late["q"] + TEMPERATURE * late["entropy"]) == pytest.approx(3, abs=0.3)


class Level(eqx.Module):
    """A reward that is one number."""

    value: jax.Array

    def __call__(self, batch: Transition) -> jax.Array:
        return jnp.broadcast_to(self.value, batch.weight.shape)


@solvers
def test_a_partner_is_fitted_with_the_critic(name: str) -> None:
    """A reward inside the critic's loss moves to where the loss wants it, and the critic with its own part."""

    def loss(fit: Fit, batch: Transition) -> jax.Array:
        assert fit.partner is not None
        return jnp.mean((fit.partner(batch) - 0.5) ** 2) + jnp.mean((fit.v(batch.obs) - 3) ** 2)

    data, solver = transitions(name), make(name, {"updates": 100}, critic_loss=loss)
    agent = quick_jit(lambda: solver.init(jax.random.key(0), partner=Level(jnp.float32(0))))()
    improve = quick_jit(lambda agent: solver.improve(agent, lambda _: data, reward, jax.random.key(1))[0])
    improved = improve(agent)
    assert float(improved.partner.value) == pytest.approx(0.5, abs=0.05)
    assert differs(improved.critic, agent.critic)


def test_a_partner_may_have_a_step_size_of_its_own() -> None:
    """As if it had an Adam of its own, whatever the sizes of gradients."""
    config = SolverConfig(learning_rate=0.01, partner_learning_rate=0.1)
    both, alone = config.adam(None), optax.adam(0.1)
    gradients = [(jnp.ones(2), jnp.asarray([-4.0, 30.0])), (-jnp.ones(2), jnp.asarray([2.0, 1.0]))]
    state, own = both.init(gradients[0]), alone.init(gradients[0][1])
    for gradient in gradients:
        steps, state = both.update(gradient, state)
        wanted, own = alone.update(gradient[1], own)
        critic, partner = config.of_both(steps)
        np.testing.assert_allclose(partner, wanted, rtol=1e-5)
        np.testing.assert_array_equal(critic, steps[0])
    assert SolverConfig().of_both((jnp.ones(1), None)) == (jnp.ones(1), None)


class OneForExperts(NamedTuple):
    needs: tuple[str, ...] = ("expert",)

    def __call__(self, batch: Transition) -> jax.Array:
        return jnp.where(batch.expert, 1.0, 0.0)


@solvers
def test_an_end_is_worth_what_its_own_side_is_paid(name: str) -> None:
    """A reward that tells demonstrated rows apart also does so in the state after an end (SQIL, LS-IQ)."""
    batch = replace(transitions(name), expert=jnp.arange(6) < 3)
    target, _, _ = spied(name, "T2", pay=OneForExperts())(agent_of(name), batch)
    ends = np.asarray(batch.terminated)
    np.testing.assert_allclose(target[ends], [1 / (1 - DISCOUNT), 0.0], rtol=1e-5)


@solvers
def test_values_are_told_of_the_critic(name: str) -> None:
    solver, agent, batch = make(name), agent_of(name), transitions(name)
    q = solver.q(agent, batch.obs, batch.action)
    inputs = np.asarray(batch.obs, float)
    if name == "sac":
        inputs = np.concatenate([inputs, np.asarray(batch.action, float)], axis=1)
    by_hand = np.minimum(*(forward(agent.critic.nets, inputs, member) for member in range(2)))
    expected = by_hand[:, 0] if name == "sac" else by_hand[np.arange(len(q)), np.asarray(batch.action)]
    np.testing.assert_allclose(q, expected, rtol=1e-4, atol=1e-5)
    draws = np.stack([solver.v(agent, batch.obs, key) for key in jax.random.split(jax.random.key(0), 2)])
    assert (draws[0] == draws[1]).all() == (name == "softq")  # SAC's is that of a sampled action
    if name == "softq":
        np.testing.assert_allclose(draws[0], TEMPERATURE * logsumexp(by_hand / TEMPERATURE, axis=1), rtol=1e-4)


@solvers
def test_a_new_agent_has_its_target_and_independent_members(name: str) -> None:
    agent = quick_jit(make(name).init)(jax.random.key(0))
    assert not differs(agent.critic, agent.target_critic)
    for layer in agent.critic.nets.layers:
        assert differs(layer.weight[0], layer.weight[1])


@solvers
@pytest.mark.parametrize(
    "changes", [{"discount": 1.0}, {"temperature": 0.0}, {"temperature": -1.0}, {"width": 0}, {"critics": 0}]
)
def test_settings_that_cannot_work_are_refused(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must"):
        make(name, changes)


@solvers
def test_a_batch_without_successors_is_refused(name: str) -> None:
    batch = transitions(name)
    pairs = Transition(batch.obs, batch.action, batch.weight)
    with pytest.raises(InputError, match="next_obs and terminated"):
        make(name).improve(agent_of(name), lambda _: pairs, reward, jax.random.key(1))


@solvers
def test_the_outcome_is_an_average_of_policies(name: str) -> None:
    """average <- average + share * (newest - average) after every update."""
    share, newest = 0.25, "actor" if name == "sac" else "critic"
    solver, agent = make(name, {"averaging": 0.5}, run_updates=8), agent_of(name)  # so over four updates
    improved, _ = quick_jit(lambda a: solver.improve(a, lambda _: transitions(name), reward, jax.random.key(0)))(
        agent
    )
    expected = jax.tree.map(
        lambda old, new: (1 - share) * old + share * new, agent.average, getattr(improved, newest)
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), solver.outcome(improved), expected)
    assert differs(solver.outcome(improved), solver.actor(improved))
    assert not differs(solver.actor(improved), getattr(improved, newest))


def test_annealing_lets_the_steps_shrink_to_their_share() -> None:
    """Adam's first steps have the size of the learning rate; the tenth of ten is a tenth as large."""
    config = SolverConfig(learning_rate=1e-2, annealing=0.1)
    gradient, sizes = jnp.ones(3), []
    for adam in (config.adam(10), config.adam(None)):
        state, steps = adam.init(gradient), []
        for _ in range(11):
            step, state = adam.update(gradient, state)
            steps.append(float(-step[0]))
        sizes.append(steps)
    np.testing.assert_allclose(sizes[0], 1e-2 * np.linspace(1, 0.1, 11), rtol=1e-4)
    np.testing.assert_allclose(sizes[1], 1e-2, rtol=1e-4)
