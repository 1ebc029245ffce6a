"""The rooms of the package: imports go one way, nothing imports in a circle, files and folders stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import sparring

SOURCE = Path(sparring.__file__).parent
# Each room may import from those before it, and from itself. A name with a dot is a room of the lab.
ROOMS = (
    *("files", "losses", "heads", "functional", "backward", "diagnosis", "training", "integrations"),
    *(
        "lab.errors",
        "lab.untrusted",
        "lab.lock",
        "lab.process",
        "lab.loss_settings",
        "lab.calibration",
        "lab.differences",
        "lab.table",
        "lab.models",
        "lab.kinds",
        "lab.task",
        "lab.suspects",
        "lab.readers",
        "lab.datasets",
    ),
    *("lab.runs", "lab.cleaning", "lab.report", "lab.paper", "lab.results", "lab.api", "cli"),
)
ALIASES = ("delta", "parallel", "skip")  # other names of a room: for users, not for the package itself
MAX_LINES = 300
MAX_FILES = 14


class Import(NamedTuple):
    """One imported name, and where the import stands."""

    source: str  # the module that imports
    target: str  # the module that is imported from
    name: str | None  # the name, where it is not a module
    at_start: bool  # executed when the module is imported
    place: str


def modules(root: Path) -> dict[str, Path]:
    """Dotted names below the package, and their files. The package itself is ""."""
    paths = sorted(root.rglob("*.py"))
    return {
        ".".join(p.relative_to(root).with_suffix("").parts).removesuffix("__init__").rstrip("."): p
        for p in paths
    }


def imports(root: Path) -> Iterator[Import]:
    """Every import of a module of the package by another, also inside functions; not those for types."""
    files = modules(root)
    for module, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, at_start in _import_nodes(tree, True):
            place = f"{path.relative_to(root)}:{node.lineno}"
            for dotted, name in _names(node, root.name):
                whole = f"{dotted}.{name}".lstrip(".") if name else dotted
                target = whole if whole in files else dotted
                if target in files and target != module:
                    yield Import(module, target, None if target == whole else name, at_start, place)


def _import_nodes(node: ast.AST, at_start: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, at_start
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        else:
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _import_nodes(child, at_start and not inside)


def _names(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str | None]]:
    dotted = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    for name in dotted:
        if name.split(".")[0] == package:
            below = name[len(package) + 1 :]
            yield from (
                [(below, None)] if isinstance(node, ast.Import) else [(below, a.name) for a in node.names]
            )


def room_of(module: str) -> str:
    """The room of a module: its folder, below the lab the folder there."""
    parts = module.split(".")
    return ".".join(parts[:2] if parts[0] == "lab" else parts[:1])


def wrong_direction(root: Path) -> list[str]:
    """Imports of a room that stands above."""
    order = {room: i for i, room in enumerate(ROOMS)}
    found = []
    for entry in imports(root):
        source, target = room_of(entry.source), room_of(entry.target)
        if source in ("", "lab", *ALIASES) or target == "" or source == target:
            continue
        if target in ALIASES:
            found.append(f"{entry.place} imports the alias {target}: import from the room itself")
        elif order[source] < order[target]:
            found.append(f"{entry.place}: {source} imports {entry.target}, which is above it")
    return found


def cycles(root: Path) -> list[str]:
    """Circles of modules that import each other, also through imports inside functions."""
    edges: dict[str, set[str]] = {module: set() for module in modules(root)}
    for entry in imports(root):
        if not entry.target.startswith(f"{entry.source}.") and not entry.source.startswith(
            f"{entry.target}."
        ):
            edges[entry.source].add(entry.target)  # a package and what it holds are one
    circles: list[str] = []
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            circles.append(" -> ".join([*path[path.index(module) :], module]))
        elif module not in done:
            for target in sorted(edges[module]):
                visit(target, (*path, module))
            done.add(module)

    for module in edges:
        visit(module, ())
    return circles


def private_names(root: Path) -> list[str]:
    """Names with an underscore that another room imports."""
    return [
        f"{entry.place} imports {entry.name} of {entry.target}"
        for entry in imports(root)
        if entry.name is not None
        and re.match("_[^_]", entry.name)
        and room_of(entry.source) != room_of(entry.target)
        and room_of(entry.target) != ""
    ]


def reached(root: Path, room: str) -> dict[str, str]:
    """Modules that importing a room imports, each with the module that imports it."""
    starting = [entry for entry in imports(root) if entry.at_start]
    origin = {module: "" for module in modules(root) if room_of(module) == room}
    queue = list(origin)
    while queue:
        module = queue.pop()
        for entry in starting:
            if entry.source == module and entry.target not in origin:
                origin[entry.target] = module
                queue.append(entry.target)
    return origin


def training_in_reports(root: Path) -> list[str]:
    """What makes a report import training."""
    origin = reached(root, "lab.report")
    return [f"{origin[m]} imports {m}" for m in origin if room_of(m) in ("training", "integrations")]


def large(root: Path) -> list[str]:
    """Files with too many lines, folders with too many files."""
    files = modules(root).values()
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    folders = {path.parent: len(list(path.parent.glob("*.py"))) for path in files}
    return [
        *(f"{path.relative_to(root)} has {n} lines" for path, n in sizes.items() if n > MAX_LINES),
        *(f"{path.relative_to(root)}/ has {n} files" for path, n in folders.items() if n > MAX_FILES),
    ]


def compared_kinds(root: Path) -> list[str]:
    """Comparisons with the name of a kind of task outside ``lab/kinds``: a method of ``Kind`` is meant."""
    pattern = re.compile(r"kind (==|!=|in|not in) ")
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for module, path in modules(root).items()
        if room_of(module) != "lab.kinds"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


CHECKS = (wrong_direction, cycles, private_names, training_in_reports, large, compared_kinds)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_keeps_its_rooms(check: object) -> None:
    assert check(SOURCE) == []  # type: ignore[operator]


def test_every_module_has_a_room() -> None:
    assert {room_of(m) for m in modules(SOURCE)} - {"", "lab", *ALIASES} <= set(ROOMS)


OFFENDERS = {
    "wrong_direction": {"losses/a.py": "from sparring.heads.b import x", "heads/b.py": "x = 1"},
    "cycles": {
        "losses/a.py": "def f():\n    from sparring.losses.b import x",
        "losses/b.py": "import sparring.losses.c",
        "losses/c.py": "from sparring.losses import a",
    },
    "private_names": {"heads/a.py": "from sparring.losses.b import _x", "losses/b.py": "_x = 1"},
    "training_in_reports": {
        "lab/report/a.py": "from sparring.lab.runs.b import x",
        "lab/runs/b.py": "from sparring.training.c import x",
        "training/c.py": "x = 1",
    },
    "large": {"losses/a.py": "x = 1\n" * (MAX_LINES + 1)},
    "compared_kinds": {"lab/runs/a.py": 'kind = "token"\nif kind == "token":\n    pass'},
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_offenders_are_named(check: object, tmp_path: Path) -> None:
    root = tmp_path / "sparring"
    name = check.__name__  # type: ignore[attr-defined]
    for path, text in OFFENDERS[name].items():
        for folder in (root / path).parents:
            if folder.is_relative_to(root):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "__init__.py").touch()
        (root / path).write_text(text + "\n")
    assert len(check(root)) == 1  # type: ignore[operator]
    assert any(part.removesuffix(".py") in check(root)[0] for part in ("a.py", "b.py"))  # type: ignore[operator]
