"""A CrossEncoder of sentence-transformers on pairs of sentences, with class weights.

    python examples/cross_encoder.py

The model is small and random. With a network, use CrossEncoder("distilroberta-base", num_labels=3).
"""

import argparse

import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainingArguments
from small_models import sentence_pairs, small_bert

from sparring import ASSoftmaxLoss
from sparring.integrations.sentence_transformers import SparringCrossEncoderTrainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=12)
    parser.add_argument("--speed", default="skip", help="off, skip or fast")
    args = parser.parse_args()

    torch.manual_seed(0)
    pairs = sentence_pairs()
    data = Dataset.from_dict(pairs).train_test_split(0.25, seed=0)
    folder = small_bert("runs/cross_encoder/base", pairs["premise"] + pairs["hypothesis"], num_labels=3)
    model = CrossEncoder(folder, device="cpu")
    trainer = SparringCrossEncoderTrainer(
        model,
        CrossEncoderTrainingArguments(
            "runs/cross_encoder",
            num_train_epochs=args.epochs,
            learning_rate=2e-3,
            per_device_train_batch_size=16,
            save_strategy="no",
            report_to=[],
        ),
        train_dataset=data["train"],
        loss=ASSoftmaxLoss(delta=0.3, weight=torch.tensor([1.0, 2.0, 1.0])),
        speed=args.speed,
    )
    trainer.train()
    test = data["test"]
    predicted = model.predict(list(zip(test["premise"], test["hypothesis"], strict=True))).argmax(1)
    totals = trainer.engine.totals()
    print(f"accuracy {(predicted == test['label']).mean():.1%}")
    print(f"backward for {totals['n_backward']:.0f} of {totals['n_forward']:.0f} samples")


if __name__ == "__main__":
    main()
