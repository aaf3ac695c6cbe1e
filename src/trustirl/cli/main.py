"""The command line, `trustirl COMMAND ...`. Exit codes: 0 success, 2 bad input, 3 numerical failure."""

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name

from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import InputError, TrustIRLError, unknown_name
from trustirl.core.machine import installed

USAGE = """\
usage: trustirl COMMAND ...

  train ALGO --task TASK   learn a reward and a policy from demonstrations (add --help for its settings)
  train ALGO --table FILE  the same from a table of who did what, where and when (docs/tables.md)
  expert TASK              train an expert on the true reward and record its demonstrations
  resume RUN               continue an interrupted run
  evaluate RUN             play new episodes with the policies of a run and print their true returns
  report PATH... -o FILE   compare runs and benches (add --help); report RUN alone draws its page again
  bench SUITE              run many experiments, here or on a cluster, and compare them (add --help)
  reward COMMAND           inspect, compare, transfer or export learned rewards (add --help)
  demos COMMAND            list, inspect, convert or record demonstrations (add --help)
  doctor [--json]          say what is installed, what does not go together, and whether learning works"""
HELP = ("-h", "--help")

# Imported when they are asked for: help and a mistyped command are answered at once, and `doctor` even where JAX
# cannot be loaded.
COMMANDS = {
    "train": "trustirl.cli.runs:train_command",
    "expert": "trustirl.cli.runs:expert_command",
    "resume": "trustirl.cli.runs:resume_command",
    "evaluate": "trustirl.cli.runs:evaluate_command",
    "report": "trustirl.cli.runs:report_command",
    "reward": "trustirl.cli.reward:reward_command",
    "demos": "trustirl.cli.demos:demos_command",
    "bench": "trustirl.cli.bench:bench_command",
    "doctor": "trustirl.cli.doctor:doctor_command",
}
NEED_A_NAME = ("train", "expert")  # whose settings follow from it


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; a user's mistake is one line, never a traceback."""
    try:
        with _flushed():
            _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except TrustIRLError as error:
        print(f"trustirl: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("trustirl: interrupted; continue with `trustirl resume RUN`.", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # whoever read, as `head` does, has left; what is still unsaid must not complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"trustirl: {where}{error.strerror or error}; mend that and repeat the command.", file=sys.stderr)
        sys.exit(1)


@contextmanager
def _flushed() -> Iterator[None]:
    """Have everything said before the end, where a complaint could no longer be caught."""
    try:
        yield
    finally:
        if sys.stdout is not None:  # it was closed before we began
            sys.stdout.flush()


def _dispatch(arguments: list[str]) -> None:
    command, *rest = arguments or HELP
    if command in HELP or (command in NEED_A_NAME and (not rest or rest[0] in HELP)):
        print(f"{USAGE}\n\n{_algorithms()}")
    elif command == "--version":
        print(f"trustirl {installed('trustirl') or '(run from its sources, not installed)'}")
    elif command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    else:
        _imported(command)(rest)


def _algorithms() -> str:
    """All names, those of other packages too, none of which is imported for it."""
    told = f"ALGO is one of: {', '.join(ALGORITHMS)}"
    return textwrap.fill(told, 96, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _imported(command: str) -> Callable[[list[str]], None]:
    try:
        found: Callable[[list[str]], None] = resolve_name(COMMANDS[command])
    except ImportError as error:
        raise InputError(f"a package is missing or broken ({error}); `trustirl doctor` tells which.") from error
    return found
