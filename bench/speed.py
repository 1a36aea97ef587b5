"""What observing costs: the speed table, every ratio measured side by side in one run.

Run: python bench/speed.py [ROW ...]      (rows by a part of their name; default all)

Each ratio compares the best of several interleaved runs, since machines are noisy and noise only adds. A row says in
which identity mode it ran and what bar it is held to.
"""

from __future__ import annotations

import gc
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import checkify

import jaxtap_core as tap

STEPS = 5000
WIDE_STEPS = 2000  # long enough that what is measured is the cost of a step, not of a call


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    mode: str
    measured: str
    bar: str
    held: bool


def best(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of ``rounds`` interleaved runs of each."""
    for run in runs.values():
        run()
    times = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - began)
    return times


def finish(f: Callable[..., Any], *args: Any) -> Callable[[], None]:
    def run() -> None:
        jax.block_until_ready(f(*args))
        jax.effects_barrier()

    return run


def under(f: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], None]:
    """Run ``f`` in a block of its own."""

    def run() -> None:
        with tap.record(**options):
            jax.block_until_ready(f(*args))

    return run


def ratio_row(what: str, mode: str, got: float, bar: float, note: str = "") -> Row:
    return Row(what, mode, f"{got:.2f} x{note}", f"<= {bar} x", got <= bar)


# -- programs


def scalar_scan(callback: Callable[..., None] | None = None) -> Any:
    def body(c: Any, i: Any) -> Any:
        c = c * 0.999 + 0.001
        if callback is not None:
            jax.debug.callback(callback, i, c)
        return c, None

    return jax.jit(lambda c: jax.lax.scan(body, c, jnp.arange(STEPS))[0])


def scalar_while(callback: Callable[..., None] | None = None) -> Any:
    def body(state: Any) -> Any:
        i, c = state
        c = c * 0.999 + 0.001
        if callback is not None:
            jax.debug.callback(callback, i, c)
        return i + 1, c

    return jax.jit(lambda c: jax.lax.while_loop(lambda s: s[0] < STEPS, body, (0, c))[1])


def wide_body(width: int) -> Any:
    weights = jax.random.normal(jax.random.key(1), (width, width)) / width**0.5

    def body(c: Any, _: Any) -> Any:
        h = jnp.tanh(c @ weights)
        h = h / (1.5 + h * h)
        return 0.5 * c + jnp.log(1.5 + h), None

    return body


def wide_scan(width: int, steps: int) -> Any:
    body = wide_body(width)
    return jax.jit(lambda c: jax.lax.scan(body, c, None, length=steps)[0])


# -- rows


def streaming() -> list[Row]:
    ignore = lambda *_: None
    start = jnp.float32(0.5)
    times = best(
        {
            "tap": under(scalar_scan(), start, select="c", on_step=ignore, identity="inline"),
            "debug.callback": finish(scalar_scan(ignore), start),
        },
        5,
    )
    share = times["debug.callback"] / times["tap"]
    per_step = (
        f"1/{share:.0f} ({times['tap'] / STEPS * 1e6:.1f} of {times['debug.callback'] / STEPS * 1e6:.0f} us a step)"
    )
    return [Row("streaming a scalar carry, live", "inline", per_step, "<= 1/20", share >= 20)]


def recording() -> list[Row]:
    rows, start, ignore = [], jnp.float32(0.5), lambda *_: None
    for name, make, bar in (("scan", scalar_scan, 500), ("while", scalar_while, 80)):
        times = best(
            {
                "tap": under(make(), start, select="c" if name == "scan" else "state[1]", identity="inline"),
                "plain": finish(make(), start),
                "debug.callback": finish(make(ignore), start),
            },
            7,
        )
        # the fixed cost of entering a block belongs to another row: what a step costs is asked here
        share = times["debug.callback"] / max(times["tap"] - times["plain"], 1e-9)
        measured = f"1/{share:.0f} ({(times['tap'] - times['plain']) / STEPS * 1e6:.3f} us a step)"
        rows.append(Row(f"recording a scalar carry, {name}", "inline", measured, f"<= 1/{bar}", share >= bar))
    return rows


def certified() -> list[Row]:
    start = jax.random.normal(jax.random.key(0), (32, 64))
    program = wide_scan(64, WIDE_STEPS)
    times = best(
        {"plain": finish(program, start), "tap": under(program, start, select=_norm, identity="certified")}, 15
    )
    compile_ratio = compile_time(lambda f: under(f, start, select=_norm, identity="certified"), start)
    return [
        ratio_row("certified recording, run", "certified", times["tap"] / times["plain"], 2.5),
        ratio_row("certified recording, compile", "certified", compile_ratio, 2.5),
    ]


def _norm(leaves: Any) -> Any:
    return jnp.sum(leaves[0] * leaves[0])


def compile_time(wrap: Callable[[Any], Callable[[], None]], start: Any) -> float:
    """First run under the lens against first run without, in seconds, median of fresh programs."""
    plain, observed = [], []
    for _ in range(5):
        for times, make in ((plain, lambda f: finish(f, start)), (observed, wrap)):
            run = make(wide_scan(64, WIDE_STEPS))
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
    return sorted(observed)[2] / sorted(plain)[2]


def watching() -> list[Row]:
    start = jax.random.normal(jax.random.key(0), (32, 64))
    program = wide_scan(64, WIDE_STEPS)
    checked = jax.jit(checkify.checkify(wide_scan(64, WIDE_STEPS), errors=checkify.nan_checks))
    taps = tap.watch_nan(["tanh", "dot_general", "div", "log"])
    times = best(
        {
            "plain": finish(program, start),
            "one": under(program, start, taps=tap.watch_nan("log"), identity="inline"),
            "four": under(program, start, taps=taps, identity="inline"),
            "checkify": finish(checked, start),
        },
        25,
    )
    note = f" (checkify {times['checkify'] / times['plain']:.2f} x)"
    return [
        ratio_row("watch_nan on log, 64-wide body", "inline", times["one"] / times["plain"], 1.3, note),
        ratio_row("watch_nan on four primitives", "inline", times["four"] / times["plain"], 1.3, note),
    ]


def gating() -> list[Row]:
    rows = []
    for width, batch, steps, bar in ((64, 32, WIDE_STEPS, 1.25), (256, 128, 200, 1.15)):
        start = jax.random.normal(jax.random.key(0), (batch, width))
        program = wide_scan(width, steps)
        times = best(
            {
                "plain": finish(program, start),
                "escape": under(program, start, gate="escape"),
                "outputs": under(program, start, gate="outputs"),
            },
            25,
        )
        escape, outputs = times["escape"] / times["plain"], times["outputs"] / times["plain"]
        rows.append(ratio_row(f"gate escape, {width}-wide body", "inline", escape, bar))
        rows.append(ratio_row(f"gate outputs, {width}-wide body", "inline", outputs, 1.02))
    start = jax.random.normal(jax.random.key(0), (32, 64))
    compiling = compile_time(lambda f: under(f, start, gate="escape"), start)
    rows.append(ratio_row("gate escape, compile", "inline", compiling, 1.5))
    return rows


def lanes() -> list[Row]:
    one = lambda x: jax.lax.while_loop(lambda c: c[0] < 500.0, lambda c: (c[0] + c[1], c[1]), (x, x * 0 + 1.0))
    program = jax.jit(jax.vmap(one))
    start = jnp.arange(64.0)
    times = best(
        {
            "plain": finish(program, start),
            "tap": under(program, start, select="c[0]", identity="inline"),
        },
        25,
    )
    return [ratio_row("per-lane while of 64 lanes, recorded", "inline", times["tap"] / times["plain"], 5)]


def dispatch() -> list[Row]:
    step = jax.jit(lambda c: jnp.tanh(c) * 1.1 + 0.1)
    start = jnp.ones((8, 8))

    def loop() -> None:
        c = start
        for _ in range(1000):
            c = step(c)
        jax.block_until_ready(c)

    def gated() -> None:
        with tap.record(gate="escape"):
            loop()

    times = best({"plain": loop, "gate": gated}, 9)
    over = (times["gate"] - times["plain"]) * 1e3
    return [
        Row("1,000 asynchronous steps under the gate", "inline", f"{over:.0f} us a step over", "<= 50 us", over <= 50)
    ]


def tracing() -> list[Row]:
    from jaxtap_core._compat import eval_trace, set_current_trace  # only this row looks inside
    from jaxtap_core.instrument.interpreter import Interpreter
    from jaxtap_core.instrument.planner import Planner
    from jaxtap_core.request.settings import Settings
    from jaxtap_core.runtime.runs import host_ends

    def program(count: int) -> Any:
        def body(x: Any, _: Any) -> Any:
            for _ in range(count // 2):
                x = jnp.sin(x) * 1.5
            return x, None

        return lambda x: jax.lax.scan(body, x, None, length=3)[0]

    def seconds(work: Callable[[], Any], rounds: int = 4) -> float:
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return min(times)

    def rewriting(count: int, settings: Settings) -> tuple[float, float]:
        """Seconds of tracing the jnp program of ``count`` equations, and of rewriting it under the lens."""
        jaxpr = jax.make_jaxpr(program(count))(1.0)

        def rewrite() -> None:
            with set_current_trace(eval_trace):
                plan = Planner(settings).plan(jaxpr, "")
                observer = lambda x: Interpreter(plan, settings, host_ends(), jnp.int32(0)).evaluate(
                    plan.body, jaxpr, [x]
                )
                jax.make_jaxpr(observer)(1.0)

        return seconds(lambda: jax.make_jaxpr(program(count))(1.0)), seconds(rewrite)

    gate = Settings(gate="escape")
    (_, small), (traced, large) = rewriting(2_500, gate), rewriting(10_000, gate)
    _, tapped = rewriting(2_500, Settings(taps=(tap.on("sin"),)))
    measured = f"{large / traced:.2f} x the jnp program, {large / small:.1f} x that of 2,500"
    held = large <= traced and large / small < 6
    return [
        Row("rewriting 10,000 equations for the gate", "inline", measured, "<= 1 x, linear", held),
        Row(
            "the same with every second one tapped", "inline", f"{4 * tapped / traced:.2f} x the jnp program", "-", True
        ),
    ]


def memory() -> list[Row]:
    program = jax.jit(lambda c: jax.lax.scan(lambda c, _: (c * 0.999 + 0.001, None), c, None, length=1_000_000)[0])
    tracemalloc.start()
    with tap.record(select="c", identity="inline") as rec:
        program(jnp.float32(0.5))
    gc.collect()
    data, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rec.events) == 1_000_000
    return [
        Row("memory of a million recorded scalar events", "inline", f"{data / 1e6:.0f} MB", "<= 100 MB", data <= 100e6)
    ]


def again() -> list[Row]:
    program = jax.jit(lambda c: jax.lax.scan(lambda c, _: (c * 0.9, None), c, None, length=3)[0])
    start = jnp.float32(0.5)
    calls = 300

    def plain() -> None:
        for _ in range(calls):
            c = program(start)
        jax.block_until_ready(c)

    def observed() -> None:
        with tap.record(select="c", identity="inline"):
            for _ in range(calls):
                c = program(start)
            jax.block_until_ready(c)

    times = best({"plain": plain, "tap": observed}, 7)
    over = (times["tap"] - times["plain"]) / calls * 1e6
    return [Row("a further call under an equal lens", "inline", f"{over:.0f} us over", "<= 50 us", over <= 50)]


ROWS = {
    "streaming": streaming,
    "recording": recording,
    "certified": certified,
    "watching": watching,
    "gating": gating,
    "lanes": lanes,
    "dispatch": dispatch,
    "tracing": tracing,
    "memory": memory,
    "again": again,
}


def main(wanted: list[str]) -> None:
    print(f"jax {jax.__version__}, Python {platform.python_version()}, {jax.devices()[0].device_kind}")
    print(f"{'what':48s} {'mode':10s} {'measured':44s} {'bar':12s}")
    for name, rows in ROWS.items():
        if wanted and not any(part in name for part in wanted):
            continue
        for row in rows():
            held = "held" if row.held else "MISSED"
            print(f"{row.what:48s} {row.mode:10s} {row.measured:44s} {row.bar:12s} {held}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
