"""Updates of which much is prepared at once are the same updates, in the same order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustirl.rl.targets import STACK, updated


@pytest.mark.parametrize("count", [1, 7, STACK, 2 * STACK + 10, 2 * STACK + 3])
def test_updates_follow_their_keys_one_after_the_other(count: int) -> None:
    def prepare(key: jax.Array) -> jax.Array:
        return jax.random.normal(key)

    def update(total: jax.Array, noise: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        total = 0.9 * total + noise  # later ones weigh more
        return total, {"total": total}

    keys = jax.random.split(jax.random.key(0), count)
    one_by_one = [total := jnp.zeros(())]
    for key in keys:
        one_by_one.append(total := update(total, prepare(key))[0])
    last, metrics = jax.jit(lambda keys: updated(update, jnp.zeros(()), prepare, keys))(keys)
    np.testing.assert_allclose(last, one_by_one[-1], rtol=1e-12)
    np.testing.assert_allclose(metrics["total"], np.mean(one_by_one[1:]), rtol=1e-12)
