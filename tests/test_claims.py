"""The numbers in the text of README.md and docs/results.md are those of results/, computed here again."""

import re
import runpy
from dataclasses import asdict
from math import log
from pathlib import Path
from typing import Any

import pytest

from trustirl.algorithms import ALGORITHMS
from trustirl.irl.certificates import paper_constant
from trustirl.worlds.simulator import groups

ROOT = Path(__file__).parent.parent
TABLES = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
mean, share, falls, each = (TABLES[name] for name in ("mean", "share", "falls", "_each"))
Row = dict[str, Any]
GENERATED = re.compile(r"<!-- table:.*?<!-- /table -->", re.DOTALL)
# Numbers that no result gives: names, settings, and what a run was asked for.
GIVEN = (
    r"\w+-v\d|`[^`]*`|\]\([^)]*\)|<[^>]*>|07ad72a|7 x 7|Equation 11|90 %"
    r"|\d+ to \d+|with 11 to 15|1,000 steps|500,000 steps|1,000,000 steps|in 1,000,000|in 500,000"
    r"|61,000 steps|8 minutes|mu at most 0\.075|above 0\.075|[Aaot][tf] 0\.0001|50 sampled episodes"
    r"|5 a step|discount 0\.997|instead of 500,000"
    r"|reward steps of 0\.01|default of 0\.1\b"
)


def rows_of(study: str) -> list[Row]:
    rows: list[Row] = TABLES["rows_of"](study, ROOT)
    return rows


def row_of(study: str, **wanted: Any) -> Row:
    """The first row of a study with these values; variant None means none."""
    return next(row for row in rows_of(study) if all(row.get(name) == value for name, value in wanted.items()))


def mujoco(task: str, method: str = "piro", **wanted: Any) -> Row:
    return row_of("paper-mujoco", task=task, algorithm=method, **({"variant": None} | wanted))


def default_rows(method: str) -> list[Row]:
    return [row for row in rows_of("paper-mujoco") if row["algorithm"] == method and "variant" not in row]


def ends(method: str) -> list[tuple[float, float, str]]:
    """Of every seed of the default, lowest first: share of the demonstration, return, task."""
    return sorted(
        (value / row["expert_return"], value, row["task"]) for row in default_rows(method) for value in row["returns"]
    )


def soon(task: str, method: str) -> str:
    """Steps to 90 % of the demonstration, mean of the seeds that get there."""
    steps = [n for row in default_rows(method) if row["task"] == task for n in row["steps_to_90"]]
    return f"{mean([n for n in steps if n is not None]):,.0f}"


def ratio(task: str, rows: list[Row] | None = None) -> float:
    """PIRO's mean largest fall as a share of ML-IRL's."""
    ours, theirs = (falls(rows or rows_of("paper-mujoco"), task, method) for method in ("piro", "ml-irl"))
    return float(mean(ours) / mean(theirs))


def correlation(reward: str, episodes: int | None, step: float = 0.1) -> str:
    """PIRO's on the grid."""
    for row in rows_of("gridworld"):
        asked = row["settings"]
        there = (asked["exact"]["reward"], row["demo_episodes"], asked["algorithm_config"].get("reward_step"))
        if row["algorithm"] == "piro" and there == (reward, episodes, step):
            return f"{mean(row['reward_correlation']):.3f}"
    raise LookupError(reward, episodes, step)


def far(algorithm: str, reward: str, episodes: int | None) -> str:
    """EPIC distance from the grid's true reward."""
    for row in (row for row in rows_of("gridworld") if "from_truth" in row):
        if (row["algorithm"], row["settings"]["exact"]["reward"], row["demo_episodes"]) == (
            algorithm,
            reward,
            episodes,
        ):
            return f"{mean(row['from_truth']['epic']):.3f}"
    raise LookupError(algorithm, reward, episodes)


TASKS = ("Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Humanoid-v4", "Walker2d-v4")
WORDS = ("no", "one", "two", "three", "four", "five")
CART = {"task": "CartPole-v1"}


def proofs_sum() -> float:
    from tests.theory.test_paper import sum_of_the_proofs_terms

    return sum_of_the_proofs_terms(2, 1.0, 0.9)


