"""fit, predict and grid search: our losses through skorch are settings of an estimator.

    python examples/sklearn_style.py
    python examples/sklearn_style.py --task clinc_oos --model minilm --lr 5e-4 --samples 2000      # an encoder that installs as a wheel

The default's data comes with pycountry and its network is trained from scratch; nothing is downloaded.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from skorch.helper import SliceDict

from sparring import ASSoftmaxLoss, skip
from sparring.lab.datasets import Where, get_task


class Classifier(torch.nn.Module):
    def __init__(self, name: str, data: Any) -> None:
        super().__init__()
        self.net = data.build_model(name).net
        skip.compact(self.net)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.net(input_ids=input_ids, attention_mask=attention_mask).logits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {
        "task": "languages",
        "model": "tiny",
        "lr": 3e-3,
        "epochs": 3,
        "samples": 3000,
    }.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = get_task(args.task).load(Where.default())
    tokenizer = data.build_model(args.model).processor

    def tensors(part: list[Any]) -> tuple[SliceDict, Any]:
        texts = tokenizer(
            [each["text"] for each in part],
            padding="max_length",
            truncation=True,
            max_length=32,
            return_tensors="np",
        )
        labels = torch.tensor([data.labels.index(each["label"]) for each in part]).numpy()
        return SliceDict(input_ids=texts["input_ids"], attention_mask=texts["attention_mask"]), labels

    net = NeuralNetClassifier(
        Classifier, module__name=args.model, module__data=data, criterion=ASSoftmaxLoss, optimizer=torch.optim.AdamW, lr=args.lr,
        batch_size=32, max_epochs=args.epochs, iterator_train__shuffle=True, train_split=None, verbose=0,
        predict_nonlinearity=torch.nn.Softmax(-1),  # for predict_proba: skorch knows torch's losses only
    )  # fmt: skip
    search = GridSearchCV(net, {"criterion__delta": [0.1, 0.3, 0.5]}, cv=2, scoring="accuracy")
    search.fit(*tensors(data.train[: args.samples]))
    print(
        f"best δ {search.best_params_['criterion__delta']}, test {search.score(*tensors(data.test[: args.samples])):.1%}"
    )


if __name__ == "__main__":
    main()
