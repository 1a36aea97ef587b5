"""Equal lenses: a reducer counts by all that it reads, as it is when the lens is entered; and is let go of after it."""

import collections
import contextvars
import dataclasses
import enum
import functools
import gc
import re
import struct
import types
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import watching
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import jaxtap_core as tap
from jaxtap_core.request import reads
from jaxtap_core.request.equality import key_of
from jaxtap_core.runtime import cache

# -- one thing that a function reads, in every place where it may stand


def defined(source, **names):
    """What a piece of source defines, in a module of its own."""
    module = types.ModuleType("cell")
    vars(module).update(jnp=jnp, np=np, functools=functools, **names)
    exec(compile(source, "<cell>", "exec"), vars(module))
    return module


class Place:
    """A function ``f(x)`` that gives ``x * value``, and where it finds the value."""

    def __init__(self, function, put=None):
        self.function = function
        self.put = put  # changes the value in place, where that can be


def in_global(value):
    cell = defined("def f(x): return x * VALUE", VALUE=value)
    return Place(cell.f, lambda new: setattr(cell, "VALUE", new))


def in_global_of_a_global(value):
    cell = defined("def g(x): return x * VALUE\ndef f(x): return g(x)", VALUE=value)
    return Place(cell.f, lambda new: setattr(cell, "VALUE", new))


def in_global_of_a_nested_function(value):
    cell = defined("def f(x):\n    g = lambda y: y * VALUE\n    return g(x)", VALUE=value)
    return Place(cell.f, lambda new: setattr(cell, "VALUE", new))


def in_default(value):
    cell = defined("def f(x, k=VALUE): return x * k", VALUE=value)
    return Place(cell.f, lambda new: setattr(cell.f, "__defaults__", (new,)))


def in_keyword_default(value):
    cell = defined("def f(x, *, k=VALUE): return x * k", VALUE=value)
    return Place(cell.f, lambda new: cell.f.__kwdefaults__.update(k=new))


def in_closure_cell(value):
    def put(new):
        nonlocal value
        value = new

    return Place(lambda x: x * value, put)


def in_attribute_of_a_method(value):
    class Reducer:
        def __init__(self):
            self.value = value
            self.seen = []

        def f(self, x):
            return x * self.value

    one = REUSED.setdefault("attribute", Reducer())
    one.value = value
    return Place(one.f, lambda new: setattr(one, "value", new))


def in_attribute_behind_a_property(value):
    class Reducer:
        def __init__(self):
            self._value = value

        @property
        def value(self):
            return self._value

        def __call__(self, x):
            return x * self.value

    one = REUSED.setdefault("property", Reducer())
    one._value = value
    return Place(one, lambda new: setattr(one, "_value", new))


def in_slot(value):
    class Reducer:
        __slots__ = ("value",)

        def f(self, x):
            return x * self.value

    one = REUSED.setdefault("slot", Reducer())
    one.value = value
    return Place(one.f, lambda new: setattr(one, "value", new))


def in_attribute_of_a_class(value):
    class Reducer:
        value = None

        @classmethod
        def f(cls, x):
            return x * cls.value

    cls = REUSED.setdefault("class", Reducer)
    cls.value = value
    return Place(cls.f, lambda new: setattr(cls, "value", new))


def in_attribute_of_a_base(value):
    class Base:
        value = None

    class Reducer(Base):
        def f(self, x):
            return x * getattr(self, "val" + "ue")

    base, one = REUSED.setdefault("base", (Base, Reducer()))
    base.value = value
    return Place(one.f, lambda new: setattr(base, "value", new))


def in_static_method(value):
    cell = defined("class K:\n    @staticmethod\n    def g(x): return x * VALUE\ndef f(x): return K.g(x)", VALUE=value)
    cell = REUSED.setdefault("static", cell)
    cell.VALUE = value
    return Place(cell.f, lambda new: setattr(cell, "VALUE", new))


def in_attribute_of_a_function(value):
    cell = defined("def f(x): return x * f.value")
    cell.f.value = value
    return Place(cell.f, lambda new: setattr(cell.f, "value", new))


