//! The parser of a query's text (spec/queries.md, section 1). It is a recursive-descent parser with
//! one token of lookahead and a recursion depth of at most [`MAX_DEPTH`].

use crate::noise::MAX_EPSILON;
use crate::query::lexer::{Kind, Lexer, Token, is_reserved};
use crate::query::list::{Full, List};
use crate::query::literal::Literal;
use crate::query::mistake::{Mistake, QueryError};
use crate::query::partition::{Groups, MAX_COUNTER_BITS, NOISY_BITS, RANKS, exact_places};
use crate::query::predicate::{Interval, Join, Step};
use crate::query::{
    Aggregate, BINS, Column, DEFAULT_BINS, EPOCH_MS, Item, MAX_DEPTH, MAX_TEXT, Plan, WHOLE_RANK,
};
use moteseal_core::schema::{Field, FieldType, Schema};

/// The units of a duration with their lengths in milliseconds, the longest first.
pub(super) const UNITS: [(&str, u32); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Parses the text of a query.
pub(super) fn parse<'a>(text: &'a str, schema: &Schema<'a>) -> Result<Plan<'a>, QueryError<'a>> {
    if text.len() > MAX_TEXT {
        return Err(QueryError::at(text, 0, Mistake::TooLong));
    }
    let mut lexer = Lexer::new(text);
    let token = lexer.next()?;
    let mut parser = Parser { lexer, token, schema: *schema, plan: Plan::empty() };
    parser.query()?;
    Ok(parser.plan)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token.
    token: Token<'a>,
    schema: Schema<'a>,
    plan: Plan<'a>,
}

/// One or more operands whose steps are already written. If `join` is set, they are the operands of
/// one AND or OR, whose own step is written when no further operand follows.
#[derive(Clone, Copy)]
struct Run {
    join: Option<Join>,
    operands: u8,
    /// The greatest nesting depth of the operands.
    depth: usize,
}

