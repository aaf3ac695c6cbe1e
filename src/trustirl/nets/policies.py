"""Stochastic policies: tanh-Gaussian on [-1, 1]^n and categorical, as distributions and as networks."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Num

from trustirl.nets.mlp import MLP

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
# Of a stationary head. tanh(u) is uniform on [-1, 1] where u is logistic, with a deviation of 0.907. A Gaussian comes
# close: with at most sqrt(0.75) = 0.866 it is 0.02 nats from uniform. The least variance bounds the density.
INSIDE = 0.99  # further out, an action's pre-image runs away to infinity, which no mean of a Gaussian should chase
MOST_STD, LEAST_VARIANCE = float(np.sqrt(0.75)), 1e-5
BOTTLENECK = 12  # outputs of the network below a stationary head
LOG_SCALE = -5.0  # at first, what waves see of them is multiplied by exp of this
WAVE_HEIGHT = float(np.pi / np.sqrt(8))  # times a triangle between +-pi/2: a mean square of about 1
ACTION_LIMIT = 1 - 1e-6  # an action of a data set may lie on the border, where its pre-image is infinite
HALF_LOG_TWO_PI = float(0.5 * np.log(2 * np.pi))
LOG_TWO = float(np.log(2))


class TanhGaussian(eqx.Module):
    """a = tanh(u) with u ~ N(mean, std^2), independent over the last axis."""

    mean: Float[Array, "*batch actions"]
    log_std: Float[Array, "*batch actions"]

    def sample(self, key: Array) -> Float[Array, "*batch actions"]:
        """Draw actions, differentiable in the parameters."""
        return self.sample_with_log_prob(key)[0]

    def sample_with_log_prob(self, key: Array) -> tuple[Float[Array, "*batch actions"], Float[Array, "*batch"]]:
        """Draw actions with their log density, without inverting the tanh."""
        return self.of_noise(jax.random.normal(key, self.mean.shape, self.mean.dtype))

    def of_noise(
        self, noise: Float[Array, "*batch actions"]
    ) -> tuple[Float[Array, "*batch actions"], Float[Array, "*batch"]]:
        """The actions that such normal noise picks, with their log density."""
        u = self.mean + jnp.exp(self.log_std) * noise
        return jnp.tanh(u), self._log_density(noise, u)

    def mode(self) -> Float[Array, "*batch actions"]:
        """The median action tanh(mean): what is usually played where noise is unwelcome."""
        return jnp.tanh(self.mean)

    def log_prob(self, action: Num[Array, "*batch actions"]) -> Float[Array, "*batch"]:
        """Log density of given actions; those on the border count as just inside it."""
        u = jnp.arctanh(jnp.clip(action.astype(self.mean.dtype), -ACTION_LIMIT, ACTION_LIMIT))
        return self._log_density((u - self.mean) * jnp.exp(-self.log_std), u)

    def _log_density(self, noise: Array, u: Array) -> Float[Array, "*batch"]:
        gaussian = -0.5 * noise**2 - self.log_std - HALF_LOG_TWO_PI
        log_slope = 2 * (LOG_TWO - u - jax.nn.softplus(-2 * u))  # log(1 - tanh(u)^2), stable for large |u|
        return jnp.sum(gaussian - log_slope, axis=-1)


class TanhMixture(eqx.Module):
    """One of several tanh-Gaussians, drawn by its weight: actions of more than one mode.

    Its samples are no smooth function of the weights, so it can be fitted, but not improved by SAC's gradient.
    """

    logits: Float[Array, "*batch components"]
    parts: TanhGaussian  # [*batch, components, actions]

    def sample(self, key: Array) -> Float[Array, "*batch actions"]:
        """Draw actions."""
        choice_key, noise_key = jax.random.split(key)
        return self._chosen(self.parts.sample(noise_key), jax.random.categorical(choice_key, self.logits))

    def sample_with_log_prob(self, key: Array) -> tuple[Float[Array, "*batch actions"], Float[Array, "*batch"]]:
        """Draw actions with their log density."""
        action = self.sample(key)
        return action, self.log_prob(action)

    def mode(self) -> Float[Array, "*batch actions"]:
        """The median action of the component with the greatest weight."""
        return self._chosen(self.parts.mode(), jnp.argmax(self.logits, axis=-1))

    def log_prob(self, action: Num[Array, "*batch actions"]) -> Float[Array, "*batch"]:
        """Log density of given actions."""
        alike = jnp.broadcast_to(action[..., None, :], self.parts.mean.shape)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + self.parts.log_prob(alike), axis=-1)

    def _chosen(self, actions: Array, choice: Integer[Array, "*batch"]) -> Array:
        return jnp.take_along_axis(actions, choice[..., None, None], axis=-2)[..., 0, :]


class Categorical(eqx.Module):
    """Finitely many actions, with unnormalised log probabilities on the last axis."""

    logits: Float[Array, "*batch actions"]

    def sample(self, key: Array) -> Integer[Array, "*batch"]:
        """Draw actions."""
        return jax.random.categorical(key, self.logits)

    def sample_with_log_prob(self, key: Array) -> tuple[Integer[Array, "*batch"], Float[Array, "*batch"]]:
        """Draw actions with their log probability."""
        action = self.sample(key)
        return action, self.log_prob(action)

    def mode(self) -> Integer[Array, "*batch"]:
        """The most likely action."""
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Integer[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Log probability of given actions."""
        return jnp.take_along_axis(self.log_probs(), action[..., None], axis=-1)[..., 0]

    def log_probs(self) -> Float[Array, "*batch actions"]:
        """Log probabilities of all actions."""
        return jax.nn.log_softmax(self.logits)


