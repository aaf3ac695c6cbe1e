"""An MDP of one's own, as arrays in a file; its true reward need not be known."""

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from trustirl.core.errors import InputError, unknown_name
from trustirl.core.files import file_hash, open_file
from trustirl.core.mdp import check_reward_table, make_mdp
from trustirl.tasks.exact import MOST_NUMBERS, ExactTask, check_size

NEEDED, OPTIONAL = ("successors", "probabilities", "initial"), ("true_reward", "features")
MOST_BYTES = 4 * 8 * MOST_NUMBERS  # of a file, and of what it says that it holds
# What NumPy says of damaged files.
DAMAGE = (OSError, EOFError, ValueError, RuntimeError, TypeError, KeyError, MemoryError, struct.error, zlib.error)


def mdp(file: str = "", horizon: int = 50, discount: float = 0.9, temperature: float = 1.0) -> ExactTask:
    """The MDP that `numpy.savez` wrote to `file`.

    It holds `successors` and `probabilities` [states, actions, successors] and `initial` [states], and may hold
    `true_reward` [states] or [states, actions] and `features` [states, features] (by default one for each state).
    """
    arrays = _read(file)
    known = make_mdp(arrays["successors"], arrays["probabilities"], arrays["initial"], discount, temperature)
    truth, features = arrays.get("true_reward"), arrays.get("features")
    if truth is not None:
        truth = np.repeat(truth[:, None], known.actions, axis=1) if truth.ndim == 1 else truth
        check_reward_table(truth, known)
    if features is None:
        check_size("the MDP", known.states, known.states)
        features = np.eye(known.states)
    if features.ndim != 2 or len(features) != known.states or not features.size or not np.isfinite(features).all():
        raise InputError(
            f"{file}: features must be finite numbers, a row for each of {known.states} states, got "
            f"{features.dtype} {features.shape}."
        )
    return ExactTask(
        "mdp",
        known,
        true_reward=truth,
        features=features.astype(float),
        horizon=horizon,
        state_only=truth is None or bool((truth == truth[:, :1]).all()),
        file_hash=file_hash(Path(file)),
    )


def _read(name: str) -> dict[str, np.ndarray]:
    """Arrays of numbers by name; how large they are is known before they are read."""
    if not name:
        raise InputError("the task mdp is made from a file: give it in task_args, as file=FILE.npz.")
    if not Path(name).exists():
        raise InputError(f"the file {name} of the task does not exist; numpy.savez writes such a file.")
    with open_file(Path(name), MOST_BYTES) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                claimed = sum(entry.file_size for entry in archive.infolist())
            if claimed > MOST_BYTES:
                raise ValueError(f"it claims to hold {claimed:,} bytes")
            stream.seek(0)
            with np.load(stream) as stored:
                names = list(stored)
                arrays = {key: stored[key] for key in names if key in (*NEEDED, *OPTIONAL)}
        except (*DAMAGE, zipfile.BadZipFile) as error:
            why = " ".join(str(error).split()).rstrip(".")[:200] or type(error).__name__
            raise InputError(
                f"{name} is not what numpy.savez writes of plain numbers ({why}); write it again."
            ) from None
    for key in names:
        if key not in arrays:
            raise unknown_name(f"array in {name},", key, (*NEEDED, *OPTIONAL))
    for key in NEEDED:
        if key not in arrays:
            raise InputError(f"{name} lacks the array {key!r}; it must hold {', '.join(NEEDED)}.")
    for key, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise InputError(f"{name}: {key} must be numbers, got {array.dtype}.")
    return arrays
