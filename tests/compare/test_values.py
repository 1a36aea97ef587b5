"""Plain values taken apart: what differs in structure or type differs, whatever its text or its numbers are."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from jaxtap_core.compare.diff import diff
from jaxtap_core.compare.values import columns_of

Point = collections.namedtuple("Point", "x y")
Nothing = collections.namedtuple("Nothing", "")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    x: float
    y: float


class Module(eqx.Module):
    w: float
    n: int = eqx.field(static=True)


@jax.tree_util.register_pytree_node_class
class Node:
    """A node with whatever it is given beside its leaf."""

    def __init__(self, leaf, static):
        self.leaf, self.static = leaf, static

    def tree_flatten(self):
        return (self.leaf,), self.static

    @classmethod
    def tree_unflatten(cls, static, leaves):
        return cls(*leaves, static)


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


class Own(np.ndarray):
    pass


def boxed(item):
    """An array of objects that holds ``item`` as it is."""
    box = np.empty(2, object)
    box[0] = item
    return box


def frame(column, **more):
    return pd.DataFrame({"a": column}, **more)


def same_words(a):
    """The same text as ``a`` has, as a text."""
    return str(a)


DAY = datetime.date(2026, 7, 1)
KEY = jax.random.key(0)
PAIRS = {
    "tuple, list": ((1.0, 2.0), [1.0, 2.0]),
    "inner tuple, list": ({"a": [(1.0,)]}, {"a": [[1.0]]}),
    "dict, namedtuple": ({"x": 1.0, "y": 2.0}, Point(1.0, 2.0)),
    "dict, dataclass": ({"x": 1.0, "y": 2.0}, Data(1.0, 2.0)),
    "namedtuple, dataclass": (Point(1.0, 2.0), Data(1.0, 2.0)),
    "tuple, namedtuple": ((1.0, 2.0), Point(1.0, 2.0)),
    "dict, ordered dict": ({"a": 1, "b": 2}, collections.OrderedDict(a=1, b=2)),
    "order of an ordered dict": (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    "list, dict of numbers": ([1.0], {0: 1.0}),
    "value, dict of it": (1.0, {"value": 1.0}),
    "dotted key": ({"a.b": 1.0}, {"a": {"b": 1.0}}),
    "empty list, tuple": ([], ()),
    "empty list, dict": ({"a": 1, "b": []}, {"a": 1, "b": {}}),
    "empty list, none": ({"a": 1, "b": []}, {"a": 1, "b": None}),
    "empty list, absent": ({"a": 1, "b": []}, {"a": 1}),
    "empty tuple, namedtuple": ((1, ()), (1, Nothing())),
    "none, absent": ({"a": 1, "b": None}, {"a": 1}),
    "static field": (Module(1.0, 3), Module(1.0, 4)),
    "static array": (Node(1.0, np.float32(1)), Node(1.0, np.float32(2))),
    "static function": (Node(1.0, jnp.sin), Node(1.0, jnp.cos)),
    "static dict": (Node(1.0, {"a": (1, 2)}), Node(1.0, {"a": (1, 3)})),
    "key, its words": (KEY, jax.random.key_data(KEY)),
    "keys of two kinds": (jax.random.key(0, impl="rbg"), jax.random.key(0, impl="unsafe_rbg")),
    "key among others": ({"k": KEY}, {"k": jax.random.key_data(KEY)}),
    "int, float": (1, 1.0),
    "int, bool": (1, True),
    "int, text": (1, "1"),
    "none, zero": (None, 0.0),
    "none, text": (None, "null"),
    "enum, int": (Number.ONE, 1),
    "text, numpy text": ("a", np.str_("a")),
    "bytes, text": (b"a", "a"),
    "texts, objects": (np.array(["a"]), np.array(["a"], object)),
    "texts of two lengths": (np.array(["a"]), np.array(["a"], "U2")),
    "day, text": (np.array(["2026-07-01"], "M8[D]"), np.array(["2026-07-01"])),
    "units of time": (np.array([1], "m8[s]"), np.array([1], "m8[ms]")),
    "time, int": (np.array([1], "m8[s]"), np.array([1])),
    "masked, array": (np.ma.array([1.0, 2.0], mask=[0, 1]), np.array([1.0, 2.0])),
    "masks": (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0], mask=[1, 0])),
    "names of fields": (np.zeros(2, [("a", "f4")]), np.zeros(2, [("b", "f4")])),
    "array of a class of its own": (np.ones(2).view(Own), np.ones(2)),
    "objects in an array": (np.array([(1, 2), None], object), np.array([[1, 2], None], object)),
    "namedtuple in an array": (np.array([Point(1, 2), None], object), np.array([(1, 2), None], object)),
    "number types in an array": (np.array([np.float32(1), None], object), np.array([1.0, None], object)),
    "keys in an array": (boxed(KEY), boxed(jax.random.key_data(KEY))),
    "masks in an array": (boxed(np.ma.array([1, 2], mask=[0, 1])), boxed(np.ma.array([1, 2], mask=[1, 0]))),
    "order of columns": (pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({"b": [2], "a": [1]})),
    "labels of columns": (pd.DataFrame({0: [1]}), pd.DataFrame({"0": [1]})),
    "name of columns": (frame([1]), frame([1]).rename_axis("n", axis=1)),
    "name of an index": (frame([1]), frame([1], index=pd.Index([0], name="step"))),
    "names of levels": (
        frame([1], index=pd.MultiIndex.from_tuples([(1, "a")], names=["x", "y"])),
        frame([1], index=pd.MultiIndex.from_tuples([(1, "a")])),
    ),
    "type of an index": (frame([1], index=[0]), frame([1], index=[0.0])),
    "category, object": (frame(pd.Categorical(["x"])), frame(pd.Series(["x"], dtype=object))),
    "categories": (frame(pd.Categorical(["x"])), frame(pd.Categorical(["x"], categories=["x", "y"]))),
    "order of categories": (frame(pd.Categorical(["x"])), frame(pd.Categorical(["x"], ordered=True))),
    "object, string": (frame(pd.Series(["x"], dtype=object)), frame(pd.Series(["x"], dtype="string"))),
    "time, its text": (frame(pd.to_datetime(["2020-01-01"])), frame(["2020-01-01 00:00:00"])),
    "units of a column": (frame(pd.Series([0]).astype("M8[s]")), frame(pd.Series([0]).astype("M8[ns]"))),
    "zones": (
        frame(pd.to_datetime(["2020-01-01"]).tz_localize("UTC")),
        frame(pd.to_datetime(["2020-01-01"]).tz_localize("GMT")),
    ),
    "masked column, plain": (frame(pd.array([1], "Int64")), frame([1])),
    "masked columns": (frame(pd.array([1], "Int64")), frame(pd.array([1], "Int32"))),
    "missing, zero": (frame(pd.array([None], "Int64")), frame(pd.array([0], "Int64"))),
    "name of a series": (pd.Series([1.0], name="a"), pd.Series([1.0], name="b")),
    "series, frame": (pd.Series([1.0], name="a"), pd.DataFrame({"a": [1.0]})),
    "series, index": (pd.Series([1.0]), pd.Index([1.0])),
    "index, array": (pd.Index([1.0]), np.array([1.0])),
    "extension array": (pd.array([1], "Int64"), np.array([1])),
    "frame in a dict": ({"f": frame([1])}, {"f": {"index": np.array([0]), "a": np.array([1])}}),
    **{
        f"{type(item).__name__}, its text": (item, same_words(item))
        for item in (
            DAY, datetime.time(1, 2), datetime.timedelta(1), decimal.Decimal("0.10"), fractions.Fraction(1, 3),
            pathlib.PurePosixPath("a/b"), uuid.UUID(int=1), range(3), np.dtype("float32"), b"a", Colour.RED,
            pd.Period("2026", freq="Y"), pd.NA, pd.NaT,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"state": [x, 1.0]}], ids=["bare", "inside"])
def test_structure_and_type_count(name, wrap):
    a, b = map(wrap, PAIRS[name])
    assert diff(a, a).equal and diff(b, b).equal
    for found in (diff(a, b), diff(b, a)):
        assert not found.equal
        assert str(found).splitlines()[0].strip()


SAME = {
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "order of a dict in an array": (np.array([{"a": 1, "b": 2}, 0], object), np.array([{"b": 2, "a": 1}, 0], object)),
    "order of a default dict": (
        collections.defaultdict(int, a=1, b=2),
        collections.defaultdict(int, b=2, a=1),
    ),
    "jax, numpy": (jnp.ones(2), np.ones(2, np.float32)),
    "number, array of none": (1.0, np.float64(1.0)),
    "byte order": (np.array([1.0, 2.0], ">f4"), np.array([1.0, 2.0], "<f4")),
    "kinds of index": (frame([1.0, 2.0]), frame([1.0, 2.0], index=[0, 1])),
    "functions made anew": (Node(1.0, lambda: 0), Node(1.0, lambda: 0)),
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_one_thing_is_equal(name):
    a, b = SAME[name]
    assert diff(a, b).equal, str(diff(a, b))


def test_a_difference_in_type_is_told_by_its_place():
    assert str(diff({"a": (1, [2])}, {"a": (1, (2,))})) == "a[1]: type: expected list, got tuple"
    assert str(diff((1, 2), [1, 2])) == "the value: type: expected tuple, got list"
    assert str(diff(KEY, jax.random.key_data(KEY))) == "the value: type: expected key<fry>, got plain uint32"
    assert "f: type: expected category, not ordered, got str" in str(
        diff({"f": pd.Series(pd.Categorical(["x"]), name="f")}, {"f": pd.Series(["x"], dtype="str", name="f")})
    ).replace("f.f", "f")


def test_names_that_meet_are_numbered_and_none_is_lost():
    leaves, _ = columns_of({"a.b": 1.0, "a": {"b": 2.0, "b#2": 3.0}})
    assert sorted(column.item() for column in leaves.values()) == [1.0, 2.0, 3.0]


OPAQUE = {
    "an object": object(),
    "a set": {1, 2},
    "a function": jax.nn.relu,
    "a dtype and a shape, no values": jax.ShapeDtypeStruct((2,), jnp.float32),
    "padding": np.longdouble(1),
    "raw bytes": np.zeros(2, "V8"),
}


@pytest.mark.parametrize("name", OPAQUE)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"a": [x]}, boxed])
def test_what_is_no_data_is_refused(name, wrap):
    with pytest.raises(TypeError, match=r"^the (value|leaf )"):
        columns_of(wrap(OPAQUE[name]))


def test_a_float0_array_has_a_column():
    leaves, types = columns_of(np.zeros(3, jax.dtypes.float0))
    assert leaves["value"].shape == (1, 3) and not types
