"""`trustirl doctor`: what is here, what is known not to go together, and whether learning works.

Whatever may be broken is imported where it is tried, so that `trustirl doctor` can still say what is wrong.
"""

import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, distributions, metadata, requires

import numpy as np
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from trustirl.core.machine import cores, install_command, installed
from trustirl.training.parsing import parse

MUJOCO = "3.1.6"  # reference returns and demonstrations were made with it
VARIABLES = ("JAX_PLATFORMS", "MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
UPDATES = 4
FALLEN = (2.4, 0.20943951)  # beyond which position or angle CartPole's episodes end
Need = tuple[str, Requirement]  # who asks, and for what


@dataclass(frozen=True)
class DoctorOptions:
    """What is installed, what does not go together, and whether learning works (seconds)."""

    json: bool = False
    """For programs: one object."""


@dataclass(frozen=True)
class Machine:
    """Everything that warnings are drawn from."""

    python: str
    platform: str
    versions: Mapping[str, str | None]  # of trustirl and all that it can use; None: missing
    backend: str | None  # JAX's, None where it does not start
    device: str
    gpus: tuple[str, ...]  # that NVIDIA's driver knows, used or not: name, memory, driver
    cores: int
    memory_gib: float | None
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Extra:
    """Optional packages, by the name that pip knows them by."""

    name: str
    installed: bool
    command: str


@dataclass(frozen=True)
class Trial:
    """A part of the self-test; `trouble` is empty where all went well."""

    name: str
    seconds: float
    trouble: str


@dataclass(frozen=True)
class Checkup:
    """All that the doctor says."""

    machine: Machine
    extras: tuple[Extra, ...]
    warnings: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def well(self) -> bool:
        """Warnings and missing extras are no illness."""
        return not any(trial.trouble for trial in self.trials)


def doctor_command(arguments: list[str]) -> None:
    """Examine, tell, and exit with 1 if the self-test failed."""
    options = parse(DoctorOptions, arguments, "trustirl doctor")
    if installed("trustirl") is None:
        sys.exit("trustirl: it runs from its sources here, and what it needs is not known; pip install -e . first.")
    checkup = examine()
    print(json.dumps(asdict(checkup) | {"well": checkup.well}, indent=2) if options.json else _in_words(checkup))
    if not checkup.well:
        sys.exit(1)


def examine() -> Checkup:
    """Look at this machine and try what a user will do first."""
    names = [name for name in metadata("trustirl").get_all("Provides-Extra") or () if name != "dev"]
    needs = map(Requirement, requires("trustirl") or ())
    ours = [need for need in needs if any(_applies(need, extra) for extra in ("", *names))]
    machine = look(canonicalize_name(need.name) for need in ours)
    extras = tuple(Extra(name, _complete(name, ours), install_command(name)) for name in names)
    warnings = (*known_troubles(machine), *misfits(_needs(distributions(), machine.versions), machine.versions))
    trials = tuple(_try(name, trial) for name, trial in TRIALS.items())
    return Checkup(machine, extras, warnings, trials)


def look(packages: Iterable[str]) -> Machine:
    """What there is."""
    backend, device = _jax_device()
    return Machine(
        python=platform.python_version(),
        platform=platform.platform(),
        versions={name: installed(name) for name in ("trustirl", *sorted(set(packages)))},
        backend=backend,
        device=device,
        gpus=_nvidia_gpus(),
        cores=cores(),
        memory_gib=_memory_gib(),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def known_troubles(machine: Machine) -> Iterator[str]:
    """Combinations that disappoint: one sentence each, with the mend."""
    versions, variables = machine.versions, machine.variables
    mujoco, envpool = versions.get("mujoco"), versions.get("envpool")
    if mujoco and Version(mujoco) != Version(MUJOCO):
        yield (
            f"mujoco {mujoco} moves robots otherwise than {MUJOCO}, with which our reference returns of v4 and v5 "
            f"tasks and our demonstrations were made: to compare with them, run pip install 'mujoco=={MUJOCO}'."
        )
    if envpool and mujoco:
        yield (
            f"envpool {envpool} has a MuJoCo of its own, which need not be mujoco {mujoco}: compare only runs of one "
            "backend (--backend)."
        )
    if machine.gpus and machine.backend == "cpu" and variables.get("JAX_PLATFORMS") == "cpu":
        yield "JAX leaves the NVIDIA GPU alone because JAX_PLATFORMS is cpu: unset JAX_PLATFORMS to use it."
    elif machine.gpus and machine.backend == "cpu":
        yield (
            "JAX computes on the CPU though there is an NVIDIA GPU: run pip install 'jax[cuda13]', or 'jax[cuda12]' "
            "for drivers before 580."
        )
    sees = variables.keys() & {"DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"}
    if mujoco and machine.platform.startswith("Linux") and not sees:
        yield (
            "MuJoCo cannot draw pictures, for there is no display and MUJOCO_GL is not set: export MUJOCO_GL=egl "
            "with a GPU, MUJOCO_GL=osmesa without one."
        )


def misfits(needs: Iterable[Need], versions: Mapping[str, str | None]) -> Iterator[str]:
    """Packages that others want in another version, as after an install that ignored ours."""
    for owner, need in needs:
        found = versions.get(canonicalize_name(need.name))
        if found and not need.specifier.contains(found, prereleases=True):
            wanted = f"{need.name}{need.specifier}"
            mend = f"run pip install '{wanted}'"
            if owner != "trustirl":
                mend = f"install versions that fit, or keep {owner} in an environment of its own"
            yield f"{owner} needs {wanted} and {found} is installed: {mend}."


def _needs(others: Iterable[Distribution], names: Container[str]) -> Iterator[Need]:
    """What any installed package asks of those that are named; of ours, also what its extras ask."""
    for other in others:
        extras = ("", *(other.metadata.get_all("Provides-Extra") or ())) if other.name == "trustirl" else ("",)
        for need in map(Requirement, other.requires or ()):
            if canonicalize_name(need.name) in names and any(_applies(need, extra) for extra in extras):
                yield other.name, need


def _applies(need: Requirement, extra: str) -> bool:
    return need.marker is None or need.marker.evaluate({"extra": extra})


def _complete(extra: str, ours: Iterable[Requirement]) -> bool:
    """Whether all that an extra adds is installed."""
    added = [need for need in ours if _applies(need, extra) and not _applies(need, "")]
    return all(installed(need.name) for need in added)


def _jax_device() -> tuple[str | None, str]:
    try:
        import jax

        return jax.default_backend(), ", ".join(dict.fromkeys(device.device_kind for device in jax.devices()))
    except Exception as error:  # a broken installation may raise anything, and here that is a diagnosis
        return None, f"JAX does not start: {_reason(error)}"


def _nvidia_gpus() -> tuple[str, ...]:
    """Asked of the driver's own tool, which knows them also where JAX does not."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in told.splitlines() if line.strip())


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (ValueError, OSError, AttributeError):  # not on Windows
        return None


def _try(name: str, trial: Callable[[], str]) -> Trial:
    began = time.perf_counter()
    try:
        trouble = trial()
    except Exception as error:  # whatever goes wrong in a self-test is its result
        trouble = _reason(error)
    return Trial(name, round(time.perf_counter() - began, 1), trouble)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def learning() -> str:
    """A few exact updates; by the theory, none of them loses likelihood worth mentioning."""
    from trustirl.algorithms import ALGORITHMS
    from trustirl.irl.loop import iterate, seed_keys
    from trustirl.training.train import question
    from trustirl.worlds.world import WORLDS

    name, task = ALGORITHMS.trained_in("exact")[0], "gridworld"
    experiment = question(
        name,
        task,
        "packaged",
        demo_episodes=None,
        demo_choice="first",
        seeds=1,
        first_seed=0,
        steps=UPDATES,
        preset="tuned",
        task_args={"size": 3},
    )
    world = WORLDS[experiment.world]
    with world.precision():
        loop = world.job(experiment, None, task).loop
        ell = [float(metrics["ell"][0]) for _, metrics in iterate(loop, seed_keys(1), UPDATES)]
    return judged_likelihoods(ell)


def judged_likelihoods(ell: Sequence[float]) -> str:
    """What is wrong with a course of likelihoods."""
    if not all(map(math.isfinite, ell)):
        return f"the likelihood is not finite: {ell}"
    return "" if ell[-1] > ell[0] else f"the likelihood did not rise: {ell[0]:.6g} at first, {ell[-1]:.6g} at last"


def stepping() -> str:
    """Random steps of CartPole in a vector of environments, whose resets must not hide where episodes ended."""
    from trustirl.rollouts.host import HostEnvs
    from trustirl.rollouts.ledger import Ledger
    from trustirl.tasks.gym import make_control_task

    with HostEnvs(make_control_task("CartPole-v1"), 1, 4, Ledger(), "sync") as envs:
        envs.reset(np.arange(4)[None])
        rollout = envs.rollout(None, 100)
    return judged_ends(rollout.next_obs, rollout.terminated)


def judged_ends(next_obs: np.ndarray, terminated: np.ndarray) -> str:
    """What is wrong with the ends of CartPole's episodes: those that ended are the fallen, and nobody else is."""
    fallen = (abs(next_obs[..., [0, 2]]) > FALLEN).any(axis=-1)
    if not terminated.any():
        return "no episode ended, though actions are random"
    return "" if (fallen == terminated).all() else "final observations are not those in which episodes ended"


TRIALS: Mapping[str, Callable[[], str]] = {
    "A reward on a 3 x 3 grid: finite, and the likelihood rises": learning,
    "CartPole in a vector of environments: true final observations": stepping,
}


def _in_words(checkup: Checkup) -> str:
    machine = checkup.machine
    there = [f"{name} {found}" for name, found in machine.versions.items() if found]
    memory = "" if machine.memory_gib is None else f", {machine.memory_gib:,.1f} GiB of memory"
    facts = [
        ("Python", f"{machine.python} on {machine.platform}"),
        ("Packages", ", ".join(there)),
        ("Device", machine.device if machine.backend is None else f"{machine.backend} ({machine.device})"),
        *(("GPU", gpu) for gpu in machine.gpus),
        ("Machine", f"{machine.cores} core{'s' if machine.cores != 1 else ''}{memory}"),
    ]
    extras = [
        (extra.name, "installed" if extra.installed else f"missing: {extra.command}") for extra in checkup.extras
    ]
    trials = [(f"{trial.seconds:.1f} s", f"{trial.name}: {trial.trouble or 'well'}") for trial in checkup.trials]
    sections = {
        "": facts,
        "Extras": extras,
        "Warnings": [("-", warning) for warning in checkup.warnings],
        "Self-test": trials,
    }
    lines = [line for title, rows in sections.items() if rows for line in _section(title, rows)]
    return "\n".join([*lines, "", "All is well." if checkup.well else "The self-test failed."])


def _section(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    if title:
        yield from ("", title)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        yield f"  {name.ljust(width)}  {text}"
