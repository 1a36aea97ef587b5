"""PYTEST_DONT_REWRITE

Which snapshots may be called unused: those of tests that passed without them, and of tests that are gone.

syrupy takes for unused what no comparison of the session asked for, and an update deletes it. But a
test that failed before it compared asked for nothing either, nor did one that ``-x`` or ``-k`` kept
from running, or whose module could not be imported. So when the tests are over, the files of all such
tests are held back from syrupy; what it does with the rest is its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from syrupy.location import PyTestLocation

from pytest_jaxtap.stash import PASSED

#: The folder of snapshots beside tests. Not syrupy's own: there it takes every file that it does not know for
#: unused, and an update of a session without this plugin would delete them all.
FOLDER = "__tap_snapshots__"


class Verdicts:
    """What became of the tests of a session.

    Args:
        tests: all that were collected, those that were deselected later too.
        whole: whether all tests of a module were collected, if any were.
    """

    def __init__(self, tests: Iterable[pytest.Function], *, whole: bool) -> None:
        self._whole = whole
        self._passed: dict[PyTestLocation, bool] = {}
        self._modules: set[Path] = set()
        for item in tests:
            location = PyTestLocation(item)
            self._passed[location] = item.stash.get(PASSED, False)
            self._modules.add(Path(location.filepath).with_suffix(""))
        self._files: dict[Any, dict[Path, bool]] = {}

    def hold(self, extension: Any, root: Path, path: Path) -> bool:
        """Whether the file ``path`` of a folder of snapshots must not be called unused.

        Args:
            extension: the class that knows where the file of a test is.
            root: the folder.
        """
        if extension not in self._files:
            files: dict[Path, bool] = {}
            for location, passed in self._passed.items():
                file = Path(extension.get_location(test_location=location, index=0))
                files[file] = passed and files.get(file, True)
            self._files[extension] = files
        if path in self._files[extension]:
            return not self._files[extension][path]
        module = root.parent / path.relative_to(root).parts[0]
        if module in self._modules:  # its test is gone, unless only some were looked for
            return not self._whole
        return any(file.stem == module.name and file.is_file() for file in root.parent.iterdir())


#: On the config, once the tests are over.
VERDICTS: pytest.StashKey[Verdicts] = pytest.StashKey()
