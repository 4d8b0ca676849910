"""Queries of private sums: their language, plans and results (queries.md)."""

import math
import re
import struct
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

import cbor2

from .encoding import Refused, array, decode, optional, out_of_range, sint, text, uint, version_one, wrong_type
from .schema import FORMATS, TYPES


# ---------------------------------------------------------------- queries.md, sections 1 and 2: the language

AGGREGATES = ["SUM", "COUNT", "AVG", "VARIANCE", "STDDEV"]
RESERVED = {"SELECT", "FROM", "WHERE", "EPOCH", "DURATION", "AND", "OR", "NOT", "BETWEEN"}
UNITS_OF_TIME = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1000, "MS": 1}
EMPTY = (1, 0)
WHITE_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
TOKEN = re.compile(
    rf"""[{WHITE_SPACE}]*(?:(?P<end>\Z)|(?P<word>[^\W\d]\w*)|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<quoted>"(?:[^"]|"")*")"""
    r"""|(?P<text>'(?:[^']|'')*')|(?P<sign><=|>=|!=|<>|[(),*<>=+-])|(?P<open>["'])|(?P<other>.))""",
    re.DOTALL,
)


def upper(text):
    """The text in upper case, if it is ASCII. The words of the language are."""
    return text.upper() if text.isascii() else text


