"""Supervised fine-tuning with TRL: answers that the model gives with a margin have no backward pass.

    python examples/trl_sft.py

The model is small and random. With a network, use the name of a causal language model of the hub.
"""

import argparse

import torch
from datasets import Dataset
from small_models import sentence_pairs, small_llama
from trl import SFTConfig, SFTTrainer

from sparring.integrations.hf import SparringMixin


class SparringSFTTrainer(SparringMixin, SFTTrainer):
    """An SFTTrainer with the settings of SparringTrainer. TRL's own compute_loss is not called."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=12)
    args = parser.parse_args()

    torch.manual_seed(0)
    pairs = sentence_pairs()
    answers = ("yes", "no", "perhaps")
    questions = [f"{a} ; {b} ?" for a, b in zip(pairs["premise"], pairs["hypothesis"], strict=True)]
    data = {"prompt": questions, "completion": [f" {answers[label]}" for label in pairs["label"]]}
    folder = small_llama("runs/trl/base", [*questions, *answers])
    trainer = SparringSFTTrainer(
        folder,
        SFTConfig(
            "runs/trl",
            num_train_epochs=args.epochs,
            learning_rate=3e-3,
            per_device_train_batch_size=16,
            gradient_checkpointing=False,  # a checkpointed forward pass cannot be cut to active samples
            bf16=False,
            save_strategy="no",
            report_to=[],
        ),
        train_dataset=Dataset.from_dict(data),
        loss="as-softmax",  # over the vocabulary, for each token of the completion
        delta=0.3,
    )
    trainer.train()
    totals = trainer.engine.totals()
    print(f"won tokens {totals['n_won'] / totals['n_rows']:.1%}")
    print(f"backward for {totals['n_backward']:.0f} of {totals['n_forward']:.0f} samples")


if __name__ == "__main__":
    main()
