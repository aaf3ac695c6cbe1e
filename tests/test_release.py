"""What is released: versions that agree, workflows that can be read, and wheels that work without the source tree."""

import os
import re
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {file.stem: yaml.safe_load(file.read_text()) for file in (ROOT / ".github" / "workflows").glob("*.yml")}


def test_the_version_is_the_same_wherever_it_is_said() -> None:
    version = PROJECT["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
    for page in ("README.md", "docs/get-started.md"):
        assert set(re.findall(r"trustirl-([\d.]+)-py3", (ROOT / page).read_text())) == {version}


def test_the_same_versions_of_python_are_promised_tried_and_told() -> None:
    promised = [word.rsplit(" ", 1)[1] for word in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", word)]
    for job in ("others", "wheel"):
        assert WORKFLOWS["tests"]["jobs"][job]["strategy"]["matrix"]["python"] == promised
    tried = re.search(r"^VERSIONS = (.*)$", (ROOT / "packages" / "check.py").read_text(), re.MULTILINE)
    assert tried is not None
    assert re.findall(r"[\d.]+", tried.group(1)) == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_workflows_use_actions_of_one_exact_version_and_rights_that_are_said() -> None:
    assert WORKFLOWS.keys() == {"tests", "docs", "publish"}
    exact: dict[str, str] = {}
    for name, workflow in WORKFLOWS.items():
        assert True in workflow, f"{name} says when it runs"  # YAML 1.1 reads the key `on` as true
        assert workflow["permissions"]["contents"] == "read"
        for step in steps(workflow):
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                action, _, version = step["uses"].partition("@")
                assert re.fullmatch(r"v\d+\.\d+\.\d+", version), step
                assert exact.setdefault(action, version) == version


def test_workflows_run_what_there_is() -> None:
    """Targets of make and files that are named."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in (step["run"] for workflow in WORKFLOWS.values() for step in steps(workflow) if "run" in step):
        assert set(re.findall(r"\bmake ([\w-]+)", command)) <= set(targets)
        for file in re.findall(r"(?:packages|\.ci)/[\w./-]+|constraints\.txt|pyproject\.toml", command):
            assert (ROOT / file).exists(), command


@pytest.mark.slow
def test_wheels_and_source_work_where_there_is_no_source_tree() -> None:
    if find_spec("twine") is None:
        pytest.skip("nothing is built: run make test-all, which installs build and twine")
    command = [sys.executable, "packages/check.py", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "installed and tried" in done.stdout


@pytest.mark.slow
def test_the_two_commands_of_the_readme_give_the_page_of_the_demo(tmp_path: Path) -> None:
    """Within three minutes on a machine at rest; where other work goes on beside it, six are allowed."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone: run it where git knows the files")
    begin, clone = time.monotonic(), tmp_path / "trustirl"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    told = subprocess.run(["make", "demo"], cwd=clone, env=clean, check=True, capture_output=True, text=True).stdout
    assert "page: runs/demo/report.html" in told
    assert (clone / "runs" / "demo" / "report.html").stat().st_size > 10_000
    assert time.monotonic() - begin < 360
