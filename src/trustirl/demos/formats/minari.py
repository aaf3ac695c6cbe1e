"""Minari datasets.

They are read from their files: Minari itself makes the environment that a dataset names when it misses a space, and
so runs what the dataset tells it to. Minari is asked only to download and to write.
"""

import contextlib
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from trustirl.core.errors import DemoError
from trustirl.core.observations import flatten, leaves
from trustirl.demos.checks import Fields, flags
from trustirl.demos.formats.arrays import join_episodes
from trustirl.demos.formats.hdf5 import child, contents, dataset, opened
from trustirl.demos.formats.npz import final_observations
from trustirl.demos.formats.outside import existing_file, missing_package, reading

KIND = "a Minari dataset"
DATASET_ID = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")
LARGEST_METADATA = 64 * 2**20
DEEPEST_SPACE = 8
STATE = "trustirl_state"  # the name of simulator states among a dataset's infos
KEPT = ("dataset_id", "minari_version", "algorithm_name", "author", "code_permalink", "description")


def is_minari(path: Path) -> bool:
    """Whether a folder holds a Minari dataset."""
    return any((path / part / "metadata.json").is_file() for part in ("data", "."))


def read_minari(dataset_id: str | os.PathLike[str], env_id: str | None = None) -> Fields:
    """See `Demos.from_minari`."""
    folder = _data_folder(dataset_id)
    metadata = _metadata(folder)
    ours = metadata.get("trustirl")
    ours = ours if isinstance(ours, dict) else {}
    known = ours.get("provenance")
    provenance = known if isinstance(known, dict) else _provenance(metadata)
    if env_id is not None and provenance.get("env_id") != env_id:
        made = provenance.get("env_id") or "an environment that it does not name"
        raise DemoError(f"the Minari dataset {dataset_id} was made in {made}, not in {env_id}; choose another one.")
    file = existing_file(folder / "main_data.hdf5", KIND)
    with opened(file) as root:
        seen: set[int] = set()
        episodes = [_open_episode(root, number, seen) for number in range(_count(metadata, file))]
        arrays = iter(contents(file, [part for episode in episodes for part in leaves(episode)]))
        filled = [_filled(episode, arrays) for episode in episodes]
    fields = {name: [_rows(name, episode) for episode in filled] for name in ("observations", "actions", "rewards")}
    if all(STATE in episode for episode in filled):
        fields["states"] = [episode[STATE] for episode in filled]
    if ours.get("rewards") is False:
        del fields["rewards"]
    ends = [_terminated(number, episode) for number, episode in enumerate(filled)]
    joined, final = join_episodes(fields)
    return joined | {"final_observations": final, "terminated": np.array(ends), "provenance": provenance}


def write_minari(fields: Fields, dataset_id: str, env: str | gym.Env | None, description: dict[str, Any]) -> None:
    """See `Demos.save_minari`."""
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError:
        raise missing_package(KIND, "minari") from None
    _require_id(dataset_id)
    final = final_observations(fields)
    if final is None:
        raise DemoError(
            "Minari keeps consecutive steps and the observation after the last one, which these demos lack; give "
            "final_observations, do not subsample, or save as .npz."
        )
    root = local_root() / dataset_id
    if root.exists():
        raise DemoError(f"the Minari dataset {dataset_id} already exists; choose another name or version.")
    observations, actions, rewards = (fields[name] for name in ("observations", "actions", "rewards"))
    known_rewards = np.zeros(len(actions)) if rewards is None else rewards
    spaces = _spaces(observations, actions, env)
    buffers, start = [], 0
    for end, terminated, last in zip(fields["episode_ends"], fields["terminated"], final, strict=True):
        rows, over = slice(start, end), np.arange(start, end) == end - 1
        buffers.append(
            EpisodeBuffer(
                observations=np.concatenate([observations[rows], last[None]]),
                actions=actions[rows],
                rewards=known_rewards[rows],
                terminations=over & terminated,
                truncations=over & ~terminated,
                infos=None if fields["states"] is None else {STATE: fields["states"][rows]},
            )
        )
        start = end
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about authors and links, which are the caller's to give
            written = minari.create_dataset_from_buffers(
                dataset_id, buffers, env=env, **spaces, jpeg_encoding=False, **description
            )
        told = {"provenance": dict(fields["provenance"]), "rewards": rewards is not None}
        written.storage.update_metadata({"trustirl": told})
    except BaseException as error:
        shutil.rmtree(root, ignore_errors=True)  # a dataset is whole or not there
        if isinstance(error, OSError | ValueError | TypeError):
            raise DemoError(f"Minari could not write {dataset_id}: {str(error).rstrip('.')}.") from None
        raise


