"""What a suite asks and how it is planned: nothing runs before everything was checked."""

import json
from pathlib import Path

import pytest

from tests.bench.small import GRID, TWO, suite, trustirl
from tests.control.small import SETTINGS, pendulum_demo
from trustirl.algorithms import ALGORITHMS
from trustirl.bench import plan as planning
from trustirl.bench.plan import chosen, command_line, plan
from trustirl.bench.suites import COLUMNS, SUITES, THEORETICAL_C, Question, Suite, find_suite
from trustirl.core.errors import InputError
from trustirl.training.asking import train_question

JOB = GRID + "[[jobs]]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs = [", "is not valid TOML"),
        ("jobs = []", "at least one [[jobs]] table"),
        ("jobs = [1]", "job 1 of"),
        ("jbos = []", "did you mean 'jobs'"),
        (GRID, "at least one [[jobs]] table"),
        (JOB + "algorithm = 'pirro'", "did you mean 'piro'"),
        (JOB + "algorithm = 'piro'\ntask = 'gridwold'", "did you mean 'gridworld'"),
        (JOB + "algorithm = 'piro'\ntask = 'Hoper-v4'", "did you mean 'Hopper-v4'"),
        (JOB + "seeds = 2", "has no algorithm"),
        (JOB + "algorithm = 'piro'\nsede = 2", "did you mean 'seeds'"),
        (JOB + "algorithm = 'piro'\nseeds = '2'", "seeds of job 1 of"),
        (JOB + "algorithm = 'piro'\nsteps = true", "must be a whole number, got True"),
        (JOB + "algorithm = 'piro'\nseeds = 0", "seeds must be at least 1"),
        (JOB + "algorithm = 'piro'\noverrides = {tarjet = 1}", "did you mean 'target'"),
        (JOB + "algorithm = 'piro'\noverrides = {target = 'much'}", "job 'gridworld-piro' of grid"),
        (JOB + "algorithm = 'piro'\noverrides = {out = 'x'}", "unknown setting of piro"),
        (JOB + "algorithm = 'piro'\ntask_args = {seize = 3}", "did you mean 'size'"),
        (JOB + "algorithm = 'piro'\ndemos = 'none.npz'", "does not exist"),
        (JOB + "algorithm = 'trro'\ntask = 'CartPole-v1'\ntask_args = {}", "needs a known MDP"),
        (JOB + "algorithm = 'piro'\n[[jobs]]\nalgorithm = 'piro'", "give them different labels"),
    ],
)
def test_a_bad_suite_is_one_sentence_and_nothing_is_written(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trustirl("bench", suite(tmp_path, text), "--out", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["smok"], "did you mean 'smoke'"),
        (["none.toml"], "does not exist; name a suite or"),
        (["SUITE", "--only", "walker"], "matches no job; there are gridworld-piro, gridworld-ml-irl-small-step"),
        (["SUITE", "--workers", "0"], "workers must be at least 1"),
        (["SUITE", "--address", "auto"], "add --executor ray"),
        (["SUITE", "--executor", "slurm"], "local"),
        (["SUITE", "--out", "FILE"], "is a file"),
        ([], "SUITE"),
    ],
)
def test_a_bad_command_is_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"SUITE": str(suite(tmp_path, TWO)), "FILE": str(tmp_path / "grid.toml")}
    told = ["--out", str(tmp_path / "out")] if "--out" not in arguments else []
    assert trustirl("bench", *(places.get(word, word) for word in arguments), *told) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_another_suite_or_another_question_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    found = find_suite(str(suite(tmp_path, TWO)))
    jobs = [job.record() for job in plan(found, tmp_path)]
    (tmp_path / "bench.json").write_text(json.dumps({"format": 1, "suite": "grid", "jobs": jobs}))
    assert [job.record() for job in plan(found, tmp_path)] == jobs
    with pytest.raises(InputError, match="holds the suite 'grid', not 'other'"):
        plan(find_suite(str(suite(tmp_path, TWO.replace('"grid"', '"other"'), "other.toml"))), tmp_path)
    changed = find_suite(str(suite(tmp_path, TWO.replace("steps = 3", "steps = 4"))))
    with pytest.raises(InputError, match=r"job 'gridworld-piro' of grid: .*steps changed"):
        plan(changed, tmp_path)


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trustirl("bench", suite(tmp_path, TWO), "--out", tmp_path / "out", "--dry-run", "--only", "*-piro") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["Job", "State", "Seeds", "Steps", "Runs", "Memory", "Time", "left"]
    assert [row.split()[:4] for row in rows] == [["gridworld-piro", "new", "2", "3"]]
    assert "(rough)" in rows[0]
    assert not (tmp_path / "out").exists()


