"""The results of queries over many devices, from the totals of their slots (queries.md, section 5)."""

import itertools
import math
from fractions import Fraction

from .encoding import Refused
from .noise import within
from .plans import AVG, COUNT, HISTOGRAM, QUANTILE, SUM, VARIANCE, places_of, places_shown, shown


class Group:
    """The totals of a group: the values of its slots and fields."""

    def __init__(self):
        self.count, self.outside, self.has_sums = 0, 0, False
        self.readings, self.sums, self.squares, self.steps, self.bins = None, {}, {}, {}, {}


def groups_of(plan, totals, participants):
    """Sections 5.1 and 5.2: the totals of each group."""
    slots = plan.slots()
    if len(totals) != len(slots):
        raise Refused("WrongSlotCount")
    groups = [Group() for _ in range(len(plan.groups[1]) if plan.groups else 1)]
    too_high = False
    for slot, total in zip(slots, totals):
        if slot.kind == "counters":
            too_high |= total > participants * slot.vmax
            for place, field in enumerate(slot.fields):
                value = (total >> place * plan.counter_bits) % (1 << plan.counter_bits)
                too_high |= value > participants * plan.highest(field)
                value -= participants * plan.bound(field.scale) if plan.epsilon else 0
                group = groups[field.group]
                if field.kind == "readings":
                    group.readings = value
                elif field.kind == "steps":
                    group.steps[field.column] = value
                else:
                    group.bins.setdefault(field.column, []).append(value)
            continue
        group, value = groups[slot.group], total
        if slot.first:
            group.has_sums = True
            value, group.count, group.outside = total % 2**56, (total >> 56) % 2**20, total >> 76
        too_high |= value > participants * slot.vmax
        if slot.kind == "sum":
            group.sums[slot.column] = value + participants * slot.shift
        elif slot.kind == "squares":
            group.squares[slot.column] = value
    for group in groups:
        if not group.has_sums:
            group.count = group.readings if group.readings is not None else sum(group.bins[plan.binned[0]])
        # With noise, the count may be above the number of participants.
        too_high |= not plan.epsilon and group.count + group.outside > participants
    if too_high:
        raise Refused("SumOutOfRange")
    if not plan.epsilon and not all_possible(plan, groups, participants):
        raise Refused("Inconsistent")
    return groups


def all_possible(plan, groups, participants):
    """Section 5.2, step 3: whether readings can have these totals."""
    possible = sum(group.count + group.outside for group in groups) <= participants
    for group in groups:
        count = group.count
        for at, total in group.sums.items():
            low, high = plan.columns[at][2:]
            possible = possible and count * low <= total <= count * high
            if at in group.squares:
                square = group.squares[at]
                possible = possible and square <= count * max(low**2, high**2) and total**2 <= count * square
        possible = possible and all(sum(bins) == count for bins in group.bins.values())
    return possible


def rounded(fraction, digits):
    return shown(round(fraction * 10**digits), digits)


def rounded_root(square):
    """The root of a fraction, to the nearest integer, half to even."""
    down = math.isqrt(math.floor(square))
    middle = (down + Fraction(1, 2)) ** 2
    return down + (square > middle or (square == middle and down % 2))


def first_bin(bins, rank):
    """The first bin up to whose end at least `rank` readings are, or the last bin."""
    up_to = itertools.accumulate(bins)
    return next((number for number, readings in enumerate(up_to) if readings >= rank), len(bins) - 1)


def bounds(plan, at, first, last):
    """Section 5.3, rule 4: the lower bound of the first bin and the upper bound of the last one."""
    divisor, low, high = plan.columns[at][1:]
    places, summed = places_shown(divisor), at in plan.summed
    least = None if first == 0 and not summed else shown(plan.bin_start(at, first) * 10**places // divisor, places)
    if last == plan.bin_count(at) - 1 and not summed:
        return {"low": least, "high": None}
    end = plan.bin_start(at, last + 1) - 1
    return {"low": least, "high": shown(-(-end * 10**places // divisor), places)}


def exact(plan, group, aggregate, at, rank=None):
    """Section 5.3: the result of an item. None if there is none."""
    count = group.count
    if aggregate == COUNT:
        return str(count)
    if aggregate == HISTOGRAM:
        return {"counts": group.bins[at], "within": 0}
    if aggregate == QUANTILE:
        found = first_bin(group.bins[at], max(1, -(-rank * count // 10000))) if count else None
        return None if found is None else bounds(plan, at, found, found)
    divisor = plan.columns[at][1]
    p = places_of(divisor)
    digits = 9 if p is None else [p, 0, p + 4, 2 * p + 4, p + 4][aggregate]
    if aggregate == SUM:
        return rounded(Fraction(group.sums[at], divisor), digits)
    if count == 0:
        return None
    if aggregate == AVG:
        return rounded(Fraction(group.sums[at], count * divisor), digits)
    variance = Fraction(count * group.squares[at] - group.sums[at] ** 2, (count * divisor) ** 2)
    if aggregate == VARIANCE:
        return rounded(variance, digits)
    return shown(rounded_root(variance * 10 ** (2 * digits)), digits)


def noisy(plan, group, participants, ring, aggregate, at, rank=None):
    """Section 5.4: the result of an item with noise. None if there is none."""
    count, one = group.count, within(plan, 1, participants, ring)
    if aggregate == COUNT:
        # Without a field of the readings, the number is the sum of the bins of the first binned column.
        distance = one if group.readings is not None else math.isqrt(one**2 * plan.bin_count(plan.binned[0]))
        return {"value": str(count), "within": str(distance)}
    if aggregate == HISTOGRAM:
        return {"counts": group.bins[at], "within": one}
    if aggregate == QUANTILE:
        bins = group.bins[at]
        total, error = sum(bins), math.isqrt(one**2 * plan.bin_count(at))
        if total <= error:
            return None
        middle = max(1, -(-rank * total // 10000))
        return bounds(plan, at, first_bin(bins, max(1, middle - error)), first_bin(bins, middle + error))
    divisor, low, high = plan.columns[at][1:]
    span, p = high - low, places_of(divisor)
    digits = 9 if p is None or p > 10 else p
    steps, steps_within = group.steps[at], within(plan, 32, participants, ring)
    total = Fraction(steps * span, 32) + count * low
    if aggregate == SUM:
        distance = (Fraction(steps_within * span, 32) + abs(low) * one) / divisor
        return {"value": rounded(total / divisor, digits), "within": rounded(distance, digits)}
    if count <= one:
        return None
    digits += 4
    distance = Fraction(steps_within * span + abs(steps * span) // count * one, 32 * count * divisor)
    return {"value": rounded(total / (count * divisor), digits), "within": rounded(distance, digits)}


def answer(plan, totals, participants, ring):
    """The results of each group. `ring` is the number of sources in a key group."""
    shown_groups = []
    for number, group in enumerate(groups_of(plan, totals, participants)):
        of = (plan, group, participants, ring) if plan.epsilon else (plan, group)
        results = [(noisy if plan.epsilon else exact)(*of, *item) for item in plan.items]
        name = plan.value_text(plan.groups[0], plan.groups[1][number]) if plan.groups else None
        shown_groups.append({"name": name, "count": group.count, "outside": group.outside, "results": results})
    return shown_groups
