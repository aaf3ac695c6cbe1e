"""Look at what a learned reward wants: play, ask it about what was seen and about what might have been, and draw."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from trustirl.core.checks import counts
from trustirl.core.errors import InputError, TrustIRLError, unknown_name
from trustirl.core.observations import flatten
from trustirl.core.precision import double_precision
from trustirl.core.words import count
from trustirl.demos.schema import Demos
from trustirl.report.html import write_drawn
from trustirl.report.reward import Course, Effect, Looked, Mapped, Surface, render, render_map
from trustirl.rewards.reward import LearnedReward
from trustirl.rl.exact import occupancy
from trustirl.runs.film import FRAMES, follow, png, smaller, strip
from trustirl.runs.inputs import input_names
from trustirl.runs.playing import played
from trustirl.runs.run import Run, load
from trustirl.tasks.gym import ControlTask, make_control_task, task_of_file
from trustirl.tasks.registry import make_task

SEED = 60_000  # of the episodes
ROWS = 600  # steps that inputs are moved of
BASES = 100  # of them where an input is set to values
VALUES, SIDE = 25, 25  # of an input, and along each axis of a map
CURVES = 6

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Seen:
    """Steps of one kind of player."""

    who: str
    demos: Demos
    rows: Rows
    ended: np.ndarray


def inspect_reward(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    task: str | gym.Env | Callable[..., gym.Env] | None = None,
    episodes: int = 3,
    inputs: tuple[str, str] | None = None,
) -> Path:
    """Write a page on what the reward of a finished run wants, by default reward.html in its folder.

    On a simulator `episodes` of the first seed's policy and of random actions are played and laid beside the
    demonstrations; `inputs` names the two of the map.
    """
    learned = run if isinstance(run, Run) else load(run)
    (episodes,) = counts(1, episodes=episodes)
    if not learned.rewards:
        raise InputError(f"{learned.path} is a run of {learned.config['algorithm']}, which learns no reward.")
    target = Path(out) if out is not None else learned.path / "reward.html"
    if learned.world.expectations:
        return write_drawn(lambda: render_map(_mapped(learned)), target)
    named = task or task_of_file(learned.config["task"], learned.path / "config.json")
    control_task = make_control_task(named, learned.config["task_args"])
    learned.check_task(control_task)
    return write_drawn(lambda: render(_looked(learned, control_task, episodes, inputs)), target)


# --- where the MDP is known ------------------------------------------------------------------------------


def _mapped(run: Run) -> Mapped:
    with double_precision():
        task = make_task(run.config["task"], run.config["task_args"])
        tables = np.stack([np.asarray(reward.table(), np.float64) for reward in run.rewards])
        policies = np.stack([policy.log_prob for policy in run.policies])
        learner = np.mean([np.asarray(occupancy(task.mdp, jnp.asarray(p))).sum(axis=1) for p in policies], axis=0)
    centred = tables - tables.mean(axis=(1, 2), keepdims=True)
    scale = centred.mean(axis=2).std(axis=1)
    scaled = centred / np.where(scale > 0, scale, 1.0)[:, None, None]
    visits = {"The learner": learner}
    if (demos := run.demos) is not None:
        visits = {
            "The demonstrations": np.bincount(demos.observations, minlength=task.mdp.states).astype(float)
        } | visits
    options = run.config["exact"]
    form = {"mlp": "network"}.get(options["reward"], options["reward"])
    return Mapped(
        title=f"What {run.config['algorithm'].upper()} found on {task.name}",
        lead=f"{run.path} · {count(len(tables), 'seed')} · every state and action is asked, nothing is sampled",
        form=form,
        paid=scaled.mean(axis=2),
        actions=scaled.mean(axis=0),
        visits=visits,
        agreement=_agreement(scaled.reshape(len(scaled), -1)),
        shape=task.grid,
        target=task.target,
        details=_details(run),
    )


# --- on a simulator --------------------------------------------------------------------------------------


def _looked(run: Run, task: ControlTask, episodes: int, inputs: tuple[str, str] | None) -> Looked:
    rewards = list(run.rewards)
    seen = _played(run, task, episodes)
    raw = {each.who: _paid(rewards, each.rows) for each in seen}
    everything = np.concatenate(list(raw.values()), axis=1)
    mean, deviation = everything.mean(axis=1), everything.std(axis=1)
    deviation = np.where(deviation > 0, deviation, 1.0)

    def scaled(paid: Float[np.ndarray, "seeds rows"]) -> Float[np.ndarray, "seeds rows"]:
        return (paid - mean[:, None]) / deviation[:, None]

    rows = _joined([each.rows for each in seen])
    random = np.random.default_rng(SEED)
    kept = random.choice(len(rows[0]), min(ROWS, len(rows[0])), replace=False)
    base: Rows = (rows[0][kept], rows[1][kept], rows[2][kept])
    known = next((each.rows for each in seen if each.who == "expert"), rows)
    asked = _Inputs(rewards, task, scaled, base, known)
    order = sorted(range(len(asked.names)), key=lambda place: -float(asked.importance[place].mean()))
    top = order[:CURVES]
    chosen = tuple(top[:2]) if inputs is None else tuple(asked.number(name) for name in inputs)
    ends = [float(reward.end) for reward in rewards] if any(reward.end for reward in rewards) else None
    films, why = _films(task, seen, {who: scaled(paid).mean(axis=0) for who, paid in raw.items()})
    spread = scaled(_paid(rewards, base)).std(axis=0)
    return Looked(
        title=f"What {run.config['algorithm'].upper()} found on {task.name}",
        lead=f"{run.path} · {count(len(rewards), 'seed')} · {count(len(rows[0]), 'step')} of "
        f"{', '.join(each.who for each in seen)} looked at",
        form=_form(run),
        courses=[_course(each, scaled(raw[each.who])) for each in seen],
        means={who: paid.mean(axis=1) for who, paid in raw.items()},
        deviation=deviation,
        importance=[(asked.names[place], asked.importance[place]) for place in order],
        effects=[asked.effect(place) for place in top],
        surface=asked.surface(*chosen) if len(chosen) == 2 else None,
        end=None if ends is None else np.array(ends),
        agreement=_agreement(everything),
        disputed=asked.goes_with(spread) if len(rewards) > 1 else [],
        ends_seen=any(bool(each.ended.any()) for each in seen),
        films=films,
        no_film=why,
        details=_details(run),
    )


def _played(run: Run, task: ControlTask, episodes: int) -> list[Seen]:
    """The demonstrations, if they are there, the learner and chance."""
    found: dict[str, Demos] = {}
    try:
        demos = run.demos
        if demos is not None:
            found["expert"] = demos.take(min(episodes, len(demos)), "first")
    except TrustIRLError:
        pass  # they have gone elsewhere: the page shows the others
    with played(task, episodes, SEED) as (_, play):
        found |= {"learner": play(run.policy), "random": play(None)}
    return [_seen(who, demos) for who, demos in found.items()]


def _seen(who: str, demos: Demos) -> Seen:
    obs = demos.observations
    obs = flatten(obs, len(demos.actions))
    index, after = demos.successors()
    following = obs.copy()
    following[index] = flatten(after, len(index))
    return Seen(who, demos, (obs, demos.actions, following), demos.terminated)


def _course(seen: Seen, paid: Float[np.ndarray, "seeds rows"]) -> Course:
    """The first episode."""
    return Course(seen.who, paid[:, : seen.demos.episode_ends[0]], bool(seen.ended[0]))


def _paid(rewards: Sequence[LearnedReward], rows: Rows) -> Float[np.ndarray, "seeds rows"]:
    """As for steps that do not end an episode."""
    return np.stack([np.asarray(reward(*rows, False), np.float64) for reward in rewards])


def _joined(parts: Sequence[Rows]) -> Rows:
    obs, action, after = (np.concatenate(column) for column in zip(*parts, strict=True))
    return obs, action, after


class _Inputs:
    """The inputs of a reward, by number: columns of observations, then of actions where they count."""

    def __init__(
        self,
        rewards: Sequence[LearnedReward],
        task: ControlTask,
        scaled: Callable[[np.ndarray], np.ndarray],
        base: Rows,
        known: Rows,
    ) -> None:
        self._rewards, self._scaled, self._base, self._known, self._task = rewards, scaled, base, known, task
        acts = "action" in rewards[0].needs
        names = input_names(task)
        self.names = names if acts else names[: task.obs_dim]
        now, random = scaled(_paid(rewards, base)), np.random.default_rng(SEED)
        self.importance = []
        for place in range(len(self.names)):
            moved = self._set(base, place, random.permutation(self._column(base, place)))
            self.importance.append(np.abs(scaled(_paid(rewards, moved)) - now).mean(axis=1))

    def number(self, name: str) -> int:
        """An input by its name."""
        if name not in self.names:
            raise unknown_name("input of the reward,", name, self.names)
        return self.names.index(name)

    def effect(self, place: int) -> Effect:
        """The mean reward for each value of an input."""
        values = self._values(place, VALUES)
        low, high = np.quantile(self._column(self._known, place), (0.05, 0.95))
        return Effect(self.names[place], values, self._means([(place, values)]), float(low), float(high))

    def surface(self, first: int, second: int) -> Surface:
        """The mean reward for every pair of values of two inputs."""
        one, other = self._values(first, SIDE), self._values(second, SIDE)
        pairs = np.meshgrid(one, other)
        paid = self._means([(first, pairs[0].ravel()), (second, pairs[1].ravel())]).mean(axis=0)
        shown = np.stack([self._column(self._known, place) for place in (first, second)], axis=1)
        every = max(1, len(shown) // 500)
        names = self.names[first], self.names[second]
        return Surface(names, (one, other), paid.reshape(len(other), len(one)), shown[::every])

    def goes_with(self, spread: np.ndarray) -> list[tuple[str, float]]:
        """How the disagreement of seeds correlates with each input, the closest first."""
        told = []
        for place, name in enumerate(self.names):
            column = np.asarray(self._column(self._base, place), np.float64)
            related = column.std() > 0 and spread.std() > 0
            told.append((name, float(np.corrcoef(column, spread)[0, 1]) if related else 0.0))
        return sorted(told, key=lambda pair: -abs(pair[1]))

    def _means(self, settings: Sequence[tuple[int, np.ndarray]]) -> Float[np.ndarray, "seeds values"]:
        """Over some steps, with inputs set to the values together."""
        bases = min(BASES, len(self._base[0]))
        times = len(settings[0][1])
        rows: Rows = tuple(np.repeat(array[:bases], times, axis=0) for array in self._base)  # type: ignore[assignment]
        for place, values in settings:
            rows = self._set(rows, place, np.tile(values, bases))
        paid = self._scaled(_paid(self._rewards, rows))
        return paid.reshape(len(paid), bases, times).mean(axis=1)

    def _values(self, place: int, most: int) -> np.ndarray:
        """From the least to the largest that was seen, without the outermost hundredths."""
        column = self._column(self._base, place)
        if place >= self._task.obs_dim and self._task.discrete:
            return np.arange(self._task.action_dim) + self._task.action_start
        low, high = np.quantile(column, (0.01, 0.99))
        return np.linspace(low, high if high > low else low + 1, most)

    def _column(self, rows: Rows, place: int) -> np.ndarray:
        obs, action, _ = rows
        if place < self._task.obs_dim:
            return obs[:, place]
        return action if self._task.discrete else action[:, place - self._task.obs_dim]

    def _set(self, rows: Rows, place: int, values: np.ndarray) -> Rows:
        """What follows is moved as far as the observation."""
        obs, action, after = (array.copy() for array in rows)
        if place < self._task.obs_dim:
            after[:, place] += (values - obs[:, place]).astype(after.dtype)
            obs[:, place] = values
        elif self._task.discrete:
            action[:] = values
        else:
            action[:, place - self._task.obs_dim] = values
        return obs, action, after


def _films(task: ControlTask, seen: Sequence[Seen], paid: Mapping[str, np.ndarray]) -> tuple[dict[str, bytes], str]:
    """Frames of the best and the worst paid moments, or why there are none.

    The simulator is put back into its states where it shows them; elsewhere what we played is played again.
    """
    restored = [each for each in seen if each.demos.states is not None and each.demos.states.shape[1]]
    there = restored or [each for each in seen if each.who != "expert"]
    if len({each.demos.states.shape[1] for each in restored if each.demos.states is not None}) > 1:
        return {}, "There are no pictures: the demonstrations were made with another simulator."
    worth = np.concatenate([paid[each.who] for each in there])
    order = np.argsort(worth)
    few = max(FRAMES, len(order) // 20)  # of the outer twentieth, evenly spaced, so that frames differ
    spaced = np.linspace(0, min(few, len(order)) - 1, FRAMES).astype(int)
    chosen = {"Paid best": order[::-1][spaced], "Paid worst": order[spaced]}
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # draws without a screen
    try:
        env = task.make(render_mode="rgb_array")  # type: ignore[call-arg]
        try:
            follow(env)
            if restored:
                states = [state for each in there if each.demos.states is not None for state in each.demos.states]
                drawn = {name: strip(env, np.stack([states[row] for row in rows])) for name, rows in chosen.items()}
            else:
                frames = _again(env, there, {int(row) for rows in chosen.values() for row in rows})
                drawn = {name: np.concatenate([frames[int(row)] for row in rows], 1) for name, rows in chosen.items()}
            return {name: png(image) for name, image in drawn.items()}, ""
        finally:
            env.close()
    except Exception as error:  # renderers raise what they like, and no film is worth a page
        return {}, f"There are no pictures: {' '.join(str(error).split()) or type(error).__name__}"


def _again(env: gym.Env, seen: Sequence[Seen], wanted: set[int]) -> dict[int, np.ndarray]:
    """Frames before the steps that are wanted, by their number among all; episodes start as `played` started them."""
    frames, row, seed = {}, 0, SEED
    for each in seen:
        starts = {0, *each.demos.episode_ends.tolist()}
        for step, action in enumerate(each.demos.actions):
            if step in starts:
                env.reset(seed=seed)
                seed += 1
            if row in wanted:
                frames[row] = smaller(np.asarray(env.render()))
            env.step(action)
            row += 1
    return frames


# --- both ------------------------------------------------------------------------------------------------


def _agreement(paid: Float[np.ndarray, "seeds rows"]) -> Float[np.ndarray, "seeds seeds"]:
    """Correlations; a constant reward agrees with none."""
    centred = paid - paid.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=1)
    unit = centred / np.where(size > 0, size, 1.0)[:, None]
    return np.asarray(np.clip(unit @ unit.T, -1, 1))


def _form(run: Run) -> str:
    inputs = run.config.get("control", {}).get("reward_inputs")
    words = {"state": "of states", "state-action": "of states and actions", "transition": "of transitions"}
    return words.get(str(inputs), run.rewards[0].form)


def _details(run: Run) -> list[tuple[str, str]]:
    return [("Command", f"trustirl reward inspect {run.path}"), ("Run", str(run.config["algorithm"]))]
