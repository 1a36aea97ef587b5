"""PYTEST_DONT_REWRITE

What the tests of ``tap_snapshot`` share: how to run pytest inside pytest, and what lies in its folder.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

# Must be there before: what a run in this process imports first is forgotten after it, and JAX does not
# stand being imported twice.
for module in ("jax", "pandas", *(f"pytest_jaxtap.snapshot.{name}" for name in ("explain", "extension", "unused"))):
    importlib.import_module(module)

# Plugins that have no part in this and cost seconds a run.
QUIET = [f"-pno:{name}" for name in ("asyncio", "hypothesispytest", "anyio", "jaxtyping")]

FOLDER = "__tap_snapshots__"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the tests of the folder, in this process unless ``fresh``; the environment has ``VALUE``."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)

    def run(*arguments: str, value: str = "", fresh: bool = False, cache: bool = False) -> Any:
        monkeypatch.setenv("VALUE", value)
        start = pytester.runpytest_subprocess if fresh else pytester.runpytest_inprocess
        return start(*([] if cache else ["-pno:cacheprovider"]), *QUIET, "-q", *arguments)

    return run


def files(pytester: pytest.Pytester, folder: str = FOLDER) -> dict[str, bytes]:
    """Content of every file below a folder, by its path there."""
    root = pytester.path / folder
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
