"""The fingerprint of an environment: what the bits depend on, fit for JSON."""

import json

import jax
import jaxlib.version
import pytest

from jaxtap_core.compare import diff
from jaxtap_core.telemetry.environment import differences, fingerprint


def test_it_names_versions_device_and_settings():
    found = fingerprint()
    assert json.loads(json.dumps(found)) == found
    assert found["jax"] == jax.__version__ and found["jaxlib"] == jaxlib.version.__version__
    assert found["backend"] == jax.default_backend()
    assert found["numerics"] in ("native", "strict")


def test_it_follows_the_settings_that_change_numbers():
    before = fingerprint()
    with jax.default_matmul_precision("highest"), jax.threefry_partitionable(False):
        changed = differences(before, fingerprint())
    assert changed == {
        "threefry_partitionable": (True, False),
        "matmul_precision": (None, "highest"),
    }
    with jax.enable_x64(not before["x64"]):
        assert differences(before, fingerprint()) == {"x64": (before["x64"], not before["x64"])}


@pytest.mark.parametrize("flag, counts", [("xla_cpu_max_isa=AVX", True), ("xla_dump_to=d", False)])
def test_only_flags_that_change_numbers_count(monkeypatch, flag, counts):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_hlo_as_text --{flag}")
    assert fingerprint()["xla_flags"] == ([f"--{flag}"] if counts else [])


def test_what_one_side_lacks_is_none():
    assert differences({"a": 1, "b": 2}, {"b": 2, "c": 3}) == {"a": (1, None), "c": (None, 3)}
    text = diff.environment_text({"a": (1, None), "flags": ([], ["--x", "--y"])})
    assert text == "a 1 -> none, flags none -> --x --y"