class GaussianActor(eqx.Module):
    """A network from observations to a tanh-Gaussian."""

    net: MLP

    def __init__(self, obs_dim: int, action_dim: int, width: int, depth: int, key: Array, layer_norm: bool = False):
        """One output for the mean and one for the log standard deviation of each action."""
        self.net = MLP(obs_dim, 2 * action_dim, width, depth, key, layer_norm)

    @property
    def actions(self) -> int:
        """Dimensions of an action."""
        return int(self.net.layers[-1].out_features) // 2

    def __call__(self, obs: Float[Array, "*batch obs"]) -> TanhGaussian:
        """The distribution of actions at `obs`."""
        mean, log_std = jnp.split(self.net(obs), 2, axis=-1)
        return TanhGaussian(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))


class MixtureActor(eqx.Module):
    """A network from observations to a mixture of tanh-Gaussians: weights, then means, then log deviations."""

    net: MLP
    components: int = eqx.field(static=True)

    def __init__(self, obs_dim: int, action_dim: int, width: int, depth: int, key: Array, components: int):
        """A weight, and for each action two outputs, of every component."""
        self.net = MLP(obs_dim, components * (1 + 2 * action_dim), width, depth, key)
        self.components = components

    def __call__(self, obs: Float[Array, "*batch obs"]) -> TanhMixture:
        """The distribution of actions at `obs`."""
        outputs = self.net(obs)
        logits, rest = outputs[..., : self.components], outputs[..., self.components :]
        mean, log_std = jnp.split(rest.reshape(*rest.shape[:-1], 2 * self.components, -1), 2, axis=-2)
        return TanhMixture(logits, TanhGaussian(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)))


