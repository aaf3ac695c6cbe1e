"""Training from end to end: resolve the question, run the loop, write the run."""

import platform
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import jax
import numpy as np

from trustirl.algorithms import ALGORITHMS
from trustirl.core.checks import counts, of_kind
from trustirl.core.compiling import forget_old_programs, kept_programs
from trustirl.core.errors import InputError, Interrupted, NumericalError, TrustIRLError, unknown_name
from trustirl.core.machine import installed
from trustirl.core.types import Metrics, TrainState
from trustirl.core.words import printable
from trustirl.core.worlds import world_in
from trustirl.demos.schema import DemoChoice, Demos
from trustirl.irl.loop import iterate, seed_keys
from trustirl.report.page import write_report
from trustirl.runs.board import Board
from trustirl.runs.folder import RunFolder
from trustirl.runs.run import Run, load
from trustirl.training.guard import check_finite
from trustirl.training.progress import progress
from trustirl.worlds.job import Experiment, Groups, Job, Preset, Row, settle
from trustirl.worlds.table import World as TableWorld
from trustirl.worlds.world import EXPERT, WORLDS, Task, task_in, task_name, world_of

SEED_NUMBERS = 2**31  # seeds are 32-bit integers
MOST_SEEDS = 10_000  # at once
MOST_STEPS = 2**31 - 1  # they are counted in 32 bits
ASKED = ("task", "demos", "demo_episodes", "seeds", "first_seed", "steps", "out", "offline")  # of every question
OnEvaluation = Callable[[list[Row]], object]
ALWAYS = ("return_mean", "return_std", "gap", "drift", "mu")  # columns of every row of metrics.jsonl


def train(
    algorithm: str,
    task: Task | TableWorld = "gridworld",
    demos: Demos | str | Path = "packaged",
    *,
    demo_episodes: int | None = None,
    demo_choice: DemoChoice = "first",
    seeds: int = 1,
    first_seed: int = 0,
    steps: int | None = None,
    out: str | Path | None = None,
    preset: Preset = "tuned",
    task_args: Mapping[str, Any] | None = None,
    offline: bool = False,
    overwrite: bool = False,
    on_evaluation: OnEvaluation | None = None,
    **settings: Any,
) -> Run:
    """Learn a reward and a policy from demonstrations and write the run to `out`.

    `task` is a task of the exact world, a Gymnasium id, an environment, a function that returns one, or a `World`
    made from a table, which also demonstrates; `task_args` are its parameters (for Gymnasium, keyword arguments of
    the environment). Seeds are numbered from `first_seed`; what one does depends on its number alone. `steps` counts
    environment steps per seed; in the exact world, where nothing is sampled, reward updates, and where an algorithm
    needs no environment, gradient steps. `demos` are `Demos` or what `Demos.load` reads; `"packaged"` is in the exact
    world the exact occupancy of the task's soft-optimal expert, or `demo_episodes` episodes sampled from it.
    `offline` steps no environment but to judge policies, for algorithms that learn from demonstrations alone.
    `on_evaluation` is called with the new rows of metrics.jsonl, one per seed, after each evaluation. Any setting of
    the algorithm, and of the solver and the plan on Gymnasium tasks, can be given by name.
    """
    name = "table" if isinstance(task, TableWorld) else task_name(task)
    folder = _free_folder(out, name, algorithm, overwrite)
    if isinstance(task, TableWorld):
        if demos != "packaged":
            raise InputError("a world from a table is demonstrated by the table itself: leave demos out.")
        task, task_args, demos = _of_table(algorithm, task, folder, task_args)
    experiment = question(
        algorithm,
        task,
        str(folder.path / "demos.npz") if isinstance(demos, Demos) else str(demos),
        demo_episodes=demo_episodes,
        demo_choice=demo_choice,
        seeds=seeds,
        first_seed=first_seed,
        steps=steps,
        preset=preset,
        task_args=task_args,
        offline=offline,
        **settings,
    )
    given = demos if isinstance(demos, Demos) else None
    if given is None:
        _check_kept(Path(str(demos)), folder)
    with folder.held(), WORLDS[experiment.world].precision():
        folder.check_free(overwrite)  # nobody was here meanwhile
        job = _job(experiment, task, given)
        _begin(experiment, job, folder, given)
        return _run(experiment, job, folder, on_evaluation)


def _of_table(
    algorithm: str, world: TableWorld, folder: RunFolder, more: Mapping[str, Any] | None
) -> tuple[Task, Mapping[str, Any], Demos | str]:
    """The task, its arguments and demonstrations; what the table cannot say is told by jobs of the known world."""
    asked = world.question(algorithm, folder.path, more or {})
    if asked.task != "table":
        _tell(world.notes)
    return asked


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"trustirl: {printable(note)}.", file=sys.stderr)


