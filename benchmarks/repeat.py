"""Does a run come out the same again? Made twice, and once more from a copy that is taken half-way and resumed.

    python benchmarks/repeat.py runs/again train piro --task HalfCheetah-v4 --demo-episodes 1 --steps 21000 --seeds 2

Tells for the resumed run whether metrics, reward and policy are those of the run that went on, to the bit, and for
the second run whether they are those of the first. On a GPU that one has programs of its own and may differ.
"""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TRUSTIRL = (sys.executable, "-m", "trustirl")
OFTEN = ("--evaluate-every", "1", "--evaluation-episodes", "2", "--checkpoint-every", "1")
LOOK_EVERY = 0.1  # seconds
FAILED = "a run failed, for the reason above."


def begun(out: Path, command: list[str]) -> subprocess.Popen[bytes]:
    """A run that goes on by itself."""
    return subprocess.Popen([*TRUSTIRL, *command, *OFTEN, "--out", str(out)], stdout=subprocess.DEVNULL)


def copied(process: subprocess.Popen[bytes], out: Path, copy: Path) -> None:
    """Copy a run as it is after its second evaluation, and let it go on."""
    while process.poll() is None and len({row["iteration"] for row in evaluations(out)}) < 2:
        time.sleep(LOOK_EVERY)
    if process.poll():
        raise SystemExit(FAILED)
    process.send_signal(signal.SIGSTOP)
    shutil.copytree(out, copy)
    process.send_signal(signal.SIGCONT)
    if (copy / "summary.json").exists():
        raise SystemExit("the run was over before it could be copied: give it more --steps.")


def evaluations(out: Path) -> list[dict[str, Any]]:
    """What was measured so far, but for the time that it took."""
    file = out / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]


def learned(out: Path) -> dict[str, str]:
    """Reward and policy, by their bytes."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.glob("*.safetensors"))}


def compared(first: Path, other: Path) -> tuple[bool, str]:
    """Whether two runs are the same, in words."""
    pairs = list(zip(evaluations(first), evaluations(other), strict=True))
    odd = next((one for one, another in pairs if one != another), None)
    agree = f"{len(pairs)} lines of metrics agree"
    metrics = agree if odd is None else f"metrics differ from iteration {odd['iteration']} on"
    same = learned(first) == learned(other)
    return odd is None and same, f"{other.name}: {metrics}, reward and policy {'agree' if same else 'differ'}."


def main() -> None:
    """Make the runs and compare them."""
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    first, second, resumed = (folder / name for name in ("first", "second", "resumed"))
    runs = [begun(first, command), begun(second, command)]
    copied(runs[0], first, resumed)
    runs.append(subprocess.Popen([*TRUSTIRL, "resume", str(resumed)], stdout=subprocess.DEVNULL))
    if {run.wait() for run in runs} != {0}:
        raise SystemExit(FAILED)
    same, words = compared(first, resumed)
    print(words, compared(first, second)[1], sep="\n")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
