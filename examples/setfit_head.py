"""SetFit with a differentiable head: the whole model is trained, and won texts have no backward pass.

    python examples/setfit_head.py

The model is small and random. With a network, use SentenceTransformer("all-MiniLM-L6-v2").
"""

import argparse

import torch
from sentence_transformers import SentenceTransformer
from setfit import SetFitHead, SetFitModel
from small_models import sentence_pairs, small_bert

from sparring import ASSoftmaxLoss, skip


class Head(SetFitHead):
    """SetFit asks its head for the loss function."""

    def get_loss_fn(self) -> torch.nn.Module:
        return ASSoftmaxLoss(delta=0.3, weight=torch.tensor([1.0, 2.0, 1.0]))  # class weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()

    torch.manual_seed(0)
    pairs = sentence_pairs()
    texts, labels = pairs["hypothesis"], pairs["label"]
    body = SentenceTransformer(small_bert("runs/setfit/base", texts), device="cpu")
    head = Head(body.get_embedding_dimension(), out_features=3, device="cpu")
    model = SetFitModel(body, head)
    compaction = skip.compact(body)
    model.fit(
        texts,
        labels,
        num_epochs=args.epochs,
        batch_size=16,
        body_learning_rate=1e-3,
        head_learning_rate=1e-2,
        end_to_end=True,
        show_progress_bar=False,
    )
    accuracy = (torch.as_tensor(model.predict(texts)) == torch.tensor(labels)).float().mean()
    print(f"accuracy on the training set {accuracy:.1%}")
    print(f"backward for {compaction.stats.n_samples_backward} of {compaction.stats.n_samples} samples")


if __name__ == "__main__":
    main()