def pendulum(tmp_path: Path, **changes: object) -> Suite:
    pendulum_demo().save(tmp_path / "demos.npz")
    small = {name: value for name, value in SETTINGS.items() if name != "backend"}
    asked = {"demos": str(tmp_path / "demos.npz"), "steps": 1000, "seeds": 5, "overrides": small} | changes
    return Suite("pendulum", (Question("piro", "Pendulum-v1", **asked),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seeds_that_fit", "workers", "parts"),
    [
        (5, 1, [(0, 5)]),
        (4, 1, [(0, 2), (2, 3)]),
        (4, 2, [(0, 1), (1, 2), (3, 2)]),
        (1, 1, [(k, 1) for k in range(5)]),
    ],
)
def test_seeds_are_split_where_memory_is_short(
    seeds_that_fit: int,
    workers: int,
    parts: list[tuple[int, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = pendulum(tmp_path)
    need = plan(asked, tmp_path)[0].bytes_per_seed
    assert need == 1000 * 4 * (3 + 1 + 1 + 3) + 1000  # observation, action, weight, next observation, and a flag
    monkeypatch.setattr(planning, "free_bytes", lambda: int(seeds_that_fit * need / planning.MOST) + 1)
    (job,) = plan(asked, tmp_path, workers)
    assert [(part.first_seed, part.seeds) for part in job.parts] == parts
    assert job.memory == need * max(seeds for _, seeds in parts)
    for part in job.parts:
        told = train_question(list(job.arguments(part)[1:]))
        assert (told["first_seed"], told["seeds"]) == (part.first_seed, part.seeds)
    # What was decided stays, however much memory the next call finds.
    (tmp_path / "bench.json").write_text(json.dumps({"format": 1, "suite": "pendulum", "jobs": [job.record()]}))
    monkeypatch.setattr(planning, "free_bytes", lambda: 10**12)
    assert plan(asked, tmp_path)[0].parts == job.parts


def test_further_seeds_are_numbered_from_the_first_one_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = pendulum(tmp_path, first_seed=11)
    (job,) = plan(asked, tmp_path)
    assert [(part.first_seed, part.seeds) for part in job.parts] == [(11, 5)]
    assert "--seeds 5 --first-seed 11" in job.record()["command"]
    monkeypatch.setattr(planning, "free_bytes", lambda: int(4 * job.bytes_per_seed / planning.MOST) + 1)
    (split,) = plan(asked, tmp_path)
    assert [(part.first_seed, part.seeds) for part in split.parts] == [(11, 2), (13, 3)]
    assert [part.name for part in split.parts] == ["Pendulum-v1-piro-seeds-11-12", "Pendulum-v1-piro-seeds-13-15"]


def test_a_folder_of_a_version_without_first_seeds_is_gone_on_with(tmp_path: Path) -> None:
    asked = pendulum(tmp_path)
    record = {key: value for key, value in plan(asked, tmp_path)[0].record().items() if key != "first_seed"}
    (tmp_path / "bench.json").write_text(json.dumps({"format": 1, "suite": "pendulum", "jobs": [record]}))
    assert len(plan(asked, tmp_path)) == 1
    with pytest.raises(InputError, match=r"first_seed changed"):
        plan(pendulum(tmp_path, first_seed=5), tmp_path)


def test_a_job_that_cannot_fit_with_one_seed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "free_bytes", lambda: 10**9)
    with pytest.raises(InputError, match=r"job 'Pendulum-v1-piro' of pendulum: the replay of one seed needs .* GiB"):
        plan(pendulum(tmp_path, steps=10**9), tmp_path)


def test_settings_survive_the_command_line() -> None:
    asked = Question(
        "piro",
        "CartPole-v1",
        "some demos.npz",
        2,
        "longest",
        70_000,
        3,
        8,
        {"sutton_barto_reward": True, "offset": -1e-7},
        {"target": 1e-7, "layer_norm": False, "trust": "adaptive", "reward_width": 32, "replay": 60_000},
    )
    told = train_question(command_line(asked))
    assert (told["demos"], told["demo_episodes"], told["demo_choice"]) == ("some demos.npz", 2, "longest")
    assert (told["steps"], told["seeds"], told["first_seed"], told["task_args"]) == (70_000, 3, 8, asked.task_args)
    assert {name: told[name] for name in asked.overrides} == asked.overrides


@pytest.mark.parametrize("name", SUITES)
def test_built_in_suites_ask_what_train_understands(name: str) -> None:
    asked = find_suite(name).questions
    assert len({entry.name for entry in asked}) == len(asked) >= 2
    for entry in asked:
        told = train_question(command_line(entry))
        assert {name: told[name] for name in entry.overrides} == entry.overrides


def test_both_constants_on_cartpole_run_under_the_conditions_of_the_papers_with_one_difference() -> None:
    *asked, beside = find_suite("cartpole-c").questions
    assert beside.algorithm == "bc"
    weights = {"mu", "mu_min", "mu_max"}
    for theoretical, adaptive in zip(asked[::2], asked[1::2], strict=True):
        one, other = theoretical.overrides, adaptive.overrides
        assert {name for name in one if one[name] != other[name]} == weights
        assert (one["discount"], one["reward_bound"]) == (0.9, 1.0)
        assert {one[name] for name in weights} == {THEORETICAL_C}
    asked_of = {(entry.overrides["trust"], entry.overrides["temperature"]) for entry in asked}
    assert asked_of == {(trust, heat) for trust in ("adaptive", "monotone") for heat in (1.0, 1e-4)}


def test_the_papers_suite_has_every_algorithm_that_there_is() -> None:
    asked = find_suite("paper-mujoco").questions
    assert {entry.algorithm for entry in asked} == {"piro", "ml-irl"} | {
        name for name in COLUMNS if name in ALGORITHMS
    }
    assert len(asked) == 5 * len({entry.algorithm for entry in asked})
    assert all(entry.demo_episodes == 1 and entry.seeds == 5 for entry in asked)


@pytest.mark.parametrize(
    ("patterns", "found"),
    [([], 2), (["piro"], 1), (["ml-irl*"], 0), (["*ml-irl*"], 1), (["piro", "small"], 2)],
)
def test_only(patterns: list[str], found: int, tmp_path: Path) -> None:
    asked = find_suite(str(suite(tmp_path, TWO))).questions
    if found:
        assert len(chosen(asked, patterns)) == found
    else:
        with pytest.raises(InputError, match="matches no job"):
            chosen(asked, patterns)


def test_what_is_not_wanted_need_not_be_there(tmp_path: Path) -> None:
    extended = TWO + "[[jobs]]\nalgorithm = 'piro'\ndemos = 'none.npz'\nlabel = 'mine'"
    (job,) = plan(find_suite(str(suite(tmp_path, extended))), tmp_path, only=["*ml-irl*"])
    assert job.name == "gridworld-ml-irl-small-step"
