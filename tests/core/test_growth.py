"""How a difference grows: curves whose law is known."""

import numpy as np
import pytest

from jaxtap_core.growth import growth

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
def test_a_difference_that_stays_is_constant(noise):
    assert growth(T, np.full(200, 2e-7) * noise).kind == "constant"


def test_one_step_alone_is_no_growth():
    gaps = np.zeros(200)
    gaps[40] = 1e-6
    found = growth(T, gaps)
    assert found.kind == "none" and str(found) == "none: only step 40 differs"


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
