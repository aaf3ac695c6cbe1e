"""The paper's mathematics: Propositions 1 and 2, Theorem 1, what its constant is worth, and slips in its proof."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from tests.theory.worlds import World, random_world, worlds
from trustirl.irl.certificates import paper_constant
from trustirl.nets.rewards import reward_factory
from trustirl.rl import exact


@jax.jit
def proposition_1(world: World) -> tuple[jax.Array, ...]:
    mdp, reward, _, expert = world
    rho = exact.occupancy(mdp, expert)
    policy = exact.solve(mdp, reward)
    return (
        exact.log_likelihood(mdp, rho, reward),
        mdp.temperature * jnp.vdot(rho, policy.log_prob),
        jnp.vdot(rho, reward) - exact.objective(mdp, policy.log_prob, reward),
    )


@given(worlds)
def test_proposition_1_likelihood_is_the_return_gap(world: World) -> None:
    gap, likelihood, returns = map(float, proposition_1(world))
    assert gap == pytest.approx(likelihood, rel=1e-9, abs=1e-9)  # Equation 5a, first form
    assert gap == pytest.approx(returns, rel=1e-9, abs=1e-9)  # Equation 5a, second form


@jax.jit
def gradient_and_differences(world: World, direction: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    mdp, reward, _, expert = world
    rho = exact.occupancy(mdp, expert)
    ell = lambda r: exact.log_likelihood(mdp, rho, r)  # noqa: E731
    occupancies = rho - exact.occupancy(mdp, exact.solve(mdp, reward).log_prob)
    h = 1e-4
    difference = (ell(reward + h * direction) - ell(reward - h * direction)) / (2 * h)
    return jnp.vdot(jax.grad(ell)(reward), direction), jnp.vdot(occupancies, direction), difference


@given(worlds, st.integers(0, 10**6))
def test_gradient_of_ell_is_the_occupancy_difference(world: World, seed: int) -> None:
    direction = np.random.default_rng(seed).normal(size=world.reward.shape)
    by_grad, by_occupancy, by_difference = map(float, gradient_and_differences(world, jnp.asarray(direction)))
    assert by_grad == pytest.approx(by_occupancy, rel=1e-9, abs=1e-9)  # Equation 6a
    curvature_scale = 1 / (float(world.mdp.temperature) ** 2 * (1 - float(world.mdp.discount)) ** 4)
    assert by_grad == pytest.approx(by_difference, rel=1e-5, abs=1e-7 * curvature_scale)


@pytest.mark.parametrize(("kind", "action_inputs"), [("table", False), ("linear", True), ("mlp", True)])
def test_gradient_reaches_the_parameters_of_every_reward_class(kind, action_inputs) -> None:
    mdp, _, _, expert = random_world(1, (6, 3, 3), 0.8, 1.0)
    rho = exact.occupancy(mdp, expert)
    make = reward_factory(kind, np.random.default_rng(0).normal(size=(6, 4)), 3, action_inputs, width=8)
    dynamic, static = eqx.partition(make(jax.random.key(0)), eqx.is_inexact_array)
    parameters, rebuild = ravel_pytree(dynamic)

    @jax.jit
    def ell(p: jax.Array) -> jax.Array:
        return exact.log_likelihood(mdp, rho, mdp.table(eqx.combine(rebuild(p), static)(mdp.pairs())))

    direction = jax.random.normal(jax.random.key(1), parameters.shape)
    if kind != "table":  # the features come last and are data: nothing is differentiated along them
        direction = direction.at[-6 * 4 :].set(0.0)
    h = 1e-5
    difference = (ell(parameters + h * direction) - ell(parameters - h * direction)) / (2 * h)
    assert float(jnp.vdot(jax.grad(ell)(parameters), direction)) == pytest.approx(float(difference), rel=1e-5)
    assert float(jnp.abs(difference)) > 1e-6


@jax.jit
def surrogate_quantities(world: World) -> dict[str, jax.Array]:
    mdp, old, new, expert = world
    rho = exact.occupancy(mdp, expert)
    policy = exact.solve(mdp, old)
    surrogate = lambda r: exact.surrogate(mdp, rho, policy.log_prob, r)  # noqa: E731
    likelihood = lambda r: exact.log_likelihood(mdp, rho, r)  # noqa: E731
    return {
        "value": surrogate(old) - likelihood(old),
        "slope": jnp.max(jnp.abs(jax.grad(surrogate)(old) - jax.grad(likelihood)(old))),
        "error": surrogate(new) - likelihood(new),
        "bregman": exact.bregman_gap(mdp, new, old),
        "gain": surrogate(new) - surrogate(old),
        "eps": jnp.max(jnp.abs(new - old)),
        "constant": paper_constant(mdp.actions, jnp.max(jnp.abs(new)), mdp.discount),
        "occupancy_gap": jnp.sum(jnp.abs(rho - exact.occupancy(mdp, policy.log_prob))),
    }


@given(worlds)
def test_proposition_2_and_the_bregman_identity(world: World) -> None:
    q = {name: float(value) for name, value in surrogate_quantities(world).items()}
    assert q["value"] == pytest.approx(0.0, abs=1e-8)  # Equation 6c, left
    assert q["slope"] == pytest.approx(0.0, abs=1e-8)  # Equation 6c, right
    assert q["error"] == pytest.approx(q["bregman"], abs=1e-8)
    assert q["bregman"] >= -1e-9


@given(worlds)
def test_theorem_1_holds_and_its_best_step_is_no_step(world: World) -> None:
    q = {name: float(value) for name, value in surrogate_quantities(world).items()}
    assert q["error"] <= q["constant"] * q["eps"]  # Theorem 1
    # The surrogate can gain at most |rho_E - rho_old|_1 per unit of eps, and C is larger: no reward, however
    # chosen, has a positive lower bound, so theta_old maximises it. The same holds for the smallest universal
    # linear constant 2/(1-g), which is valid too.
    smallest = 2 / (1 - float(world.mdp.discount))
    assert q["gain"] <= q["occupancy_gap"] * q["eps"] + 1e-9
    assert q["occupancy_gap"] <= smallest + 1e-9
    assert smallest < q["constant"]
    assert q["gain"] - q["constant"] * q["eps"] < 0
    assert q["error"] <= smallest * q["eps"] + 1e-9


def test_the_papers_constant_for_cartpole() -> None:
    assert float(paper_constant(2, 1.0, 0.9)) == pytest.approx(111_373.55, abs=0.005)


def sum_of_the_proofs_terms(actions: int, bound: float, discount: float) -> float:
    """What the bounds on the reward's part and on the entropy's three parts come to."""
    rest, log_actions = 1 - discount, np.log(actions)
    largest_log_prob = 2 * bound + (1 + discount) * log_actions  # Lemma 5, times 1 - g
    reward = bound * actions / rest**3
    entropy = 2 * actions / rest**2 + largest_log_prob * actions * (1 / rest**3 + discount / rest**4)
    return reward + entropy


@pytest.mark.parametrize(("actions", "bound", "discount"), [(2, 1.0, 0.9), (4, 0.3, 0.5), (18, 10.0, 0.99)])
def test_the_proofs_own_terms_sum_to_less_than_the_constant_that_is_printed(actions, bound, discount) -> None:
    ours = sum_of_the_proofs_terms(actions, bound, discount)
    both = (3 - discount) * bound + (1 + discount) * np.log(actions)
    assert ours == pytest.approx(2 * actions / (1 - discount) ** 2 + actions * both / (1 - discount) ** 4)
    assert 2 / (1 - discount) < ours < float(paper_constant(actions, bound, discount))


def test_the_sum_for_cartpole() -> None:
    assert sum_of_the_proofs_terms(2, 1.0, 0.9) == pytest.approx(68_739.6, abs=0.05)


def test_lemma_1_is_false_for_one_action_and_true_for_their_sum() -> None:
    before, after = (np.exp(q) / np.exp(q).sum() for q in (np.array([0.0, 0.0]), np.array([0.0, 1.0])))
    assert abs(after[0] - before[0]) > 0.2  # and its Q did not change
    rng = np.random.default_rng(0)
    for _ in range(200):
        q, change = rng.normal(0, 3, 5), rng.normal(0, 10 ** rng.uniform(-3, 1), 5)
        policies = [np.exp(x) / np.exp(x).sum() for x in (q, q + change)]
        assert np.abs(policies[1] - policies[0]).sum() <= np.abs(change).max()


@jax.jit
def proof_quantities(world: World) -> dict[str, jax.Array]:
    mdp, old, new, expert = world
    policies = [exact.solve(mdp, reward) for reward in (old, new)]
    apart = jnp.abs(jnp.exp(policies[1].log_prob) - jnp.exp(policies[0].log_prob)).sum(axis=1) / 2
    of_old = exact.evaluate(mdp, policies[0].log_prob, new, mdp.temperature)
    error = policies[1].value - of_old  # of each state's value, never negative
    rho = exact.occupancy(mdp, expert)
    return {
        "apart": jnp.max(apart) * (1 - mdp.discount) / jnp.max(jnp.abs(new - old)),
        "largest": jnp.max(error),
        "started": jnp.vdot(mdp.initial, error),
        "visited": jnp.vdot(rho.sum(axis=1), error),
        "overstated": exact.surrogate(mdp, rho, policies[0].log_prob, new) - exact.log_likelihood(mdp, rho, new),
    }


def test_what_lemma_2_writes_and_what_the_proof_takes_for_one_states_error() -> None:
    lost = 0
    for seed in range(20):
        q = {k: float(v) for k, v in proof_quantities(random_world(seed, (6, 3, 3), 0.9, 1.0)).items()}
        # Lemma 2 takes e/(1-g) from Lemma 1, which gives |A| e/(2(1-g)); the half of it holds for any |A|.
        assert q["apart"] <= 0.5
        # The proof bounds the mean under rho_E, whose mass is 1/(1-g), by one state's bound. That can be too small by
        # up to this factor, but Equation 5c needs the initial states only, whose mass is one.
        assert q["visited"] <= 10 * q["largest"] * (1 + 1e-9)
        lost += q["visited"] > 3 * q["largest"]
        assert q["overstated"] == pytest.approx(q["started"], abs=1e-8)
        assert q["started"] <= q["largest"]
    assert lost == 20


def test_the_corollary_says_that_a_sequence_which_never_moves_never_falls() -> None:
    """At theta_old the bound is ell itself, whatever the constant, and theta_old may always be chosen."""
    world = random_world(0, (6, 3, 3), 0.9, 1.0)
    still = {k: float(v) for k, v in surrogate_quantities(world._replace(other=world.reward)).items()}
    assert still["eps"] == 0.0
    assert still["error"] + still["constant"] * still["eps"] == pytest.approx(0.0, abs=1e-8)
