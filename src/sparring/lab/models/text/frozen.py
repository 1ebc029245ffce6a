"""Frozen layers of an encoder: they are not trained, and their outputs are computed once for each sample."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from sparring.lab.errors import UserError, option

Features = dict[str, Any]
HIDDEN = "frozen_hidden"  # the feature of a sample, and the entry of a batch
MOST_BYTES = 4 << 30  # of the outputs that are kept; beyond, they are computed in every epoch
BATCH = 64


class FrozenLayers:
    """The embeddings and the first layers of an encoder, frozen and without dropout.

    So the output of the last of them depends on the sample alone. `add_outputs` computes it once for each
    sample; batches that hold it go through the layers above only. The network itself stays the same: it is
    saved, loaded and called as always.

    Args:
        net: A network of transformers.
        n_layers: Layers to freeze.
        name: Of the network, for messages.
    """

    def __init__(self, net: Any, n_layers: int, name: str) -> None:
        layers = encoder_layers(net, name)
        if not 1 <= n_layers <= len(layers):
            raise UserError(
                f"{option('freeze_layers')} must be between 1 and {name}'s {len(layers)}, got {n_layers}"
            )
        embeddings = getattr(net.base_model, "embeddings", None) or net.get_input_embeddings()
        self.frozen: list[nn.Module] = [embeddings, *layers[:n_layers]]
        self.hidden: Tensor | None = None  # of the current batch
        self.output: Tensor | None = None  # of the last frozen layer
        for module in self.frozen:
            module.requires_grad_(False)
            for child in module.modules():
                if isinstance(child, nn.Dropout):
                    child.p = 0.0
        for layer in self.frozen[1:]:
            is_last = layer is self.frozen[-1]
            layer.forward = partial(self._forward, layer.forward, is_last)
        _FROZEN[net] = self

    def _forward(self, compute: Any, is_last: bool, hidden: Tensor, *args: Any, **inputs: Any) -> Any:
        if self.hidden is not None:
            return self.hidden if is_last else hidden
        with torch.no_grad():
            output = compute(hidden, *args, **inputs)
        output = output[0] if isinstance(output, tuple) else output
        if is_last:
            self.output = output
        return output

    @contextmanager
    def known(self, hidden: Tensor | None) -> Iterator[None]:
        """Inside, the network takes these outputs of the frozen layers instead of computing them."""
        self.hidden = hidden
        try:
            yield
        finally:
            self.hidden = None

    @torch.no_grad()
    def add_outputs(self, net: Any, encoder: Any, features: Sequence[Features]) -> float | None:
        """Give every sample the output of the frozen layers.

        Returns:
            The processor seconds; None if the outputs do not fit into ``MOST_BYTES``.
        """
        start_time = time.process_time()
        lengths = [len(feature["input_ids"]) for feature in features]
        width = net.get_input_embeddings().weight.shape[1]
        if sum(lengths) * width * 4 > MOST_BYTES:
            return None
        device = next(net.parameters()).device
        was_training = net.training
        net.eval()
        order = sorted(range(len(features)), key=lengths.__getitem__)
        for start in range(0, len(order), BATCH):
            part = [features[i] for i in order[start : start + BATCH]]
            batch = {name: value.to(device) for name, value in encoder.collate(part).items()}
            net(**{name: value for name, value in batch.items() if name != "labels"})
            assert self.output is not None
            for feature, output, ids in zip(part, self.output, batch["input_ids"], strict=True):
                n = len(feature["input_ids"])
                left = encoder.processor.padding_side == "left"
                feature[HIDDEN] = (output[len(ids) - n :] if left else output[:n]).cpu().clone()
        self.output = None
        net.train(was_training)
        return time.process_time() - start_time


_FROZEN: weakref.WeakKeyDictionary[nn.Module, FrozenLayers] = weakref.WeakKeyDictionary()


def frozen_layers(net: nn.Module) -> FrozenLayers | None:
    """The frozen layers of a network; None if it has none."""
    return _FROZEN.get(getattr(net, "module", net))  # DDP wraps it


def encoder_layers(net: Any, name: str) -> Sequence[nn.Module]:
    """The layers of an encoder of transformers, in their order."""
    n_layers = getattr(net.config, "num_hidden_layers", 0)
    for module in net.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return list(module)
    raise UserError(f"{option('freeze_layers')}: {name} has no list of layers to freeze")


def pad_hidden(features: Sequence[Features], side: str) -> dict[str, Tensor]:
    """The entry of a batch with the outputs of the frozen layers; empty if a sample has none."""
    if any(HIDDEN not in feature for feature in features):
        return {}
    rows = [feature[HIDDEN] for feature in features]
    return {HIDDEN: pad_sequence(rows, batch_first=True, padding_side=side)}


def call(net: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
    """Call a network, with the outputs of its frozen layers where the batch holds them."""
    frozen = frozen_layers(net)
    if frozen is None:
        return net(**inputs)
    hidden = inputs.get(HIDDEN)
    with frozen.known(hidden):
        return net(**{name: value for name, value in inputs.items() if name != HIDDEN})
