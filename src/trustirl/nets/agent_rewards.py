"""Rewards that are read off an agent's networks: off its values, or off its policy."""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from trustirl.core.errors import InputError
from trustirl.core.types import Transition
from trustirl.nets.critics import DiscreteQEnsemble, QEnsemble
from trustirl.nets.mlp import standardiser
from trustirl.nets.policies import INSIDE, GaussianActor, StationaryActor

DRAWS = 16  # actions over which the value of a state is averaged, where actions are continuous


class ValueReward(eqx.Module):
    """The reward whose soft values these are: r(s, a, s') = Q(s, a) - g V(s'), without V(s') where s' is the end.

    Q is the smallest member. With discrete actions V is its soft maximum, with continuous ones the mean of
    Q - temperature * log pi over the actions that fixed noise picks, so that the reward is a function.
    """

    critic: DiscreteQEnsemble | QEnsemble
    actor: GaussianActor | StationaryActor | None  # of continuous actions
    mean: Float[Array, " obs"]
    std: Float[Array, " obs"]
    noise: Float[Array, "draws actions"] | None
    temperature: Float[Array, ""]
    discount: float = eqx.field(static=True)
    needs: ClassVar[tuple[str, ...]] = ("action", "next_obs", "terminated")

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """Rewards of any leading shape."""
        if batch.next_obs is None or batch.terminated is None:
            raise InputError("a reward of values needs transitions with next_obs and terminated.")
        obs, next_obs = (_standardised(rows, self.mean, self.std) for rows in (batch.obs, batch.next_obs))
        if isinstance(self.critic, DiscreteQEnsemble):
            values = jnp.min(self.critic(obs), axis=0)
            paid = jnp.take_along_axis(values, batch.action[..., None], axis=-1)[..., 0]
        else:
            paid = jnp.min(self.critic(obs, batch.action), axis=0)
        return paid - self.discount * jnp.where(batch.terminated, 0.0, self.value(next_obs))

    def value(self, obs: Float[Array, "*batch obs"]) -> Float[Array, "*batch"]:
        """The soft value of standardised observations."""
        critic, temperature = self.critic, self.temperature
        if isinstance(critic, DiscreteQEnsemble):
            return temperature * jax.nn.logsumexp(jnp.min(critic(obs), axis=0) / temperature, axis=-1)
        assert self.actor is not None
        policy = self.actor(obs)

        def at(noise: Float[Array, " actions"]) -> Float[Array, "*batch"]:
            action, log_prob = policy.of_noise(jnp.broadcast_to(noise, policy.mean.shape))
            return jnp.min(critic(obs, action), axis=0) - temperature * log_prob

        return jnp.mean(
            jax.lax.map(at, self.noise), axis=0
        )  # one after the other: all at once would take much memory


class LogRatioReward(eqx.Module):
    """The reward for which a policy is the best answer, where uniform actions cost nothing (Watson et al. 2023).

    r(s, a) = scale * (log pi(a|s) - log p(a)), with p uniform on [-1, 1]^n.
    """

    actor: GaussianActor | StationaryActor
    mean: Float[Array, " obs"]
    std: Float[Array, " obs"]
    scale: float = eqx.field(static=True)
    needs: ClassVar[tuple[str, ...]] = ("action",)

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """Rewards of any leading shape."""
        policy = self.actor(_standardised(batch.obs, self.mean, self.std))
        uniform = -batch.action.shape[-1] * math.log(2.0)
        inside = jnp.clip(batch.action, -INSIDE, INSIDE)  # at the border the density of a tanh may be infinite
        return self.scale * (policy.log_prob(inside) - uniform)


def value_reward(
    critic: DiscreteQEnsemble | QEnsemble,
    actor: GaussianActor | StationaryActor | None,
    temperature: Any,
    mean: Num[np.ndarray, " obs"],
    std: Num[np.ndarray, " obs"],
    discount: float,
) -> ValueReward:
    """The reward of an agent's values, on observations standardised like the agent's; an actor where there is one."""
    noise = None
    if actor is not None:
        noise = jnp.asarray(np.random.default_rng(0).standard_normal((DRAWS, actor.actions)), jnp.float32)
    shift, scale = jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32)
    return ValueReward(critic, actor, shift, scale, noise, jnp.asarray(temperature, jnp.float32), discount)


def log_ratio_reward(
    actor: GaussianActor | StationaryActor, mean: Num[np.ndarray, " obs"], std: Num[np.ndarray, " obs"], scale: float
) -> LogRatioReward:
    """The reward of a policy, on observations standardised like the policy's."""
    return LogRatioReward(actor, jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32), scale)


def _standardised(obs: Num[Array, "*batch obs"], mean: Array, std: Array) -> Float[Array, "*batch obs"]:
    return standardiser(*jax.lax.stop_gradient((mean, std)))(obs)  # data, never trained
