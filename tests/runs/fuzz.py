"""Damaged run files for everything that opens a run, in a process of its own: python -m tests.runs.fuzz COUNT [NAME].

With a NAME, only of files whose names begin like that.

Whatever a file holds, opening the run is refused by one sentence or succeeds, within seconds and in little memory.
The last line printed is JSON: files refused and loaded, the slowest, and the peak memory of the process.
"""

import contextlib
import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, seed
from hypothesis import strategies as st

from tests.fuzzing import attempt, damage, limited, peak_mib
from tests.report.synthetic_run import write_control_run, write_run
from trustirl.core.buffer import add, empty_buffer
from trustirl.core.errors import InputError, RewardError
from trustirl.core.precision import double_precision
from trustirl.core.spaces import Spaces
from trustirl.core.types import IrlState, TrainState, Transition
from trustirl.nets.agent_rewards import log_ratio_reward, value_reward
from trustirl.nets.critics import DiscreteQEnsemble
from trustirl.nets.policies import StationaryActor
from trustirl.nets.rewards import (
    RewardInputs,
    expected_reward_factory,
    network_reward_factory,
    numbered_transitions,
    reward_factory,
)
from trustirl.report.runs import read_run
from trustirl.rewards.kinds import NetworkCard, TableCard, card_of
from trustirl.rewards.saved import load_rewards, save_rewards
from trustirl.rl.config import SolverConfig
from trustirl.rollouts.spaces import SpacesCard
from trustirl.runs import policies, run
from trustirl.runs.folder import RunFolder
from trustirl.training.train import question, setting_groups
from trustirl.worlds.job import Experiment

BOX = {"action_low": np.full(1, -2, np.float32), "action_high": np.full(1, 2, np.float32)}
DISCRETE = Spaces(name="CartPole-v1", obs_dim=4, action_dim=2, discrete=True)
CONTINUOUS = Spaces(name="Pendulum-v1", obs_dim=3, action_dim=1, discrete=False, **BOX)
SEEDS = 2
AT_ONCE = 1000  # examples: hypothesis remembers all it has tried
outcomes: Counter[str] = Counter()
slowest = 0.0


def keys() -> Any:
    return jax.vmap(jax.random.key)(jnp.arange(SEEDS))


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def asked(folder: Path, algorithm: str, task: str, **changes: Any) -> None:
    """The configuration that `train` would write."""
    given_options = {"demo_episodes": None, "demo_choice": "first", "steps": 20_000, "preset": "tuned"}
    options = given_options | {"task_args": {}, "first_seed": 0, "seeds": SEEDS, "demos": "packaged"} | changes
    write_json(folder / "config.json", question(algorithm, task, **options).config())


def control_folder(folder: Path, spaces: Spaces) -> Path:
    """A run on a simulator: a policy and a reward of every seed."""
    write_control_run(folder, task=spaces.name, seeds=SEEDS)
    asked(folder, "piro", spaces.name)
    config = SolverConfig(width=8, depth=1)
    mean, std = np.zeros(spaces.obs_dim, np.float32), np.ones(spaces.obs_dim, np.float32)
    solver = policies.make_solver(spaces, config, mean, std)
    actors = eqx.filter_vmap(lambda key: solver.actor(solver.init(key)))(keys())
    policies.save_policies(folder, actors, spaces, config, mean, std)
    obs = jnp.zeros((2, spaces.obs_dim))
    pairs = Transition(obs, jnp.zeros((2, *spaces.action_shape), int if spaces.discrete else float), jnp.ones(2), obs)
    inputs: RewardInputs = "transition" if spaces.discrete else "state-action"
    make = network_reward_factory(pairs, spaces.action_dim if spaces.discrete else 0, inputs, 8, 1, 10.0)
    sizes: dict[str, Any] = {"spaces": SpacesCard.of(spaces), "seeds": SEEDS, "width": 8, "depth": 1, "bound": 10.0}
    card = NetworkCard(**sizes, reward_inputs=inputs, discount=0.99, termination="T2")
    save_rewards(folder, eqx.filter_vmap(make)(keys()), card)
    return folder


