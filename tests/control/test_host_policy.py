"""Policies outside JAX are the same functions as inside it."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compiled import compiled
from trustirl.core.errors import InputError
from trustirl.core.records import Solver
from trustirl.core.spaces import Spaces
from trustirl.nets.policies import MixtureActor, StationaryActor
from trustirl.rl.config import SolverConfig
from trustirl.rollouts.policy import HostPolicy, Policies
from trustirl.runs.policies import (
    ControlPolicy,
    actor_maker,
    host_policies,
    load_policies,
    make_solver,
    save_policies,
)

OBS, ACTIONS, SEEDS = 5, 3, 3
COMPONENTS = 4  # of a mixture
BOUND = np.ones(ACTIONS, np.float32)
CONTINUOUS = Spaces(
    name="box", obs_dim=OBS, action_dim=ACTIONS, discrete=False, action_low=-BOUND, action_high=3 * BOUND
)
DISCRETE = Spaces(name="choice", obs_dim=OBS, action_dim=ACTIONS, discrete=True)
MEAN, STD = np.array([0.0, 1.0, -2.0, 3.0, 0.5]), np.array([1.0, 0.5, 2.0, 0.0, 1e-9])  # two constant columns


class Case(NamedTuple):
    spaces: Spaces
    solver: Solver
    actors: Any
    policies: Policies


@pytest.fixture(
    scope="module",
    params=[
        (CONTINUOUS, {}),
        (CONTINUOUS, {"depth": 1, "layer_norm": True}),
        (CONTINUOUS, {"head": "mixture"}),
        (CONTINUOUS, {"head": "stationary"}),
        (CONTINUOUS, {"head": "stationary", "width": 9, "depth": 1}),
        (DISCRETE, {"critics": 1}),
        (DISCRETE, {"critics": 3, "temperature": 0.05}),
        (DISCRETE, {"critics": 2, "layer_norm": True, "temperature": 0.7}),
    ],
    ids=[
        "sac",
        "shallow sac",
        "mixture",
        "stationary",
        "narrow stationary",
        "one critic",
        "three critics",
        "layer norm",
    ],
)
def case(request: pytest.FixtureRequest) -> Case:
    spaces, settings = request.param
    return trained(spaces, dict(settings))


def trained(spaces: Spaces, settings: dict[str, Any]) -> Case:
    """Actors as after training: every parameter has moved, those of norms too, and log_std reaches its limits."""
    head = settings.pop("head", "gaussian")
    config = SolverConfig(**{"width": 16, **settings})
    slots = {} if spaces.discrete else {"make_actor": actor_maker(head, spaces, config, COMPONENTS)}
    solver = make_solver(spaces, config, MEAN, STD, **slots)
    keys = jax.vmap(jax.random.key)(jnp.arange(SEEDS))
    actors = jax.jit(jax.vmap(lambda key: solver.actor(solver.init(key))))(keys)
    random = np.random.default_rng(0)
    moved = jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.2, x.shape).astype(np.float32)), actors)
    if head == "stationary":  # waves that are seen from far apart
        moved = eqx.tree_at(lambda actor: actor.log_scales, moved, replace_fn=lambda x: x + 5)
    return Case(spaces, solver, moved, host_policies(moved, config, MEAN, STD))


def one(actors: Any, seed: int) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[seed]), actors)


def observations(count: int = 200) -> np.ndarray:
    """Ordinary ones and some that are clipped."""
    random = np.random.default_rng(1)
    return (random.normal(size=(count, OBS)) * random.choice([1, 30], (count, 1))).astype(np.float32)


def test_the_mode_is_the_solvers(case: Case) -> None:
    _, solver, actors, policies = case
    obs = observations()
    for seed in range(SEEDS):
        expected = compiled(solver.mode, one(actors, seed), jnp.asarray(obs))
        np.testing.assert_allclose(policies.of(seed).mode(obs), expected, atol=1e-5)
    assert not np.array_equal(policies.of(0).mode(obs), policies.of(1).mode(obs))


def test_density_of_what_is_drawn_is_the_solvers(case: Case) -> None:
    """The distribution by the solver's own log density, the action by the formula that turns noise into it."""
    spaces, solver, actors, policies = case
    actor, policy, obs = one(actors, 0), policies.of(0), jnp.asarray(observations())
    noise = given = policy.noise(np.random.default_rng(2), len(obs))
    if spaces.discrete:
        choices = jnp.asarray(np.broadcast_to(np.arange(ACTIONS), (len(obs), ACTIONS)).T)
        logits = compiled(jax.vmap(lambda action: solver.log_prob(actor, obs, action)), choices).T
        expected = np.argmax(logits + noise, axis=-1)
    else:
        inputs = np.clip((obs - MEAN) / np.where(STD > 1e-6, STD, 1), -10, 10).astype(np.float32)
        distribution = jax.tree.map(np.asarray, compiled(actor, jnp.asarray(inputs)))
        if isinstance(actor, MixtureActor):
            drawn = (distribution.logits + noise[:, :COMPONENTS]).argmax(axis=-1)
            assert len(set(np.asarray(drawn).tolist())) > 1
            distribution = jax.tree.map(lambda x: x[np.arange(len(obs)), drawn], distribution.parts)
            noise = noise[:, COMPONENTS:]
        if not isinstance(actor, StationaryActor):
            assert (distribution.log_std == 2).any()
        else:
            assert np.ptp(distribution.log_std) > 0.3
        expected = np.tanh(distribution.mean + np.exp(distribution.log_std) * noise)
    np.testing.assert_allclose(policy.act(np.asarray(obs), given), expected, atol=2e-5)