class QueryText:
    """Parses the text of a query to its plan, token by token. The first error is reported.

    Python has no data for the property Other_Alphabetic. A combining mark in a word without quotes is thus rejected.
    """

    def __init__(self, source, schema):
        if len(source.encode()) > 16384:
            raise Refused("QueryTooLong")
        self.source, self.at, self.schema = source, 0, schema
        self.items, self.columns, self.steps = [], [], []
        self.advance()
        self.query()

    def advance(self):
        match = TOKEN.match(self.source, self.at)
        self.at, self.kind, self.token = match.end(), match.lastgroup, match[match.lastgroup]
        if self.kind == "open":
            raise Refused("Unterminated")
        if self.kind == "other" or (self.kind == "word" and unicodedata.category(self.token[0]) == "No"):
            raise Refused("UnknownCharacter")

    def is_word(self, word):
        return self.kind == "word" and upper(self.token) == word

    def accept(self, *tokens):
        """Takes the next token if it is one of these words or signs."""
        if self.kind in ("word", "sign") and upper(self.token) in tokens:
            token = upper(self.token)
            self.advance()
            return token
        return None

    def expect(self, *tokens):
        token = self.accept(*tokens)
        if token is None:
            raise Refused("UnexpectedToken", f"{self.token!r}")
        return token

    def query(self):
        self.expect("SELECT")
        self.item()
        while self.accept(","):
            self.item()
        self.expect("FROM")
        self.expect("SENSORS")
        if self.accept("WHERE"):
            self.close(self.disjunction(0))
        if self.kind == "end":
            raise Refused("DurationMissing")
        self.expect("EPOCH")
        self.expect("DURATION")
        if self.kind == "end":
            raise Refused("DurationMissing")
        if self.kind != "number" or "." in self.token:
            raise Refused("UnexpectedToken")
        count = int(self.token)
        self.advance()
        if not 1 <= count < 1 << 32:
            raise Refused("DurationOutOfRange")
        if self.kind != "word" or upper(self.token) not in UNITS_OF_TIME:
            raise Refused("UnexpectedToken")
        self.epoch_ms = count * UNITS_OF_TIME[upper(self.token)]
        if not 1000 <= self.epoch_ms <= 7 * 86_400_000:
            raise Refused("DurationOutOfRange")
        self.advance()
        if self.kind != "end":
            raise Refused("UnexpectedToken")

    def item(self):
        if self.kind != "word" or upper(self.token) in RESERVED:
            raise Refused("UnexpectedToken")
        if upper(self.token) not in AGGREGATES:
            raise Refused("UnknownAggregate")
        aggregate, column = AGGREGATES.index(self.expect(*AGGREGATES)), None
        self.expect("(")
        if aggregate != 1 or not self.accept("*"):
            column = self.column()
        self.expect(")")
        if (aggregate, column) in self.items:
            raise Refused("DuplicateItem")
        self.items.append((aggregate, column))
        if len(self.items) > 16:
            raise Refused("TooManyItems")

    def column(self):
        """Reads a column. Returns its place in the plan."""
        if self.kind == "quoted":
            name = self.token[1:-1].replace('""', '"')
        elif self.kind == "word" and upper(self.token) not in RESERVED:
            name = self.token
        else:
            raise Refused("UnexpectedToken")
        if not self.schema.fields:
            raise Refused("NotNumeric")
        field = self.schema.field(name)
        if field is None:
            raise Refused("UnknownColumn")
        if field[2] >= 8:
            raise Refused("NotNumeric" if TYPES[field[2]] == "time" else "NotExact")
        if field not in self.columns:
            self.columns.append(field)
        if len(self.columns) > 8:
            raise Refused("TooManyColumns")
        self.advance()
        return self.columns.index(field)

    # Operands are (join, number, depth): `number` operands, whose steps are added already. If `join` is not None, they are
    # the operands of one AND or OR, whose own step is added when no further operand follows.

    def disjunction(self, nested):
        return self.joined("OR", self.conjunction, nested)

    def conjunction(self, nested):
        return self.joined("AND", self.operand, nested)

    def joined(self, join, read, nested):
        operands = read(nested)
        while self.accept(join):
            _, number, depth = self.open(operands, join)
            _, more, deeper = self.open(read(nested), join)
            operands = join, number + more, max(depth, deeper)
        return operands

    def open(self, operands, join):
        """Closes the operands, unless `join` joins them."""
        return operands if operands[0] == join else self.close(operands)

    def close(self, operands):
        join, number, depth = operands
        return self.step(number if join == "AND" else -number, depth + 1) if join else operands

    def step(self, step, depth):
        if depth > 16:
            raise Refused("TooDeep")
        if len(self.steps) == 32:
            raise Refused("TooManySteps")
        self.steps.append(step)
        return None, 1, depth

    def operand(self, nested):
        if nested > 16:
            raise Refused("TooDeep")
        if self.accept("NOT"):
            return self.step(0, self.close(self.operand(nested + 1))[2] + 1)
        if self.accept("("):
            inner = self.disjunction(nested + 1)
            self.expect(")")
            return inner
        return self.comparison()

    def number(self):
        negative = self.accept("+", "-") == "-"
        if self.kind == "text":
            raise Refused("NotNumeric")
        if self.kind != "number":
            raise Refused("UnexpectedToken")
        digits = self.token
        self.advance()
        if len(digits.replace(".", "")) > 38:
            raise Refused("NumberOutOfRange")
        return Fraction(("-" if negative else "") + digits)

    def comparison(self):
        if self.kind in ("number", "text") or self.token in ("+", "-"):
            number = self.number()
            sign = self.expect("<", "<=", ">", ">=", "=", "!=", "<>")
            sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
            column = self.column()
        else:
            column = self.column()
            if self.accept("BETWEEN"):
                low = self.number()
                self.expect("AND")
                return self.step([column, *self.interval(column, low, self.number())], 0)
            sign = self.expect("<", "<=", ">", ">=", "=", "!=", "<>")
            number = self.number()
        scaled = number * self.columns[column][3]
        if sign == ">":
            bounds = bound(math.floor(scaled) + 1), None
        elif sign == ">=":
            bounds = bound(math.ceil(scaled)), None
        elif sign == "<":
            bounds = None, bound(math.ceil(scaled) - 1)
        elif sign == "<=":
            bounds = None, bound(math.floor(scaled))
        else:
            bounds = self.interval(column, number, number)
        comparison = self.step([column, *bounds], 0)
        return self.step(0, 1) if sign in ("!=", "<>") else comparison

    def interval(self, column, low, high):
        divisor = self.columns[column][3]
        low, high = bound(math.ceil(low * divisor)), bound(math.floor(high * divisor))
        return (low, high) if low <= high else EMPTY

    def plan(self):
        summed = {column for aggregate, column in self.items if aggregate != 1}
        columns = []
        for at, (name, _, kind, divisor, offset) in enumerate(self.columns):
            bits = 8 * struct.calcsize(FORMATS[kind])
            low = -(1 << bits - 1) if TYPES[kind][0] == "i" else 0
            ends = [min(max(end + offset, -(1 << 63)), (1 << 63) - 1) for end in (low, low + (1 << bits) - 1)]
            columns.append([name, divisor, *(ends if at in summed else [])])
        return Plan(self.items, columns, self.steps, self.epoch_ms)


