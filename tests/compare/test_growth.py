"""How a difference grows: curves whose law is known."""

import numpy as np
import pytest

from jaxtap_core.compare.growth import growth

T = np.arange(200)
NOISE = np.exp(np.random.default_rng(0).normal(0, 0.3, 200))


@pytest.mark.parametrize("noise", [1.0, NOISE])
@pytest.mark.parametrize("doubling", [2.5, 11, 40])
def test_exponential_growth_gives_its_doubling_step(doubling, noise):
    found = growth(T + 57, 1e-7 * 2.0 ** (T / doubling) * noise)
    assert found.kind == "exponential" and found.doubling == pytest.approx(doubling, rel=0.1)
    assert (found.first, found.last, found.points) == (57, 256, 200)


@pytest.mark.parametrize("noise", [1.0, NOISE])
@pytest.mark.parametrize("start", [0.0, 3e-6])
def test_linear_growth_gives_its_slope(noise, start):
    found = growth(T, (start + 1e-6 * (T + 1)) * noise)
    assert found.kind == "linear" and found.slope == pytest.approx(1e-6, rel=0.15)


@pytest.mark.parametrize("noise", [1.0, NOISE])
@pytest.mark.parametrize("exponent", [1.6, 2, 3])
def test_a_power_gives_its_exponent_and_is_no_exponential(exponent, noise):
    found = growth(T, 1e-9 * (T + 1.0) ** exponent * noise)
    assert found.kind == "power" and found.exponent == pytest.approx(exponent, abs=0.15)
    assert found.doubling is None


def oscillator(steps, frequency=1.0, kick=0.0, dt=0.05, dtype=np.float64):
    """Positions of a linear oscillator by leapfrog."""
    q, p, found = dtype(1 + kick), dtype(0), []
    half = dtype(dt / 2 * frequency**2)
    for _ in range(steps):
        p = p - half * q
        q = q + dtype(dt) * p
        p = p - half * q
        found.append(float(q))
    return np.array(found)


@pytest.mark.parametrize("steps", [30, 60, 100, 200, 500, 1000])
@pytest.mark.parametrize("dt", [0.01, 0.05, 0.2])
@pytest.mark.parametrize(
    "other",
    [{"frequency": 1 + 1e-6}, {"frequency": 1 + 1e-4}, {"kick": 1e-6}, {"dtype": np.float32}],
    ids=["frequency", "frequency more", "kick", "rounding"],
)
def test_a_linear_oscillator_is_not_chaotic(steps, dt, other):
    """Its gaps swing and at most add up, as t or t²: nothing in it doubles again and again."""
    found = growth(np.arange(steps), np.abs(oscillator(steps, dt=dt, **other) - oscillator(steps, dt=dt)))
    assert found is None or (found.kind != "exponential" and found.doubling is None)


@pytest.mark.parametrize("rate", [0.01, 0.02, 0.05, 0.3])
@pytest.mark.parametrize("law", [lambda t: 1.0 + 0 * t, lambda t: t + 1.0, lambda t: (t + 1.0) ** 2])
def test_what_swings_under_a_power_is_no_exponential(law, rate):
    assert growth(T, 1e-9 * law(T) * np.abs(np.cos(rate * T))).kind != "exponential"
    assert growth(T, 1e-9 * law(T) * np.abs(np.sin(rate * T + 1e-3))).kind != "exponential"


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_what_swings_under_an_exponential_is_one(rate):
    found = growth(np.arange(400), 1e-9 * 2.0 ** (np.arange(400) / 40) * np.abs(np.cos(rate * np.arange(400))))
    assert found.kind == "exponential" and found.doubling == pytest.approx(40, rel=0.1)


def test_a_chaotic_map_doubles_as_its_exponent_says():
    """The Lyapunov exponent of x → 4x(1 - x) is ln 2: one doubling a step."""

    def orbit(x):
        found = []
        for _ in range(30):
            x = 4 * x * (1 - x)
            found.append(x)
        return np.array(found)

    found = growth(np.arange(30), np.abs(orbit(0.3) - orbit(0.3 + 1e-12)))
    assert found.kind == "exponential" and found.doubling == pytest.approx(1, rel=0.15)


