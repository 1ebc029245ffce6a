"""Token classification with Hugging Face's Trainer, with AS-Speed.

python examples/hf_token_classification.py

The data are generated: sequences of numbers of different lengths, and for each number whether it is larger or
smaller than the one before. Nothing is downloaded.
"""

import argparse
import random
from itertools import pairwise

from transformers import BertConfig, BertForTokenClassification, TrainingArguments, default_data_collator

from sparring.integrations.hf import SparringTrainer

LENGTH, N_NUMBERS = 16, 50


def sample(generator: random.Random) -> dict[str, list[int]]:
    n = generator.randint(4, LENGTH)
    numbers = [generator.randint(1, N_NUMBERS) for _ in range(n)]
    labels = [-100, *(int(b > a) for a, b in pairwise(numbers))]
    padding = LENGTH - n
    return {
        "input_ids": numbers + [0] * padding,
        "attention_mask": [1] * n + [0] * padding,
        "labels": labels + [-100] * padding,  # -100 is ignored
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--samples", type=int, default=2000)
    args = parser.parse_args()

    generator = random.Random(0)
    samples = [sample(generator) for _ in range(args.samples + 200)]
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = BertForTokenClassification(BertConfig(vocab_size=N_NUMBERS + 1, **sizes, num_labels=2))
    training = {"num_train_epochs": args.epochs, "learning_rate": 1e-3, "eval_strategy": "epoch"}
    trainer = SparringTrainer(
        model,
        TrainingArguments("runs/hf_token", per_device_train_batch_size=32, report_to=[], **training),
        train_dataset=samples[200:],
        eval_dataset=samples[:200],
        data_collator=default_data_collator,
        delta=0.3,
        accumulation=4,  # AS-Speed: at most four batches for one step
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
