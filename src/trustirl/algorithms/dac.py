"""DAC: discriminator actor-critic (Kostrikov et al. 2019), by the solvers at hand.

A discriminator with logit h tells the expert's pairs from all that the learner remembers, by its loss

    E_E[softplus(-h)] + E_R[softplus(h)] + w * E_x[(|dh/dx| - 1)^2],    x between a pair of each

and the policy is paid r = h = log D - log(1 - D). `shown` and `remembered` make the two sides: an end is followed by
one absorbing row, which in the solver is termination mode T2 (`rl/targets.py`), the fixed point of the paper's
self-loops. `update_reward` is the discriminator's step, and the policy step is the solver's.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.shared import DISCRIMINATED, FOLLOWER, AdversaryConfig
from trustirl.core.buffer import Buffer, draw
from trustirl.core.descend import decaying_adam, descend
from trustirl.core.measure import sample
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import IrlState, Metrics, RewardData, Transition
from trustirl.irl.compose import explicit
from trustirl.irl.measures import weighted
from trustirl.irl.terms import cross_entropy, penalised


@dataclass(frozen=True)
class DacConfig(AdversaryConfig):
    """Settings of the discriminator's step."""


def shown(demo: Transition) -> Transition:
    """The expert's measure with one absorbing row per end, whatever is left of the episode."""
    assert demo.absorbing is not None
    one = (demo.weight > 0).astype(demo.weight.dtype)
    return replace(demo, weight=jnp.where(demo.absorbing, one, demo.weight))


def remembered(replay: Buffer, size: int, absorb: Array | bool, key: Array) -> Transition:
    """A minibatch of all that the learner remembers, with one absorbing row per end where ends are absorbed."""
    draw_key, sample_key = jax.random.split(key)
    rows = draw(replay, draw_key, size)
    assert rows.terminated is not None
    return sample(weighted(rows, (rows.terminated & absorb).astype(jnp.float32)), size, sample_key)


def dac(parts: Parts, config: DacConfig) -> Algorithm:
    """Put the algorithm together."""
    optimizer = decaying_adam(config.reward_step, 0.0, config.weight_decay)

    loss = penalised(cross_entropy, config.penalty)

    def update_reward(state: IrlState, data: RewardData, key: Array) -> tuple[IrlState, Metrics]:
        demo_key, learner_key, between_key = jax.random.split(key, 3)
        demo, _ = parts.draw(data._replace(demo=shown(data.demo)), config.inner_steps, demo_key)
        assert data.demo.absorbing is not None
        absorb = data.demo.absorbing.any()  # otherwise ends are followed by nothing, or never come
        size = demo.weight.shape[-1]
        learner_keys, between_keys = (jax.random.split(k, config.inner_steps) for k in (learner_key, between_key))
        learner = jax.vmap(lambda k: remembered(data.replay, size, absorb, k))(learner_keys)
        batches = demo, learner, between_keys
        reward, optimizer_state = descend(loss, optimizer, state.reward, state.optimizer, batches)
        return replace(state, reward=reward, optimizer=optimizer_state), {}

    return explicit(parts.make_solver(), parts.make_reward, optimizer, update_reward)


ENTRY = Entry(
    name="dac",
    config=DacConfig,
    build=dac,
    reference="Kostrikov, Agrawal, Dwibedi, Levine and Tompson 2019, Discriminator-Actor-Critic",
    worlds=("simulator",),
    defaults=Defaults(FOLLOWER, DISCRIMINATED),
)
