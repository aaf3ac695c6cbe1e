"""Looks through a built site: every link within it leads somewhere, and nothing is fetched from outside.

python docs/check_site.py build/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Links, anchors and what a browser fetches by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.fetched.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "shortcut icon"):
            self.fetched.append(given["href"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


def problems(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {file: Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} holds no page"]
    for file, page in pages.items():
        where = file.relative_to(site)
        for address in page.fetched:
            if urlsplit(address).netloc:
                found.append(f"{where} fetches {address} from outside")
        for address in (*page.fetched, *page.links):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file.resolve()
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(site.resolve() / target.relative_to(site.resolve())) if target.exists() else None
            if not target.exists():
                found.append(f"{where} leads to {address}, which does not exist")
            elif known and parts.fragment and unquote(parts.fragment) not in known.anchors:
                found.append(f"{where} leads to {address}, and there is no such place on that page")
    return found


if __name__ == "__main__":
    told = problems(Path(sys.argv[1]).resolve())
    print("\n".join(told) or "every link leads somewhere, and nothing is fetched from outside")
    sys.exit(bool(told))
