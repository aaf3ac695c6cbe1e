"""The command line: `trustirl train | resume | report`. Exit codes: 0 success, 2 bad input, 3 numerical failure."""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, make_dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, Literal

import tyro

from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import InputError, TrustIRLError, unknown_name
from trustirl.experiment import Preset, resume, train
from trustirl.nets.rewards import RewardKind
from trustirl.report.page import write_report
from trustirl.run import Run

USAGE = f"""\
usage: trustirl COMMAND ...

  train ALGO --task TASK   learn a reward and a policy from demonstrations (`trustirl train piro --help`)
  resume RUN               continue an interrupted run
  report RUN [-o FILE]     draw a run's page again

  ALGO is one of: {", ".join(ALGORITHMS)}"""


@dataclass(frozen=True)
class TrainOptions:
    """The question."""

    task: str
    """gridworld, random-mdp, chain or cliff."""
    task_args: tuple[str, ...] = ()
    """Parameters of the task as name=value, for example size=9 slip=0.1."""
    demos: str = "packaged"
    """packaged: the task's own expert (exactly, or --demo-episodes of it); or an .npz file."""
    demo_episodes: int | None = None
    """How many demonstration episodes to use."""
    seeds: int = 1
    """Independent repetitions, run at once."""
    steps: int | None = None
    """Environment steps; in the exact world, where nothing is sampled, reward updates."""
    out: Path | None = None
    """Folder of the run; runs/TASK-ALGO if not given."""
    preset: Preset = "tuned"
    """smoke: just enough to see it work; paper: the paper's values; tuned: ours."""
    reward: RewardKind = "table"
    """The class of rewards."""
    reward_inputs: Literal["state", "state-action"] | None = None
    """What the reward may depend on; by default what the task's true reward depends on."""
    policy_rounds: int = 0
    """Rounds of soft policy iteration per reward update; 0 solves for the optimal policy."""
    suboptimality: float = 0.0
    """Solve the policy only to this proven suboptimality (theory section 4); 0: exactly."""
    compare: bool = True
    """Also run the TRRO variants, PIRO and ML-IRL for the report's comparison."""
    overwrite: bool = False
    """Replace a run that --out already holds."""


@dataclass(frozen=True)
class ResumeOptions:
    """Continue an interrupted run."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""


@dataclass(frozen=True)
class ReportOptions:
    """Draw a run's page again."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write the page; the run's own report.html if not given."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; a user's mistake is one line, never a traceback."""
    try:
        _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except TrustIRLError as error:
        print(f"trustirl: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("trustirl: interrupted; continue with `trustirl resume RUN`.", file=sys.stderr)
        sys.exit(1)


def _dispatch(arguments: list[str]) -> None:
    commands: dict[str, Callable[[list[str]], None]] = {"train": _train, "resume": _resume, "report": _report}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
    elif arguments[0] == "--version":
        print(f"trustirl {version('trustirl')}")
    elif arguments[0] not in commands:
        raise unknown_name("command", arguments[0], commands)
    else:
        commands[arguments[0]](arguments[1:])


def _train(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    name, *rest = arguments
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    both = make_dataclass("Train", [("question", TrainOptions), ("algorithm", ALGORITHMS[name].config)], frozen=True)
    parsed = _parse(both, rest, f"trustirl train {name}")
    options = {field.name: getattr(parsed.question, field.name) for field in fields(TrainOptions)}
    options["task_args"] = dict(map(_name_and_value, options["task_args"]))
    settings = {field.name: getattr(parsed.algorithm, field.name) for field in fields(parsed.algorithm)}
    _announce(train(name, **options, **settings))


def _resume(arguments: list[str]) -> None:
    _announce(resume(_parse(ResumeOptions, arguments, "trustirl resume").run))


def _report(arguments: list[str]) -> None:
    options = _parse(ReportOptions, arguments, "trustirl report")
    print(write_report(options.run, options.out))


def _announce(run: Run) -> None:
    summary = run.summary
    print(
        f"return {mean(summary['returns']):.2f} (expert {summary['expert_return']:.2f}), "
        f"reward correlation {mean(summary['reward_correlation']):.3f}, "
        f"ell {mean(summary['ell']):.4f} (true reward {summary['ell_expert']:.4f})"
    )
    print(f"page: {run.path / 'report.html'}")


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"task arguments are written name=value, got {text!r}.")
    return name, value


def _parse(options: type[Any], arguments: list[str], program: str) -> Any:
    """Parse with tyro; its boxed complaint becomes one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(options, args=arguments, prog=program, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(f"{_one_line(complaint.getvalue())}; see `{program} --help`.") from None


def _one_line(box: str) -> str:
    """The complaint without its frame (lines or, on plain terminals, dashes), its help texts and its line breaks."""
    rows = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    sections = re.split(r"\n[─-]{3,}(?:\n|$)", "\n".join(rows).strip())
    said = [text for text in sections if not text.startswith(("For full helptext", "Argument helptext"))]
    return "; ".join(" ".join(text.split()) for text in said).rstrip(".")
