"""Nothing is traced or compiled twice; blocks nest, end and fail cleanly; other threads and tasks stay out."""

import asyncio
import gc
import threading
import weakref
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from compilations import watching
from jax import lax

import jaxtap_core as tap


def halving(n):
    """A new function of its own (no cache of JAX knows it), that halves ``n`` times."""

    def halve(x):
        return lax.scan(lambda c, _: (c / 2, c), x, None, length=n)[0]

    return halve


def halving_while(n):
    def halve(x):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] / 2), (0, x))[1]

    return halve


LENSES = {
    "recording": {},
    "inline": {"identity": "inline"},
    "selection": {"select": lambda leaves: leaves[-1]},
    "live": {"select": lambda leaves: leaves[-1], "on_step": lambda event: None},
    "taps": {"taps": (tap.on("div"), tap.watch_nan("div"))},
    "gate": {"gate": "escape"},
    "outputs": {"gate": "outputs"},
    "born": {"gate": "born"},
    "sampled": {"sample_every": 2, "where": lambda path: True, "max_depth": 3},
}


def again(name):
    """The options once more, made anew: functions of the same code, tuples and taps that are equal."""
    fresh = {
        "selection": {"select": lambda leaves: leaves[-1]},
        "live": {"select": lambda leaves: leaves[-1], "on_step": lambda event: "something else"},
        "taps": {"taps": [tap.on("div"), tap.watch_nan("div")]},
    }
    return fresh.get(name, dict(LENSES[name]))


def make_select(k):
    return lambda leaves: leaves[-1] * k


@pytest.mark.parametrize("kind", [halving, halving_while])
@pytest.mark.parametrize("name", LENSES)
def test_an_equal_lens_entered_again_traces_and_compiles_nothing(name, kind):
    f = jax.jit(kind(5))
    x = jnp.float32(1)
    with tap.record(**LENSES[name]):
        f(x)
    with watching() as happened:
        with tap.record(**LENSES[name]):
            f(x), f(x)
        if name not in ("selection", "live"):  # those of another line are other code
            with tap.record(**again(name)):
                f(x)
    assert happened == []


def test_functions_of_the_same_code_and_values_are_equal_lenses():
    f = jax.jit(halving(5))
    x = jnp.float32(1)
    with tap.record(select=make_select(2)) as rec:
        f(x)
    with watching() as happened, tap.record(select=make_select(2)) as same:
        f(x)
    assert happened == []
    assert [float(e.value) for e in same.events] == [float(e.value) for e in rec.events]
    with watching() as happened, tap.record(select=make_select(3)) as other:
        f(x)
    assert ("compile", "jit(halve)") in happened
    assert [float(e.value) for e in other.events] == [1.5 * float(e.value) for e in rec.events]


@pytest.mark.parametrize("name", LENSES)
def test_production_is_traced_and_compiled_once_before_inside_and_after(name):
    f = jax.jit(halving(5))
    x = jnp.float32(1)
    f(x)
    with watching() as happened, tap.record(**LENSES[name]):
        f(x)
    compiled = [what for what in happened if what == ("compile", "jit(halve)")]
    assert len(compiled) == (0 if name == "outputs" else 1)
    with watching() as happened:
        f(x), f(x)
    assert happened == []


def test_the_fast_cache_of_a_function_does_not_grow_with_every_block():
    f = jax.jit(halving(2))
    f(1.0)
    for options in LENSES.values():
        with tap.record(**options):
            f(1.0)
    assert f._cache_size() <= 2


def test_a_function_first_run_in_a_certified_block_is_compiled_for_production_once():
    f = jax.jit(halving(5))
    x = jnp.float32(1)
    with watching() as happened:
        with tap.record():
            f(x)
        f(x)
        with tap.record():
            f(x)
        f(x)
    assert happened.count(("compile", "jit(halve)")) == 2  # production and the replica
    assert happened.count(("trace", "halve")) == 1


def test_other_options_get_their_own_program():
    f = jax.jit(halving(4))
    got = {}
    for every in (1, 2, 3, 1, 2):
        with tap.record(sample_every=every) as rec:
            f(1.0)
        got.setdefault(every, set()).add(len(rec.events))
    assert got == {1: {4}, 2: {2}, 3: {2}}


def test_other_arguments_get_their_own_program():
    f = jax.jit(halving(3))
    with tap.record() as rec:
        f(1.0), f(jnp.float32(1)), f(jnp.ones(2)), f(jnp.ones((2, 2))), f(1.0)
    shapes = [e.value["c"].shape for e in rec.events]
    assert shapes == [()] * 6 + [(2,)] * 3 + [(2, 2)] * 3 + [()] * 3


