"""reward.md: what a learned reward is, where it comes from, what it pays and how to load it, for people."""

from collections.abc import Iterable, Sequence

from trustirl.core.spaces import Finite, Spaces
from trustirl.core.words import count, printable
from trustirl.rewards.origin import Origin
from trustirl.rewards.reward import LearnedReward, Rewards

KINDS = {
    "table": "a table, one number for each",
    "linear": "linear in the features of the states",
    "mlp": "a network on the features of the states",
    "network": "a network",
    "values": "read off the values of an agent: Q(s, a) - g V(s')",
    "log-ratio": "read off a policy: the log density of its actions, less that of uniform ones",
}
MEANS = {
    "action": "the action",
    "next_obs": "the observation that follows",
    "terminated": "whether the episode ended there",
}
MOST_ROWS = 40


def model_card(rewards: Rewards, kind: str) -> str:
    """The text, in Markdown."""
    first = rewards[0]
    origin = first.origin
    parts = [
        f"# A learned reward of {_name(first.spaces)}",
        _about(rewards, kind),
        "## What it is given",
        _inputs(first),
        "## How it was learned",
        "It is not known." if origin is None else _learned(origin),
        "## What it pays",
        _pays(rewards),
        "## Limits",
        _limits(first),
        "## How to load it",
        _loading(first),
    ]
    return "\n\n".join(parts) + "\n"


def _name(spaces: Spaces | Finite) -> str:
    if isinstance(spaces, Spaces):
        return spaces.name
    return f"{count(spaces.states, 'numbered state')} and {count(spaces.actions, 'action')}"


def _about(rewards: Rewards, kind: str) -> str:
    first = rewards[0]
    depends = ["the state", *(MEANS[name] for name in first.needs)]
    bound = "" if first.bound is None else f" It stays between {-first.bound:g} and {first.bound:g}."
    return (
        f"{first.form}, {KINDS.get(kind, kind)}. It depends on {_listed(depends)}.{bound} The folder holds the "
        f"{'reward of one seed' if len(rewards) == 1 else f'rewards of {len(rewards)} seeds'}."
    )


def _inputs(first: LearnedReward) -> str:
    spaces = first.spaces
    if isinstance(spaces, Finite):
        acted = f" Actions are whole numbers from 0 to {spaces.actions - 1}." if "action" in first.needs else ""
        return f"States are whole numbers from 0 to {spaces.states - 1}.{acted}"
    text = [f"Observations are {count(spaces.obs_dim, 'number')}, in the order of the environment's."]
    if "action" in first.needs:
        text.append(_actions(spaces))
    rows = _ranges(first, spaces.obs_dim)
    if rows:
        text.append("\n\n" + _table(("entry", "demonstrated from", "to", "mean", "deviation"), rows[:MOST_ROWS]))
        if len(rows) > MOST_ROWS:
            text.append(f"\n\nThe other {len(rows) - MOST_ROWS} entries are in reward.json.")
        text.append(
            "\n\nInputs are standardised by mean and deviation, which are inside the reward: give raw numbers."
        )
    return " ".join(text).replace(" \n", "\n")


def _actions(spaces: Spaces) -> str:
    if spaces.bounds is None:
        last = spaces.action_start + spaces.action_dim - 1
        return f"Actions are whole numbers from {spaces.action_start} to {last}."
    bounds = ", ".join(f"{low:g} to {high:g}" for low, high in zip(*spaces.bounds, strict=True))
    return f"Actions are {count(spaces.action_dim, 'number')} ({bounds}); what lies outside is clipped."


def _ranges(first: LearnedReward, entries: int) -> list[tuple[str, ...]]:
    origin, moments = first.origin, first.normalisation
    if moments is None:
        return []
    lows = highs = [""] * entries
    if origin is not None and origin.obs_low is not None and origin.obs_high is not None:
        lows, highs = ([f"{value:.4g}" for value in side] for side in (origin.obs_low, origin.obs_high))
    mean, std = ([f"{value:.4g}" for value in moment[:entries]] for moment in moments)
    return [(str(i), *row) for i, row in enumerate(zip(lows, highs, mean, std, strict=False))]


def _learned(origin: Origin) -> str:
    given = "".join(f", {name}={value}" for name, value in origin.task_args.items())
    rows = [
        ("algorithm", origin.algorithm),
        ("task", f"{origin.task}{given}"),
        ("demonstrations", _demonstrated(origin)),
        *([] if origin.demo_steps is None else [("their hash", f"`{origin.demos}`")]),
        ("steps per seed", f"{origin.steps:,}"),
        ("seeds", ", ".join(map(str, origin.seeds))),
        ("run", origin.run),
        ("made with", f"trustirl {origin.version}, {origin.created}"),
    ]
    return _table(("", ""), rows)


def _demonstrated(origin: Origin) -> str:
    if origin.demo_steps is None:
        return "the task's own expert, known exactly"
    return f"{count(origin.demo_episodes or 0, 'episode')}, {count(origin.demo_steps, 'step')}"


def _pays(rewards: Rewards) -> str:
    origin = rewards[0].origin
    paid = origin.paid if origin else None
    if paid is None:
        return "It was not measured."
    columns: Sequence[list[float]] = (paid.mean, paid.low, paid.high, paid.end)
    rows = [
        (str(reward.seed), *(f"{value:.4g}" for value in row))
        for reward, row in zip(rewards, zip(*columns, strict=True), strict=False)
    ]
    table = _table(("seed", "mean of demonstrated steps", "least", "most", "an end, on top"), rows)
    absorbing = rewards[0].absorbing
    if absorbing is None:
        return f"{table}\n\nAn end is paid nothing of its own."
    return (
        f"{table}\n\nAn end is paid what the absorbing state after it earns for ever, discounted: "
        f"{absorbing:.4g} per step for seed {rewards[0].seed}."
    )


def _limits(first: LearnedReward) -> str:
    ranges = (
        ""
        if isinstance(first.spaces, Finite)
        else (" Outside the demonstrated ranges it is extrapolation; a long way outside, inputs are clipped.")
    )
    points = (
        "Demonstrations do not decide the scale of a reward, nor what can be added to it without changing which "
        "policies are best: its numbers are no returns, and those of two rewards cannot be compared one by one.",
        f"It was learned beside one learner, and knows the states that demonstrations and learner saw.{ranges}",
        "It pays what the demonstrations have in common, which need not be what they were meant for: look at it "
        "before you train on it where that matters.",
    )
    return "\n".join(f"- {point}" for point in points)


def _loading(first: LearnedReward) -> str:
    names = ["obs", *(name for name in ("action", "next_obs", "terminated") if name in first.needs)]
    called = f"rewards = reward({', '.join(f'{name}={name}' for name in names)})  # a batch, or one"
    wrapped = "env = reward.wrap(gym.make(...))  # pays it; also reward.wrap_vec(envs)"
    lines = ["import trustirl as ti", 'reward = ti.load_reward("FOLDER")  # the first seed', called, wrapped]
    return "\n".join(["```python", *lines, 'ti.load_rewards("FOLDER").spread(...)  # where seeds disagree', "```"])


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join(f"| {' | '.join(printable(cell).replace('|', '/') for cell in row)} |" for row in lines)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
