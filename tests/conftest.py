"""Test set-up: float64 for the exact world, reproducible examples, how many of them by TRUSTIRL_EXAMPLES."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from html import escape
from pathlib import Path
from typing import IO, Any

# Tests compile the same small programs many times; what one has compiled, the others (and the processes they start)
# read. Workers inherit the variable from the process that collects, which removes the folder in the end.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache = tempfile.mkdtemp(prefix="trustirl-tests-")
    atexit.register(shutil.rmtree, _cache, ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

import jax
import jaxtyping
import pytest
from hypothesis import HealthCheck, settings
from jax._src.interpreters import mlir
from matplotlib.figure import Figure

from trustirl.core import compiling
from trustirl.report import html
from trustirl.report.drawing import LAYOUTS

TESTS = Path(__file__).parent
PLUGIN = TESTS / "plugin"  # an installed package with an algorithm, which all tests see
sys.path.append(str(PLUGIN))

jax.config.update("jax_enable_x64", True)
gc.set_threshold(200_000, 20, 100)  # tracing makes many small objects that live long; a tenth of the time

settings.register_profile(
    "trustirl",
    max_examples=int(os.environ.get("TRUSTIRL_EXAMPLES", "200")),
    deadline=None,  # the first example of a shape compiles
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("trustirl")


CHROMIUM_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

COMPUTE_MUCH = {"test_monotone"}  # the others compile much and compute little
# Each is work of one process; begun at the end it would keep the others waiting.
LONGEST = ("theory/test_monotone", "control/test_runs", "runs/test_folder", "runs/test_fuzz", "worlds/test_unpaid")
WHOLE_RUNS = {"bench", "control", "runs", "worlds"}  # of what the other folders test part by part


SAVE = Figure.savefig


@contextmanager
def _undrawn() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", _write_labels)
        patch.setattr(html, "LAYOUTS", LAYOUTS[:1])
        yield


def _write_labels(figure: Figure, file: IO[str], **_options: Any) -> None:
    labels = [label for axes in figure.axes for label in (axes.get_title(), axes.get_xlabel(), axes.get_ylabel())]
    file.write(f"<svg>{escape(' '.join(labels))}</svg>")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at the drawings of runs, which have none otherwise."""
    monkeypatch.setattr(Figure, "savefig", SAVE)
    monkeypatch.setattr(html, "LAYOUTS", LAYOUTS)


@pytest.fixture
def words_only() -> Iterator[None]:
    """For tests that read a page and do not look at its drawings, which take seconds."""
    with _undrawn():
        yield


@pytest.fixture(autouse=True, scope="module")
def _write_pages_quickly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs leave pages painted for one width and not drawn; processes that tests start draw, as do tests of pages."""
    with nullcontext() if request.path.parent.name == "report" else _undrawn():
        yield


@pytest.fixture(autouse=True, scope="module")
def _check_types_of_parts(request: pytest.FixtureRequest) -> Iterator[None]:
    """In `make test` whole runs go without: checking types is a fourth of the time that it takes to trace them."""
    quick = request.config.getoption("markexpr") == "not slow" and request.path.parent.name in WHOLE_RUNS
    jaxtyping.config.update("jaxtyping_disable", quick)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def compiled_quickly(file: Path) -> bool:
    """Whether tests of this file have their programs compiled in less time than makes them fastest."""
    return file.stem not in COMPUTE_MUCH


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first."""
    first = [TESTS / f"{name}.py" for name in LONGEST]
    items.sort(key=lambda item: item.path not in first)


@pytest.fixture(autouse=True, scope="module")
def _compile_quickly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Here and in the processes that tests start, so that both compute the same bits."""
    quick = compiled_quickly(request.path)
    if quick != jax.config.read("jax_disable_most_optimizations"):
        jax.clear_caches()  # of other modules, whose programs round differently
        jax.config.update("jax_disable_most_optimizations", quick)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(quick))
        yield


@pytest.fixture(autouse=True, scope="module")
def _lower_quickly() -> Iterator[None]:
    """Programs of one file are written down in one context of MLIR, which takes 5 ms to make.

    JAX makes one per program, so that none keeps what the others have written.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlir, "make_ir_context", cache(mlir.make_ir_context))
        yield


@pytest.fixture(autouse=True, scope="module")
def _forget_programs() -> Iterator[None]:
    """Tests compile much that no run does. More is kept than a user's process keeps: files compute alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "MANY_MAPPINGS", 20_000)
        yield
        compiling.forget_old_programs()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        reason = f"browser test not run: {' and '.join(missing)} not found on PATH"
        print(reason)
        pytest.skip(reason)
    webdriver = pytest.importorskip("selenium.webdriver", reason="browser test not run: selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for flag in (*CHROMIUM_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs["chromedriver"]))
    yield driver
    driver.quit()


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Say something in the closing summary; plain prints are lost between parallel workers."""
    return lambda sentence: record_property("tell", sentence)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests told."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, sentence in report.user_properties:
            if name == "tell" and report.when == "call":
                terminalreporter.write_line(sentence)
