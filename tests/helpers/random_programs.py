"""Random loop programs: every kind of loop, nesting, vmap, branches, reductions, matmul, several dtypes; by seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

UNARY = (
    jnp.sin,
    jnp.tanh,
    lambda a: a * a,
    lambda a: a * 0.3 + 0.1,
    lambda a: (a * 3.1) * 0.7,
    lambda a: (a + 1e3) - 1e3,
    lambda a: jnp.sqrt(jnp.abs(a) + 1),
    lambda a: a / jnp.sqrt(jnp.abs(a) + 1),
    lambda a: a * lax.rsqrt(a * a + 1),
    lambda a: a / 3,
    lambda a: 1 / (1 + a * a),
    lambda a: a - a.mean(),
    lambda a: jnp.exp(-jnp.abs(a)),
    lambda a: jnp.cumsum(a) * 0.1,
    jax.nn.relu,
    jax.nn.softmax,
)
BINARY = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - b,
    lambda a, b: a * b + a,
    lambda a, b: a * b - b * a * 0.5,
    lambda a, b: a / (1.5 + b * b),
    jnp.maximum,
    lambda a, b: jnp.where(a > b, a, b * 0.5),
    lambda a, b: lax.cond(a.sum() > b.sum(), lambda: a * b + b, lambda: a - b * 0.3),
)
KINDS = ("scan", "scan", "while", "fori", "nested", "vmap", "vmap while", "matmul", "branch", "reverse")
TAPPED = ("mul", "add", "sub", "div", "tanh", "sqrt", "rsqrt", "exp")


class RandomProgram(NamedTuple):
    """A program drawn from a seed: jitted, with its arguments; ``gradient`` programs give value and gradients."""

    seed: int
    kind: str
    gradient: bool
    run: Callable[..., Any]
    args: tuple[Any, ...]


def draw(seed: int) -> RandomProgram:
    """The program of ``seed``."""
    rng = random.Random(seed)
    width, leaves = rng.choice([1, 2, 4, 8, 16, 64, 300]), rng.choice([1, 2, 3])
    dtype = rng.choice(["float32", "float32", "float32", "bfloat16", "float16"])
    ops = [(rng.random() < 0.5, *(rng.randrange(1000) for _ in range(3))) for _ in range(rng.randint(2, 9))]
    kind = rng.choice(KINDS)
    gradient = kind not in ("while", "vmap while") and rng.random() < 0.4
    numbers = np.random.default_rng(seed)
    make = lambda *shape: jnp.asarray(numbers.standard_normal(shape) * 0.8, dtype)
    weights = make(width, width) / width

    def values(carry, x):
        found = [*carry, x]
        for unary, op, i, j in ops:
            a, b = found[i % len(found)], found[j % len(found)]
            found.append(UNARY[op % len(UNARY)](a) if unary else BINARY[op % len(BINARY)](a, b))
        return [v.astype(dtype) for v in found]

    def step(carry, x):
        found = values(carry, x)
        new = [
            jnp.tanh(v) if k % 2 else v * 0.5 + 0.1 * c
            for k, (v, c) in enumerate(zip(found[-leaves:], carry, strict=False))
        ]
        new += list(carry[len(new) :])
        if kind == "matmul":
            new = [jnp.tanh(v @ weights) + v * 0.5 for v in new]
        if kind == "branch":
            new = [
                lax.switch((v.sum() > 0).astype(int), [lambda v: v * 0.7, lambda v: jnp.tanh(v) * 1.1], v) for v in new
            ]
        return tuple(v.astype(dtype) for v in new), found[-1]

    def scan(carry, xs):
        return lax.scan(step, carry, xs, reverse=kind == "reverse")

    def nested(carry, xs):
        def outer(c, x):
            c, ys = lax.scan(lambda c, _: step(c, x), c, None, length=3)
            return c, ys.sum(0)

        return lax.scan(outer, carry, xs)

    def fori(carry, xs):
        return lax.fori_loop(0, 20, lambda i, c: step(c, xs[i])[0], carry)

    def while_(carry, xs, limit=17):
        return lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, step(s[1], xs[s[0]])[0]), (0, carry))

    carry = tuple(make(width) for _ in range(leaves))
    xs = make(20, width)
    program: Callable[..., Any] = {"nested": nested, "fori": fori, "while": while_}.get(kind, scan)
    if kind.startswith("vmap"):
        carry = tuple(make(3, width) for _ in range(leaves))
        xs = make(3, 20, width)
        program = jax.vmap(while_ if "while" in kind else scan)
    args: tuple[Any, ...] = (carry, xs)
    if kind == "vmap while":
        args = (carry, xs, jnp.array([5, 17, 0]))
    if gradient:
        inner = program
        total = lambda *xs: sum(jnp.sum(x.astype(jnp.float32) ** 2) for x in jax.tree.leaves(inner(*xs)))
        program = jax.value_and_grad(total, argnums=(0, 1))
    return RandomProgram(seed, kind, gradient, jax.jit(program), args)


def bits(tree: Any) -> list[bytes]:
    """The bits of every leaf."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]
