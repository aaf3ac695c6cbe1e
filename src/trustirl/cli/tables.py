"""The command `trustirl bench meerkats --table FILE`."""

from dataclasses import dataclass
from pathlib import Path

from trustirl.bench.meerkats import run_meerkats
from trustirl.core.errors import InputError
from trustirl.training.parsing import parse


@dataclass(frozen=True)
class MeerkatsOptions:
    """The paper's study of meerkats: methods and controls on three splits (docs/tables.md); repeated, it goes on."""

    table: str = ""
    """The archive of annotations, meerkats.npz."""
    out: Path = Path("runs/bench-meerkats/results.json")
    """Rows are written here, one for each method, reward and split."""
    only: tuple[str, ...] = ()
    """Parts of names, METHOD/REWARD, such as /linear for one kind of rewards; the other methods are left alone."""


def meerkats_command(arguments: list[str]) -> None:
    """Run what is not there yet."""
    options = parse(MeerkatsOptions, arguments, "trustirl bench meerkats")
    if options.out.suffix != ".json":
        raise InputError(f"the rows are written to a .json file, and {options.out} is none.")
    rows = run_meerkats(options.table, options.out, options.only, lambda text: print(text, flush=True))
    print(f"rows: {options.out} ({len(rows)})")
