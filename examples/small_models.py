"""Small models with random weights, and texts to train them on: the examples need no network."""

import itertools
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
ANIMALS = ("cat", "dog", "bird", "fish", "horse", "cow")
COLOURS = ("red", "green", "blue", "white", "black", "grey")
FORMS = ("it is {}", "it is not {}", "it may become {}")  # yes, no, perhaps


def sentence_pairs() -> dict[str, list]:
    """Pairs of sentences. The label says whether the second one follows from the first."""
    rows = list(itertools.product(ANIMALS, COLOURS, range(3)))
    return {
        "premise": [f"the {animal} is {colour}" for animal, colour, _ in rows],
        "hypothesis": [FORMS[label].format(colour) for _, colour, label in rows],
        "label": [label for _, _, label in rows],
    }


def small_bert(folder: str | Path, texts: Iterable[str], num_labels: int | None = None) -> str:
    """Save a small BERT and a tokenizer for the words of the texts. Returns the folder, to be loaded from."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    words = sorted({word for text in texts for word in text.lower().split()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, *words]), encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    config = BertConfig(vocab_size=len(special) + len(words), num_labels=num_labels or 2, **SIZES)
    model = BertModel(config) if num_labels is None else BertForSequenceClassification(config)
    model.save_pretrained(folder)
    return str(folder)


def small_llama(folder: str | Path, texts: Iterable[str]) -> str:
    """Save a small causal language model and a tokenizer for the words of the texts. Returns the folder."""
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<unk>", "<eos>", *words])}
    words_only = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    words_only.pre_tokenizer = WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<eos>"}
    PreTrainedTokenizerFast(tokenizer_object=words_only, **special).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(vocabulary), eos_token_id=2, bos_token_id=None, pad_token_id=0, **SIZES
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)