def question(
    algorithm: str,
    task: Task,
    demos: str,
    *,
    demo_episodes: int | None,
    demo_choice: DemoChoice,
    seeds: int,
    first_seed: int,
    steps: int | None,
    preset: Preset,
    task_args: Mapping[str, Any] | None,
    offline: bool = False,
    **settings: Any,
) -> Experiment:
    """What `train` is asked, fully resolved; everything but the demonstrations is checked."""
    if preset not in get_args(Preset):
        raise unknown_name("preset", preset, get_args(Preset))
    seeds, steps = _counted(seeds, steps)
    (demo_episodes,) = counts(1, demo_episodes=demo_episodes)
    first_seed = of_kind(int, "first_seed", first_seed)
    if not 0 <= first_seed <= SEED_NUMBERS - seeds:
        raise InputError(f"seeds are numbered from 0 to {SEED_NUMBERS - 1}, got first_seed {first_seed}.")
    ALGORITHMS.find(algorithm)
    world, name = world_of(algorithm, task, of_kind(bool, "offline", offline)), task_name(task)
    arguments = of_kind(dict, "task_args", task_args or {})
    groups, usual = world.defaults(algorithm, task, arguments, preset)
    resolved = settle(groups, settings, algorithm, ASKED, world.arguments(name, {}))
    return Experiment(
        algorithm=algorithm,
        task=name,
        task_args=world.arguments(name, arguments),
        demos=demos,
        demo_episodes=demo_episodes,
        demo_choice=demo_choice,
        seeds=seeds,
        steps=steps or usual,
        settings=resolved,
        world=world.facts.name,
        first_seed=first_seed,
    )


def _counted(seeds: Any, steps: Any) -> tuple[int, int | None]:
    """Seeds and steps as plain numbers that a run can have."""
    seeds, steps = counts(1, seeds=seeds, steps=steps)
    if seeds > MOST_SEEDS:
        raise InputError(f"at most {MOST_SEEDS:,} seeds run at once, got {seeds:,}; number the others by first_seed.")
    if steps is not None and steps > MOST_STEPS:
        raise InputError(f"at most {MOST_STEPS:,} steps can be made, got {steps:,}.")
    return seeds, steps