def in_readme() -> list[str]:
    ours = ends("piro")
    strong = [mujoco("Humanoid-v4", variant=name) for name in ("strong", "strong, 1,000,000 steps")]
    zero = row_of("zero-reward", task="Humanoid-v4")
    return [
        f"A seed is lost if it ends below {TABLES['LOST']}.",
        f"the lowest of its {len(ours)} seeds ends at {ours[0][0]:.2f} of it",
        f"{ratio('HalfCheetah-v4'):.2f} of ML-IRL's on HalfCheetah-v4, {ratio('Ant-v4'):.2f} on Ant-v4, "
        f"{ratio('Hopper-v4'):.2f} on Hopper-v4, {ratio('Humanoid-v4'):.2f} on Humanoid-v4 and "
        f"{ratio('Walker2d-v4'):.2f} on Walker2d-v4;",
        f"a reward of zero gets {share(zero):.2f}",
        f"From one that runs, of {strong[0]['expert_return']:,.0f}, PIRO gets {share(strong[0]):.2f} in 500,000 "
        f"steps and {share(strong[1]):.2f} in 1,000,000.",
    ]


def in_results() -> list[str]:
    ours, theirs = ends("piro"), ends("ml-irl")
    walker, cheetah = mujoco("Walker2d-v4")["expert_return"], mujoco("HalfCheetah-v4")["expert_return"]
    assert [task for _, _, task in (*ours[:2], theirs[0])] == ["Walker2d-v4", "Walker2d-v4", "HalfCheetah-v4"]
    others = [
        share(row) for row in rows_of("paper-mujoco") if row.get("variant", "").startswith(("recorded", "strong"))
    ]
    sooner = [task for task in TASKS if _number(soon(task, "piro")) < _number(soon(task, "ml-irl"))]
    steps = [f"{task} {soon(task, 'piro')} ({{}}{soon(task, 'ml-irl')})" for task in TASKS]
    first, later = ([r for r in rows_of("paper-mujoco") if r["seeds"][0] == seed] for seed in (0, 11))
    halves = [sum(ratio(task, rows) < 0.5 for task in TASKS) for rows in (rows_of("paper-mujoco"), first, later)]
    humanoid = [
        round(mean(mujoco("Humanoid-v4", m, held_out=h)["drawdown"]))
        for m in ("ml-irl", "piro")
        for h in (False, True)
    ]
    short = [mujoco("HalfCheetah-v4", variant="500,000 steps", held_out=held) for held in (False, True)]
    strong = [mujoco("Humanoid-v4", variant=name) for name in ("strong", "strong, 1,000,000 steps")]
    zero = row_of("zero-reward", task="Humanoid-v4")
    cold = [
        row_of("zero-reward", variant="temperature 0.0001", **CART),
        row_of("control", variant="trust adaptive, temperature 0.0001", **CART),
    ]
    plain = [
        mean(row_of("sensitivity", task=task, algorithm="ml-irl", variant=None)["drawdown"])
        for task in ("HalfCheetah-v4", "Hopper-v4")
    ]
    walks = [mean(falls(rows_of("paper-mujoco"), "Walker2d-v4", method)) for method in ("piro", "ml-irl")]
    return [
        f"Of PIRO's {len(ours)} seeds, {sum(float(f'{at:.2f}') >= 0.96 for at, _, _ in ours)} end at 0.96 of the "
        f"demonstration or more. The two lowest are on Walker2d-v4: {ours[0][1]:,.0f} and {ours[1][1]:,.0f} of "
        f"{walker:,.0f}. The lowest of ML-IRL's {len(theirs)} is on HalfCheetah-v4: {theirs[0][1]:,.0f} of "
        f"{cheetah:,.0f}.",
        f"It is sooner than ML-IRL on {WORDS[len(sooner)]} tasks.",
        ", ".join(step.format("ML-IRL " * (place == 0)) for place, step in enumerate(steps)) + ".",
        f"shares from {min(others):.2f} to {max(others):.2f}.",
        "one ends at 9,772",  # of runs that are not in the repository
        f"The mean fall is less than half of ML-IRL's on {WORDS[halves[0]]} tasks, and {ratio('Walker2d-v4'):.2f} "
        f"of it on "
        f"Walker2d-v4. With the seeds 0 to 4 alone it is less than half on {WORDS[halves[1]]} tasks, with 11 to 15 "
        f"alone on "
        f"{WORDS[halves[2]]}.",
        f"ML-IRL's on Humanoid-v4 is {humanoid[0]} with the first five seeds and {humanoid[1]} with five others, "
        f"PIRO's "
        f"{humanoid[2]} and {humanoid[3]}.",
        f"HalfCheetah-v4 with 500,000 steps ends at {each(short[0]['returns'])} with the seeds 0 to 4, but at "
        f"{each(short[1]['returns'])} with 11 to 15; with 1,000,000 steps none of these ten is below "
        f"{min(at for _, at, task in ours if task == 'HalfCheetah-v4'):,.0f}.",
        f"which runs ({strong[0]['expert_return']:,.0f}), PIRO gets {each(strong[0]['returns'])} in 500,000 steps "
        f"and "
        f"{each(strong[1]['returns'])} in 1,000,000.",
        f"a reward of zero stands: {share(zero):.2f} of the packaged demonstration.",
        f"a reward of zero gets {each(cold[0]['returns'])} and PIRO {each(cold[1]['returns'])} ",
        f"C = {float(paper_constant(2, 1.0, 0.9)):,.2f}",
        f"**ML-IRL** falls by {plain[0]:,.0f} and {plain[1]:,.0f} with the same n",
        f"a mean fall of {walks[0]:,.0f}, ML-IRL {walks[1]:,.0f}.",
        f"as a table (EPIC {far('mce', 'table', None)}) and as a network ({far('mce', 'mlp', None)}), and PIRO's "
        f"table lies at {far('piro', 'table', None)}.",
        f"with reward steps of 0.01, at {far('piro', 'mlp', 50)}. Tables lie at "
        f"{min(far(method, 'table', 50) for method in ('piro', 'ml-irl', 'mce', 'trro'))} or more,",
        f"**From 500 episodes** tables come closer too: PIRO's lies at {far('piro', 'table', 500)}, ML-IRL's network "
        f"at {far('ml-irl', 'mlp', 500)}.",
    ]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def text_of(name: str) -> str:
    """As one line, without tables that are generated; of the README what speaks of results."""
    text = (ROOT / name).read_text()
    if name == "README.md":
        text = text[text.index("## What it reaches") : text.index("## Who it is for")]
    return " ".join(GENERATED.sub(" ", text).split())