def exact_folder(folder: Path, kind: Any, inputs: RewardInputs = "state-action") -> Path:
    """A run of the exact world."""
    write_run(folder, task="chain", seeds=SEEDS, states=5, picture={"kind": "list"}, iterations=5)
    asked(folder, "ml-irl", "chain", steps=5)
    with double_precision():
        make: Any = reward_factory(kind, np.eye(5), 2, True)
        sizes = {"states": 5, "actions": 2, "features": 5, "seeds": SEEDS, "width": 64, "depth": 2}
        if inputs == "transition":
            numbers, features = numbered_transitions(np.arange(10).reshape(5, 2, 1) % 5, np.eye(5))
            make = expected_reward_factory(kind, features, numbers, np.ones(numbers.shape))
            sizes |= {"features": 10, "transitions": len(features), "successors": 1}
        rewards = eqx.filter_vmap(make)(keys())
        save_rewards(folder, rewards, TableCard(kind=kind, reward_inputs=inputs, **sizes))
        policies.save_tables(folder, np.full((SEEDS, 5, 2), -np.log(2)))
    return folder


def agent_folder(folder: Path, spaces: Spaces) -> Path:
    """A run whose reward is read off values or, of continuous actions, off a policy with a stationary head."""
    control_folder(folder, spaces)
    mean, std = np.zeros(spaces.obs_dim, np.float32), np.ones(spaces.obs_dim, np.float32)
    sizes = spaces.obs_dim, spaces.action_dim, 8, 1

    def make(key: Any) -> Any:
        if spaces.discrete:
            return value_reward(DiscreteQEnsemble(*sizes, 2, key), None, 0.1, mean, std, 0.9)
        return log_ratio_reward(StationaryActor(*sizes, key), mean, std, 1.0)

    rewards = eqx.filter_vmap(make)(keys())
    save_rewards(folder, rewards, card_of(rewards, spaces, 0.9, "T0"))
    if not spaces.discrete:
        policies.save_policies(folder, rewards.actor, spaces, SolverConfig(width=8, depth=1), mean, std)
    return folder


def small_state() -> TrainState:
    """A state with a replay, as `save_checkpoint` takes it."""
    row = Transition(jnp.zeros((1, 2)), jnp.zeros((1, 1)), jnp.ones(1))
    replay = jax.vmap(lambda key: add(empty_buffer(8, row), jax.tree.map(lambda x: jnp.repeat(x, 3, 0), row)))(keys())
    irl = IrlState(jnp.ones((SEEDS, 3)), jnp.ones((SEEDS, 2)), None)
    return TrainState(irl, None, keys(), jnp.zeros(SEEDS, int), replay)


def resumable_folder(folder: Path) -> Path:
    """A run that was stopped, with a checkpoint."""
    control_folder(folder, CONTINUOUS)
    (folder / "summary.json").unlink()
    for iteration in (1, 2):
        RunFolder(folder).save_checkpoint(small_state(), iteration, 1.0, {"train": 10})
    return folder


def experiment(folder: Path) -> Experiment:
    """The first half of `resume`."""
    config = RunFolder(folder).config()
    algorithm, task = str(config.get("algorithm")), str(config.get("task"))
    groups = setting_groups(algorithm, "CartPole-v1" if algorithm == "expert" else task)
    return Experiment.from_config(config, groups, folder)


def openers(originals: dict[str, Path]) -> list[tuple[str, str, tuple[Callable[[Path], Any], ...]]]:
    """Folder, file, and what opens it."""
    state = small_state()
    restored = lambda folder: RunFolder(folder).restore(state)  # noqa: E731
    wanted = []
    for kind in ("discrete", "continuous", "table", "linear", "mlp", "steps", "values", "log-ratio"):
        exact = kind in ("table", "linear", "mlp", "steps")
        read_policies = run.load if exact else policies.load_policies
        for name in ("policy.json", "policy.safetensors", "reward.json", "reward.safetensors"):
            opens = load_rewards if name.startswith("reward") else read_policies
            wanted.append((kind, name, (opens,)))
        for name in ("config.json", "summary.json"):
            wanted += 2 * [(kind, name, (run.load, read_run, experiment))]
        wanted.append((kind, "metrics.jsonl", (read_run, lambda folder: RunFolder(folder).metrics())))
        wanted.append((kind, "manifest.json", (read_run, lambda folder: RunFolder(folder).check_free(True))))
    wanted += [("table", name, (read_run,)) for name in ("maps.safetensors", "comparison.json", "certificate.json")]
    wanted += 4 * [("resumable", "checkpoints/latest.json", (restored,))]
    wanted += [("resumable", "metrics.jsonl", (restored,)), ("resumable", "config.json", (restored, experiment))]
    wanted += [("resumable", "checkpoints/00000002.safetensors", (restored,))]
    return [entry for entry in wanted if (originals[entry[0]] / entry[1]).exists()]


