"""A learned reward as a folder of its own, which people can share, and as files for whoever has no JAX."""

from pathlib import Path
from typing import Literal, get_args

from trustirl.core.errors import RewardError, told_as, unknown_name
from trustirl.core.files import read_bytes, write_bytes
from trustirl.rewards.onnx import onnx_model
from trustirl.rewards.plain import as_npz, plain, reader
from trustirl.rewards.reward import LearnedReward
from trustirl.rewards.saved import load_rewards, write_model_card

Format = Literal["safetensors", "numpy", "onnx"]
OURS = ("reward.safetensors", "reward.json")
MOST = 2**32  # bytes


@told_as(RewardError)
def export(
    run: Path, out: Path, format: str = "safetensors", seed: int | None = None, overwrite: bool = False
) -> list[Path]:
    """Write the rewards of a run to a folder that `load_reward` opens; returns its files.

    `numpy` adds reward.npz with read_reward.py, which needs NumPy alone, and `onnx` reward.onnx: of the seed's
    reward, the first one's if none is named.
    """
    if format not in get_args(Format):
        raise unknown_name("format", format, get_args(Format))
    rewards = load_rewards(run)
    files = {name: read_bytes(run / name, MOST) for name in OURS} | _files(_of_seed(list(rewards), seed), format)
    if any((out / name).exists() for name in files) and not (overwrite and out.resolve() != run.resolve()):
        raise RewardError(f"{out} already holds a reward; choose another --out, or add --overwrite.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_bytes(out / name, content)
        write_model_card(out)
    except OSError as error:
        raise RewardError(f"{out} cannot be written ({error.strerror or error}); choose another folder.") from None
    return [out / name for name in (*files, "reward.md")]


def _of_seed(rewards: list[LearnedReward], seed: int | None) -> LearnedReward:
    if seed is None:
        return rewards[0]
    seeds = [reward.seed for reward in rewards]
    if seed not in seeds:
        raise RewardError(f"there is no reward of seed {seed} here: choose from {', '.join(map(str, seeds))}.")
    return rewards[seeds.index(seed)]


def _files(reward: LearnedReward, format: str) -> dict[str, bytes]:
    if format == "onnx":
        return {"reward.onnx": onnx_model(reward)}
    if format == "numpy":
        arrays, name = plain(reward)
        return {"reward.npz": as_npz(arrays), "read_reward.py": reader(name).encode()}
    return {}