@pytest.mark.parametrize(("name", "claims"), [("README.md", in_readme), ("docs/results.md", in_results)])
def test_every_number_in_the_text_is_computed(name: str, claims: Any) -> None:
    text = text_of(name)
    for claim in claims():
        assert claim in text, f"{name} should say: {claim}"
        text = text.replace(claim, "")
    left = re.sub(GIVEN, "", text)
    assert not re.findall(r".{0,60}\d.{0,20}", left)


@pytest.mark.parametrize("study", ["paper-mujoco", "ablation", "sensitivity"])
def test_studies_of_the_default_are_of_todays(study: str) -> None:
    """Settings of then that are settings still; what is varied differs in one, and how often one looks in another."""
    aside = {"checkpoint_every", "backend", "evaluation_episodes"}
    for row in (row for row in rows_of(study) if row["algorithm"] != "bc"):
        todays = [asdict(part) for part in groups(ALGORITHMS[row["algorithm"]], row["task"]).values()]
        now = {name: value for part in todays for name, value in part.items()}
        then = {name: value for part in row["settings"].values() for name, value in part.items()}
        differing = {name for name in then.keys() & now.keys() - aside if then[name] != now[name]}
        varied = study != "paper-mujoco" and row.get("variant", "default") != "default"
        assert len(differing) == int(varied), (row["task"], row["algorithm"], row.get("variant"), differing)


def test_meerkats_are_matched_in_sample_and_predicted_by_film_as_well_as_was_asked() -> None:
    rows = {(row["algorithm"], row["reward"], row["previous"], row["split"]): row for row in rows_of("meerkats")}
    for method in ("piro", "ml-irl", "mce", "trro", "mm", "trirl"):
        assert mean(rows[method, "table", False, "in-sample"]["visits"]) <= 2
    assert mean(rows["never leaves", "none", False, "in-sample"]["visits"]) == pytest.approx(4.75, abs=0.01)
    for method, reward in (("piro", "table"), ("ml-irl", "table"), ("mm", "table"), ("tabular cloning", "none")):
        found = rows[method, reward, False, "folds"]
        assert len(found["nll"]) == 25
        assert mean(found["nll"]) <= 1.65
        assert mean(found["flows"]) <= 30
        assert mean(found["visits"]) <= 11
    assert mean(rows["piro", "table", True, "in-sample"]["nll"]) <= 0.45
    counted = rows["tabular cloning", "none", True, "folds"]["nll"]
    assert mean(counted) <= 0.45
    assert mean(counted[:5]) < mean(rows["piro", "table", True, "folds"]["nll"])  # which was not reached by films


