//! The table of lies: what each does, by which names it is refused, and what the explaining form then shows.

use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, SealIndex};

use crate::answer::Answer;
use crate::holdings::Holdings;
use crate::question::Question;

/// As whom the coordinator of a group with a budget is asked to be in on a lie.
pub const COORDINATOR: DeviceId = DeviceId([0xff; 8]);

/// Signs a message as a device does, or as [`COORDINATOR`]; `None` for one that is not in on it.
pub type Accomplice<'a> = dyn Fn(DeviceId, &[u8]) -> Option<Vec<u8>> + 'a;

/// What a liar has to lie with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// All that the cloud holds.
    pub holdings: &'a Holdings,
    /// What was asked.
    pub question: Question,
    /// The signature of a device over a message: for what only a device that is in on it can do. `None` for a cloud alone.
    pub accomplice: Option<&'a Accomplice<'a>>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("question", &self.question).finish_non_exhaustive()
    }
}

/// Which schemes a lie can be told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schemes {
    /// Stars only.
    Star,
    /// Trees only.
    Tree,
    /// Both.
    Both,
}

impl Schemes {
    /// Whether this is one of them.
    #[must_use]
    pub const fn include(self, scheme: Scheme) -> bool {
        matches!(
            (self, scheme),
            (Self::Both, _) | (Self::Star, Scheme::Star) | (Self::Tree, Scheme::Tree)
        )
    }
}

/// What the explaining form names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explains {
    /// Of a star.
    pub star: &'static str,
    /// Of a tree.
    pub tree: &'static str,
}

impl Explains {
    /// The name for a scheme.
    #[must_use]
    pub const fn of(self, scheme: Scheme) -> &'static str {
        match scheme {
            Scheme::Star => self.star,
            Scheme::Tree => self.tree,
        }
    }
}

/// A lie about an answer.
#[derive(Clone, Copy, Debug)]
pub struct Lie {
    /// Its name: lower case, words joined by hyphens.
    pub name: &'static str,
    /// What it does, in a few words.
    pub what: &'static str,
    /// The names by which a verifier refuses it: one of these.
    pub expected: &'static [&'static str],
    /// What the explaining form names, where the refusal is that of an unproven run (`NotAuthentic`).
    pub explained: Option<Explains>,
    /// Which schemes it can be told about.
    pub schemes: Schemes,
    /// Whether it moves tens of megabytes.
    pub heavy: bool,
    /// Tells it. False if this answer gives no occasion: then it is unchanged.
    pub alter: fn(&mut Answer, &Context<'_>) -> bool,
}

/// An explaining form: the item's two fields, or nothing where it is withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The tagged `COSE_Sign1`.
    pub seal: Vec<u8>,
    /// The digests, joined.
    pub digests: Vec<u8>,
}

/// A lie about the explaining form of a seal whose run was altered.
#[derive(Clone, Copy, Debug)]
pub struct ExplainLie {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a few words.
    pub what: &'static str,
    /// What a verifier names: one of these.
    pub expected: &'static [&'static str],
    /// Which schemes it can be told about.
    pub schemes: Schemes,
    /// What is given in place of the honest explanation of this seal; `None` withholds it.
    pub alter: fn(&Explanation, DeviceId, SealIndex, &Context<'_>) -> Option<Explanation>,
}

type Alter = fn(&mut Answer, &Context<'_>) -> bool;

pub(crate) const fn lie(
    name: &'static str,
    what: &'static str,
    expected: &'static [&'static str],
    alter: Alter,
) -> Lie {
    Lie { name, what, expected, explained: None, schemes: Schemes::Both, heavy: false, alter }
}

impl Lie {
    pub(crate) const fn explained(self, star: &'static str, tree: &'static str) -> Self {
        Self { explained: Some(Explains { star, tree }), ..self }
    }

    pub(crate) const fn only(self, schemes: Schemes) -> Self {
        Self { schemes, ..self }
    }
}
