"""Policies in plain NumPy: whoever steps an environment acts in it, without JAX and without asking another process.

Acting on one observation at a time takes microseconds, and no action depends on which others were asked for with it.
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from trustirl.core.spaces import Spaces

NORM_EPSILON = 1e-5  # Equinox's
NoiseKey = tuple[int, int, int]  # purpose, iteration and round
ZERO, HALF, PI = (np.asarray(value, np.float32) for value in (0, 0.5, np.pi))
Pair = tuple[np.ndarray, np.ndarray]


class Stationary(NamedTuple):
    """The constants of `nets.policies.StationaryActor`."""

    wave_height: float
    most_std: float
    least_variance: float


class Design(NamedTuple):
    """How a vector of weights becomes a policy: mean and deviation of observations come first, then `shapes`."""

    discrete: bool
    shapes: tuple[tuple[int, ...], ...]  # weight and bias in turn, members first: of the layers, then of the norms
    layers: int
    temperature: float  # of discrete actions
    obs_limit: float  # standardised observations are clipped to +-this
    log_std_limits: tuple[float, float]  # of continuous actions
    stationary: Stationary | None = (
        None  # the head, whose arrays come last; None: the network's outputs are the policy
    )
    components: int = 0  # of a mixture; 0: a single Gaussian


class Policies(NamedTuple):
    """One policy per seed."""

    design: Design
    weights: Float[np.ndarray, "seeds parameters"]

    def of(self, seed: int) -> "HostPolicy":
        """One seed's policy; its weights are no copy, so that it follows when they change."""
        return HostPolicy(self.design, self.weights[seed])


