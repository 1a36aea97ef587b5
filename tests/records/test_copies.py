"""Records are values: equal by every bit, and the same after they were copied, or sent to another process."""

import copy
import dataclasses
import pickle
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import jaxtap_core as tap
from jaxtap_core.records.bits import same
from jaxtap_core.records.events import Alert, Certificate, Finding, Origin, ProgramVerdict, TapEvent

WAYS = {
    "pickled": lambda one: pickle.loads(pickle.dumps(one)),
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

DTYPES = ["float32", "float64", "bfloat16", "float16", "int8", "uint32", "bool", "complex64"]


@st.composite
def arrays(draw):
    """Arrays of any bits: NaN payloads, -0.0, subnormals."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    if dtype.name == "bool":
        raw = raw & 1
    array = raw.view(dtype).reshape(shape)
    return array[()] if draw(st.booleans()) else array


class Pair(NamedTuple):
    first: object
    second: object


leaves = arrays() | st.none() | st.floats() | st.integers() | st.complex_numbers() | st.text(max_size=2)
values = st.recursive(
    leaves,
    lambda some: (
        st.lists(some, max_size=3)
        | st.dictionaries(st.text(max_size=2), some, max_size=3)
        | st.tuples(some, some)
        | st.builds(Pair, some, some)
    ),
    max_leaves=6,
)


def event(value, **more):
    return TapEvent(**({"path": "scan[0]", "step": 3, "total": 5, "steps": (1, 3), "value": value, "kind": "carry",
                        "program": "f", "call": 2} | more))  # fmt: skip


def flipped(value):
    """``value`` with one bit of one array changed, as often as there are arrays with bits."""
    flat, tree = jax.tree.flatten(value)
    for i, leaf in enumerate(flat):
        if isinstance(leaf, np.ndarray | np.generic) and leaf.nbytes:
            raw = np.array(np.asarray(leaf)).reshape(-1)
            raw.view(np.uint8)[0] ^= 1
            yield tree.unflatten([*flat[:i], raw.reshape(np.shape(leaf)), *flat[i + 1 :]])


@settings(max_examples=150, deadline=None)
@given(value=values)
def test_events_are_equal_to_their_copies_and_to_nothing_else(value):
    one = event(value)
    for way in WAYS.values():
        other = way(one)
        assert other == one and not (other != one)  # noqa: SIM202
        assert hash(other) == hash(one)
    for other in flipped(value):
        assert event(other) != one
    assert event([value]) != one
    assert dataclasses.replace(one, step=4) != one
    assert dataclasses.replace(one) == one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (1, True),
        (1, 1.0),
        (np.float32(1), np.float64(1)),
        (np.float32(1), 1.0),
        (np.zeros(3), np.zeros((3, 1))),
        (np.float32(np.nan), -np.float32(np.nan)),
        ([1], (1,)),
        (Pair(1, 2), (1, 2)),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": None}, {"b": None}),
        (complex(0.0, 0.0), complex(0.0, -0.0)),
    ],
)
def test_values_that_are_not_the_same(one, other):
    assert not same(one, other)
    assert not same(other, one)
    assert same(one, copy.deepcopy(one))


def test_a_scalar_of_numpy_is_an_array_without_axes_and_the_order_of_keys_is_none():
    assert same(np.float32(1), np.array(1, np.float32))
    assert same({"a": 1, "b": 2}, {"b": 2, "a": 1})


# -- what a lens brings


@dataclasses.dataclass(frozen=True)
class State:
    x: object


jax.tree_util.register_dataclass(State, ["x"], [])


def rows(c, _):
    return {"x": jnp.sin(c["x"]), "n": c["n"] + 1}, (c["n"], jnp.log(c["x"]))


def recorded():
    """A recording for every kind of event."""
    start = {"x": jnp.array([0.5, -1.0], jnp.bfloat16), "n": 0}
    f = jax.jit(lambda s: lax.scan(rows, s, None, length=3))
    lanes = jax.jit(jax.vmap(lambda n: lax.while_loop(lambda s: s < n, lambda s: s + 1, 0)))
    inside = lambda **options: tap.record(lambda x: lax.fori_loop(0, 2, lambda i, c: c + x, x), **options)

    def block(g, x, **options):
        with tap.record(**options) as rec:
            g(x)
        return rec

    def traced(**options):
        g, rec = inside(**options)
        jax.jit(jax.vmap(g))(jnp.arange(3.0))
        jax.effects_barrier()
        return rec

    return {
        "carries": block(f, start),
        "outputs": block(f, start, select_ys=lambda outs: Pair(*outs), carry=True),
        "live": block(f, start, on_step=lambda e: None, alert=lambda e: "late" if e.step == 2 else None),
        "reducer": block(f, start, select=lambda leaves: State({"a": leaves[0], "b": (leaves[0], [leaves[0]])})),
        "one leaf": block(f, start, select="x"),
        "taps": block(f, start, taps=(tap.on("sin", label="a"), tap.on("sin", label="b"), tap.watch_nan("log"))),
        "lanes that end": block(lanes, jnp.array([1, 3])),
        "lanes": traced(),
        "gate": block(f, start, gate="born"),
        "nothing": block(jnp.sin, 1.0),
        "keys": block(
            jax.jit(lambda k: lax.fori_loop(0, 2, lambda i, k: jax.random.fold_in(k, i), k)), jax.random.key(0)
        ),
    }


@pytest.fixture(scope="module")
def recordings():
    return recorded()


KINDS = (
    "carries", "outputs", "live", "reducer", "one leaf", "taps", "lanes that end", "lanes", "gate", "nothing", "keys",
)  # fmt: skip


@ways
@pytest.mark.parametrize("kind", KINDS)
def test_recordings_and_all_in_them(recordings, kind, way):
    rec = recordings[kind]
    other = way(rec)
    assert len(rec.events) == (0 if kind == "nothing" else len(other.events))
    assert other == rec
    assert list(other.events) == list(rec.events)
    assert list(map(way, rec.events)) == list(rec.events)
    assert way(rec.alerts) == rec.alerts and other.alerts == rec.alerts
    assert way(rec.findings) == rec.findings and other.findings == rec.findings
    assert way(rec.certificate) == rec.certificate == other.certificate
    assert other.df().equals(rec.df()) or other.df().astype(str).equals(rec.df().astype(str))
    for one in rec.events:
        assert dataclasses.replace(one, step=7).step == 7
        assert dataclasses.replace(one) == one


def test_there_is_something_of_each_kind(recordings):
    assert {kind for kind, rec in recordings.items() if rec.alerts} == {"live", "taps"}
    assert recordings["gate"].findings
    assert any(e.lane for e in recordings["lanes"].events)
    assert any(e.active is not None for e in recordings["lanes that end"].events)
    assert isinstance(recordings["reducer"].events[0].value, State)
    assert {stream.key.label for stream in recordings["taps"].streams} == {"a", "b", ""}


def test_a_copy_does_not_grow():
    g, rec = tap.record(lambda x: lax.fori_loop(0, 2, lambda i, c: c + 1, x))
    g(0)
    kept = {name: way(rec) for name, way in WAYS.items()}
    g(5)
    assert len(rec.events) == 4
    assert all([int(e.value["c"]) for e in other.events] == [1, 2] for other in kept.values())


def test_what_cannot_be_sent_as_it_is_arrives_as_a_tuple():
    class Local(NamedTuple):
        a: object
        b: object

    with tap.record(select=lambda leaves: Local(leaves[0], -leaves[0])) as rec:
        lax.fori_loop(0, 2, lambda i, c: c + 1, 0)
    other = pickle.loads(pickle.dumps(rec))
    assert other == rec
    assert [tuple(map(int, e.value)) for e in other.events] == [(1, -1), (2, -2)]
    assert isinstance(copy.deepcopy(rec).events[0].value, Local)


def test_findings_are_sent_without_their_evidence_and_copied_with_it(tmp_path):
    with tap.record(gate="escape") as rec:
        jax.jit(lambda x: lax.scan(lambda c, _: (jnp.log(c), None), x, None, length=3)[0])(0.5)
    (finding,) = rec.findings
    assert copy.deepcopy(finding) == finding and copy.deepcopy(finding).save(tmp_path / "a")
    sent = pickle.loads(pickle.dumps(finding))
    assert sent == finding and sent.evidence is None
    with pytest.raises(ValueError, match="in the process that found it"):
        sent.save(tmp_path / "b")


def test_kinds_of_records_are_not_each_other():
    met = event(1.0)
    records = [
        met,
        Alert(met, "a", ""),
        Finding(met, "x", "nan"),
        Origin("log", "", (), None, "", "forward", (), ""),
        ProgramVerdict("f", 0, "identical"),
        Certificate(),
    ]
    for i, one in enumerate(records):
        assert [one == other for other in records] == [i == j for j in range(len(records))]
        assert one != 1 and one != dataclasses.asdict(one)
    assert len(set(records)) == len(records)
