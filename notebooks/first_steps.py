# %% [markdown]
# # Your first classifier
#
# Five minutes, no download: handwritten digits, a small network, first with softmax and then with AS-Softmax.

# %%
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sparring

digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
train_data, test_x, test_y = TensorDataset(x[:1400], y[:1400]), x[1400:], y[1400:]

# %% [markdown]
# ## Train with any loss
#
# AS-Softmax is called like `nn.CrossEntropyLoss`, so one function trains with both.


# %%
def fit(loss_fn, epochs=6):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for inputs, target in DataLoader(train_data, batch_size=32, shuffle=True):
            loss_fn(model(inputs), target).backward()
            optimizer.step()
            optimizer.zero_grad()
    accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
    return model, accuracy


_, softmax_accuracy = fit(nn.CrossEntropyLoss())
model, accuracy = fit(sparring.ASSoftmaxLoss(delta=0.3))
print(f"softmax {softmax_accuracy:.1%}, AS-Softmax {accuracy:.1%}")

# %% [markdown]
# With 397 test samples, differences of two or three points mean nothing. Use several seeds before you believe
# one: [compare losses honestly](compare_losses.py).
#
# ## Look at the samples
#
# `loss.rows` returns one entry for each sample. A sample is *won* if the target leads every other class by
# more than δ: its loss and its gradient are exactly 0.

# %%
rows = sparring.ASSoftmaxLoss(delta=0.3).rows(model(x[:1400]), y[:1400])
margins = sparring.margins(model(x[:1400]), y[:1400])
hardest = margins.argsort()[:5]
print(f"{rows.won_share():.0%} of the training samples are won")
print("hardest samples:", hardest.tolist(), "with margins", [round(m, 2) for m in margins[hardest].tolist()])

# %% [markdown]
# ## Do not pay for won samples
#
# A gradient of zero need not be computed. `skip.compact` changes the backward pass of a model: it runs on the
# samples that are not won. The weights stay the same, to rounding. The training loop of the library does it
# by default (`speed="skip"`).

# %%
from sparring.training.loop import train  # noqa: E402

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
record = train(model, "as-softmax", train_data, epochs=6, lr=2e-3, progress=False)
share = record.totals["n_backward"] / record.totals["n_forward"]
print(f"backward passes for {share:.0%} of the samples")

# %% [markdown]
# `speed="fast"` goes further: samples that are won rest for up to two epochs, and the last quarter of
# training is plain softmax on every sample. It says what it does:

# %%
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
record = train(model, "as-softmax", train_data, epochs=6, lr=2e-3, speed="fast", progress=False)
for note in record.notes:
    print(note)
print(f"forward passes: {record.totals['n_forward']} of {6 * 1400}")

# %% [markdown]
# Next: [your own training loop](../docs/tutorials/own_loop.md), or [how AS-Softmax
# works](../docs/explanation/as_softmax.md).
