# %% [markdown]
# # Compare losses honestly
#
# One run against another says little: another seed may turn the result around. `sparring.lab.compare` trains
# every loss with the same seeds on the same splits, and says whether a difference can be told from chance.

# %%
import pandas as pd
from sklearn.datasets import load_digits

from sparring import lab

digits = load_digits()
shades = " .:-=+*#%@"
texts = ["".join(shades[min(int(value), 15) * 10 // 16] for value in image) for image in digits.data[:600]]
data = pd.DataFrame({"text": texts, "label": [f"digit {label}" for label in digits.target[:600]]})
data.head()

# %% [markdown]
# Your own data: any DataFrame with a column of texts and one of labels. Columns are found by their names and
# contents; dev and test are split off, always the same rows.

# %%
result = lab.compare(data, losses=["softmax", "as-softmax"], seeds=2, epochs=2)
result

# %% [markdown]
# The table as a DataFrame, for your own calculations; and the report, one HTML file that needs no network:

# %%
table = result.table
table

# %% [markdown]
# ## What to look at
#
# - **The verdict, not the order.** With two seeds only large differences show. The verdict says how large.
# - **Tune both.** A learning rate that suits one loss may not suit the other. Choose it on dev, for each:
#   `sparring tune data.csv --loss softmax --values lr=0.001,0.002,0.004`.
# - **Test once.** What you choose, choose on dev. The test set is for the last comparison.
# - **Time.** Runs side by side disturb each other. For times, use `jobs=1` on a quiet machine.
# - **Equal cost.** A method that saves time competes with softmax trained for less time: `budget=4` gives
#   every loss what four epochs of softmax cost.
