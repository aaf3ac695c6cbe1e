"""Policies as densities: normalised, and consistent between sampling and rating."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import norm

from tests.compiled import compiled
from tests.rl.batches import filled
from trustirl.nets.mlp import MLP, standardiser
from trustirl.nets.policies import (
    MOST_STD,
    Categorical,
    CategoricalActor,
    GaussianActor,
    StationaryActor,
    TanhGaussian,
    TanhMixture,
)

CASES = [(0.0, 0.0), (0.8, -1.0), (-2.0, 0.3), (0.1, 1.5)]


rate = jax.jit(lambda policy, action: policy.log_prob(action))
draw = jax.jit(lambda policy, key: policy.sample_with_log_prob(key))


def gaussian(mean: float, log_std: float, shape: tuple[int, ...]) -> TanhGaussian:
    return TanhGaussian(jnp.full(shape, mean, jnp.float32), jnp.full(shape, log_std, jnp.float32))


@pytest.mark.parametrize(("mean", "log_std"), CASES)
def test_the_tanh_gaussian_density_integrates_to_one(mean: float, log_std: float) -> None:
    u = np.linspace(-7.2, 7.2, 20_001)  # equal steps before the tanh resolve both borders
    action = np.tanh(u)
    density = np.exp(rate(gaussian(mean, log_std, (len(u), 1)), action[:, None]))
    inside = norm.cdf(7.2, mean, np.exp(log_std)) - norm.cdf(-7.2, mean, np.exp(log_std))
    assert np.trapezoid(density, action) == pytest.approx(inside, abs=1e-3)


@pytest.mark.parametrize(("mean", "log_std"), CASES)
def test_the_tanh_gaussian_density_is_the_change_of_variables(mean: float, log_std: float) -> None:
    action = np.linspace(-0.99, 0.99, 101)
    expected = norm.logpdf(np.arctanh(action), mean, np.exp(log_std)) - np.log(1 - action**2)
    got = rate(gaussian(mean, log_std, (101, 1)), action[:, None])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_axes_of_an_action_are_independent() -> None:
    policy = TanhGaussian(jnp.asarray([[0.3, -1.0]], jnp.float32), jnp.asarray([[0.0, -0.5]], jnp.float32))
    action = jnp.asarray([[0.2, -0.6]], jnp.float32)
    parts = [
        rate(TanhGaussian(policy.mean[:, i : i + 1], policy.log_std[:, i : i + 1]), action[:, i : i + 1])
        for i in range(2)
    ]
    np.testing.assert_allclose(rate(policy, action), parts[0] + parts[1], rtol=1e-6)


def test_a_sampled_log_density_is_that_of_the_sample() -> None:
    policy = gaussian(0.4, -0.7, (5000, 3))
    action, log_prob = draw(policy, jax.random.key(0))
    np.testing.assert_allclose(log_prob, rate(policy, action), atol=2e-3)
    np.testing.assert_allclose(action, compiled(policy.sample, jax.random.key(0)), atol=1e-5)
    pre_image = np.arctanh(np.asarray(action, float))
    assert pre_image.mean() == pytest.approx(0.4, abs=0.02)
    assert pre_image.std() == pytest.approx(np.exp(-0.7), abs=0.02)


def test_border_actions_and_extreme_parameters_stay_finite() -> None:
    border = jnp.asarray([[1.0], [-1.0], [0.0]], jnp.float32)
    for mean, log_std in [(0.0, 0.0), (30.0, -20.0), (-30.0, 2.0)]:
        policy = gaussian(mean, log_std, (3, 1))
        assert np.isfinite(rate(policy, border)).all()
        action, log_prob = draw(policy, jax.random.key(1))
        assert np.isfinite(log_prob).all()
        assert (np.abs(action) <= 1).all()


def test_the_gradient_of_a_saturated_sample_is_finite() -> None:
    def log_prob(mean: jax.Array) -> jax.Array:
        return TanhGaussian(mean, jnp.zeros_like(mean)).sample_with_log_prob(jax.random.key(0))[1].sum()

    gradient = jax.jit(jax.grad(log_prob))
    for mean in (-100.0, 0.0, 100.0):
        assert np.isfinite(gradient(jnp.full((4, 2), mean, jnp.float32))).all()


def test_the_actor_clips_its_log_std() -> None:
    actor = filled(lambda key: GaussianActor(2, 1, 8, 1, key))
    log_std = compiled(actor, 1e6 * np.float32([[1, 1], [-1, 1], [1, -1], [-1, -1]])).log_std
    assert float(log_std.min()) == -20
    assert float(log_std.max()) == 2


def mixture(count: int = 3, actions: int = 1) -> TanhMixture:
    """Components of other weights, places and widths."""
    rng = np.random.default_rng(0)
    logits, mean, log_std = (
        rng.normal(size=count),
        rng.normal(size=(count, actions)),
        rng.normal(size=(count, actions)),
    )
    parts = TanhGaussian(jnp.asarray(2 * mean, jnp.float32), jnp.asarray(0.5 * log_std - 0.5, jnp.float32))
    return TanhMixture(jnp.asarray(logits, jnp.float32), parts)


def repeated(policy: TanhMixture, rows: int) -> TanhMixture:
    return jax.tree.map(lambda x: jnp.asarray(np.broadcast_to(x, (rows, *x.shape))), policy)


def test_a_mixture_is_a_density_and_the_weighted_sum_of_its_parts() -> None:
    u, policy = np.linspace(-7.2, 7.2, 20_001), mixture()
    action = np.tanh(u)
    density = np.exp(np.asarray(rate(repeated(policy, len(u)), action[:, None]), float))
    assert np.trapezoid(density, action) == pytest.approx(1, abs=2e-3)
    inner = np.abs(u) < 5
    weights = np.exp(policy.logits) / np.exp(policy.logits).sum()
    parts = [
        weight * norm.pdf(u, mean[0], np.exp(log_std[0])) / (1 - action**2)
        for weight, mean, log_std in zip(weights, policy.parts.mean, policy.parts.log_std, strict=True)
    ]
    np.testing.assert_allclose(density[inner], np.sum(parts, axis=0)[inner], rtol=2e-3, atol=1e-5)


def test_a_mixture_draws_each_part_by_its_weight() -> None:
    """The parts are far apart and narrow, so that one sees which was drawn; the mode is the heaviest one's middle."""
    parts = TanhGaussian(jnp.asarray([[-1.0, 0.5], [1.0, -0.5]]), jnp.full((2, 2), -4.0))
    policy = repeated(TanhMixture(jnp.asarray(np.log([0.3, 0.7])), parts), 20_000)
    action, log_prob = map(np.asarray, draw(policy, jax.random.key(0)))
    right = np.asarray(action[:, 0] > 0)
    assert right.mean() == pytest.approx(0.7, abs=0.02)
    np.testing.assert_array_equal(right, np.asarray(action[:, 1] < 0))  # all axes of an action are of one part
    np.testing.assert_allclose(log_prob, rate(policy, action), atol=1e-5)
    np.testing.assert_allclose(compiled(policy.mode)[0], np.tanh([1.0, -0.5]), atol=1e-6)


