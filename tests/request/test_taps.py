"""Taps on primitives: what they see, when they alert, how they compare; and the primitives of a program."""

import functools
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap_core as tap


def record(f, *args, taps, **options):
    with tap.record(taps=taps, **options) as rec:
        f(*args)
    return rec


@jax.jit
def logs(x):
    """log of x, x - 1, x - 2, x - 3, in a scan; then one log outside of it."""
    x, ys = lax.scan(lambda c, _: (c - 1, jnp.log(c)), x, None, length=4)
    return jnp.log(x + 10), ys


# -- on


@pytest.mark.parametrize("live", [False, True])
def test_values_of_a_primitive_in_and_out_of_loops(live):
    heard = []
    t = tap.on("log", on_value=heard.append if live else None)
    rec = record(logs, 8.0, taps=(t,))
    got = [(e.path, e.steps, e.step, e.total, float(e.value)) for e in rec.events]
    expected = [("log[0]", (), -1, None, np.log(14.0))]
    expected += [("scan[0]/log[0]", (i,), i, 4, np.log(8.0 - i)) for i in range(4)]
    assert [g[:4] for g in got] == [e[:4] for e in expected]
    assert [g[4] for g in got] == pytest.approx([e[4] for e in expected], rel=1e-6)
    assert len(heard) == (5 if live else 0)
    assert {e.kind for e in rec.events} == {"primitive"}
    assert all("logs" in e.source or "<lambda>" in e.source for e in rec.events)
    assert all(re.match(r"test_taps\.py:\d+ ", e.source) for e in rec.events)


def test_several_names_and_select_on_the_device():
    t = tap.on(("log", "sub"), select=lambda outs: {"twice": outs[0] * 2})
    rec = record(logs, 8.0, taps=t)
    assert {e.path for e in rec.events} == {"log[0]", "scan[0]/log[0]", "scan[0]/sub[0]"}
    subs = [float(e.value["twice"]) for e in rec.events if "sub" in e.path]
    assert subs == [14.0, 12.0, 10.0, 8.0]


def test_output_picks_one_output_of_the_primitive():
    a = np.array([[2.0, 1.0], [1.0, 2.0]], np.float32)
    f = jax.jit(lambda a: lax.linalg.eigh(a))
    both = record(f, a, taps=tap.on("eigh"))
    assert [x.shape for x in both.events[0].value] in ([(2, 2), (2,)], [(2,), (2, 2)])
    shapes = [x.shape for x in both.events[0].value]
    for i in range(2):
        rec = record(f, a, taps=tap.on("eigh", output=i))
        assert rec.events[0].value.shape == shapes[i]
    values = both.events[0].value[shapes.index((2,))]
    assert sorted(values.tolist()) == pytest.approx([1.0, 3.0], rel=1e-6)
    with pytest.raises(tap.LensError, match=r"eigh\[0\]: eigh has 2 outputs, .* output 2"):
        record(f, a, taps=tap.on("eigh", output=2))
    assert len(record(f, a, taps=tap.on("*", output=2)).events) == 0  # of all there are, few have three


def test_two_taps_on_one_primitive_with_labels():
    taps = (
        tap.on("log", label="plain"),
        tap.on("log", label="negated", select=lambda outs: -outs[0]),
    )
    rec = record(logs, 8.0, taps=taps)
    assert len(rec.events) == 10
    values = sorted(float(e.value) for e in rec.events)
    expected = np.log([14.0, 8.0, 7.0, 6.0, 5.0])
    assert values == pytest.approx(sorted([*expected, *-expected]), rel=1e-6)
    assert {s.key.label for s in rec.streams} == {"plain", "negated"}


def test_the_tap_on_everything_leaves_out_loops_branches_and_calls():
    rec = record(logs, 8.0, taps=tap.on("*"))
    names = {re.sub(r"\[\d+\]", "", e.path.rpartition("/")[2]) for e in rec.events}
    assert names == {"log", "sub", "add"}


