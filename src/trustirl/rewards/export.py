"""A learned reward as a folder of its own, which people can share."""

from pathlib import Path

from trustirl.core.errors import InputError
from trustirl.core.files import read_bytes, write_bytes
from trustirl.rewards.saved import load_rewards

FILES = ("reward.safetensors", "reward.json")
MOST = 2**32  # bytes


def export(run: Path, out: Path, overwrite: bool = False) -> list[Path]:
    """Write the rewards of a run to a folder that `load_reward` opens; returns its files."""
    load_rewards(run)  # or say what is wrong with them
    if any((out / name).exists() for name in FILES) and not (overwrite and out.resolve() != run.resolve()):
        raise InputError(f"{out} already holds a reward; choose another --out, or add --overwrite.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            write_bytes(out / name, read_bytes(run / name, MOST))
    except OSError as error:
        raise InputError(f"{out} cannot be written ({error.strerror or error}); choose another folder.") from None
    return [out / name for name in FILES]
