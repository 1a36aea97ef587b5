"""What the numerics profile `strict` buys in bits, and what it costs in time.

Bits, over random programs drawn from printed seeds:

* `exact`: flat programs and loops of `+ - * / sqrt`, comparisons and selection, run by NumPy one
  operation at a time, by JAX eagerly, and jitted. Each share is of programs with an unequal bit.
* `taps`: programs of any kind of operation (transcendental, reductions, matmul, sort, ...), jitted
  with every intermediate value of every step observed, by a callback or as data, against the same
  program unobserved.

Speed: one process for each profile in turn, so that both see the same machine. Each figure is the
ratio strict / native of the best times.

    python bench/strict.py                      # both parts, the Python that runs it
    python bench/strict.py bits --programs 200 --first 1000
    python bench/strict.py speed --rounds 5

Give `--python A B` to measure several environments in one run.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

PROFILES = ("native", "strict")
CONSTANTS = (3.1, 0.3, 1 / 3, 1.7, 0.1, 2.0, 0.5, 7.0, 1e-3, 1e6)

# Each operation takes the array module, two operands and a constant of their dtype.
EXACT: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "add": lambda m, a, b, c: a + b,
    "subtract": lambda m, a, b, c: a - b,
    "multiply": lambda m, a, b, c: a * b,
    "divide": lambda m, a, b, c: a / b,
    "constant +": lambda m, a, b, c: a + c,
    "constant -": lambda m, a, b, c: c - a,
    "constant *": lambda m, a, b, c: a * c,
    "by constant": lambda m, a, b, c: a / c,
    "constant by": lambda m, a, b, c: c / a,
    "chain": lambda m, a, b, c: (a * c) * a.dtype.type(0.7),
    "cancel": lambda m, a, b, c: (a + c * a.dtype.type(1e6)) - c * a.dtype.type(1e6),
    "divide twice": lambda m, a, b, c: (a / b) / b,
    "sqrt": lambda m, a, b, c: m.sqrt(abs(a)),
    "by sqrt": lambda m, a, b, c: a / m.sqrt(abs(b) + c),
    "1/sqrt": lambda m, a, b, c: c / m.sqrt(abs(a)),
    "sqrt * sqrt": lambda m, a, b, c: m.sqrt(abs(a)) * m.sqrt(abs(b)),
    "contract": lambda m, a, b, c: a * b + a * a,
    "negate": lambda m, a, b, c: -a,
    "itself": lambda m, a, b, c: a / a - a * a.dtype.type(0),
    "larger": lambda m, a, b, c: m.where(a > b, a, b),
    "equal": lambda m, a, b, c: m.where(a == b, a + b, b),
    "at most": lambda m, a, b, c: m.where(a <= b, a * b, a),
}
OTHER: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "tanh": lambda m, a, b, c: m.tanh(a),
    "exp": lambda m, a, b, c: m.exp(-abs(a)),
    "log": lambda m, a, b, c: m.log1p(abs(a)),
    "sin": lambda m, a, b, c: m.sin(a * c),
    "power": lambda m, a, b, c: abs(a) ** c.astype(a.dtype),
    "cube": lambda m, a, b, c: a**3,
    "logaddexp": lambda m, a, b, c: m.logaddexp(a, b),
    "center": lambda m, a, b, c: a - a.mean(),
    "softmax": lambda m, a, b, c: m.exp(a - a.max()) / m.exp(a - a.max()).sum(),
    "norm": lambda m, a, b, c: a / m.sqrt((a * a).sum() + c),
    "running sum": lambda m, a, b, c: m.cumsum(a, axis=-1) if a.ndim else a,
    "sort": lambda m, a, b, c: m.sort(a, axis=-1) if a.ndim else a,
    "outer": lambda m, a, b, c: (a[..., :, None] * b[..., None, :]).sum(-1) if a.ndim else a,
    "matmul": lambda m, a, b, c: a @ (b[..., :, None] * a[..., None, :]) if a.ndim == 1 else b,
    "roll": lambda m, a, b, c: m.roll(a, 1, axis=-1) * c if a.ndim else a,
    "round": lambda m, a, b, c: a.astype(m.bfloat16).astype(a.dtype) * b,
}


class Program:
    """A random program: a step `(carry, x) -> (carry, y)` with its inputs, and how it is looped."""

    def __init__(self, seed: int, dtype: Any, operations: dict[str, Any]) -> None:
        import numpy as np

        rng, self.dtype = random.Random(seed), np.dtype(dtype)
        shape = rng.choice([(), (1,), (4,), (7,), (64,), (300,), (3, 5)])
        self.leaves = rng.choice([1, 2, 3])
        names = sorted(operations)
        self.lines = [
            (
                operations[rng.choice(names)],
                rng.randrange(99),
                rng.randrange(99),
                rng.choice(CONSTANTS),
            )
            for _ in range(rng.randint(2, 10))
        ]
        self.loop = rng.choice(["flat", "scan", "while"])
        self.length = 2 if self.loop == "flat" else 6
        numbers = np.random.default_rng(seed)
        scale = 10.0 ** numbers.integers(-2, 3)
        draw = lambda *dims: (numbers.standard_normal(dims) * scale).astype(dtype)
        self.carry = tuple(draw(*shape) for _ in range(self.leaves))
        self.xs = draw(self.length, *shape)

    def step(self, m: Any, carry: tuple[Any, ...], x: Any) -> tuple[Any, Any, list[Any]]:
        """(new carry, per-step output, every intermediate value), computed by array module `m`."""
        values = [*carry, x]
        for operation, i, j, constant in self.lines:
            a, b = values[i % len(values)], values[j % len(values)]
            values.append(operation(m, a, b, self.dtype.type(constant)))
        half, tenth = self.dtype.type(0.5), self.dtype.type(0.1)
        new = tuple(v * half + c * tenth for v, c in zip(values[-self.leaves :], carry, strict=True))
        return new, values[-1], values[len(carry) + 1 :]

    def one_by_one(self, m: Any) -> list[Any]:
        carry, ys = tuple(map(m.asarray, self.carry)), []
        for x in m.asarray(self.xs):
            carry, y, _ = self.step(m, carry, x)
            ys.append(y)
        return [*carry, m.stack(ys)]

    def jitted(self, observed: str = "") -> list[Any]:
        """Results of the jitted program; `observed` is `""`, `"live"` or `"data"`."""
        import jax
        import jax.numpy as jnp

        def body(carry: Any, x: Any) -> tuple[Any, Any]:
            carry, y, seen = self.step(jnp, carry, x)
            if observed == "live":
                jax.debug.callback(lambda *values: None, *seen)
            return carry, (y, seen if observed == "data" else [])

        def flat(carry: Any, xs: Any) -> Any:
            steps = []
            for x in xs:
                carry, out = body(carry, x)
                steps.append(out)
            return carry, jax.tree.map(lambda *rows: jnp.stack(rows), *steps)

        def scan(carry: Any, xs: Any) -> Any:
            return jax.lax.scan(body, carry, xs)

        def while_(carry: Any, xs: Any) -> Any:
            empty = jax.tree.map(
                lambda row: jnp.zeros((self.length, *row.shape), row.dtype),
                jax.eval_shape(body, carry, xs[0])[1],
            )

            def advance(state: Any) -> Any:
                i, carry, rows = state
                carry, row = body(carry, xs[i])
                return i + 1, carry, jax.tree.map(lambda all_, new: all_.at[i].set(new), rows, row)

            return jax.lax.while_loop(lambda s: s[0] < self.length, advance, (0, carry, empty))[1:]

        run = {"flat": flat, "scan": scan, "while": while_}[self.loop]
        carry, (ys, _) = jax.jit(run)(jax.tree.map(jnp.asarray, self.carry), jnp.asarray(self.xs))
        return [*carry, ys]


def count_unequal_bits(programs: int, first: int, dtypes: list[str]) -> dict[str, Any]:
    """For each comparison, how many of the programs differ, and the seeds of the first few."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxtap_core.compare.bits import compare_bits

    jax.config.update("jax_enable_x64", True)
    counts: Counter[str] = Counter()
    seeds: defaultdict[str, list[str]] = defaultdict(list)

    def compare(name: str, a: Any, b: Any, label: str, nan: Any = "payload") -> None:
        differs = not compare_bits(a, b, nan=nan).identical
        counts[name] += differs
        if differs:
            seeds[name].append(label)

    for name in dtypes:
        for seed in range(first, first + programs):
            label = f"{name}/{seed}"
            exact = Program(seed, getattr(jnp, name), EXACT)
            with np.errstate(all="ignore"):
                steps = exact.one_by_one(np)
            eager, jitted = exact.one_by_one(jnp), exact.jitted()
            # which NaN survives where two meet, each compiler decides for itself
            compare("exact: eager is not NumPy", eager, steps, label, nan="any")
            compare("exact: jitted is not eager", jitted, eager, label, nan="any")
            any_ = Program(seed, getattr(jnp, name), EXACT | OTHER)
            production = any_.jitted()
            for way in ("live", "data"):
                compare(f"taps: {way} is not production", any_.jitted(way), production, label)
    return {
        "programs": programs * len(dtypes),
        "counts": counts,
        "seeds": {name: found[:5] for name, found in seeds.items()},
    }


