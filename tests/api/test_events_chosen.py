"""Which events are emitted: sampling, filters; and that full buffers lose none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counted import collatz, collatz_loop
from jax import lax
from lenses import places, ragged, steps

import jaxtap_core as tap


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("live", [False, True])
def test_sampling_is_by_step_of_the_innermost_loop(every, live):
    f = jax.jit(lambda ns: lax.scan(lambda c, n: (collatz_loop(n) + 0 * c, jnp.sin(c * 1.0)), 0, ns))
    ns = [6, 1, 7]
    heard = []
    options = {"on_step": heard.append, "on_ys": heard.append} if live else {"select_ys": lambda ys: ys}
    with tap.record(
        sample_every=every,
        select=lambda leaves: leaves[0],
        taps=(tap.on("sin"),),
        **options,
    ) as rec:
        f(jnp.array(ns))
    sampled = lambda at: [s for s in at if s[-1] % every == 0]
    outer = sampled(steps(3))
    assert places(e for e in rec.events if e.kind == "carry") == {
        "scan[0]": outer,
        "scan[0]/while[0]": sampled(ragged([collatz(n) for n in ns])),
    }
    assert places(e for e in rec.events if e.kind == "output") == {"scan[0]": outer}
    assert places(e for e in rec.events if e.kind == "primitive") == {"scan[0]/sin[0]": outer}
    assert len(heard) == (sum(e.kind != "primitive" for e in rec.events) if live else 0)


@pytest.mark.parametrize("identity", ["auto", "inline"])
@pytest.mark.parametrize("kind", ["scan", "while", "while_in_scan"])
def test_nothing_is_lost_when_buffers_run_full(kind, identity):
    n = 2500
    count = lambda n: lax.while_loop(lambda s: s < n, lambda s: s + 1, 0)
    f, total = {
        "scan": (lambda n: lax.scan(lambda c, _: (c + 1, None), 0, None, length=2500)[0], n),
        "while": (count, n),
        "while_in_scan": (
            lambda n: lax.scan(lambda c, _: (count(n // 50), None), 0, None, length=50)[0],
            n,
        ),
    }[kind]
    with tap.record(buffer_bytes=1000, identity=identity, where=lambda p: kind != "while_in_scan" or "/" in p) as rec:
        jax.jit(f)(n)
    assert len(rec.events) == total
    assert len({(e.path, e.steps) for e in rec.events}) == total
    assert all(int(e.value[next(iter(e.value))]) == e.step + 1 for e in rec.events)


def test_long_while_of_unknown_length_outgrows_its_first_buffer():
    n = 40_000
    with tap.record() as rec:
        jax.jit(lambda n: lax.while_loop(lambda s: s < n, lambda s: s + 1, 0))(n)
    assert len(rec.events) == n
    assert np.array_equal(rec.streams[0].leaves[0].array, np.arange(1, n + 1))


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({}, {"scan[0]", "scan[0]/while[0]", "while[1]"}),
        ({"where": lambda path: path.endswith("while[0]")}, {"scan[0]/while[0]"}),
        ({"max_depth": 1}, {"scan[0]", "while[1]"}),
        ({"ops": "while"}, {"scan[0]/while[0]", "while[1]"}),
        ({"ops": ("scan",)}, {"scan[0]"}),
        ({"where": lambda path: False}, set()),
    ],
)
def test_filters_choose_loops_and_never_move_addresses_or_hide_taps(options, paths):
    @jax.jit
    def f(ns):
        y = lax.scan(lambda c, n: (c + collatz_loop(n), jnp.sin(1.0 * c)), 0, ns)
        return y, collatz_loop(ns[0])

    with tap.record(select=lambda leaves: leaves[0], taps=(tap.on("sin"),), **options) as rec:
        f(jnp.array([6, 7]))
    assert set(places(e for e in rec.events if e.kind == "carry")) == paths
    assert places(e for e in rec.events if e.kind == "primitive") == {"scan[0]/sin[0]": steps(2)}
