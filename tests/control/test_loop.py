"""PIRO on a simulator: it runs, repeats itself, counts its steps and never stores a reward."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compiled import compiled
from tests.control.small import cartpole_demo, experiment, pendulum_demo
from tests.rl.batches import differs
from trustirl.algorithms import ALGORITHMS
from trustirl.algorithms.bc import BcConfig
from trustirl.algorithms.mce import MceConfig
from trustirl.algorithms.trro import TrroConfig
from trustirl.bench.suites import BUDGETS
from trustirl.core.errors import InputError
from trustirl.core.types import TrainState, Transition
from trustirl.demos.schema import Demos
from trustirl.irl.loop import iterate, seed_keys
from trustirl.irl.measures import Steps, Weighing, episode_measure
from trustirl.irl.plan import Plan
from trustirl.irl.terms import gap
from trustirl.training.asking import train_question
from trustirl.training.train import question, setting_groups
from trustirl.worlds.exact import ExactOptions
from trustirl.worlds.fixed_reward import ExpertOptions
from trustirl.worlds.job import Experiment, settle, told_steps
from trustirl.worlds.matching import expert_data
from trustirl.worlds.memory import check_memory
from trustirl.worlds.simulator import build, iterations

SLOW = pytest.mark.slow  # another kind of what a quick case checks already


def assert_same_shapes(one: TrainState, other: TrainState) -> None:
    """Or a checkpoint of the one could not be read into the other."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    first, second = ([x.shape for x in jax.tree.leaves(tree) if hasattr(x, "dtype")] for tree in (one, other))
    assert first == second


def test_the_control_loop_repeats_itself_and_counts_every_step() -> None:
    parts = build(experiment(), cartpole_demo())
    steps, again = (list(iterate(parts.loop, seed_keys(2), 2)) for _ in range(2))
    state, last = steps[-1]
    assert len(steps) == 3
    for (_, one), (_, other) in zip(steps, again, strict=True):
        for name in one:
            assert np.isfinite(one[name]).all()
            np.testing.assert_array_equal(one[name], other[name])
    assert parts.ledger.counts["train"] == 2 * 2 * (3 * 80 + 20)  # runs, seeds, three iterations and the warm-up
    assert parts.ledger.counts["reward"] == 0
    assert int(state.replay.size[0]) == 3 * 80 + 20
    assert int(state.iteration[0]) == 2
    assert (last["drift"] > 0).all()
    assert last["gap"][0] != last["gap"][1]  # seeds differ
    demos = cartpole_demo()
    pairs = jnp.asarray(demos.observations, jnp.float32), jnp.asarray(demos.actions, jnp.int32)
    solver = parts.algorithm.solver
    rated = eqx.filter_vmap(lambda agent: solver.log_prob(solver.actor(agent), *pairs))
    given = compiled(rated, state.irl.policy)
    np.testing.assert_allclose(last["log_likelihood"], given.mean(axis=1), rtol=1e-4)
    returns = parts.evaluate(state.irl.policy)["true_return"]
    parts.close()
    assert returns.shape == (2, 2)
    assert (returns >= 8).all()  # no pole falls sooner
    networks = jax.tree.leaves((state.irl.policy, state.irl.reward))
    assert {str(leaf.dtype) for leaf in networks if hasattr(leaf, "dtype")} <= {"float32", "int32"}
    assert_same_shapes(parts.loop.blank(seed_keys(2)), state)


@pytest.mark.parametrize(
    ("task", "demo"), [("CartPole-v1", cartpole_demo), pytest.param("Pendulum-v1", pendulum_demo, marks=SLOW)]
)
def test_adding_seeds_leaves_the_first_ones_as_they_were(task: str, demo: Callable[[], Demos]) -> None:
    """Initial networks, first observations and the first update, to float tolerance."""

    def first(seeds: int) -> tuple[np.ndarray, Any, Any]:
        parts = build(experiment(task=task, seeds=seeds), demo())
        states = iterate(parts.loop, seed_keys(seeds), 1)
        start, _ = next(states)
        seen = np.array(start.replay.rows.obs[0])  # the next step reuses the replay's memory
        state, _ = next(states)
        parts.close()
        return seen, start.irl, state.irl

    (few_seen, *few), (many_seen, *many) = first(1), first(2)
    np.testing.assert_allclose(many_seen, few_seen, rtol=1e-5, atol=1e-5)
    for one, other in zip(few, many, strict=True):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            if hasattr(a, "dtype"):
                np.testing.assert_allclose(b[0], a[0], rtol=2e-3, atol=2e-4)


