"""Worlds counted from tables: what is counted, what is forbidden, what is said, and what is refused."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import trustirl as ti
from tests.worlds.tables import DEEDS, HOW, PLACES, as_csv, birds
from trustirl.cli.main import main
from trustirl.rl.exact import NEVER, discounted_entropy, evaluate, occupancy, solve
from trustirl.tasks.counting import MOVE


def world(**changes: Any) -> ti.World:
    return ti.World.from_table(birds(), **(HOW | changes))


@pytest.fixture(scope="module")
def moved() -> ti.World:
    return world()


def test_rows_become_steps_with_names(moved: ti.World) -> None:
    steps = moved.steps
    assert steps.levels == (tuple(sorted(PLACES)), ("below 3", "from 3"))
    assert steps.actions == (*sorted(DEEDS), *(MOVE + place for place in sorted(PLACES)))
    assert len(steps.ends) == 12  # of six birds, each split where it was gone
    assert any("6 tracks split at gaps into 12 segments" in note for note in moved.notes)
    table = birds()
    wind, minute = table["wind"][:14] >= 3, table["minute"][:15]
    assert (np.diff(minute) == 1).all()
    places = [sorted(PLACES).index(place) for place in table["place"][:15]]
    assert steps.obs[:14].tolist() == [2 * place + w for place, w in zip(places, wind, strict=False)]
    for step in range(14):
        left = places[step + 1] != places[step]
        expected = MOVE + table["place"][step + 1] if left else table["deed"][step]
        assert steps.actions[steps.action[step]] == expected


def test_what_follows_is_counted_with_the_prior(moved: ti.World) -> None:
    steps, kernel, prior = moved.steps, moved.kernel, 2.0
    place, wind = np.unravel_index(np.arange(6), (3, 2))
    for state in range(6):
        for action in range(6):
            to = place[state] if action < 3 else action - 3
            there = place[steps.after] == to
            usual = np.array([(there & (wind[steps.after] == w)).sum() for w in (0, 1)]) / there.sum()
            here = there & (wind[steps.state] == wind[state])
            counts = np.array([(here & (wind[steps.after] == w)).sum() for w in (0, 1)])
            expected = (counts + prior * usual) / (counts.sum() + prior)
            row = kernel.which[state, action]
            assert kernel.successors[row].tolist() == [2 * to, 2 * to + 1]
            np.testing.assert_allclose(kernel.probabilities[row], expected, rtol=1e-12)


def test_without_moves_each_state_and_action_is_counted() -> None:
    plain = world(moves="", prior=0.5)
    steps, kernel = plain.steps, plain.kernel
    assert kernel.allowed.all()
    for state in range(6):
        for action in range(3):
            row = kernel.which[state, action]
            for after in np.unique(kernel.successors[row]):
                left = steps.state == state
                if not left.any() or not (left & (steps.after == after)).any():
                    continue
                usual = (left & (steps.after == after)).sum() / left.sum()
                here = left & (steps.action == action)
                seen = (here & (steps.after == after)).sum()
                expected = (seen + 0.5 * usual) / (here.sum() + 0.5)
                found = kernel.probabilities[row, kernel.successors[row] == after].sum()
                np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.probabilities.sum(axis=1), 1)


def test_moves_that_never_happened_are_never_made(moved: ti.World) -> None:
    places = list(moved.steps.levels[0])
    nest, wood = places.index("гнездо"), places.index("wood")
    forbidden = moved.kernel.allowed.reshape(3, 2, 6)
    assert not forbidden[nest, :, 3 + wood].any()
    assert not forbidden[wood, :, 3 + nest].any()
    assert all(not forbidden[place, :, 3 + place].any() for place in range(3))
    with ti.double_precision():
        mdp = moved.task.mdp
        tempting = jnp.where(mdp.allowed, 0.0, 50.0)
        policy = solve(mdp, tempting)
        prob = np.exp(policy.log_prob)
        assert (prob[~moved.kernel.allowed] == 0).all()
        np.testing.assert_allclose(prob.sum(axis=1), 1)
        assert (np.asarray(policy.log_prob)[~moved.kernel.allowed] == NEVER).all()
        # The value is that of the policy, so nothing was paid or counted for what cannot be done.
        np.testing.assert_allclose(evaluate(mdp, policy.log_prob, tempting, mdp.temperature), policy.value, atol=1e-8)
        assert np.isfinite(discounted_entropy(occupancy(mdp, policy.log_prob), policy.log_prob))
    assert world(mask=False).kernel.allowed.all()


@pytest.mark.parametrize("previous", [False, True])
def test_shared_lists_say_the_same_as_plain_ones(previous: bool) -> None:
    with ti.double_precision():
        mdp = world(previous=previous).task.mdp
        reward = jnp.asarray(np.random.default_rng(0).normal(size=(mdp.states, mdp.actions)))
        short, long = (solve(m, reward) for m in (mdp, replace(mdp, shared=None)))
        np.testing.assert_allclose(short.log_prob, long.log_prob, atol=1e-9)
        visits = [occupancy(m, short.log_prob) for m in (mdp, replace(mdp, shared=None))]
        np.testing.assert_allclose(*visits, atol=1e-9)


def test_what_was_done_before_is_part_of_the_state() -> None:
    steps, kernel = (remembering := world(previous=True, window=5)).steps, remembering.kernel
    assert steps.before is not None
    assert steps.states == 36
    inside = np.setdiff1d(np.arange(len(steps.obs)), steps.starts)
    np.testing.assert_array_equal(steps.before[inside], steps.action[inside - 1])
    np.testing.assert_array_equal(steps.obs[inside], remembering.demos.next_observations[inside - 1])
    after = kernel.successors[kernel.which]  # [states, actions, successors]
    assert (after % 6 == np.arange(6)[None, :, None]).all()
    assert set(np.diff(steps.ends, prepend=0)) == {5}


def test_the_environment_does_what_the_known_world_says(moved: ti.World) -> None:
    env, random = moved.env(), np.random.default_rng(0)
    visits, horizon = np.zeros(6), moved.task.horizon
    for episode in range(800):
        obs, info = env.reset(seed=episode)
        done = False
        while not done:
            assert obs.sum() == 2
            visits[info["state"]] += 1
            obs, reward, terminated, done, info = env.step(random.integers(6))
            assert (reward, terminated) == (0.0, False)
    chosen = np.where(moved.kernel.allowed, moved.kernel.which, moved.kernel.which[:, :1])
    flow = np.zeros((6, 6))
    for state in range(6):
        for row in chosen[state]:
            np.add.at(flow[state], moved.kernel.successors[row], moved.kernel.probabilities[row] / 6)
    now, expected = moved.kernel.initial, np.zeros(6)
    for _ in range(horizon):
        expected, now = expected + now, now @ flow
    np.testing.assert_allclose(visits / visits.sum(), expected / horizon, atol=0.015)


def test_every_kind_of_table_says_the_same(tmp_path: Path, moved: ti.World) -> None:
    columns = birds()
    np.savez(tmp_path / "t.npz", **columns)
    names, codes = np.unique(columns["place"], return_inverse=True)
    np.savez(tmp_path / "coded.npz", **(columns | {"place": codes, "place_names": names}))
    sources: list[Any] = [as_csv(tmp_path / "t.csv", columns), tmp_path / "t.npz", tmp_path / "coded.npz"]
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    table = arrow.table({name: column.tolist() for name, column in columns.items()})
    parquet.write_table(table, tmp_path / "t.parquet")
    for source in [*sources, tmp_path / "t.parquet", {name: column.tolist() for name, column in columns.items()}]:
        other = ti.World.from_table(source, **HOW).steps
        assert other.levels == moved.steps.levels
        np.testing.assert_array_equal(other.obs, moved.steps.obs)
        np.testing.assert_array_equal(other.action, moved.steps.action)


def test_rows_in_any_order_say_the_same(moved: ti.World) -> None:
    order = np.random.default_rng(1).permutation(len(birds()["bird"]))
    shuffled = ti.World.from_table({name: column[order] for name, column in birds().items()}, **HOW)
    assert sorted(shuffled.steps.obs.tolist()) == sorted(moved.steps.obs.tolist())
    np.testing.assert_allclose(shuffled.kernel.probabilities, moved.kernel.probabilities)


def test_counts_bins_and_rows_to_drop() -> None:
    rows = {"id": [1, 1, 1, 1, 1], "t": [0, 1, 2, 3, 4], "do": ["a", "b", "None", "a", "b"]}
    rows["near"] = ["{}", "{3}", "{3, 4}", "{1, 2, 3, 4}", "{1}"]
    asked: dict[str, Any] = {"states": "near", "actions": "do", "episode": "id", "time": "t", "bins": {"near": 2}}
    assert ti.World.from_table(rows, **asked).steps.state.tolist() == [0, 1, 2, 2]
    cut = ti.World.from_table(rows, **asked, drop={"do": "None"})
    assert cut.steps.levels == (("0", "1", "2+"),)
    assert cut.steps.state.tolist() == [0, 2]  # the row that is left out splits the track
    assert cut.notes[0] == "1 row dropped, 4 kept"


def test_what_the_data_cannot_say_is_said(moved: ti.World) -> None:
    told = ". ".join(moved.notes)
    for words in (
        "states are ever visited",
        "moves never seen, and forbidden",
        "independent ones would",
        "two halves",
    ):
        assert words in told
    assert "never taken" in ". ".join(world(window=2).notes) or len(set(world(window=2).steps.action)) == 6


@pytest.mark.parametrize(
    ("changes", "asked", "words"),
    [
        ({}, {"actions": "dead"}, "unknown column 'dead': did you mean 'deed'"),
        ({"deed": np.full(180, "rests")}, {}, "holds nothing but 'rests'"),
        ({"minute": np.arange(180) * 100 % 977}, {"window": 9}, "no track has a window of 9 steps"),
        ({"minute": birds()["minute"] % 5}, {}, "has the time of another row of its episode"),
        ({"minute": np.full(180, "noon")}, {}, "of times holds texts"),
        ({}, {"episode": []}, "the time goes back at row 30"),
        ({}, {"moves": "nest"}, "moves must name a column of the state"),
        ({}, {"bins": {}}, "numbers with fractions; give it edges"),
        ({}, {"bins": {"wind": [3.0, 1.0]}}, "edges that rise"),
        ({}, {"bins": {"wind": [3.0], "deed": [1.0]}}, "texts such as"),
        ({}, {"bins": {"wind": [3.0], "bird": 3}}, "bins are of columns of the state"),
        ({}, {"drop": {"deed": "flies"}}, "no row has deed = 'flies'"),
        ({}, {"drop": {"deed": list(DEEDS)}}, "no row is left"),
        ({"place": np.array([*birds()["place"][:-1], ""])}, {}, "has empty cells"),
        ({"deed": np.array([*birds()["deed"][:-1], None], object)}, {}, "has 1 empty cell"),
        ({"deed": birds()["deed"][:9]}, {}, "has the shape"),
        ({}, {"states": []}, "name them"),
        ({}, {"prior": -1.0}, "prior must be"),
        ({"wind": np.full(180, np.nan)}, {}, "not finite"),
        ({"place": np.arange(2000) % 1500}, {}, "at most 1,000 are categories"),
    ],
)
def test_bad_tables_are_refused_in_a_sentence(changes: dict[str, Any], asked: dict[str, Any], words: str) -> None:
    table = birds() | changes
    if len(table["place"]) > 180:
        table = {name: np.resize(column, 2000) for name, column in table.items()} | {"minute": np.arange(2000)}
        table["bird"] = np.zeros(2000, int)
    with pytest.raises(ti.InputError, match=words) as refused:
        ti.World.from_table(table, **(HOW | asked))
    assert str(refused.value).count(". ") == 0


def test_a_table_that_is_too_long_or_none_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "long.csv").open("w") as file:
        file.write("bird,minute,place,wind,deed\n" + "\n" * 5_000_002)
    for source, words in ((tmp_path / "long.csv", "more than 5,000,000 rows"), (7, "and int is none")):
        with pytest.raises(ti.InputError, match=words):
            ti.World.from_table(source, **HOW)


@pytest.mark.slow
def test_one_command_gives_a_run_that_knows_its_table_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = as_csv(tmp_path / "birds.csv", birds())
    ask = "--states place,wind --actions deed --episode bird --time minute --bins wind=3.0 --moves place --window 6"
    out = ["--out", str(tmp_path / "run"), "--steps", "4", "--no-compare", "--bootstrap", "3"]
    main(["train", "piro", "--table", str(file), *ask.split(), *out])
    told = capsys.readouterr()
    assert "split at gaps" in told.err
    assert told.out.startswith("ell -")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["task"] == "table"
    assert len(config["task_args"]["sha256"]) == 64
    run = ti.load(tmp_path / "run")
    assert run.reward.table().shape == (6, 6)
    page = (run.path / "report.html").read_text()
    for words in (*PLACES, *DEEDS, "What they seem to want", "What if a place were closed", "bird 3", "As time goes"):
        assert words in page
    told = json.loads((run.path / "table.json").read_text())
    assert sum(place["seen"] for place in told["places"]) == pytest.approx(1)
    for closed in told["closed"]:  # nobody is where nobody can go
        there = [place["name"] for place in told["places"]].index(closed["name"])
        assert closed["model"][there] == 0
        assert sum(closed["model"]) == pytest.approx(1)
    assert all(place["low"] <= place["high"] for place in told["places"])
    (tmp_path / "run" / "summary.json").unlink()
    as_csv(file, birds(seed=1))
    with pytest.raises(ti.InputError, match="changed since the run began"):
        ti.resume(tmp_path / "run")
    with pytest.raises(SystemExit) as stop:
        main(["train", "piro", "--table", str(file), "--states", "place", "--actions", "dead"])
    assert stop.value.code == 2
    assert "did you mean 'deed'" in capsys.readouterr().err


def test_a_table_in_memory_is_kept_in_the_run(tmp_path: Path) -> None:
    run = ti.train("mce", world(window=6), steps=2, out=tmp_path / "run")
    file = run.path / "table.npz"
    assert run.config["task_args"]["file"] == str(file.absolute())
    again = ti.World.from_table(file, **(HOW | {"window": 6}))
    np.testing.assert_array_equal(again.steps.obs, world(window=6).steps.obs)
    assert -100 < run.summary["ell"][0] < 0
    with pytest.raises(ti.InputError, match="demonstrated by the table itself"):
        ti.train("mce", world(), again.demos, out=tmp_path / "other")


def test_with_a_table_of_rewards_nothing_beats_counting(moved: ti.World) -> None:
    """The logarithm of the counted policy is a reward for which that policy is the best answer (theory: V = 0)."""
    counts, mdp = moved.task.table.policy, moved.task.mdp
    np.testing.assert_allclose(counts.sum(axis=1), 1)
    assert (counts[~moved.kernel.allowed] == 0).all()
    with ti.double_precision():
        answer = solve(mdp, jnp.log(jnp.where(mdp.allowed, counts, 1.0)))
        np.testing.assert_allclose(np.exp(answer.log_prob), counts, atol=1e-9)
        np.testing.assert_allclose(answer.value, 0, atol=1e-9)


@pytest.mark.slow  # opens environments and compiles; that the environment is the known world is quickly tested
def test_sampled_methods_learn_on_the_environment(tmp_path: Path) -> None:
    small: dict[str, Any] = {"width": 8, "depth": 1, "updates": 10, "fit_batch": 16, "evaluation_episodes": 2}
    run = ti.train("bc", world(window=6), steps=20, out=tmp_path / "bc", **small)
    assert run.config["task"] == "TableWorld-v0"
    assert run.summary["returns"] == [0.0]
    assert 0 <= int(run.policy.predict(np.zeros(5, np.float32), deterministic=True)[0]) < 6
    returns = ti.load(run.path).evaluate(episodes=2).returns
    assert returns.shape == (1, 2)


@pytest.mark.slow  # two runs, one of them with rewards of groups drawn anew
@pytest.mark.usefixtures("drawn")
def test_the_tutorial_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/tables.md", "exec"), names)
    assert (tmp_path / "runs" / "birds" / "report.html").exists()
    assert (tmp_path / "birds.pdf").stat().st_size > 1000
    command = re.search(r"```\n(trustirl train piro --table .*?)\n```", text)
    assert command
    main([*shlex.split(command[1])[1:], "--steps", "2", "--no-compare", "--out", "runs/command"])
    assert (tmp_path / "runs" / "command" / "table.json").exists()
