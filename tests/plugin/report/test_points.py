"""What a page draws of two columns: nothing is lost by drawing few points, and positions are right."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jaxtap_core.compare.diff import compare
from jaxtap_core.compare.table import Track, TrackKey, tracks_of
from jaxtap_core.compare.tolerance import Tolerances
from pytest_jaxtap.report.page.curves import curves
from pytest_jaxtap.report.page.packed import unpack
from pytest_jaxtap.report.page.points import MOST_POINTS


def track(steps, lanes=None, **leaves):
    """A track by hand; ``steps`` may be a list of vectors."""
    steps = np.asarray(steps, np.int32).reshape(len(steps), -1)
    return Track(TrackKey("train", 0, "scan[0]", "carry"), {k: np.asarray(v) for k, v in leaves.items()}, steps, lanes)


def drawn(expected, got, **limits):
    """The curves of two lists of tracks, and the points of the first."""
    found = curves(expected, got, compare(expected, got, Tolerances.of(**limits)))
    return found, json.loads(unpack(found[0]["data"])) if found[0]["data"] else None


def test_a_short_stream_is_drawn_step_by_step():
    x = np.float32([1, 2, 3, 4])
    y = np.float32([1, 2, 3.5, np.nan])
    (curve,), points = drawn([track(range(4), x=x)], [track(range(4), x=y)])
    assert (curve["verdict"], curve["stream"], curve["leaf"], curve["type"]) == (
        "different",
        "scan[0] (train)",
        "x",
        "float32",
    )
    assert points["unit"] == "step" and points["x"] == [0, 1, 2, 3]
    assert points["expected"] == {"low": [1, 2, 3, 4]}
    assert points["observed"] == {"low": [1, 2, 3.5, None], "nan": [0, 0, 0, 1]}
    assert points["gap"] == [0, 0, 0.5, None]
    assert points["first"] == 2
    assert "NaN observed in 1 step, first at step 3" in curve["caption"]


@pytest.mark.parametrize("first", [0, 1, 7777, 19_999])
def test_few_points_keep_every_peak_and_the_first_difference(first):
    x = np.sin(np.arange(20_000) / 50).astype(np.float32)
    x[4321] = 9
    y = x.copy()
    y[first] = np.nextafter(y[first], np.float32(2))
    y[min(first + 5, 19_999)] += 3
    _, points = drawn([track(range(20_000), x=x)], [track(range(20_000), x=y)])
    assert len(points["x"]) <= MOST_POINTS
    assert points["x"][0] == 0 and points["until"][-1] == 19_999
    assert [a + 1 for a in points["until"][:-1]] == points["x"][1:]
    assert max(points["expected"]["high"]) == 9
    at = points["first"]
    assert points["x"][at] == points["until"][at] == first
    for name, side in (("expected", x), ("observed", y)):
        for low, high, a, b in zip(
            points[name]["low"], points[name]["high"], points["x"], points["until"], strict=True
        ):
            assert (np.float32(low), np.float32(high)) == (side[a : b + 1].min(), side[a : b + 1].max())
    apart = np.abs(y.astype(float) - x.astype(float))
    assert max(points["gap"]) == pytest.approx(apart.max(), rel=1e-5)


def test_arrays_and_lanes_are_drawn_as_a_band():
    lanes = np.int32([0, 1, 0, 1])[:, None]
    x = np.arange(12.0).reshape(4, 3)
    y = x.copy()
    y[3, 1] += 0.25
    (curve,), points = drawn([track([0, 0, 1, 1], lanes, x=x)], [track([0, 0, 1, 1], lanes, x=y)])
    assert points["expected"] == {"low": [0, 6], "high": [5, 11]}
    assert points["gap"] == [0, 0.25] and points["first"] == 1
    assert curve["type"] == "float64[3]"


def test_steps_of_nested_loops_are_counted_through():
    steps = [[0, 0], [0, 1], [1, 0], [1, 1]]
    (curve,), points = drawn([track(steps, x=np.arange(4.0))], [track(steps, x=np.float64([0, 1, 2, 4]))])
    assert points["x"] == [0, 1, 2, 3] and points["steps"] == steps and points["first"] == 3
    assert "first difference at step 1 (outer 1)" in curve["caption"]


def test_a_missing_step_is_where_the_sides_part():
    x = np.arange(4.0)
    (curve,), points = drawn([track(range(4), x=x)], [track([0, 1, 3], x=x[[0, 1, 3]])])
    assert points["observed"]["low"] == [0, 1, None, 3]
    assert points["first"] == 2 and curve["verdict"] == "different" and points["gap"] is None


def test_elements_of_an_array_stand_in_its_order():
    x = np.arange(6.0).reshape(2, 3)
    y = x.copy()
    y[1, 1] = 7
    _, points = drawn(tracks_of(x), tracks_of(y))
    assert points["unit"] == "element" and points["first"] == 4 and points["expected"]["low"] == [0, 1, 2, 3, 4, 5]


def test_the_verdict_of_each_column():
    old = {"a": np.zeros(2), "b": np.ones(2), "c": np.ones(2), "z": np.ones(2, complex), "s": "text"}
    new = {"a": np.zeros(2), "b": np.ones(2) + 1e-9, "d": np.full(2, 5.0), "z": np.ones(2) - 2j, "s": "text"}
    found, _ = drawn(tracks_of(old), tracks_of(new), rtol=1e-6)
    assert {curve["leaf"]: curve["verdict"] for curve in found} == {
        "a": "equal",
        "b": "within tolerance",
        "c": "missing",
        "d": "extra",
        "z (real)": "different",
        "z (imaginary)": "different",
        "s": "equal",
    }
    assert not next(curve["data"] for curve in found if curve["leaf"] == "s")


@pytest.mark.parametrize("y", [np.float32([1, 2]), np.ones((2, 3)), np.ones(0), np.float64(3)])
def test_other_dtypes_and_shapes_are_drawn_beside_each_other(y):
    found, _ = drawn(tracks_of(np.float64([1, 3])), tracks_of(y))
    assert [curve["verdict"] for curve in found] == ["different"]


def test_numbers_of_every_dtype_are_drawn():
    import jax.numpy as jnp

    for dtype in (jnp.bfloat16, jnp.float16, jnp.int4, jnp.uint8, jnp.bool_, jnp.int32):
        x = np.asarray([0, 1, 1], dtype)
        y = np.asarray([0, 1, 0], dtype)
        _, points = drawn(tracks_of(x), tracks_of(y))
        assert points["expected"]["low"] == [0, 1, 1] and points["gap"] == [0, 0, 1] and points["first"] == 2


def test_the_tolerance_is_a_band_and_both_first_differences_are_points():
    x = np.float32([1, 2, 4, 8])
    y = np.float32([1, 2.25, 5, 8])
    (curve,), points = drawn([track(range(4), x=x)], [track(range(4), x=y)], rtol=0.125, atol=0.5)
    assert points["band"] == {"low": [0.375, 1.25, 3, 6.5], "high": [1.625, 2.75, 5, 9.5]}
    assert (curve["verdict"], points["first"], points["parted"]) == ("within tolerance", None, None)
    (curve,), points = drawn([track(range(4), x=x)], [track(range(4), x=y)], atol=0.5)
    assert points["band"] == {"low": [0.5, 1.5, 3.5, 7.5], "high": [1.5, 2.5, 4.5, 8.5]}
    assert (curve["verdict"], points["first"], points["parted"]) == ("different", 2, 1)
    assert "bits differ from step 1 on; first difference beyond the tolerance at step 2" in curve["caption"]


@pytest.mark.parametrize("parted, first", [(5, 6), (3, 19_999), (7000, 7777)])
def test_both_first_differences_of_many_are_points_of_their_own(parted, first):
    x = np.ones(20_000)
    y = x.copy()
    y[parted:] += 1e-9
    y[first] += 1
    _, points = drawn([track(range(20_000), x=x)], [track(range(20_000), x=y)], rtol=1e-6)
    assert len(points["x"]) <= MOST_POINTS
    for name, at in (("parted", parted), ("first", first)):
        assert points["x"][points[name]] == points["until"][points[name]] == at
    assert points["band"]["low"][0] == 1 - 1e-6 and points["band"]["high"][0] == 1 + 1e-6


def test_without_a_tolerance_there_is_no_band():
    x = np.float32([1, 2, 3])
    _, points = drawn([track(range(3), x=x)], [track(range(3), x=x + 1)])
    assert points["band"] is None and points["parted"] is None
    _, points = drawn([track(range(3), x=x > 1)], [track(range(3), x=x > 2)], atol=1.0)
    assert points["band"] == {"low": [0, 1, 1], "high": [0, 1, 1]} or points["band"] == {"low": [0, 1, 1]}
    _, points = drawn([track(range(3), x=x + 1j)], [track(range(3), x=x)], atol=1.0)
    assert points["band"] is None
