"""Plans of queries over many devices: their encoding, checks and text (queries.md, section 3)."""

import re
import unicodedata
from dataclasses import dataclass

import cbor2

from .encoding import array, decode, optional, out_of_range, sint, text, uint, version_one, wrong_type


AGGREGATES = ["SUM", "COUNT", "AVG", "VARIANCE", "STDDEV", "HISTOGRAM", "QUANTILE"]
SUM, COUNT, AVG, VARIANCE, STDDEV, HISTOGRAM, QUANTILE = range(7)
# The quantiles with a word of their own, by rank.
RANKS = {0: "MIN", 5000: "MEDIAN", 10000: "MAX"}
RESERVED = {"SELECT", "FROM", "WHERE", "EPOCH", "DURATION", "AND", "OR", "NOT", "BETWEEN"}
UNITS_OF_TIME = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1000, "MS": 1}
EMPTY = (1, 0)
MAX_SLOTS = 17
MAX_EPSILON = 4000
MAX_BOUND = 65_536


def upper(text):
    """The text in upper case, if it is ASCII. The words of the language are."""
    return text.upper() if text.isascii() else text


def places_of(divisor):
    """The least number of places at which `1 / divisor` is exact, or None."""
    return next((places for places in range(33) if 10**places % divisor == 0), None)


def places_shown(divisor):
    """The decimal places of numbers in the text of a plan."""
    exact = places_of(divisor)
    return 10 if exact is None else min(exact, 10)


def shown(digits, places):
    text = str(abs(digits)).rjust(places + 1, "0")
    return ("-" if digits < 0 else "") + (f"{text[:-places]}.{text[-places:]}" if places else text)


