"""Opens golden rewards where neither Gymnasium nor a simulator can be imported.

python -m tests.rewards.opened FOLDER... prints what each pays, as JSON.
"""

import json
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

FORBIDDEN = {"gymnasium", "mujoco", "gym", "torch", "matplotlib", "optax"}


class Refuses(MetaPathFinder):
    """As if these were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in FORBIDDEN:
            raise ModuleNotFoundError(f"{name} is not to be needed here", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, Refuses())
    import trustirl as ti

    told = {}
    for folder in map(Path, sys.argv[1:]):
        given = json.loads((folder / "expected.json").read_text())["given"]
        told[folder.name] = ti.load_rewards(folder).each(**given).tolist()
    assert not FORBIDDEN & {name.partition(".")[0] for name in sys.modules}
    print(json.dumps(told))
