"""Training without the cost of won samples: adaptive accumulation, backward skipping and resting samples.

Import the training loop, which needs Accelerate, by itself: ``from sparring.training.loop import train``.
"""

from sparring.backward import skipper as skip
from sparring.training.accumulation import AdaptiveAccumulation, ConstantAccumulation
from sparring.training.divergence import DivergenceError
from sparring.training.history import MarginHistory
from sparring.training.resting.sampler import Indexed, RevisitSampler
from sparring.training.resting.scorecard import CHECK, REST, TRAIN, Scorecard
from sparring.training.resting.weighted import WeightedScorecard

__all__ = [
    "CHECK",
    "REST",
    "TRAIN",
    "AdaptiveAccumulation",
    "ConstantAccumulation",
    "DivergenceError",
    "Indexed",
    "MarginHistory",
    "RevisitSampler",
    "Scorecard",
    "WeightedScorecard",
    "skip",
]
