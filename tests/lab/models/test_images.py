"""Images to tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoImageProcessor

from sparring.lab.kinds.image import ImageEncoder
from sparring.lab.models.images import ImageProcessor


def photographs(n: int = 6, side: int = 16) -> list[torch.Tensor]:
    return list(torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8))


def test_from_scratch_images_have_mean_0_and_spread_1() -> None:
    images = photographs(200)
    values = ImageProcessor.of(images)(images)
    assert values.shape == (200, 3, 16, 16)
    assert values.mean((0, 2, 3)).abs().max() < 0.05
    assert (values.std((0, 2, 3)) - 1).abs().max() < 0.05


def test_numbers_are_taken_as_they_are() -> None:
    image = torch.rand(1, 8, 8)
    assert torch.equal(ImageProcessor.of([image])([image])[0], image)


def test_sizes_and_channels_are_made_the_same() -> None:
    pixels = ImageProcessor(12, 10, (0.5,) * 3, (0.5,) * 3)
    mixed = [
        photographs(1, 32)[0],
        torch.full((1, 9, 7), 255, dtype=torch.uint8),
        torch.zeros(4, 5, 5, dtype=torch.uint8),
    ]
    values = pixels(mixed)
    assert values.shape == (3, 3, 12, 10)
    assert values[1].min() == values[1].max() == 1  # white, on every channel
    assert values[2].min() == values[2].max() == -1


def test_saved_and_read_again_also_by_hugging_face(tmp_path: Path) -> None:
    pixels = ImageProcessor(20, 24, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "flip")
    pixels.save_pretrained(tmp_path)
    assert ImageProcessor.from_pretrained(tmp_path) == pixels
    theirs = AutoImageProcessor.from_pretrained(tmp_path)
    image = photographs(1, 24)[0]
    expected = theirs(image.permute(1, 2, 0).numpy(), return_tensors="pt", do_resize=False)["pixel_values"][0]
    torch.testing.assert_close(ImageProcessor(24, 24, pixels.mean, pixels.std)([image])[0], expected)


@pytest.mark.parametrize("augment", ["off", "crop", "flip"])
def test_augmentation_moves_and_mirrors(augment: str) -> None:
    torch.manual_seed(0)
    images = torch.rand(200, 3, 16, 16)
    made = ImageProcessor(16, 16, (0.0,) * 3, (1.0,) * 3, augment).augmented(images)
    assert made.shape == images.shape
    inner = images[:, :, 4:12, 4:12]  # is still there, somewhere up to two points away

    def found(image: torch.Tensor, part: torch.Tensor) -> bool:
        return any(
            torch.equal(image[:, i : i + 8, j : j + 8], part) for i in range(2, 7) for j in range(2, 7)
        )

    plain = torch.tensor([found(image, part) for image, part in zip(made, inner, strict=True)])
    mirrored = torch.tensor([found(image.flip(-1), part) for image, part in zip(made, inner, strict=True)])
    if augment == "off":
        assert torch.equal(made, images)
    else:
        assert (plain | mirrored).all()
        assert not torch.equal(made, images)
        assert mirrored.float().mean().item() == (0.0 if augment == "crop" else pytest.approx(0.5, abs=0.15))


def test_only_training_augments_and_the_seed_decides() -> None:
    encoder = ImageEncoder(["a", "b"], ImageProcessor(16, 16, (0.0,) * 3, (1.0,) * 3, "flip"))
    features = encoder.encode([{"image": image, "label": "b"} for image in photographs(8)])
    plain = encoder.collate(features)
    assert torch.equal(plain["pixel_values"], encoder.collate(features)["pixel_values"])
    torch.manual_seed(1)
    first = encoder.collate_for_training(features)["pixel_values"]
    torch.manual_seed(1)
    assert torch.equal(first, encoder.collate_for_training(features)["pixel_values"])
    assert not torch.equal(first, plain["pixel_values"])
    assert plain["labels"].tolist() == [1] * 8