def test_drawn_actions_are_distributed_as_the_solvers(case: Case) -> None:
    spaces, solver, actors, policies = case
    count, policy = 40_000, policies.of(0)
    obs = np.repeat(observations(1), count, axis=0)
    mine = policy.act(obs, policy.noise(np.random.default_rng(3), count))
    theirs = np.asarray(compiled(solver.act, one(actors, 0), jnp.asarray(obs), jax.random.key(4)))
    if spaces.discrete:
        mine, theirs = np.eye(ACTIONS)[mine], np.eye(ACTIONS)[theirs]
    for moment in (1, 2):
        difference = (mine.astype(float) ** moment).mean(axis=0) - (theirs.astype(float) ** moment).mean(axis=0)
        assert np.abs(difference).max() < 5 * np.sqrt(2 / count)  # entries lie within [-1, 1]


@pytest.mark.parametrize("head", ["gaussian", "stationary", "mixture"])
def test_policies_come_back_from_a_folder_with_their_heads(tmp_path: Path, head: str) -> None:
    _, _, actors, policies = trained(CONTINUOUS, {"head": head})
    save_policies(tmp_path, actors, CONTINUOUS, SolverConfig(width=16), MEAN, STD)
    card = json.loads((tmp_path / "policy.json").read_text())
    assert card["head"] == head
    if head == "gaussian":  # as earlier versions wrote it
        del card["head"], card["components"]
        (tmp_path / "policy.json").write_text(json.dumps(card))
    obs = observations()
    for seed, policy in enumerate(load_policies(tmp_path)):
        likeliest, _ = policy.predict(obs, deterministic=True)
        expected, _ = ControlPolicy(policies.of(seed), CONTINUOUS).predict(obs, deterministic=True)
        np.testing.assert_array_equal(likeliest, expected)


def test_alone_or_in_a_batch(case: Case) -> None:
    spaces, _, _, policies = case
    policy, obs = policies.of(0), observations()
    noise = policy.noise(np.random.default_rng(5), len(obs))
    np.testing.assert_allclose(np.stack([policy.mode(row) for row in obs]), policy.mode(obs), atol=1e-5)
    alone = [policy.act(row, drawn) for row, drawn in zip(obs, noise, strict=True)]
    np.testing.assert_allclose(np.stack(alone), policy.act(obs, noise), atol=1e-5)
    assert alone[0].dtype == (np.int32 if spaces.discrete else np.float32)
    assert alone[0].shape == spaces.action_shape


def test_a_policy_follows_its_weights() -> None:
    policies = trained(CONTINUOUS, {}).policies
    policy, obs = HostPolicy(policies.design, policies.weights[0]), observations()
    before = policy.mode(obs)
    policies.weights[0] = policies.weights[1]
    np.testing.assert_array_equal(policy.mode(obs), policies.of(1).mode(obs))
    assert not np.array_equal(policy.mode(obs), before)


def test_predict_is_the_policy_that_was_evaluated() -> None:
    policies = trained(CONTINUOUS, {}).policies
    policy, obs = ControlPolicy(policies.of(0), CONTINUOUS), observations(4)
    likeliest, state = policy.predict(obs, deterministic=True)
    assert state is None
    np.testing.assert_allclose(likeliest, 1 + 2 * policies.of(0).mode(obs), atol=1e-6)
    alone, _ = policy.predict(obs[0], deterministic=True)
    np.testing.assert_allclose(alone, likeliest[0], atol=1e-5)
    drawn, again = (policy.predict(obs)[0] for _ in range(2))
    assert not np.array_equal(drawn, again)
    named, _ = policy.predict({"b": obs[:, 2:], "a": obs[:, :2]}, deterministic=True)
    np.testing.assert_array_equal(named, likeliest)
    for rows in (slice(0, 1), 0):  # a batch of one, and one alone
        named, _ = policy.predict({"b": obs[rows, 2:], "a": obs[rows, :2]}, deterministic=True)
        np.testing.assert_allclose(named, likeliest[rows], atol=1e-5)


def test_a_mixture_whose_card_tells_of_other_components_is_refused(tmp_path: Path) -> None:
    actors = trained(CONTINUOUS, {"head": "mixture"}).actors
    save_policies(tmp_path, actors, CONTINUOUS, SolverConfig(width=16), MEAN, STD)
    card = json.loads((tmp_path / "policy.json").read_text())
    for components in (3, 10**9):
        (tmp_path / "policy.json").write_text(json.dumps(card | {"components": components}))
        with pytest.raises(InputError):
            load_policies(tmp_path)
