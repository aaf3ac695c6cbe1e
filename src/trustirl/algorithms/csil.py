"""CSIL: coherent soft imitation learning (Watson et al. 2023). Make of a clone the reward that it is optimal for.

    r(s, a) = (log pi_BC(a|s) - log p(a)) / n,  p uniform on [-1, 1]^n

Under this reward, and p as the prior, every state is worth 0 and pi_BC is the soft-optimal policy. Far from the data
pi_BC is nearly p, so that r is nearly 0 there: that is what the stationary head is for.

    `init`   1. clone the demonstrations; the clone is the policy, the prior that it pays to stay near, and the reward
             2. fit the critic to the values of what was demonstrated
    `improve`   SAC with that prior; the critic's loss also refines the reward, its partner, on minibatches of which
             half are demonstrated: up where the expert is, and down where only the learner is. Offline, where all
             rows are demonstrated, the reward stays the clone's
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.descend import fitted
from trustirl.core.records import Algorithm, Parts, Solver
from trustirl.core.types import ExpertData, IrlState, Transition
from trustirl.irl.compose import policy_step
from trustirl.nets.agent_rewards import LogRatioReward, log_ratio_reward
from trustirl.nets.policies import INSIDE, StationaryActor, largest_log_ratio
from trustirl.rl.targets import ActionValue, Fit, no_reward, successors

LEAST = -5.0  # rewards below count no more in what pushes the learner's down


@dataclass(frozen=True)
class CsilConfig:
    """Settings of what is fitted before practice begins."""

    clone_updates: int = 5000
    """Minibatches of the clone."""
    clone_step: float = 1e-3
    """Adam's step size for the clone."""
    value_updates: int = 2000
    """Minibatches of the first critic."""
    value_step: float = 3e-4
    """Adam's step size for the first critic."""
    fit_batch: int = 256
    """Demonstrated steps per minibatch of both."""

    def __post_init__(self) -> None:
        """Refuse fits that cannot be."""
        positive(self, "clone_step", "value_step")
        at_least(1, self, "clone_updates", "value_updates", "fit_batch")
        at_most(1_000_000, self, "clone_updates", "value_updates", "fit_batch")


def csil(parts: Parts, config: CsilConfig) -> Algorithm:
    """Put the algorithm together."""
    spaces, settings, (mean, std) = parts.spaces, parts.config, parts.statistics
    most = largest_log_ratio() / (1 - settings.discount)  # no policy can be worth more

    def refining(fit: Fit, batch: Transition) -> Float[Array, ""]:
        """The critic's error and slope, and the reward's own loss; neither moves the other's network."""
        assert fit.partner is not None
        assert batch.expert is not None
        paid = fit.partner(batch)
        target = jax.lax.stop_gradient(paid) + fit.discount * jnp.minimum(fit.next_value, most)
        error = jnp.mean((fit.q(batch.obs, batch.action) - target) ** 2)
        smooth = error + slope(fit.q, batch, batch.expert)
        if not parts.own_rows:  # nothing would hold the reward down
            return smooth
        pushed_down = jnp.mean(jnp.exp(-jnp.maximum(paid, LEAST)) - 1 + paid, where=~batch.expert)
        return smooth + pushed_down - jnp.mean(paid, where=batch.expert)

    def make_actor(key: Array) -> StationaryActor:
        return StationaryActor(spaces.obs_dim, spaces.action_dim, settings.width, settings.depth, key)

    solver: Solver = parts.make_solver(critic_loss=refining, make_actor=make_actor)

    def faithful(actor: StationaryActor, _: PyTree, rows: Transition) -> Float[Array, ""]:
        """The mean follows its squared error, and the likelihood moves the variance alone (Stirn et al. 2023)."""
        spread = eqx.tree_at(lambda a: a.factors, jax.lax.stop_gradient(actor), actor.factors)
        likelihood = jnp.mean(solver.log_prob(spread, rows.obs, rows.action))
        return jnp.mean(jnp.sum((solver.mode(actor, rows.obs) - rows.action) ** 2, axis=-1)) - likelihood

    def init(key: Array, expert: ExpertData) -> IrlState:
        assert expert.rows is not None
        agent_key, clone_key, value_key = jax.random.split(key, 3)
        blank = solver.init(agent_key)
        shown = jax.tree.map(lambda x: x[: expert.steps], expert.measure)
        shown = replace(shown, action=jnp.clip(shown.action, -INSIDE, INSIDE))
        adam, sizes = optax.adam(config.clone_step), (config.clone_updates, config.fit_batch)
        clone = fitted(faithful, adam, blank.actor, shown, *sizes, clone_key)
        reward = log_ratio_reward(clone, mean, std, 1 / spaces.action_dim)

        def misfit(critic: PyTree, target: PyTree, pairs: tuple[Transition, Transition]) -> Float[Array, ""]:
            """Of Q(s, a) to r + g Q(s', a'), where it is known what the expert did next, or that nothing follows."""
            (rows, after), (_, ends) = pairs, successors(pairs[0])
            ahead = jnp.where(ends, 0.0, solver.q(replace(blank, critic=target), after.obs, after.action))
            known = ends | (after.weight > 0)
            q = lambda obs, action: solver.q(replace(blank, critic=critic), obs, action)  # noqa: E731
            error = q(rows.obs, rows.action) - reward(rows) - settings.discount * ahead
            return jnp.sum(error**2, where=known) / jnp.maximum(jnp.sum(known), 1) + slope(q, rows, known)

        pairs = expert.rows, expert.following
        adam, sizes = optax.adam(config.value_step), (config.value_updates, config.fit_batch)
        critic = fitted(misfit, adam, blank.critic, pairs, *sizes, value_key)
        agent = solver.init(agent_key, actor=clone, critic=critic, partner=reward, prior=clone)
        return IrlState(agent, reward=None, optimizer=None)

    def refined(state: IrlState) -> LogRatioReward:
        reward: LogRatioReward = state.policy.partner
        return reward

    return Algorithm(solver, init, policy_step(solver, lambda _: no_reward), paid=refined, kept=refined)


def slope(q: ActionValue, rows: Transition, where: Bool[Array, " batch"]) -> Float[Array, ""]:
    """How steep values are in the actions, which keeps them smooth where few actions are known."""
    steep = jnp.sum(jax.grad(lambda action: jnp.sum(q(rows.obs, action)))(rows.action) ** 2, axis=-1)
    return jnp.sqrt(jnp.sum(steep, where=where) / jnp.maximum(jnp.sum(where), 1) + 1e-12)


# The authors': one critic with LayerNorm, a low fixed temperature, half the rows of a minibatch demonstrated.
OURS = {"critics": 1, "layer_norm": True, "temperature": 0.01, "demo_share": 0.5, "termination": "T0"}
OURS |= {"clone_start": 0}  # it has a clone of its own
AUTHORS = OURS | {"clone_updates": 25_000, "value_updates": 5000, "value_step": 1e-4, "partner_learning_rate": 1e-3}
SMALL = {"steps_per_iteration": 1000, "warmup": 500, "width": 64, "averaging": 0.1, "tau": 0.02}
TASKS = {"Pendulum-v1": SMALL | {"clone_updates": 3000, "evaluate_every": 2, "steps": 15_500}}
ENTRY = Entry(
    name="csil",
    config=CsilConfig,
    build=csil,
    reference="Watson, Huang and Heess 2023, Coherent Soft Imitation Learning",
    worlds=("simulator", "offline"),
    actions=("continuous",),
    needs=frozenset({"expert rows"}),
    defaults=Defaults(OURS, TASKS, AUTHORS),
)