def test_a_reward_is_nothing_before_its_first_update() -> None:
    parts = build(experiment(), cartpole_demo())
    (start, first), (state, _) = iterate(parts.loop, seed_keys(2), 1)
    parts.close()
    far = Transition(jnp.full((2, 3, 4), 1e3), jnp.ones((2, 3), jnp.int32), jnp.ones((2, 3)))
    valued = eqx.filter_jit(eqx.filter_vmap(lambda reward, pairs: reward(pairs)))
    np.testing.assert_array_equal(valued(start.irl.reward, far), 0.0)
    np.testing.assert_array_equal(first["gap"], 0.0)
    assert (valued(state.irl.reward, far) != 0).all()


def test_demonstrated_steps_are_rows_of_experience_as_far_as_is_known_what_followed() -> None:
    """Two episodes, the first of which ended, which is seen only where its last step's successor is known."""
    obs, action, undiscounted = np.arange(8.0).reshape(4, 2), np.arange(4.0)[:, None], Weighing(9, 0.9, False, True)
    demos = Demos.from_numpy(obs, action, [2, 4], [True, False])
    expert = expert_data(demos, obs, action, undiscounted)
    shown = expert.rows
    np.testing.assert_array_equal(expert.following.obs, shown.next_obs)
    np.testing.assert_array_equal(expert.following.action, action[[1, 3]])
    np.testing.assert_array_equal(expert.following.weight, [1, 1])
    np.testing.assert_array_equal(shown.obs, obs[[0, 2]])
    np.testing.assert_array_equal(shown.next_obs, obs[[1, 3]])
    np.testing.assert_array_equal(shown.terminated, [False, False])
    known = Demos.from_numpy(obs, action, [2, 4], [True, False], next_observations=obs + 0.5)
    expert = expert_data(known, obs, action, undiscounted)
    shown = expert.rows
    np.testing.assert_array_equal(expert.following.action[::2], action[[1, 3]])
    np.testing.assert_array_equal(expert.following.weight, [1, 0, 1, 0])  # what was done after the last is not known
    np.testing.assert_array_equal(expert.measure.next_obs[: expert.steps], obs + 0.5)
    np.testing.assert_array_equal(expert.measure.terminated[: expert.steps], [False, True, False, False])
    np.testing.assert_array_equal(shown.next_obs, obs + 0.5)
    np.testing.assert_array_equal(shown.terminated, [False, True, False, False])
    repeating = expert_data(known, obs, action, undiscounted, repeat=True)
    assert not repeating.rows.terminated.any()  # T3: the last state repeats
    assert not repeating.measure.terminated.any()
    sparse = demos.subsample(2)
    assert expert_data(sparse, sparse.observations, sparse.actions, undiscounted).rows.obs.shape == (0, 2)


def ended_and_cut() -> Demos:
    """Two episodes of CartPole, whose limit is 500: one ended after 100 steps, the other was cut then."""
    rng = np.random.default_rng(0)
    final = np.array([[7.0] * 4, [8.0] * 4])
    return Demos.from_numpy(
        rng.normal(size=(200, 4)), rng.integers(2, size=200), [100, 200], [True, False], final_observations=final
    )


