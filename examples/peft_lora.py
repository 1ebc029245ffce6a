"""LoRA with PEFT: the encoder is frozen but for its adapters, and won samples have no backward pass.

    python examples/peft_lora.py

The model is small and random. With a network, load one of the hub instead of the folder.
"""

import argparse

import torch
from peft import LoraConfig, TaskType, get_peft_model
from small_models import sentence_pairs, small_bert
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from sparring.integrations.hf import SparringTrainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=12)
    args = parser.parse_args()

    torch.manual_seed(0)
    pairs = sentence_pairs()
    folder = small_bert("runs/peft/base", pairs["premise"] + pairs["hypothesis"], num_labels=3)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = tokenizer(pairs["premise"], pairs["hypothesis"])
    samples = [
        {"input_ids": ids, "token_type_ids": types, "labels": label}
        for ids, types, label in zip(texts["input_ids"], texts["token_type_ids"], pairs["label"], strict=True)
    ]
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    adapters = LoraConfig(task_type=TaskType.SEQ_CLS, r=8, target_modules=["query", "value"])
    model = get_peft_model(model, adapters)
    model.print_trainable_parameters()
    trainer = SparringTrainer(
        model,
        TrainingArguments(
            "runs/peft",
            num_train_epochs=args.epochs,
            learning_rate=1e-2,
            per_device_train_batch_size=16,
            save_strategy="no",
            report_to=[],
        ),
        train_dataset=samples,
        processing_class=tokenizer,
        loss="as-softmax",
        delta=0.3,
    )
    trainer.train()
    totals = trainer.engine.totals()
    print(f"won share {trainer.engine.won_share:.1%}")
    print(f"backward for {totals['n_backward']:.0f} of {totals['n_forward']:.0f} samples")


if __name__ == "__main__":
    main()
