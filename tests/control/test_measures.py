"""The pieces between environments and updates: replay, weighted sampling, measures with absorbing shares."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compiled import compiled
from trustirl.core.buffer import Buffer, add, draw, empty_buffer
from trustirl.core.measure import concat, expect, minibatches, sample
from trustirl.core.types import RewardData, Transition
from trustirl.irl.measures import Steps, Weighing, mixed, policy_minibatches, with_past
from trustirl.irl.measures import episode_measure as measure_of
from trustirl.irl.plan import Plan
from trustirl.irl.terms import drift, gap
from trustirl.nets.rewards import TableReward
from trustirl.rl.exact import occupancy, solve
from trustirl.rollouts.exact import sample_episodes
from trustirl.tasks.registry import make_task


def episode_measure(
    obs: jax.Array, action: jax.Array, ended: jax.Array, time: jax.Array, how: Weighing
) -> Transition:
    """Of steps whose successors tell which step they follow."""
    return compiled(
        lambda *steps: measure_of(Steps(*steps[:2], steps[0] + 0.5, *steps[2:]), how), obs, action, ended, time
    )


def numbered(first: int, count: int) -> Transition:
    """Rows whose every field tells the row's number."""
    number = np.arange(first, first + count)
    obs = number[:, None] * np.ones(3)
    return Transition(*map(jnp.asarray, (obs, -number, number.astype(float), obs + 0.5, number % 2 == 0)))


def filled(capacity: int, *batches: Transition) -> Buffer:
    """A replay to which the batches were added."""
    replay = compiled(empty_buffer, capacity, batches[0])
    for batch in batches:
        replay = compiled(add, replay, batch)
    return replay


def test_replay_keeps_fields_together_and_forgets_the_oldest() -> None:
    replay = filled(10, *(numbered(first, 4) for first in (0, 4, 8)))
    assert int(replay.size) == 10
    drawn = compiled(draw, replay, jax.random.key(0), 5000)
    number = np.asarray(drawn.weight).astype(int)
    np.testing.assert_array_equal(drawn.obs, number[:, None] * np.ones(3))
    np.testing.assert_array_equal(drawn.action, -number)
    np.testing.assert_array_equal(drawn.next_obs[:, 0], number + 0.5)
    np.testing.assert_array_equal(drawn.terminated, number % 2 == 0)
    counts = np.bincount(number, minlength=12)
    assert counts[:2].sum() == 0  # rows 0 and 1 were overwritten
    chi2 = ((counts[2:] - 500) ** 2 / 500).sum()
    assert chi2 < 27.9  # 0.1 % point of chi-squared with 9 degrees of freedom


def test_of_more_rows_than_fit_the_last_ones_stay() -> None:
    replay = filled(10, numbered(0, 3), numbered(3, 25))
    assert (int(replay.added), int(replay.size)) == (28, 10)
    numbers = np.asarray(replay.rows.weight).astype(int)
    assert sorted(numbers) == [*range(18, 28)]
    np.testing.assert_array_equal(numbers % 10, np.arange(10))  # each where it belongs
    np.testing.assert_array_equal(replay.rows.action, -numbers)


def test_a_young_replay_draws_only_what_it_holds() -> None:
    replay = filled(100, numbered(50, 3))
    assert set(np.asarray(compiled(draw, replay, jax.random.key(1), 200).weight)) == {50.0, 51.0, 52.0}


def test_demonstrated_steps_join_a_minibatch_whole_and_in_their_share() -> None:
    replay = filled(10, numbered(0, 10))
    own = lambda key: draw(replay, key, 4000)  # noqa: E731
    batch = compiled(mixed(own, numbered(100, 5), 1000, marked=True), jax.random.key(0))
    number = np.asarray(batch.weight).astype(int)
    shown = np.bincount(number[number >= 100] - 100, minlength=5)
    assert len(number) == 4000
    assert shown.sum() == 1000
    assert ((shown - 200) ** 2 / 200).sum() < 20  # chi-squared with four degrees of freedom
    np.testing.assert_array_equal(batch.obs, number[:, None] * np.ones(3))
    np.testing.assert_array_equal(batch.action, -number)
    np.testing.assert_array_equal(batch.next_obs[:, 0], number + 0.5)
    np.testing.assert_array_equal(batch.terminated, number % 2 == 0)
    np.testing.assert_array_equal(batch.expert, number >= 100)
    assert batch.critic_only is None
    for chance in (0.0, 0.25, 1.0):
        faded = compiled(mixed(own, numbered(100, 5), 1000, policy_too=jnp.float32(chance)), jax.random.key(0))
        np.testing.assert_array_equal(faded.weight, batch.weight)  # the same steps
        assert faded.expert is None
        alone = np.asarray(faded.critic_only)
        assert not np.any(alone & (number < 100))
        assert abs(alone.sum() - 1000 * (1 - chance)) <= 5 * np.sqrt(1000 * chance * (1 - chance))
    assert mixed(own, numbered(100, 5), 0) is own
    assert mixed(own, numbered(100, 0), 1000) is own  # of no step it is known what followed