def test_what_is_said_of_counting_and_of_rewards_that_are_carried_is_so() -> None:
    rows = {
        (row["algorithm"], row["reward"], row["split"]): row for row in rows_of("meerkats") if not row["previous"]
    }
    piro, counted, still = (
        rows[(*key, "folds")] for key in (("piro", "table"), ("tabular cloning", "none"), ("never leaves", "none"))
    )
    assert mean(piro["nll"]) < mean(counted["nll"])
    assert all(mean(counted[measure]) < mean(piro[measure]) for measure in ("visits", "flows"))
    assert min(mean(piro["visits"]), mean(counted["visits"])) > mean(still["visits"])
    for method, folds in (("piro", 17), ("ml-irl", 23), ("mm", 23)):
        pairs = zip(rows[method, "table", "folds"]["nll"], counted["nll"], strict=True)
        assert sum(ours < theirs for ours, theirs in pairs) == folds
    for measure, near in (("visits", 0.1), ("flows", 0.5), ("nll", 0.02)):
        assert abs(mean(rows["trirl", "table", "folds"][measure]) - mean(counted[measure])) < near
    assert rows["mm", "table", "folds"]["visits"] == rows["ml-irl", "table", "folds"]["visits"]
    uniform = log(25)
    there = [rows["piro", "table", split] for split in ("other camera", "other camera, solved there")]
    assert (
        mean(there[0]["nll"]) > mean(there[1]["nll"]) > mean(rows["tabular cloning", "none", "other camera"]["nll"])
    )
    assert mean(rows["tabular cloning", "none", "other camera"]["nll"]) > uniform
    shut = [rows["piro", "table", split] for split in ("places closed", "places closed, solved again")]
    for row in shut:
        assert len(row["nll"]) == 100  # each of 20 films in each of five deals
    assert all(abs(mean(shut[0][m]) - mean(shut[1][m])) < 0.5 for m in ("visits", "flows", "nll"))


# Settings that are younger than some rows, as they do nothing.
OFF = {"clone_start": 0, "clone_pull": 0.0, "clone_fade": 60_000, "action_margin": None}


def test_what_is_told_of_other_methods_on_robots_holds() -> None:
    def reached(method: str, task: str) -> Row:
        return mujoco(task, method, variant="500,000 steps" if task == "HalfCheetah-v4" else None)

    robots = ("Hopper-v4", "Walker2d-v4", "HalfCheetah-v4")
    assert all(
        min(reached(m, task)["returns"]) > 0.99 * reached(m, task)["expert_return"]
        for m in ("dac", "gail")
        for task in robots
    )
    pairs = [[reached(method, task) for method in ("dac", "piro")] for task in robots]
    soonest = [
        [mean([TABLES["_arrival"](row, seed) for seed in range(len(row["returns"]))]) for row in pair]
        for pair in pairs
    ]
    assert all(dac < piro for dac, piro in soonest)
    swinging = [reached(method, "Walker2d-v4") for method in ("mm", "filter", "hype")]
    assert [sum(value < 0 for value in row["returns"]) for row in swinging] == [2, 2, 1]
    assert all(max(row["returns"]) > 4500 for row in swinging)
    assert [round(TABLES["share"](reached("airl", task)), 2) for task in robots[:2]] == [0.97, 0.74]


def test_scores_on_small_tasks_are_of_todays_defaults() -> None:
    """But for how often a run was saved, and what follows an end where there is none."""
    for row in (row for row in rows_of("control") if row["demo_episodes"] == 1 and "variant" not in row):
        todays = [asdict(part) for part in groups(ALGORITHMS[row["algorithm"]], row["task"]).values()]
        then = OFF | {name: value for part in row["settings"].values() for name, value in part.items()}
        now = {name: value for part in todays for name, value in part.items()}
        aside = {"checkpoint_every"} | ({"termination"} if row["task"] == "Pendulum-v1" else set())
        assert not {name for name in now.keys() - aside if then.get(name) != now[name]}, (
            row["algorithm"],
            row["task"],
        )
        assert row["steps"] == ALGORITHMS[row["algorithm"]].defaults.of(row["task"])["steps"]


def test_results_are_few_and_their_pages_short() -> None:
    studies = [folder for folder in (ROOT / "results").iterdir() if folder.is_dir()]
    assert len(studies) <= 9  # the ninth are animals, of whom no true reward is known
    for study in studies:
        assert {file.name for file in study.iterdir()} <= {"results.json", "curves.csv.gz", "README.md"}
        if (study / "README.md").exists():
            lines = (study / "README.md").read_text().splitlines()
            assert len(lines) <= 50
            assert max(len(line) for line in lines if not line.startswith("|")) <= 118


def test_every_link_of_the_documents_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*/README.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            made = target.startswith("http") or target == "errors.md"  # which `make docs` writes
            assert made or (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