@dataclass
class Plan:
    items: list
    columns: list
    steps: list
    groups: list | None
    bins: int
    counter_bits: int
    epsilon: int
    epoch_ms: int

    def encode(self):
        items = [list(item) for item in self.items]
        numbers = self.bins, self.counter_bits, self.epsilon, self.epoch_ms
        return cbor2.dumps([1, items, self.columns, self.steps, self.groups, *numbers])

    def with_item(self, *aggregates):
        """The places of the columns with an item of one of these aggregates, ascending."""
        return sorted({item[1] for item in self.items if item[0] in aggregates})

    @property
    def summed(self):
        return self.with_item(SUM, AVG, VARIANCE, STDDEV)

    @property
    def binned(self):
        return self.with_item(HISTOGRAM, QUANTILE)

    @property
    def has_fields(self):
        return bool(self.epsilon or self.binned or not self.summed)

    @property
    def counts_readings(self):
        """Whether each group has a field for the number of its readings (section 4.2, rule 1)."""
        if self.epsilon:
            return bool(self.summed or not self.binned)
        return not self.summed and not self.binned

    @property
    def parts(self):
        """The number of fields that one reading changes (sums.md, section 2.4, rule 3)."""
        of_group = self.counts_readings + len(self.summed)
        return (2 if self.groups else 1) * of_group + 2 * len(self.binned)

    def bound(self, scale):
        """The bound of the noise of a field whose highest change is `scale` (sums.md, section 2.4, rule 4)."""
        return -(-40 * 1000 * self.parts * scale // self.epsilon)

    @property
    def has_noisy_form(self):
        """Whether every item has a form with noise."""
        return not any(item[0] in (VARIANCE, STDDEV) or item[2:] in ((0,), (10000,)) for item in self.items)

    def tree(self):
        """The predicate as a tree, or None: ("AND", operands), ("OR", operands), ("NOT", [operand]), (column, low, high)."""
        waiting = []
        for step in self.steps:
            if type(step) is list:
                waiting.append(tuple(step))
            elif step == 0:
                waiting.append(("NOT", [waiting.pop()]))
            else:
                operands = waiting[-abs(step) :]
                del waiting[-abs(step) :]
                waiting.append(("AND" if step > 0 else "OR", operands))
        return waiting[0] if waiting else None

    # ------------------------------------------------------------ section 3.4: the text

    def name(self, at):
        name = self.columns[at][0]
        plain = re.fullmatch(r"[^\W\d]\w*", name) and unicodedata.category(name[0]) != "No" and upper(name) not in RESERVED
        return name if plain else '"' + name.replace('"', '""') + '"'

    def value_text(self, column, value):
        """A value of GROUP BY, which is exact."""
        divisor = self.columns[column][1]
        places = places_of(divisor)
        return shown(value * 10**places // divisor, places)

    def item_text(self, aggregate, column, rank=None):
        if column is None:
            return f"{AGGREGATES[aggregate]}(*)"
        if rank is None:
            return f"{AGGREGATES[aggregate]}({self.name(column)})"
        if rank in RANKS:
            return f"{RANKS[rank]}({self.name(column)})"
        return f"QUANTILE({self.name(column)}, {shown(rank, 4)})"

    def comparison_text(self, column, low, high):
        name, divisor = self.name(column), self.columns[column][1]
        places = places_shown(divisor)
        if (low, high) == EMPTY:
            return f"{name} BETWEEN 1 AND 0"
        least = None if low is None else shown(low * 10**places // divisor, places)
        most = None if high is None else shown(-(-high * 10**places // divisor), places)
        if high is None:
            return f"{name} >= {least}"
        if low is None:
            return f"{name} <= {most}"
        if low == high and places_of(divisor) == places:
            return f"{name} = {least}"
        return f"{name} BETWEEN {least} AND {most}"

    def predicate_text(self, tree, within=None):
        if type(tree[0]) is int:
            return self.comparison_text(*tree)
        operands = [self.predicate_text(operand, tree[0]) for operand in tree[1]]
        text = f"NOT {operands[0]}" if tree[0] == "NOT" else f" {tree[0]} ".join(operands)
        loose = (tree[0] == "OR" and within == "AND") or (tree[0] != "NOT" and within == "NOT")
        return f"({text})" if loose else text

    @property
    def text(self):
        clauses = [f"SELECT {', '.join(self.item_text(*item) for item in self.items)} FROM sensors"]
        if self.steps:
            clauses.append(f"WHERE {self.predicate_text(self.tree())}")
        if self.groups:
            column, values = self.groups
            clauses.append(f"GROUP BY {self.name(column)} ({', '.join(self.value_text(column, value) for value in values)})")
        if self.bins not in (0, 8):
            clauses.append(f"BINS {self.bins}")
        if self.epsilon:
            clauses.append(f"EPSILON {shown(self.epsilon, 3)}")
        unit = next(unit for unit, ms in UNITS_OF_TIME.items() if self.epoch_ms % ms == 0)
        clauses.append(f"EPOCH DURATION {self.epoch_ms // UNITS_OF_TIME[unit]}{unit.lower()}")
        return " ".join(clauses)

    # ------------------------------------------------------------ section 4: slots

    def bin_count(self, at):
        """The number of bins of a column."""
        low, high = self.columns[at][2:]
        return min(self.bins, high - low + 1)

    def bin_of(self, at, numerator):
        low, high = self.columns[at][2:]
        clamped = min(max(numerator, low), high)
        return (clamped - low) * self.bin_count(at) // (high - low + 1)

    def bin_start(self, at, number):
        """The numerator at which a bin begins."""
        low, high = self.columns[at][2:]
        return low - (-number * (high - low + 1) // self.bin_count(at))

    def fields(self):
        """The fields of section 4.2, in their order."""
        fields = []
        for group in range(len(self.groups[1]) if self.groups else 1):
            if self.counts_readings:
                fields.append(Field("readings", group))
            if self.epsilon:
                fields.extend(Field("steps", group, at) for at in self.summed)
            for at in self.binned:
                fields.extend(Field("bin", group, at, number) for number in range(self.bin_count(at)))
        return fields if self.has_fields else []

    def highest(self, field):
        """The highest number that a source contributes to a field."""
        return field.scale + 2 * self.bound(field.scale) if self.epsilon else field.scale

    def slots(self):
        """The slots of section 4, in their order: those of the sums, then those of the fields."""
        slots = []
        for group in range(len(self.groups[1]) if self.groups else 1) if not self.epsilon else ():
            sums = []
            for at in self.summed:
                low, high = self.columns[at][2:]
                shift = min(0, low)
                sums.append(Slot("sum", at, max(0, high) - shift, shift, group=group))
                if any((aggregate, at) in self.items for aggregate in (VARIANCE, STDDEV)):
                    sums.append(Slot("squares", at, max(low**2, high**2), 0, group=group))
            if sums and sums[0].vmax >= 1 << 36:
                sums.insert(0, Slot("counts", None, 0, 0, group=group))
            if sums:
                sums[0].first = True
            slots.extend(sums)
        fields = self.fields()
        per_slot = 96 // self.counter_bits if fields else 1
        for start in range(0, len(fields), per_slot):
            held = fields[start : start + per_slot]
            vmax = sum(self.highest(field) << place * self.counter_bits for place, field in enumerate(held))
            slots.append(Slot("counters", None, vmax, 0, fields=held))
        return slots

    def fits(self, sources):
        """Section 4.4."""
        slots = self.slots()
        if sources >= 1 << 20 or len(slots) > MAX_SLOTS or (self.has_fields and sources >= 1 << self.counter_bits):
            return False
        return all(sources * (slot.most + 1) < 1 << 96 for slot in slots)


@dataclass
class Field:
    """A field: the number of `readings` of a group, the sum of `steps` of a column, or the number of readings in a `bin`."""

    kind: str
    group: int
    column: int | None = None
    bin: int | None = None

    @property
    def scale(self):
        """The most by which one reading changes the field."""
        return 32 if self.kind == "steps" else 1


@dataclass
class Slot:
    """A slot of sums (`counts`, `sum` or `squares`, of a group) or of fields (`counters`)."""

    kind: str
    column: int | None
    vmax: int
    shift: int
    group: int | None = None
    first: bool = False
    fields: list | None = None

    @property
    def most(self):
        return self.vmax + (1 << 76 if self.first else 0)


# ---------------------------------------------------------------- section 3.2: the checks of a plan


def plan_decode(data, any_slots=False):
    """Decodes a plan. `any_slots` permits more slots than 17: the plan of a text for which no counter bits are chosen yet."""
    version, items, columns, steps, groups, bins, counter_bits, epsilon, epoch_ms = array(decode(data), 9)
    version_one(version)
    read_items, read_columns, read_steps = [], [], []
    for item in array(items):
        wrong_type(not array(item))
        aggregate = uint(item[0])
        out_of_range(aggregate > QUANTILE)
        array(item, 3 if aggregate == QUANTILE else 2)
        read_items.append((aggregate, optional(item[1], uint, 8), *(uint(rank, 16) for rank in item[2:])))
        out_of_range(len(read_items) > 16)
    for column in array(columns):
        wrong_type(len(array(column)) not in (2, 4))
        read_columns.append([text(column[0]), uint(column[1], 32), *map(sint, column[2:])])
        out_of_range(len(read_columns) > 8)
    for step in array(steps):
        if type(step) is list:
            column, low, high = array(step, 3)
            read_steps.append([uint(column, 8), optional(low, sint), optional(high, sint)])
        else:
            out_of_range(abs(sint(step)) > 255)
            read_steps.append(step)
        out_of_range(len(read_steps) > 32)
    numbers = optional(groups, groups_read), uint(bins, 8), uint(counter_bits, 8), uint(epsilon, 32), uint(epoch_ms, 32)
    plan = Plan(read_items, read_columns, read_steps, *numbers)
    plan_check(plan)
    out_of_range(not any_slots and len(plan.slots()) > MAX_SLOTS)
    assert plan.encode() == data, "what was decoded encodes to what was read"
    return plan


def groups_read(groups):
    column, values = array(groups, 2)
    read = [uint(column, 8), []]
    for value in array(values):
        read[1].append(sint(value))
        out_of_range(len(read[1]) > 16)
    return read


def plan_check(plan):
    """The checks of a decoder in addition to those of the encoding and the types, except the number of slots."""
    items, columns, steps = plan.items, plan.columns, plan.steps
    out_of_range(not items or len(set(items)) < len(items))
    out_of_range(any(item[1] is None and item[0] != COUNT for item in items))
    out_of_range(any(rank > 10000 for item in items for rank in item[2:]))
    mentioned = [item[1] for item in items if item[1] is not None] + [step[0] for step in steps if type(step) is list]
    mentioned += plan.groups[:1] if plan.groups else []
    out_of_range(list(dict.fromkeys(mentioned)) != list(range(len(columns))))
    out_of_range(len({column[0] for column in columns}) < len(columns))
    ranged = {*plan.summed, *plan.binned}
    for at, (name, divisor, *ends) in enumerate(columns):
        out_of_range(not 1 <= len(name.encode()) <= 64 or any(unicodedata.category(letter) == "Cc" for letter in name))
        out_of_range(divisor == 0 or (at in ranged) != bool(ends) or (bool(ends) and ends[0] > ends[1]))
    steps_check(steps)
    if plan.groups:
        column, values = plan.groups
        places = places_of(columns[column][1])
        out_of_range(not values or len(set(values)) < len(values) or places is None or places > 10)
    out_of_range(not 2 <= plan.bins <= 64 if plan.binned else plan.bins != 0)
    out_of_range(plan.epsilon > MAX_EPSILON)
    out_of_range(plan.counter_bits not in ((0,) if not plan.has_fields else (48,) if plan.epsilon else (12, 16, 20)))
    out_of_range(plan.epsilon != 0 and (not plan.has_noisy_form or plan.bound(32) > MAX_BOUND))
    out_of_range(not 1000 <= plan.epoch_ms <= 7 * 86_400_000)


def steps_check(steps):
    waiting = []
    for step in steps:
        if type(step) is list:
            _, low, high = step
            out_of_range(low is None and high is None)
            out_of_range(None not in (low, high) and low > high and (low, high) != EMPTY)
            waiting.append((None, 0))
            continue
        taken = abs(step) or 1
        out_of_range(step in (1, -1) or taken > len(waiting))
        operands = waiting[-taken:]
        del waiting[-taken:]
        join = "AND" if step > 0 else "OR" if step < 0 else None
        out_of_range(join is not None and any(inner == join for inner, _ in operands))
        waiting.append((join, 1 + max(depth for _, depth in operands)))
        out_of_range(waiting[-1][1] > 16)
    out_of_range(len(waiting) != (1 if steps else 0))