def stationary(seed: int = 0) -> StationaryActor:
    """One whose parameters have all moved and whose waves are short."""
    actor, random = compiled(StationaryActor, 3, 2, 16, 1, jax.random.key(seed)), np.random.default_rng(seed)
    moved = jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.3, x.shape).astype(np.float32)), actor)
    return eqx.tree_at(lambda a: a.log_scales, moved, moved.log_scales + 5)


def test_a_stationary_head_is_linear_in_waves() -> None:
    """Against NumPy in float64, with the wave as the arcsine of a sine."""
    actor, obs = stationary(), np.random.default_rng(1).normal(size=(7, 3))
    plain = jax.tree.map(lambda x: np.asarray(x, float), actor)
    first, last = plain.net.layers
    below = np.maximum(obs @ first.weight.T + first.bias, 0) @ last.weight.T + last.bias
    angle = below @ (plain.waves * np.exp(plain.log_scales)).T + plain.phases
    features = np.pi / np.sqrt(8) * np.arcsin(np.sin(angle)) / 4
    told = compiled(actor, jnp.asarray(obs, jnp.float32))
    for action, raw in enumerate(plain.factors):
        factor = np.tril(raw, -1) + np.diag(np.exp(np.diag(raw)))
        variance = np.einsum("bi,ij,bj->b", features, factor @ factor.T, features)
        deviation = np.sqrt(0.75) * np.tanh(np.sqrt(variance + 1e-5))
        np.testing.assert_allclose(told.mean[:, action], features @ plain.mean[action], atol=1e-4)
        np.testing.assert_allclose(np.exp(told.log_std[:, action]), deviation, rtol=1e-3)


def test_a_new_stationary_policy_is_centred_and_nearly_uniform() -> None:
    actor = compiled(StationaryActor, 3, 1, 256, 2, jax.random.key(0))
    policy = compiled(actor, compiled(jax.random.normal, jax.random.key(1), (50, 3)))
    np.testing.assert_array_equal(policy.mean, 0)
    action = np.linspace(-0.999, 0.999, 2001)[:, None, None]
    density = np.exp(compiled(jax.vmap(policy.log_prob), np.broadcast_to(action, (2001, 50, 1))))
    assert 0.4 < density[300:1700].min() < density.max() < 0.8  # 0.5 where it is uniform
    widest = TanhGaussian(jnp.zeros((2001, 1)), jnp.full((2001, 1), np.log(MOST_STD)))
    nats = np.mean(np.log(0.5) - np.asarray(rate(widest, action[:, 0])))
    assert 0.0 < nats < 0.03