odd_values = st.one_of(
    st.sampled_from(
        [None, True, -1, 0, 2, 2**31, 2**53, 2**63, 10**30, 1e308, -1e308, 0.5, "", "x", "\ud800", "../x", [], {}]
    ),
    st.sampled_from(["\x1b[31m", "a" * 5000, "m:Id-v0", [[]], {"": None}, "Infinity", "1", [1e308] * 2]),
    st.text('a0 ._-/\\"\n\0é€😀', max_size=5),  # of all letters that there are it takes seconds to begin
)


@st.composite
def misstated(draw: st.DrawFn, content: Any) -> Any:
    """JSON in which some values are others, missing, or too many."""
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 2))):
        place, parents = content, []
        while isinstance(place, dict | list) and place and (not parents or draw(st.integers(0, 3))):
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
            parents.append((place, key))
            place = place[key]
        if not parents:
            break
        parent, key = parents[-1]
        if draw(st.integers(0, 5)) == 0:
            del parent[key]
        else:
            parent[key] = copy.deepcopy(draw(odd_values))
    return content


@st.composite
def damaged(draw: st.DrawFn, original: bytes, name: str) -> bytes:
    """The file with other bytes or, of JSON, other values."""
    if not name.endswith(("json", "jsonl")) or draw(st.integers(0, 2)) == 0:
        return draw(damage([original]))
    if draw(st.integers(0, 30)) == 0:
        return draw(st.sampled_from([b"[" * 200_000, b'{"a":' * 50_000, b"9" * 5000, b"", b"null", b"[1]", b"{}"]))
    lines = original.decode().splitlines(keepends=True) if name.endswith("jsonl") else [original.decode()]
    place = draw(st.integers(0, len(lines) - 1))
    lines[place] = json.dumps(draw(misstated(json.loads(lines[place])))) + "\n"
    return "".join(lines).encode()


MAKERS: dict[str, Callable[[Path], Path]] = {
    "discrete": partial(control_folder, spaces=DISCRETE),
    "continuous": partial(control_folder, spaces=CONTINUOUS),
    "table": partial(exact_folder, kind="table"),
    "linear": partial(exact_folder, kind="linear"),
    "mlp": partial(exact_folder, kind="mlp"),
    "steps": partial(exact_folder, kind="mlp", inputs="transition"),
    "values": partial(agent_folder, spaces=DISCRETE),
    "log-ratio": partial(agent_folder, spaces=CONTINUOUS),
    "resumable": resumable_folder,
}


def fuzz(scratch: Path, count: int, names: str) -> None:
    """Damage one file after the other, and open what it belongs to."""
    global slowest
    folders = {kind: scratch / kind for kind in MAKERS}
    entries = [entry for entry in openers(folders) if entry[1].startswith(names)]
    for kind, _, opens in entries:  # undamaged, they open
        for each in opens:
            each(folders[kind])
    resumed = [file for file in folders["resumable"].rglob("*") if file.is_file()]
    kept = [(file, file.read_bytes()) for file in resumed]

    def one(data: st.DataObject) -> None:
        global slowest
        kind, name, opens = data.draw(st.sampled_from(entries))
        file = folders[kind] / name
        refusal = RewardError if name.startswith("reward") else InputError
        original = file.read_bytes()
        file.write_bytes(data.draw(damaged(original, name)))
        try:
            for each in opens:
                began = time.monotonic()
                outcomes[attempt(partial(each, folders[kind]), refusal)] += 1
                slowest = max(slowest, time.monotonic() - began)
        finally:
            file.write_bytes(original)
            if kind == "resumable":  # restoring removes what came after the checkpoint
                for other, content in kept:
                    other.write_bytes(content)

    for number in range(math.ceil(count / AT_ONCE)):
        limited(min(AT_ONCE, count - number * AT_ONCE))(seed(number)(given(st.data())(one)))()


def main(count: int, names: str = "") -> None:
    """Make the runs in another process: what compiling takes is not what opening takes."""
    with tempfile.TemporaryDirectory(prefix="trustirl-fuzz-") as name:
        subprocess.run([sys.executable, "-m", "tests.runs.fuzz", "make", name], check=True)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # notes on checkpoints
            fuzz(Path(name), count, names)
    print(json.dumps(dict(outcomes) | {"slowest_seconds": round(slowest, 2), "peak_mib": round(peak_mib())}))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        for kind, make in MAKERS.items():
            make(Path(sys.argv[2]) / kind)
    else:
        main(int(sys.argv[1]), *sys.argv[2:])
