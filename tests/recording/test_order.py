"""The canonical order of events, whatever order they arrived in; step vectors; plain Python for JSON."""

import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from lenses import steps

import jaxtap_core as tap


def alpha(x):
    for _ in range(12):  # scan[10] must come after scan[2]
        x = lax.scan(lambda c, _: (c + 1, None), x, None, length=2)[0]
    return x


def beta(x):
    body = lambda c, _: (lax.while_loop(lambda s: s < c + 3, lambda s: s + 1, c), None)
    return lax.scan(body, x, None, length=3)[0]


def run():
    b, a = jax.jit(beta), jax.jit(alpha)
    b(0.0), a(0.0), b(1.0)


@pytest.mark.parametrize("live", [False, True])
def test_events_are_in_the_order_program_call_path_steps(live):
    options = {"on_step": lambda event: None} if live else {}
    with tap.record(select=lambda leaves: leaves[0], **options) as rec:
        run()
    got = [(e.program, e.call, e.path, e.steps) for e in rec.events]
    expected = [("alpha", 0, f"scan[{k}]", at) for k in range(12) for at in steps(2)]
    for call in range(2):
        expected += [("beta", call, "scan[0]", at) for at in steps(3)]
        expected += [("beta", call, "scan[0]/while[0]", at) for at in steps(3, 3)]
    assert got == expected
    assert [e.step for e in rec.events] == [e.steps[-1] for e in rec.events]


def test_order_does_not_depend_on_the_order_of_arrival():
    f = jax.jit(lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=5)[0])
    recs = []
    for delay in (False, True):
        with tap.record(select="c", on_step=lambda event: None) as rec:
            f(1.0)
        if delay:  # the rows of the stream, shuffled as a GPU might deliver them
            (stream,) = rec.streams
            order = np.array([3, 0, 4, 1, 2])
            shuffled = tap.Recording()
            new = shuffled.stream(stream.key, None, lambda s=stream: type(s)(s.key, [np.dtype("f4")], [()], live=True))
            for row in order:
                new.steps.append(stream.steps.array[row])
                new.leaves[0].append(stream.leaves[0].array[row])
                new.time.append(stream.time.array[row])
            rec = shuffled
        recs.append(rec)
    for rec in recs:
        assert [(e.step, float(e.value)) for e in rec.events] == [(i, i + 2.0) for i in range(5)]


def test_events_index_slice_and_iterate_alike():
    with tap.record(select=lambda leaves: leaves[0]) as rec:
        run()
    events = rec.events
    all_of_them = list(events)
    assert len(all_of_them) == len(events) == len(rec)
    place = lambda e: (e.program, e.call, e.path, e.steps)
    for i in (0, 5, -1, -len(events), len(events) - 1):
        assert place(events[i]) == place(all_of_them[i])
    assert [place(e) for e in events[3:9:2]] == [place(e) for e in all_of_them[3:9:2]]
    with pytest.raises(IndexError):
        events[len(events)]
    df = rec.df()
    assert df.program.tolist() == [e.program for e in all_of_them]
    assert df.call.tolist() == [e.call for e in all_of_them]
    assert df.path.tolist() == [e.path for e in all_of_them]
    assert df.steps.tolist() == [e.steps for e in all_of_them]
    assert df.step.tolist() == [e.step for e in all_of_them]


def test_kinds_of_one_path_and_lanes_are_ordered():
    f = lambda x: lax.scan(lambda c, _: (c + 1, c), x, None, length=2)
    g, rec = tap.record(f, select="c", on_step=lambda e: None, select_ys="out", on_ys=lambda e: None)
    jax.vmap(g)(jnp.arange(3.0))
    jax.effects_barrier()
    got = [(e.kind, e.steps, e.lane) for e in rec.events]
    assert got == [(kind, (i,), (k,)) for kind in ("carry", "output") for i in range(2) for k in range(3)]


def test_calls_are_counted_a_name():
    with tap.record(select=lambda leaves: leaves[0]) as rec:
        for n in (1, 2):
            jax.jit(lambda x, n=n: lax.scan(lambda c, _: (c + 1, None), x, None, length=n)[0])(0.0)
        lax.scan(lambda c, _: (c + 1, None), 0.0, None, length=3)
    calls = {}
    for e in rec.events:
        calls.setdefault((e.program, e.call), 0)
        calls[e.program, e.call] += 1
    assert calls == {("<lambda>", 0): 1, ("<lambda>", 1): 2, ("scan", 0): 3}


@pytest.mark.parametrize("live", [False, True])
def test_everything_is_plain_python_for_json(live):
    options = {"on_step": lambda event: None, "alert": lambda event: event.step == 1} if live else {}

    def f(x):
        body = lambda c, _: ({"nan": c["nan"] * 2, "z": c["z"] * 1j, "k": c["k"], "b": ~c["b"], "h": c["h"] + 1}, None)
        init = {"nan": x, "z": 1j, "k": jax.random.key(0), "b": jnp.array([True, False]), "h": jnp.bfloat16(1)}
        return lax.scan(body, init, None, length=2)[0]["nan"]

    with tap.record(carry=True, identity="certified", gate="escape", **options) as rec:
        jax.jit(f)(jnp.float32(np.nan))
        jax.jit(lambda x: lax.scan(lambda c, _: (c - 1, jnp.log(c)), x, None, length=3))(1.5)
    assert len(rec.alerts) == (2 if live else 0)
    for thing in (*rec.events, *rec.alerts, *rec.findings, rec.certificate):
        text = json.dumps(thing.to_dict(), allow_nan=False)
        assert isinstance(json.loads(text), dict)
        assert isinstance(str(thing), str)
    event = next(e for e in rec.events if e.program == "f").to_dict()
    assert set(event) >= {"path", "step", "total", "steps", "value", "kind", "program", "call", "lane", "phase"}
    assert type(event["steps"]) is list
    assert event["value"]["c.nan"] == "nan"


def test_events_are_immutable():
    with tap.record() as rec:
        jax.jit(alpha)(0.0)
    event = rec.events[0]
    with pytest.raises(AttributeError):
        event.step = 7
    assert not isinstance(event.value["c"], jax.Array)


def test_reading_while_events_arrive():
    seen = []
    stop = threading.Event()

    def read(rec):
        while not stop.is_set():
            seen.append([e.step for e in rec.events])

    with tap.record(select="c", on_step=lambda event: None) as rec:
        reader = threading.Thread(target=read, args=(rec,))
        reader.start()
        jax.block_until_ready(jax.jit(lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=500)[0])(0.0))
        stop.set()
        reader.join()
    assert len(rec.events) == 500
    assert all(got == list(range(len(got))) for got in seen)
