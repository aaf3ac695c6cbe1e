"""Writes docs/errors.md: every message of an error that a user can meet, read off the code that raises it.

python docs/error_pages.py
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "trustirl"
RAISED = {
    "InputError": 2,
    "DemoError": 2,
    "RewardError": 2,
    "NumericalError": 3,
    "TrustIRLError": 1,
    "Interrupted": 1,
}
ROOMS = {
    "cli": "On the command line",
    "training": "Asking for a run",
    "worlds": "Task, demonstrations and algorithm together",
    "algorithms": "Settings of algorithms",
    "core": "Files, folders and settings",
    "demos": "Demonstrations",
    "tasks": "Tasks",
    "rollouts": "Environments",
    "irl": "How experience is gathered",
    "rl": "Settings of the solver",
    "nets": "Networks",
    "evaluation": "Statistics and comparisons",
    "rewards": "Learned rewards",
    "runs": "Runs on disk",
    "report": "Reports",
    "bench": "Suites of experiments",
}
HEAD = """\
# Messages

Every message of an error that TrustIRL raises on purpose, as the code has it; what stands between ‹ › is filled in.
Each says what is wrong and, after the semicolon or colon, what to do. On the command line it is one line, and the
exit code is 2 for bad input (`InputError`, `DemoError`, `RewardError`), 3 for a number that is not finite
(`NumericalError`), 1 for anything else. Search this page for the words of yours.
"""


def messages(source: str) -> Iterator[tuple[str, str]]:
    """The kind and the text of every error that is raised in a module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in RAISED:
            continue
        if node.args and (text := said(node.args[0])):
            yield node.func.id, text


def said(node: ast.expr) -> str:
    """A text of which parts are filled in; nothing where all of it is."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [str(p.value) if isinstance(p, ast.Constant) else f"‹{filled(p)}›" for p in node.values]
        text = "".join(parts)
        return text if re.search(r"[a-z]{3}", re.sub("‹.*?›", "", text)) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return said(node.left) + said(node.right)
    return ""


def filled(node: ast.expr) -> str:
    """A word for what is filled in: the last name in the expression."""
    names = re.findall(r"[A-Za-z_]\w*", ast.unparse(node.value if isinstance(node, ast.FormattedValue) else node))
    kept = [name for name in names if name not in ("self", "f", "join", "len", "str", "repr", "count", "r")]
    return (kept[-1] if kept else "…").strip("_").replace("_", " ")


def render() -> str:
    """The page."""
    rooms: dict[str, dict[str, None]] = defaultdict(dict)
    for file in sorted(PACKAGE.rglob("*.py")):
        room = file.relative_to(PACKAGE).parts[0]
        for kind, text in messages(file.read_text()):
            rooms[room].setdefault(f"- {escaped(text)} *({kind})*")
    unknown = rooms.keys() - ROOMS.keys()
    assert not unknown, f"give {unknown} a heading in ROOMS"
    parts = [HEAD]
    for room, heading in ROOMS.items():
        if room in rooms:
            parts.append(f"## {heading}\n\n" + "\n".join(rooms[room]) + "\n")
    return "\n".join(parts)


def escaped(text: str) -> str:
    """Plain text in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>$|#])", r"\\\1", " ".join(text.split()))


def write(folder: Path) -> None:
    """Write the page if it has changed."""
    page, target = render(), folder / "errors.md"
    if not target.exists() or target.read_text() != page:
        target.write_text(page)


if __name__ == "__main__":
    write(Path(__file__).parent)
