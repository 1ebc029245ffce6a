"""Digits: 1,797 scanned digits of 8 by 8 pixels (Alpaydin and Kaynak 1998), as scikit-learn ships them."""

import torch

from sparring.lab.datasets import register_embedded
from sparring.lab.task import Sample, Splits, UserError


def splits() -> Splits:
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped,unused-ignore]
        from sklearn.model_selection import train_test_split  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise UserError("the digits come with scikit-learn: pip install 'sparring[lab]'") from None

    def split(samples: list[Sample], share: float) -> list[list[Sample]]:
        labels = [sample["label"] for sample in samples]
        parts: list[list[Sample]] = train_test_split(
            samples, test_size=share, random_state=0, stratify=labels
        )
        return parts

    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float().div(16).unsqueeze(1)  # 0 … 16 -> 0 … 1; (1797, 1, 8, 8)
    pairs = zip(images, bunch.target, strict=True)
    rest, test = split([{"image": image, "label": str(label)} for image, label in pairs], 0.2)
    train, dev = split(rest, 0.25)
    return {"train": train, "dev": dev, "test": test}


register_embedded(
    "digits",
    kind="image",
    about="which digit was written: images of 8 by 8 points (Alpaydin and Kaynak 1998)",
    splits=splits,
    source="scikit-learn",
    notes=("60/20/20, stratified: the set has no split of its own",),
    metric="accuracy",
    home="scikit-learn (load_digits)",
    sizes=(1077, 360, 360),
)
