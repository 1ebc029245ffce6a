"""Digits: 1,797 scanned digits of 8 by 8 points (Alpaydin and Kaynak 1998), as scikit-learn carries them."""

from __future__ import annotations

import torch

from sparring.lab.kinds import get_kind
from sparring.lab.task import Data, Sample, UserError, Where, register


@register(
    "digits",
    kind="image",
    about="which digit was written: images of 8 by 8 points (Alpaydin and Kaynak 1998)",
    metric="accuracy",
    home="scikit-learn (load_digits)",
    sizes=(1077, 360, 360),
    embedded=True,
)
def load(where: Where) -> Data:
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped,unused-ignore]
        from sklearn.model_selection import train_test_split  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise UserError(
            "the digits come with scikit-learn, which is not installed: pip install 'sparring[lab]'"
        ) from None
    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float().div(16).unsqueeze(1)  # 0 … 16 -> 0 … 1; (1797, 1, 8, 8)
    samples: list[Sample] = [
        {"image": image, "label": str(label)} for image, label in zip(images, bunch.target, strict=True)
    ]
    rest, test = train_test_split(
        samples, test_size=0.2, random_state=0, stratify=[sample["label"] for sample in samples]
    )
    train, dev = train_test_split(
        rest, test_size=0.25, random_state=0, stratify=[sample["label"] for sample in rest]
    )
    return Data(
        get_kind("image"),
        train,
        dev,
        test,
        source="scikit-learn",
        notes=("60/20/20, stratified: the set has no split of its own",),
    )
