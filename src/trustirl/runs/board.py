"""The metrics once more, for TensorBoard: one curve per seed."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

NOT_DRAWN = ("seed", "iteration")


class Board:
    """Event files below a run's `tb/`, over environment steps, or over iterations where there are none."""

    def __init__(self, folder: Path, seeds: range, after: int) -> None:
        """Curves of a resumed run go on `after` that step."""
        purge = after + 1 if after >= 0 else None
        self.writers = {seed: SummaryWriter(str(folder / f"seed-{seed}"), purge_step=purge) for seed in seeds}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Draw one point per number."""
        for row in rows:
            writer = self.writers[row["seed"]]
            for name, value in row.items():
                if name not in NOT_DRAWN and value is not None:
                    writer.add_scalar(name, value, row["env_steps"] or row["iteration"])
            writer.flush()

    def close(self) -> None:
        """Write what is left."""
        for writer in self.writers.values():
            writer.close()
