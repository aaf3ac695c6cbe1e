"""Rewards for whoever has no JAX: arrays with a reader in plain NumPy, and ONNX models."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trustirl as ti
from tests.rewards.golden import GOLDEN
from trustirl.cli.main import main
from trustirl.rewards import onnx
from trustirl.rewards.export import export
from trustirl.rewards.plain import as_npz, plain, reader

FOLDERS = sorted(folder.name for folder in GOLDEN.iterdir())
READ = """
import importlib.util, json, pathlib, sys
told = {}
for folder in map(pathlib.Path, sys.argv[2:]):
    spec = importlib.util.spec_from_file_location("read_reward", folder / "read_reward.py")
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    given = json.loads((pathlib.Path(sys.argv[1]) / folder.name / "expected.json").read_text())["given"]
    told[folder.name] = reader.Reward(folder / "reward.npz")(**given).tolist()
assert not {"jax", "trustirl"} & set(sys.modules)
print(json.dumps(told))
"""
ELSEWHERE = {"observation": "obs", "next_observation": "next_obs"}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What exported rewards pay in a process that sees NumPy and nothing of ours."""
    out = tmp_path_factory.mktemp("out")
    for name in FOLDERS:
        arrays, kind = plain(ti.load_rewards(GOLDEN / name)[1])
        (out / name).mkdir()
        (out / name / "reward.npz").write_bytes(as_npz(arrays))
        (out / name / "read_reward.py").write_text(reader(kind))
    command = [sys.executable, "-I", "-c", READ, str(GOLDEN), *(str(out / name) for name in FOLDERS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_reader_in_plain_numpy_pays_the_same(name: str, read: dict[str, Any]) -> None:
    paid = np.asarray(json.loads((GOLDEN / name / "expected.json").read_text())["paid"][1])
    np.testing.assert_allclose(read[name], paid, rtol=1e-4, atol=1e-5 * max(1, np.abs(paid).max()))


def test_the_shell_exports_arrays_and_their_reader(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    main(["reward", "export", str(GOLDEN / "network"), "-o", str(out), "--format", "numpy"])
    names = ["reward.safetensors", "reward.json", "reward.npz", "read_reward.py", "reward.md"]
    assert capsys.readouterr().out.split() == [str(out / name) for name in names]
    assert ti.load_reward(out).seed == 3
    assert "# A learned reward of Box-v0" in (out / "reward.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--seed", "7"], "no reward of seed 7 here: choose from 3, 4"), (["--format", "pickled"], "format")],
)
def test_what_cannot_be_exported_is_said(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reward", "export", str(GOLDEN / "network"), "-o", str(tmp_path / "out"), *arguments])
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_without_its_extra_an_onnx_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(onnx, "PACKAGES", ("no_such_package",))
    with pytest.raises(SystemExit) as stop:
        main(["reward", "export", str(GOLDEN / "network"), "-o", str(tmp_path / "out"), "--format", "onnx"])
    assert stop.value.code == 2
    assert "needs no_such_package: run pip install 'trustirl[onnx]'." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_an_onnx_model_pays_the_same(name: str, tmp_path: Path) -> None:
    if any(find_spec(package) is None for package in onnx.PACKAGES):
        pytest.skip("jax2onnx is not installed: run make test-all, which installs the onnx extra")
    import onnxruntime

    export(GOLDEN / name, tmp_path / "out", "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "reward.onnx"))
    (output,) = session.get_outputs()
    assert output.shape == ["B"]
    expected = json.loads((GOLDEN / name / "expected.json").read_text())
    paid = np.asarray(expected["paid"][0])
    kinds: dict[str, Any] = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(bool)": bool}
    given = {
        place.name: np.asarray(expected["given"][ELSEWHERE.get(place.name, place.name)], kinds[place.type])
        for place in session.get_inputs()
    }
    for rows in (1, len(paid)):
        (told,) = session.run(None, {key: values[:rows] for key, values in given.items()})
        assert told.shape == (rows,)
        np.testing.assert_allclose(told, paid[:rows], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_model_that_pays_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if any(find_spec(package) is None for package in onnx.PACKAGES):
        pytest.skip("jax2onnx is not installed: run make test-all, which installs the onnx extra")
    reward = ti.load_reward(GOLDEN / "network")
    monkeypatch.setattr(type(reward), "end", 1000.0)
    with pytest.raises(ti.RewardError, match="does not pay what the reward does"):
        onnx.onnx_model(reward)
