"""How the exact solver scales: gridworlds from 7 x 7 to 300 x 300, beside a dense S x A x S version in NumPy.

Each row is measured in a process of its own, so that peak memory is that row's alone. The dense version is what
tabular maximum-entropy IRL code usually keeps; where a full solve would take minutes it is timed over a few sweeps
and scaled to the sweeps needed (marked ~), and where it cannot be held in memory it is left out.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (7, 30, 100, 300)
DISCOUNT = 0.99
DENSE_SECONDS = 20.0  # how long a dense solve is timed before it is scaled


def successor_lists(size: int) -> dict[str, Any]:
    """Ours: soft value iteration and occupancy, compiled, to the default residual."""
    import jax
    import jax.numpy as jnp

    from trustirl.core.precision import double_precision
    from trustirl.rl.exact import occupancy, solve
    from trustirl.tasks.registry import make_task

    with double_precision():
        task = make_task("gridworld", {"size": size, "discount": DISCOUNT})
        reward = jnp.asarray(task.true_reward)
        begin = time.perf_counter()
        solve_now = jax.jit(lambda mdp, reward: solve(mdp, reward)).lower(task.mdp, reward).compile()
        occupancy_now = jax.jit(occupancy).lower(task.mdp, reward).compile()
        compiled = time.perf_counter()
        policy = solve_now(task.mdp, reward)
        rho = occupancy_now(task.mdp, policy.log_prob).block_until_ready()
        seconds = time.perf_counter() - compiled
    assert abs(np.asarray(rho).sum() - 1 / (1 - DISCOUNT)) < 1e-6
    return {"seconds": seconds, "compile_seconds": compiled - begin, "sweeps": int(policy.sweeps)}


def dense(size: int) -> dict[str, Any]:
    """The usual way: a dense transition array, value iteration and a linear solve for the occupancy."""
    from trustirl.core.precision import double_precision
    from trustirl.tasks.registry import make_task

    with double_precision():
        task = make_task("gridworld", {"size": size, "discount": DISCOUNT})
    mdp, reward = task.mdp, np.asarray(task.true_reward)
    states, actions = mdp.states, mdp.actions
    transitions = np.zeros((states, actions, states))
    state, action, _ = np.indices(mdp.successors.shape)
    np.add.at(transitions, (state, action, np.asarray(mdp.successors)), np.asarray(mdp.probabilities))
    value, change, sweeps = np.zeros(states), np.inf, 0
    begin = time.perf_counter()
    while change > 1e-10 and time.perf_counter() - begin < DENSE_SECONDS:
        q = reward + DISCOUNT * transitions @ value
        largest = q.max(axis=1)
        swept = largest + np.log(np.exp(q - largest[:, None]).sum(axis=1))
        change, value, sweeps = float(np.abs(swept - value).max()), swept, sweeps + 1
    seconds = time.perf_counter() - begin
    if change > 1e-10:  # a contraction by the discount tells how many sweeps are missing
        needed = sweeps + math.log(1e-10 / change) / math.log(DISCOUNT)
        return {"seconds": seconds * needed / sweeps, "sweeps": int(needed), "extrapolated": True}
    q = reward + DISCOUNT * transitions @ value
    prob = np.exp(q - value[:, None])
    np.linalg.solve(np.eye(states) - DISCOUNT * np.einsum("sa,sat->ts", prob, transitions), np.asarray(mdp.initial))
    return {"seconds": time.perf_counter() - begin, "sweeps": sweeps}


def fits(size: int) -> bool:
    """Whether the dense array, and one temporary of its size, fit into free memory."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2 * 5 * size**4 * 8 < free


def measure(kind: str, size: int) -> dict[str, Any]:
    """Run one row in a fresh process."""
    command = [sys.executable, __file__, "--row", kind, str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def exponent(rows: list[tuple[int, float]]) -> float:
    """Growth of seconds with the number of states, by least squares on logarithms."""
    states, seconds = np.log(np.array(rows)).T
    return float(np.polyfit(states, seconds, 1)[0])


def main() -> None:
    """Print the table; with --json also keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    if arguments.row:
        kind, size = arguments.row[0], int(arguments.row[1])
        row = {"lists": successor_lists, "dense": dense}[kind](size)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"kind": kind, "size": size, "peak_mib": round(peak)} | row))
        return
    rows = []
    print(f"soft value iteration + occupancy, discount {DISCOUNT}, {os.cpu_count()} cores")
    columns = ("ours s", 8), ("compile s", 9), ("MiB", 6), ("sweeps", 6), ("dense s", 11), ("MiB", 7)
    print(f"{'grid':>9} {'states':>7} | " + " ".join(name.rjust(width) for name, width in columns))
    for size in SIZES:
        ours = measure("lists", size)
        other = measure("dense", size) if fits(size) else None
        rows += [row for row in (ours, other) if row]
        text = f"{size:>4}x{size:<4} {size * size:>7} | {ours['seconds']:>8.3f} {ours['compile_seconds']:>9.2f}"
        text += f" {ours['peak_mib']:>6} {ours['sweeps']:>6} | "
        if other:
            text += (
                f"{'~' if other.get('extrapolated') else ''}{other['seconds']:.3g}".rjust(9)
                + f" {other['peak_mib']:>7}"
            )
        else:
            text += "does not fit".rjust(17)
        print(text, flush=True)
    for kind, name in (("lists", "ours"), ("dense", "dense")):
        points = [(row["size"] ** 2, row["seconds"]) for row in rows if row["kind"] == kind and row["size"] >= 30]
        if len(points) > 1:
            print(f"growth exponent of seconds in states, {name}, from 30x30: {exponent(points):.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