def test_a_loop_can_be_tapped_as_a_primitive():
    f = jax.jit(lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=3)[0])
    rec = record(f, 1.0, taps=tap.on("scan"))
    assert [(e.path, e.steps, float(e.value)) for e in rec.events] == [("scan[0]", (), 4.0)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [(True, "alert"), ("too small", "too small"), (1, "alert"), (np.True_, "alert")],
)
def test_alert_of_a_tap_gets_the_value(answer, message, capfd):
    seen = []

    def alert(value):
        seen.append(value)
        return answer if value < np.log(6.5) else (None, False, 0, "")[len(seen) % 4]

    rec = record(logs, 8.0, taps=tap.on("log", alert=alert))
    assert len(seen) == 5
    assert [(a.event.path, a.event.step, a.message) for a in rec.alerts] == [
        ("scan[0]/log[0]", 2, message),
        ("scan[0]/log[0]", 3, message),
    ]
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(rf"\[tap\] FAIL scan\[0\]/log\[0\] 2/4: {message} \(test_taps\.py:\d+\)", lines[0])
    assert rec.alerts[0].source == rec.alerts[0].event.source
    assert str(rec.alerts[0]).startswith(f"scan[0]/log[0] 2/4: {message} (test_taps.py:")
    assert rec.alerts[0].to_dict()["event"]["path"] == "scan[0]/log[0]"


def test_once_is_once_a_path_and_recording():
    t = tap.on("log", alert=lambda value: "seen", once=True)
    for _ in range(2):
        with tap.record(taps=t) as rec:
            logs(8.0), logs(7.0)
        assert sorted(a.event.path for a in rec.alerts) == ["log[0]", "scan[0]/log[0]"]


# -- watch_nan


def bad_log(x):
    return lax.scan(lambda c, _: (c - 1, jnp.log(c)), x, None, length=5)


@pytest.mark.parametrize(
    ("inf", "fires"),
    [(True, [2, 3, 4]), (False, [3, 4])],
)
def test_watch_nan_fires_on_bad_steps_alone(inf, fires, capfd):
    # log of 2, 1, 0, -1, -2: -inf at step 2, NaN after
    rec = record(jax.jit(bad_log), 2.0, taps=tap.watch_nan("log", inf=inf))
    assert [e.step for e in rec.events] == fires
    assert [a.event.step for a in rec.alerts] == fires
    assert [bool(np.isnan(e.value)) for e in rec.events] == [step > 2 for step in fires]
    err = capfd.readouterr().err
    assert err.count("[tap] FAIL scan[0]/log[0] ") == len(fires)
    assert f"{fires[0]}/5: {'NaN/Inf' if inf else 'NaN'} (test_taps.py:" in err


def test_watch_nan_that_never_fires_says_nothing(capfd):
    rec = record(logs, 8.0, taps=tap.watch_nan("*"))
    assert len(rec.events) == 0
    assert rec.alerts == []
    assert capfd.readouterr().err == ""


def test_watch_nan_once_and_everywhere():
    rec = record(jax.jit(bad_log), 2.0, taps=tap.watch_nan("*", once=True))
    assert {a.event.path for a in rec.alerts} == {"scan[0]/log[0]"}
    assert len(rec.alerts) == 1
    assert len(rec.events) == 3


def test_watch_nan_looks_at_complex_numbers_and_small_floats():
    f = jax.jit(lambda z: lax.exp(z))
    assert len(record(f, np.complex64(complex(0, np.nan)), taps=tap.watch_nan("exp")).alerts) == 1
    assert len(record(f, np.complex64(1j), taps=tap.watch_nan("exp")).alerts) == 0
    for dtype in ("bfloat16", "float16"):
        assert len(record(f, jnp.asarray(np.nan, dtype), taps=tap.watch_nan("exp")).alerts) == 1
        assert len(record(f, jnp.asarray(1, dtype), taps=tap.watch_nan("exp")).alerts) == 0


def test_watch_nan_of_one_output():
    both = jax.jit(lambda a: lax.linalg.eigh(a))
    nan = jnp.full((2, 2), jnp.nan)
    for output in (None, 0, 1):
        assert len(record(both, nan, taps=tap.watch_nan("eigh", output=output)).alerts) == 1


def test_watch_nan_eagerly_and_in_a_cholesky():
    a = jnp.array([[1.0, 2.0], [2.0, 1.0]])
    rec = record(lax.linalg.cholesky, a, taps=tap.watch_nan("cholesky"))
    assert [a.event.path.rpartition("/")[2] for a in rec.alerts] == ["cholesky[0]"]


def test_watch_nan_ignores_lanes_that_have_finished():
    # lane 0 stops at 1 and would go on to log(0) and NaN; lane 1 runs on
    def f(x, n):
        body = lambda s: (s[0] + 1, s[1] - 1, jnp.log(s[1]))
        return lax.while_loop(lambda s: s[0] < n, body, (0, x, 0.0))

    rec = record(jax.jit(jax.vmap(f)), jnp.array([2.0, 9.0]), jnp.array([2, 6]), taps=tap.watch_nan("log"))
    assert rec.alerts == []
    rec = record(jax.jit(jax.vmap(f)), jnp.array([2.0, 9.0]), jnp.array([3, 6]), taps=tap.watch_nan("log"))
    assert [(a.event.step, a.event.active.tolist()) for a in rec.alerts] == [(2, [True, True])]


