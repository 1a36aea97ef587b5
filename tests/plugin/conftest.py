"""Inner sessions must not take themselves for workers of the outer one's xdist: their plugins look at these."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        monkeypatch.delenv(name)
