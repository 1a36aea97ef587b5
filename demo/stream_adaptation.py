"""See inside a warm-up that shows nothing: BlackJAX's window adaptation, unmodified, compiled as always.

Step size and inverse mass matrix are carries of a scan inside the library; here they come out, step by step, as a
DataFrame, and the certificate says that observing changed no bit of the result.
"""

import blackjax
import jax
import jax.numpy as jnp

import jaxtap_core as tap

SCALES = jnp.array([1.0, 10.0, 0.1])


def log_density(x: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((x / SCALES) ** 2)


def main() -> None:
    warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
    leaves = {"step_size": "carry[1].step_size", "variance": "carry[1].inverse_mass_matrix"}
    with tap.record(select=leaves, max_depth=1) as rec:
        (_, parameters), _ = warmup.run(jax.random.key(0), jnp.ones(3), 200)

    frame = rec.df()[["path", "step", "step_size", "variance"]]
    print(frame.iloc[[0, 1, 2, 50, 100, 150, 198, 199]].to_string(index=False))
    print("certificate:", rec.certificate)
    print("final step size:", parameters["step_size"], "(the sampler's own answer)")


if __name__ == "__main__":
    main()
