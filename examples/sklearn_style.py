"""A search for δ with scikit-learn, through skorch.

python examples/sklearn_style.py

The data are the handwritten digits of scikit-learn; nothing is downloaded.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import Tensor, nn

from sparring import ASSoftmaxLoss, skip


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
        self.compaction = skip.compact(self.net)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=1400)
    args = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target
    net = NeuralNetClassifier(
        Classifier,
        criterion=ASSoftmaxLoss,
        optimizer=torch.optim.AdamW,
        lr=5e-3,
        batch_size=32,
        max_epochs=args.epochs,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
        predict_nonlinearity=nn.Softmax(-1),  # for predict_proba: skorch knows only the losses of torch
    )
    search = GridSearchCV(net, {"criterion__delta": [0.1, 0.3, 0.5]}, cv=2, scoring="accuracy")
    search.fit(x[: args.samples], y[: args.samples])
    accuracy = search.score(x[1400:], y[1400:])
    print(f"best δ {search.best_params_['criterion__delta']}, test accuracy {accuracy:.1%}")
    stats = search.best_estimator_.module_.compaction.stats
    print(f"backward for {stats.n_samples_backward} of {stats.n_samples} samples")


if __name__ == "__main__":
    main()