def best_times(budget: float) -> dict[str, float]:
    """Seconds that each measured program takes: the best of the runs that fit into `budget` s."""
    import jax
    import jax.numpy as jnp

    def best(f: Callable[..., Any], *args: Any) -> float:
        jax.block_until_ready(f(*args))
        times, end = [], time.perf_counter() + budget
        while time.perf_counter() < end:
            start = time.perf_counter()
            jax.block_until_ready(f(*args))
            times.append(time.perf_counter() - start)
        return min(times)

    # small enough for one thread and its cache, so that neighbours on the machine disturb little
    x = jax.random.normal(jax.random.key(0), (256, 256))
    square = jax.random.normal(jax.random.key(0), (512, 512))
    polynomial = lambda v: ((v * 1.1 + 0.3) * v - 0.7) * v + 1 / (1 + v * v)
    special = lambda v: jnp.tanh(v) * jnp.exp(-v * v) + jnp.log1p(jnp.abs(v)) / jnp.sqrt(v * v + 1)

    def recurrence(v: Any) -> Any:
        return jax.lax.fori_loop(0, 2000, lambda i, s: 3.7 * s * (1 - s) + 1e-3 / (1 + s), v)

    times = {
        "matmul 512": best(jax.jit(jnp.matmul), square, square),
        "polynomial and division 64k": best(jax.jit(polynomial), x),
        "tanh, exp, log 64k": best(jax.jit(special), x),
        "softmax 256x256": best(jax.jit(jax.nn.softmax), x),
        "loop of 64 floats": best(jax.jit(recurrence), jax.nn.sigmoid(x[0, :64])),
    }
    start = time.perf_counter()
    sampler = _nuts()
    leapfrogs = sampler(jax.random.key(1))
    times["NUTS compile"] = time.perf_counter() - start
    times["NUTS, a leapfrog"] = best(sampler, jax.random.key(1)) / float(leapfrogs)
    return times


