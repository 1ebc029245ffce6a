"""Frozen layers of an encoder: they are not trained, and their outputs are computed once for each sample."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections import OrderedDict
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

    def add_outputs(self, net: Any, encoder: Any, features: Sequence[Features]) -> float | None:
        """Give every sample the output of the frozen layers.

        The outputs are shared by all runs of this process with the same layers and samples.

        Returns:
            The processor seconds that it took to compute them; None if they do not fit into ``MOST_BYTES``.
        """
        n_tokens = sum(len(feature["input_ids"]) for feature in features)
        if n_tokens * net.get_input_embeddings().weight.shape[1] * 4 > MOST_BYTES:
            return None
        key = self._digest(features)
        if key not in _SHARED:
            start_time = time.process_time()
            outputs = self._compute(net, encoder, features)
            _share(key, outputs, time.process_time() - start_time)
        outputs, seconds = _SHARED[key]
        _SHARED.move_to_end(key)
        for feature, output in zip(features, outputs, strict=True):
            feature[HIDDEN] = output
        return seconds

    def _digest(self, features: Sequence[Features]) -> str:
        """Of the frozen weights, and of the tokens of all samples in their order."""
        digest = hashlib.sha256()
        for module in self.frozen:
            for tensor in module.state_dict().values():
                digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        for feature in features:
            tokens = {name: value for name, value in feature.items() if name not in ("labels", HIDDEN)}
            digest.update(repr(sorted(tokens.items())).encode())
        return digest.hexdigest()

    @torch.no_grad()
    def _compute(self, net: Any, encoder: Any, features: Sequence[Features]) -> list[Tensor]:
        lengths = [len(feature["input_ids"]) for feature in features]
        outputs: list[Tensor] = [torch.empty(0)] * len(features)
        device = next(net.parameters()).device
        was_training = net.training
        net.eval()
        order = sorted(range(len(features)), key=lengths.__getitem__)
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            batch = encoder.collate([features[i] for i in part])
            net(**{name: value.to(device) for name, value in batch.items() if name != "labels"})
            assert self.output is not None
            for i, output in zip(part, self.output, strict=True):
                left = encoder.processor.padding_side == "left"
                rows = output[len(output) - lengths[i] :] if left else output[: lengths[i]]
                outputs[i] = rows.cpu().clone()
        self.output = None
        net.train(was_training)
        return outputs


# Outputs and the seconds that they took, by digest; the one used last stands last.
_SHARED: OrderedDict[str, tuple[list[Tensor], float]] = OrderedDict()


def _share(key: str, outputs: list[Tensor], seconds: float) -> None:
    """Keep outputs for later runs, and forget the oldest ones beyond ``MOST_BYTES``."""
    _SHARED[key] = outputs, seconds

    def n_bytes(tensors: Sequence[Tensor]) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    total = sum(n_bytes(tensors) for tensors, _ in _SHARED.values())
    while total > MOST_BYTES and len(_SHARED) > 1:
        total -= n_bytes(_SHARED.popitem(last=False)[1][0])


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
