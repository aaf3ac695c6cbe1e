from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import trustirl as ti
from trustirl.core import compiling
from trustirl.core.compiling import OWN_PRODUCTS, PLACE, TOGETHER, compiled_training, kept_programs
from trustirl.runs.folder import RunFolder


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that return what XLA would have been told when they were compiled."""
    jit = lambda function, compiler_options=None: lambda *given: compiler_options  # noqa: E731
    monkeypatch.setattr(compiling.eqx, "filter_jit", jit)


def test_what_xla_does_not_know_it_is_not_told() -> None:
    assert compiling._knows(**OWN_PRODUCTS)
    assert not compiling._knows(xla_no_such_option=True)


@pytest.mark.usefixtures("told")
def test_one_seed_alone_uses_products_of_its_own_on_a_cpu() -> None:
    training = compiled_training(jnp.sum)
    assert training(None, jnp.ones((1, 3))) == OWN_PRODUCTS
    assert training(None, jnp.ones((2, 3))) is None


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("known", [True, False])
def test_training_on_another_device_has_its_options_alone(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    monkeypatch.setattr(compiling.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(compiling, "_knows", lambda **options: known)
    for seeds in (1, 2):
        assert compiled_training(jnp.sum)(jnp.ones((seeds, 3))) == (TOGETHER if known else None)


@pytest.fixture
def nobody_keeps_programs() -> Iterator[None]:
    """JAX as users have it, without the folder that our tests share."""
    shared = getattr(jax.config, PLACE)
    compiling._configure({PLACE: None})
    yield
    compiling._configure({PLACE: shared})


@pytest.fixture
def by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this were a GPU."""
    monkeypatch.setattr(compiling, "_compiles_by_the_clock", lambda: True)


def compile_anew() -> int:
    """Run a program as a new process would; returns how many were taken from a folder."""
    events: list[str] = []
    listen = lambda event, **_: events.append(event)  # noqa: E731
    jax.clear_caches()
    jax.monitoring.register_event_listener(listen)
    jax.jit(lambda x: 3 * x + 7)(jnp.ones(5)).block_until_ready()
    jax.monitoring.unregister_event_listener(listen)
    return events.count("/jax/compilation_cache/cache_hits")


@pytest.mark.usefixtures("nobody_keeps_programs", "by_the_clock")
def test_programs_are_kept_and_taken_again_wherever_the_folder_lies(tmp_path: Path) -> None:
    with kept_programs(tmp_path / "here"):
        assert compile_anew() == 0
    kept = {file.name for file in (tmp_path / "here").iterdir()}
    (tmp_path / "here").rename(tmp_path / "there")
    with kept_programs(tmp_path / "there"):
        assert compile_anew() == len(kept) > 0
    assert {file.name for file in (tmp_path / "there").iterdir()} == kept


@pytest.mark.usefixtures("nobody_keeps_programs", "by_the_clock")
def test_afterwards_jax_is_as_it_was(tmp_path: Path) -> None:
    def settings() -> list[object]:
        return [getattr(jax.config, name) for name in (PLACE, *compiling.KEEP_ALL)]

    def fail() -> None:
        with kept_programs(tmp_path / "programs"):
            assert settings() == [str(tmp_path / "programs"), *compiling.KEEP_ALL.values()]
            raise KeyError

    before = settings()
    with pytest.raises(KeyError):
        fail()
    assert settings() == before
    compile_anew()
    assert not (tmp_path / "programs").exists()


@pytest.mark.usefixtures("by_the_clock")
def test_a_folder_that_was_chosen_is_kept(tmp_path: Path) -> None:
    chosen = getattr(jax.config, PLACE)
    with kept_programs(tmp_path / "programs"):
        assert getattr(jax.config, PLACE) == chosen is not None
        compile_anew()
    assert not (tmp_path / "programs").exists()


@pytest.mark.usefixtures("nobody_keeps_programs")
def test_a_cpu_needs_none(tmp_path: Path) -> None:
    with kept_programs(tmp_path / "programs"):
        compile_anew()
    assert not (tmp_path / "programs").exists()


@pytest.mark.usefixtures("nobody_keeps_programs", "by_the_clock")
def test_a_run_keeps_its_programs_until_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    forget = RunFolder.forget_programs
    monkeypatch.setattr(RunFolder, "forget_programs", lambda run: (kept.extend(run.programs.iterdir()), forget(run)))
    run = ti.train("piro", "gridworld", steps=2, task_args={"size": 3}, out=tmp_path / "run")
    assert any("step" in file.name for file in kept)  # by the names of the functions that were compiled
    assert not (run.path / "programs").exists()
