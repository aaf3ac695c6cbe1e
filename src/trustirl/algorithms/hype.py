"""HyPE: hybrid inverse reinforcement learning (Ren et al. 2024). MM's game, whose learner also sees what was shown.

A learner that must compete with the expert alone has to be good where the expert goes, and nowhere else: each of its
minibatches mixes its own steps with demonstrated ones, all paid by the present reward. So the algorithm is `mm`, and
the mixture is the plan's: `demo_share` of a minibatch is demonstrated at first, half of it after `demo_half_life` own
steps, and so on. With a share of 0 it is MM.
"""

from typing import Any

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.mm import AUTHORS, OURS, TASKS, MmConfig, mm

# Half of the rows at first, as in the theory. The policy improves at them too, for they are the idea, while the
# schedule does what for others the fading does: it ends the guesses at what other actions would be worth there.
MIXED: dict[str, Any] = {"demo_share": 0.5, "demo_half_life": 100_000}
# The authors' falls from 0.2 through 0.1 after 200,000 steps to 0.01 after a million, on straight lines.
THEIRS: dict[str, Any] = {"demo_share": 0.2, "demo_half_life": 230_000, "tremble": 0.01}
ENTRY = Entry(
    name="hype",
    config=MmConfig,
    build=mm,
    reference="Ren, Swamy, Wu, Bagnell and Choudhury 2024, Hybrid Inverse Reinforcement Learning",
    worlds=("simulator",),
    needs=frozenset({"demonstrated steps"}),
    defaults=Defaults(OURS | MIXED, TASKS, AUTHORS | THEIRS),
)
