"""Fresh policies on frozen rewards: what they are paid, what is refused, what the page tells, a whole transfer."""

import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import trustirl as ti
from tests.control.small import SETTINGS, cartpole_demo
from trustirl.cli.main import main
from trustirl.core.types import Transition
from trustirl.report.transfer import Arm, Transfer, estimate, render
from trustirl.training.transfer import _experiment
from trustirl.worlds.learned_reward import given_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ti.Run:
    out = tmp_path_factory.mktemp("learned") / "run"
    return ti.train("piro", "CartPole-v1", cartpole_demo(), seeds=2, steps=260, out=out, **SETTINGS)


@pytest.mark.slow
def test_each_seed_is_paid_its_own_frozen_reward(run: ti.Run) -> None:
    asked = _experiment(run, None, None, 3, 200, {})
    given = given_of(asked)
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)), jnp.float32)
    pairs = Transition(obs, jnp.zeros(5, jnp.int32), jnp.ones(5), obs, jnp.zeros(5, bool), jnp.zeros(5, bool))
    paid = eqx.filter_vmap(lambda function: function(pairs))(given.functions)
    for seed in range(3):  # of two rewards, the third seed has the first again
        np.testing.assert_allclose(paid[seed], run.rewards[seed % 2](obs, np.zeros(5, int)), atol=1e-5)
    ended = Transition(obs, pairs.action, pairs.weight, absorbing=jnp.ones(5, bool))
    assert np.abs(eqx.filter_vmap(lambda function: function(ended))(given.functions)[0] - paid[0]).max() > 0
    assert given.termination == run.config["control"]["termination"] == "T2"
    nothing = given_of(_experiment(run, None, None, 3, 200, {"paid": "zero"}))
    np.testing.assert_array_equal(nothing.functions(pairs), np.zeros(5))
    for moment, name in zip(given.statistics, ("obs_mean", "obs_std"), strict=True):
        np.testing.assert_array_equal(moment, load_file(run.path / "policy.safetensors")[name])


def test_settings_are_those_of_the_run_unless_others_are_given(run: ti.Run) -> None:
    asked = _experiment(run, None, None, None, None, {"batch": 8})
    assert asked.seeds == 2
    assert asked.steps == 260
    assert asked.settings["plan"]["batch"] == 8
    assert asked.settings["plan"]["warmup"] == SETTINGS["warmup"]
    assert asked.settings["solver"] == run.config["solver"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": "Pendulum-v1"}, "cannot act in Pendulum-v1"),
        ({"task_args": {"change": "gravity:3"}}, "only those of MuJoCo's robots"),
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"steps": 300}, "use at least 2000"),
    ],
)
def test_what_cannot_be_transferred_is_said(run: ti.Run, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ti.InputError, match=sentence):
        ti.transfer(run, **changes)


def test_an_estimate_holds_what_it_should_and_lies_around_the_mean() -> None:
    random = np.random.default_rng(0)
    held = 0
    for _ in range(40):
        seeds = random.normal(size=(6, 1))
        found = estimate(5 + seeds + random.normal(size=(6, 30)))
        assert found.low <= found.mean <= found.high
        held += found.low <= 5 <= found.high
    assert held > 30


def test_the_page_tells_who_earns_what() -> None:
    means = {"learned": 80.0, "carried": 50.0, "clone": 40.0, "true": 100.0, "zero": 10.0, "random": 0.0}
    noise = np.random.default_rng(0).normal(size=(2, 20))
    arms = {name: Arm(name, (mean + noise).tolist()) for name, mean in means.items()}
    arms["random"] = Arm("random", noise[:1].tolist())
    found = Transfer("runs/a", "piro", "Ant-v4", "Ant-v4 with change disabled_leg 1", 1000, 1000, 20, arms)
    assert found.advantage("carried").low == pytest.approx(30)  # paired: the noise is the same
    assert found.advantage("random") is None
    assert found.share("learned") == pytest.approx(0.8, abs=0.01)
    html = render(found)
    assert "Ant-v4 with change disabled_leg 1" in html
    assert "policy carried over" in html
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")
    json.dumps(found.plain(), allow_nan=False)


@pytest.mark.slow
def test_a_whole_transfer_can_be_stopped_and_asked_again(run: ti.Run, capsys: pytest.CaptureFixture[str]) -> None:
    out = run.path.with_name("transfer")
    found = ti.transfer(run, seeds=1, steps=2000, bc_steps=1000, episodes=2, out=out)
    assert set(found.arms) == {"learned", "carried", "clone", "true", "zero", "random"}
    assert len(found.arms["carried"].returns) == 2
    for name in ("learned", "zero"):
        made = ti.load(out / name)
        assert made.world.name == "learned reward"
        assert not made.world.pays_truth
        assert np.isfinite(made.summary["returns"]).all()
        assert (out / name / "report.html").exists()
    told = ["--seeds", "1", "--steps", "2000", "--episodes", "2", "--out", str(out), "--json"]
    main(["reward", "transfer", str(run.path), *told])
    assert json.loads(capsys.readouterr().out)["arms"] == json.loads((out / "transfer.json").read_text())["arms"]
    assert (out / "transfer.html").read_text().startswith("<!DOCTYPE html>")
    # Nothing is left of the true reward in what was learned from.
    assert not [name for name in load_file(next((out / "learned").glob("**/*.safetensors"))) if "true" in name]