# -- print


def test_print_writes_a_line_a_value_with_arrays_shortened(capfd):
    f = jax.jit(lambda: lax.scan(lambda c, _: (jnp.sin(c), None), jnp.zeros(1000), None, length=3))
    rec = record(f, taps=tap.print("sin", label="angle"))
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["[tap] angle"] * 3
    assert [re.search(r"(\d)/3", line)[1] for line in lines] == ["0", "1", "2"]
    assert all(len(line) < 120 and "..." in line for line in lines)
    assert len(rec.events) == 3


# -- alerts on carries and outputs


@pytest.mark.parametrize("once", [False, True])
def test_alerts_on_carries_and_outputs(once, capfd):
    f = jax.jit(lambda: lax.scan(lambda c, _: (c + 1, c * 10), 0.0, None, length=4))
    with tap.record(
        select="c",
        alert=lambda event: f"carry {event.value:.0f}" if event.value > 2 else None,
        alert_ys=lambda event: event.value >= 20,
        alert_once=once,
        alert_ys_once=once,
        select_ys="out",
    ) as rec:
        f()
    carry = [(a.event.step, a.message) for a in rec.alerts if a.event.kind == "carry"]
    output = [(a.event.step, a.message) for a in rec.alerts if a.event.kind == "output"]
    assert carry == [(2, "carry 3"), (3, "carry 4")][: 1 if once else 2]
    assert output == [(2, "alert"), (3, "alert")][: 1 if once else 2]
    assert len(rec.events) == 8
    assert capfd.readouterr().err.count("[tap] FAIL scan[0] ") == len(rec.alerts)


def test_live_events_carry_their_time_of_arrival_in_order():
    with tap.record(select="c", on_step=lambda event: None) as rec:
        jax.jit(lambda: lax.scan(lambda c, _: (c + 1, None), 0.0, None, length=4))()
    times = [e.time for e in rec.events]
    assert times == sorted(times)
    assert all(isinstance(t, float) for t in times)


# -- specifications as values


def alert(value):
    return value > 0


MAKERS = {
    "on": lambda: tap.on("log"),
    "on_select": lambda: tap.on("log", select=lambda outs: outs[0] * 2),
    "on_other_select": lambda: tap.on("log", select=lambda outs: outs[0] * 3),
    "on_default": lambda: tap.on("log", select=lambda outs, k=2: outs[0] * k),
    "on_other_default": lambda: tap.on("log", select=lambda outs, k=3: outs[0] * k),
    "on_partial": lambda: tap.on("log", select=functools.partial(lambda k, outs: outs[0] * k, 2)),
    "on_other_partial": lambda: tap.on("log", select=functools.partial(lambda k, outs: outs[0] * k, 3)),
    "on_names": lambda: tap.on({"sin", "log"}),
    "on_all": lambda: tap.on("*"),
    "on_alert": lambda: tap.on("log", alert=alert),
    "on_label": lambda: tap.on("log", label="x"),
    "on_output": lambda: tap.on("log", output=0),
    "on_once": lambda: tap.on("log", once=True),
    "watch": lambda: tap.watch_nan("log"),
    "watch_nan_alone": lambda: tap.watch_nan("log", inf=False),
    "print": lambda: tap.print("log"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_taps_are_values(name):
    one, two = MAKERS[name](), MAKERS[name]()
    assert one is not two
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two}) == 1
    assert jax.tree.leaves(one) == []
    assert jax.tree.unflatten(jax.tree.structure(one), []) == one
    with pytest.raises(AttributeError):
        one.label = "other"
    for other in MAKERS:
        assert (MAKERS[other]() == one) == (other == name)


def test_taps_count_closed_over_values():
    def scaled(k):
        return tap.on("log", select=lambda outs: outs[0] * k)

    assert scaled(2) == scaled(2)
    assert scaled(2) != scaled(3)
    assert scaled(2) != scaled(2.0)


def test_taps_pass_through_jit_as_arguments():
    f = jax.jit(lambda x, t: x * (2 if t == tap.on("log") else 3))
    assert f(1.0, tap.on("log")) == 2
    assert f(1.0, tap.on("sin")) == 3


