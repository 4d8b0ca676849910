//! Splits a query's text into words, numbers and signs (spec/queries.md, section 1).

use crate::query::mistake::{Mistake, QueryError};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A keyword or the name of a column.
    Word,
    /// The name of a column in double quotes.
    Quoted,
    /// Digits with an optional fraction, without a sign.
    Number,
    /// A text in single quotes. It is always a mistake, because columns are compared only with
    /// numbers.
    Text,
    /// An operator or punctuation mark of one or two characters.
    Sign,
    /// The end of the query.
    End,
}

/// A token and its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    /// The token's characters in the query, including quotes; empty at the end of the query.
    pub(super) text: &'a str,
    /// The token's offset in the query, in bytes.
    pub(super) start: usize,
}

impl Token<'_> {
    /// Returns whether the token is this keyword, in upper or lower case.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// Returns whether the token is this sign.
    pub(super) fn is_sign(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.text == sign
    }
}

/// The reserved words. A column with such a name must be written in quotes, because these words may
/// occur where a column's name may occur.
const RESERVED: [&str; 9] =
    ["SELECT", "FROM", "WHERE", "EPOCH", "DURATION", "AND", "OR", "NOT", "BETWEEN"];

/// Returns whether a word is reserved.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

fn starts_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns whether a column's name can be written without quotes.
pub(super) fn is_plain(name: &str) -> bool {
    name.starts_with(starts_word) && name.chars().all(continues_word) && !is_reserved(name)
}

/// An iterator that splits a text into tokens.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the whole text.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, QueryError<'a>> {
        let rest = self.text[self.at..].trim_start();
        let start = self.text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            self.at = start;
            return Ok(Token { kind: Kind::End, text: "", start });
        };
        let run = |continues: fn(char) -> bool| rest.find(|c| !continues(c)).unwrap_or(rest.len());
        let (kind, length) = match first {
            '"' | '\'' => {
                let length = quoted(rest, first).ok_or(QueryError::at(
                    self.text,
                    start,
                    Mistake::Unterminated,
                ))?;
                (if first == '"' { Kind::Quoted } else { Kind::Text }, length)
            }
            '0'..='9' => (Kind::Number, number(rest)),
            _ if starts_word(first) => (Kind::Word, run(continues_word)),
            _ => {
                let two = ["<=", ">=", "!=", "<>"].into_iter().any(|sign| rest.starts_with(sign));
                if !two && !"(),*<>=+-".contains(first) {
                    return Err(QueryError::at(self.text, start, Mistake::UnknownCharacter(first)));
                }
                (Kind::Sign, if two { 2 } else { 1 })
            }
        };
        self.at = start + length;
        Ok(Token { kind, text: &rest[..length], start })
    }
}

/// Returns the length of the quoted text at the start of `rest`. Two quotes in a row within it are
/// one escaped quote.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        at += rest[at..].find(quote)? + 1;
        if !rest[at..].starts_with(quote) {
            return Some(at);
        }
        at += 1;
    }
}

/// Returns the length of the number at the start of `rest`. A point belongs to the number only if a
/// digit follows it.
fn number(rest: &str) -> usize {
    let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(0);
    let fraction = if rest[whole..].starts_with('.') { digits(whole + 1) } else { 0 };
    if fraction > 0 { whole + 1 + fraction } else { whole }
}
