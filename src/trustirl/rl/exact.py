"""The exact world: soft control of a known finite MDP, to a stated accuracy.

Notation of the paper, with temperature a: V(s) = a log sum_a exp(Q(s,a)/a), pi = exp((Q - V)/a),
f(r) = E_eta[V_r] = max_pi J(pi, r), and occupancies rho are discounted and not normalised (mass 1/(1-g)).

Two mirrored tricks keep large problems cheap. A value sweep contracts by g in the sup norm, but the *span*
of its change often shrinks much faster; the constant that remains is known in closed form (MacQueen's bounds).
The same holds for the shape of the state distribution when an occupancy is summed forward in time.
"""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trustirl.core.mdp import MDP
from trustirl.core.measure import Reward
from trustirl.core.records import ExactSolver
from trustirl.core.types import Metrics

Values = Float[Array, " states"]
Table = Float[Array, "states actions"]

NEVER = -1e3  # the logarithm of a probability of nothing: finite, so that nothing times it is nothing
RESIDUAL = 1e-12  # default accuracy of values and occupancies, relative to their largest possible size


class SoftPolicy(eqx.Module):
    """A policy with the soft values it came from and a proven bound on its suboptimality.

    `suboptimality` bounds f(r) - J(pi, r), the delta of theory section 4.
    """

    log_prob: Table
    value: Values
    suboptimality: Float[Array, ""]
    sweeps: Int[Array, ""]
    hold: Float[Array, ""] | None = None  # weight of the KL divergence from this policy in the next policy step


def next_value(mdp: MDP, value: Values) -> Table:
    """E[value(s') | s, a]."""
    if mdp.shared is not None:
        lists = mdp.shared
        return jnp.sum(lists.probabilities * value[lists.successors], axis=-1)[lists.which]
    return jnp.sum(mdp.probabilities * value[mdp.successors], axis=-1)


def soft_backup(mdp: MDP, reward: Table, value: Values) -> tuple[Values, Table]:
    """Equation 2: the soft Bellman operator, and the policy that is soft-greedy for `value`."""
    q = (reward + mdp.discount * next_value(mdp, value)) / mdp.temperature
    if mdp.allowed is None:
        log_normaliser = jax.nn.logsumexp(q, axis=1)
        return mdp.temperature * log_normaliser, q - log_normaliser[:, None]
    log_normaliser = jax.nn.logsumexp(jnp.where(mdp.allowed, q, -jnp.inf), axis=1)
    return mdp.temperature * log_normaliser, jnp.where(mdp.allowed, q - log_normaliser[:, None], NEVER)


def _span(change: Values) -> Float[Array, ""]:
    return jnp.max(change) - jnp.min(change)


def _fixed_point(
    mdp: MDP, sweep: Callable[[Values], Values], start: Values, accuracy: Float[Array, ""]
) -> tuple[Values, Float[Array, ""], Int[Array, ""]]:
    """The fixed point of a monotone g-contraction that commutes with shifts: V(v + c) = V(v) + g c.

    With change = sweep(v) - v the fixed point lies in v + [min change, max change]/(1-g), so the midpoint is
    right to span/(2(1-g)). Returns it, the last span and the number of sweeps.

    That holds for every v, so the largest value is taken off before each sweep: near g = 1 values are a huge constant
    plus small differences, which would drown in its rounding.
    """
    start = start - jnp.max(start)
    first = sweep(start)
    # g-contraction alone must reach the accuracy; the cap only guards against rounding that never settles.
    cap = jnp.log(accuracy / (accuracy + _span(first - start) * mdp.mass)) / jnp.log(mdp.discount) + 100

    def unfinished(carry: tuple[Values, Values, Int[Array, ""]]) -> Array:
        value, swept, sweeps = carry
        visible = jnp.maximum(accuracy / mdp.mass, 4 * jnp.finfo(swept.dtype).eps * jnp.max(jnp.abs(swept)))
        return (_span(swept - value) > visible) & (sweeps < cap)

    def advance(carry: tuple[Values, Values, Int[Array, ""]]) -> tuple[Values, Values, Int[Array, ""]]:
        _, swept, sweeps = carry
        value = swept - jnp.max(swept)
        return value, sweep(value), sweeps + 1

    value, swept, sweeps = jax.lax.while_loop(unfinished, advance, (start, first, jnp.asarray(1)))
    change = swept - value
    midpoint = value + 0.5 * (jnp.max(change) + jnp.min(change)) * mdp.mass
    return midpoint, _span(change), sweeps


def _accuracy(mdp: MDP, reward: Table, temperature: float | Array) -> Float[Array, ""]:
    return RESIDUAL * mdp.mass * (jnp.max(jnp.abs(reward)) + temperature * jnp.log(mdp.actions))


