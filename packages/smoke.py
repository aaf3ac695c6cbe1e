"""Tries an installed trustirl as a stranger would: the README's lines, at a small size.

python packages/smoke.py README.md, in an empty folder, with the Python of the environment.
"""

import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import gymnasium as gym
import numpy as np

import trustirl as ti

# What the README says, and what is said here instead, so that minutes do.
SMALL = {
    "seeds=5, steps=400_000": "preset='smoke', steps=1_400, steps_per_iteration=200, warmup=1_000",
    "--seeds 5 --steps 400000": "--preset smoke --steps 1400 --steps-per-iteration 200 --warmup 1000 --overwrite",
    "--table birds.csv": "--table birds.csv --steps 20",
    "runs/hopper-ml-irl": "runs/clone",
}


def look(home: Path) -> None:
    """The package lies in the environment and is whole."""
    assert home.is_relative_to(Path(sys.prefix).resolve()), f"{home} is not the installed package"
    assert (home / "py.typed").exists()
    assert ti.__version__ == version("trustirl") == version("trustirl-demos")
    assert "trustirl" in {script.name for script in entry_points(group="console_scripts")}
    for card in sorted((home / "demos" / "packaged").glob("*.json")):
        assert ti.Demos.packaged(card.stem).content_hash() == json.loads(card.read_text())["demo_hash"], card.stem
    for name in ti.ALGORITHMS:
        ti.ALGORITHMS.find(name)


def prepare() -> dict[str, object]:
    """What the README takes for granted: demonstrations of one's own, a table, an observation."""
    demos = ti.Demos.packaged("Hopper-v4").take(1, "first")
    demos.save("demos.npz")
    rows = [f"bird {i % 4},{'lake' if i % 3 else 'nest'},{'feeds' if i % 2 else 'rests'}" for i in range(80)]
    Path("birds.csv").write_text("\n".join(["bird,place,deed", *rows]) + "\n")
    ti.train("bc", "Hopper-v4", demos, steps=500, evaluation_episodes=2, out="runs/clone")
    arrays = {name: np.array(getattr(demos, name)) for name in ("observations", "actions", "episode_ends")}
    return arrays | {"obs": gym.make("Hopper-v4").reset(seed=0)[0]}


def smaller(code: str) -> str:
    """The same lines, asked for less."""
    for said, instead in SMALL.items():
        code = code.replace(said, instead)
    return code


def main(readme: str) -> None:
    """Everything in turn; what fails raises."""
    look(Path(ti.__file__).resolve().parent)
    names = prepare()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    missing = [said for said in SMALL if said not in readme]
    assert not missing, f"the README no longer says {missing}; mend SMALL"
    for kind, block in blocks:
        if kind == "python":
            exec(compile(smaller(block), "README.md", "exec"), names)
        for line in block.splitlines():
            if line.startswith("trustirl "):
                if "resume" in line:  # as after a crash: what says that the run is finished is not there
                    Path("runs/hopper/summary.json").unlink()
                print(f"$ {smaller(line)}", flush=True)
                _, *arguments = shlex.split(smaller(line), comments=True)
                subprocess.run([sys.executable, "-m", "trustirl", *arguments], check=True)
    assert Path("page.html").stat().st_size > 10_000


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text(encoding="utf-8"))