@pytest.mark.parametrize("noise", [1.0, NOISE])
def test_a_difference_that_stays_is_constant(noise):
    assert growth(T, np.full(200, 2e-7) * noise).kind == "constant"


def test_one_step_alone_is_no_growth():
    gaps = np.zeros(200)
    gaps[40] = 1e-6
    assert growth(T, gaps) is None
    assert growth(T, np.full(200, np.nan)) is None


def test_few_points_claim_nothing():
    found = growth(np.arange(5), 2.0 ** np.arange(5))
    assert found.kind == "unknown" and found.story == ""


def test_noise_over_many_decades_claims_nothing():
    gaps = 10.0 ** np.random.default_rng(1).uniform(-12, 0, 200)
    assert growth(T, gaps).kind == "irregular"


@pytest.mark.parametrize("doubling", [0.5, 1, 2])
def test_a_chaotic_gap_is_fitted_up_to_its_plateau(doubling):
    gaps = np.minimum(1e-12 * 2.0 ** (T / doubling), 1.0) * NOISE
    found = growth(T, gaps)
    assert found.kind == "exponential" and found.doubling == pytest.approx(doubling, rel=0.1)
    assert found.last <= 40 * doubling


def test_outliers_zeros_and_nan_do_not_bend_the_fit():
    gaps = 1e-9 * 2.0 ** (T / 10)
    gaps[::17] = 1.0
    gaps[5::23] = 0.0
    gaps[7::29] = np.nan
    assert growth(T, gaps).doubling == pytest.approx(10, rel=0.05)


def test_gaps_counted_in_single_ulps_still_double():
    ulps = np.round(2.0 ** (T[:80] / 8))
    assert growth(T[:80], ulps * 2**-23).doubling == pytest.approx(8, rel=0.1)


def test_sampled_steps_count_as_steps():
    assert growth(T * 10, 1e-7 * 2.0 ** (T * 10 / 110)).doubling == pytest.approx(110, rel=0.01)


def test_the_story_fits_on_a_first_line():
    assert growth(T, 2.0 ** (T / 11)).story == "the gap doubles every 11 steps"
    assert growth(T, 1.0 + T, "index").story == "the gap grows by 1 per index"
    assert growth(T, (T + 1.0) ** 2).story == "the gap grows as the power 2 of the steps"
    assert growth(T, 2.0 ** (-T / 11)).story == "the gap halves every 11 steps"
    assert growth(T, 200.0 - T).story == "the gap shrinks by 1 per step"


@pytest.mark.parametrize("noise", [1.0, NOISE])
@pytest.mark.parametrize("halving", [2.5, 11, 40])
def test_exponential_decay_gives_its_halving_step(halving, noise):
    found = growth(T + 57, 1e-2 * 2.0 ** (-T / halving) * noise)
    assert found.kind == "shrinking" and found.halving == pytest.approx(halving, rel=0.1)
    assert found.doubling is None and (found.first, found.last, found.points) == (57, 256, 200)


@pytest.mark.parametrize("noise", [1.0, NOISE])
@pytest.mark.parametrize("end", [0.0, 3e-6])
def test_linear_decay_gives_its_slope(noise, end):
    found = growth(T, (end + 1e-6 * (200 - T)) * noise)
    assert found.kind == "shrinking" and found.slope == pytest.approx(-1e-6, rel=0.15)


def test_decay_to_a_floor_is_fitted_down_to_it():
    found = growth(T, np.maximum(1e-2 * 2.0 ** (-T / 2), 1e-7) * NOISE)
    assert found.kind == "shrinking" and found.halving == pytest.approx(2, rel=0.15) and found.last < 40


@pytest.mark.parametrize(("factor", "kind", "time"), [(0.9, "shrinking", 6.58), (1 / 0.9, "exponential", 6.58)])
def test_a_steady_trend_of_few_steps_is_told(factor, kind, time):
    found = growth(T[:13], 1e-3 * factor ** T[:13])
    assert found.kind == kind and (found.halving or found.doubling) == pytest.approx(time, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_few_steps_is_no_trend(seed):
    assert growth(T[:13], np.exp(np.random.default_rng(seed).normal(0, 0.3, 13))).kind == "constant"
