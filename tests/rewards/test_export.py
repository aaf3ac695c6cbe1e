"""`trustirl reward export`: a reward as a folder of its own."""

from pathlib import Path

import numpy as np
import pytest

import trustirl as ti
from trustirl.cli.main import main


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the exact world, of two seeds."""
    folder = tmp_path_factory.mktemp("runs") / "chain"
    ti.train("ml-irl", task="chain", steps=3, seeds=2, compare=False, out=folder)
    return folder


@pytest.mark.slow
def test_an_exported_reward_is_the_runs(chain: Path, tmp_path: Path) -> None:
    main(["reward", "export", str(chain), "--out", str(tmp_path / "shared")])
    table = ti.load_reward(tmp_path / "shared").table()
    np.testing.assert_array_equal(table, ti.load(chain).reward.table())


def test_an_export_replaces_nothing_unasked(chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ["reward", "export", str(chain), "--out", str(tmp_path / "shared")]
    main(arguments)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "already holds a reward" in capsys.readouterr().err
    main([*arguments, "--overwrite"])
