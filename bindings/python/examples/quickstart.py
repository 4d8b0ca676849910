# %% [markdown]
# # Verified sensor data in a data frame
#
# Two sensors have sealed six hours of readings. A cloud that nobody trusts keeps them. We ask it for an eighth of everything, and
# believe nothing that we have not verified. Run it cell by cell, or as a script; it needs `moteseal` built, `polars` and `pyarrow`.

# %%
import tempfile
from pathlib import Path

import polars
import pyarrow

import moteseal
from home import Home, liar, warmer

folder = tempfile.TemporaryDirectory(prefix="moteseal-quickstart-")
home = Home(Path(folder.name))
running = home.cloud()
url = running.__enter__()
print("a real cloud at", url)

# %% [markdown]
# A client knows one thing beforehand: the operator's public key, by whose word the roster says who belongs to the group.

# %%
client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=home.folder / "seen.json")
print(client.roster)

# %% [markdown]
# An eighth of everything. The readings are the ones that the devices' seals *forced* the cloud to choose: it had no say.

# %%
answer = client.get(["dev1", "dev2"], since="2010-05-09", rate="1/8", proof=home.folder / "eighth.mproof")
for device in answer.report.devices:
    print(f"{device.name}: {device.rows} of {device.events} readings, {device.standing}")

# %% [markdown]
# Any data frame takes it as it is: nothing is copied, and nothing in it is unverified.

# %%
frame = polars.DataFrame(answer)
print(frame.group_by("device").agg(polars.len(), polars.col("temperature").mean()).sort("device"))
table = pyarrow.table(answer)
print(table.schema.field("temperature"), table.schema.field("temperature").metadata)

# %% [markdown]
# What does the eighth say of *all* readings? An estimate with an honest error bar; and, since these readings are all there, the truth.

# %%
estimates = client.estimate("temperature", rate="1/8")
mean = estimates.mean()
print(f"mean temperature {mean.value:.3f} ± {mean.half_width:.3f} °C, from {mean.sampled} of {mean.population} readings")
truth = client.estimate("temperature", rate=1).mean()
print(f"of all of them   {truth.value:.3f} ± {truth.half_width:.3f} °C")
warm = client.estimate("temperature>=28", rate="1/8").proportion()
print(f"at least 28 °C   {warm.value:.1%} of the time (95 %: {warm.low:.1%} to {warm.high:.1%})")

# %% [markdown]
# Now the cloud lies: it makes one reading a degree warmer. There are no rows then, and an exception says what was wrong, and where.

# %%
refused: moteseal.Refused | None = None
with liar(url, warmer) as lying:
    try:
        moteseal.Client(lying, roster=client.roster, pinned_seals=False).get("dev1", rate=1)
    except moteseal.Refused as error:
        refused = error
assert refused is not None, "a lie was not caught"
print(f"{type(refused).__name__}: {refused}")

# %% [markdown]
# And it forgets: another cloud has everything but the newest hour of `dev1`. We have seen that hour, so we notice.

# %%
withheld: moteseal.Missing | None = None
with home.cloud(without=["dev1-0000000006.mseal"]) as forgetful:
    try:
        moteseal.Client(forgetful, roster=client.roster, pinned_seals=home.folder / "seen.json").get("dev1", rate="1/8")
    except moteseal.Missing as error:
        withheld = error
assert withheld is not None, "a withheld hour was not noticed"
print(f"Missing: seal {withheld.index} of {withheld.device}: {withheld}")

# %% [markdown]
# The proof that we kept verifies offline, later, elsewhere, and gives the same rows.

# %%
running.__exit__(None, None, None)
again = moteseal.verify_proof(home.folder / "eighth.mproof", client.roster, pinned_seals=False)
assert polars.DataFrame(again).equals(frame)
print(again)
folder.cleanup()
