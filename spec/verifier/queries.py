"""The language of queries over many devices: from a text to a plan (queries.md, sections 1 to 3)."""

import math
import re
import struct
import unicodedata
from fractions import Fraction

from .encoding import Refused
from .plans import (
    AGGREGATES,
    COUNT,
    EMPTY,
    MAX_BOUND,
    MAX_EPSILON,
    QUANTILE,
    RANKS,
    RESERVED,
    UNITS_OF_TIME,
    Plan,
    places_of,
    upper,
)
from .schema import FORMATS, TYPES


WHITE_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
TOKEN = re.compile(
    rf"""[{WHITE_SPACE}]*(?:(?P<end>\Z)|(?P<word>[^\W\d]\w*)|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<quoted>"(?:[^"]|"")*")"""
    r"""|(?P<text>'(?:[^']|'')*')|(?P<sign><=|>=|!=|<>|[(),*<>=+-])|(?P<open>["'])|(?P<other>.))""",
    re.DOTALL,
)


def whole(digits):
    """The number that the digits write. All numbers of 20 digits and more are one number that is above every limit."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) < 20 else 10**20


class QueryText:
    """Parses the text of a query to its plan, token by token. The first error is reported.

    Python has no data for the property Other_Alphabetic. A combining mark in a word without quotes is thus rejected.
    """

    def __init__(self, source, schema):
        if len(source.encode()) > 16384:
            raise Refused("QueryTooLong")
        self.source, self.at, self.schema = source, 0, schema
        self.items, self.columns, self.steps, self.groups = [], [], [], None
        self.bins, self.epsilon, self.epoch_ms = 8, 0, 0
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
        if self.accept("GROUP"):
            self.group_by()
        if self.is_word("BINS"):
            self.number_of_bins()
        if self.accept("EPSILON"):
            self.noise()
        if self.kind == "end":
            raise Refused("DurationMissing")
        self.expect("EPOCH")
        self.expect("DURATION")
        if self.kind == "end":
            raise Refused("DurationMissing")
        if self.kind != "number" or "." in self.token:
            raise Refused("UnexpectedToken")
        count = whole(self.token)
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
        ranks = {word: rank for rank, word in RANKS.items()}
        if upper(self.token) not in (*AGGREGATES, *ranks):
            raise Refused("UnknownAggregate")
        word = self.expect(*AGGREGATES, *ranks)
        self.expect("(")
        if word in ranks:
            item = QUANTILE, self.column(), ranks[word]
        elif word == "QUANTILE":
            column = self.column()
            self.expect(",")
            rank = self.number() * 10000
            if not 0 <= rank <= 10000 or rank.denominator != 1:
                raise Refused("RankOutOfRange")
            item = QUANTILE, column, int(rank)
        else:
            aggregate = AGGREGATES.index(word)
            item = aggregate, None if aggregate == COUNT and self.accept("*") else self.column()
        self.expect(")")
        if item in self.items:
            raise Refused("DuplicateItem")
        self.items.append(item)
        if len(self.items) > 16:
            raise Refused("TooManyItems")

    def group_by(self):
        self.expect("BY")
        column = self.column()
        divisor = self.columns[column][3]
        places = places_of(divisor)
        if places is None or places > 10:
            raise Refused("NotExact")
        self.expect("(")
        self.groups = [column, []]
        while True:
            value = self.number() * divisor
            if value.denominator != 1 or not -(1 << 63) <= value < 1 << 63:
                raise Refused("NotAValue")
            if value in self.groups[1]:
                raise Refused("DuplicateValue")
            self.groups[1].append(int(value))
            if len(self.groups[1]) > 16:
                raise Refused("TooManyGroups")
            if not self.accept(","):
                break
        self.expect(")")

    def number_of_bins(self):
        if not self.plan().binned:
            raise Refused("NoBins")
        self.advance()
        if self.kind != "number" or "." in self.token:
            raise Refused("UnexpectedToken")
        self.bins = whole(self.token)
        if not 2 <= self.bins <= 64:
            raise Refused("BinsOutOfRange")
        self.advance()

    def noise(self):
        epsilon = self.number() * 1000
        if not 0 < epsilon <= MAX_EPSILON or epsilon.denominator != 1:
            raise Refused("EpsilonOutOfRange")
        self.epsilon = int(epsilon)
        plan = self.plan()
        if not plan.has_noisy_form:
            raise Refused("NoNoisyForm")
        if plan.bound(32) > MAX_BOUND:
            raise Refused("EpsilonOutOfRange")

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
        if field.kind >= 8:
            raise Refused("NotExact" if TYPES[field.kind] in ("f32", "f64") else "NotNumeric")
        if field.nullable:
            raise Refused("NotExact")
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
        """The plan, with the counter bits of section 3.1, rule 11."""
        ranged = {item[1] for item in self.items if item[0] != COUNT}
        columns = []
        for at, (name, _, kind, divisor, offset, *_) in enumerate(self.columns):
            bits = 8 * struct.calcsize(FORMATS[kind])
            low = -(1 << bits - 1) if TYPES[kind][0] == "i" else 0
            ends = [min(max(end + offset, -(1 << 63)), (1 << 63) - 1) for end in (low, low + (1 << bits) - 1)]
            columns.append([name, divisor, *(ends if at in ranged else [])])
        plan = Plan(self.items, columns, self.steps, self.groups, self.bins, 0, self.epsilon, self.epoch_ms)
        plan.bins = self.bins if plan.binned else 0
        plan.counter_bits = 0 if not plan.has_fields else 48 if plan.epsilon else 20
        return plan


def bound(value):
    if not -(1 << 63) <= value < 1 << 63:
        raise Refused("NumberOutOfRange")
    return value
