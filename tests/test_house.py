"""The plan of the house: rooms by duty, imports downward only, no circles, no crowded room.

Read from the source, so that imports inside of functions, and those for type checkers alone, count too.
"""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("jaxtap_core", "pytest_jaxtap")

# From the ground up. Rooms of one floor do not know each other; the files of the ground floor stand in this order.
FLOORS: dict[str, list[set[str]]] = {
    "jaxtap_core": [
        {"_compat"},
        {"errors"},
        {"numerics"},
        {"records"},
        {"jaxpr", "request"},
        {"instrument", "provenance", "telemetry"},
        {"compare"},
        {"recording", "gate"},
        {"runtime"},
        {"api"},
        {"", "__main__"},
    ],
    "pytest_jaxtap": [
        {"", "options"},
        {"markers"},
        {"stash"},
        {"live"},
        {"observe", "snapshot"},
        {"report"},
        {"plugin"},
    ],
}

MOST_FILES = 12

# A finding tells its story, and the story knows a finding by annotation only.
BY_NAME_ONLY = {("jaxtap_core.records.story", "jaxtap_core.records.events")}


def modules() -> dict[str, pathlib.Path]:
    """Every module of both packages, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: pathlib.Path, known: dict[str, pathlib.Path]) -> dict[str, bool]:
    """The modules of ours that a file imports, anywhere in it; whether one is imported when the program runs."""
    found: dict[str, bool] = {}
    tree = ast.parse(path.read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [name if name in known else node.module for name in names]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        for target in targets:
            if target in known:
                found[target] = found.get(target, False) or node not in for_types
    return found


KNOWN = modules()
ARROWS = {name: imports(path, KNOWN) for name, path in KNOWN.items()}


def floor(name: str) -> tuple[str, int]:
    """The room of a module, and the floor that it is on."""
    package, _, rest = name.partition(".")
    room = rest.partition(".")[0]
    return room, next(i for i, rooms in enumerate(FLOORS[package]) if room in rooms)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_stands_in_a_room_of_the_plan(package: str) -> None:
    rooms = set().union(*FLOORS[package])
    here = {name.partition(".")[2].partition(".")[0] for name in KNOWN if name.partition(".")[0] == package}
    assert here == rooms


def test_imports_point_downward_only() -> None:
    wrong = []
    for name, targets in ARROWS.items():
        for target in targets:
            if target.partition(".")[0] != name.partition(".")[0]:
                if name.startswith("jaxtap_core"):
                    wrong.append(f"{name} -> {target}: the lens knows nothing of pytest")
                continue
            if target == target.partition(".")[0] and name != target:
                continue  # the public names of the package: checked by what they are, below
            (room, mine), (other, below) = floor(name), floor(target)
            if room != other and mine <= below:
                wrong.append(f"{name} -> {target}")
    assert wrong == []


def test_only_the_plugin_uses_the_public_names_of_the_lens() -> None:
    wrong = [name for name, targets in ARROWS.items() if "jaxtap_core" in targets and name.startswith("jaxtap_core.")]
    assert wrong == []


def test_no_circle() -> None:
    """No file needs itself to be imported, nor to be understood by a type checker."""
    done: set[str] = set()
    circles = []

    def visit(name: str, way: tuple[str, ...]) -> None:
        if name in way:
            circles.append(" -> ".join([*way[way.index(name) :], name]))
            return
        if name in done:
            return
        for target in ARROWS[name]:
            if target != name.partition(".")[0] and (name, target) not in BY_NAME_ONLY:
                visit(target, (*way, name))
        done.add(name)

    for name in ARROWS:
        visit(name, ())
    assert circles == []


def test_no_room_is_crowded() -> None:
    counts = {
        folder.relative_to(ROOT): len(list(folder.glob("*.py")))
        for package in PACKAGES
        for folder in (ROOT / package, *(ROOT / package).rglob("*/"))
        if folder.is_dir()
    }
    assert {room: count for room, count in counts.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("name", sorted(name for name, path in KNOWN.items() if path.name == "__init__.py"))
def test_every_room_says_what_it_is_for(name: str) -> None:
    text = ast.get_docstring(ast.parse(KNOWN[name].read_text())) or ""
    assert len(text.splitlines()) >= 5, f"{name}: what it does, what comes in and leaves, where to add a thing"