def drawn_for_policy(replay: Buffer, plan: Plan, marked: bool = False) -> Transition:
    def drawn(replay: Buffer) -> Transition:
        return policy_minibatches(replay, numbered(100, 5), plan, marked)(jax.random.key(0))

    return compiled(drawn, replay)


def test_demonstrated_steps_fade_for_the_policy_as_its_own_grow() -> None:
    plan = Plan(batch=4000, demo_share=0.25, demo_fade=40)
    replay = compiled(empty_buffer, 100, numbered(0, 1))
    shares = []
    for own in (0, 10, 20, 50):
        replay = replace(replay, added=jnp.int32(own))
        batch = drawn_for_policy(replay, plan)
        assert int((np.asarray(batch.weight) >= 100).sum()) == 1000
        shares.append(float(np.sum(batch.critic_only)) / 1000)
    np.testing.assert_allclose(shares, [0.0, 0.25, 0.5, 1.0], atol=0.08)
    assert drawn_for_policy(replay, replace(plan, demo_fade=None)).critic_only is None


def test_demonstrated_steps_give_way_to_own_ones_by_halves() -> None:
    plan = Plan(batch=4000, demo_share=0.5, demo_half_life=20, demo_fade=40)
    replay = filled(100, numbered(0, 10))
    shares = []
    for own in (10, 20, 40):
        replay = replace(replay, added=jnp.int32(own))
        batch = drawn_for_policy(replay, plan, marked=True)
        number = np.asarray(batch.weight).astype(int)
        assert len(number) == 4000
        np.testing.assert_array_equal(batch.obs, number[:, None] * np.ones(3))  # rows stay whole
        np.testing.assert_array_equal(batch.expert, number >= 100)
        assert not np.any(np.asarray(batch.critic_only) & (number < 100))
        shares.append(np.mean(number >= 100))
    np.testing.assert_allclose(shares, [0.5 * 0.5**0.5, 0.25, 0.125], atol=0.03)
    stays = drawn_for_policy(replay, replace(plan, demo_half_life=None))
    assert int((np.asarray(stays.weight) >= 100).sum()) == 2000


@pytest.mark.parametrize("absorb", [True, False])
def test_past_steps_take_their_share_of_the_steps_and_none_of_what_follows_an_end(absorb: bool) -> None:
    time, ends = jnp.asarray([0, 1, 2, 0, 1]), jnp.asarray([False, False, True, False, False])
    present = episode_measure(
        jnp.ones((5, 3)), jnp.zeros(5, int), ends, time, Weighing(10, 0.9, discounted=True, absorb=absorb)
    )
    both = compiled(with_past, present, replace(numbered(2, 4), weight=jnp.ones(4)), 0.3)
    present, both = (jax.tree.map(np.asarray, part) for part in (present, both))
    acted = ~np.asarray(both.absorbing)
    np.testing.assert_allclose(both.weight.sum(), present.weight.sum(), rtol=1e-6)
    np.testing.assert_allclose(
        both.weight[: len(present.weight)][present.absorbing], present.weight[present.absorbing]
    )
    past = np.asarray(both.obs[:, 0] > 1.5)
    np.testing.assert_allclose(both.weight[past], 0.3 * both.weight[acted].sum() / 4, rtol=1e-6)
    np.testing.assert_array_equal(both.action[past], [-2, -3, -4, -5])
    now, mixture = (compiled(expect, lambda pairs: pairs.obs[:, 0], part) for part in (present, both))
    share = 0.3 * both.weight[acted].sum() / both.weight.sum()
    np.testing.assert_allclose(mixture, now + share * (3.5 - 1.0), rtol=1e-6)


def test_weighted_sampling_follows_the_weights() -> None:
    weight = jnp.asarray([0.0, 1.0, 0.0, 3.0, 0.0])
    batch = Transition(jnp.arange(5), jnp.arange(5), weight)
    drawn = compiled(sample, batch, 40_000, jax.random.key(0))
    share = np.bincount(drawn.obs, minlength=5) / 40_000
    np.testing.assert_allclose(share, [0, 0.25, 0, 0.75, 0], atol=0.01)
    np.testing.assert_array_equal(drawn.obs, drawn.action)
    np.testing.assert_array_equal(drawn.weight, 1.0)
    demo, learner = compiled(minibatches(7), RewardData(batch, batch, batch), 4, jax.random.key(2))
    assert demo.obs.shape == learner.obs.shape == (4, 7)
    assert not np.array_equal(demo.obs, learner.obs)


