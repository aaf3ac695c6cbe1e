"""One file per algorithm; this is the table of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from trustirl.algorithms.bc import BcConfig, bc
from trustirl.algorithms.mce import MceConfig, mce
from trustirl.algorithms.ml_irl import MlIrlConfig, ml_irl
from trustirl.algorithms.piro import PiroConfig, piro
from trustirl.algorithms.trro import TrroConfig, trro
from trustirl.core.records import Algorithm


class Entry(NamedTuple):
    """An algorithm's configuration class and the function that puts it together."""

    config: type[Any]
    build: Callable[..., Algorithm]


ALGORITHMS: dict[str, Entry] = {
    "piro": Entry(PiroConfig, piro),
    "trro": Entry(TrroConfig, trro),
    "ml-irl": Entry(MlIrlConfig, ml_irl),
    "mce": Entry(MceConfig, mce),
    "bc": Entry(BcConfig, bc),
}
