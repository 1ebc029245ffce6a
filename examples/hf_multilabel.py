"""Multi-label classification with Hugging Face's Trainer: several properties of a handwritten digit.

python examples/hf_multilabel.py

The data are the handwritten digits of scikit-learn, read as 64 tokens; nothing is downloaded.
"""

import argparse

from sklearn.datasets import load_digits
from sklearn.metrics import f1_score
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

from sparring.integrations.hf import SparringTrainer

LABELS = {"even": (0, 2, 4, 6, 8), "prime": (2, 3, 5, 7), "above 4": (5, 6, 7, 8, 9), "loop": (0, 6, 8, 9)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--samples", type=int, default=1400)
    args = parser.parse_args()

    set_seed(0)
    digits = load_digits()
    targets = [[float(digit in label) for label in LABELS.values()] for digit in digits.target]
    pixels = digits.data.astype("int64")  # 0 to 16
    samples = [{"input_ids": x, "labels": y} for x, y in zip(pixels, targets, strict=True)]
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = BertForSequenceClassification(BertConfig(vocab_size=17, **sizes, num_labels=len(LABELS)))
    training = {"num_train_epochs": args.epochs, "learning_rate": 1e-3, "eval_strategy": "epoch"}
    trainer = SparringTrainer(
        model,
        TrainingArguments("runs/hf_multilabel", per_device_train_batch_size=32, report_to=[], **training),
        train_dataset=samples[: args.samples],
        eval_dataset=samples[1400:],
        compute_metrics=lambda output: {
            "micro_f1": f1_score(output.label_ids, output.predictions > 0, average="micro", zero_division=0)
        },
        loss="multilabel-as-softmax",  # a label is predicted where its logit is above 0
        delta=0.3,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
