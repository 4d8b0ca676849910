//! The type of a lie, and the data that a lying cloud has.

use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, SealIndex};

use crate::answer::Answer;
use crate::holdings::Holdings;
use crate::question::Question;

/// The id under which an [`Accomplice`] signs as the coordinator of a group with a budget.
pub const COORDINATOR: DeviceId = DeviceId([0xff; 8]);

/// Signs a message as a device, or as [`COORDINATOR`]; `None` for one that does not collude.
pub type Accomplice<'a> = dyn Fn(DeviceId, &[u8]) -> Option<Vec<u8>> + 'a;

/// What a lying cloud has.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Everything that the cloud holds.
    pub holdings: &'a Holdings,
    /// The query.
    pub question: Question,
    /// The signature of a colluding device over a message; `None` for a cloud that acts alone.
    pub accomplice: Option<&'a Accomplice<'a>>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("question", &self.question).finish_non_exhaustive()
    }
}

/// The schemes to which a lie applies.
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
    /// Returns whether the set includes a scheme.
    #[must_use]
    pub const fn include(self, scheme: Scheme) -> bool {
        matches!(
            (self, scheme),
            (Self::Both, _) | (Self::Star, Scheme::Star) | (Self::Tree, Scheme::Tree)
        )
    }
}

/// The name that the explaining form reports, for each scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explains {
    /// For a star.
    pub star: &'static str,
    /// For a tree.
    pub tree: &'static str,
}

impl Explains {
    /// Returns the name for a scheme.
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
    /// A short description.
    pub what: &'static str,
    /// The error names with which a verifier may reject it.
    pub expected: &'static [&'static str],
    /// The name that the explaining form reports, if the verifier rejects an unproven run
    /// (`NotAuthentic`).
    pub explained: Option<Explains>,
    /// The schemes to which it applies.
    pub schemes: Schemes,
    /// Whether it produces tens of megabytes.
    pub heavy: bool,
    /// Applies the lie. Returns false, and leaves the answer unchanged, if the lie does not apply
    /// to it.
    pub alter: fn(&mut Answer, &Context<'_>) -> bool,
}

/// An explaining form: the two fields of its item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The tagged `COSE_Sign1`.
    pub seal: Vec<u8>,
    /// The digests, concatenated.
    pub digests: Vec<u8>,
}

/// A lie about the explaining form of a seal whose run was altered.
#[derive(Clone, Copy, Debug)]
pub struct ExplainLie {
    /// Its name.
    pub name: &'static str,
    /// A short description.
    pub what: &'static str,
    /// The names that a verifier may report.
    pub expected: &'static [&'static str],
    /// The schemes to which it applies.
    pub schemes: Schemes,
    /// Returns the replacement for the honest explanation of a seal; `None` withholds it.
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
