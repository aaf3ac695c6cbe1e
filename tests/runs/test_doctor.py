"""The doctor: it sees what is wrong, and says so in a way that people and programs can use."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement

from trustirl.cli import doctor
from trustirl.cli.doctor import Machine, judged_ends, judged_likelihoods, known_troubles, misfits
from trustirl.cli.main import main

HEALTHY = Machine(
    python="3.11.7",
    platform="Linux-6.1-x86_64-with-glibc2.36",
    versions={"trustirl": "0.1.0", "jax": "0.10.2", "gymnasium": "1.4.0", "mujoco": "3.1.6", "envpool": None},
    backend="cpu",
    device="cpu",
    gpus=(),
    cores=2,
    memory_gib=8.0,
    variables={"MUJOCO_GL": "egl"},
)
GPU = ("NVIDIA H200, 143771 MiB, 580.65",)


def examined(*arguments: str) -> int:
    try:
        main(["doctor", *arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_sources_that_are_not_installed_cannot_be_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda package: None)
    with pytest.raises(SystemExit, match=r"runs from its sources here.*pip install -e \."):
        main(["doctor"])


def test_a_healthy_machine_gets_no_warnings() -> None:
    assert list(known_troubles(HEALTHY)) == []
    assert list(known_troubles(replace(HEALTHY, gpus=GPU, backend="gpu"))) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"versions": {"mujoco": "4.0.0"}}, ("mujoco 4.0.0", "pip install 'mujoco==3.1.6'")),
        ({"versions": {"mujoco": "3.1.6", "envpool": "1.2.5"}}, ("envpool 1.2.5", "one backend")),
        ({"gpus": GPU}, ("NVIDIA GPU", "pip install 'jax[cuda13]'")),
        ({"gpus": GPU, "variables": {"MUJOCO_GL": "egl", "JAX_PLATFORMS": "cpu"}}, ("unset JAX_PLATFORMS",)),
        ({"variables": {}}, ("MUJOCO_GL is not set", "MUJOCO_GL=egl")),
    ],
)
def test_a_bad_combination_is_one_sentence_with_a_mend(change: dict[str, Any], words: tuple[str, ...]) -> None:
    (sentence,) = known_troubles(replace(HEALTHY, **change))
    assert all(word in sentence for word in words)
    assert sentence.endswith(".")


def test_packages_in_versions_that_nobody_wants() -> None:
    needs = [
        ("trustirl", Requirement("gymnasium>=1.1")),
        ("imitation", Requirement("gymnasium~=0.29")),
        ("trustirl", Requirement("jax>=0.10")),
        ("trustirl", Requirement("envpool>=1.2.5")),  # missing is not wrong
    ]
    old, new = ({**HEALTHY.versions, "gymnasium": version} for version in ("0.29.1", "1.4.0"))
    assert list(misfits(needs, old)) == [
        "trustirl needs gymnasium>=1.1 and 0.29.1 is installed: run pip install 'gymnasium>=1.1'."
    ]
    (sentence,) = misfits(needs, new)
    assert sentence.startswith("imitation needs gymnasium~=0.29 and 1.4.0 is installed")


def test_the_self_test_passes_here_and_a_program_can_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert examined("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["well"]
    assert [trial["trouble"] for trial in told["trials"]] == ["", ""]
    assert told["machine"]["versions"]["jax"]
    assert "pytest" not in told["machine"]["versions"]  # only what users need
    extras = {extra["name"]: extra for extra in told["extras"]}
    assert extras.keys() >= {"mujoco", "box2d", "envpool", "minari", "hdf5", "parquet", "ray", "onnx", "bench"}
    assert extras["hdf5"]["installed"]
    assert extras["onnx"]["command"] == "pip install 'trustirl[onnx]'"


def fails() -> str:
    raise RuntimeError("no such\ndevice")


@pytest.mark.parametrize("trial", [fails, lambda: "the likelihood did not rise"], ids=["raises", "disappoints"])
def test_a_failed_self_test_is_exit_1(
    trial: Callable[[], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "TRIALS", {"a trial": trial})
    assert examined() == 1
    shown = capsys.readouterr().out
    assert (
        "a trial: " + ("RuntimeError: no such device" if trial is fails else "the likelihood did not rise") in shown
    )
    assert shown.endswith("The self-test failed.\n")


def test_missing_extras_and_warnings_are_no_illness(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "TRIALS", {})
    monkeypatch.setattr(doctor, "installed", lambda package: "0.1")
    monkeypatch.setattr(doctor, "_complete", lambda extra, ours: extra != "ray")
    assert examined() == 0
    shown = capsys.readouterr().out
    assert "missing: pip install 'trustirl[ray]'" in shown
    assert "trustirl needs jax>=0.10 and 0.1 is installed" in shown


def test_what_the_trials_look_for() -> None:
    assert judged_likelihoods([-2.0, -1.5]) == ""
    assert "did not rise" in judged_likelihoods([-2.0, -1.5, -2.0])
    assert "not finite" in judged_likelihoods([-2.0, float("nan"), -1.0])
    upright, fallen = np.zeros(4), np.array([0, 0, 0.3, 0])
    ended = np.array([False, True])
    assert judged_ends(np.stack([upright, fallen]), ended) == ""
    assert "final observations" in judged_ends(np.stack([upright, upright]), ended)  # the reset's instead
    assert "no episode ended" in judged_ends(np.stack([upright, upright]), ~ended & False)