def solve(
    mdp: MDP, reward: Table, start: Values | None = None, suboptimality: float | Float[Array, ""] = 0.0
) -> SoftPolicy:
    """Soft value iteration until the policy is proven `suboptimality`-optimal (0: to the default residual).

    With span(change) = d after the last sweep, V* - V has span at most d/(1-g), hence
    f - J(pi) <= g d/(1-g), and, since J is flat at its maximum, also <= (g d)^2 / (8 a (1-g)^3).
    """
    start = jnp.zeros(mdp.states) if start is None else start
    wanted = jnp.asarray(suboptimality)
    linear = wanted / mdp.discount
    quadratic = jnp.sqrt(8 * mdp.temperature * (1 - mdp.discount) * wanted) / mdp.discount
    accuracy = jnp.maximum(_accuracy(mdp, reward, mdp.temperature), jnp.maximum(linear, quadratic))
    value, span, sweeps = _fixed_point(mdp, lambda v: soft_backup(mdp, reward, v)[0], start, accuracy)
    highest = jnp.max(value)
    value, log_prob = soft_backup(mdp, reward, value - highest)  # without its constant, whose rounding would show
    return SoftPolicy(log_prob, value + mdp.discount * highest, _proven_suboptimality(mdp, span), sweeps)


def _proven_suboptimality(mdp: MDP, span: Float[Array, ""]) -> Float[Array, ""]:
    scaled = mdp.discount * span * mdp.mass
    return jnp.minimum(scaled, scaled**2 * mdp.mass / (8 * mdp.temperature))


def evaluate(
    mdp: MDP, log_prob: Table, reward: Table, temperature: float | Array = 0.0, start: Values | None = None
) -> Values:
    """Equation 3: the value of a policy for `reward` plus `temperature` times its entropy."""
    prob = jnp.exp(log_prob)
    surprise = jnp.where(prob > 0, -log_prob, 0.0)  # a deterministic policy has no entropy, not a NaN
    immediate = jnp.sum(prob * (reward + temperature * surprise), axis=1)
    start = jnp.zeros(mdp.states) if start is None else start

    def sweep(value: Values) -> Values:
        return immediate + mdp.discount * jnp.sum(prob * next_value(mdp, value), axis=1)

    return _fixed_point(mdp, sweep, start, _accuracy(mdp, reward, temperature))[0]


def occupancy(mdp: MDP, log_prob: Table) -> Table:
    """rho(s, a) = sum_t g^t Pr(s_t = s, a_t = a), by summing state distributions forward in time.

    Once x_{t+1} = g x_t + e, the rest of the sum is x_t/(1-g) up to an L1 error of |e|/(1-g)^2.
    """
    prob = jax.nn.softmax(log_prob, axis=1)  # rounding of a sum that is not quite one would grow with 1/(1-g)
    cap = jnp.log(RESIDUAL * (1 - mdp.discount)) / jnp.log(mdp.discount) + 100

    def forward(now: Values) -> Values:
        if mdp.shared is not None:
            lists = mdp.shared
            begun = jnp.zeros(len(lists.successors)).at[lists.which].add(mdp.discount * now[:, None] * prob)
            return jnp.zeros_like(now).at[lists.successors].add(begun[:, None] * lists.probabilities)
        flow = mdp.discount * (now[:, None] * prob)[:, :, None] * mdp.probabilities
        return jnp.zeros_like(now).at[mdp.successors].add(flow)

    def unfinished(carry: tuple[Values, Values, Values, Int[Array, ""]]) -> Array:
        _, now, after, steps = carry
        error = jnp.sum(jnp.abs(after - mdp.discount * now))
        visible = jnp.maximum(RESIDUAL / mdp.mass, 16 * jnp.finfo(now.dtype).eps * jnp.sum(now))
        return (error > visible) & (steps < cap)

    def advance(
        carry: tuple[Values, Values, Values, Int[Array, ""]],
    ) -> tuple[Values, Values, Values, Int[Array, ""]]:
        total, now, after, steps = carry
        return total + now, after, forward(after), steps + 1

    begin = (jnp.zeros_like(mdp.initial), mdp.initial, forward(mdp.initial), jnp.asarray(0))
    total, now, _, _ = jax.lax.while_loop(unfinished, advance, begin)
    return (total + now * mdp.mass)[:, None] * prob


def discounted_entropy(rho: Table, log_prob: Table) -> Float[Array, ""]:
    """H(pi) = E_rho[-log pi]; a pair that is never visited adds nothing."""
    return -jnp.sum(jnp.where(rho > 0, rho * log_prob, 0.0))


def objective(mdp: MDP, log_prob: Table, reward: Table) -> Float[Array, ""]:
    """J(pi, r) = <rho_pi, r> + a H(pi)."""
    rho = occupancy(mdp, log_prob)
    return jnp.vdot(rho, reward) + mdp.temperature * discounted_entropy(rho, log_prob)


@jax.custom_jvp
def optimal_value(reward: Table, mdp: MDP) -> Float[Array, ""]:
    """f(r) = E_eta[V_r(s0)]: convex in r, with gradient rho_{pi_r}, which `jax.grad` returns."""
    return jnp.vdot(mdp.initial, solve(mdp, reward).value)


