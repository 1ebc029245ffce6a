"""Past one device: heads whose classes are spread over ranks, and checkpoints of them."""

from sparring.heads.parallel.checkpoint import Checkpoints
from sparring.heads.parallel.clip_grad import clip_grad_norm_
from sparring.heads.parallel.head import ClassParallelHead, Predicted
from sparring.heads.parallel.process_group import init_process_group

__all__ = ["Checkpoints", "ClassParallelHead", "Predicted", "clip_grad_norm_", "init_process_group"]
