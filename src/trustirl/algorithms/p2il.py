"""P2IL: proximal point imitation learning (Viano et al. 2022). Fit a reward and values by one convex loss.

A step of the proximal point method, from occupancies m to those of a policy that earns what the expert does under
every reward r_w, has the dual

    minimise over w and Q   (1/eta) log E_m[exp(eta d)] - E_E[r_w] + (1-g) E[V(s0)],   d = r_w + g V(s') - Q

where V is the soft value of Q. At its minimum m exp(eta d), normalised, is an occupancy, that of the soft policy
of Q: it has the expert's features, and is as near to m as such a one can be. `logistic` is this loss on minibatches.
The last term is the mean of V(s) - g V(s') over the expert's rows; V(s') moves with Q, or occupancies would not be
carried from state to state. Squares of r and Q choose among rewards that differ by shaping and keep them bounded. The
exponential lifts values that are too low, and leaves those that are too high where no expert was: there the policy
would follow what nobody has seen, and so a squared error by the target critic is added (`regression`, ours).

After an end the reward of the absorbing state is paid for ever (T2), as everywhere: the rows that stand for it have
d = 0 and are left out, and their shares of the other two terms are the same and cancel.

Written from the paper's equations; its released code, under a licence that restricts its use, was not used.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.measure import Reward
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import ExpertData, IrlState, Transition
from trustirl.irl.compose import policy_step
from trustirl.rl.targets import CriticLoss, Fit, no_reward, successors


@dataclass(frozen=True)
class P2ilConfig:
    """Settings of the loss."""

    eta: float = 2.0
    """How much more a row counts where it was better than its value says; near 0 all rows count alike."""
    reference_rows: Literal["own", "all"] = "all"
    """Rows that stand for the occupancies so far: the learner's own, or demonstrated ones, too."""
    reward_penalty: float = 0.5
    """Weight of the mean square of rewards."""
    value_penalty: float = 0.0
    """Weight of the mean square of values."""
    regression: float = 1.0
    """Weight of the squared Bellman error, which also keeps values from growing where they are too high already."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        positive(self, "eta")
        at_least(0, self, "reward_penalty", "value_penalty", "regression")
        at_most(1_000_000, self, "eta", "reward_penalty", "value_penalty", "regression")


def logistic(config: P2ilConfig, own_rows: bool = True) -> CriticLoss:
    """The dual on minibatches in which expert rows are marked, for each member of the critic."""
    all_rows = config.reference_rows == "all" or not own_rows

    def loss(fit: Fit, batch: Transition) -> Float[Array, ""]:
        assert fit.partner is not None
        assert batch.expert is not None
        next_obs, ended = successors(batch)
        paid, q = fit.partner(batch), fit.q(batch.obs, batch.action)
        end = fit.end(fit.partner)
        following = fit.discount * jnp.where(ended, end, fit.v(next_obs))
        rows = ~batch.expert | all_rows
        exponents = jnp.where(rows, config.eta * (paid + following - q), -jnp.inf)
        bellman = (jax.nn.logsumexp(exponents, axis=-1) - jnp.log(jnp.sum(rows))) / config.eta
        shown = jnp.mean(fit.v(batch.obs) - following - paid, where=batch.expert)
        size = config.reward_penalty * jnp.mean(paid**2) + config.value_penalty * jnp.mean(q**2)
        target = jax.lax.stop_gradient(paid + fit.discount * jnp.where(ended, end, fit.next_value))
        return jnp.mean(bellman) + shown + size + config.regression * jnp.mean((q - target) ** 2)

    return loss


def p2il(parts: Parts, config: P2ilConfig) -> Algorithm:
    """Put the algorithm together; the reward is the critic's partner."""
    solver = parts.make_solver(critic_loss=logistic(config, parts.own_rows))

    def init(key: Array, _expert: ExpertData) -> IrlState:
        reward_key, policy_key = jax.random.split(key)
        return IrlState(solver.init(policy_key, partner=parts.make_reward(reward_key)), reward=None, optimizer=None)

    def fitted(state: IrlState) -> Reward:
        reward: Reward = state.policy.partner
        return reward

    return Algorithm(solver, init, policy_step(solver, lambda _: no_reward), paid=fitted, kept=fitted)


# The authors' for robots: one critic, a low fixed temperature, a slow actor, demonstrated rows in every minibatch.
AUTHORS: dict[str, Any] = {
    "critics": 1,
    "temperature": 0.01,
    "demo_share": 0.5,
    "termination": "T0",
    "actor_learning_rate": 3e-5,
}
AUTHORS |= {"reference_rows": "own", "eta": 1.0, "value_penalty": 0.5, "regression": 0.0, "reward_width": 256}
OURS = {
    "critics": 1,
    "temperature": 0.01,
    "demo_share": 0.5,
    "layer_norm": True,
    "learning_rate": 1e-3,
    "actor_learning_rate": 3e-4,
    "tau": 0.02,
    "averaging": 0.1,
}
SMALL: dict[str, Any] = {
    "steps_per_iteration": 1000,
    "warmup": 500,
    "width": 64,
    "reward_width": 64,
    "evaluate_every": 2,
}
TASKS = {
    "CartPole-v1": SMALL | {"batch": 128, "temperature": 0.02, "learning_rate": 5e-4, "steps": 20_500},
    "Pendulum-v1": SMALL | {"batch": 128, "discount": 0.98, "steps": 15_500},
}
ENTRY = Entry(
    name="p2il",
    config=P2ilConfig,
    build=p2il,
    reference="Viano, Kamoutsi, Neu, Krawczuk and Cevher 2022, Proximal Point Imitation Learning",
    worlds=("simulator", "offline"),
    needs=frozenset({"expert rows"}),
    defaults=Defaults(OURS, TASKS, paper=AUTHORS),
)
