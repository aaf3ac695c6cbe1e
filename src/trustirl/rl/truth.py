"""The true reward as training data: for experts, who make demonstrations, and for nobody who learns from them."""

from jaxtyping import Array, Float

from trustirl.core.types import Transition


class PaidTransition(Transition):
    """Transitions with what the environment paid for them."""

    true_reward: Float[Array, "..."] | None = None


def true_reward(batch: Transition) -> Float[Array, "..."]:
    """An expert's reward function: it reads what was paid."""
    assert isinstance(batch, PaidTransition)
    assert batch.true_reward is not None
    return batch.true_reward
