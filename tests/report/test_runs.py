"""A run that is incomplete or malformed is refused with the name of the file at fault."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from synthetic_run import GRID, write_json, write_run

from trustirl.core.errors import InputError
from trustirl.report import read_run

Damage = Callable[[Path], object]


def without(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def piped(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


def cut(name: str) -> Damage:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2 + 3])

    return damage


def replaced(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def changed(name: str, **values: Any) -> Damage:
    return lambda folder: write_json(folder / name, json.loads((folder / name).read_text()) | values)


def maps(**values: Any) -> Damage:
    def damage(folder: Path) -> None:
        arrays = load_file(folder / "maps.safetensors") | values
        save_file({key: value for key, value in arrays.items() if value is not None}, folder / "maps.safetensors")

    return damage


def a_metric(key: str, value: Any) -> Damage:
    def damage(folder: Path) -> None:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        lines[6] = json.dumps(json.loads(lines[6]) | {key: value})
        (folder / "metrics.jsonl").write_text("\n".join(lines))

    return damage


ZEROS, ONES = np.zeros(49, np.float32), np.ones(49, np.float32)
MALFORMED: dict[str, tuple[Damage, str]] = {
    "no config": (without("config.json"), "no config.json"),
    "no manifest": (without("manifest.json"), "manifest.json"),
    "no metrics": (without("metrics.jsonl"), "metrics.jsonl"),
    "no summary": (without("summary.json"), "summary.json"),
    "no maps": (without("maps.safetensors"), "maps.safetensors"),
    "config cut": (cut("config.json"), "config.json is not valid JSON or was cut short"),
    "metrics cut": (cut("metrics.jsonl"), r"metrics.jsonl(, line \d+ is not valid| must hold the same)"),
    "maps cut": (cut("maps.safetensors"), "maps.safetensors is damaged"),
    "certificate cut": (cut("certificate.json"), "certificate.json"),
    "comparison cut": (cut("comparison.json"), "comparison.json"),
    "config is a list": (replaced("config.json", b"[]"), "config.json must hold a JSON object"),
    "config is not UTF-8": (replaced("config.json", b'{"task": "\xff"}'), "config.json is not a text in UTF-8"),
    "config too deep": (replaced("config.json", b"[" * 100_000), "config.json is not valid"),
    "metrics is a pipe": (piped("metrics.jsonl"), "metrics.jsonl is not a regular file"),
    "maps are a pipe": (piped("maps.safetensors"), "maps.safetensors is missing"),
    "metrics empty": (replaced("metrics.jsonl", b""), "metrics.jsonl must hold the same iterations"),
    "task is a number": (changed("config.json", task=3), "config.json: 'task'"),
    "seeds twice": (changed("manifest.json", seeds=[0, 0, 1]), "manifest.json: 'seeds'"),
    "seeds too many": (changed("manifest.json", seeds=[0, 1, 2, 3]), "recovered_reward"),
    "metric is NaN": (a_metric("ell", float("nan")), "metrics.jsonl, line 7: 'ell'"),
    "metric is null": (a_metric("return_mean", None), "metrics.jsonl, line 7: 'return_mean'"),
    "metric is text": (a_metric("drift", "1"), "metrics.jsonl, line 7: 'drift'"),
    "metric is true": (a_metric("mu", True), "metrics.jsonl, line 7: 'mu'"),
    "metric too large": (a_metric("ell", 10**400), "metrics.jsonl, line 7: 'ell'"),
    "unknown seed": (a_metric("seed", 9), "metrics.jsonl, line 7: 'seed'"),
    "iteration twice": (a_metric("iteration", 1), "metrics.jsonl, line 7"),
    "returns too few": (changed("summary.json", returns=[1.0]), "summary.json: 'returns'"),
    "no expert": (changed("summary.json", expert_return=None), "summary.json: 'expert_return'"),
    "picture unknown": (changed("summary.json", picture={"kind": "cube"}), "'picture': 'kind'"),
    "picture too small": (changed("summary.json", picture=GRID | {"shape": [7, 6]}), "'picture': 'shape'"),
    "target outside": (changed("summary.json", picture=GRID | {"target": 49}), "'picture': 'target'"),
    "map missing": (maps(expert_visits=None), "maps.safetensors: 'expert_visits'"),
    "map of wrong shape": (maps(recovered_reward=ONES), "maps.safetensors: 'recovered_reward'"),
    "map not finite": (maps(true_reward=ONES * np.inf), "maps.safetensors: 'true_reward'"),
    "visits negative": (maps(expert_visits=-ONES), "maps.safetensors: 'expert_visits'"),
    "visits all zero": (maps(expert_visits=ZEROS), "maps.safetensors: 'expert_visits'"),
    "curve is no object": (changed("comparison.json", curves=[1]), "comparison.json, 'curves': '0'"),
    "curve without label": (changed("comparison.json", curves=[{"ell": [1]}]), "'label'"),
    "steps too few": (changed("certificate.json", step=[1.0]), "certificate.json: 'step'"),
}


def test_halves_of_characters_become_question_marks(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", iterations=1)
    changed("config.json", task="a\ud800b😀", demos=["\udc00"])(folder)
    run = read_run(folder)
    assert run.task == "a?b😀"
    assert run.config["demos"] == ["?"]


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_run_is_refused_by_name(tmp_path: Path, name: str) -> None:
    damage, message = MALFORMED[name]
    folder = write_run(tmp_path / "run", iterations=10)
    read_run(folder)
    damage(folder)
    with pytest.raises(InputError, match=message):
        read_run(folder)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"holds no config\.json; give the folder"):
            read_run(path)
