"""Writes the report of a run as one HTML page that needs nothing but itself."""

import math
from collections.abc import Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.evaluation.stats import Stability, share_of_expert
from trustirl.report import figures
from trustirl.report.drawing import WIDE
from trustirl.report.films import Films, films_of, strips
from trustirl.report.html import Card, Section, details, document, figure, shown_json, table, write_drawn
from trustirl.report.place_drawings import sections as sections_of_places
from trustirl.report.runs import LARGEST, Known, RunFiles, Summary, read_run
from trustirl.report.words import count, duration, number, percent

LAST_EVALUATION = {
    "iteration": "Iteration",
    "return_mean": "True return",
    "ell": "ℓ",
    "log_likelihood": "Log-likelihood",
    "gap": "Gap",
    "drift": "Drift",
    "mu": "μ",
    "env_steps": "Env steps",
    "seconds": "Seconds",
}


UNPAID = (
    "No true reward of this task is known, so it cannot be told what returns the policy brings, nor how much the "
    "recovered reward resembles the true one."
)


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the report of the run in `run_dir` to `out`, by default `report.html` beside its files."""
    run, films = read_run(run_dir), films_of([Path(run_dir)])
    return write_drawn(lambda: render(run, films), Path(run_dir) / "report.html" if out is None else Path(out))


def summary_html(run_dir: Path, told: str) -> str:
    """A run for a notebook: what is told of it, the curve of its returns, if it has any, and where its page is."""
    drawn = figures.draw_returns(read_run(run_dir), WIDE) or ""
    page = escape(str(Path(run_dir) / "report.html"))
    return f'<div style="max-width: 46rem"><p><b>{escape(told)}</b></p>{drawn}<p>page: <code>{page}</code></p></div>'


def render(run: RunFiles, films: Films = ()) -> str:
    """The whole page; the same run always gives the same text."""
    title = f"{run.algorithm.upper()} on {run.task}"
    if run.known:
        cards, sections, steadiness = _exact_cards(run), _exact_sections(run, run.known), ""
    else:
        cards, sections, steadiness = _sampled_cards(run), _sampled_sections(run), _stability(run)
    if run.others:
        sections = (*sections, _others(run))
    evaluated = run.metrics.recorded("iteration")
    drawn = "".join(figure(section) for section in sections)
    tables = steadiness + _last_evaluation(run) if evaluated else ""
    about = " · ".join((_lead(run), *_circumstances(run)))
    places = sections_of_places(run.story) if run.story else ""
    return document("TrustIRL report", title, about, cards, (places, _moving(films), drawn, tables, _details(run)))


def _moving(films: Films) -> str:
    """Expert and learner, where their films were drawn."""
    if not films:
        return ""
    told = "Eight moments of one episode each, from its start to its end."
    if len(films) > 1:
        told += " They begin where each began, and so need not do the same thing at the same time."
    return f"<section><h2>How they move</h2><p>{told}</p>{strips(films)}</section>"


def _lead(run: RunFiles) -> str:
    if run.world.expectations:
        return count(run.steps, "iteration")
    if run.finished:
        return f"{run.steps:,} {run.world.counted} per seed"
    done = int(np.nan_to_num(run.metrics.last(run.clock)).min())
    if run.clock == "iteration":
        return f"running, iteration {done}"
    return f"running, {min(done, run.steps):,} of {run.steps:,} {run.world.counted}"


def _circumstances(run: RunFiles) -> list[str]:
    parts = [count(len(run.seeds), "seed")]
    if run.story:
        parts.append(f"the world of {Path(str(run.config.get('task_args', {}).get('file', ''))).name}")
    elif run.config.get("demos"):
        parts.append(f"{Path(str(run.config['demos'])).name} demonstrations")
    if run.manifest.get("clipped_actions"):
        parts.append(f"{run.manifest['clipped_actions']} demonstrated actions clipped")
    if run.left_out:
        parts.append(f"{', '.join(run.left_out)} left out where beyond ±{LARGEST:g}")
    if run.manifest.get("device"):
        parts.append(str(run.manifest["device"]))
    return parts


def _exact_cards(run: RunFiles) -> tuple[Card, ...]:
    summary = run.summary
    name, value, note = _wall_time(run)
    wall = (name, value, f"{note}, {count(sum(summary.env_steps.values()), 'environment step')}")
    if not run.paid:
        likelihood, gap = (run.metrics.last(key) for key in ("log_likelihood", "gap"))
        return (
            ("Objective ℓ", number(summary.ell.mean()), "of the demonstrations, for the recovered reward"),
            ("Log-likelihood", number(likelihood.mean()), "of a demonstrated action"),
            ("Gap", number(gap.mean()), "how much more of that reward the demonstrations earn, per step"),
            wall,
        )
    return (
        ("True return", number(summary.returns.mean()), _levels(summary)),
        ("Reward correlation", number(summary.reward_correlation.mean(), 3), "1 is perfect up to scale and shift"),
        ("Objective ℓ", number(summary.ell.mean()), f"true reward {number(summary.ell_expert)}"),
        wall,
    )


def _sampled_cards(run: RunFiles) -> tuple[Card, ...]:
    summary = run.summary
    known = _levels(summary)
    each = f"seeds {', '.join(map(number, summary.returns))}" if len(run.seeds) > 1 else "one seed"
    purposes = ", ".join(f"{purpose}\u00a0{steps:,}" for purpose, steps in summary.env_steps.items())
    unknown = "expert's return not recorded" if run.finished else "known when the run has ended"
    if isinstance(why := run.manifest.get("expert_incomparable"), str):
        known = "; ".join(filter(None, (known, f"expert's return cannot be compared: {why}")))
    return (
        ("True return", number(summary.returns.mean()), each),
        (
            "Share of the expert",
            percent(share_of_expert(summary.returns, summary.expert_return, summary.random_return)),
            known or unknown,
        ),
        ("Environment steps", f"{sum(summary.env_steps.values()):,}", purposes),
        _wall_time(run),
    )


def _levels(summary: Summary) -> str:
    """What the return can be compared with."""
    levels = {
        "expert": summary.expert_return,
        "random": summary.random_return,
        "demonstrations": summary.demo_return,
    }
    return ", ".join(f"{name}\u00a0{number(level)}" for name, level in levels.items() if math.isfinite(level))


def _wall_time(run: RunFiles) -> Card:
    rate = run.summary.updates_per_second
    note = f"{number(rate, 3)} updates per second" if math.isfinite(rate) else "so far"
    return "Wall time", duration(run.summary.wall_seconds), note + _limit(run.summary.practice_seconds)


def _limit(spent: Mapping[str, float]) -> str:
    """Which of the two that go on side by side decides how long a run takes."""
    if not spent.get("practice"):
        return ""
    updating, stepping = (percent(spent[name] / spent["practice"]) for name in ("updating", "stepping"))
    limit = "device" if spent["updating"] >= spent["stepping"] else "simulator"
    return f"; {limit}-bound: updates {updating}, stepping {stepping} of practice, side by side"


def _exact_sections(run: RunFiles, known: Known) -> tuple[Section, ...]:
    root_scale = ", on a square-root scale" if known.picture.shape else ""
    return (
        Section("rewards", "What is rewarded", _reward_caption(run, known), partial(figures.draw_rewards, known)),
        Section(
            "visits",
            "Where they go",
            f"How often each state is visited{root_scale}. {_visits_told(known)}",
            partial(figures.draw_visits, known),
        ),
        Section(
            "likelihood",
            "How well the demonstrations are explained",
            "The objective ℓ: what the demonstrations earn of the learned reward, less the most that any policy "
            f"could, its entropy counted. {_objective_told(known)} Higher is better{_own(run)}. With a trust region "
            "it should never fall back.",
            partial(figures.draw_likelihood, run),
        ),
        _trust(run),
        _returns(run),
        Section(
            "certificate",
            "What is guaranteed",
            "How large a first reward step is proven to raise ℓ, and by how much at least. δ is how far the policy "
            "is from the best for its reward, G how far in total the visits of random actions lie from the "
            "demonstrated ones, and K how sharply ℓ can bend. Left of the dashed line, where δ is less than G²/(8K), "
            "improvement is proven; right of it, nothing.",
            partial(figures.draw_certificate, known),
            absent="This run holds no certificate to draw.",
        ),
    )


def _sampled_sections(run: RunFiles) -> tuple[Section, ...]:
    learned = (_gap(run), _trust(run)) if run.learns_reward else ()
    return (_returns(run), *learned, *((_solver(run),) if run.world.samples else ()))


def _others(run: RunFiles) -> Section:
    return Section(
        "others",
        "What else was recorded",
        "Numbers of the algorithm's own, by the names that it gives them.",
        partial(figures.draw_others, run),
        absent="Nothing else was recorded.",
    )


def _gap(run: RunFiles) -> Section:
    return Section(
        "gap",
        "How far apart expert and learner are",
        "How much more of the learned reward the demonstrations earn than the learner does. "
        "Near zero, the reward can no longer tell the two apart.",
        partial(figures.draw_gap, run),
        absent="This run recorded no gap.",
    )


def _solver(run: RunFiles) -> Section:
    return Section(
        "solver",
        "How the policy learns",
        "What the solver saw of itself at the end of each iteration. Values that run away, or an entropy "
        "that collapses early, can explain a return that falls.",
        partial(figures.draw_solver, run),
        absent="This run recorded nothing about its policy solver.",
    )


def _returns(run: RunFiles) -> Section:
    band = "between seeds" if len(run.seeds) > 1 else "between the episodes of one evaluation"
    known = math.isfinite(run.summary.expert_return)
    seen = "from which an expert learns" if run.world.pays_truth else "which the learner never sees"
    whose = "a published expert's return" if run.world.pays_truth else "the expert's own return"
    goal = f" It should rise to the dashed line, {whose}." if known else ""
    if run.known and run.known.maps.demo_visits is not None:
        goal = (
            " The dashed line is the return of the task's own expert, the other one that of the demonstrated "
            "episodes, as long as they are: a learner does what they show, whether or not the task rewards it."
        )
    return Section(
        "returns",
        "What the learner achieves",
        f"The return under the true reward, {seen}.{goal} The band is one standard deviation {band}.",
        partial(figures.draw_returns, run),
        absent="This run has no evaluation yet." if run.paid else UNPAID,
    )


def _trust(run: RunFiles) -> Section:
    weighs = ", and μ weighs the penalty that holds it back" if run.metrics.recorded("mu") else ""
    told = (
        f"The drift is how far one update moves the reward{weighs}. "
        "Look for drift that settles instead of running away."
    )
    price = figures.resting_price(run)
    if price is not None:
        told += (
            f" Where μ is above the dashed line, {number(price)}, no step pays and the reward rests. If the gap is "
            "still large then, the learner was on its way: give the run more steps, or a mu_max below the line."
        )
    return Section(
        "trust",
        "How carefully the reward moves",
        told,
        partial(figures.draw_trust, run),
        absent="This run recorded neither drift nor μ; an algorithm without a trust region on the reward has none.",
    )


def _own(run: RunFiles) -> str:
    return ", and the dotted line is the true reward's own" if run.paid else ""


def _reward_caption(run: RunFiles, known: Known) -> str:
    summary, maps = run.summary, known.maps
    mean = f" (mean of {len(run.seeds)} seeds)" if len(run.seeds) > 1 else ""
    star = "; the star marks the target" if known.picture.target is not None else ""
    if maps.true_reward is None:
        return (
            f"The reward recovered from the demonstrations{mean}, of which only the shape counts: its scale and its "
            f"zero could be others{star}."
        )
    drawn = [figures.correlation(maps.true_reward, seed) for seed in maps.recovered_reward]
    notes = ""
    if np.abs(drawn - summary.reward_correlation).max() > 0.01:
        notes += " Averages over actions are drawn, while the correlation at the top counts every action."
    if min(drawn) < 0:
        notes += " A negative correlation means that the fit had to turn the reward upside down."
    given = maps.demo_visits is not None
    source = "the demonstrations" if given else "how often its expert visits every state, exactly"
    if maps.sampled_recovered_reward is not None and known.comparison and known.comparison.sampled_episodes:
        notes += (
            f" The last one was recovered in the same way from {known.comparison.sampled_episodes} episodes sampled "
            "from the task's expert; it shows what so few can tell."
        )
    return (
        f"The task's true reward beside the one recovered from {source}{mean}, drawn with the scale and shift that "
        f"fit best because only its shape can be recovered. {_alike(given)}{star}.{notes}"
    )


def _alike(given: bool) -> str:
    sure = "The pictures should look alike"
    return f"{sure} as far as the demonstrations show what the task rewards" if given else sure


def _visits_told(known: Known) -> str:
    if known.maps.expert_visits is None:
        return "A learner that has understood the demonstrations spends its time where they do."
    if known.maps.demo_visits is None:
        return (
            "The demonstrations are the exact visits of the expert, the task's soft-optimal policy. A learner that "
            "has understood it spends its time in the same places, so the two should look alike."
        )
    return (
        "A learner that has understood the demonstrations spends its time where they do, so those two should look "
        "alike. The expert is the task's own soft-optimal policy, started like the demonstrations; who demonstrated "
        "need not act like it."
    )


def _objective_told(known: Known) -> str:
    if known.maps.demo_visits is None:
        return (
            "Here that is the discounted log-likelihood of the expert's actions times the temperature, which cannot "
            "exceed 0."
        )
    return (
        "For endless episodes it would be the log-likelihood of the demonstrated actions; for those that end, or are "
        "few, it is not, and may exceed 0. The log-likelihood itself, of an action, is in the table below."
    )


def _stability(run: RunFiles) -> str:
    unit = "Iterations" if run.clock == "iteration" else "Steps"
    head = (
        "Last return",
        "Best return",
        "Largest drawdown",
        "Evaluations below 90 %",
        f"{unit} to 90 % of the expert",
    )
    courses = zip(run.seeds, run.courses(run.clock), strict=True)
    rows = [(str(seed), *_stability_cells(course)) for seed, course in courses]
    caption = (
        "The drawdown is how far the return fell below the highest one before it; evaluations count as below 90 % "
        "when they lie more than a tenth under that highest return. The last policy is the result, not the best."
    )
    return table("How steadily each seed learned", caption, ("Seed", *head), rows)


def _stability_cells(seed: Stability) -> list[str]:
    steps = "never" if seed.steps_to_90 == math.inf else number(seed.steps_to_90)
    return [*map(number, (seed.last, seed.best, seed.drawdown)), percent(seed.below_90), steps]


def _last_evaluation(run: RunFiles) -> str:
    shown = {key: name for key, name in LAST_EVALUATION.items() if run.metrics.recorded(key)}
    values = np.stack([run.metrics.last(key) for key in shown], axis=1)
    rows = [(str(seed), *map(number, row)) for seed, row in zip(run.seeds, values, strict=True)]
    return table("Last evaluation of each seed", "", ("Seed", *shown.values()), rows)


def _details(run: RunFiles) -> str:
    command = run.manifest.get("command")
    parts = (
        ("Command", command if isinstance(command, str) else "not recorded"),
        ("Versions", _versions(run.manifest) or "not recorded"),
        ("Resolved configuration", shown_json(run.config)),
        ("Manifest", shown_json(run.manifest)),
    )
    return details("How to repeat this run", parts)


def _versions(manifest: dict[str, Any]) -> str:
    found: dict[str, Any] = {}
    for part in map(manifest.get, ("versions", "task_versions")):
        found |= part if isinstance(part, dict) else {}
    return "\n".join(f"{name} {version}" for name, version in found.items())
