"""Data that flows between the parts."""

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Integer, Num, PyTree

Metrics = dict[str, Float[Array, "..."]]


class Transition(eqx.Module):
    """A weighted set of state-action pairs, that is, a measure.

    It carries no reward: whoever needs one calls a reward function, so neither the true reward
    nor a stale learned one can slip into training.
    """

    obs: Num[Array, "..."]
    action: Num[Array, "..."]
    weight: Float[Array, "..."]
    next_obs: Num[Array, "..."] | None = None  # the true successor, also where an episode ended
    terminated: Bool[Array, "..."] | None = None  # the MDP ended there; a time limit does not count
    absorbing: Bool[Array, "..."] | None = None  # the pair stands for the state after an end (termination mode T2)
    critic_only: Bool[Array, "..."] | None = None  # in a minibatch: where the critic learns, and the policy does not
    expert: Bool[Array, "..."] | None = None  # in a minibatch: which rows are demonstrated


class ExpertData(eqx.Module):
    """What demonstrations are to an algorithm; made once, from demonstrations, task and weighing."""

    measure: Transition  # the expert's: demonstrated steps, then what follows ends
    steps: int = eqx.field(static=True)  # in so many first rows of the measure somebody acted
    rows: Transition | None = None  # steps as experience, as far as it is known what followed them
    following: Transition | None = None  # the pairs after `rows`; of weight 0 where the next action is not known
    episode: Integer[Array, " rows"] | None = None  # the number of the one to which a row of the measure belongs


class RewardData(NamedTuple):
    """What a reward step sees: expert and learner measures, and the pairs on which drift is measured."""

    demo: Transition
    learner: Transition
    reference: Transition
    progress: Float[Array, ""] | float = 0.0  # the share of the run's reward steps that are over
    episodes: Transition | None = None  # whole ones of the present policy [episodes, time], if these are asked for
    replay: PyTree = None  # what the learner remembers; the loop adds it


class IrlState(eqx.Module):
    """Everything an algorithm carries from one iteration to the next, as one pytree."""

    policy: PyTree
    reward: PyTree
    optimizer: PyTree
    extra: PyTree = None  # an algorithm's own anchors and duals, for example the weight of a penalty


class TrainState(eqx.Module):
    """The loop's state: a reward with the policy that follows it, and the measures of that policy."""

    irl: IrlState
    data: RewardData | None  # None where no reward is learned
    key: Array
    iteration: Integer[Array, "..."]
    replay: PyTree = None  # past experience, where a policy learns from samples
