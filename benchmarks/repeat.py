"""Does a run come out the same again? Made twice, and once stopped and resumed, all three at the same time.

    python benchmarks/repeat.py runs/again train piro --task HalfCheetah-v4 --demo-episodes 1 --steps 21000 --seeds 2

Tells for the second and the resumed run whether metrics, reward and policy are those of the first, to the bit.
"""

import hashlib
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TRUSTIRL = (sys.executable, "-m", "trustirl")
OFTEN = ("--evaluate-every", "1", "--evaluation-episodes", "2", "--checkpoint-every", "1")
LOOK_EVERY = 0.1  # seconds


def whole(out: Path, command: list[str]) -> None:
    """A run from beginning to end."""
    subprocess.run([*TRUSTIRL, *command, *OFTEN, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)


def resumed(out: Path, command: list[str]) -> None:
    """The same, stopped after its second evaluation and gone on with in another process."""
    process = subprocess.Popen([*TRUSTIRL, *command, *OFTEN, "--out", str(out)], stdout=subprocess.DEVNULL)
    while process.poll() is None and len({row["iteration"] for row in evaluations(out)}) < 2:
        time.sleep(LOOK_EVERY)
    process.send_signal(signal.SIGTERM)
    process.wait()
    if (out / "summary.json").exists():
        raise SystemExit("the run was over before it could be stopped: give it more --steps.")
    subprocess.run([*TRUSTIRL, "resume", str(out)], check=True, stdout=subprocess.DEVNULL)


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
    ways = {"first": whole, "second": whole, "resumed": resumed}
    with ThreadPoolExecutor(len(ways)) as pool:
        runs = [pool.submit(way, folder / name, command) for name, way in ways.items()]
    try:
        for run in runs:
            run.result()
    except subprocess.CalledProcessError:
        raise SystemExit("a run failed, for the reason above.") from None
    results = [compared(folder / "first", folder / name) for name in ways if name != "first"]
    print(*(words for _, words in results), sep="\n")
    raise SystemExit(0 if all(same for same, _ in results) else 1)


if __name__ == "__main__":
    main()
