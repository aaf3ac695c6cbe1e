"""Writes a made-up run folder, so that the report can be tested without training anything."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from trustirl.report import write_comparison, write_report

GRID = {"kind": "grid", "shape": [7, 7], "target": 24}
FIGURES = ["rewards", "visits", "likelihood", "trust", "returns", "certificate"]
CONTROL_FIGURES = ["returns", "gap", "trust", "solver"]
HOSTILE = '<meta http-equiv="refresh" content="0;url=http://elsewhere.invalid/">\'"&'
LABELS = ("TRRO quadratic", "TRRO curvature", "TRRO paper (C from Theorem 1)", "PIRO", "ML-IRL")


def write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values), encoding="utf-8")


def write_run(
    folder: Path,
    *,
    task: str = "gridworld",
    seeds: int = 3,
    iterations: int = 200,
    picture: dict[str, Any] = GRID,
    states: int = 49,
    trust_region: bool = True,
    compared: bool = True,
) -> Path:
    """Write all files of a run into `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    task_args = {"size": 7, "slip": 0.1}
    config = {
        "algorithm": "piro",
        "task": task,
        "task_args": task_args,
        "seeds": seeds,
        "iterations": iterations,
    }
    write_json(folder / "config.json", config | {"demos": "packaged", "demo_episodes": None})
    write_json(
        folder / "manifest.json",
        {
            "versions": {"trustirl": "0.1.0", "jax": "0.10.0"},
            "device": "cpu",
            "seeds": list(range(seeds)),
            "command": f"trustirl train piro --task {task}",
            "created": "2025-11-15T14:00:00Z",
        },
    )
    ell = _write_metrics(folder / "metrics.jsonl", seeds, iterations, trust_region)
    correlations = _write_maps(folder / "maps.safetensors", seeds, states, picture, compared)
    write_json(
        folder / "summary.json",
        {
            "returns": [-9.05 - 0.01 * seed for seed in range(seeds)],
            "expert_return": -9.01,
            "env_steps": {"train": 0, "reward": 0, "evaluation": 0},
            "wall_seconds": 12.4,
            "updates_per_second": 48.2,
            "reward_correlation": correlations,
            "ell": ell,
            "ell_expert": -1.2,
            "picture": picture,
        },
    )
    if compared:
        _write_comparison(folder / "comparison.json", iterations)
        _write_certificate(folder / "certificate.json")
    return folder


def write_control_run(
    folder: Path,
    *,
    algorithm: str = "piro",
    task: str = "Hopper-v4",
    seeds: int = 5,
    first_seed: int = 0,
    skill: float = 1.0,
    settings: dict[str, Any] | None = None,
    evaluations: int = 40,
    expert_return: float | None = 3234.5,
    trust_region: bool = True,
    finished: bool = True,
    offline: bool = False,
) -> Path:
    """Write all files of a run on a Gymnasium task into `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    steps = 10_000 * evaluations
    config = {"algorithm": algorithm, "task": task, "seeds": seeds, "steps": steps, "demos": "data/hopper.npz"}
    config |= {"demo_episodes": 1}
    group = "offline" if offline else "plan"
    write_json(folder / "config.json", config | {group: {"steps_per_iteration": 5000}, "solver": settings or {}})
    write_json(
        folder / "manifest.json",
        {
            "versions": {"trustirl": "0.1.0", "jax": "0.10.0", "gymnasium": "1.2.2"},
            "task_versions": {"gymnasium": "1.2.2", "mujoco": "3.3.7"},
            "clipped_actions": 12,
            "demo_hash": "3eebbeac",
            "device": "NVIDIA H200",
            "seeds": list(range(first_seed, first_seed + seeds)),
            "command": f"trustirl train {algorithm} --task {task} --demos data/hopper.npz",
        },
    )
    noise = np.random.default_rng(3 + first_seed)
    rows = []
    for i in range(evaluations):
        for seed in range(first_seed, first_seed + seeds):
            progress = 1 - np.exp(-6 * i / evaluations)
            fall = 1400 * (seed == 1 and i in (evaluations // 2, evaluations // 2 + 1))
            row = {
                "seed": seed,
                "iteration": 2 * i,
                "env_steps": 0 if offline else 10_000 * i + 1000,
                "return_mean": float(18 + skill * (2900 + 120 * seed) * progress + 90 * noise.normal() - fall),
                "return_std": float(150 * abs(noise.normal())),
                "gap": float(0.4 * np.exp(-i / 9) + 0.02 * noise.normal()),
                "drift": float(0.05 * np.exp(0.2 * noise.normal())) if i and trust_region else None,
                "mu": float(0.075 * 2 ** min(i, 12)) if i and trust_region else None,
                "ell": None,
                "seconds": 12.5 * (i + 1),
                "q": float(120 * progress + noise.normal()) if i else None,
                "entropy": float(-3 * progress + 0.1 * noise.normal()) if i else None,
                "critic_loss": float(4 * np.exp(0.5 * noise.normal())) if i else None,
                "actor_loss": -1.0,
            }
            rows.append(row)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    if finished:
        write_json(
            folder / "summary.json",
            {
                "returns": [row["return_mean"] for row in rows[-seeds:]],
                "expert_return": expert_return,
                "demo_return": 3230.25,
                "random_return": 18.25,
                "env_steps": {"train": seeds * steps, "reward": 0, "evaluation": 123_456},
                "wall_seconds": 12_000.0,
                "updates_per_second": 812.0,
                "practice_seconds": {"practice": 10_000.0, "stepping": 9000.0, "updating": 4000.0},
            },
        )
    return folder


def write_bench(folder: Path, labels: dict[str, str] | None = None) -> Path:
    """Write a bench of two algorithms on two tasks, five seeds each, split over two folders."""
    jobs = []
    for algorithm, skill in (("piro", 1.0), ("ml-irl", 0.97)):
        for task in ("Hopper-v4", "Walker2d-v4"):
            runs = []
            for first, seeds in ((0, 3), (3, 2)):
                runs.append(f"runs/{algorithm}-{task}-{first}")
                made = {"algorithm": algorithm, "task": task, "seeds": seeds, "first_seed": first}
                write_control_run(folder / runs[-1], **made, skill=skill, trust_region=algorithm == "piro")
            job = {"name": f"{algorithm}-{task}", "algorithm": algorithm, "task": task, "runs": runs}
            label = (labels or {}).get(algorithm, algorithm)
            jobs.append(job | {"label": label, "command": f"trustirl train {algorithm} --task {task} --seeds 5"})
    write_json(folder / "bench.json", {"format": 1, "suite": "smoke", "jobs": jobs})
    return folder


def hostile_pages(folder: Path) -> dict[str, Path]:
    """A page of every kind, where whatever a file may say tries to leave for another site."""
    exact = write_run(folder / "exact", task=HOSTILE, seeds=2, iterations=5)
    compared = json.loads((exact / "comparison.json").read_text())
    compared["curves"][0]["label"] = HOSTILE
    write_json(exact / "comparison.json", compared)
    control = write_control_run(folder / "control", algorithm=HOSTILE, evaluations=3)
    manifest = json.loads((control / "manifest.json").read_text())
    told = {"device": HOSTILE, "command": HOSTILE, "clipped_actions": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    write_json(control / "manifest.json", manifest | told)
    # A method that steps no environment beside one that does: its end is drawn as a level.
    for place, name in enumerate(("one", "two")):
        made = {"algorithm": HOSTILE, "settings": {HOSTILE: HOSTILE + str(place)}, "evaluations": 3}
        write_control_run(folder / name, **made, offline=place == 1)
    bench = write_bench(folder / "bench", labels={"piro": HOSTILE})
    described = json.loads((bench / "bench.json").read_text()) | {"suite": HOSTILE}
    described["jobs"][3] |= {"name": HOSTILE, "command": HOSTILE}
    described["jobs"].append({"name": "gone" + HOSTILE, "label": HOSTILE, "runs": ["runs/gone"]})
    write_json(bench / "bench.json", described)
    return {
        "run in the exact world": write_report(exact),
        "run on a simulator": write_report(control),
        "comparison": write_comparison([folder / "one", folder / "two", exact], folder / "comparison.html"),
        "bench": write_comparison([bench], folder / "bench.html"),
    }


def _write_metrics(path: Path, seeds: int, iterations: int, trust_region: bool) -> list[float]:
    noise = np.random.default_rng(1)
    last, lines = [], []
    for seed in range(seeds):
        for i in range(1, iterations + 1):
            fade = float(np.exp(-i / 30) * (1 + 0.1 * noise.normal()))
            row = {
                "seed": seed,
                "iteration": i,
                "env_steps": 0,
                "return_mean": -9.05 - 14 * fade,
                "return_std": 0.0,
            }
            row |= {"gap": 0.3 * fade, "ell": -1.21 - 1.8 * fade, "seconds": 0.06 * i}
            row |= {"drift": 0.2 * fade, "mu": 1 + 3 * (1 - fade)} if trust_region else {"drift": None, "mu": None}
            lines.append(json.dumps(row))
        last.append(row["ell"])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return last


def _write_maps(path: Path, seeds: int, states: int, picture: dict[str, Any], compared: bool) -> list[float]:
    noise = np.random.default_rng(2)
    columns = picture.get("shape", [1, states])[1]
    rows, cols = np.divmod(np.arange(states), columns)
    row, col = divmod(picture.get("target", states // 2), columns)
    distance = np.hypot(rows - row, cols - col)
    true = -distance / distance.max() + 0.5 * np.exp(-(distance**2))
    visits = np.exp(-distance)
    arrays = {
        "true_reward": true,
        "recovered_reward": 3 * true + 40 + 0.15 * noise.normal(size=(seeds, states)),
        "expert_visits": visits / visits.sum(),
        "learner_visits": visits * np.exp(0.15 * noise.normal(size=(seeds, states))),
    }
    if compared:
        arrays["sampled_recovered_reward"] = 2 * true - 7 + 0.4 * noise.normal(size=states)
    save_file({key: value.astype(np.float32) for key, value in arrays.items()}, path)
    return [float(np.corrcoef(true, seed)[0, 1]) for seed in arrays["recovered_reward"]]


def _write_comparison(path: Path, iterations: int) -> None:
    i = np.arange(iterations)
    curves = [
        {"label": label, "ell": (-1.21 - 1.8 * np.exp(-i / pace)).tolist()}
        for label, pace in zip(LABELS, (24, 18, 4000, 30, 12), strict=True)
    ]
    curves[-1]["ell"] = (-1.3 - 1.7 * np.exp(-i / 12) + 0.06 * np.sin(i / 3)).tolist()
    write_json(path, {"curves": curves, "sampled": {"episodes": 50, "reward_correlation": 0.97, "return": -9.1}})


def _write_certificate(path: Path) -> None:
    gap, constant = 13.8, 40_000.0
    largest = gap**2 / (8 * constant)
    delta = np.geomspace(1e-7, 1e-2, 80)
    root = np.sqrt(2 * constant * delta)
    step = np.where(delta < largest, (gap - root) / constant, 0)
    gain = np.where(delta < largest, (gap - root) ** 2 / (2 * constant) - delta, 0)
    values = {"delta": delta.tolist(), "step": step.tolist(), "gain": gain.tolist()}
    write_json(path, values | {"largest_delta": largest, "constant": constant, "occupancy_gap": gap})
