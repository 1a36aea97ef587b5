"""A hung test is told apart: what was running goes to stderr before pytest-timeout or SIGTERM ends the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

HANGS = """
import pathlib

import jax

@jax.jit
def settle(x):
    return jax.lax.while_loop(lambda c: c >= 0, lambda c: c * 0.5, x)

def test_hangs():
    pathlib.Path("ready").touch()
    settle(1.0).block_until_ready()
"""


def start(pytester: pytest.Pytester, *options: str) -> subprocess.Popen[str]:
    pytester.makepyfile(test_hang_inner=HANGS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--jaxtap-nan", *options]
    return subprocess.Popen(command, cwd=pytester.path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(text: str) -> bool:
    return "running: settle at test_hang_inner.py" in text and "loop while[0] (test_hang_inner.py" in text


def test_pytest_timeouts_thread(pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_timeout")
    process = start(pytester, "--timeout=12", "--timeout-method=thread")
    _, err = process.communicate(timeout=180)
    assert told(err), err
    assert "jaxtap: timeout after 12 s in test_hang_inner.py::test_hangs" in err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send; nothing would lift it")
def test_sigterm(pytester: pytest.Pytester) -> None:
    process = start(pytester)
    while not (pytester.path / "ready").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    time.sleep(5.0)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert told(err), err
    assert process.returncode == 128 + signal.SIGTERM
