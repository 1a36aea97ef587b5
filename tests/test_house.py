"""The plan of the house: rooms by duty, imports downward only, no circles, no crowded room.

Read from the source, so that imports inside of functions, and those for type checkers alone, count too.
"""

from __future__ import annotations

import ast
import pathlib
import re
import tomllib

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
        {"options"},
        {"markers"},
        {"stash"},
        {"live", "observe"},
        {"report"},
        {"snapshot"},
        {"plugin"},
        {""},
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


# -- names of modules and files in texts

_MODULE = re.compile(r"(?:jaxtap_core|pytest_jaxtap)(?:\.\w+)+")
_FILE = re.compile(r"`((?:jaxtap_core|pytest_jaxtap|tests|bench|demo)/[\w./]*)`")


def names(module: str) -> set[str]:
    """What a module defines at its top, and in its classes as ``Class.name``."""
    found: set[str] = set()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    collect(node.body, f"{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                found.update(ast.literal_eval(node.value))

    collect(ast.parse(KNOWN[module].read_text()).body, "")
    return found


def exists(name: str) -> bool:
    """Whether a dotted name is a module of ours, or something that one defines."""
    parts = name.split(".")
    module = next(m for n in range(len(parts), 0, -1) if (m := ".".join(parts[:n])) in KNOWN)
    rest = name[len(module) + 1 :]
    return not rest or rest in names(module)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_names_of_modules_in_strings_are_those_of_modules(name: str) -> None:
    """Those that are looked up when the program runs, and those that docstrings refer to."""
    tree = ast.parse(KNOWN[name].read_text())
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    looked_up = [text for text in strings if _MODULE.fullmatch(text)]
    referred_to = [word for text in strings for word in re.findall(rf"`({_MODULE.pattern})`", text)]
    assert [word for word in looked_up + referred_to if not exists(word)] == []


def test_the_modules_that_are_looked_up_late_are_found() -> None:
    """The check above would not fail if it saw nothing."""
    seen = {name: KNOWN[name].read_text() for name in ("pytest_jaxtap.observe.failure", "pytest_jaxtap.live.hang")}
    assert all(re.search(rf'sys\.modules\.get\("{_MODULE.pattern}"\)', text) for text in seen.values())


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "README.md"])
def test_files_that_the_manuals_name_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    assert [path for path in _FILE.findall(text) if not (ROOT / path).exists()] == []
    assert [word for word in re.findall(rf"`({_MODULE.pattern})`", text) if not exists(word)] == []


# -- what is installed


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_holds_every_file_that_is_no_module(package: str) -> None:
    """As setuptools reads ``package-data``: patterns relative to the folder of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"][package]
    held = {path for pattern in patterns for path in (ROOT / package).glob(pattern)}
    files = {path for path in (ROOT / package).rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert held == files
