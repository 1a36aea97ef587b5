"""What a callback raises that is no `Exception` is meant to leave: when the block ends, the program unharmed."""

import sys

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap_core as tap


@jax.jit
def count(x):
    return lax.scan(lambda c, _: (c + 1, jnp.sin(c)), x, None, length=5)[0]


class Meant(BaseException):
    pass


class Leaving:
    """A callback (predicate, or sink) that means to leave at its second call."""

    def __init__(self, leave):
        self.calls, self.leave = 0, leave

    def __call__(self, *args):
        self.calls += 1
        if self.calls > 1:
            self.leave()

    def write(self, event):
        self(event)

    def close(self):
        pass


def raising():
    raise Meant("mine")


def interrupted():
    raise KeyboardInterrupt


LEAVES = {
    "fail": (lambda: pytest.fail("low"), pytest.fail.Exception),
    "skip": (lambda: pytest.skip("not here"), pytest.skip.Exception),
    "exit": (lambda: sys.exit(3), SystemExit),
    "interrupt": (interrupted, KeyboardInterrupt),
    "own": (raising, Meant),
}
HEARD = {
    "on_step": lambda it: {"on_step": it},
    "on_ys": lambda it: {"on_ys": it},
    "alert": lambda it: {"alert": it},
    "alert_ys": lambda it: {"alert_ys": it},
    "sink": lambda it: {"sinks": it},
    "on_value": lambda it: {"taps": tap.on("sin", on_value=it)},
    "tap_alert": lambda it: {"taps": tap.on("sin", alert=it)},
}
leaves = pytest.mark.parametrize("how", LEAVES)


@leaves
@pytest.mark.parametrize("identity", ["auto", "inline"])
@pytest.mark.parametrize("name", HEARD)
def test_it_leaves_the_block_and_harms_nothing(name, how, identity):
    leave, kind = LEAVES[how]
    it, results, heard = Leaving(leave), [], []
    options = HEARD[name](it)
    options["taps"] = (*([options["taps"]] if "taps" in options else []), tap.on("add", on_value=heard.append))
    with pytest.raises(kind) as caught, tap.record(carry=True, identity=identity, **options) as rec:
        results.append(float(count(1.0)))
        results.append(float(count(2.0)))
    assert results == [6.0, 7.0]
    assert it.calls == 2
    assert len(heard) == 10  # the other tap went on
    assert len([e for e in rec.events if e.kind == "carry"]) == 10
    assert not getattr(caught.value, "__notes__", [])
    with tap.record() as rec:
        assert count(3.0) == 8
    assert len(rec.events) == 5


@leaves
@pytest.mark.parametrize("wrap", ["record", "verbose"])
def test_it_leaves_a_wrapped_function_after_the_call(how, wrap):
    leave, kind = LEAVES[how]
    it, results = Leaving(leave), []

    def f(x):
        results.append(float(count(x)))
        return results[-1]

    g = tap.record(f, on_step=it)[0] if wrap == "record" else tap.verbose(f, on_step=it)
    with pytest.raises(kind):
        g(1.0)
    assert results == [6.0]
    assert g(2.0) == 7.0
    assert it.calls == 2


@pytest.mark.parametrize("error", [ZeroDivisionError("own"), SystemExit(4), KeyboardInterrupt()], ids=repr)
def test_the_error_of_the_body_stays_and_a_note_tells_of_the_other(error):
    with pytest.raises(type(error)) as caught, tap.record(on_step=Leaving(raising)):
        count(1.0)
        raise error
    assert caught.value is error
    assert error.__notes__ == ["jaxtap: on_step raised Meant: mine meanwhile"]
    assert error.__cause__ is None


def test_only_the_first_leaves():
    first, second = Leaving(lambda: sys.exit(1)), Leaving(lambda: sys.exit(2))
    with pytest.raises(SystemExit) as caught, tap.record(on_step=first, on_ys=second):
        count(1.0)
    assert caught.value.code in (1, 2)
    assert (first.calls, second.calls) == (2, 2)


def test_it_leaves_the_block_that_it_belongs_to():
    outer, inner, after = [], Leaving(raising), []
    with tap.record(on_step=outer.append):
        count(1.0)
        with pytest.raises(Meant), tap.record(on_step=inner):
            count(2.0)
        after.append(float(count(3.0)))
    assert after == [8.0]
    assert [float(e.value["c"]) for e in outer] == [2, 3, 4, 5, 6, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("where", ["scan", "while"])
def test_with_fail_fast_it_stops_the_loop_too(where):
    steps, after = [], []

    def on_step(event):
        steps.append(event.step)
        if event.step == 3:
            raise Meant("enough")

    if where == "scan":
        f = jax.jit(lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=100_000)[0])
    else:
        f = jax.jit(lambda x: lax.while_loop(lambda c: c >= 0, lambda c: c + 1, x))  # it would never end
    with pytest.raises(Meant, match="enough"), tap.record(on_step=on_step, fail_fast=True):
        after.append(f(0))
    assert after == []  # what was stopped is no result
    assert steps == [0, 1, 2, 3]
    assert count(1.0) == 6


def test_with_fail_fast_the_first_alert_stays_the_error():
    def alert(event):
        return "high" if event.value > 2 else None

    with (
        pytest.raises(tap.TapAlert, match="high"),
        tap.record(select="c", alert=alert, fail_fast=True, sinks=Leaving(int)),
    ):
        count(1.0)


def test_an_exception_is_a_fault_and_what_is_meant_still_leaves():
    def fault(event):
        raise ValueError("fault")

    lens = tap.record(on_step=Leaving(raising), on_ys=fault)
    with pytest.warns(tap.JaxtapWarning, match="fault"), pytest.raises(Meant), lens:
        count(1.0)


def test_inside_of_a_compiled_function_there_is_nothing_to_leave():
    it = Leaving(raising)
    with pytest.warns(tap.JaxtapWarning, match="on_step raised Meant: mine"):
        h = jax.jit(tap.verbose(count, on_step=it))
        assert h(1.0) == 6
        jax.effects_barrier()
    assert it.calls == 2
    with tap.record():
        assert h(1.0) == 6


def test_a_sink_that_means_to_leave_when_it_is_closed():
    class Sink(Leaving):
        def __call__(self, *args):
            pass

        def close(self):
            self.leave()

    closed = Leaving(int)
    with pytest.raises(Meant), tap.record(sinks=(Sink(raising), closed)) as rec:
        count(1.0)
    assert len(rec.events) == closed.calls == 5
