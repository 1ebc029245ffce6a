"""Heads whose classes are sharded over the ranks of a process group, and checkpoints of them.

head.py            ClassParallelHead
autograd.py        its row losses as an autograd function
extras.py          further numbers of each row, for heads on one rank too
row_weights.py     class weights and row weights of the rows of all ranks
chunked.py         the losses and gradients of a chunk of rows on one rank, and what the ranks exchange
collectives.py     Collectives: the operations of torch.distributed that sparring uses
dtensor.py         class shards and their DTensor parameters
process_group.py   init_process_group and clip_grad_norm_ for such training
checkpoint.py      Checkpoints
safe_reader.py     reads checkpoint folders without running code from them
"""

from sparring.heads.parallel.checkpoint import Checkpoints
from sparring.heads.parallel.head import ClassParallelHead, Predicted
from sparring.heads.parallel.process_group import clip_grad_norm_, init_process_group

__all__ = ["Checkpoints", "ClassParallelHead", "Predicted", "clip_grad_norm_", "init_process_group"]