def test_a_stationary_policy_forgets_far_from_what_it_was_fitted_to() -> None:
    random = np.random.default_rng(0)
    obs = jnp.asarray(random.normal(size=(256, 2)), jnp.float32)
    action = jnp.asarray(np.tanh(np.sin(2 * np.asarray(obs)[:, :1]) + np.float32(0.1 * random.normal(size=(256, 1)))))
    far = 8 * np.float32([[1, 1], [-1, 1], [1, -1], [-1, -1], [1, 0], [0, 1], [-1, 0], [0, -1]])
    adam = optax.adam(2e-3)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        actor, state = carry
        gradient = jax.grad(lambda fitted: -jnp.mean(fitted(obs).log_prob(action)))(actor)
        updates, state = adam.update(gradient, state)
        return (optax.apply_updates(actor, updates), state), None

    new = compiled(StationaryActor, 2, 1, 32, 2, jax.random.key(0))
    (fitted, _), _ = jax.jit(lambda actor: jax.lax.scan(step, (actor, adam.init(actor)), None, 1500))(new)
    seen, unseen = compiled(fitted, obs), compiled(fitted, far)
    near, away = np.exp(seen.log_std), np.exp(unseen.log_std)
    assert np.mean(rate(seen, action)) > 0.5 > np.mean(rate(compiled(new, obs), action))
    assert near.mean() < 0.3
    assert away.mean() > 0.5
    assert np.abs(unseen.mean).mean() < 0.6


def test_stationary_heads_are_float32_and_can_be_many() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    many = compiled(eqx.filter_vmap(lambda key: StationaryActor(3, 2, 8, 1, key)), keys)
    policies = compiled(eqx.filter_vmap(lambda actor: actor(jnp.ones((5, 3), jnp.float32))), many)
    assert policies.mean.shape == policies.log_std.shape == (3, 5, 2)
    assert {leaf.dtype for leaf in jax.tree.leaves((many, policies))} == {jnp.dtype("float32")}
    surest = jax.tree.map(lambda x: 0 * x, stationary())
    surest = eqx.tree_at(lambda actor: actor.factors, surest, surest.factors - 30 * jnp.eye(16))
    np.testing.assert_allclose(
        np.exp(compiled(surest, jnp.ones((1, 3))).log_std), MOST_STD * np.sqrt(1e-5), rtol=1e-3
    )


def test_the_categorical_is_a_softmax() -> None:
    logits = jnp.asarray([[1.0, 3.0, -1.0]], jnp.float32)
    prob = np.exp(np.asarray(logits[0])) / np.exp(np.asarray(logits[0])).sum()
    policy = Categorical(jnp.broadcast_to(logits, (20_000, 3)))
    action, log_prob = draw(policy, jax.random.key(0))
    np.testing.assert_allclose(np.bincount(np.asarray(action)) / len(action), prob, atol=0.01)
    np.testing.assert_allclose(log_prob, np.log(prob)[np.asarray(action)], rtol=1e-5)
    assert set(np.asarray(compiled(policy.mode)).tolist()) == {1}
    actor = filled(lambda key: CategoricalActor(4, 3, 8, 1, key))
    np.testing.assert_allclose(
        np.exp(compiled(lambda: actor(jnp.ones((2, 4), jnp.float32)).log_probs())).sum(-1), 1, rtol=1e-6
    )


def test_layer_norm_makes_a_network_blind_to_the_scale_of_a_layer() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    for layer_norm in (False, True):
        net = filled(lambda key, norm=layer_norm: MLP(3, 2, 16, 2, key, norm))
        louder = eqx.tree_at(lambda n: n.layers[0], net, jax.tree.map(lambda w: 1000 * w, net.layers[0]))
        assert np.allclose(compiled(net, x), compiled(louder, x), atol=1e-2) == layer_norm


def test_standardisation_is_frozen_clipped_and_spares_constant_entries() -> None:
    standardise = standardiser([1.0, 0.0, 5.0], [2.0, 1e-3, 0.0])
    out = compiled(standardise, jnp.asarray([[3.0, 1.0, 5.0], [-1.0, -1.0, 5.5]]))
    np.testing.assert_allclose(out, [[1.0, 10.0, 0.0], [-1.0, -10.0, 0.5]])
    assert out.dtype == jnp.float32
    np.testing.assert_array_equal(standardiser(None, None)(jnp.asarray([50.0])), [50.0])