def local_root() -> Path:
    """Where Minari keeps its datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def _require_id(dataset_id: str) -> None:
    if not DATASET_ID.fullmatch(dataset_id):
        raise DemoError(
            f"{dataset_id!r} is neither the folder nor the id of a Minari dataset; ids look like D4RL/pen/human-v2."
        )


def _data_folder(dataset_id: str | os.PathLike[str]) -> Path:
    """The folder of a dataset's files; downloads what is neither a folder nor at hand."""
    path = Path(dataset_id)
    if not is_minari(path):
        if path.exists():
            raise DemoError(f"{path} holds no Minari dataset; give the folder in which data/metadata.json lies.")
        _require_id(str(dataset_id))
        path = local_root() / dataset_id
        if not is_minari(path):
            _download(str(dataset_id), path)
    return path / "data" if (path / "data" / "metadata.json").is_file() else path


def _download(dataset_id: str, path: Path) -> None:
    try:
        import minari
    except ImportError:
        raise missing_package(f"{KIND} that is not in {path}", "minari") from None
    try:
        with contextlib.redirect_stdout(sys.stderr):
            minari.download_dataset(dataset_id)
    except Exception as error:  # whatever the network and Minari's servers bring
        reason = " ".join(str(error).split()).rstrip(".")[:200]
        raise DemoError(
            f"the Minari dataset {dataset_id} is not in {path} and could not be downloaded ({reason}); see "
            "`minari list remote` for the names."
        ) from None


def _metadata(folder: Path) -> dict[str, Any]:
    file = existing_file(folder / "metadata.json", KIND)
    if file.stat().st_size > LARGEST_METADATA:
        raise DemoError(f"{file} has {file.stat().st_size} bytes, too many for a description; download it again.")
    with reading(file, KIND):
        metadata = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(metadata, dict):
            raise DemoError(f"{file} does not describe a Minari dataset; download it again.")
        if metadata.get("data_format", "hdf5") != "hdf5":
            raise DemoError(
                f"the Minari dataset in {folder} is stored as {metadata['data_format']!s:.20}, and only hdf5 is "
                "read; write it again with data_format='hdf5'."
            )
        if metadata.get("jpeg_encoding", True):
            for name in ("observation_space", "action_space"):
                if isinstance(metadata.get(name), str) and _has_images(json.loads(metadata[name])):
                    raise DemoError(f"the {name} of {folder} holds compressed images, which are not supported.")
    return metadata


def _has_images(space: Any, depth: int = 0) -> bool:
    """Whether Minari stores a part of the space as JPEG."""
    if not isinstance(space, dict) or depth > DEEPEST_SPACE:
        return False
    parts = space.get("subspaces", ())
    if parts:
        return any(_has_images(part, depth + 1) for part in (parts.values() if isinstance(parts, dict) else parts))
    shape = space.get("shape") or ()
    return space.get("dtype") == "uint8" and len(shape) in (2, 3) and all(size >= 32 for size in shape[:2])


def _provenance(metadata: dict[str, Any]) -> dict[str, Any]:
    """What a dataset says of its origin: data, from which nothing is ever made or imported."""
    told = {name: metadata[name] for name in KEPT if name in metadata}
    try:
        spec = json.loads(metadata.get("env_spec") or "{}")
    except (TypeError, ValueError, RecursionError):
        spec = {}
    if isinstance(spec, dict) and isinstance(spec.get("id"), str):
        told |= {"env_id": spec["id"], "env_kwargs": spec.get("kwargs", {})}
    return told


def _count(metadata: dict[str, Any], file: Path) -> int:
    count = metadata.get("total_episodes")
    if not isinstance(count, int) or not 1 <= count <= file.stat().st_size:
        raise DemoError(f"the Minari dataset of {file} claims {count!s:.20} episodes; download it again.")
    return count


