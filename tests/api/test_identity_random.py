"""Random programs: what the user gets under the lens is production's, bit for bit, and every certificate is true.

JAXTAP_PROGRAMS says how many programs are drawn (default few, so that the suite stays quick), JAXTAP_SEED from which
seed on: a failing seed is in the test's name, ``JAXTAP_SEED=123 JAXTAP_PROGRAMS=1`` replays it.
"""

import os

import pytest
from random_programs import TAPPED, bits, draw

import jaxtap_core as tap

FIRST = int(os.environ.get("JAXTAP_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("JAXTAP_PROGRAMS", "8")))
TAPS = tuple(tap.on(name) for name in TAPPED)


@pytest.mark.parametrize("seed", SEEDS)
def test_recordings_return_what_production_returns_and_certificates_are_true(seed):
    program = draw(seed)
    production = bits(program.run(*program.args))
    options = {"taps": TAPS, "carry": True, "select_ys": lambda leaves: leaves}

    with tap.record(**options) as rec:
        observed = program.run(*program.args)
    assert bits(observed) == production

    with tap.record(identity="inline", **options) as inline:
        replica = program.run(*program.args)
    (verdict,) = rec.certificate.programs
    assert verdict.verdict == ("identical" if bits(replica) == production else "different")
    assert len(rec.events) == len(inline.events) > 0
    assert bits(program.run(*program.args)) == production


@pytest.mark.parametrize("seed", SEEDS)
def test_a_live_recording_returns_what_production_returns(seed):
    program = draw(seed)
    production = bits(program.run(*program.args))
    heard = []
    with tap.record(on_step=heard.append, taps=tap.watch_nan("*")) as rec:
        observed = program.run(*program.args)
    assert bits(observed) == production
    assert len(heard) == sum(event.kind == "carry" for event in rec.events) > 0


@pytest.mark.parametrize("level", ["escape", "born"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_gate_returns_what_production_returns(seed, level):
    program = draw(seed)
    production = bits(program.run(*program.args))
    with tap.record(gate=level) as rec:
        observed = program.run(*program.args)
    assert bits(observed) == production
    assert not rec.findings