@pytest.mark.parametrize("discounted", [False, True])
def test_with_repeated_ends_demonstrations_last_as_long_as_the_learners_episodes(discounted: bool) -> None:
    demos, weighing = ended_and_cut(), Weighing(500, 0.99, discounted, absorb=False)
    obs, action = demos.observations.astype(np.float32), demos.actions.astype(np.int32)
    measure = expert_data(demos, obs, action, weighing, repeat=True).measure
    # What a learner gets who does the same: after its end the last observation repeats until the horizon.
    pairs, never = (jnp.zeros((500, 4)), jnp.zeros(500)), jnp.zeros(500, bool)
    learner = episode_measure(Steps(*pairs, pairs[0], never, jnp.arange(500)), weighing)
    first = np.r_[:100, 200]
    np.testing.assert_allclose(measure.weight[first].sum(), learner.weight.sum(), rtol=1e-5)
    np.testing.assert_allclose(measure.weight[100:200].sum(), learner.weight[:100].sum(), rtol=1e-5)
    np.testing.assert_array_equal(measure.obs[200], [7.0] * 4)
    np.testing.assert_array_equal(measure.action[200], action[99])
    assert measure.weight[201] == 0  # what was cut ended nowhere
    assert not measure.absorbing.any()


@SLOW
def test_the_likelihood_of_demonstrations_leaves_repeated_ends_out() -> None:
    demos = ended_and_cut()
    parts = build(experiment(seeds=1, termination="T3"), demos)
    state, metrics = parts.loop.start(seed_keys(1))
    parts.close()
    demo = jax.tree.map(lambda rows: np.asarray(rows[0, :200]), state.data.demo)
    actor = jax.tree.map(lambda x: x[0] if hasattr(x, "dtype") else x, parts.algorithm.solver.actor(state.irl.policy))
    told = parts.algorithm.solver.log_prob(actor, jnp.asarray(demo.obs), jnp.asarray(demo.action))
    np.testing.assert_allclose(metrics["log_likelihood"][0], told.mean(), rtol=1e-4)


def test_the_share_of_demonstrated_steps_reaches_the_policy() -> None:
    def start(share: float) -> TrainState:
        parts = build(experiment(seeds=1, demo_share=share), cartpole_demo())
        state, _ = parts.loop.start(seed_keys(1))
        parts.close()
        return state

    without, with_ = start(0.0), start(0.5)
    np.testing.assert_array_equal(without.replay.rows.obs[0, :20], with_.replay.rows.obs[0, :20])  # random steps
    assert differs(without.irl.policy, with_.irl.policy)


def test_extra_rollouts_reach_the_reward_step_and_nothing_else() -> None:
    parts = build(experiment(extra_steps=40, past_share=0.0), cartpole_demo())
    state, _ = parts.loop.start(seed_keys(2))
    parts.close()
    assert parts.ledger.counts == {"train": 2 * (80 + 20), "reward": 2 * 40, "evaluation": 0}
    assert int(state.replay.size[0]) == 80 + 20
    weight, absorbing = (np.asarray(getattr(state.data.learner, name))[0] for name in ("weight", "absorbing"))
    rows = int((weight > 0).sum()) - int(absorbing.sum() > 0)
    assert state.data.learner.obs.shape[1] == 2 * (80 + 40)  # each step and its absorbing share
    assert rows >= 80 + 40


@pytest.mark.slow
def test_past_steps_reach_the_reward_step_and_not_the_reference() -> None:
    parts = build(experiment(past_share=0.25, reference=3000), cartpole_demo())
    state, metrics = list(iterate(parts.loop, seed_keys(2), 2))[-1]
    parts.close()
    assert_same_shapes(parts.loop.blank(seed_keys(2)), state)
    learner, reference = (jax.tree.map(lambda x: x[0], data) for data in state.data[1:3])
    own, seen = np.asarray(learner.obs[-80:]), np.asarray(state.replay.rows.obs[0])
    earlier = {row.tobytes() for row in seen[: 20 + 160]}
    latest = {row.tobytes() for row in seen[20 + 160 :]}
    assert 0.5 < np.mean([row.tobytes() in earlier for row in own]) < 0.85  # 180 of 260 steps, all in the replay
    assert {row.tobytes() for row in own} <= earlier | latest
    acted = ~learner.absorbing
    np.testing.assert_allclose(learner.weight[-80:].sum(), 0.25 * learner.weight[acted].sum(), rtol=1e-5)
    now = np.asarray(reference.obs[3000:][~reference.absorbing[3000:]])
    assert len(now) > 20
    assert {row.tobytes() for row in now} <= latest
    reward = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, state.irl.reward)
    present = jax.tree.map(lambda x: x[:-80], learner)
    present = replace(present, weight=jnp.where(present.absorbing, 1, 1 / 0.75) * present.weight)
    told = gap(reward, jax.tree.map(lambda x: x[0], state.data.demo), present)
    np.testing.assert_allclose(metrics["gap"][0], told, rtol=1e-4, atol=1e-6)  # what the present policy lacks


