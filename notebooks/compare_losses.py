# %% [markdown]
# # Compare losses honestly
#
# One run against another says little: another seed may turn the result around. `sparring.lab.compare` trains
# every loss with the same seeds on the same splits, and says whether a difference can be told from chance.
#
# The data are names of countries in four languages: which language is it?

# %%
import gettext

import pandas as pd
import pycountry

from sparring import lab

LANGUAGES = {"German": "de", "Polish": "pl", "Spanish": "es", "Turkish": "tr"}
rows = []
for language, code in LANGUAGES.items():
    translate = gettext.translation("iso3166-1", pycountry.LOCALES_DIR, languages=[code]).gettext
    rows += [{"text": translate(country.name), "label": language} for country in pycountry.countries]
data = pd.DataFrame(rows).drop_duplicates("text")
data.sample(5, random_state=0)

# %% [markdown]
# Your own data: any DataFrame with a column of texts and one of labels. Columns are found by their names and
# contents; dev and test are split off, always the same rows.

# %%
result = lab.compare(data, losses=["softmax", "as-softmax"], seeds=2, epochs=4)
result

# %% [markdown]
# The verdict in words, and all figures as a DataFrame for your own calculations:

# %%
print(result.verdict)
frame = result.frame
frame

# %% [markdown]
# `result.plot()` draws the comparison, `result.report("report.html")` writes everything on one page that
# needs no network, and `result.predict` labels new texts with the best model:

# %%
predictions = result.predict(list(data.text[:2]))
predictions

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