impl<'a> Parser<'a> {
    fn query(&mut self) -> Result<(), QueryError<'a>> {
        self.word("SELECT")?;
        loop {
            self.item()?;
            if !self.accept_sign(",")? {
                break;
            }
        }
        if !self.token.is_word("FROM") {
            return Err(self.unexpected("a comma or FROM sensors"));
        }
        self.advance()?;
        self.word("sensors")?;
        let mut next = "WHERE, GROUP BY, BINS, EPSILON or EPOCH DURATION";
        if self.accept_word("WHERE")? {
            let run = self.disjunction(0)?;
            self.close(run)?;
            next = "AND, OR, GROUP BY, BINS, EPSILON or EPOCH DURATION";
        }
        if self.accept_word("GROUP")? {
            self.word("BY")?;
            self.groups()?;
            next = "BINS, EPSILON or EPOCH DURATION";
        }
        if self.plan.items.iter().any(|item| item.aggregate.takes_bins()) {
            self.plan.bins = DEFAULT_BINS;
        }
        if self.token.is_word("BINS") {
            self.bins()?;
            next = "EPSILON or EPOCH DURATION";
        }
        if self.accept_word("EPSILON")? {
            self.epsilon()?;
            next = "EPOCH DURATION";
        }
        if self.token.kind == Kind::End {
            return Err(self.mistake(Mistake::DurationMissing));
        }
        if !self.accept_word("EPOCH")? {
            return Err(self.unexpected(next));
        }
        self.word("DURATION")?;
        self.duration()?;
        self.plan.counter_bits = match (self.plan.has_counters(), self.plan.has_noise()) {
            (false, _) => 0,
            (true, false) => MAX_COUNTER_BITS,
            (true, true) => NOISY_BITS,
        };
        if self.token.kind == Kind::End {
            Ok(())
        } else {
            Err(self.unexpected("the end of the query"))
        }
    }

    /// Parses `column (value, ...)`.
    fn groups(&mut self) -> Result<(), QueryError<'a>> {
        let (column, field) = self.column("the name of a column")?;
        if exact_places(field.divisor).is_none() {
            return Err(self.mistake(Mistake::InexactGroups(field.name)));
        }
        let mut groups = Groups { column: index(column), values: List::new() };
        self.sign("(", "( and the values of the groups")?;
        loop {
            let literal = self.literal()?;
            let at = |mistake| QueryError::at(self.lexer.text(), literal.start, mistake);
            let exact = literal.floor(field.divisor);
            let exact = exact.filter(|floor| literal.ceil(field.divisor) == Some(*floor));
            let value = exact.and_then(|value| i64::try_from(value).ok());
            let value = value.ok_or_else(|| at(Mistake::NotAValue(literal.text)))?;
            if groups.values.contains(&value) {
                return Err(at(Mistake::DuplicateValue));
            }
            groups.values.push(value).map_err(|Full| at(Mistake::TooManyGroups))?;
            if !self.accept_sign(",")? {
                break;
            }
        }
        self.sign(")", "a comma or )")?;
        self.plan.groups = Some(groups);
        Ok(())
    }

    /// Parses `BINS number`.
    fn bins(&mut self) -> Result<(), QueryError<'a>> {
        if self.plan.bins == 0 {
            return Err(self.mistake(Mistake::NoBins));
        }
        self.advance()?;
        if self.token.kind != Kind::Number || self.token.text.contains('.') {
            return Err(self.unexpected("a whole number of bins"));
        }
        let bins = self.token.text.parse().ok().filter(|bins| BINS.contains(bins));
        self.plan.bins = bins.ok_or_else(|| self.mistake(Mistake::BinsOutOfRange))?;
        self.advance()
    }

    /// Parses the number of an EPSILON.
    fn epsilon(&mut self) -> Result<(), QueryError<'a>> {
        let literal = self.literal()?;
        let at = |mistake| QueryError::at(self.lexer.text(), literal.start, mistake);
        let epsilon = literal.floor(1000);
        self.plan.epsilon = epsilon
            .filter(|floor| literal.ceil(1000) == Some(*floor) && *floor > 0)
            .and_then(|epsilon| u32::try_from(epsilon).ok())
            .filter(|epsilon| *epsilon <= MAX_EPSILON)
            .ok_or_else(|| at(Mistake::EpsilonOutOfRange))?;
        if !self.plan.items.iter().all(Item::has_noisy_form) {
            return Err(at(Mistake::NoNoisyForm));
        }
        if self.plan.has_noisy_form() { Ok(()) } else { Err(at(Mistake::EpsilonOutOfRange)) }
    }

    /// Parses `, rank`: the second argument of a quantile.
    fn rank(&mut self) -> Result<u16, QueryError<'a>> {
        self.sign(",", "a comma and a number from 0 to 1")?;
        let literal = self.literal()?;
        let rank = literal.floor(WHOLE_RANK.into());
        rank.filter(|floor| literal.ceil(WHOLE_RANK.into()) == Some(*floor))
            .and_then(|rank| u16::try_from(rank).ok())
            .filter(|rank| *rank <= WHOLE_RANK)
            .ok_or_else(|| {
                QueryError::at(self.lexer.text(), literal.start, Mistake::RankOutOfRange)
            })
    }

    /// Parses `AGGREGATE(column)`, `QUANTILE(column, rank)` or `COUNT(*)`.
    fn item(&mut self) -> Result<(), QueryError<'a>> {
        let start = self.token;
        if start.kind != Kind::Word || is_reserved(start.text) {
            return Err(self.unexpected("an aggregate such as SUM, COUNT, AVG or MEDIAN"));
        }
        let named = RANKS.iter().find(|(name, _)| start.is_word(name)).map(|(_, rank)| *rank);
        let aggregate = Aggregate::ALL
            .into_iter()
            .find(|aggregate| start.is_word(aggregate.name()))
            .or(named.map(|_| Aggregate::Quantile))
            .ok_or_else(|| self.mistake(Mistake::UnknownAggregate(start.text)))?;
        let mut rank = named.unwrap_or_default();
        self.advance()?;
        self.sign("(", "( and the name of a column")?;
        let column = if aggregate == Aggregate::Count && self.accept_sign("*")? {
            None
        } else {
            let (index, field) = self.column("the name of a column")?;
            if aggregate != Aggregate::Count {
                self.plan.columns[index].range = Some(numerators(&field));
            }
            if aggregate == Aggregate::Quantile && named.is_none() {
                rank = self.rank()?;
            }
            Some(self::index(index))
        };
        self.sign(")", ")")?;
        let item = Item { aggregate, column, rank };
        if self.plan.items.contains(&item) {
            return Err(QueryError::at(self.lexer.text(), start.start, Mistake::DuplicateItem));
        }
        self.plan
            .items
            .push(item)
            .map(|_| ())
            .map_err(|Full| QueryError::at(self.lexer.text(), start.start, Mistake::TooManyItems))
    }

    fn disjunction(&mut self, nested: usize) -> Result<Run, QueryError<'a>> {
        let mut run = self.conjunction(nested)?;
        while self.accept_word("OR")? {
            run = self.open(run, Join::Or)?;
            let next = self.conjunction(nested)?;
            run = self.joined(run, next, Join::Or)?;
        }
        Ok(run)
    }

    fn conjunction(&mut self, nested: usize) -> Result<Run, QueryError<'a>> {
        let mut run = self.operand(nested)?;
        while self.accept_word("AND")? {
            run = self.open(run, Join::And)?;
            let next = self.operand(nested)?;
            run = self.joined(run, next, Join::And)?;
        }
        Ok(run)
    }

    fn operand(&mut self, nested: usize) -> Result<Run, QueryError<'a>> {
        if nested > MAX_DEPTH {
            return Err(self.mistake(Mistake::TooDeep));
        }
        if self.accept_word("NOT")? {
            let run = self.operand(nested + 1)?;
            let run = self.close(run)?;
            return self.step(Step::Not, run.depth + 1);
        }
        if self.accept_sign("(")? {
            let run = self.disjunction(nested + 1)?;
            self.sign(")", "AND, OR or )")?;
            return Ok(run);
        }
        self.comparison()
    }

    /// Ends a sequence of operands: writes the step that joins them, if there is more than one.
    fn close(&mut self, run: Run) -> Result<Run, QueryError<'a>> {
        match run.join {
            Some(join) => self.step(Step::Join(join, run.operands), run.depth + 1),
            None => Ok(run),
        }
    }

    /// Returns a sequence to which further operands can be added with `join`. A sequence that is
    /// already joined by `join` stays open; any other sequence is ended and becomes one operand.
    fn open(&mut self, run: Run, join: Join) -> Result<Run, QueryError<'a>> {
        if run.join == Some(join) { Ok(run) } else { self.close(run) }
    }

    /// Merges two sequences. The second one is ended first, unless it is also joined by `join`.
    fn joined(&mut self, run: Run, next: Run, join: Join) -> Result<Run, QueryError<'a>> {
        let next = self.open(next, join)?;
        // There are at most MAX_STEPS operands, so this does not overflow.
        let operands = run.operands.saturating_add(next.operands);
        Ok(Run { join: Some(join), operands, depth: run.depth.max(next.depth) })
    }

    fn step(&mut self, step: Step, depth: usize) -> Result<Run, QueryError<'a>> {
        if depth > MAX_DEPTH {
            return Err(self.mistake(Mistake::TooDeep));
        }
        self.plan.predicate.push(step).map_err(|Full| self.mistake(Mistake::TooManySteps))?;
        Ok(Run { join: None, operands: 1, depth })
    }

    /// Parses a BETWEEN, or a comparison of a column with a number. The number may be on either
    /// side.
    fn comparison(&mut self) -> Result<Run, QueryError<'a>> {
        let (index, interval, not) = if self.at_literal() {
            let literal = self.literal()?;
            let sign = self.comparison_sign("<, <=, >, >=, = or !=")?;
            let (index, field) = self.column("the name of a column")?;
            let mirrored = match sign {
                "<" => ">",
                "<=" => ">=",
                ">" => "<",
                ">=" => "<=",
                same => same,
            };
            let interval = self.interval(literal, mirrored, &field)?;
            (index, interval, matches!(sign, "!=" | "<>"))
        } else {
            let (index, field) = self.column("a column, a number, NOT or (")?;
            if self.accept_word("BETWEEN")? {
                let low = self.literal()?;
                self.word("AND")?;
                let high = self.literal()?;
                let (low, high) = (
                    self.bound(low, low.ceil(field.divisor))?,
                    self.bound(high, high.floor(field.divisor))?,
                );
                (index, Interval::between(low, high), false)
            } else {
                let sign = self.comparison_sign("<, <=, >, >=, =, != or BETWEEN")?;
                let literal = self.literal()?;
                (index, self.interval(literal, sign, &field)?, matches!(sign, "!=" | "<>"))
            }
        };
        let run = self.step(Step::Compare(self::index(index), interval), 0)?;
        if not { self.step(Step::Not, 1) } else { Ok(run) }
    }

    /// Returns the interval of numerators for which `column sign literal` is true. For `!=`,
    /// returns the interval for which it is false.
    fn interval(
        &self,
        literal: Literal<'a>,
        sign: &str,
        field: &Field<'a>,
    ) -> Result<Interval, QueryError<'a>> {
        let (floor, ceil) = (literal.floor(field.divisor), literal.ceil(field.divisor));
        let low = |bound| Ok(Interval { low: Some(self.bound(literal, bound)?), high: None });
        let high = |bound| Ok(Interval { low: None, high: Some(self.bound(literal, bound)?) });
        match sign {
            ">" => low(floor.map(|floor| floor + 1)),
            ">=" => low(ceil),
            "<" => high(ceil.map(|ceil| ceil - 1)),
            "<=" => high(floor),
            // This is `=` or `!=`. If no numerator equals the literal, the interval is empty.
            _ => Ok(Interval::between(self.bound(literal, ceil)?, self.bound(literal, floor)?)),
        }
    }

    /// Converts a bound to 64 bits, the range of a plan's numerators.
    fn bound(&self, literal: Literal<'a>, bound: Option<i128>) -> Result<i64, QueryError<'a>> {
        let mistake = Mistake::NumberOutOfRange(literal.text);
        bound
            .and_then(|bound| i64::try_from(bound).ok())
            .ok_or_else(|| QueryError::at(self.lexer.text(), literal.start, mistake))
    }

    fn at_literal(&self) -> bool {
        matches!(self.token.kind, Kind::Number | Kind::Text)
            || self.token.is_sign("-")
            || self.token.is_sign("+")
    }

    /// Parses a decimal number with an optional sign.
    fn literal(&mut self) -> Result<Literal<'a>, QueryError<'a>> {
        let start = self.token.start;
        let negative = self.token.is_sign("-");
        if negative || self.token.is_sign("+") {
            self.advance()?;
        }
        let token = self.token;
        match token.kind {
            Kind::Number => self.advance()?,
            Kind::Text => return Err(self.mistake(Mistake::TextLiteral)),
            _ => return Err(self.unexpected("a number")),
        }
        let text = &self.lexer.text()[start..token.start + token.text.len()];
        let mistake = || QueryError::at(self.lexer.text(), start, Mistake::NumberOutOfRange(text));
        Literal::read(negative, token.text, text, start).ok_or_else(mistake)
    }

    fn comparison_sign(&mut self, expected: &'static str) -> Result<&'a str, QueryError<'a>> {
        let sign = self.token.text;
        if !matches!(sign, "<" | "<=" | ">" | ">=" | "=" | "!=" | "<>") {
            return Err(self.unexpected(expected));
        }
        self.advance()?;
        Ok(sign)
    }

    /// Parses the name of a column of scaled integers that exists in the schema. Returns the
    /// column's index in the plan and its field.
    fn column(&mut self, expected: &'static str) -> Result<(usize, Field<'a>), QueryError<'a>> {
        let token = self.token;
        let field = match token.kind {
            Kind::Word if !is_reserved(token.text) => self.schema.field(token.text),
            Kind::Quoted => self.schema.fields().find(|field| is_quoted(field.name, token.text)),
            Kind::Word if self.schema.field(token.text).is_some() => {
                return Err(self
                    .unexpected("the name of a column, in double quotes because it is a keyword"));
            }
            _ => return Err(self.unexpected(expected)),
        };
        if self.schema.is_opaque() {
            return Err(self.mistake(Mistake::NoColumns));
        }
        let field = field.ok_or_else(|| {
            self.mistake(Mistake::UnknownColumn { name: token.text, schema: self.schema })
        })?;
        match field.kind {
            FieldType::F32 | FieldType::F64 => {
                return Err(self.mistake(Mistake::FloatColumn(token.text)));
            }
            FieldType::Time => return Err(self.mistake(Mistake::TimeColumn(token.text))),
            kind if !kind.is_integer() => {
                return Err(self.mistake(Mistake::NotNumericColumn(token.text, kind)));
            }
            _ if field.nullable => {
                return Err(self.mistake(Mistake::NullableColumn(token.text)));
            }
            _ => {}
        }
        let index = match self.plan.columns.iter().position(|column| column.name == field.name) {
            Some(index) => index,
            None => {
                let column = Column { name: field.name, divisor: field.divisor, range: None };
                self.plan
                    .columns
                    .push(column)
                    .map_err(|Full| self.mistake(Mistake::TooManyColumns))?
            }
        };
        self.advance()?;
        Ok((index, field))
    }

    /// Parses the whole number and the unit of a duration.
    fn duration(&mut self) -> Result<(), QueryError<'a>> {
        let start = self.token;
        if start.kind == Kind::End {
            return Err(self.mistake(Mistake::DurationMissing));
        }
        if start.kind != Kind::Number || start.text.contains('.') {
            return Err(self.unexpected("a whole number and its unit, such as 30s"));
        }
        self.advance()?;
        let out_of_range =
            || QueryError::at(self.lexer.text(), start.start, Mistake::DurationOutOfRange);
        // Zero is out of range for every unit.
        let count: u32 =
            start.text.parse().ok().filter(|&count| count > 0).ok_or_else(out_of_range)?;
        let unit = UNITS.iter().find(|(name, _)| self.token.is_word(name));
        let &(_, unit) = unit.ok_or_else(|| self.unexpected("a unit of time: ms, s, m, h or d"))?;
        let ms =
            count.checked_mul(unit).filter(|ms| EPOCH_MS.contains(ms)).ok_or_else(out_of_range)?;
        self.plan.epoch_ms = ms;
        self.advance()
    }

    fn advance(&mut self) -> Result<(), QueryError<'a>> {
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn accept_word(&mut self, word: &str) -> Result<bool, QueryError<'a>> {
        let there = self.token.is_word(word);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    fn accept_sign(&mut self, sign: &str) -> Result<bool, QueryError<'a>> {
        let there = self.token.is_sign(sign);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    fn word(&mut self, word: &'static str) -> Result<(), QueryError<'a>> {
        if self.accept_word(word)? { Ok(()) } else { Err(self.unexpected(word)) }
    }

    fn sign(&mut self, sign: &str, expected: &'static str) -> Result<(), QueryError<'a>> {
        if self.accept_sign(sign)? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Creates the error for a mistake at the next token.
    fn mistake(&self, mistake: Mistake<'a>) -> QueryError<'a> {
        QueryError::at(self.lexer.text(), self.token.start, mistake)
    }

    fn unexpected(&self, expected: &'static str) -> QueryError<'a> {
        self.mistake(Mistake::UnexpectedToken { expected, found: self.token.text })
    }
}

/// Converts the index of a column, of which there are at most eight.
fn index(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

/// Returns whether `quoted` is `name` in double quotes, where each quote within the name is
/// doubled.
fn is_quoted(name: &str, quoted: &str) -> bool {
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted);
    let mut quote = false;
    // Skip the second of two quotes in a row.
    let unquoted = inner.chars().filter(|&c| {
        quote = c == '"' && !quote;
        !quote
    });
    unquoted.eq(name.chars())
}

/// Returns the range of numerators of a field, limited to signed 64 bits, the range that a plan can
/// contain.
fn numerators(field: &Field<'_>) -> (i64, i64) {
    let bits = 8 * u32::try_from(field.kind.size()).unwrap_or(8);
    let (low, high) = if field.kind.is_signed() {
        (-(1i128 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    };
    // A mote does not answer with values that do not fit in signed 64 bits.
    let clamped =
        |raw: i128| (raw + i128::from(field.offset)).clamp(i64::MIN.into(), i64::MAX.into());
    (
        i64::try_from(clamped(low)).unwrap_or(i64::MIN),
        i64::try_from(clamped(high)).unwrap_or(i64::MAX),
    )
}