@pytest.mark.parametrize("kind", [halving, halving_while])
@pytest.mark.parametrize("options", [{}, {"on_step": lambda event: None}])
def test_repeated_eager_loops_compile_once(kind, options):
    f = kind(3)
    body = lambda c, _: (c / 2, c)
    pred, step = lambda s: s < 3, lambda s: s + 1
    x = jnp.float32(1)

    def run():
        lax.scan(body, x, None, length=3)
        lax.while_loop(pred, step, jnp.float32(0))

    run(), f(x)
    with tap.record(**options):
        run()
    with watching() as happened, tap.record(**options) as rec:
        for _ in range(3):
            run()
    assert [what for what in happened if what[0] == "compile"] == []
    assert len(rec.events) == 3 * 6


def test_repeated_eager_primitives_compile_once():
    x = jnp.float32(1)
    taps = (tap.on("sin"),)
    with tap.record(taps=taps):
        lax.sin(x)
    with watching() as happened, tap.record(taps=taps) as rec:
        for _ in range(3):
            lax.sin(x)
    assert happened == []
    assert len(rec.events) == 3


def test_a_gradient_taken_in_the_block_compiles_as_often_as_in_production():
    f = jax.jit(halving(3))
    grad = jax.grad(f)
    x = jnp.float32(1)
    with tap.record():
        grad(x)
    with watching() as happened, tap.record() as rec:
        grad(x)
    assert [what for what in happened if what[0] == "compile"] == []
    assert len(rec.events) == 6


def test_two_functions_with_one_body():
    body = lambda c, _: (c / 2, None)
    f = jax.jit(lambda x: lax.scan(body, x, None, length=2)[0])
    g = jax.jit(lambda x: lax.scan(body, x, None, length=3)[0])
    with tap.record() as rec:
        f(1.0), g(1.0)
    assert sorted(len([e for e in rec.events if e.call == c]) for c in (0, 1)) == [2, 3]


@pytest.mark.parametrize("identity", ["certified", "inline"])
def test_live_events_reach_the_recording_that_is_active(identity):
    f = jax.jit(halving(3))
    first, second = [], []
    with tap.record(select="c", on_step=first.append, identity=identity) as one:
        f(1.0)
    with tap.record(select="c", on_step=second.append, identity=identity) as two:
        f(8.0)
    tap.verbose(f, select="c", on_step=second.append, identity=identity)(16.0)
    assert [float(e.value) for e in first] == [0.5, 0.25, 0.125]
    assert [float(e.value) for e in second] == [4.0, 2.0, 1.0, 8.0, 4.0, 2.0]
    assert [float(e.value) for e in one.events] == [0.5, 0.25, 0.125]
    assert [float(e.value) for e in two.events] == [4.0, 2.0, 1.0]


def test_a_wrapped_function_compiles_once():
    f = jax.jit(halving(3))
    x = jnp.float32(1)
    g, rec = tap.record(f)
    g(x)
    with watching() as happened:
        g(x), g(x)
    assert happened == []
    assert len(rec.events) == 9
    with watching() as happened, tap.record() as other:
        f(x)
    assert happened == []
    assert len(other.events) == 3


def test_programs_that_jax_forgets_are_forgotten_here():
    class Token:
        pass

    def build():
        token = Token()

        def f(x):
            assert token
            return halving(2)(x)

        with tap.record():
            jax.jit(f)(1.0)
        return weakref.ref(token)

    gone = build()
    jax.clear_caches()
    gc.collect()
    assert gone() is None


# -- blocks


def test_blocks_nest_and_the_innermost_receives():
    f = jax.jit(halving(2))
    with tap.record() as outer:
        f(1.0)
        with tap.record(select="c") as inner:
            f(2.0)
            with tap.unobserved():
                f(3.0)
        f(4.0)
    assert [float(e.value["c"]) for e in outer.events] == [0.5, 0.25, 2.0, 1.0]
    assert [float(e.value) for e in inner.events] == [1.0, 0.5]


def test_a_block_may_be_entered_again_but_not_twice_at_once():
    f = jax.jit(halving(2))
    block = tap.record()
    with block as rec:
        f(1.0)
        with pytest.raises(tap.LensError, match="entered already"), block:
            pass
        f(1.0)
    with block as same:
        f(1.0)
    assert same is rec
    assert [e.call for e in rec.events] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("live", [False, True])
