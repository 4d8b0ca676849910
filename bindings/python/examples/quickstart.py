# %% [markdown]
# # Verified sensor data in a data frame
#
# Two sensors have sealed six hours of readings, which an untrusted cloud stores. We ask the cloud
# for an eighth of the readings, and use only readings that the client has verified. Run this file
# cell by cell, or as a script. It needs the packages `moteseal`, `polars` and `pyarrow`.

# %%
import tempfile
from pathlib import Path

import polars
import pyarrow

import moteseal
from home import Home, dishonest_cloud, warmer

folder = tempfile.TemporaryDirectory(prefix="moteseal-quickstart-")
home = Home(Path(folder.name))
running = home.cloud()
url = running.__enter__()
print("a real cloud at", url)

# %% [markdown]
# The client needs to know one thing beforehand: the public key of the operator. The
# operator signs the roster, which is the list of the group's devices.

# %%
client = moteseal.Client(url, roster=home.roster, operator=home.operator, pinned_seals=home.folder / "pinned.json")
print(client.roster)

# %% [markdown]
# Get an eighth of all readings. The devices' seals determine which readings these
# are; the cloud cannot choose them.

# %%
answer = client.get(["dev1", "dev2"], since="2010-05-09", rate="1/8", proof=home.folder / "eighth.mproof")
for device in answer.report.devices:
    print(f"{device.name}: {device.rows} of {device.events} readings, {device.standing}")

# %% [markdown]
# A data frame imports the answer without copying it. All rows are verified.

# %%
frame = polars.DataFrame(answer)
print(frame.group_by("device").agg(polars.len(), polars.col("temperature").mean()).sort("device"))
table = pyarrow.table(answer)
print(table.schema.field("temperature"), table.schema.field("temperature").metadata)

# %% [markdown]
# Estimate the mean of *all* readings from this eighth, with a confidence interval,
# and compare it with the true mean.

# %%
estimates = client.estimate("temperature", rate="1/8")
mean = estimates.mean()
print(f"mean temperature {mean.value:.3f} ± {mean.half_width:.3f} °C, from {mean.sampled} of {mean.population} readings")
truth = client.estimate("temperature", rate=1).mean()
print(f"true mean        {truth.value:.3f} ± {truth.half_width:.3f} °C")
warm = client.estimate("temperature>=28", rate="1/8").proportion()
print(f"at least 28 °C   {warm.value:.1%} of the time (95 %: {warm.low:.1%} to {warm.high:.1%})")

# %% [markdown]
# Now the cloud makes one reading one degree warmer. The client returns no rows. It
# raises an exception that names the failed check, the device and the epoch.

# %%
refused: moteseal.Refused | None = None
with dishonest_cloud(url, warmer) as dishonest:
    try:
        moteseal.Client(dishonest, roster=client.roster, pinned_seals=False).get("dev1", rate=1)
    except moteseal.Refused as error:
        refused = error
assert refused is not None, "the altered reading was not detected"
print(f"{type(refused).__name__}: {refused}")

# %% [markdown]
# Now the cloud withholds data: it serves everything except the newest hour of `dev1`.
# The client has pinned the seal of that hour and therefore detects that it is missing.

# %%
withheld: moteseal.Missing | None = None
with home.cloud(without=["dev1-0000000006.mseal"]) as withholding:
    try:
        moteseal.Client(withholding, roster=client.roster, pinned_seals=home.folder / "pinned.json").get("dev1", rate="1/8")
    except moteseal.Missing as error:
        withheld = error
assert withheld is not None, "the withheld hour was not detected"
print(f"Missing: seal {withheld.index} of {withheld.device}: {withheld}")

# %% [markdown]
# The saved proof can be verified offline, anywhere and at any time, and gives the
# same rows.

# %%
running.__exit__(None, None, None)
again = moteseal.verify_proof(home.folder / "eighth.mproof", client.roster, pinned_seals=False)
assert polars.DataFrame(again).equals(frame)
print(again)
folder.cleanup()
