"""A linear head and its loss in one pass: the engine behind `sparring.linear`.

head.py        which loss, in which dtype, by which kernel
kernels.py     a chunk of logits -> losses, verdicts, and gradients of the rows that fight
gradients.py   those gradients -> gradients of input, weight and bias
unfused.py     the same with the logits held, where chunks cannot be had
passes.py      the chunks, autograd, and the opaque operators torch.compile sees
"""

from sparring.fused.head import IMPLS, Head, choose_impl, find_impl
from sparring.fused.passes import fused_rows

__all__ = ["IMPLS", "Head", "choose_impl", "find_impl", "fused_rows"]
