"""Small solvers, agents and batches; tests share compiled functions, for compiling is what takes time."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from trustirl.core.records import Solver
from trustirl.core.types import Metrics, Transition
from trustirl.rl.config import SolverConfig
from trustirl.rl.sac import sac
from trustirl.rl.softq import softq
from trustirl.rl.targets import Fit, squared_bellman_error

ROWS, OBS, ACTIONS = 6, 3, 2
DISCOUNT, TAU, TEMPERATURE, END_REWARD = 0.9, 0.3, 0.5, -2.0
SMALL: dict[str, Any] = {
    "width": 16,
    "discount": DISCOUNT,
    "temperature": TEMPERATURE,
    "learning_rate": 1e-2,
    "tau": TAU,
}

quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # for what runs only briefly


def make(name: str, changes: dict[str, Any] | None = None, **slots: Any) -> Solver:
    """A small solver by name."""
    settings = SMALL | (changes or {})
    arguments = {"updates": settings.pop("updates", 1), "termination": settings.pop("termination", "T2")} | slots
    return (sac if name == "sac" else softq)(OBS, ACTIONS, SolverConfig(**settings), **arguments)


def filled(make_net: Callable[[jax.Array], PyTree], seed: int = 0) -> PyTree:
    """A network with random parameters from NumPy, whose generator need not be compiled."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(make_net, jax.random.key(0))
    return jax.tree.map(lambda s: jnp.asarray(rng.uniform(-0.3, 0.3, s.shape), s.dtype), shapes)


def fresh_agent(solver: Solver, temperature: float = TEMPERATURE) -> PyTree:
    """An agent with random networks; its target critic is another network than its critic."""
    agent = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(solver.init, jax.random.key(0)))
    parts = ["critic", "target_critic", "average", *(["actor"] if hasattr(agent, "actor") else [])]
    nets = {part: filled(lambda key, part=part: getattr(solver.init(key), part), i) for i, part in enumerate(parts)}
    if hasattr(agent, "log_temperature"):
        nets["log_temperature"] = jnp.log(jnp.float32(temperature))
    return replace(agent, **nets)


@cache
def agent_of(name: str) -> PyTree:
    """The agent that most tests share."""
    return fresh_agent(make(name))


def transitions(name: str, rows: int = ROWS, seed: int = 0) -> Transition:
    """Random transitions of which every third is an end."""
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, rows, OBS)).astype(np.float32)
    continuous = rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32)
    return Transition(
        jnp.asarray(obs),
        jnp.asarray(continuous if name == "sac" else rng.integers(ACTIONS, size=rows)),
        jnp.ones(rows, jnp.float32),
        jnp.asarray(next_obs),
        jnp.arange(rows) % 3 == 2,
    )


def reward(batch: Transition) -> jax.Array:
    """Half a unit less the size of the observation; something else after an end."""
    plain = 0.5 - jnp.sum(batch.obs**2, axis=-1)
    return plain if batch.absorbing is None else jnp.where(batch.absorbing, END_REWARD, plain)


class WithBonus(NamedTuple):
    pay: Callable[[Transition], jax.Array]
    bonus: jax.Array

    @property
    def needs(self) -> tuple[str, ...]:
        return getattr(self.pay, "needs", ())

    def __call__(self, batch: Transition) -> jax.Array:
        return self.pay(batch) + self.bonus


def spied(
    name: str,
    termination: str = "T0",
    cap_values: bool = False,
    pay: Callable[[Transition], jax.Array] = lambda batch: reward(batch),
    **slots: Any,
) -> Callable[..., tuple[np.ndarray, PyTree, Metrics]]:
    """One update by the usual loss, as `(target, agent, metrics)` of `(agent, batch, bonus, seed)`."""
    seen: list[np.ndarray] = []

    def spy(fit: Fit, batch: Transition) -> jax.Array:
        jax.debug.callback(lambda t: seen.append(np.asarray(t)), fit.target)
        return squared_bellman_error(fit, batch)

    solver = make(name, {"termination": termination, "cap_values": cap_values}, critic_loss=spy, **slots)

    @quick_jit
    def improve(agent: PyTree, batch: Transition, bonus: jax.Array, key: jax.Array) -> tuple[PyTree, Metrics]:
        return solver.improve(agent, lambda _: batch, WithBonus(pay, bonus), key)

    def update(
        agent: PyTree, batch: Transition, bonus: float = 0.0, seed: int = 9
    ) -> tuple[np.ndarray, PyTree, Metrics]:
        improved, metrics = improve(agent, batch, jnp.float32(bonus), jax.random.key(seed))
        jax.effects_barrier()
        return seen.pop(), improved, metrics

    return update


shared_spy = cache(spied)


def forward(net: PyTree, x: np.ndarray, member: int | None = None) -> np.ndarray:
    """A network by hand: a single one, or one member of an ensemble."""
    for i, layer in enumerate(net.layers):
        weight, bias = (np.asarray(w if member is None else w[member], float) for w in (layer.weight, layer.bias))
        x = x @ weight.T + bias
        x = np.maximum(x, 0) if i + 1 < len(net.layers) else x
    return x


def differs(one: PyTree, other: PyTree) -> bool:
    """Whether any number differs."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(bool(np.any(np.asarray(a) != np.asarray(b))) for a, b in pairs)