@optimal_value.defjvp
def _optimal_value_jvp(
    primals: tuple[Table, MDP], tangents: tuple[Table, MDP]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    (reward, mdp), (direction, _) = primals, tangents
    policy = solve(mdp, reward)
    return jnp.vdot(mdp.initial, policy.value), jnp.vdot(occupancy(mdp, policy.log_prob), direction)


def log_likelihood(mdp: MDP, expert: Table, reward: Table) -> Float[Array, ""]:
    """ell = <rho_E, r> - f(r) (Equation 5a), which equals a E_{rho_E}[log pi_r]."""
    return jnp.vdot(expert, reward) - optimal_value(reward, mdp)


def surrogate(mdp: MDP, expert: Table, old_log_prob: Table, reward: Table) -> Float[Array, ""]:
    """ell_old = <rho_E, r> - J(pi_old, r) (Equation 5c): linear in r, never below ell."""
    return jnp.vdot(expert, reward) - objective(mdp, old_log_prob, reward)


def bregman_gap(mdp: MDP, reward: Table, old_reward: Table) -> Float[Array, ""]:
    """D_f(r, r_old) = f(r) - f(r_old) - <rho_old, r - r_old>: what the surrogate overstates."""
    old_value, slope = jax.jvp(lambda r: optimal_value(r, mdp), (old_reward,), (reward - old_reward,))
    return optimal_value(reward, mdp) - old_value - slope


def curvature(mdp: MDP, log_prob: Table, direction: Table) -> Float[Array, ""]:
    """f''(r)[u, u] = E_{s~rho}[Var_{a~pi} Q_u(s, a)] / a, Q_u the entropy-free action value of u under pi_r."""
    prob = jnp.exp(log_prob)
    value = evaluate(mdp, log_prob, direction)
    action_value = direction + mdp.discount * next_value(mdp, value)
    mean = jnp.sum(prob * action_value, axis=1, keepdims=True)
    rho = occupancy(mdp, log_prob)
    return jnp.sum(rho * (action_value - mean) ** 2) / mdp.temperature


def held(mdp: MDP, policy: SoftPolicy, reward: Table) -> tuple[Table, Values | float]:
    """The reward that stands for this one and the policy's hold, at the same temperature, and its potential.

    With the hold's weight w and s = w/(1+w) it is (1-s) r + s a log pi_old. For an optimal pi_old that is the mixture
    (1-s) r + s r_old, shaped by the potential s V_old, which has to be added to the values that come out.
    """
    if policy.hold is None:
        return reward, 0.0
    share = policy.hold / (1 + policy.hold)
    log_prob = policy.log_prob if mdp.allowed is None else jnp.where(mdp.allowed, policy.log_prob, 0.0)
    return (1 - share) * reward + share * mdp.temperature * log_prob, share * policy.value


def exact_solver(mdp: MDP, rounds: int = 0, suboptimality: float = 0.0) -> ExactSolver:
    """The exact world's policy step.

    `rounds = 0` solves for the soft-optimal policy, to a proven `suboptimality` (0: as exactly as float64
    allows); `rounds = k` makes k rounds of soft policy iteration instead (Algorithm 2, line 3).
    """

    def init(_key: Array) -> SoftPolicy:
        uniform = jnp.full((mdp.states, mdp.actions), -jnp.log(float(mdp.actions)))
        return SoftPolicy(uniform, jnp.zeros(mdp.states), jnp.asarray(jnp.inf), jnp.asarray(0))

    def policy_iteration(policy: SoftPolicy, reward: Table) -> SoftPolicy:
        value, log_prob, sweeps = policy.value, policy.log_prob, policy.sweeps
        for _ in range(rounds):
            value = evaluate(mdp, log_prob, reward, mdp.temperature, value)
            improved, log_prob = soft_backup(mdp, reward, value)
        return SoftPolicy(log_prob, value, _proven_suboptimality(mdp, _span(improved - value)), sweeps)

    def improve(policy: SoftPolicy, _draw: None, reward: Reward, _key: Array) -> tuple[SoftPolicy, Metrics]:
        table = mdp.table(reward(mdp.pairs()))
        table, potential = held(mdp, policy, table)
        start = replace(policy, value=policy.value - potential)
        found = policy_iteration(start, table) if rounds else solve(mdp, table, start.value, suboptimality)
        return replace(found, value=found.value + potential), {"suboptimality": found.suboptimality}

    return ExactSolver(
        init,
        improve,
        mdp,
        lambda reward: optimal_value(mdp.table(reward(mdp.pairs())), mdp),
        lambda policy, direction: curvature(mdp, policy.log_prob, direction),
        actor=lambda policy: policy,
        log_prob=lambda policy, state, action: policy.log_prob[state, action],
        hold=lambda policy, weight: replace(policy, hold=weight),
    )