def _nuts() -> Callable[[Any], Any]:
    """BlackJAX' window adaptation of NUTS on a logistic regression; gives the leapfrogs taken."""
    import blackjax
    import jax
    import jax.numpy as jnp

    features = jax.random.normal(jax.random.key(2), (200, 10))
    truth = jnp.linspace(-1, 1, 10)
    labels = jax.random.bernoulli(jax.random.key(3), jax.nn.sigmoid(features @ truth))

    def log_density(weights: Any) -> Any:
        logits = features @ weights
        likelihood = jnp.where(labels, jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits))
        return likelihood.sum() - 0.5 * (weights**2).sum()

    warmup = blackjax.window_adaptation(blackjax.nuts, log_density)

    def leapfrogs(key: Any) -> Any:
        _, info = warmup.run(key, jnp.zeros(10), 300)
        return info.info.num_integration_steps.sum()

    return jax.jit(leapfrogs)


def child(python: str, profile: str, *arguments: str) -> dict[str, Any]:
    """Run this file in a process of its own under `profile` and read what it measured."""
    command = [python, os.path.abspath(__file__), "child", profile, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="bits and speed of the numerics profiles")
    parser.add_argument("part", nargs="?", choices=["bits", "speed", "all"], default="all")
    parser.add_argument("--programs", type=int, default=40, help="random programs a dtype")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--dtypes", default="float32", help="comma-separated")
    parser.add_argument("--rounds", type=int, default=3, help="processes a profile")
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    options = parser.parse_args()
    for python in options.python:
        version = subprocess.check_output([python, "-c", "import jax; print(jax.__version__)"])
        print(f"jax {version.decode().strip()}", flush=True)
        if options.part in ("bits", "all"):
            for profile in PROFILES:
                found = child(
                    python,
                    profile,
                    "bits",
                    str(options.programs),
                    str(options.first),
                    options.dtypes,
                )
                counts = found["counts"]
                for name, count in counts.items():
                    seeds = f" (seeds {', '.join(found['seeds'][name])})" if count else ""
                    share = f"{count} of {found['programs']}"
                    print(f"  {profile}: {name}: {share}{seeds}", flush=True)
        if options.part in ("speed", "all"):
            best: dict[str, dict[str, float]] = {profile: {} for profile in PROFILES}
            for _ in range(options.rounds):
                for profile in PROFILES:
                    for name, seconds in child(python, profile, "speed")["times"].items():
                        best[profile][name] = min(seconds, best[profile].get(name, seconds))
            for name, seconds in best["native"].items():
                ratio = best["strict"][name] / seconds
                print(f"  strict / native: {name}: {ratio:.2f} (native {seconds * 1e3:.4g} ms)")


def run_child(profile: str, part: str, *arguments: str) -> None:
    from jaxtap_core.numerics import numerics

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    numerics(profile)
    if part == "bits":
        programs, first, dtypes = arguments
        print(json.dumps(count_unequal_bits(int(programs), int(first), dtypes.split(","))))
    else:
        print(json.dumps({"times": best_times(budget=1.0)}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        run_child(*sys.argv[2:])
    else:
        main()