class StationaryActor(eqx.Module):
    """A network from observations to a tanh-Gaussian that is nearly uniform far from what it was fitted to.

    Its head is linear in periodic features, as of a Gaussian process (Meronen et al. 2021, Watson et al. 2023): where
    observations are unlike the data, features are unlike theirs, and the variance stays what it is at first.
    """

    net: MLP
    log_scales: Float[Array, " bottleneck"]
    waves: Float[Array, "features bottleneck"]
    phases: Float[Array, " features"]
    mean: Float[Array, "actions features"]
    factors: Float[Array, "actions features features"]  # of covariances, below the diagonal; on it, their logarithms

    def __init__(self, obs_dim: int, action_dim: int, width: int, depth: int, key: Array, layer_norm: bool = False):
        """As many features as the network has units in a layer."""
        net_key, wave_key, phase_key = jax.random.split(key, 3)
        self.net = MLP(obs_dim, BOTTLENECK, width, depth, net_key, layer_norm)
        self.log_scales = jnp.full(BOTTLENECK, LOG_SCALE, jnp.float32)
        self.waves = jax.random.normal(wave_key, (width, BOTTLENECK), jnp.float32)
        self.phases = jax.random.uniform(phase_key, (width,), jnp.float32, -jnp.pi, jnp.pi)
        self.mean = jnp.zeros((action_dim, width), jnp.float32)
        self.factors = jnp.zeros((action_dim, width, width), jnp.float32)

    @property
    def actions(self) -> int:
        """Dimensions of an action."""
        return int(self.mean.shape[-2])

    def __call__(self, obs: Float[Array, "*batch obs"]) -> TanhGaussian:
        """The distribution of actions at `obs`."""
        waves, phases, mean, factors = self.head()
        features = triangle(self.net(obs) @ waves.T + phases) * (WAVE_HEIGHT / math.sqrt(len(phases)))
        variance = jnp.sum(jnp.einsum("...i,aij->...aj", features, factors) ** 2, axis=-1)
        deviation = MOST_STD * jnp.tanh(jnp.sqrt(variance + LEAST_VARIANCE))
        return TanhGaussian(features @ mean.T, jnp.log(deviation))

    def head(self) -> tuple[Array, Array, Array, Array]:
        """Waves, phases, means and the covariances' Cholesky factors, as they are applied."""
        diagonal = jnp.exp(jnp.diagonal(self.factors, axis1=1, axis2=2))
        factors = jnp.tril(self.factors, -1) + diagonal[:, :, None] * jnp.eye(len(self.phases), dtype=jnp.float32)
        return self.waves * jnp.exp(self.log_scales), self.phases, self.mean, factors


def largest_log_ratio() -> float:
    """Most that the log density of a stationary head exceeds that of uniform actions, per dimension, inside."""
    least_std = MOST_STD * math.tanh(math.sqrt(LEAST_VARIANCE))
    return math.log(2) - HALF_LOG_TWO_PI - math.log(least_std) - math.log(1 - INSIDE**2)


def triangle(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """A wave like the sine whose slope is 1 or -1, between -pi/2 and pi/2."""
    half_turns = jnp.floor(x / jnp.pi + 0.5)
    odd = half_turns - 2 * jnp.floor(half_turns / 2)  # no remainder, which ONNX has only for sizes that are known
    return (x - jnp.pi * half_turns) * (1 - 2 * odd)


Head = Literal["gaussian", "stationary"]
PolicyHead = Literal["gaussian", "stationary", "mixture"]  # of policies that no reward is read off
ACTORS: dict[Head, type[GaussianActor] | type[StationaryActor]] = {
    "gaussian": GaussianActor,
    "stationary": StationaryActor,
}


def head_of(actor: object) -> Head:
    """The name of an actor's head."""
    return "stationary" if isinstance(actor, StationaryActor) else "gaussian"


class CategoricalActor(eqx.Module):
    """A network from observations to a categorical distribution."""

    net: MLP

    def __init__(self, obs_dim: int, actions: int, width: int, depth: int, key: Array, layer_norm: bool = False):
        """One output per action."""
        self.net = MLP(obs_dim, actions, width, depth, key, layer_norm)

    def __call__(self, obs: Float[Array, "*batch obs"]) -> Categorical:
        """The distribution of actions at `obs`."""
        return Categorical(self.net(obs))