def in_dict(value):
    held = {"a": {"b": value}}
    return Place(lambda x: x * held["a"]["b"], lambda new: held["a"].update(b=new))


def in_list(value):
    held = [1, [value]]
    return Place(lambda x: x * held[1][0], lambda new: held[1].__setitem__(0, new))


def in_deque(value):
    held = collections.deque([value])
    return Place(lambda x: x * held[0], lambda new: held.__setitem__(0, new))


def in_namespace(value):
    held = REUSED.setdefault("namespace", types.SimpleNamespace())
    held.value = value
    return Place(lambda x: x * held.value, lambda new: setattr(held, "value", new))


def in_named_tuple(value):
    held = Pair(1, value)
    return Place(lambda x: x * held.second)


def in_data_class(value):
    held = Frozen(value)
    return Place(lambda x: x * held.value)


def in_changeable_data_class(value):
    held = Changeable(value)
    return Place(lambda x: x * dataclasses.asdict(held)["value"], lambda new: setattr(held, "value", new))


def in_pytree_node(value):
    held = Node(value)
    return Place(lambda x: x * jax.tree.leaves(held)[0], lambda new: setattr(held, "hidden", new))


def in_argument_of_a_partial(value):
    return Place(functools.partial(lambda k, x: x * k, value))


def in_keyword_of_a_partial(value):
    return Place(functools.partial(lambda x, k: x * k, k=value))


def in_context_variable(value):
    variable = REUSED.setdefault("context", contextvars.ContextVar("value"))
    variable.set(value)
    return Place(lambda x: x * variable.get(), variable.set)


def in_module(value):
    module = REUSED.setdefault("module", types.ModuleType("config"))
    module.value = value
    return Place(lambda x: x * module.value, lambda new: setattr(module, "value", new))


def in_global_of_another_module(value):
    helpers = REUSED.setdefault("helpers", defined("def g(x): return x * VALUE"))
    helpers.VALUE = value
    return Place(lambda x: helpers.g(x), lambda new: setattr(helpers, "VALUE", new))


def in_decorated_function(value):
    cell = defined(
        "def d(f):\n    @functools.wraps(f)\n    def g(*a): return f(*a)\n    return g\n@d\ndef f(x): return x * VALUE",
        VALUE=value,
    )
    return Place(cell.f, lambda new: setattr(cell, "VALUE", new))


def in_mapped_function(value):
    cell = defined("def g(x): return x * VALUE", VALUE=value)
    mapped = REUSED.setdefault("vmap", (cell, jax.vmap(cell.g)))
    mapped[0].VALUE = value
    return Place(lambda x: mapped[1](x[None])[0], lambda new: setattr(mapped[0], "VALUE", new))


def in_function_with_a_rule(value):
    cell = defined("def g(x): return x * VALUE", VALUE=value)
    cell, ruled = REUSED.setdefault("rule", (cell, jax.custom_jvp(cell.g)))
    ruled.defjvp(lambda primals, tangents: (ruled(*primals), tangents[0]))
    cell.VALUE = value
    return Place(lambda x: ruled(x), lambda new: setattr(cell, "VALUE", new))


def in_functions_that_call_each_other(value):
    cell = defined("def f(x, n=3): return g(x, n) if n else x * VALUE\ndef g(x, n): return f(x, n - 1)", VALUE=value)
    return Place(cell.f, lambda new: setattr(cell, "VALUE", new))


def in_closure_that_holds_itself(value):
    def f(x, n=3):
        return f(x, n - 1) if n else x * value

    return Place(f)


def behind_a_name_that_is_looked_up(value):
    cell = defined("def f(x): return x * globals()['VALUE']", VALUE=value)
    return Place(cell.f, lambda new: setattr(cell, "VALUE", new))


REUSED = {}  # objects that count by identity too


@pytest.fixture(autouse=True)
def anew():
    REUSED.clear()


class Pair(collections.namedtuple("Pair", "first second")):
    pass


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: object


@dataclasses.dataclass
class Changeable:
    value: object


class Node:
    def __init__(self, hidden):
        self.hidden = hidden


jax.tree_util.register_pytree_node(Node, lambda node: ((node.hidden,), None), lambda _, children: Node(*children))

