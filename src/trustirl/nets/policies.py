"""Stochastic policies: tanh-Gaussian on [-1, 1]^n and categorical, as distributions and as networks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Num

from trustirl.nets.mlp import MLP

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
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
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
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

    def __call__(self, obs: Float[Array, "*batch obs"]) -> TanhGaussian:
        """The distribution of actions at `obs`."""
        mean, log_std = jnp.split(self.net(obs), 2, axis=-1)
        return TanhGaussian(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))


class CategoricalActor(eqx.Module):
    """A network from observations to a categorical distribution."""

    net: MLP

    def __init__(self, obs_dim: int, actions: int, width: int, depth: int, key: Array, layer_norm: bool = False):
        """One output per action."""
        self.net = MLP(obs_dim, actions, width, depth, key, layer_norm)

    def __call__(self, obs: Float[Array, "*batch obs"]) -> Categorical:
        """The distribution of actions at `obs`."""
        return Categorical(self.net(obs))
