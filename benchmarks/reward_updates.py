"""What PIRO's reward updates gain over a run: no environment, fixed data, seconds on a CPU.

    python benchmarks/reward_updates.py Walker2d-v4
    python benchmarks/reward_updates.py Ant-v4 --mu-max 0.075

One demonstrated episode against four others of the same expert with noise on their actions, a hundred updates with
the default trust region. On the reference pairs the gap can change by at most 2 / sqrt(pairs) times eps_bar; `used`
is the share of that which an update gains on all the data, where it may also be more than 1.
"""

import argparse
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from trustirl.algorithms import ALGORITHMS
from trustirl.algorithms.piro import piro
from trustirl.core.measure import concat, minibatches, sample
from trustirl.core.records import Parts
from trustirl.core.types import ExpertData, IrlState, RewardData, Transition
from trustirl.demos.schema import find_demos
from trustirl.irl.measures import weighted
from trustirl.irl.terms import drift, gap
from trustirl.nets.rewards import network_reward_factory
from trustirl.rl.exact import exact_solver
from trustirl.tasks.registry import make_task
from trustirl.worlds.simulator import groups

UPDATES, PARTS, NOISE = 100, 10, 0.1


def evenly(obs: np.ndarray, action: np.ndarray) -> Transition:
    """Steps that all weigh the same."""
    pairs = jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.float32)
    return weighted(Transition(*pairs, jnp.ones(len(obs))))


def main() -> None:
    """Print target, gain, drift and mu for every tenth of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="with packaged demonstrations and continuous actions")
    parser.add_argument("--mu-max", type=float, help="instead of the default's")
    arguments = parser.parse_args()
    defaults = groups(ALGORITHMS["piro"], arguments.task)
    config, plan, options = defaults["algorithm_config"], defaults["plan"], defaults["control"]
    if arguments.mu_max is not None:
        config = replace(config, mu_max=arguments.mu_max)

    demos = find_demos("packaged", arguments.task)
    first, others = demos.take(1, "first"), slice(demos.episode_ends[0], demos.episode_ends[4])
    noise = np.random.default_rng(0).normal(0.0, NOISE, demos.actions[others].shape)
    demo = evenly(first.observations, first.actions)
    learner = evenly(demos.observations[others], demos.actions[others] + noise)
    make = network_reward_factory(
        demo, 0, "state-action", options.reward_width, options.reward_depth, options.reward_bound
    )
    solver = exact_solver(make_task("gridworld", {"size": 3}).mdp)  # no policy moves here
    algorithm = piro(Parts(lambda **_: solver, make, minibatches(plan.reward_batch)), config)
    update_reward = algorithm.update_reward
    assert update_reward is not None

    @eqx.filter_jit
    def update(state: IrlState, progress: Array, key: Array) -> tuple[IrlState, Array]:
        keys = jax.random.split(key, 3)
        reference = concat(sample(demo, plan.reference, keys[0]), sample(learner, plan.reference, keys[1]))
        new, metrics = update_reward(state, RewardData(demo, learner, reference, progress), keys[2])
        gain = gap(new.reward, demo, learner) - gap(state.reward, demo, learner)
        return new, jnp.stack([gain, drift(new.reward, state.reward, reference), metrics["mu"]])

    state, rows = algorithm.init(jax.random.key(0), ExpertData(demo, len(demo.weight))), []
    for number in range(UPDATES):
        state, row = update(state, jnp.asarray(number / UPDATES), jax.random.key(number))
        rows.append(row)
    most = 2 / (2 * plan.reference) ** 0.5
    for part, (gain, moved, mu) in enumerate(np.asarray(rows).reshape(PARTS, -1, 3).mean(axis=1)):
        target = config.target * (1 - part / PARTS) ** config.narrowing
        used = gain / (most * moved)
        print(f"{part / PARTS:.0%}: target {target:.2f}  drift {moved:.3f}  mu {mu:.3f}  used {used:+.2f}")


if __name__ == "__main__":
    main()