PLACES = {name: make for name, make in list(globals().items()) if name.startswith(("in_", "behind_"))}
places = pytest.mark.parametrize("place", PLACES)

numbers = st.integers() | st.floats() | st.booleans() | st.complex_numbers()
plain = st.none() | numbers | st.text(max_size=3) | st.binary(max_size=3)
values = st.recursive(plain, lambda some: st.lists(some, max_size=3) | st.tuples(some) | st.dictionaries(plain, some))


def same(a, b):
    """Whether two values are the same to the bit and the type."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a, b)) and all(map(same, a.values(), b.values()))
    return a == b


@places
@settings(max_examples=40, deadline=None)
@given(one=values, other=values)
def test_functions_that_differ_in_one_thing_are_equal_exactly_if_it_is(place, one, other):
    make = PLACES[place]
    first = key_of(make(one).function)
    again = key_of(make(one).function)
    assert first == again and hash(first) == hash(again)
    assert (key_of(make(other).function) == first) == same(one, other)


@pytest.mark.parametrize("place", [name for name, make in PLACES.items() if make(0).put is not None])
@settings(max_examples=20, deadline=None)
@given(one=values, other=values)
def test_what_is_changed_in_place_is_another_function_and_changed_back_the_same(place, one, other):
    place = PLACES[place](one)
    before = key_of(place.function)
    place.put(other)
    assert (key_of(place.function) == before) == same(one, other)
    place.put(one)
    assert key_of(place.function) == before


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_arrays_count_by_their_bits_dtype_and_shape(data):
    dtype = data.draw(st.sampled_from(["float32", "bfloat16", "int8", "bool", "complex64"]))
    shape = data.draw(st.sampled_from([(), (3,), (2, 50), (0, 4)]))
    array = np.zeros(shape, jnp.dtype(dtype))
    f = lambda x: x * array
    before = key_of(f)
    assert key_of(f) == before
    if array.size:
        spot = data.draw(st.integers(0, array.size - 1))
        array.reshape(-1)[spot] = 1
        assert key_of(f) != before
        array.reshape(-1)[spot] = 0
    assert key_of(f) == before
    other = np.zeros(shape, "float16")
    assert key_of(functools.partial(f, other)) != key_of(functools.partial(f, array))


CONSTANTS = {
    "function of NumPy": np.mean,
    "ufunc of NumPy": np.add,
    "function of a package of NumPy": np.linalg.norm,
    "ufunc of JAX": jnp.add,
    "function of JAX": jnp.mean,
    "dtype of JAX": jnp.float32,
    "dtype": np.dtype("int8"),
    "scalar": np.float64(2.5),
    "builtin": len,
    "method": str.upper,
    "bound method": "x".join,
    "sentinel": object(),
    "slice": slice(1, 2),
    "range": range(3),
    "set": frozenset({1, "a"}),
    "mapping": types.MappingProxyType({"a": 1}),
    "member": enum.Enum("Mode", "FAST SLOW").FAST,
    "partition": jax.sharding.PartitionSpec("x"),
    "pattern": re.compile("a"),
    "tree": jax.tree.structure({"a": 1}),
}


@pytest.mark.parametrize("value", CONSTANTS.values(), ids=CONSTANTS)
def test_what_libraries_hand_out_is_equal_to_itself(value):
    assert key_of(lambda x: (x, value)) != key_of(lambda x: x)
    make = lambda: lambda x: (x, value)
    assert key_of(make()) == key_of(make())


def test_small_arrays_of_jax_count_by_content_and_large_ones_by_identity():
    make = lambda array: lambda x: x * array
    assert key_of(make(jnp.arange(3))) == key_of(make(jnp.arange(3)))
    assert key_of(make(jnp.arange(3))) != key_of(make(jnp.arange(3.0)))
    assert key_of(make(jnp.asarray(2.0))) != key_of(make(jnp.float32(2.0)))  # weakly typed
    large = jnp.zeros(5000)
    assert key_of(make(large)) == key_of(make(large))
    assert key_of(make(large)) != key_of(make(jnp.zeros(5000)))
    keys = jax.random.key(0)
    assert key_of(make(keys)) == key_of(make(keys))


def test_the_same_text_in_two_modules_is_told_apart_by_what_it_reads():
    text = "def f(x): return g(x)"
    one = defined(text, g=lambda x: x + 1)
    two = defined(text, g=lambda x: x + 2)
    three = defined(text, g=one.g)
    assert key_of(one.f) != key_of(two.f)
    assert key_of(one.f) == key_of(three.f)


@pytest.mark.parametrize("depth", [5000])
def test_deep_chains_end(depth):
    f = lambda x: x
    for _ in range(depth):
        f = functools.partial(lambda g, x: g(x), f)
    nest = []
    for _ in range(depth):
        nest = [nest]
    for value in (f, nest):
        assert key_of(value) == key_of(value)


def test_what_refuses_to_be_looked_at_is_equal_to_nothing_and_harms_nobody():
    class Hostile(dict):
        def items(self):
            raise RuntimeError("mine")

    held = Hostile(a=1)
    f = lambda leaves: (leaves[0], held)[0]
    assert key_of(f) != key_of(f)
    with tap.record(select=f) as rec:
        lax.fori_loop(0, 2, lambda i, c: c + 1, 0)
    assert [int(e.value) for e in rec.events] == [1, 2]


def test_names_are_those_of_the_code():
    def f(x):
        import json

        return jnp.sum(x) * CONFIG["scale"] + getattr(x, "shape")[0] + (lambda y: y.mean)(json)  # noqa: B009, F821

    assert {"jnp", "sum", "CONFIG", "scale", "getattr", "shape", "mean", "json"} <= set(reads.names_of(f.__code__))


# -- on the device


def add(n):
    return jax.jit(lambda x: lax.fori_loop(0, n, lambda i, c: c + 1.0, x))


def seen(f, select):
    with tap.record(select=select) as rec:
        f(0.0)
    return [float(e.value) for e in rec.events]


@places
def test_an_equal_lens_compiles_nothing_and_another_brings_its_own_values(place):
    f = add(2)
    make = PLACES[place]
    of_first = lambda function: lambda leaves: function(leaves[0])
    reducer = lambda one: of_first(one.function)
    for value in (3.0, 5.0, 3.0):
        one = make(value)
        assert seen(f, reducer(one)) == [value, 2 * value]
        with watching() as happened:
            assert seen(f, reducer(make(value))) == [value, 2 * value]
        assert happened == []
        if one.put is not None:
            one.put(7.0)
            assert seen(f, reducer(one)) == [7.0, 14.0]


@pytest.mark.parametrize("wrap", [tap.record, lambda f, **options: (tap.verbose(f, **options), None)])
def test_a_wrapped_function_looks_anew_at_every_call(wrap):
    held, heard = {"scale": 2.0}, []
    g, _ = wrap(add(2), select=lambda leaves: leaves[0] * held["scale"], on_step=lambda e: heard.append(float(e.value)))
    g(0.0)
    held["scale"] = 10.0
    g(0.0)
    assert heard == [2.0, 4.0, 10.0, 20.0]


@pytest.mark.parametrize("how", ["taps", "select_ys", "where"])
def test_all_that_runs_for_the_device_counts(how):
    held = {"k": 1.0}
    f = jax.jit(lambda x: lax.scan(lambda c, _: (c, jnp.sin(c)), x, None, length=2)[0])
    options = {
        "taps": lambda: {"taps": tap.on("sin", output=0, select=lambda out: out * 0 + held["k"])},
        "select_ys": lambda: {"select_ys": lambda outs: outs[0] * 0 + held["k"]},
        "where": lambda: {"where": lambda path: held["k"] > 1, "select": lambda leaves: 2.0},
    }[how]
    with tap.record(**(made := options())) as rec:
        f(0.5)
    first = [float(e.value) for e in rec.events if e.kind != "carry"]
    held["k"] = 2.0
    for again in (made, options()):
        with tap.record(**again) as rec:
            f(0.5)
        assert {float(e.value) for e in rec.events if e.kind != "carry" or how == "where"} == {2.0}
    assert first == ([] if how == "where" else [1.0, 1.0])


def test_taps_are_equal_as_long_as_they_do_the_same():
    held = [1]
    make = lambda: tap.on("log", select=lambda outs: outs[0] * held[0])
    one, two = make(), make()
    table = {one: "found"}
    assert one == two and table[two] == "found"
    held[0] = 2
    assert one == two == make() and table[make()] == "found"


# -- let go


class Big:
    def __init__(self):
        self.array = np.ones(1000)
        self.scale = 2.0


def reducers(big):
    """Reducers that hold ``big`` in one way each."""
    return {
        "closure": lambda leaves: (leaves[0], big)[0],
        "default": lambda leaves, big=big: leaves[0],
        "keyword": lambda leaves, *, k=big: leaves[0],
        "partial": functools.partial(lambda big, leaves: leaves[0], big),
        "attribute": lambda leaves: leaves[0] * big.scale,
        "array": lambda leaves: leaves[0] * big.array.sum(),
        "list": lambda leaves, held=[big]: leaves[0],
        "dict": lambda leaves, held={"a": big}: leaves[0],
        "global": defined("def f(leaves): return (leaves[0], BIG)[0]", BIG=big).f,
        "method": types.MethodType(lambda self, leaves: leaves[0] * self.scale, big),
    }


def programs():
    jitted, step = add(2), lambda i, c: c + 1.0
    eager = lambda x: lax.fori_loop(0, 2, step, x)
    return {"jitted": jitted, "eager": eager, "gradient": jax.grad(jax.jit(eager))}


def lenses(reducer):
    return {
        "select": {"select": reducer},
        "live": {"select": reducer, "on_step": lambda event: None},
        "tap": {"taps": tap.on("add", select=reducer)},
        "where": {"where": lambda path: reducer is not None},
        "sampled": {"select": reducer, "sample_every": 2},
    }


@pytest.mark.filterwarnings("ignore:.*list index out of range")
@pytest.mark.parametrize("way", reducers(Big()))
@pytest.mark.parametrize("program", programs())
def test_what_a_reducer_captured_is_freed_while_the_program_lives(way, program):
    f, gone = programs()[program], []
    for kind in lenses(None):
        big = Big()
        gone.append(weakref.ref(big))
        with tap.record(**lenses(reducers(big)[way])[kind]):
            f(1.0)
        del big
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


@pytest.mark.parametrize("program", programs())
def test_an_equal_lens_works_after_the_first_was_freed(program):
    f = programs()[program]
    held = Big()

    def block(x):
        with tap.record(select=lambda leaves: sum(leaves) * 0 + held.scale, identity="inline") as rec:
            f(x)
        return {float(e.value) for e in rec.events}

    assert block(1.0) == {2.0}
    gc.collect()
    with watching() as happened:
        assert block(1.0) == {2.0}
    assert [what for what in happened if what[0] == "compile"] == []
    assert block(jnp.ones(3)[0]) == {2.0}
    with jax.default_matmul_precision("float32"):  # traced anew, long after
        assert block(1.0) == {2.0}
    jax.clear_caches()
    assert block(1.0) == {2.0}


def test_programs_are_freed_with_the_function():
    """Neither its jaxpr nor what was made of it outlives a jitted function."""

    def run():
        f = add(2)
        for k in range(3):
            with tap.record(select=lambda leaves, k=k: leaves[0] * k):
                f(1.0)
        (number,) = set(cache.PROGRAMS._jitted) - before
        return weakref.ref(f), number

    gc.collect()
    before = set(cache.PROGRAMS._jitted)
    gone, number = run()
    jax.clear_caches()
    gc.collect()
    assert gone() is None
    assert number not in cache.PROGRAMS._jitted


def test_many_lenses_over_one_function_keep_few_programs():
    f = add(2)
    for k in range(3 * cache.MOST_LENSES):
        with tap.record(select=lambda leaves, k=k: leaves[0] * k) as rec:
            f(0.0)
        assert [float(e.value) for e in rec.events] == [k, 2 * k]
    gc.collect()
    ours = [known[1] for known in cache.PROGRAMS._jitted.values() if len(known[1]) > 1]
    assert len(ours[-1]) == cache.MOST_LENSES
