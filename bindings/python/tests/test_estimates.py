"""Checks that estimates equal the output of `moteseal estimate`, and that an unknown value is never
reported as zero."""

from __future__ import annotations

import json
from typing import Any

import pyarrow
import pyarrow.compute
import pytest
from home import Home, run

import moteseal


def by_the_command(url: str, home: Home, *arguments: str) -> Any:
    """Returns the output of `moteseal estimate --json`, with which the tests compare Python's
    estimates."""
    return json.loads(run("estimate", *arguments, "--from", url, *home.trust_options, "--no-pinned-seals", "--json"))


def same(found: moteseal.Interval, line: dict[str, float]) -> None:
    assert (found.value, found.low, found.high) == (line["value"], line["low_95"], line["high_95"])


@pytest.mark.parametrize("choice", [{"rate": "1/8"}, {"at_most": 100}, {}])
def test_estimates_equal_those_of_the_command_line(client: moteseal.Client, cloud: str, home: Home, choice: dict[str, Any]) -> None:
    options = [part for name, value in choice.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    field = client.estimate("temperature", **choice)
    for what in ("mean", "sum", "count"):
        output = by_the_command(cloud, home, what, "temperature", *options)
        same(getattr(field, what)(), output["group"]["estimates"][0])
        assert (field.sampled, field.population, field.rate) == (output["group"]["sampled"], output["group"]["population"], output["rate"])
    output = by_the_command(cloud, home, "quantile", "temperature", "--at", "0.05,0.5,0.95", *options)
    for found, line in zip(field.quantiles([0.05, 0.5, 0.95]), output["group"]["estimates"], strict=True):
        same(found, line)
    same(field.quantile(), output["group"]["estimates"][1])
    output = by_the_command(cloud, home, "histogram", "temperature", "--bins", "5", *options)
    for bin, line in zip(field.histogram(5), output["group"]["estimates"], strict=True):
        assert [bin.low, bin.high] == line["bin"]
        same(bin.events, line)
    condition = client.estimate("temperature>=28", **choice)
    for what in ("count", "proportion"):
        same(getattr(condition, what)(), by_the_command(cloud, home, what, "temperature>=28", *options)["group"]["estimates"][0])


def test_a_seed_repeats_the_resampling(client: moteseal.Client, cloud: str, home: Home) -> None:
    seed = "11" * 32
    options = ["--rate", "1/8", "--bootstrap", "200", "--seed", seed]
    field = client.estimate("temperature", rate="1/8")
    same(field.mean(bootstrap=200, seed=seed), by_the_command(cloud, home, "mean", "temperature", *options)["group"]["estimates"][0])
    same(field.quantile(bootstrap=200, seed=bytes.fromhex(seed)), by_the_command(cloud, home, "quantile", "temperature", *options)["group"]["estimates"][0])
    share = client.estimate("temperature>=28", rate="1/8").proportion(bootstrap=200, seed=seed)
    same(share, by_the_command(cloud, home, "proportion", "temperature>=28", *options)["group"]["estimates"][0])
    assert field.sum(bootstrap=200).low != field.sum(bootstrap=200).low


def test_a_sample_of_everything_is_exact(client: moteseal.Client) -> None:
    column = pyarrow.table(client.get(rate=1))["temperature"]
    mean = client.estimate("temperature", rate=1).mean()
    assert mean.half_width == 0 and mean.value == pytest.approx(pyarrow.compute.mean(column).as_py())
    assert mean.value in mean and float(mean) == mean.value and mean.sampled == mean.population == len(column)
    count = client.estimate("temperature>=28", rate=1).count()
    assert count.low == count.value == count.high == pyarrow.compute.sum(pyarrow.compute.greater_equal(column, 28)).as_py()


def test_intervals_contain_the_true_value(client: moteseal.Client) -> None:
    """Each run has new keys and therefore draws a different sample: the true value is outside the
    95 % interval in one of twenty runs. The test therefore allows three times the interval's
    width."""
    truth = client.estimate("humidity", rate=1).mean().value
    for rate in ("1/2", "1/4", "1/8"):
        found = client.estimate("humidity", rate=rate).mean()
        assert found.half_width is not None and 0 < abs(found.value - truth) < 3 * found.half_width, rate


def test_each_device_has_its_own_estimates(client: moteseal.Client) -> None:
    both = client.estimate("temperature", rate="1/8", each=True)
    assert sorted(both.devices) == ["dev1", "dev2"] and both.unsampled == []
    for name, own in both.devices.items():
        alone = client.estimate("temperature", name, rate="1/8").mean()
        assert (own.mean().value, own.mean().low, own.population) == (alone.value, alone.low, alone.population)
    with pytest.raises(TypeError, match="each=True"):
        client.estimate("temperature", rate="1/8").devices


def test_too_small_a_sample_has_no_estimate(client: moteseal.Client) -> None:
    # With at most one reading per epoch, the variance is unknown.
    thin = client.estimate("temperature", "dev1", at_most=1)
    with pytest.raises(moteseal.NoSample) as caught:
        thin.mean()
    assert isinstance(caught.value, moteseal.Incomplete) and "of 4417" in str(caught.value)
    # The number of readings is exact, because the devices have signed it.
    assert thin.count().value == 4417


def test_invalid_estimates_raise(client: moteseal.Client) -> None:
    field = client.estimate("temperature", rate="1/8")
    condition = client.estimate("temperature<20", rate="1/8")
    for call, kind, text in (
        (lambda: field.proportion(), TypeError, "needs a condition"),
        (lambda: condition.mean(), TypeError, "needs a field"),
        (lambda: field.quantile(1.5), ValueError, "between 0 and 1"),
        (lambda: field.quantile(float("nan")), ValueError, "between 0 and 1"),
        (lambda: field.mean(bootstrap=5), ValueError, "bootstrap"),
        (lambda: field.mean(seed="00" * 32), ValueError, "seed"),
        (lambda: field.histogram(0), ValueError, "bins"),
        (lambda: field.histogram(edges=[3, 2]), ValueError, "edges"),
        (lambda: client.estimate("pressure", rate="1/8"), moteseal.UsageError, "no field pressure"),
        (lambda: client.estimate("temperature>", rate="1/8"), ValueError, "neither a field nor a condition"),
        (lambda: client.estimate("", rate="1/8"), ValueError, "neither a field nor a condition"),
    ):
        with pytest.raises(kind) as caught:
            call()
        assert text in str(caught.value), text
