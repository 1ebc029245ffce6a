"""Data-parallel training with all speed-ups: each process has its part of a batch, all have the same weights.

    torchrun --nproc-per-node 2 examples/ddp.py
    accelerate launch --multi_gpu --num_processes 2 examples/ddp.py --with trainer

The first uses sparring's loop, the second SparringTrainer; without a GPU set ACCELERATE_USE_CPU=true for
it. The task is to tell the language of a name. The data comes with the pycountry package; nothing is
downloaded. With --folder a run that was stopped continues, also when torchrun --max-restarts 1 starts it
again (for that set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: pytorch#135712).
"""

import argparse
import gettext
from pathlib import Path
from typing import Any

import pycountry
import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.utils.data import DataLoader

LANGUAGES = ("ar", "bn", "de", "el", "fi", "fr", "he", "hu", "it", "ja", "ka", "ko", "pl", "ru", "th", "tr")


class NameClassifier(nn.Module):
    """A name as UTF-8 bytes -> logits of the languages."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, 64, padding_idx=0)
        self.layers = nn.Sequential(
            nn.Conv1d(64, 128, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten()
        )
        self.classifier = nn.Linear(128, len(LANGUAGES))

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.classifier(self.layers(self.bytes(input_ids).transpose(1, 2)))}


def read_samples() -> list[dict[str, Any]]:
    """Names of languages and countries in 16 languages, in random order."""
    samples = []
    for label, language in enumerate(LANGUAGES):
        for catalogue in ("iso639-3", "iso3166-1"):
            path = Path(pycountry.LOCALES_DIR, language, "LC_MESSAGES", f"{catalogue}.mo")
            with path.open("rb") as file:
                pairs = vars(gettext.GNUTranslations(file))["_catalog"].items()
            names = {
                name for english, name in pairs if isinstance(english, str) and english and name != english
            }
            samples += [{"input_ids": name.encode()[:64], "labels": label} for name in sorted(names)]
    return [samples[i] for i in torch.randperm(len(samples)).tolist()]


def collate(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    rows = [torch.tensor(list(sample["input_ids"])) for sample in samples]
    input_ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"input_ids": input_ids, "labels": torch.tensor([sample["labels"] for sample in samples])}


def train_with_loop(model: nn.Module, samples: list[Any], args: argparse.Namespace) -> tuple[int, int]:
    """Returns rank and number of ranks."""
    from sparring.training.loop import Loop

    settings = {"batch_size": 32, "epochs": args.epochs, "lr": args.lr, "folder": args.folder}
    loop = Loop(model, "as-softmax", samples, speed="fast", collate=collate, **settings)
    loop.run()
    return loop.collectives.rank, loop.collectives.size


def train_with_trainer(model: nn.Module, samples: list[Any], args: argparse.Namespace) -> tuple[int, int]:
    """Returns rank and number of ranks."""
    from transformers import TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    from sparring.integrations.hf import SparringTrainer

    arguments = TrainingArguments(
        args.folder or "runs/ddp",
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        per_device_train_batch_size=32,
        save_strategy="epoch" if args.folder else "no",
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
    )
    trainer = SparringTrainer(
        model, arguments, train_dataset=samples, data_collator=collate, loss="as-softmax", speed="fast"
    )
    exists = args.folder is not None and Path(args.folder).is_dir()
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.folder) if exists else None)
    return arguments.process_index, arguments.world_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--with", dest="engine", choices=("loop", "trainer"), default="loop")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--folder", help="folder of checkpoints")
    args = parser.parse_args()

    torch.manual_seed(0)
    samples = read_samples()[: args.samples]
    train, dev = samples[len(samples) // 5 :], samples[: len(samples) // 5]
    model = NameClassifier()
    run = train_with_loop if args.engine == "loop" else train_with_trainer
    rank, n_ranks = run(model, train, args)

    model.eval()
    device = next(model.parameters()).device
    n_right = 0
    with torch.no_grad():
        for batch in DataLoader(dev, 128, collate_fn=collate):
            batch = send_to_device(batch, device)
            n_right += int((model(**batch)["logits"].argmax(1) == batch["labels"]).sum())
    checksum = sum(float(parameter.detach().double().abs().sum()) for parameter in model.parameters())
    accuracy = n_right / len(dev)
    print(f"rank {rank} of {n_ranks}: dev accuracy {accuracy:.1%}, weights {checksum:.9f}", flush=True)


if __name__ == "__main__":
    main()
