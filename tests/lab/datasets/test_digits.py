import sys
from collections import Counter

import pytest
import torch
from sklearn.datasets import load_digits

from sparring.lab.datasets import Data, UserError, Where, get_task


@pytest.fixture(scope="module")
def data() -> Data:
    return get_task("digits").load(Where())


def test_parts(data: Data) -> None:
    assert (len(data.train), len(data.dev), len(data.test)) == (1077, 360, 360) == get_task("digits").sizes
    assert data.labels == list("0123456789")
    whole = Counter(map(str, load_digits().target))
    for part in (data.train, data.dev, data.test):
        count = Counter(sample["label"] for sample in part)
        assert all(abs(count[label] - whole[label] * len(part) / 1797) <= 1 for label in whole)  # stratified


def test_every_image_once_with_its_label(data: Data) -> None:
    bunch = load_digits()
    expected = Counter(
        (tuple(image.flatten()), str(label)) for image, label in zip(bunch.images, bunch.target, strict=True)
    )
    got = Counter(
        (tuple((16 * sample["image"].double()).flatten().tolist()), sample["label"])
        for sample in data.train + data.dev + data.test
    )
    assert got == expected


def test_form(data: Data) -> None:
    images = torch.stack([sample["image"] for sample in data.train])
    assert images.shape == (1077, 1, 8, 8)
    assert images.dtype == torch.float32
    assert (images.min(), images.max()) == (0, 1)


def test_the_same_each_time(data: Data) -> None:
    again = get_task("digits").load(Where())
    assert again.fingerprint == data.fingerprint


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UserError, match=r"pip install 'sparring\[lab\]'"):
        get_task("digits").load(Where())
