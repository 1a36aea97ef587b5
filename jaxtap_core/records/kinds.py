"""The few words that records are told apart by, as types."""

from typing import Literal

Kind = Literal["carry", "output", "primitive"]
Phase = Literal["forward", "backward", "recompute"]
Verdict = Literal["identical", "different", "uncertified"]
Bad = Literal["nan", "inf"]
