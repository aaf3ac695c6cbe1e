import jax.numpy as jnp
import pytest

from trustirl.core import compiling
from trustirl.core.compiling import OWN_PRODUCTS, REPEATABLE, compiled, compiled_training


@pytest.fixture
def told(monkeypatch):
    """Functions that return what XLA would have been told when they were compiled."""
    jit = lambda function, donate, compiler_options: lambda *given: (compiler_options, donate)  # noqa: E731
    monkeypatch.setattr(compiling.eqx, "filter_jit", jit)


@pytest.mark.parametrize("options", [REPEATABLE, OWN_PRODUCTS])
def test_xla_knows_what_it_is_told(options):
    assert compiling._known(options) == options


def test_what_xla_does_not_know_it_is_not_told():
    assert compiling._known({"xla_no_such_option": True}) == {}


def test_every_program_is_to_come_out_the_same_again(told):
    assert compiled(jnp.sum)() == (REPEATABLE, "none")
    assert compiled(jnp.sum, donate="all")() == (REPEATABLE, "all")


def test_one_seed_alone_uses_products_of_its_own_on_a_cpu(told):
    training = compiled_training(jnp.sum)
    assert training(None, jnp.ones((1, 3))) == (OWN_PRODUCTS, "none")
    assert training(None, jnp.ones((2, 3))) == (REPEATABLE, "none")


def test_training_on_another_device_has_no_options_of_cpus(told, monkeypatch):
    monkeypatch.setattr(compiling.jax, "default_backend", lambda: "gpu")
    assert compiled_training(jnp.sum)(jnp.ones((1, 3))) == (REPEATABLE, "none")
