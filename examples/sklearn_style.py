"""fit, predict and grid search: our losses through skorch are settings of an estimator.

    python examples/sklearn_style.py

Handwritten digits from scikit-learn; nothing is downloaded.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from skorch import NeuralNetClassifier
from torch import nn

from sparring import ASSoftmaxLoss, skip


class Classifier(nn.Sequential):
    def __init__(self, width: int = 128) -> None:
        super().__init__(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        skip.compact(self)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split((x / 16).astype("float32"), y, test_size=0.2, random_state=0)
    net = NeuralNetClassifier(
        Classifier,
        criterion=ASSoftmaxLoss,
        criterion__delta=0.3,
        optimizer=torch.optim.AdamW,
        lr=1e-3,
        batch_size=32,
        max_epochs=args.epochs,
        iterator_train__shuffle=True,
        verbose=0,
    )
    search = GridSearchCV(net, {"criterion__delta": [0.1, 0.3, 0.5]}, cv=3, scoring="accuracy")
    search.fit(x_train, y_train)
    delta, test = search.best_params_["criterion__delta"], search.score(x_test, y_test)
    print(f"best δ {delta}, cross-validated {search.best_score_:.1%}, test {test:.1%}")


if __name__ == "__main__":
    main()
