"""Never harm: what users hand in may raise, and what they ask may be impossible; their programs go on all the same."""

import subprocess
import sys
import textwrap
import warnings

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap_core as tap


@jax.jit
def count(x):
    return lax.scan(lambda c, _: (c + 1, jnp.sin(c)), x, None, length=5)


class Failing:
    """A callback (or predicate, or sink) that raises at its second call."""

    def __init__(self, error=None):
        self.calls, self.error = 0, error or RuntimeError("mine")

    def __call__(self, *args):
        self.calls += 1
        if self.calls > 1:
            raise self.error

    def write(self, event):
        self(event)

    def close(self):
        pass


FAILING = {
    "on_step": lambda bad: {"on_step": bad},
    "on_ys": lambda bad: {"on_ys": bad},
    "alert": lambda bad: {"alert": bad},
    "alert_ys": lambda bad: {"alert_ys": bad},
    "sink": lambda bad: {"sinks": bad},
    "on_value": lambda bad: {"taps": tap.on("sin", on_value=bad)},
    "tap_alert": lambda bad: {"taps": tap.on("sin", alert=bad)},
}


@pytest.mark.parametrize("identity", ["auto", "inline"])
@pytest.mark.parametrize("name", FAILING)
def test_what_raises_warns_once_and_is_called_no_more(name, identity):
    bad, heard = Failing(), []
    options = FAILING[name](bad)
    options["taps"] = (*([options["taps"]] if "taps" in options else []), tap.on("add", on_value=heard.append))
    plain = count(1.0)
    with pytest.warns(tap.JaxtapWarning) as caught, tap.record(identity=identity, carry=True, **options) as rec:
        result = count(1.0)
        again = count(2.0)
    assert len(caught) == 1
    assert "RuntimeError: mine" in str(caught[0].message)
    assert bad.calls == 2
    assert len(heard) == 10  # the other tap went on
    assert len([e for e in rec.events if e.kind == "carry"]) == 10
    assert result[0] == plain[0] == 6
    assert again[0] == 7
    assert count(3.0)[0] == 8


@pytest.mark.parametrize("name", FAILING)
def test_the_same_where_warnings_are_errors(name, capfd):
    bad = Failing()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tap.record(carry=True, **FAILING[name](bad)) as rec:
            result = count(1.0)
    assert result[0] == 6
    assert bad.calls == 2
    assert len([e for e in rec.events if e.kind == "carry"]) == 5
    assert capfd.readouterr().err.count("mine") == 1


@pytest.mark.parametrize("error", [KeyError(), ValueError("a\nb"), AssertionError("no"), StopIteration()])
def test_any_exception_is_told_in_one_line(error):
    with pytest.warns(tap.JaxtapWarning) as caught, tap.record(on_step=Failing(error)):
        assert count(1.0)[0] == 6
    assert len(caught) == 1
    first = str(caught[0].message).splitlines()
    assert len(first) == 1
    assert type(error).__name__ in first[0]


def test_a_predicate_whose_answer_has_no_truth_steps_aside():
    class Answer:
        def __bool__(self):
            raise TypeError("no truth")

    calls = []

    def alert(event):
        calls.append(event)
        return Answer()

    with pytest.warns(tap.JaxtapWarning, match="no truth") as caught, tap.record(alert=alert) as rec:
        assert count(1.0)[0] == 6
    assert len(caught) == 1
    assert rec.alerts == []
    assert len(calls) == 1


def test_a_sink_that_cannot_be_closed_warns():
    class Sink:
        def write(self, event):
            pass

        def close(self):
            raise OSError("disk gone")

    with pytest.warns(tap.JaxtapWarning, match="disk gone"), tap.record(sinks=(Sink(),)) as rec:
        count(1.0)
    assert len(rec.events) == 5


def test_two_listeners_of_one_object_do_not_silence_each_other():
    class Dashboard:
        def __init__(self):
            self.steps = []

        def on_step(self, event):
            self.steps.append(event.step)

        def on_ys(self, event):
            raise RuntimeError("mine")

    board = Dashboard()
    with pytest.warns(tap.JaxtapWarning, match="mine"), tap.record(on_step=board.on_step, on_ys=board.on_ys):
        count(1.0)
    assert board.steps == [0, 1, 2, 3, 4]


def test_a_callback_that_raises_in_a_wrapped_function_warns_once_over_all_calls():
    bad = Failing()
    g = tap.verbose(count, on_step=bad)
    with pytest.warns(tap.JaxtapWarning) as caught:
        g(1.0), g(1.0), g(1.0)
    assert len(caught) == 1
    assert bad.calls == 2


