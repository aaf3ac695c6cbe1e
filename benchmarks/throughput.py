"""How many gradient updates per second training makes, beside Stable-Baselines3 and SBX where they are installed.

    python benchmarks/throughput.py --out results/throughput/results.json
    python benchmarks/throughput.py --loop --out results/throughput/results.json  # whole training

Each update draws 256 rows from a full replay, labels them with a learned network reward, and moves critic, actor and
target critic; the peers read stored rewards instead. Libraries take turns, call by call, in processes of their own.
Rows of one library and size share a process, seeds ascending, so that none shows the peak memory of a larger one.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {"HalfCheetah": (17, 6), "Humanoid": (376, 17), "CartPole": (4, 2)}  # observations, actions
DISCRETE = {"CartPole"}
SEEDS = (1, 5, 16)
BATCH = 256
REPLAY = 100_000
CALLS = {"cpu": 6, "gpu": 3}  # timed; the fastest counts, since other work on the machine can only slow one down
UPDATES = {"cpu": 50, "gpu": 20_000}  # per call, all seeds together
LOOP_TASKS = ("Hopper-v4", "Ant-v4", "Humanoid-v4")
LOOP_STEPS = 500  # of an iteration on CPUs, whose seconds would otherwise be minutes
LOOP_ITERATIONS = 3  # timed; the fastest counts
PEERS = {"Stable-Baselines3 SAC": ("stable-baselines3", "torch"), "SBX SAC": ("sbx-rl", "jax", "flax")}
KEY = ("what", "sizes", "seeds", "device")  # what a row is about: measured again, it replaces the old one
TURN = "turn\n"  # a process says so when the next one shall run
Row = dict[str, Any]


def time_ours(sizes: str, seeds: int, updates: int | None) -> Row:
    """The solver's own `improve`, seeds under vmap, compiled ahead."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from trustirl.core.buffer import add, draw, empty_buffer
    from trustirl.core.compiling import compiled_training
    from trustirl.core.types import Transition
    from trustirl.nets.rewards import network_reward_factory
    from trustirl.rl.config import SolverConfig
    from trustirl.rl.sac import sac
    from trustirl.rl.softq import softq

    (obs_dim, actions), discrete = SIZES[sizes], sizes in DISCRETE
    each = max(1, (updates or UPDATES[_backend()]) // seeds)
    obs, action, next_obs, terminated = _experience(obs_dim, actions, discrete)
    seen = Transition(*map(jnp.asarray, (obs, action, np.ones(REPLAY, np.float32), next_obs, terminated)))
    make_reward = network_reward_factory(seen, actions if discrete else 0, "state-action", 128, 2, 10.0)
    solver = (softq if discrete else sac)(obs_dim, actions, SolverConfig(), obs.mean(0), obs.std(0), updates=each)

    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(0, None))
    def start(key: Any, seen: Transition) -> Any:
        return solver.init(key), make_reward(key), add(empty_buffer(REPLAY, seen), seen)

    @eqx.filter_vmap
    def improve(agent: Any, reward: Any, replay: Any, key: Any) -> Any:
        return solver.improve(agent, lambda k: draw(replay, k, BATCH), reward, key)

    keys = jax.random.split(jax.random.key(0), seeds)
    agent, reward, replay = start(keys, seen)
    improved: Any = compiled_training(improve)
    call = lambda: jax.block_until_ready(improved(agent, reward, replay, keys))  # noqa: E731
    begin = time.perf_counter()
    call()
    first = time.perf_counter() - begin
    seconds = _fastest_seconds(call, CALLS[_backend()])
    compile_seconds = first - seconds
    what = "trustirl soft Q" if discrete else "trustirl SAC"
    return _row(what, sizes, seeds, seeds * each / seconds, compile_seconds, _device(), "jax", "equinox", "optax")