def bound(value):
    if not -(1 << 63) <= value < 1 << 63:
        raise Refused("NumberOutOfRange")
    return value


# ---------------------------------------------------------------- queries.md, sections 3 to 5: plan, slots, results


def places_of(divisor):
    """The least number of places at which `1 / divisor` is exact, or None."""
    return next((places for places in range(33) if 10**places % divisor == 0), None)


def shown(digits, places):
    text = str(abs(digits)).rjust(places + 1, "0")
    return ("-" if digits < 0 else "") + (f"{text[:-places]}.{text[-places:]}" if places else text)


@dataclass
class Plan:
    items: list
    columns: list
    steps: list
    epoch_ms: int

    def encode(self):
        items = [list(item) for item in self.items]
        return cbor2.dumps([1, items, self.columns, self.steps, self.epoch_ms])

    def slots(self):
        """The kind, the place of the column, vmax, shift and most of each slot."""
        slots = []
        for at, column in enumerate(self.columns):
            if len(column) == 4:
                low, high = column[2:]
                shift = min(0, low)
                slots.append(("sum", at, max(0, high) - shift, shift))
                if any((aggregate, at) in self.items for aggregate in (3, 4)):
                    slots.append(("squares", at, max(low**2, high**2), 0))
        if not slots or slots[0][2] >= 1 << 36:
            slots.insert(0, ("counts", None, 0, 0))
        return [(*slot, slot[2] + (1 << 76 if number == 0 else 0)) for number, slot in enumerate(slots)]

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

    def name(self, at):
        name = self.columns[at][0]
        plain = re.fullmatch(r"[^\W\d]\w*", name) and unicodedata.category(name[0]) != "No" and upper(name) not in RESERVED
        return name if plain else '"' + name.replace('"', '""') + '"'

    def comparison_text(self, column, low, high):
        name, divisor = self.name(column), self.columns[column][1]
        exact = places_of(divisor)
        places = 10 if exact is None else min(exact, 10)
        if (low, high) == EMPTY:
            return f"{name} BETWEEN 1 AND 0"
        least = None if low is None else shown(low * 10**places // divisor, places)
        most = None if high is None else shown(-(-high * 10**places // divisor), places)
        if high is None:
            return f"{name} >= {least}"
        if low is None:
            return f"{name} <= {most}"
        if low == high and exact == places:
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
        items = [f"{AGGREGATES[a]}({'*' if column is None else self.name(column)})" for a, column in self.items]
        where = f" WHERE {self.predicate_text(self.tree())}" if self.steps else ""
        unit = next(unit for unit, ms in UNITS_OF_TIME.items() if self.epoch_ms % ms == 0)
        duration = f"{self.epoch_ms // UNITS_OF_TIME[unit]}{unit.lower()}"
        return f"SELECT {', '.join(items)} FROM sensors{where} EPOCH DURATION {duration}"

    def contribution(self, schema, record):
        """The contribution of a source to each slot."""
        places = []
        for name, divisor, *_ in self.columns:
            field = schema.field(name)
            if field is None:
                raise Refused("UnknownColumn")
            if field[2] >= 8:
                raise Refused("NotExact")
            if field[3] != divisor:
                raise Refused("DivisorMismatch")
            places.append(schema.fields.index(field))
        numerators = None
        if record is not None:
            values = schema.values(record)
            numerators = [values[place][0] for place in places]

        def holds(tree):
            if type(tree[0]) is int:
                value, low, high = numerators[tree[0]], tree[1], tree[2]
                return (low is None or low <= value) and (high is None or value <= high)
            truths = [holds(operand) for operand in tree[1]]
            return {"NOT": not truths[0], "AND": all(truths), "OR": any(truths)}[tree[0]]

        matches = numerators is not None and (not self.steps or holds(self.tree()))
        counted = matches and all(
            len(column) == 2 or column[2] <= numerator <= column[3] for column, numerator in zip(self.columns, numerators)
        )
        contributed = []
        for kind, at, _, shift, _ in self.slots():
            numerator = numerators[at] if counted and at is not None else 0
            contributed.append({"counts": 0, "sum": numerator - shift, "squares": numerator**2}[kind])
        contributed[0] += counted * 2**56 + (matches and not counted) * 2**76
        return contributed

    def answer(self, totals, participants):
        """The results as texts, None for an item without a result; the count; the number of readings outside."""
        slots = self.slots()
        if len(totals) != len(slots):
            raise Refused("WrongSlotCount")
        values = [totals[0] % 2**56, *totals[1:]]
        count, outside = totals[0] // 2**56 % 2**20, totals[0] // 2**76
        sums, squares = {}, {}
        for (kind, at, vmax, shift, _), value in zip(slots, values):
            if value > participants * vmax or count + outside > participants:
                raise Refused("SumOutOfRange")
            if kind == "sum":
                sums[at] = value + participants * shift
            elif kind == "squares":
                squares[at] = value, vmax
        for at, total in sums.items():
            possible = count * self.columns[at][2] <= total <= count * self.columns[at][3]
            if at in squares:
                square, vmax = squares[at]
                possible = possible and square <= count * vmax and total**2 <= count * square
            if not possible:
                raise Refused("Inconsistent")
        results = []
        for aggregate, at in self.items:
            if aggregate == 1:
                results.append(str(count))
                continue
            divisor = self.columns[at][1]
            p = places_of(divisor)
            digits = 9 if p is None else [p, 0, p + 4, 2 * p + 4, p + 4][aggregate]
            if aggregate == 0:
                results.append(shown(round(Fraction(sums[at], divisor) * 10**digits), digits))
            elif count == 0:
                results.append(None)
            elif aggregate == 2:
                results.append(shown(round(Fraction(sums[at], count * divisor) * 10**digits), digits))
            else:
                variance = Fraction(count * squares[at][0] - sums[at] ** 2, (count * divisor) ** 2)
                scaled = variance * 10 ** (digits if aggregate == 3 else 2 * digits)
                results.append(shown(round(scaled) if aggregate == 3 else rounded_root(scaled), digits))
        return results, count, outside


def rounded_root(square):
    """The root of a fraction, to the nearest integer, half to even."""
    down = math.isqrt(math.floor(square))
    middle = (down + Fraction(1, 2)) ** 2
    return down + (square > middle or (square == middle and down % 2))


def plan_decode(data):
    version, items, columns, steps, epoch_ms = array(decode(data), 5)
    version_one(version)
    read_items, read_columns, read_steps = [], [], []
    for item in array(items):
        aggregate, column = array(item, 2)
        out_of_range(uint(aggregate) > 4)
        read_items.append((aggregate, optional(column, uint, 8)))
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
    plan = Plan(read_items, read_columns, read_steps, uint(epoch_ms, 32))
    plan_check(plan)
    assert plan.encode() == data, "what was decoded encodes to what was read"
    return plan


def plan_check(plan):
    """The checks of a decoder in addition to those of the encoding and the types."""
    items, columns, steps = plan.items, plan.columns, plan.steps
    out_of_range(not items or len(set(items)) < len(items))
    out_of_range(any(column is None and aggregate != 1 for aggregate, column in items))
    mentioned = [column for _, column in items if column is not None] + [step[0] for step in steps if type(step) is list]
    out_of_range(list(dict.fromkeys(mentioned)) != list(range(len(columns))))
    out_of_range(len({column[0] for column in columns}) < len(columns))
    summed = {column for aggregate, column in items if aggregate != 1}
    for at, (name, divisor, *ends) in enumerate(columns):
        out_of_range(not 1 <= len(name.encode()) <= 64 or any(unicodedata.category(letter) == "Cc" for letter in name))
        out_of_range(divisor == 0 or (at in summed) != bool(ends) or (bool(ends) and ends[0] > ends[1]))
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
    out_of_range(not 1000 <= plan.epoch_ms <= 7 * 86_400_000)
