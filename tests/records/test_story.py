"""The lines people read: first line whole, few lines, every variant; and the finding on disk."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtap_core.gate.reproduce import Evidence, save
from jaxtap_core.records.events import Finding, Origin, TapEvent
from jaxtap_core.records.story import tell


def met(path="", steps=(), kind="output", total=None, program="train", **more) -> TapEvent:
    step = steps[-1] if steps else -1
    return TapEvent(path, step, total, steps, None, kind, program, 0, **more)


BORN = Origin(
    primitive="cholesky",
    path="scan[0]/while[1]/cholesky[0]",
    steps=(4, 37),
    lane=None,
    source="model.py:31 (mass_matrix)",
    phase="forward",
    operands=({"shape": (8, 8), "dtype": "float32", "min": -0.5, "max": 2.0, "nonfinite": 0},),
    reason="the matrix is not positive definite (smallest eigenvalue -3.1e-07, float32)",
    advice="add a small multiple of the identity",
)

FOUND = Finding(
    met("scan[0]/while[1]", (4, 37), "carry", 200),
    "state.L",
    "nan",
    count=3,
    size=64,
    first_index=(2, 1),
    last_good={"step": 36, "min": 1.2e-38, "max": 4.1e4},
    origin=BORN,
)


def test_the_story_of_a_carry():
    assert tell(FOUND) == [
        "NaN entered scan[0]/while[1] at step 37 of 200 (outer 4), carry leaf 'state.L', 3 of 64 elements",
        "  born: cholesky at model.py:31 (mass_matrix), scan[0]/while[1]/cholesky[0], forward",
        "  why:  the matrix is not positive definite (smallest eigenvalue -3.1e-07, float32)",
        "  last finite step 36: state.L min 1.2e-38 max 4.1e+04",
        "  first bad element: state.L[2, 1]",
        "  help: add a small multiple of the identity",
    ]
    assert str(FOUND) == "\n".join(tell(FOUND))


def test_more_is_told_when_asked_for():
    lines = tell(FOUND, verbose=True)
    assert lines[:6] == tell(FOUND)
    assert any(line.startswith("  operand 0: shape (8, 8), dtype float32, min -0.5") for line in lines)


def test_a_birth_at_another_step_says_which():
    earlier = Origin("log", "scan[0]/log[0]", (2,), None, "m.py:3 (f)", "forward", (), "log of 0")
    finding = Finding(met("scan[0]", (5,), "carry", 9), "c", "nan", origin=earlier)
    assert tell(finding)[1] == "  born: log at m.py:3 (f), scan[0]/log[0] step 2, forward"


@pytest.mark.parametrize(
    ("finding", "headline"),
    [
        (
            Finding(met("scan[0]", (3,), "output", 5), "out.loss", "nan"),
            "NaN in per-step output 'out.loss' of scan[0] at step 3 of 5",
        ),
        (
            Finding(met(), "result[0]", "nan", 1, size=4),
            "NaN in 'result[0]' of train, 1 of 4 elements",
        ),
        (Finding(met(), "result", "inf"), "Inf in 'result' of train"),
        (
            Finding(met("scan[0]/log[0]", (3,), "primitive", 5), "out[0]", "nan"),
            "NaN born in scan[0]/log[0] at step 3 of 5, output 'out[0]'",
        ),
        (
            Finding(met("while[0]", (2,), "carry", lane=(3,)), "x", "nan", 1, size=1),
            "NaN entered while[0] at step 2, carry leaf 'x', lane 3",
        ),
    ],
)
def test_headlines(finding, headline):
    assert tell(finding) == [headline]


def test_what_was_not_reproduced_is_not_guessed():
    origin = Origin("", "", (), None, "", "forward", (), "inputs were donated", "keep them", False)
    lines = tell(Finding(met(), "result", "nan", origin=origin))
    assert lines[1:] == ["  born: not known: inputs were donated", "  help: keep them"]


def test_a_nan_that_was_given():
    origin = Origin("", "", (), None, "", "forward", (), "the program was given it: argument 'x' is NaN")
    lines = tell(Finding(met(), "result", "nan", origin=origin))
    assert lines[1:] == ["  born: before: the program was given it: argument 'x' is NaN"]


def test_a_finding_is_saved_with_a_script_that_reproduces_it(tmp_path):
    def model(key, x, scale, mask):
        noise = jax.random.normal(key, (3,)) * 0
        return mask, jnp.log(x.astype(jnp.float32) * scale) + noise

    args = [
        jax.random.key(7),
        jnp.array([1.5, -2.25, 3.0], jnp.bfloat16),
        np.float32(2.0),
        jnp.array([True, False]),
    ]
    finding = Finding(met(program="model"), "result[1]", "nan", 1, (1,), size=3)
    script = save(finding, jax.make_jaxpr(model)(*args), args, str(tmp_path / "new" / "folder"))
    run = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, check=True, cwd="/")
    assert "NaN in 'result[1]' of model, 1 of 3 elements" in run.stdout
    assert "result 1: 1 of 3 elements are NaN, the first at [1]" in run.stdout
    about = json.loads((tmp_path / "new" / "folder" / "finding.json").read_text())
    assert [one["dtype"] for one in about["inputs"]] == ["uint32", "bfloat16", "float32", "bool"]
    bits = np.load(tmp_path / "new" / "folder" / "inputs.npz")["arg1"]
    assert bits.tobytes() == np.asarray(args[1]).tobytes()


def test_a_program_that_cannot_be_exported_is_saved_as_text(tmp_path):
    def model(x):
        return jax.pure_callback(lambda x: np.log(x), jax.ShapeDtypeStruct((), jnp.float32), x)

    finding = Finding(met(program="model"), "result", "nan")
    script = save(finding, jax.make_jaxpr(model)(1.0), [jnp.float32(-1.0)], str(tmp_path))
    assert "pure_callback" in (tmp_path / "program.txt").read_text()
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "could not be exported" in run.stdout


def test_a_finding_without_inputs_says_so(tmp_path):
    with pytest.raises(ValueError, match="not at hand"):
        FOUND.save(str(tmp_path))
    gone = jnp.float32(1)
    found = dataclasses.replace(FOUND, evidence=Evidence(jax.make_jaxpr(jnp.log)(gone), [gone]))
    gone.delete()
    with pytest.raises(ValueError, match="donated"):
        found.save(str(tmp_path))