def _open_episode(root: Any, number: int, seen: set[int]) -> dict[str, Any]:
    """An episode's datasets by name, groups as dictionaries and tuples; nothing is read yet."""
    name = f"episode_{number}"
    if name not in root:
        raise DemoError(f"the Minari dataset lacks {name}, which its metadata count; download it again.")
    episode, found = child(root, name), {}
    _require_new(episode, name, seen)
    for part in ("observations", "actions", "rewards", "terminations", "truncations"):
        if part not in episode:
            raise DemoError(f"{name} of the Minari dataset lacks {part}; it holds {', '.join(sorted(episode))}.")
        found[part] = _open_space(episode, part, seen)
    if "infos" in episode and STATE in (infos := child(episode, "infos")):
        found[STATE] = dataset(infos, STATE)
    return found


def _open_space(group: Any, name: str, seen: set[int], depth: int = 0) -> Any:
    import h5py

    found = child(group, name)
    if not isinstance(found, h5py.Group):
        return dataset(group, name)
    if depth > DEEPEST_SPACE:
        raise DemoError(f"demo {name} are nested too deeply; flatten the space.")
    _require_new(found, name, seen)
    keys = list(found)
    if keys and all(re.fullmatch(r"_index_\d{1,6}", key) for key in keys):
        keys.sort(key=lambda key: int(key.removeprefix("_index_")))
        return tuple(_open_space(found, key, seen, depth + 1) for key in keys)
    return {key: _open_space(found, key, seen, depth + 1) for key in keys}


def _require_new(group: Any, name: str, seen: set[int]) -> None:
    """Groups that name one another many times over have more members than any file could hold."""
    import h5py

    place = h5py.h5o.get_info(group.id).addr
    if place in seen:
        raise DemoError(f"demo {name} is a group that the dataset names twice; copy it instead of linking to it.")
    seen.add(place)


def _filled(tree: Any, arrays: Iterator[np.ndarray]) -> Any:
    """The same tree with arrays in place of datasets, which are taken in the order of `leaves`."""
    if isinstance(tree, dict):
        return {name: _filled(tree[name], arrays) for name in sorted(tree)}
    return tuple(_filled(part, arrays) for part in tree) if isinstance(tree, tuple) else next(arrays)


def _rows(name: str, episode: dict[str, Any]) -> np.ndarray:
    """One row per step; group spaces flattened as networks see them."""
    content = episode[name]
    if isinstance(content, np.ndarray):
        return content
    counts = {part.shape[:1] for part in leaves(content)}
    if len(counts) != 1 or counts == {()} or any(part.dtype.kind not in "biuf" for part in leaves(content)):
        raise DemoError(f"the parts of demo {name} must be numbers with one row per step each, got {counts}.")
    return flatten(content, counts.pop()[0])


def _terminated(number: int, episode: dict[str, Any]) -> bool:
    over = [flags(name, episode[name], episode["rewards"]) for name in ("terminations", "truncations")]
    if not len(over[0]) or (over[0] | over[1])[:-1].any():
        raise DemoError(f"episode {number} of the Minari dataset is empty or goes on after its end; leave it out.")
    return bool(over[0][-1])


def _spaces(observations: np.ndarray, actions: np.ndarray, env: str | gym.Env | None) -> dict[str, gym.Space]:
    """The environment's own spaces where they fit the arrays, else what the arrays show."""
    known = gym.make(env) if isinstance(env, str) else env
    spaces = {}
    for name, rows in (("observation_space", observations), ("action_space", actions)):
        own = getattr(known, name, None)
        spaces[name] = own if isinstance(own, Box | Discrete) and own.shape == rows.shape[1:] else _space(rows)
    return spaces


def _space(rows: np.ndarray) -> gym.Space:
    if rows.dtype.kind == "f":
        return Box(-np.inf, np.inf, rows.shape[1:], rows.dtype.type)
    low, high = int(rows.min()), int(rows.max())
    return Discrete(high - low + 1, start=low) if rows.ndim == 1 else Box(low, high, rows.shape[1:], rows.dtype.type)