def train_expert(
    task: Task,
    *,
    seeds: int = 1,
    steps: int | None = None,
    out: str | Path | None = None,
    task_args: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Train an expert on a Gymnasium task's true reward, record its demonstrations and write the run to `out`.

    The expert, `run.policy`, is the seed with the highest mean true return in the last evaluation. Its deterministic
    episodes are `demos.npz`; `card.json` says where they come from. Any setting of the solver and the schedule can be
    given by name; the defaults, `steps` among them, are the task's preset.
    """
    seeds, steps = _counted(seeds, steps)
    arguments = of_kind(dict, "task_args", task_args or {})
    world, name = world_of(EXPERT, task), task_name(task)
    groups, usual = world.defaults(EXPERT, task, arguments, "tuned")
    resolved = settle(groups, settings, "an expert", ("task", "seeds", "steps", "out"))
    folder = _free_folder(out, name, EXPERT, overwrite)
    experiment = Experiment(
        algorithm=EXPERT,
        task=name,
        task_args=arguments,
        demos="",
        demo_episodes=None,
        demo_choice="first",
        seeds=seeds,
        steps=steps or usual,
        settings=resolved,
        world=world.facts.name,
    )
    return ask(experiment, task, folder, overwrite)


def ask(experiment: Experiment, task: Task, folder: RunFolder, overwrite: bool = False) -> Run:
    """Run an experiment without demonstrations from its beginning to its end."""
    with folder.held():
        folder.check_free(overwrite)  # nobody was here meanwhile
        job = _job(experiment, task)
        _begin(experiment, job, folder)
        return _run(experiment, job, folder)


def resume(path: str | Path, task: Task | None = None, *, on_evaluation: OnEvaluation | None = None) -> Run:
    """Continue a run from its newest checkpoint; the result equals that of an uninterrupted run.

    A run whose task was given as an environment, a function or `module:Id` needs it again, and so does `train`'s
    `on_evaluation`.
    """
    folder = RunFolder(Path(path))
    if not folder.path.is_dir() or not folder.holds_run():
        stopped = (folder.path / "manifest.json").exists()
        why = "was stopped before it began; start it again" if stopped else "holds no run; start one"
        raise InputError(f"{path} {why} with `trustirl train`.")
    with folder.held():
        if (folder.path / "summary.json").exists():
            return _finished(folder)
        config = folder.config()
        algorithm, name = (_text(config, key, folder.path / "config.json") for key in ("algorithm", "task"))
        task = task or task_in(name, folder.path / "config.json")
        said = world_in(config, str(folder.path / "config.json"))
        able = algorithm in ALGORITHMS and said.name in ALGORITHMS[algorithm].worlds
        world = world_of(algorithm, task, offline_only=able and said.name == "offline")
        groups, _ = world.defaults(algorithm, task, config.get("task_args") or {}, "tuned")
        experiment = Experiment.from_config(config, groups, folder.path)
        if experiment.world != world.facts.name:
            raise InputError(f"{folder.path / 'config.json'} says another world than its task has; restore the file.")
        with world.precision():
            job = _job(experiment, task)
            made = folder.manifest()
            kept = {"demo_hash": f"the demos {experiment.demos}", "task_hash": f"the file of {name}"}
            for fact, what in (kept | {"reward_hash": "the reward"}).items():
                if made.get(fact) != job.facts.get(fact):
                    job.close()
                    raise InputError(f"{what} changed since the run began; restore it as it was.")
            return _run(experiment, job, folder, on_evaluation)


def _text(config: Mapping[str, Any], key: str, where: Path) -> str:
    if not isinstance(config.get(key), str):
        raise InputError(f"{where} says no {key}; restore it.")
    return str(config[key])


def _finished(folder: RunFolder) -> Run:
    """Only the page of a finished run may be missing, where a crash came just before it was drawn."""
    page = folder.path / "report.html"
    if page.exists():
        raise InputError(f"the run in {folder.path} is finished; its page is {page}.")
    write_report(folder.path)
    return load(folder.path)


def setting_groups(algorithm: str, task: Task, preset: Preset = "tuned", offline: bool = False) -> Groups:
    """Every setting of an algorithm, or of an expert, on a task, by group, with its default."""
    return world_of(algorithm, task, offline).defaults(algorithm, task, {}, preset)[0]


def _free_folder(out: str | Path | None, task: str, algorithm: str, overwrite: bool) -> RunFolder:
    folder = RunFolder(Path(out) if out else Path("runs") / f"{task.replace('/', '-')}-{algorithm}")
    folder.check_free(overwrite)
    return folder


def _check_kept(demos: Path, folder: RunFolder) -> None:
    """Demonstrations inside the folder would go with the old run that --overwrite removes."""
    if demos.exists() and folder.holds_run() and folder.path.resolve() in demos.resolve().parents:
        raise InputError(f"{demos} lies in the run that would be replaced; move it, or choose another --out.")


def _begin(experiment: Experiment, job: Job, folder: RunFolder, demos: Demos | None = None) -> None:
    """Write what is known at the start; the configuration last, which says that the run can be resumed."""
    try:
        folder.clear(_manifest(experiment, job))
        if demos is not None:
            demos.save(folder.path / "demos.npz")
        folder.begin(experiment.config())
    except OSError as error:
        job.close()
        raise InputError(
            f"{folder.path} cannot be written ({error.strerror}); choose another --out folder."
        ) from None


def _job(experiment: Experiment, task: Task, demos: Demos | None = None) -> Job:
    forget_old_programs()
    return WORLDS[experiment.world].job(experiment, demos, task)


def _run(experiment: Experiment, job: Job, folder: RunFolder, on_evaluation: OnEvaluation | None = None) -> Run:
    try:
        with kept_programs(folder.programs):
            _go_on(experiment, job, folder, on_evaluation)
        folder.forget_programs()
        write_report(folder.path)
    except OSError as error:
        raise TrustIRLError(
            f"{error.filename or folder.path} cannot be written ({error.strerror or error}); what is saved is "
            f"whole: make room, then continue with `trustirl resume {folder.path}`."
        ) from error
    return load(folder.path)


def _go_on(experiment: Experiment, job: Job, folder: RunFolder, on_evaluation: OnEvaluation | None) -> None:
    """From the newest checkpoint, if there is one, to the end."""
    keys, start, began, done = seed_keys(experiment.seeds, experiment.first_seed), None, time.perf_counter(), -1
    try:
        _tell(job.notes)
        if found := folder.restore(job.loop.blank(keys)):
            start, done = found.state, found.saved.iteration
            began -= found.saved.seconds
            vars(job.ledger).update(found.saved.env_steps)
        with (
            closing(Board(folder.path / "tb", experiment.seed_numbers, done)) as board,
            progress(experiment, job, folder.path) as show,
            _stop_signals() as stopped,
            closing(_Looks(experiment, job, folder, board, show, on_evaluation)) as looks,
        ):
            state = start
            for state, metrics in iterate(job.loop, keys, job.iterations, start):
                iteration = int(state.iteration[0])
                check_finite(state.irl, metrics, iteration, experiment.first_seed)
                last = iteration == job.iterations
                show(iteration, None)
                if iteration % job.evaluate_every == 0 or last:
                    looks.begin(state, metrics, time.perf_counter() - began)
                if iteration % job.checkpoint_every == 0 or last or stopped():
                    looks.finish()  # a checkpoint says how many rows came before it
                    folder.save_checkpoint(state, iteration, time.perf_counter() - began, vars(job.ledger))
                if stopped() and not last:
                    raise Interrupted(
                        f"stopped after {iteration} of {job.iterations} iterations and saved; continue with "
                        f"`trustirl resume {folder.path}`."
                    )
        assert state is not None  # the loop has yielded, or a finished state was read
        job.finish(state, folder.metrics()[-experiment.seeds :], time.perf_counter() - began, folder.path)
    except NumericalError as error:
        kept = "The last good checkpoint is kept." if folder.has_checkpoint() else "No checkpoint was made before it."
        raise NumericalError(f"{error} {kept}") from error
    finally:
        job.close()


class _Looks:
    """Evaluations, one after the other, each written down before the next; aside where other processes play."""

    def __init__(
        self,
        experiment: Experiment,
        job: Job,
        folder: RunFolder,
        board: Board,
        show: Callable[[int, list[Row] | None], None],
        on_evaluation: OnEvaluation | None,
    ) -> None:
        self._seeds, self._job, self._folder = experiment.seed_numbers, job, folder
        self._board, self._show, self._tell = board, show, on_evaluation
        self._thread = ThreadPoolExecutor(1)
        self._write: Callable[[], None] | None = None  # what is being looked at

    def begin(self, state: TrainState, metrics: Metrics, seconds: float) -> None:
        """Evaluate a state that was reached after so many seconds."""
        self.finish()
        job, iteration = self._job, int(state.iteration[0])
        env_steps = (job.ledger.train + job.ledger.reward) // len(self._seeds)
        observe = partial(job.observe, state, metrics)
        seen = self._thread.submit(observe).result if job.observe_aside else observe

        def write() -> None:
            rows = _rows(seen(), iteration, env_steps, self._seeds, seconds)
            self._folder.append_metrics(rows)
            self._board.add(rows)
            self._show(iteration, rows)
            if self._tell is not None:
                self._tell(rows)

        self._write = write
        if not job.observe_aside:
            self.finish()

    def finish(self) -> None:
        """Wait for it, and write down what was seen."""
        if self._write is not None:
            write, self._write = self._write, None
            write()

    def close(self) -> None:
        """Also where training fails: what was seen before may say why."""
        self.finish()
        self._thread.shutdown()


def _rows(
    columns: Mapping[str, np.ndarray], iteration: int, env_steps: int, seeds: range, seconds: float
) -> list[Row]:
    """One record per seed."""
    names = [*ALWAYS, *(name for name in columns if name not in ALWAYS)]
    return [
        {"seed": seed, "iteration": iteration, "env_steps": env_steps}
        | {name: float(columns[name][place]) if name in columns else None for name in names}
        | {"seconds": round(seconds, 3)}
        for place, seed in enumerate(seeds)
    ]


def _manifest(experiment: Experiment, job: Job) -> dict[str, Any]:
    """Where and with what a run was made."""
    packages = ("trustirl", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium")
    program = Path(sys.argv[0])
    called = program.name == "trustirl" or program.parts[-2:] == ("trustirl", "__main__.py")
    function = "train" if experiment.algorithm in ALGORITHMS else "train_expert"
    return {
        "format_version": 1,
        "command": shlex.join(["trustirl", *sys.argv[1:]]) if called else f"trustirl.{function}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()}
        | {name: installed(name) or "not installed" for name in packages},
        "platform": platform.platform(),
        "device": str(jax.devices()[0].device_kind),
        "seeds": list(experiment.seed_numbers),
    } | job.facts


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Tells whether someone asked to stop; a second request stops at once. Only the main thread can listen."""
    asked: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in signals}

    def listen(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        for other, handler in before.items():
            signal.signal(other, handler)

    for number in signals:
        signal.signal(number, listen)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
