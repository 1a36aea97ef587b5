"""What is asked for is given, or refused with a word: outputs, filters, selections and taps that fit nothing."""

import importlib.metadata
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap_core as tap

a_while = jax.jit(lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + 1, x))
a_scan = jax.jit(lambda x: lax.scan(lambda c, _: (c + 1, {"loss": c, "other": -c}), x, None, length=3)[0])
no_outputs = jax.jit(lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=3)[0])


def told(f, *args, enter="block", **options):
    """What a lens has to say of its own options: its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if enter == "block":
            with tap.record(**options):
                f(*args)
                assert not caught  # it is only known at the end
        else:
            g = tap.record(f, **options)[0] if enter == "wrapped" else tap.verbose(f, **options)
            g(*args), g(*args)
    return [str(one.message) for one in caught if issubclass(one.category, tap.JaxtapWarning)]


# -- outputs of primitives


@pytest.mark.parametrize("make", [tap.on, tap.watch_nan, tap.print])
@pytest.mark.parametrize("f", [jnp.sin, jax.jit(jnp.sin), jax.grad(jnp.cos)], ids=["eager", "jitted", "gradient"])
def test_an_output_that_a_primitive_does_not_have(make, f):
    says = r"sin\[0\]: sin has 1 output, number 0, but a tap asks for its output 1"
    with pytest.raises(tap.LensError, match=says), tap.record(taps=make("sin", output=1)):
        f(1.0)
    g = tap.verbose(f, taps=make("sin", output=1))
    with pytest.raises(ValueError, match="sin has 1 output"):
        g(1.0)
    with pytest.raises(ValueError, match="sin has 1 output"):
        jax.jit(g)(1.0)
    f(1.0)


def test_one_output_is_given_as_it_is_to_whoever_asks():
    a = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    f = jax.jit(lambda a: lax.linalg.eigh(a)[1])
    seen = {}
    taps = (
        tap.on("eigh", label="plain"),
        tap.on("eigh", output=0, label="one"),
        tap.on("eigh", output=0, label="reduced", select=lambda out: out * 2),
        tap.on("eigh", label="all", select=lambda outs: (len(outs), outs[0])),
        tap.on("eigh", output=0, label="told where", select=lambda out, *, path: {path: out}),
    )
    with tap.record(taps=taps) as rec:
        f(a)
    seen = {stream.key.label: stream.event(0).value for stream in rec.streams}
    one = seen["one"]
    assert isinstance(seen["plain"], tuple) and np.array_equal(seen["plain"][0], one)
    assert np.array_equal(seen["reduced"], 2 * one)
    assert seen["all"][0] == 2 and np.array_equal(seen["all"][1], one)
    ((path, value),) = seen["told where"].items()
    assert path.endswith("eigh[0]") and np.array_equal(value, one)


def test_a_reducer_of_a_tap_is_checked_when_the_tap_is_made():
    for bad in (lambda: 1, lambda outs, where: 1, lambda outs, *, place: 1):
        for make in (tap.on, tap.print):
            with pytest.raises(TypeError, match=r"select of a tap is called as f\(outs\) or f\(outs, \*, path\)"):
                make("sin", select=bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tap.on("sin", label=3),
        lambda: tap.on("sin", once="yes"),
        lambda: tap.on("sin", output=True),
        lambda: tap.print("sin", select=3),
        lambda: tap.print("sin", once=1),
        lambda: tap.watch_nan("sin", label=1),
        lambda: tap.watch_nan("sin", inf=2),
    ],
)
def test_what_a_tap_cannot_take_is_refused(make):
    with pytest.raises(TypeError):
        make()


# -- print and watch_nan


def test_print_takes_what_on_takes(capfd):
    f = jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x))
    taps = (
        tap.print("sin", label="all", select=lambda outs: {"twice": 2 * outs[0]}),
        tap.print("sin", label="first", once=True),
        tap.print("sin", label="picked", output=0, once=True, select=lambda out, *, path: out.sum()),
    )
    with tap.record(taps=taps):
        f(jnp.zeros(2)), f(jnp.zeros(2))
    lines = [line.partition(": ") for line in capfd.readouterr().err.splitlines()]
    names = [name for name, *_ in lines]
    assert names.count("[tap] all") == 6
    assert names.count("[tap] first") == names.count("[tap] picked") == 1
    assert all("{twice=[0., 0.]}" in text for name, _, text in lines if name == "[tap] all")
    assert all(text.endswith(": 0.0") for name, _, text in lines if name == "[tap] picked")


def test_alerts_of_a_watch_begin_with_its_label(capfd):
    with tap.record(taps=tap.watch_nan("log", label="rate fell below 0")) as rec:
        jax.jit(jnp.log)(-1.0)
    assert [alert.message for alert in rec.alerts] == ["rate fell below 0: NaN/Inf"]
    assert [stream.key.label for stream in rec.streams] == ["rate fell below 0"]
    assert "[tap] FAIL log[0]: rate fell below 0: NaN/Inf (" in capfd.readouterr().err


# -- nothing was met


UNMET = {
    "tap": (a_scan, {"taps": tap.on("cholesky")}, "no primitive was met by the tap on 'cholesky'"),
    "taps": (
        a_scan,
        {"taps": (tap.on("add"), tap.watch_nan(("log", "exp")), tap.print("sin"))},
        "no primitive was met by the tap on 'exp', 'log', 'sin'",
    ),
    "select_ys, no scan": (
        a_while,
        {"select_ys": "loss"},
        "select_ys='loss' fits no loop, nothing was recorded: no scan",
    ),
    "select_ys, no outputs": (no_outputs, {"select_ys": "loss"}, "select_ys='loss' fits no loop"),
    "select_ys, others": (
        a_scan,
        {"select_ys": "rate"},
        "'rate' is not a leaf of this loop; its leaves: out.loss, out.other",
    ),
    "select, no loop": (
        jax.jit(jnp.sin),
        {"select": "loss"},
        "select='loss' fits no loop, nothing was recorded: no loop",
    ),
    "reducer, no loop": (jax.jit(jnp.sin), {"select": lambda leaves: 1}, "<lambda> fits no loop"),
    "where, by address": (
        a_scan,
        {"where": "scan[1]"},
        r"where='scan[1]' let no loop through, .*there were: .*scan[0] (",
    ),
    "where, by place": (a_scan, {"where": "model.py:3"}, "where='model.py:3' let no loop through"),
    "where, by function": (a_scan, {"where": lambda path: False}, "<lambda> let no loop through"),
    "where, no loop": (jax.jit(jnp.sin), {"where": "scan[0]"}, "let no loop through, .*there was no loop"),
    "nothing ran": (lambda x: x, {"taps": tap.on("sin")}, "no primitive was met by the tap on 'sin'"),
}


@pytest.mark.parametrize("enter", ["block", "wrapped", "verbose"])
@pytest.mark.parametrize("case", UNMET)
def test_what_met_nothing_is_told_once(case, enter):
    f, options, says = UNMET[case]
    messages = told(f, 1.0, enter=enter, **options)
    assert len(messages) == 1
    for part in says.split(".*"):
        assert part in messages[0]


MET = {
    "tap": (a_scan, {"taps": (tap.on("add"), tap.watch_nan("neg"))}),
    "tap on all": (a_scan, {"taps": tap.on("*")}),
    "a loop as a primitive": (a_scan, {"taps": tap.on("scan")}),
    "select_ys": (a_scan, {"select_ys": "loss"}),
    "select": (a_while, {"select": "c"}),
    "where": (a_scan, {"where": "scan[0]"}),
    "where beside taps": (a_scan, {"where": "while[7]", "taps": tap.on("add")}),
    "listener": (no_outputs, {"on_ys": lambda event: None}),
    "gate": (a_scan, {"gate": "cholesky"}),
    "nothing asked": (lambda x: x, {}),
}


@pytest.mark.parametrize("enter", ["block", "wrapped", "verbose"])
@pytest.mark.parametrize("case", MET)
def test_what_met_something_is_not_told(case, enter):
    f, options = MET[case]
    assert told(f, 1.0, enter=enter, **options) == []


def test_a_tap_that_meets_something_in_some_program_is_met():
    def f():
        jax.jit(jnp.sin)(1.0)
        jax.jit(jnp.cos)(1.0)

    assert told(f, taps=(tap.on("sin"), tap.on("cos"))) == []


def test_a_block_that_raises_has_nothing_to_tell():
    with warnings.catch_warnings(), pytest.raises(KeyError), tap.record(taps=tap.on("cholesky")):
        warnings.simplefilter("error")
        raise KeyError("mine")


def test_what_is_unmet_harms_nobody_where_warnings_are_errors(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tap.record(taps=tap.on("cholesky"), carry=True) as rec:
            assert a_scan(1.0) == 4
    assert len(rec.events) == 3
    assert "cholesky" in capfd.readouterr().err


# -- scans without outputs


@pytest.mark.parametrize("options", [{}, {"select_ys": lambda outs: 1.0}, {"select_ys": lambda outs: outs}])
@pytest.mark.parametrize("f", [no_outputs, a_while, lambda x: lax.fori_loop(0, 3, lambda i, c: c + 1, x)])
def test_loops_without_outputs_have_no_output_events(f, options):
    heard = []
    with warnings.catch_warnings(), tap.record(on_ys=heard.append, carry=True, **options) as rec:
        warnings.simplefilter("ignore")
        f(0)
    assert heard == []
    assert {event.kind for event in rec.events} == {"carry"}


# -- where


def eager_loops():
    """Two loops that nothing tells apart but the line."""
    first = lax.scan(body, 0.0, None, length=3)[0]
    return lax.scan(body, first, None, length=3)[0]


def body(c, _):
    return c + 1.0, None


LINE = eager_loops.__code__.co_firstlineno + 2
HERE = "test_asked_and_not_met.py"

FIRST = {
    "source": lambda path, *, source: f":{LINE} (" in source,
    "both": lambda path, *, program, source: program == "scan" and source.startswith(f"{HERE}:{LINE} "),
    "more": lambda path, **more: more == {"program": "scan", "source": f"{HERE}:{LINE} (eager_loops)"},
    "place": f"{HERE}:{LINE}",
    "place with a folder": f"tests/api/{HERE}:{LINE}",
}


@pytest.mark.parametrize("options", [{}, {"identity": "inline"}, {"on_step": lambda event: None}])
@pytest.mark.parametrize("where", FIRST)
def test_eager_loops_are_told_apart_by_their_lines(where, options):
    for _ in range(2):
        with tap.record(where=FIRST[where], **options) as rec:
            assert eager_loops() == 6
        assert [float(e.value["c"]) for e in rec.events] == [1.0, 2.0, 3.0]
        assert {e.source for e in rec.events} == {f"{HERE}:{LINE} (eager_loops)"}


@pytest.mark.parametrize("options", [{}, {"on_step": lambda event: None}, {"taps": tap.on("add")}, {"gate": "born"}])
def test_eager_programs_say_the_line_that_called_them(options):
    with tap.record(**options, carry=True) as rec:
        eager_loops()
        lax.add(1.0, 2.0)
        lax.add(1.0, 2.0)
    lines = [int(e.source.partition(":")[2].split()[0]) for e in rec.events if e.path == "scan[0]"]
    assert sorted(set(lines)) == [LINE, LINE + 1]
    if "taps" in options:
        called = [int(e.source.partition(":")[2].split()[0]) for e in rec.events if e.path == "add[0]"]
        assert called[1] == called[0] + 1


def nested():
    def inner(c, _):
        return lax.while_loop(lambda x: x < c + 2, lambda x: x + 1, c), None

    x = lax.scan(inner, 0, None, length=2)[0]
    return lax.cond(x > 0, lambda x: lax.fori_loop(0, 2, lambda i, c: c + i, x), lambda x: x, x)


@pytest.mark.parametrize(
    ("where", "paths"),
    [
        ("scan[0]", {"scan[0]"}),
        ("scan[0]/*", {"scan[0]/while[0]"}),
        ("*/while[0]", {"scan[0]/while[0]"}),
        ("*", {"scan[0]", "scan[0]/while[0]", "cond[1]/b1/scan[0]"}),
        ("cond[*]/b*/scan[*]", {"cond[1]/b1/scan[0]"}),
        ("scan*", {"scan[0]", "scan[0]/while[0]"}),
    ],
)
def test_addresses_match_as_they_are_written(where, paths):
    with tap.record(where=where) as rec:
        jax.jit(nested)()
    assert {e.path for e in rec.events} == paths


def test_where_hears_of_the_program():
    heard = set()

    def where(path, *, program):
        heard.add((path, program))
        return program == "wanted"

    def wanted(x):
        return lax.fori_loop(0, 2, lambda i, c: c + 1, x)

    def other(x):
        return lax.fori_loop(0, 2, lambda i, c: c + 1, x)

    with tap.record(where=where) as rec:
        jax.jit(wanted)(1), jax.jit(other)(1)
    assert {e.program for e in rec.events} == {"wanted"}
    assert heard == {("scan[0]", "wanted"), ("scan[0]", "other")}


@pytest.mark.parametrize("outer", [jax.jit, jax.vmap])
def test_where_works_under_an_outer_transformation(outer):
    line = nested.__code__.co_firstlineno + 4
    heard = []
    g = tap.verbose(nested, where=f"{HERE}:{line}", on_step=heard.append)
    outer(lambda x: g() + x)(jnp.arange(2))
    jax.effects_barrier()
    assert {e.path for e in heard} == {"scan[0]"}


# -- blocks


def test_a_block_is_left_as_often_as_it_is_entered():
    block = tap.record()
    with pytest.raises(tap.LensError, match="not entered"):
        block.__exit__(None, None, None)
    with block as rec:
        a_scan(1.0)
    with pytest.raises(tap.LensError, match="left"):
        block.__exit__(None, None, None)
    assert len(rec.events) == 3
    with tap.record() as rec:
        a_scan(1.0)
    assert len(rec.events) == 3


# -- primitives


def test_primitives_lists_what_runs_and_nothing_else():
    a = jnp.eye(2) * 2.0

    def solved(b):
        return lax.custom_linear_solve(lambda x: jnp.sin(a) @ x, b, lambda _, b: b / 2.0)

    @jax.custom_jvp
    def ruled(x):
        return jnp.cos(x)

    ruled.defjvp(lambda primals, tangents: (ruled(*primals), jnp.tan(primals[0]) * tangents[0]))

    def rooted(x):
        return lax.custom_root(lambda y: jnp.exp(y) - x, x, lambda g, x: jnp.log(x), lambda g, y: y / g(1.0))

    assert set(tap.primitives(solved, jnp.ones(2))) >= {"div"}
    assert not set(tap.primitives(solved, jnp.ones(2))) & {"sin", "dot_general"}
    assert "cos" in tap.primitives(ruled, 1.0) and "tan" not in tap.primitives(ruled, 1.0)
    assert "log" in tap.primitives(rooted, 1.0) and "exp" not in tap.primitives(rooted, 1.0)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.linalg.solve(jnp.eye(2) * 2.0, x),
        lambda x: jax.nn.softplus(x),
        lambda x: jnp.sort(x).at[0].add(1.0),
        lambda x: jax.checkpoint(jnp.sin)(x) * jnp.cumsum(x),
        lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
        lambda x: lax.map(jnp.tanh, x),
    ],
    ids=["solve", "softplus", "scatter", "checkpoint", "cond", "map"],
)
def test_all_that_is_seen_is_listed(f):
    x = jnp.array([1.0, 0.5])
    listed = tap.primitives(f, x)
    with tap.record(taps=tap.on("*", select=lambda outs: ())) as rec:
        jax.jit(f)(x)
    seen = {e.path.rpartition("/")[2].partition("[")[0] for e in rec.events}
    assert seen and seen <= set(listed)


def test_the_version_is_that_of_the_distribution():
    assert tap.__version__ == importlib.metadata.version("pytest-jaxtap")
