"""FILTER: fast inverse reinforcement learning by expert resets (Swamy et al. 2023). MM's game, from states shown.

A learner that begins its episodes at states of the expert need not first find the way there: exploration, which takes
exponentially many steps at worst, gives way to a search along the demonstrations. So the algorithm is `mm`, and the
resets are the plan's: in a share `resets` of the environments every episode of practice begins at a demonstrated
state, each as likely, with the demonstration's clock (the paper's alpha is the chance that an episode does). The
simulator is put into the state, no action is replayed. The reward compares episodes that begin where the task begins
them. Without resets it is MM.
"""

from typing import Any

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.mm import AUTHORS, OURS, TASKS, MmConfig, mm

RESETS: dict[str, Any] = {"resets": 0.4}  # two of five environments
THEIRS: dict[str, Any] = {"resets": 0.5, "tremble": 0.01}
ENTRY = Entry(
    name="filter",
    config=MmConfig,
    build=mm,
    reference="Swamy, Wu, Choudhury, Bagnell and Wu 2023, Inverse Reinforcement Learning without Reinforcement "
    "Learning",
    worlds=("simulator",),
    defaults=Defaults(OURS | RESETS, TASKS, AUTHORS | THEIRS),
)
