# %% [markdown]
# # Fine-tune with Hugging Face
#
# `SparringTrainer` is the Trainer with a few more arguments. This notebook classifies names by their
# language, with a small BERT from scratch, so that nothing is downloaded. For real work, replace the
# tokenizer and the model by `AutoTokenizer.from_pretrained(…)` and
# `AutoModelForSequenceClassification.from_pretrained(…)`.

# %%
import numpy as np
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

from sparring.integrations.hf import SparringTrainer

NAMES = {
    "English": ["the river", "a small house", "the old bridge", "one good friend", "the long winter"],
    "German": ["der Fluss", "ein kleines Haus", "die alte Brücke", "ein guter Freund", "der lange Winter"],
    "Spanish": ["el río", "una casa pequeña", "el viejo puente", "un buen amigo", "el largo invierno"],
}
languages = list(NAMES)


# %% [markdown]
# ## Samples
#
# A sample is a dict with `input_ids` and `labels`. Here a token is a character.


# %%
def encode(text):
    return [1, *(2 + ord(character) % 254 for character in text)]


samples = [
    {"input_ids": encode(text), "labels": languages.index(name)}
    for name, texts in NAMES.items()
    for text in texts
]
width = max(len(sample["input_ids"]) for sample in samples)
for sample in samples:
    padding = width - len(sample["input_ids"])
    sample["attention_mask"] = [1] * len(sample["input_ids"]) + [0] * padding
    sample["input_ids"] = sample["input_ids"] + [0] * padding

# %% [markdown]
# ## Train
#
# `loss`, `delta` and `speed` are the new arguments; everything else is the Trainer's. `speed="skip"`, the
# default, skips the backward pass of won samples and changes no weight. `speed="fast"` also lets them rest.

# %%
set_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=256, num_labels=3, **sizes))
arguments = TrainingArguments(
    "runs/notebook",
    num_train_epochs=30,
    learning_rate=3e-3,
    per_device_train_batch_size=8,
    logging_steps=20,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = SparringTrainer(
    model,
    arguments,
    train_dataset=samples,
    eval_dataset=samples,
    compute_metrics=lambda output: {
        "accuracy": float(np.mean(output.predictions.argmax(-1) == output.label_ids))
    },
    loss="as-softmax",
    delta=0.3,
)
trainer.train()
metrics = trainer.evaluate()
print(metrics)

# %% [markdown]
# The log has two figures more than usual: `won_share`, and how many samples had a forward and a backward
# pass.

# %%
history = [entry for entry in trainer.state.log_history if "won_share" in entry]
for entry in history:
    print(entry["step"], round(entry["won_share"], 2), entry["samples_forward"], entry["samples_backward"])

# %% [markdown]
# ## The loss alone
#
# In a Trainer that you cannot replace, use the loss alone:

# %%
from sparring.integrations.hf import loss_func  # noqa: E402

compute = loss_func("as-softmax", delta=0.3)  # Trainer(…, compute_loss_func=compute)

# %% [markdown]
# [All options](../docs/integrations.md), with tokens, multi-label targets, several processes and checkpoints.