def time_peer(what: str, sizes: str, updates: int | None) -> Row:
    """A peer's own `train` on a full buffer: same sizes, networks, batch and fixed temperature."""
    packages = PEERS[what]
    try:
        version(packages[0])
    except PackageNotFoundError:
        return {"what": what, "sizes": sizes, "seeds": 1, "batch": BATCH, "note": "not installed"}
    wait: Callable[[Any], Any]
    if what.startswith("SBX"):
        import jax
        from sbx import SAC

        device = _device()
        wait = lambda model: jax.block_until_ready((model.policy.qf_state, model.policy.actor_state))  # noqa: E731
    else:
        import torch
        from stable_baselines3 import SAC

        on_gpu = torch.cuda.is_available()
        device = torch.cuda.get_device_name() if on_gpu else _processor()
        wait = lambda _: torch.cuda.synchronize() if on_gpu else None  # noqa: E731
    count = updates or UPDATES["cpu"] * (1 if device == _processor() else 20)
    model = _filled(SAC, *SIZES[sizes])

    def train() -> None:
        model.train(gradient_steps=count, batch_size=BATCH)
        wait(model)

    begin = time.perf_counter()
    train()  # SBX compiles, torch warms up
    first = time.perf_counter() - begin
    seconds = _fastest_seconds(train, CALLS["cpu"])
    compile_seconds = max(0.0, first - seconds) if what.startswith("SBX") else None
    return _row(what, sizes, 1, count / seconds, compile_seconds, device, *packages)


def time_loop(task: str, seeds: int, began: float) -> Row:
    """A short real training with the default settings: as it is, without stepping, and stepping alone."""
    import jax

    from trustirl.algorithms import ALGORITHMS
    from trustirl.core.compiling import kept_programs
    from trustirl.irl.loop import iterate, seed_keys
    from trustirl.worlds import simulator, stage
    from trustirl.worlds.job import Experiment, settle

    given = {"steps_per_iteration": LOOP_STEPS} if _backend() == "cpu" else {}
    settings = settle(simulator.groups(ALGORITHMS["piro"], task), given, "piro")
    plan = settings["plan"]
    each = plan["steps_per_iteration"] + plan["extra_steps"]
    total = plan["warmup"] + 3 * (LOOP_ITERATIONS + 1) * each
    stages: list[Replaying] = []

    def opened(*details: Any, **more: Any) -> Any:
        made = stage.open_stage(*details, **more)
        stages.append(Replaying(made.practice))
        return made._replace(practice=stages[0])  # type: ignore[arg-type]

    vars(simulator)["open_stage"] = opened
    asked = Experiment("piro", task, {}, "packaged", None, "first", seeds, total, settings, "simulator")
    parts = simulator.build(asked)
    watch, (practice,) = parts.watch, stages

    def timed(iterations: Any) -> tuple[Any, float, float, float]:
        """The last state, and seconds of an iteration: in all, of updates and of stepping; the fastest counts."""
        laps = []
        for _ in range(LOOP_ITERATIONS):
            before, begin = (watch.updating, watch.stepping), time.perf_counter()
            state, _ = next(iterations)
            jax.block_until_ready(state.irl.policy)
            laps.append((time.perf_counter() - begin, watch.updating - before[0], watch.stepping - before[1]))
        return state, *min(laps)

    with tempfile.TemporaryDirectory() as folder, kept_programs(Path(folder)):
        iterations = iterate(parts.loop, seed_keys(seeds), parts.plan.whole)
        next(iterations)
        next(iterations)  # the first reward update compiles, too
        compiled = time.time() - began
        state, whole, updating, stepping = timed(iterations)
        practice.replays = True
        _, still, still_updating, _ = timed(iterations)
        actor = parts.algorithm.solver.actor(state.irl.policy)
        steps = plan["steps_per_iteration"] // (plan["rounds"] * plan["envs"])
        practice.replays = False
        practice.fresh(0, "train")
        alone = min(_seconds(lambda: practice.collect(actor, steps)) for _ in range(LOOP_ITERATIONS))
    parts.close()
    made = seeds * plan["steps_per_iteration"]
    updates_alone, stepping_alone = made / still_updating, seeds * steps * plan["envs"] / alone
    row = _row("trustirl piro, whole loop", task, seeds, made / whole, None, _device(), "jax", "gymnasium")
    row["versions"] |= dict(parts.task.versions)
    sizes = parts.task.obs_dim, parts.task.action_dim
    flops = update_flops(*sizes, settings["solver"]["width"], settings["control"]["reward_width"], plan["batch"])
    return row | {
        "envs": plan["envs"],
        "steps_per_iteration": each,
        "seconds_per_iteration": round(whole, 3),
        "device_share": round(updating / whole, 3),
        "stepping_share": round(stepping / whole, 3),
        "without_stepping_per_second": round(made / still, 1),
        "updates_alone_per_second": round(updates_alone, 1),
        "stepping_alone_per_second": round(stepping_alone, 1),
        "slower_over_loop": round(min(updates_alone, stepping_alone) * whole / made, 3),
        "arithmetic_limit_per_second": round(_flops_per_second() / flops),
        "seconds_to_first_update": round(compiled - 2 * whole, 1),
    }