def test_an_exception_in_the_block_passes_and_leaves_a_clean_thread(live):
    f = jax.jit(halving(2))
    options = {"on_step": lambda event: None} if live else {}
    with pytest.raises(ZeroDivisionError), tap.record(**options) as rec:
        f(1.0)
        1 / 0  # noqa: B018
    assert len(rec.events) == 2
    before = len(rec.events)
    with watching() as happened:
        f(1.0)
    assert len(rec.events) == before
    if live is False:
        assert happened == []
    with tap.record() as other:
        f(1.0)
    assert len(other.events) == 2


def test_an_exception_in_a_wrapped_function_passes():
    def f(x):
        x = halving(2)(x)
        raise KeyError("mine")

    g, rec = tap.record(f)
    with pytest.raises(KeyError, match="mine"):
        g(1.0)
    assert len(rec.events) == 2
    f2 = jax.jit(halving(2))
    f2(1.0)
    assert len(rec.events) == 2


def test_an_error_of_jax_in_the_block_is_the_one_of_production():
    f = jax.jit(lambda x: lax.scan(lambda c, _: (jnp.ones(3), None), x, None, length=2))

    def message():
        with pytest.raises(TypeError) as caught:
            f(1.0)
        return str(caught.value)

    plain = message()
    with tap.record():
        assert message() == plain


def test_generators_and_returns_inside_the_block():
    f = jax.jit(halving(2))

    def run():
        with tap.record() as rec:
            return f(1.0), rec

    result, rec = run()
    assert float(result) == 0.25
    assert len(rec.events) == 2
    f(1.0)
    assert len(rec.events) == 2


# -- other threads and tasks


def test_programs_of_other_threads_run_unobserved():
    f = jax.jit(halving(2))
    results = []
    with tap.record() as rec:
        thread = threading.Thread(target=lambda: results.append(f(8.0)))
        thread.start()
        thread.join()
        f(1.0)
    assert float(results[0]) == 2.0
    assert [float(e.value["c"]) for e in rec.events] == [0.5, 0.25]


def test_each_thread_has_a_lens_of_its_own():
    f = jax.jit(halving(50))
    barrier = threading.Barrier(4)
    got = {}

    def work(k, **options):
        barrier.wait()
        with tap.record(select="c", **options) as rec:
            for _ in range(5):
                f(float(k))
        got[k] = rec

    live = {"on_step": lambda event: None}
    threads = [threading.Thread(target=partial(work, k, **(live if k % 2 else {}))) for k in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, rec in got.items():
        assert len(rec.events) == 250
        assert all(float(e.value) == k / 2 ** (e.step + 1) for e in rec.events)


def test_programs_of_other_tasks_run_unobserved_and_are_counted():
    f = jax.jit(halving(2))

    async def other(started, finish):
        started.set()
        await finish.wait()
        f(64.0)
        return f(8.0)

    async def main():
        started, finish = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(other(started, finish))
        await started.wait()
        with tap.record() as rec:
            f(1.0)
            finish.set()
            assert float(await task) == 2.0
            f(4.0)
        return rec

    rec = asyncio.run(main())
    assert [float(e.value["c"]) for e in rec.events] == [0.5, 0.25, 2.0, 1.0]
    assert rec.unobserved == 2


def test_tasks_with_blocks_that_overlap_each_get_their_own():
    f = jax.jit(halving(2))

    async def work(k, waits):
        recs = []
        with tap.record(select="c") as rec:
            for _ in range(3):
                f(float(k))
                await asyncio.sleep(waits)
            recs.append(rec)
        f(100.0)
        return rec

    async def main():
        return await asyncio.gather(work(1, 0.0), work(2, 0.01), work(3, 0.001))

    recs = asyncio.run(main())
    for k, rec in zip((1, 2, 3), recs, strict=True):
        assert [float(e.value) for e in rec.events] == [k / 2, k / 4] * 3
    count = [len(rec.events) for rec in recs]
    f(7.0)
    assert [len(rec.events) for rec in recs] == count
    with watching() as happened:
        f(7.0)
    assert happened == []


# -- nothing is installed when no lens is on


def test_with_no_lens_on_nothing_is_patched():
    setter = jax.set_mesh.__init__
    with tap.record():
        jax.jit(halving(2))(1.0)
    assert jax.set_mesh.__init__ is setter
    with pytest.raises(ZeroDivisionError), tap.record():
        1 / 0  # noqa: B018
    assert jax.set_mesh.__init__ is setter