@pytest.mark.parametrize(
    ("changes", "demos", "words"),
    [
        ({}, Demos.from_numpy(np.zeros((5, 3)), np.zeros(5, int)), "3 observation dimensions and CartPole-v1"),
        ({}, Demos.from_numpy(np.zeros((5, 4)), np.zeros((5, 1))), "actions of shape"),
        ({}, Demos.from_numpy(np.zeros((5, 4)), np.full(5, 3)), "whole numbers from 0 to 1"),
        (
            {},
            Demos.from_numpy(np.where(np.eye(5, 4), -1e30, 0), np.zeros(5, int)),
            r"column 0 of the demos' observations is -1e\+30 at step 0 of episode 0, .* up to 1e\+15; rescale",
        ),
        (
            {},
            Demos.from_numpy(np.zeros((5, 4)), np.zeros(5, int), final_observations=np.full((1, 4), 1e300)),
            r"column 0 of the demos' next_observations is 1e\+300 at step 4 of episode 0",
        ),
        ({"task": "CartPole-v9"}, cartpole_demo(), "CartPole"),
        ({"demo_episodes": 9}, cartpole_demo(), "choose between 1 and 2"),
        ({"steps": 10**14}, cartpole_demo(), r"GiB are free; use --replay \d+\."),
    ],
)
def test_bad_questions_are_refused(changes: dict[str, Any], demos: Demos, words: str) -> None:
    question: Experiment = replace(experiment(), **changes)
    with pytest.raises(InputError, match=words):
        build(question, demos)


