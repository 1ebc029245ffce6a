"""A linear layer and its loss in one.

linear.py          LinearLoss and its kin: modules on features instead of logits
dispatch.py        which loss, in which dtype, by which kernel
chunk_kernels.py   a chunk of logits -> losses, verdicts, and gradients of the rows that are active
gradients.py       those gradients -> gradients of input, weight and bias
unfused.py         the same with the logits held, where chunks cannot be had
chunked.py         the chunks, and autograd around them
custom_ops.py      the same as the opaque operators that torch.compile sees
parallel/          the classes spread over ranks
"""
