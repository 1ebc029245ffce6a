"""Cost and gain of skip="auto" over architectures of transformers, in untrained small configurations.

    python benchmarks/zoo.py --threads 1              all models at 0, 50 and 90 % won: about ten minutes
    python benchmarks/zoo.py --models bert resnet     some of them

A step is forward, AS-Softmax and backward, without an optimizer. A bias of the logits, which dropout cannot
change, decides which samples are won. Steps with skip="auto", its trials included, alternate with full steps
of a twin. Times are processor seconds, so that other work on the machine disturbs them less, and the slowest
tenth of each is left out. The ratio is that of their totals: above 1, skip="auto" costs time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from report import ROOT, provenance, write
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from sparring import ASSoftmaxLoss
from sparring.backward.skipper import ForwardResult, Skipper

SHARES = (0.0, 0.5, 0.9)
AIM = 1.03
N_CLASSES = 20
N_SAMPLES = 32
VOCABULARY = 1000
LOSS = ASSoftmaxLoss(delta=0.3)
RESULT = ROOT / "docs" / "results" / "skip" / "zoo.json"

WIDE = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 384}
TEXT = {**WIDE, "vocab_size": VOCABULARY, "pad_token_id": 0}
DECODER = {**TEXT, "num_key_value_heads": 2, "head_dim": 32}
STAGES = {"depths": [2, 2, 2, 2], "hidden_sizes": [32, 64, 96, 128]}
Data = Callable[[], dict[str, Tensor]]


def tokens() -> dict[str, Tensor]:
    ids = torch.randint(3, VOCABULARY, (N_SAMPLES, 32))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def image(size: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(N_SAMPLES, 3, size, size)}


def sound() -> dict[str, Tensor]:
    return {"input_values": torch.randn(N_SAMPLES, 3200)}


# name: (class, settings of its configuration, inputs)
SEQUENCE = "ForSequenceClassification"
IMAGES = "ForImageClassification"
CONV = {
    "conv_dim": [64] * 3,
    "conv_kernel": [10, 8, 4],
    "conv_stride": [5, 4, 4],
    "num_feat_extract_layers": 3,
}
MODELS: dict[str, tuple[str, dict[str, Any], Data]] = {
    "bert": ("Bert" + SEQUENCE, TEXT, tokens),
    "roberta": ("Roberta" + SEQUENCE, TEXT, tokens),
    "electra": ("Electra" + SEQUENCE, {**TEXT, "embedding_size": 64}, tokens),
    "albert": ("Albert" + SEQUENCE, {**TEXT, "embedding_size": 64}, tokens),
    "mpnet": ("MPNet" + SEQUENCE, TEXT, tokens),
    "deberta-v2": (
        "DebertaV2" + SEQUENCE,
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        tokens,
    ),
    "modernbert": ("ModernBert" + SEQUENCE, {**TEXT, "reference_compile": False}, tokens),
    "convbert": ("ConvBert" + SEQUENCE, {**TEXT, "embedding_size": 128}, tokens),
    "fnet": ("FNet" + SEQUENCE, TEXT, tokens),
    "longformer": ("Longformer" + SEQUENCE, {**TEXT, "attention_window": 8}, tokens),
    "xlnet": (
        "XLNet" + SEQUENCE,
        {"d_model": 128, "n_layer": 3, "n_head": 4, "d_inner": 384, "vocab_size": VOCABULARY},
        tokens,
    ),
    "gpt2": (
        "GPT2" + SEQUENCE,
        {"n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY, "pad_token_id": 0},
        tokens,
    ),
    "bloom": ("Bloom" + SEQUENCE, {**TEXT, "n_layer": 3, "n_head": 4}, tokens),
    "llama": ("Llama" + SEQUENCE, DECODER, tokens),
    "qwen3": ("Qwen3" + SEQUENCE, DECODER, tokens),
    "qwen3-moe": (
        "Qwen3Moe" + SEQUENCE,
        {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 192},
        tokens,
    ),
    "gemma": ("Gemma" + SEQUENCE, DECODER, tokens),
    "bart": (
        "Bart" + SEQUENCE,
        {
            "d_model": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 384,
            "decoder_ffn_dim": 384,
            "vocab_size": VOCABULARY,
        },
        lambda: {"input_ids": torch.cat([tokens()["input_ids"], torch.full((N_SAMPLES, 1), 2)], 1)},
    ),
    "vit": ("ViT" + IMAGES, {**WIDE, "image_size": 32, "patch_size": 4}, image),
    "swin": (
        "Swin" + IMAGES,
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 48,
            "window_size": 4,
            "depths": [2, 2, 2],
            "num_heads": [3, 6, 12],
        },
        image,
    ),
    "convnext": ("ConvNext" + IMAGES, {**STAGES, "patch_size": 2}, image),
    "convnextv2": ("ConvNextV2" + IMAGES, {**STAGES, "patch_size": 2}, image),
    "resnet": ("ResNet" + IMAGES, {**STAGES, "layer_type": "basic", "embedding_size": 32}, image),
    "wav2vec2": ("Wav2Vec2" + SEQUENCE, {**WIDE, **CONV, "mask_time_prob": 0.0}, sound),
    "hubert": ("Hubert" + SEQUENCE, {**WIDE, **CONV, "mask_time_prob": 0.0}, sound),
}


class Classifier(nn.Module):
    """A model with a bias of its logits that makes it predict class 0."""

    def __init__(self, name: str) -> None:
        super().__init__()
        model, settings, _ = MODELS[name]
        config = getattr(transformers, model.removesuffix(SEQUENCE).removesuffix(IMAGES) + "Config")
        self.model = getattr(transformers, model)(config(num_labels=N_CLASSES, **settings))
        self.register_buffer("bias", torch.zeros(N_CLASSES).index_fill_(0, torch.tensor(0), 30.0))

    def forward(self, **inputs: Tensor) -> Tensor:
        return self.model(**inputs).logits + self.bias  # type: ignore[no-any-return]


def make(name: str, won: float) -> tuple[Classifier, dict[str, Tensor]]:
    torch.manual_seed(0)
    model = Classifier(name).train()
    target = torch.randint(1, N_CLASSES, (N_SAMPLES,))
    target[torch.randperm(N_SAMPLES)[: round(won * N_SAMPLES)]] = 0
    return model, {**MODELS[name][2](), "labels": target}


def step(skipper: Skipper, batch: dict[str, Tensor]) -> float:
    """The processor seconds of a step."""
    skipper.model.zero_grad()
    torch.manual_seed(1)

    def compute(part: dict[str, Tensor]) -> ForwardResult:
        logits = skipper.model(**{name: x for name, x in part.items() if name != "labels"})
        return ForwardResult(logits, part["labels"], LOSS.rows(logits, part["labels"]), len(logits))

    start = time.process_time()
    done = skipper.forward(compute, batch, lambda part, samples: {k: x[samples] for k, x in part.items()})
    skipper.backward(done, 1 / N_SAMPLES)
    return time.process_time() - start


def measure(name: str, won: float, n_steps: int) -> dict[str, Any]:
    model, batch = make(name, won)
    twin, _ = make(name, won)
    skippers = {"off": Skipper(twin, "off"), "auto": Skipper(model, "auto")}
    seconds: dict[str, list[float]] = {"off": [], "auto": []}
    for n in range(n_steps + 2):
        for form, skipper in skippers.items():
            spent = step(skipper, batch)
            if n > 1:
                seconds[form].append(spent)
    skippers["auto"].close()
    totals = {form: sum(sorted(times)[: int(0.9 * n_steps)]) for form, times in seconds.items()}
    costs, compaction = skippers["auto"].costs, skippers["auto"].compaction
    assert costs is not None
    assert compaction is not None
    return {
        "model": name,
        "won": won,
        "ms": round(1e3 * totals["off"] / int(0.9 * n_steps), 2),
        "ratio": round(totals["auto"] / totals["off"], 3),
        "last_form": costs.choose(),
        "in_full": dict(compaction.stats.in_full),
        "reasons": dict(compaction.stats.reasons),
    }


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=f'Time of skip="auto" over full steps (aim: at most {AIM}), and its last form')
    table.add_column("model")
    for won in SHARES:
        table.add_column(f"{won:.0%} won", justify="right")
    for name in dict.fromkeys(r["model"] for r in results):
        by_share = {r["won"]: r for r in results if r["model"] == name}
        cells = [f"{r['ratio']:.2f} {r['last_form']}" for r in (by_share[won] for won in SHARES)]
        table.add_row(name, *cells)
    console.print(table)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME")
    parser.add_argument("--steps", type=int, default=40, help="of each kind (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    console = Console()
    report = provenance(__file__, argv, args.threads)
    report["versions"]["transformers"] = transformers.__version__
    report["results"] = []
    for name in args.models:
        for won in SHARES:
            result = measure(name, won, args.steps)
            console.print(f"  {name}, {won:.0%} won: {result['ratio']:.2f}", style="dim")
            report["results"].append(result)
            report["worst"] = max(result["ratio"] for result in report["results"])
        write(report, args.out)
    show(report["results"], console)
    console.print(f"written to {args.out}")


if __name__ == "__main__":
    main(sys.argv[1:])