class Replaying:
    """Environments that can be told to give again, at once, what they gave before."""

    def __init__(self, practice: Any) -> None:
        self.practice, self.replays = practice, False
        self.given: dict[int, Any] = {}

    def fresh(self, *details: Any) -> None:
        """Start new episodes."""
        if not self.replays:
            self.practice.fresh(*details)

    def collect(self, actor: Any, steps: int) -> Any:
        """Go on, or not."""
        if not self.replays:
            self.given[steps] = self.practice.collect(actor, steps)
        return self.given[steps]


def update_flops(obs_dim: int, actions: int, width: int, reward_width: int, batch: int) -> int:
    """Of the matrix products in one update: two per weight, row and pass, and as many again per gradient.

    The critics pass over the target's, the fitted and the actor's pairs, with gradients of weights for the second and
    of inputs for both; the actor over this and the next observation, with gradients of the first; the reward once.
    """

    def weights(inputs: int, outputs: int, wide: int) -> int:
        return inputs * wide + wide * wide + wide * outputs

    critics = 2 * (2 + 2 + 2) * weights(obs_dim + actions, 1, width)
    actor = (1 + 3) * weights(obs_dim, 2 * actions, width)
    return 2 * batch * (critics + actor + weights(obs_dim + actions, 1, reward_width))


def _flops_per_second() -> float:
    """What this device makes of large matrix products, at the precision of training."""
    import jax
    import jax.numpy as jnp

    size = 1024 if _backend() == "cpu" else 8192
    product = jax.jit(lambda x: x @ x)
    x = jnp.ones((size, size), jnp.float32)
    return 2 * size**3 / min(_seconds(lambda: product(x).block_until_ready()) for _ in range(6))


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _experience(obs_dim: int, actions: int, discrete: bool) -> tuple[np.ndarray, ...]:
    """Random rows: obs, action, next_obs, terminated."""
    random = np.random.default_rng(0)
    obs, next_obs = random.standard_normal((2, REPLAY, obs_dim), np.float32)
    if discrete:
        action = random.integers(actions, size=REPLAY, dtype=np.int32)
    else:
        action = random.uniform(-1, 1, (REPLAY, actions)).astype(np.float32)
    return obs, action, next_obs, random.random(REPLAY) < 1e-3


def _filled(algorithm: Any, obs_dim: int, actions: int) -> Any:
    """An agent of a library with Stable-Baselines3's interface, its replay full."""
    import gymnasium as gym
    from stable_baselines3.common.logger import configure

    class Sizes(gym.Env[np.ndarray, np.ndarray]):
        """An environment that is asked for its spaces alone."""

        observation_space = gym.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32)
        action_space = gym.spaces.Box(-1, 1, (actions,), np.float32)

    settings = {"batch_size": BATCH, "buffer_size": REPLAY, "ent_coef": 0.2, "learning_rate": 3e-4}
    model = algorithm("MlpPolicy", Sizes(), policy_kwargs={"net_arch": [256, 256]}, **settings)
    model.set_logger(configure(format_strings=[]))
    buffer = model.replay_buffer
    obs, action, next_obs, terminated = (x[:, None] for x in _experience(obs_dim, actions, discrete=False))
    buffer.observations[:], buffer.actions[:], buffer.next_observations[:] = obs, action, next_obs
    buffer.dones[:], buffer.rewards[:], buffer.full = terminated, obs[..., 0], True
    return model


def _fastest_seconds(call: Callable[[], Any], calls: int) -> float:
    seconds = []
    for _ in range(calls):
        _await_turn()
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _await_turn() -> None:
    print(TURN, end="", flush=True)
    sys.stdin.readline()


def _row(
    what: str, sizes: str, seeds: int, per_second: float, compile_seconds: float | None, device: str, *packages: str
) -> Row:
    return {
        "what": what,
        "sizes": sizes,
        "seeds": seeds,
        "batch": BATCH,
        "updates_per_second": round(per_second, 1),
        "compile_seconds": None if compile_seconds is None else round(compile_seconds, 1),
        "peak_memory_mib": round(_peak_mib()),
        "device": device,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }


