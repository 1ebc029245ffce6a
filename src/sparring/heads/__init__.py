"""A linear layer and its loss in one module, without materialising the (N, C) logits.

linear.py          LinearLoss and its subclasses: modules that take features instead of logits
functional.py      the heads as functions
loss_wrapper.py    LossWrapper: a module with a loss inside
dispatch.py        HeadInputs and HeadSpec: the tensors and the loss of a call, and its implementation
fused.py           the row losses of a call, by the form that fits
autograd.py        the row losses as autograd functions; with materialised logits where chunks are impossible
custom_ops.py      the same as operators for torch.compile
chunked.py         the loop over chunks of rows
chunk_kernels.py   the logits of some rows -> losses, active rows, and gradients with respect to the logits
gradients.py       gradients with respect to the logits -> gradients of features, weight and bias
parallel/          heads whose classes are sharded over the ranks of a process group
"""