def test_taps_pickle():
    t = tap.on(("log", "sin"), label="x", output=0)
    assert pickle.loads(pickle.dumps(t)) == t


# -- bad input


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("choleski", "cholesky"), ("dotgeneral", "dot_general"), ("whlie", "while"), ("tahn", "tanh")],
)
@pytest.mark.parametrize("make", [tap.on, tap.watch_nan, tap.print])
def test_unknown_primitives_are_refused_with_the_nearest(make, name, nearest):
    with pytest.raises(ValueError, match=f"no JAX primitive is called '{name}'; did you mean .*'{nearest}'"):
        make(name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tap.on("log", select=3),
        lambda: tap.on("log", alert="yes"),
        lambda: tap.on("log", on_value=1),
        lambda: tap.on("log", output=-1),
        lambda: tap.on("log", output="first"),
        lambda: tap.on(3),
        lambda: tap.on(()),
        lambda: tap.on(("log", 3)),
        lambda: tap.on("log", outputs=1),
    ],
)
def test_ill_typed_taps_are_refused(make):
    with pytest.raises(TypeError):
        make()


# -- primitives


def test_primitives_counts_equations_of_nested_programs():
    @jax.jit
    def inner(x):
        return jnp.cos(x) * jnp.cos(x + 1)

    def f(x, *, n, name="a"):
        assert name == "b"
        x = lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=n)[0]
        return lax.cond(x > 0, inner, lambda x: jnp.cos(x), x)

    counts = tap.primitives(f, 1.0, n=3, name="b")
    assert {k: counts[k] for k in ("sin", "cos", "scan", "cond", "gt", "jit")} == {
        "sin": 1,
        "cos": 3,
        "scan": 1,
        "cond": 1,
        "gt": 1,
        "jit": 1,
    }
    assert list(counts) == sorted(counts)
    with tap.record() as rec:
        assert tap.primitives(f, 1.0, n=3, name="b") == counts
    assert len(rec.events) == 0


def test_once_is_counted_for_each_tap_apart():
    yes = lambda value: "seen"
    taps = (tap.on("log", alert=yes, once=True), tap.on("log", alert=yes, once=True, label="b"))
    rec = record(jax.jit(bad_log), 9.0, taps=taps)
    assert len(rec.alerts) == 2


def test_a_tap_whose_select_does_not_fit_warns_and_steps_aside():
    taps = (tap.on("log", select=lambda outs: outs[3]), tap.on("sub"))
    with pytest.warns(tap.JaxtapWarning, match="scan.0./log.0.: the tap's select does not fit: .*IndexError"):
        rec = record(jax.jit(bad_log), 9.0, taps=taps)
    assert {e.path for e in rec.events} == {"scan[0]/sub[0]"}
    assert len(rec.events) == 5


# -- values inside a step are taken from a copy of it


def copied_program():
    """Loops, a branch and a call around tapped primitives, a library call, a key and a callback."""

    def step(c, x):
        inner = lax.fori_loop(0, 2, lambda i, v: v * 0.5 + jnp.sin(v), c)
        c = lax.cond(x > 1, lambda v: v * 3, lambda v: v * 0.25, inner)
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(0), 3), (2,))
        c = jnp.where(c > 0, c * x, c) + noise
        jax.debug.callback(lambda v: seen.append(float(v)), c[0])
        return c, jnp.linalg.cholesky(jnp.eye(2) * (1 + c[0] ** 2)).sum()

    seen: list[float] = []
    return jax.jit(lambda c: lax.scan(step, c, jnp.arange(3.0))), seen


@pytest.mark.parametrize("identity", ["certified", "inline"])
def test_taps_read_a_copy_what_a_rewriting_in_place_reads(identity, monkeypatch):
    from jaxtap_core.instrument.interpreter import Interpreter

    taps = (tap.on(("mul", "sin", "cholesky", "cond", "scan")), tap.watch_nan("*"))
    start = jnp.array([0.3, -0.4])

    def record():
        program, seen = copied_program()
        with tap.record(taps=taps, identity=identity) as rec:
            program(start)
            jax.effects_barrier()
        assert len(seen) == 3  # a copy calls nobody
        return [(e.path, e.steps) for e in rec.events], [e.value for e in rec.events]

    places, values = record()
    monkeypatch.setattr(Interpreter, "_looks_inside", lambda *_: False)
    again, in_place = record()
    assert places == again and len(places) > 20
    for one, other in zip(values, in_place, strict=True):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
