"""Verification: which drafted tokens to keep, so that the output follows the target's law exactly."""

from soothsay.verify.base import Verdict
from soothsay.verify.noise import Noise
from soothsay.verify.rules import Rule, Verifier, verifier

__all__ = ["Noise", "Rule", "Verdict", "Verifier", "verifier"]
