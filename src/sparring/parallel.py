"""Heads whose classes are spread over ranks: another name of ``sparring.heads.parallel``."""

from sparring.heads.parallel import (
    Checkpoints,
    ClassParallelHead,
    Predicted,
    clip_grad_norm_,
    init_process_group,
)

__all__ = ["Checkpoints", "ClassParallelHead", "Predicted", "clip_grad_norm_", "init_process_group"]