def test_later_programs_of_the_process_run_as_ever():
    """Under -W error, in a process of its own: a raising callback, then plain programs, then another lens."""
    script = """
        import jax, jax.numpy as jnp
        from jax import lax
        import jaxtap_core as tap

        @jax.jit
        def count(x):
            return lax.scan(lambda c, _: (c + 1, None), x, None, length=5)[0]

        def bad(event):
            raise RuntimeError("mine")

        with tap.record(on_step=bad) as rec:
            assert count(1.0) == 6
        assert len(rec.events) == 5
        assert count(1.0) == 6
        with tap.record(on_step=lambda event: None) as rec:
            assert count(2.0) == 7
        assert len(rec.events) == 5
        print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "fine\n", done.stderr
    assert done.stderr.count("mine") == 1


# -- questions that make no sense


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"selct": "c"}, "no argument 'selct'; did you mean 'select'"),
        ({"on_stp": print}, "did you mean 'on_step'"),
        ({"nonsense": 1}, "no argument 'nonsense'"),
        ({"on_step": "print"}, "on_step must be a function"),
        ({"alert": 3}, "alert must be a function"),
        ({"where": 3}, "where must be a function f(path)"),
        ({"where": "scan"}, "where='scan' can match no loop"),
        ({"where": ""}, "where='' can match no loop"),
        ({"where": "scan[0]/loop[1]"}, "can match no loop"),
        ({"where": "scan[0"}, "can match no loop"),
        ({"where": "model.py"}, "a place in your code such as"),
        ({"where": "model.py:here"}, "can match no loop"),
        ({"where": lambda: True}, "where must be a function f(path)"),
        ({"where": lambda path, source: True}, "missing a required argument: 'source'"),
        ({"where": lambda path, *, line: True}, "missing a required"),
        ({"select": 3}, "select must be"),
        ({"select": ()}, "select must be"),
        ({"select": [1, 2]}, "select must be"),
        ({"select": {"a": 1}}, "select must be"),
        ({"select": lambda: 1}, "select is called as f(leaves)"),
        ({"select": lambda a, b: a}, "select is called as f(leaves)"),
        ({"select_ys": 3.0}, "select_ys must be"),
        ({"sample_every": 0}, "sample_every must be a whole number"),
        ({"sample_every": 2.5}, "sample_every must be a whole number"),
        ({"sample_every": True}, "sample_every must be a whole number"),
        ({"max_depth": 0}, "max_depth must be a whole number"),
        ({"max_trips": -1}, "max_trips must be a whole number"),
        ({"alert_once": "yes"}, "alert_once must be True or False"),
        ({"taps": "log"}, "taps must be a tuple of taps"),
        ({"taps": ("log",)}, "which is no tap"),
        ({"sinks": ("a.jsonl",)}, "is no sink"),
        ({"ops": "loop"}, "'scan' and 'while'"),
        ({"identity": "certifed"}, "did you mean 'certified'"),
        ({"gate": "escap"}, "Did you mean the level 'escape'"),
        ({"gate": 7}, "the NaN gate takes a level"),
        ({"gate": "cholesk"}, "did you mean 'cholesky'"),
    ],
)
@pytest.mark.parametrize("enter", ["record", "wrapped", "verbose"])
def test_what_cannot_be_meant_is_refused_at_once(options, says, enter):
    with pytest.raises((TypeError, ValueError)) as caught:
        if enter == "record":
            tap.record(**options)
        elif enter == "wrapped":
            tap.record(count, **options)
        else:
            tap.verbose(count, **options)
    assert says in str(caught.value)


@pytest.mark.parametrize("wrap", [tap.record, tap.verbose])
def test_what_is_no_function_cannot_be_wrapped(wrap):
    with pytest.raises(TypeError, match=r"wraps a function, not 'step_size'.*select="):
        wrap("step_size")


def test_a_path_filter_that_raises_is_a_clear_error():
    def where(path):
        raise KeyError(path)

    with pytest.raises(ValueError, match=r"where=.*where raised KeyError.*'scan\[0\]'"), tap.record(where=where):
        count(1.0)
    assert count(1.0)[0] == 6


def test_a_sink_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(OSError, match="missing"):
        tap.JSONLSink(tmp_path / "missing" / "run.jsonl")


# -- entered where it cannot work


def inside_jit(enter):
    return jax.jit(lambda x: enter(x))(1.0)


def inside_vmap(enter):
    return jax.vmap(enter)(jnp.arange(2.0))


def inside_grad(enter):
    return jax.grad(enter)(1.0)


def inside_a_scan_body(enter):
    return lax.scan(lambda c, _: (enter(c), None), 1.0, None, length=2)[0]


@pytest.mark.parametrize("inside", [inside_jit, inside_vmap, inside_grad, inside_a_scan_body])
@pytest.mark.parametrize("observed", [False, True])
def test_a_block_inside_a_traced_function_is_refused(inside, observed):
    def enter(x):
        with tap.record():
            return x * 2

    with pytest.raises(tap.LensError, match=r"inside a function that JAX is tracing.*wrap the function"):
        if observed:
            with tap.record():
                inside(enter)
        else:
            inside(enter)
    assert count(1.0)[0] == 6
    with tap.record() as rec:
        count(1.0)
    assert len(rec.events) == 5


def test_a_function_traced_in_the_block_may_be_unobserved_inside():
    with tap.record() as rec:

        @jax.jit
        def f(x):
            with tap.unobserved():
                return x * 2

        assert f(2.0) == 4
        count(1.0)
    assert len(rec.events) == 5


# -- a program that cannot be observed


def test_disable_jit_and_compiled_executables_run_unharmed():
    compiled = count.lower(1.0).compile()
    with tap.record() as rec:
        assert compiled(1.0)[0] == 6
        with jax.disable_jit():
            assert count(1.0)[0] == 6
    assert count(1.0)[0] == 6
    assert len(rec.events) in (0, 5)


def test_wrapped_functions_feed_their_sink_at_every_call(tmp_path):
    sink = tap.JSONLSink(tmp_path / "run.jsonl")
    g, rec = tap.record(count, sinks=(sink,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        g(1.0), g(2.0)
    sink.close()
    assert len(rec.events) == 10
    assert len(tap.read_jsonl(tmp_path / "run.jsonl").events) == 10


def test_a_wrapped_function_that_stopped_once_is_judged_anew_at_the_next_call():
    g, rec = tap.record(count, select="c", alert=lambda event: event.value > 5, fail_fast=True)
    with pytest.raises(tap.TapAlert):
        g(3.0)
    assert g(-9.0)[0] == -4
    assert len(rec.alerts) >= 1