def test_actions_outside_the_space_are_clipped_and_counted_or_refused() -> None:
    demos = Demos.from_numpy(np.zeros((5, 3)), np.array([[3.0], [1.0], [-9.0], [0.0], [2.0]]))
    parts = build(experiment(task="Pendulum-v1"), demos)
    parts.close()
    assert parts.given.clipped == 2
    with pytest.raises(InputError, match=r"2 of 5 entries.*--strict"):
        build(experiment(task="Pendulum-v1", strict=True), demos)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 3}, "multiple of rounds x envs = 6"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"extra_steps": 3}, "multiple of envs"),
        ({"demo_share": 1.0}, r"demo_share must lie in \[0, 1\)"),
        ({"past_share": -0.1}, r"past_share must lie in \[0, 1\), got -0.1"),
        ({"past_share": 0.5, "discounted": True}, "discounted needs: set past_share to 0"),
        ({"demo_fade": 0}, "demo_fade must be at least 1, got 0"),
        ({"demo_half_life": 0}, "demo_half_life must be at least 1, got 0"),
        ({"replay": 5}, "replay must hold"),
        ({"replay": 90, "warmup": 120}, "an iteration's 80 steps and the 120 random ones of warmup, so at least 120"),
        ({"width": 10_000_000}, "width must be at most 65,536"),
        ({"reward_width": 10_000_000}, "reward_width must be at most 65,536"),
        ({"inner_steps": 10**12}, "inner_steps must be at most 100,000"),
        ({"envs": 10**6, "steps_per_iteration": 10**6, "rounds": 1}, "envs must be at most 10,000"),
        ({"temperature": 1e300}, "temperature must be at most"),
        ({"discount": 1.0}, "discount"),
        ({"reward_bound": 0.0}, "reward_bound"),
        ({"inner_steps": 0}, "inner_steps must be at least 1, got 0"),
        ({"target": -1.0}, "target must be positive and finite, got -1"),
        ({"reward_step": float("nan")}, "reward_step must be positive and finite, got nan"),
        ({"x": 0.5}, "x must be at least 1"),
        ({"mu_min": 5.0, "mu_max": 1.0}, "mu_max must be at least mu = 0.075 and mu_min = 5.0, got 1"),
        ({"mu": 0.5, "mu_max": 0.1}, "mu_max must be at least mu = 0.5 and mu_min = 0.0001, got 0.1"),
        ({"temperature": float("inf")}, "temperature must be positive and finite"),
        ({"actor_learning_rate": -1e-3}, "actor_learning_rate must be positive and finite, got -0.001"),
        ({"tau": 2.0}, r"tau must lie in \(0, 1\], got 2"),
        ({"width": "64"}, "width must be a whole number, got '64'"),
        ({"envs": 2.0}, "envs must be a whole number, got 2.0"),
        ({"replay": float("inf")}, "replay must be a whole number, got inf"),
        ({"target": None}, "target must be a number, got None"),
        ({"tau": True}, "tau must be a number, got True"),
        ({"layer_norm": 1}, "layer_norm must be True or False, got 1"),
        ({"steps_per_iteratio": 3}, "did you mean 'steps_per_iteration'"),
        ({"trust": "backtracking"}, "unknown trust 'backtracking': did you mean 'backtrack'"),
        ({"termination": "T1"}, "unknown termination 'T1': did you mean 'T3'"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        experiment(**changes)


def test_numbers_of_numpy_become_plain_ones() -> None:
    """Or config.json could not hold them."""
    settings = experiment(width=np.int64(8), tau=np.float32(0.5), target=3, replay=None).settings
    found = settings["solver"]["width"], settings["solver"]["tau"], settings["algorithm_config"]["target"]
    assert (found, [type(value) for value in found]) == ((8, 0.5, 3.0), [int, float, float])


def test_an_algorithm_that_needs_the_mdp_says_so() -> None:
    with pytest.raises(InputError, match="trro needs a known MDP"):
        setting_groups("trro", "CartPole-v1")


@pytest.mark.parametrize("algorithm", ["piro", "ml-irl"])
def test_a_tasks_own_settings_are_its_defaults(algorithm: str) -> None:
    def found(task: str, preset: Any) -> dict[str, Any]:
        resolved = settle(setting_groups(algorithm, task, preset), {}, algorithm)
        return {name: value for group in resolved.values() for name, value in group.items()}

    defaults = ALGORITHMS[algorithm].defaults
    own = {name: value for name, value in defaults.tasks["CartPole-v1"].items() if name != "steps"}
    assert found("CartPole-v1", "tuned") | own == found("CartPole-v1", "tuned")
    assert found("Hopper-v4", "tuned") | defaults.ours == found("Hopper-v4", "tuned")
    assert defaults.paper is not None
    assert found("CartPole-v1", "paper") | defaults.paper == found("CartPole-v1", "paper")
    assert found("Hopper-v4", "tuned")["width"] == 256


@pytest.mark.parametrize(("preset", "steps"), [("tuned", 61_000), ("smoke", 20_000), ("paper", 1_000_000)])
def test_a_tasks_own_number_of_steps_is_that_of_our_preset_alone(preset: Any, steps: int) -> None:
    given: dict[str, Any] = {"demo_episodes": None, "demo_choice": "first", "seeds": 1, "first_seed": 0}
    asked = question("piro", "CartPole-v1", "", **given, steps=None, preset=preset, task_args=None)
    assert asked.steps == steps


@pytest.mark.parametrize(("algorithm", "task"), [("piro", "gridworld"), ("bc", "CartPole-v1")])
def test_the_papers_preset_is_refused_where_it_says_nothing(algorithm: str, task: str) -> None:
    with pytest.raises(InputError, match="the preset 'paper' has settings of papers for piro, ml-irl, "):
        setting_groups(algorithm, task, "paper")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (lambda: TrroConfig(halvings=-5), "halvings must be at least 0, got -5"),
        (lambda: MceConfig(line_search_steps=0), "line_search_steps must be at least 1, got 0"),
        (lambda: MceConfig(memory=0), "memory must be at least 1, got 0"),
        (lambda: ExactOptions(policy_rounds=10**9), "policy_rounds must be at most 1,000"),
        (lambda: ExactOptions(suboptimality=float("nan")), "suboptimality must be at least 0, got nan"),
        (lambda: ExpertOptions(episodes=10**9), "episodes must be at most 100,000"),
        (lambda: BcConfig(updates=10**9), "updates must be at most 1,000,000"),
    ],
)
def test_every_configuration_knows_its_range(config: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        config()


def test_the_advice_on_memory_can_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Transition(jnp.zeros((1, 4), jnp.float32), jnp.zeros(1, jnp.int32), jnp.ones(1, jnp.float32))  # 24 bytes

    def advised(seeds: int, capacity: int, least: int, free: int) -> str:
        monkeypatch.setattr("trustirl.worlds.memory.free_bytes", lambda: free)
        with pytest.raises(InputError) as refused:
            check_memory(seeds, capacity, row, least)
        return str(refused.value).partition("are free; ")[2]

    assert advised(4, 1000, 100, 60_000) == "use --seeds 2 or --replay 500."
    assert advised(4, 10_000, 100, 60_000) == "use --replay 500."
    assert advised(4, 10_000, 1000, 60_000) == "use --seeds 2 --replay 1000."
    assert advised(4, 10_000, 5000, 60_000) == "use fewer steps_per_iteration and a smaller replay."


def test_networks_that_cannot_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trustirl.worlds.memory.free_bytes", lambda: 2**30)
    with pytest.raises(InputError, match=r"the networks of 2 seeds need \d+\.\d GiB and 1.0 GiB are free; use a sma"):
        build(experiment(width=10_000, depth=2), cartpole_demo())


def test_fewer_steps_than_asked_are_explained() -> None:
    plan = Plan()
    (told,) = told_steps(25_000, iterations(25_000, plan) + 1, plan.whole, plan.random_steps)
    assert told == (
        "of 25,000 steps 21,000 are made, 1,000 random steps and 4 whole iterations of 5,000; the next iteration "
        "would end at 26,000"
    )
    assert told_steps(26_000, iterations(26_000, plan) + 1, plan.whole, plan.random_steps) == []
    assert told_steps(1700, 3, 500)[0].startswith("of 1,700 steps 1,500 are made, 3 whole iterations of 500;")


def test_the_papers_preset_is_its_table_whatever_the_task() -> None:
    groups = setting_groups("piro", "CartPole-v1", "paper")
    config, solver, plan = (groups[name] for name in ("algorithm_config", "solver", "plan"))
    assert (config.target, config.x, config.y, config.narrowing, config.trust) == (0.5, 1.5, 1.5, 0.0, "adaptive")
    assert (config.reward_step, config.inner_steps, plan.reward_batch) == (1e-4, 10, 256)
    assert (plan.past_share, plan.demo_share, plan.demo_fade) == (0.0, 0.0, None)  # what we added
    assert (solver.temperature, solver.averaging, solver.annealing, solver.width) == (0.2, 0.0, 1.0, 256)
    asked = train_question(["piro", "--task", "Hopper-v4", "--preset=paper", "--target", "0.1"])
    assert (asked["target"], asked["temperature"], asked["preset"]) == (0.1, 0.2, "paper")


def test_the_papers_tasks_share_one_setting_whose_mu_begins_just_below_where_rewards_rest() -> None:
    first, *others = (setting_groups("piro", task) for task in BUDGETS)
    assert others == [first] * 4
    config, price = first["algorithm_config"], np.sqrt(2 / first["plan"].reference)  # docs/piro.md
    assert 0.5 * price < config.mu < price < config.mu_max


def test_steps_that_allow_no_reward_update_are_refused() -> None:
    assert iterations(400_000, Plan()) == 78  # 1,000 random steps, 79 rounds of 5,000: never more than asked for
    with pytest.raises(InputError, match="use at least 11000"):
        iterations(9_000, Plan())