class HostPolicy:
    """A tanh-Gaussian on [-1, 1]^n, a mixture of them, or the softmax of the smallest member's values."""

    def __init__(self, design: Design, weights: Float[np.ndarray, " parameters"]) -> None:
        self._design = design
        obs_dim = design.shapes[0][-1]
        self._mean, self._deviation, *arrays = _views(weights, [(obs_dim,), (obs_dim,), *design.shapes])
        members = [[array[member] for array in arrays] for member in range(len(arrays[0]))]
        self._head = None
        if design.stationary is not None:
            members, head = [arrays[:-4] for arrays in members], members[0][-4:]
            self._head = _StationaryHead(head, design.stationary)
        self._networks = [_Network(parameters, design.layers) for parameters in members]
        # As arrays, which NumPy need not convert at every step.
        limits = (-design.obs_limit, design.obs_limit, *design.log_std_limits)
        self._obs_low, self._obs_high, self._log_std_low, self._log_std_high = map(_scalar, limits)
        outputs = arrays[2 * design.layers - 1].shape[-1]
        self._actions = outputs if design.discrete else len(arrays[-2][0]) if design.stationary else outputs // 2
        self._components = design.components
        if design.components:
            self._actions = (outputs // design.components - 1) // 2

    def mode(self, obs: Float[np.ndarray, "*batch obs"]) -> Num[np.ndarray, "..."]:
        """The likeliest of finitely many actions, or tanh(mean)."""
        if self._design.discrete:
            return _choice(self._logits(obs))
        return np.tanh((self._mixture(obs, ZERO) if self._components else self._gaussian(obs))[0])

    def act(
        self, obs: Float[np.ndarray, "*batch obs"], noise: Float[np.ndarray, "*batch actions"]
    ) -> Num[np.ndarray, "..."]:
        """The action that the noise picks."""
        if self._design.discrete:
            return _choice(self._logits(obs) + noise)
        if self._components:  # noise that chooses one comes first
            mean, log_std = self._mixture(obs, noise[..., : self._components])
            noise = noise[..., self._components :]
        else:
            mean, log_std = self._gaussian(obs)
        return np.tanh(mean + np.exp(log_std) * noise)

    def noise(self, random: np.random.Generator, count: int) -> Float[np.ndarray, "count actions"]:
        """What `act` needs for `count` observations: Gumbel noise per choice, and normal noise per dimension."""
        if self._design.discrete:
            return random.gumbel(size=(count, self._actions)).astype(np.float32)
        if self._components:
            choice = random.gumbel(size=(count, self._components)).astype(np.float32)
            return np.concatenate([choice, random.standard_normal((count, self._actions), np.float32)], axis=1)
        return random.standard_normal((count, self._actions), np.float32)

    def _mixture(self, obs: Float[np.ndarray, "*batch obs"], noise: np.ndarray) -> Pair:
        """Of the component that the noise picks; without any, of the heaviest one."""
        outputs, count = self._networks[0](self._standardised(obs)), self._components
        choice = np.asarray((outputs[..., :count] + noise).argmax(axis=-1))[..., None, None]
        parts = outputs[..., count:].reshape(*outputs.shape[:-1], 2, count, self._actions)
        mean, log_std = (np.take_along_axis(parts[..., part, :, :], choice, axis=-2)[..., 0, :] for part in (0, 1))
        return mean, _clip(log_std, self._log_std_low, self._log_std_high)

    def _gaussian(self, obs: Float[np.ndarray, "*batch obs"]) -> tuple[np.ndarray, np.ndarray]:
        outputs = self._networks[0](self._standardised(obs))
        if self._head is not None:
            return self._head(outputs)
        log_std = _clip(outputs[..., self._actions :], self._log_std_low, self._log_std_high)
        return outputs[..., : self._actions], log_std

    def _logits(self, obs: Float[np.ndarray, "*batch obs"]) -> Float[np.ndarray, "*batch actions"]:
        inputs = self._standardised(obs)
        smallest = np.minimum.reduce([network(inputs) for network in self._networks])
        return smallest / np.float32(self._design.temperature)

    def _standardised(self, obs: Float[np.ndarray, "*batch obs"]) -> Float[np.ndarray, "*batch obs"]:
        return _clip((obs - self._mean) / self._deviation, self._obs_low, self._obs_high)


class AtRandom:
    """Uniform actions, for whatever is observed."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces

    def act(self, _obs: Float[np.ndarray, "*batch obs"], noise: Any) -> Num[np.ndarray, "..."]:
        """The noise is the action."""
        return np.asarray(noise)

    def noise(self, random: np.random.Generator, count: int) -> Num[np.ndarray, "count ..."]:
        """Actions for `count` observations."""
        if self._spaces.discrete:
            return random.integers(self._spaces.action_dim, size=count, dtype=np.int32)
        return random.uniform(-1, 1, (count, self._spaces.action_dim)).astype(np.float32)


class Trembling:
    """A policy in which, with some chance, an action at random takes the place of its own."""

    def __init__(self, policy: HostPolicy, spaces: Spaces, chance: float) -> None:
        self._policy, self._random, self._chance = policy, AtRandom(spaces), chance

    def act(self, obs: Float[np.ndarray, "*batch obs"], noise: Any) -> Num[np.ndarray, "..."]:
        """The policy's action, or a random one."""
        own, other, replaced = noise
        return self._random.act(obs, other) if replaced else self._policy.act(obs, own)

    def noise(self, random: np.random.Generator, count: int) -> list[tuple[Any, Any, Any]]:
        """For `count` observations; the policy's own is what it would be if it did not tremble."""
        own, other = self._policy.noise(random, count), self._random.noise(random, count)
        return list(zip(own, other, random.random(count) < self._chance, strict=True))


def noise_generator(seed: int, env: int, key: NoiseKey) -> np.random.Generator:
    """What one environment of a seed draws on in one round, whoever steps it and whatever runs beside it."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*key, env)))


class _Network:
    """ReLU network on the last axis, with LayerNorm before each activation where there is one."""

    def __init__(self, parameters: list[np.ndarray], layers: int) -> None:
        pairs = list(zip(parameters[::2], parameters[1::2], strict=True))
        *self._hidden, self._last = [(weight.T, bias) for weight, bias in pairs[:layers]]
        self._norms: list[Pair | None] = [*pairs[layers:]] or [None] * (layers - 1)

    def __call__(self, x: Float[np.ndarray, "*batch inputs"]) -> Float[np.ndarray, "*batch outputs"]:
        for (weight, bias), norm in zip(self._hidden, self._norms, strict=True):
            x = x @ weight
            x += bias
            x = np.maximum(x if norm is None else _normalised(x, *norm), ZERO)
        weight, bias = self._last
        return x @ weight + bias


class _StationaryHead:
    """Mean and log standard deviation of what the network makes of observations."""

    def __init__(self, arrays: list[np.ndarray], constants: Stationary) -> None:
        waves, self._phases, mean, factors = arrays
        self._waves, self._mean = waves.T, mean.T
        self._factors = factors.transpose(1, 0, 2).reshape(len(waves), -1)  # one product for all actions
        self._height = _scalar(constants.wave_height / np.sqrt(len(waves)))
        self._most_std, self._least_variance = _scalar(constants.most_std), _scalar(constants.least_variance)

    def __call__(self, x: Float[np.ndarray, "*batch bottleneck"]) -> Pair:
        angle = x @ self._waves + self._phases
        half_turns = np.floor(angle / PI + HALF)
        features = (angle - PI * half_turns) * (1 - 2 * (half_turns % 2)) * self._height
        mean = features @ self._mean
        spread = (features @ self._factors).reshape(*mean.shape, -1)
        deviation = self._most_std * np.tanh(np.sqrt(np.square(spread).sum(axis=-1) + self._least_variance))
        return mean, np.log(deviation)


def _views(vector: Float[np.ndarray, " parameters"], shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    ends = np.cumsum([prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(vector, ends[:-1]), shapes, strict=True)]


def _normalised(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    x = x - x.mean(axis=-1, keepdims=True)
    return weight * (x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.float32(NORM_EPSILON))) + bias


def _scalar(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


def _clip(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(x, low), high)  # on short vectors np.clip takes twice the time


def _choice(logits: Float[np.ndarray, "*batch actions"]) -> Num[np.ndarray, "*batch"]:
    return np.asarray(logits.argmax(axis=-1), np.int32)