def _peak_mib() -> float:
    """Of the device where JAX runs on one that counts, else of this process."""
    statistics_of_device = sys.modules["jax"].local_devices()[0].memory_stats() if "jax" in sys.modules else None
    if statistics_of_device:
        return float(statistics_of_device["peak_bytes_in_use"] / 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def _backend() -> str:
    import jax

    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def _device() -> str:
    import jax

    return _processor() if _backend() == "cpu" else str(jax.devices()[0].device_kind)


def _processor() -> str:
    return f"{os.cpu_count()} {platform.machine()} cores"


def measure(*jobs: list[tuple[Any, ...]]) -> list[Row]:
    """Give each job, a list of calls, a fresh process; they take turns, so that all meet the same machine."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # peak memory is then what was needed
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--calls", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for job in jobs
    ]
    rows = []
    while processes:
        for process in list(processes):
            assert process.stdin
            assert process.stdout
            process.stdin.write("\n")
            process.stdin.flush()
            for line in process.stdout:
                if line == TURN:
                    break
                if line.startswith("{"):
                    rows.append(json.loads(line))
                    print(describe(rows[-1]), flush=True)
            else:  # it has ended
                processes.remove(process)
                if process.wait():
                    for other in processes:
                        other.kill()
                    raise SystemExit("a measurement failed; what it said stands above.")
    return rows


def describe(row: Row) -> str:
    """One line."""
    line = f"{row['what']:<26} {row['sizes']:<12} {row['seeds']:>2} seeds"
    if "note" in row:
        return f"{line}  {row['note']}"
    line += f" {row['updates_per_second']:>10,.1f} updates/s {row['peak_memory_mib']:>7,} MiB"
    if "device_share" in row:
        line += (
            f"; alone: updates {row['updates_alone_per_second']:,.0f}/s, stepping "
            f"{row['stepping_alone_per_second']:,.0f}/s; device {row['device_share']:.0%}, stepping "
            f"{row['stepping_share']:.0%} of an iteration; first update after {row['seconds_to_first_update']} s"
        )
    return line if row["compile_seconds"] is None else f"{line}, compiled in {row['compile_seconds']} s"


def keep(path: Path, rows: list[Row]) -> None:
    """Replace the file's rows about the same thing on the same device, and keep all others."""
    about = lambda row: tuple(row.get(name) for name in KEY)  # noqa: E731
    old = json.loads(path.read_text()) if path.exists() else []
    merged = {about(row): row for row in [*old, *rows] if "note" not in row}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(merged.values()), indent=1) + "\n")


def main() -> None:
    """Print a line per row; with --out also keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=sorted(SIZES), default=list(SIZES))
    parser.add_argument("--seeds", nargs="+", type=int, help="how many seeds at once")
    parser.add_argument("--updates", type=int, help="per timed call, all seeds together")
    parser.add_argument("--skip-peers", action="store_true", help="leave Stable-Baselines3 and SBX out")
    parser.add_argument("--loop", nargs="*", metavar="TASK", help="time PIRO's training on these tasks instead")
    parser.add_argument("--out", type=Path, help="merge the rows into this file")
    parser.add_argument("--calls", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.calls:
        timers: dict[str, Callable[..., Row]] = {"ours": time_ours, "peer": time_peer, "loop": time_loop}
        sys.stdin.readline()
        for name, *details in arguments.calls:
            print(json.dumps(timers[name](*details)), flush=True)
        return
    command = " ".join(["python", *sys.argv])
    for jobs in plan(arguments):
        rows = measure(*jobs)
        if arguments.out:
            keep(arguments.out, [row | {"command": command} for row in rows])


def plan(arguments: argparse.Namespace) -> Iterator[list[list[tuple[Any, ...]]]]:
    """What is measured, one set of jobs after another."""
    if arguments.loop is not None:
        for task in arguments.loop or LOOP_TASKS:
            for seeds in sorted(arguments.seeds or SEEDS):
                yield [[("loop", task, seeds, time.time())]]
        return
    for sizes in arguments.sizes:
        ours = [("ours", sizes, seeds, arguments.updates) for seeds in sorted(arguments.seeds or SEEDS)]
        peers = [] if arguments.skip_peers or sizes in DISCRETE else PEERS
        yield [ours, *[[("peer", peer, sizes, arguments.updates)] for peer in peers]]


if __name__ == "__main__":
    main()
