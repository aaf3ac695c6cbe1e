"""The documentation: its page of messages, what checks its links, and the built site in a browser."""

import json
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
messages, render = (getattr(import_module("error_pages"), name) for name in ("messages", "render"))
problems = import_module("check_site").problems


def test_every_kind_of_message_is_on_the_page() -> None:
    page = render()
    assert "missing or extra" not in page
    assert "no reward update fits into ‹step›; use at least ‹least›, or fewer steps\\_per\\_iteration." in page
    assert "‹path› already holds a run; choose another --out" in page


def test_what_is_filled_in_is_named_and_plain_variables_are_left_out() -> None:
    source = """
raise InputError(f"at most {MOST:,} of {count(given.steps, 'step')}" " are" + " read.")
raise InputError(why)
"""
    assert list(messages(source)) == [("InputError", "at most ‹MOST› of ‹step› are read.")]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<a href="other.html#here">x</a><h1 id="here">', ""),
        ('<a href="gone.html">x</a>', "leads to gone.html, which does not exist"),
        ('<a href="#nowhere">x</a>', "there is no such place"),
        ('<a href="other.html#nowhere">x</a>', "there is no such place"),
        ('<script src="https://elsewhere.example/x.js"></script>', "from outside"),
        ('<a href="https://elsewhere.example/">x</a>', ""),
    ],
)
def test_links_are_followed(tmp_path: Path, body: str, complaint: str) -> None:
    (tmp_path / "index.html").write_text(body)
    (tmp_path / "other.html").write_text('<p id="here"></p>')
    told = problems(tmp_path)
    assert len(told) == bool(complaint)
    assert complaint in "".join(told)


@pytest.mark.slow
def test_every_page_opens_without_complaint(tmp_path: Path, browser: Any) -> None:
    if find_spec("sphinx") is None:
        pytest.skip("the site is not built: run make test-all, which installs the docs extra")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", ".", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    shutil.rmtree(ROOT / "jupyter_execute", ignore_errors=True)
    assert problems(tmp_path / "site") == []
    pages = sorted((tmp_path / "site").rglob("*.html"))
    for width in (390, 1300):
        browser.set_window_size(width, 900)
        for page in pages:
            browser.get(page.as_uri())
            wide = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{page.name} is wider than a window of {width}"
            assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == [], page.name
            for entry in browser.get_log("performance"):
                message = json.loads(entry["message"])["message"]
                if message["method"] == "Network.requestWillBeSent":
                    assert message["params"]["request"]["url"].startswith(("file:", "data:", "blob:", "chrome:")), (
                        page
                    )
