"""Past one device: heads whose classes are spread over ranks, and checkpoints of them."""

from sparring.parallel.checkpoint import Checkpoints
from sparring.parallel.clipping import clip_grad_norm_
from sparring.parallel.head import ClassParallelHead, Predicted
from sparring.parallel.start import init_process_group

__all__ = ["Checkpoints", "ClassParallelHead", "Predicted", "clip_grad_norm_", "init_process_group"]
