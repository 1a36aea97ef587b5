"""PYTEST_DONT_REWRITE

At the end of a session: syrupy is told of every folder of snapshots, and what it must leave alone in it.

Costs a session that never compared with `tap_snapshot`, and has no such folder, next to nothing.
"""

from __future__ import annotations

import sys

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.location import PyTestLocation

from pytest_jaxtap.snapshot.verdicts import FOLDER, VERDICTS, Verdicts
from pytest_jaxtap.stash import COLLECTED


def judge(session: pytest.Session) -> None:
    """The tests are over: from here on their verdicts decide what may be called unused.

    A folder counts although no test beside it compares any more: its files may all be leftovers.
    """
    config = session.config
    syrupy = getattr(config, "_syrupy", None)  # as its own fixture finds it
    tests = [item for item in config.stash[COLLECTED] if isinstance(item, pytest.Function)]
    beside = {item.path.parent: item for item in tests}
    folders = [folder for folder in beside if (folder / FOLDER).is_dir()]
    used = "pytest_jaxtap.snapshot.extension" in sys.modules
    if syrupy is None or config.option.collectonly or not (used or folders):
        return
    from pytest_jaxtap.snapshot.extension import JaxtapExtension

    part = bool(config.getoption("lf", False)) or any("::" in argument for argument in config.args)
    config.stash[VERDICTS] = Verdicts(tests, whole=not part)
    for folder in folders:
        SnapshotAssertion(  # makes itself known to syrupy
            session=syrupy,
            extension_class=JaxtapExtension,
            test_location=PyTestLocation(beside[folder]),
            update_snapshots=bool(config.option.update_snapshots),
        )
