"""Sequence classification with Hugging Face's Trainer: won samples rest, and have no backward pass.

    python examples/hf_sequence_classification.py
    python examples/hf_sequence_classification.py --speed off

The data are the handwritten digits of scikit-learn, read as 64 tokens; nothing is downloaded. With texts, use
AutoTokenizer and AutoModelForSequenceClassification: the lines with SparringTrainer stay as they are.
"""

import argparse

from sklearn.datasets import load_digits
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

from sparring.integrations.hf import SparringTrainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--samples", type=int, default=1400)
    parser.add_argument("--speed", default="fast", help="off, skip or fast")
    args = parser.parse_args()

    set_seed(0)
    digits = load_digits()
    pixels = digits.data.astype("int64")  # 0 to 16
    samples = [{"input_ids": x, "labels": y} for x, y in zip(pixels, digits.target, strict=True)]
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = BertForSequenceClassification(BertConfig(vocab_size=17, **sizes, num_labels=10))
    trainer = SparringTrainer(
        model,
        TrainingArguments(
            "runs/hf_sequence",
            num_train_epochs=args.epochs,
            learning_rate=1e-3,
            per_device_train_batch_size=32,
            eval_strategy="epoch",
            report_to=[],
        ),
        train_dataset=samples[: args.samples],
        eval_dataset=samples[1400:],
        compute_metrics=lambda output: {
            "accuracy": float((output.predictions.argmax(-1) == output.label_ids).mean())
        },
        loss="as-softmax",
        delta=0.3,
        speed=args.speed,
    )
    trainer.train()
    print(trainer.evaluate())
    totals = trainer.engine.totals()
    print(f"backward for {totals['n_backward']:.0f} of {totals['n_forward']:.0f} samples")


if __name__ == "__main__":
    main()