def test_an_end_is_followed_by_its_absorbing_share() -> None:
    obs, action = jnp.ones((4, 2)), jnp.ones((4, 1))
    terminated, time = jnp.asarray([False, True, False, False]), jnp.asarray([0, 1, 0, 1])
    plain = episode_measure(obs, action, terminated, time, Weighing(10, 0.9, False, True))
    np.testing.assert_allclose(plain.weight, [1, 1, 1, 1, 0, 8, 0, 0])  # 2 steps lived, 8 of 10 absorbed
    np.testing.assert_array_equal(plain.absorbing, [False] * 4 + [True] * 4)
    np.testing.assert_array_equal(plain.obs[4:], 0.0)
    np.testing.assert_array_equal(plain.next_obs, [[1.5, 1.5]] * 4 + [[0.0, 0.0]] * 4)
    np.testing.assert_array_equal(plain.terminated, [False, True] + [False] * 6)
    discounted = episode_measure(obs, action, terminated, time, Weighing(10, 0.9, True, True))
    np.testing.assert_allclose(discounted.weight, [1, 0.9, 1, 0.9, 0, 0.81 / 0.1, 0, 0], rtol=1e-6)
    without = episode_measure(obs, action, terminated, time, Weighing(10, 0.9, False, False))
    assert len(without.weight) == 4


def test_discounted_mass_of_a_finished_episode_is_complete() -> None:
    time = jnp.arange(6)
    measure = episode_measure(jnp.ones((6, 1)), jnp.ones((6, 1)), time == 5, time, Weighing(99, 0.8, True, True))
    assert float(measure.weight.sum()) == pytest.approx(1 / 0.2, rel=1e-6)


def test_sampled_expectations_equal_the_exact_ones() -> None:
    """The reward step's gap, and so its gradient, from sampled episodes and from the exact occupancy."""
    task = make_task("random-mdp", {"discount": 0.8})
    policy = solve(task.mdp, jnp.asarray(task.true_reward))
    episodes, horizon = 4000, 60
    states, actions = sample_episodes(task.mdp, policy.log_prob, horizon, episodes, jax.random.key(0))
    time = jnp.broadcast_to(jnp.arange(horizon), states.shape)
    table = jnp.asarray(np.random.default_rng(1).normal(size=task.true_reward.shape))

    def reward(batch: Transition) -> jax.Array:
        return table[batch.obs, batch.action]

    never = jnp.zeros(states.shape, bool)

    def mean(*steps: jax.Array) -> jax.Array:
        return expect(reward, episode_measure(*steps, Weighing(horizon, 0.8, True, False)))

    blocks = (np.reshape(x, (20, -1, horizon)) for x in (states, actions, never, time))
    rows = np.asarray(compiled(jax.vmap(mean), *blocks))
    exact = float(compiled(lambda: expect(reward, task.mdp.pairs(occupancy(task.mdp, policy.log_prob)))))
    error = np.std(rows, ddof=1) / np.sqrt(len(rows))
    assert abs(np.mean(rows) - exact) <= 4 * error + 1e-4


@pytest.mark.slow
def test_the_sampled_piro_gradient_is_the_exact_one() -> None:
    """Equation 9's gradient, from minibatches of sampled discounted episodes and from exact occupancies."""
    task = make_task("random-mdp", {"discount": 0.8})
    mdp = task.mdp
    expert = solve(mdp, jnp.asarray(task.true_reward))
    other = solve(mdp, jnp.asarray(np.random.default_rng(3).normal(size=task.true_reward.shape)))
    old = TableReward(jnp.zeros(task.true_reward.shape))
    now = TableReward(jnp.asarray(np.random.default_rng(1).normal(size=task.true_reward.shape)))
    exact = [mdp.pairs(occupancy(mdp, policy.log_prob)) for policy in (expert, other)]
    reference = concat(*exact)

    def objective(reward: TableReward, demo: Transition, learner: Transition) -> jax.Array:
        return gap(reward, demo, learner) - 0.3 * drift(reward, old, reference)

    horizon, episodes, blocks = 50, 300, 40

    @jax.jit
    def gradient_of_minibatch(key: jax.Array) -> jax.Array:
        demo_key, learner_key, draw_key = jax.random.split(key, 3)
        measures = []
        for policy, episode_key in ((expert, demo_key), (other, learner_key)):
            states, actions = sample_episodes(mdp, policy.log_prob, horizon, episodes, episode_key)
            time = jnp.broadcast_to(jnp.arange(horizon), states.shape)
            never = jnp.zeros(states.shape, bool)
            rows = (x.reshape(-1) for x in (states, actions, never, time))
            measures.append(episode_measure(*rows, Weighing(horizon, 0.8, True, False)))
        demo, learner = minibatches(512)(RewardData(*measures, reference), 1, draw_key)
        one = jax.tree.map(lambda x: x[0], (demo, learner))
        return jax.grad(objective)(now, *one).table

    sampled = np.stack([gradient_of_minibatch(key) for key in jax.random.split(jax.random.key(5), blocks)])
    wanted = np.asarray(jax.grad(objective)(now, *exact).table)
    error = sampled.std(axis=0, ddof=1) / np.sqrt(blocks)
    assert (np.abs(sampled.mean(axis=0) - wanted) <= 4 * error + 1e-4).all()
    assert np.abs(wanted).max() > 10 * error.max()  # the test can tell a wrong gradient from a right one
