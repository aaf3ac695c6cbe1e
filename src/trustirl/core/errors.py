"""Errors a user can act on. Each message is one sentence: what is wrong and how to mend it."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from trustirl.core.words import printable


class TrustIRLError(Exception):
    """Base of every error we raise on purpose; the command line prints it without a traceback."""

    exit_code = 1

    def __init__(self, sentence: str | Exception) -> None:
        """Sentences quote names and texts out of files; Gymnasium raises those of its workers anew."""
        super().__init__(printable(str(sentence)))


class InputError(TrustIRLError, ValueError):
    """Bad usage or bad input; nothing has been computed or overwritten yet."""

    exit_code = 2


class DemoError(InputError):
    """Demonstrations that cannot be used as they are; the sentence names the field, the episode and the cure."""


class RewardError(InputError):
    """A reward that cannot be read, or not be used like this."""


class NumericalError(TrustIRLError, ArithmeticError):
    """A quantity stopped being finite; what was good before it is still on disk."""

    exit_code = 3


class Interrupted(TrustIRLError):
    """Someone asked to stop; the state was saved and can be resumed."""


@contextmanager
def told_as(kind: type[InputError]) -> Iterator[None]:
    """Whatever is refused within is an error of this kind; the sentence stays."""
    try:
        yield
    except kind:
        raise
    except InputError as error:
        raise kind(error) from None


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name nobody knows, with the near ones first."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"choose from {', '.join(known)}."
    return InputError(f"unknown {kind} {name!r}: {hint}")


# What other libraries call a setting, and what it is called here, wherever one of these is known.
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "gamma": ("discount",),
    "total_timesteps": ("steps",),
    "timesteps": ("steps",),
    "max_steps": ("steps",),
    "epochs": ("steps",),
    "n_epochs": ("steps",),
    "lr": ("learning_rate", "reward_step", "fit_step"),
    "learning_rate": ("reward_step", "fit_step"),
    "seed": ("first_seed", "seeds"),
    "random_state": ("first_seed", "seeds"),
    "n_seeds": ("seeds",),
    "num_seeds": ("seeds",),
    "n_envs": ("envs",),
    "num_envs": ("envs",),
    "batch_size": ("batch", "fit_batch"),
    "buffer_size": ("replay",),
    "learning_starts": ("warmup",),
    "ent_coef": ("temperature",),
    "alpha": ("temperature",),
    "hidden_size": ("width",),
    "env": ("task",),
    "env_id": ("task",),
    "demonstrations": ("demos",),
    "log_dir": ("out",),
    "output_dir": ("out",),
}


def unknown_setting(what: str, name: str, known: Iterable[str], of_task: Iterable[str] = ()) -> InputError:
    """The error for a setting nobody knows; names of other libraries, and arguments of the task, are recognised."""
    known, of_task = set(known), set(of_task)
    if name == "device":
        return InputError("the device is JAX's: set the environment variable JAX_PLATFORMS to cpu or cuda instead.")
    for ours in (name, *ELSEWHERE.get(name, ())):
        if ours in known:
            return InputError(f"unknown setting of {what}, {name!r}: it is called {ours!r} here.")
        if ours in of_task:
            called = "" if ours == name else f"called {ours!r} here and is "
            return InputError(f"{name!r} is {called}an argument of the task: give it in task_args, as {ours}=VALUE.")
    return unknown_name(f"setting of {what},", name, known)
