"""The DataFrame of a recording: one row an event, columns of the exact dtype."""

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from handmade import add, fill

from jaxtap_core.recording.dataframe import frame
from jaxtap_core.recording.recording import Recording


def test_rows_are_in_canonical_order_and_scalars_keep_dtype_and_bits():
    recording = Recording()
    fill(add(recording, "scan[10]", total=3), [2, 0, 1], [2.5, -0.0, np.nan])
    fill(add(recording, "scan[2]"), [0], [7.0])
    df = recording.df()
    assert df.path.tolist() == ["scan[2]"] + ["scan[10]"] * 3
    assert df.step.tolist() == [0, 0, 1, 2]
    assert df.steps.tolist() == [(0,), (0,), (1,), (2,)]
    assert df.x.dtype == np.float32
    expected = np.array([7.0, -0.0, np.nan, 2.5], np.float32)
    assert df.x.to_numpy().tobytes() == expected.tobytes()
    assert df.total.tolist() == [pd.NA, 3, 3, 3]
    assert df.columns.tolist() == (
        ["program", "call", "path", "kind", "step", "total", "steps", "lane", "device", "phase"] + ["source", "x"]
    )


def test_a_column_that_a_stream_lacks_is_missing_there():
    recording = Recording()
    stream = add(recording, "scan[0]", names=("x", "n", "ok"), dtypes=("float32", "uint8", "bool"))
    fill(stream, [0, 1], [1, 2], [3, 4], [True, False])
    fill(add(recording, "scan[1]", names=("y",), dtypes=("complex64",)), [0], [1j])
    df = frame(recording)
    assert df.x.dtype == np.float32 and df.x.isna().tolist() == [False, False, True]
    assert df.n.dtype == "UInt8" and df.n.tolist() == [3, 4, pd.NA]
    assert df.ok.dtype == "boolean" and df.ok.tolist() == [True, False, pd.NA]
    assert df.y.dtype == np.complex64 and df.y.isna().tolist() == [True, True, False]


def test_arrays_become_cells_and_lanes_devices_activity_their_own_columns():
    recording = Recording()
    stream = add(recording, names=("key",), dtypes=("uint32",), shapes=[(2,)], live=True, lanes=1,
                 active=(3,), sharded=True)  # fmt: skip
    fill(stream, [1, 0], [[1, 2], [3, 4]])
    stream.lanes.extend(np.array([[5], [6]], np.int32))
    stream.active.extend(np.array([[True, False, True], [True, True, True]]))
    stream.device.extend(np.array([0, 1], np.int32))
    stream.time.extend(np.array([0.25, 0.125]))
    fill(add(recording, "sin[0]", depth=0, kind="primitive"), np.empty((1, 0)), [0.5])
    df = frame(recording)
    assert [cell.tolist() for cell in df.key[:2]] == [[3, 4], [1, 2]] and df.key[2] is None
    assert df.lane.tolist() == [(6,), (5,), None]
    assert df.device.tolist() == [1, 0, pd.NA]
    assert df.active[1].tolist() == [True, False, True] and df.active[2] is None
    assert df.time.tolist()[:2] == [0.125, 0.25] and np.isnan(df.time[2])
    assert df.step.tolist() == [0, 1, -1] and df.steps[2] == ()


@pytest.mark.parametrize("dtype, shown", [("bfloat16", "float32"), ("float8_e5m2", "float32"), ("int4", "int8")])
def test_dtypes_that_pandas_lacks_are_widened_value_for_value(dtype, shown):
    recording = Recording()
    values = np.array([-1, 0, 3], getattr(ml_dtypes, dtype))
    fill(add(recording, dtypes=(values.dtype,)), [0, 1, 2], values)
    column = frame(recording).x
    assert column.dtype == shown and column.tolist() == [-1, 0, 3]


def test_a_name_that_two_streams_give_to_different_dtypes_loses_no_bit():
    recording = Recording()
    large = 2**53 + 1
    fill(add(recording, "scan[0]", dtypes=("int64",)), [0], [large])
    fill(add(recording, "scan[1]", dtypes=("float64",)), [0], [0.5])
    assert frame(recording).x.tolist() == [large, 0.5]


def test_a_leaf_named_like_a_fixed_column_does_not_hide_it():
    recording = Recording()
    fill(add(recording, names=("step",), dtypes=("int32",)), [0, 1], [40, 41])
    df = frame(recording)
    assert df.step.tolist() == [0, 1] and df["value.step"].tolist() == [40, 41]


def test_an_empty_recording_has_the_fixed_columns():
    df = frame(Recording())
    assert len(df) == 0 and "path" in df.columns and df.call.dtype == np.int64


def test_a_million_scalar_events():
    recording = Recording()
    steps = np.arange(10**6, dtype=np.int32)
    fill(add(recording, total=10**6), steps, np.sqrt(steps))
    df = frame(recording)
    assert len(df) == 10**6 and df.x.dtype == np.float32
    assert df.x[999_999] == np.float32(np.sqrt(999_999))
