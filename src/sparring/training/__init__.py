"""Training that does not pay for what is won: AS-Speed, exact backward skipping, and samples that rest.

``loop`` (on Accelerate) is imported by itself: ``from sparring.training.loop import train``.
"""

from sparring.backward import skipper as skip
from sparring.training.accumulation import AdaptiveAccumulation, ConstantAccumulation
from sparring.training.divergence import DivergenceError
from sparring.training.sampler import Indexed, RevisitSampler
from sparring.training.scorecard import CHECK, FIGHT, REST, Scorecard

__all__ = [
    "CHECK",
    "FIGHT",
    "REST",
    "AdaptiveAccumulation",
    "ConstantAccumulation",
    "DivergenceError",
    "Indexed",
    "RevisitSampler",
    "Scorecard",
    "skip",
]
