//! The types of the tables of lies, and the data that a lying cloud has.

use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, SealIndex};

use crate::holdings::Holdings;
use crate::query::Question;
use crate::response::Answer;

/// The id under which an [`Accomplice`] signs as the coordinator of a group with a budget.
pub const COORDINATOR: DeviceId = DeviceId([0xff; 8]);

/// A function that signs a message as a colluding device or, for [`COORDINATOR`], as a colluding
/// coordinator. It returns `None` if the device or coordinator does not collude.
pub type Accomplice<'a> = dyn Fn(DeviceId, &[u8]) -> Option<Vec<u8>> + 'a;

/// The data that a lying cloud uses.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// All bundles that the cloud has.
    pub holdings: &'a Holdings,
    /// The query.
    pub question: Question,
    /// Signs messages as colluding devices; `None` for a cloud that acts alone.
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
    /// Stars and trees.
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

/// The error name that a verifier of the explaining form reports, for each scheme.
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
    /// The lie's name, in lower case with hyphens.
    pub name: &'static str,
    /// A short description.
    pub what: &'static str,
    /// The error names with which a verifier may reject the lie.
    pub expected: &'static [&'static str],
    /// The error name that a verifier of the explaining form reports, if the lie is rejected
    /// because a run is not proven (`NotAuthentic`).
    pub explained: Option<Explains>,
    /// The schemes to which the lie applies.
    pub schemes: Schemes,
    /// Whether the altered answer has tens of megabytes.
    pub heavy: bool,
    /// Applies the lie to an answer. If the lie cannot be applied, returns false and leaves the
    /// answer unchanged.
    pub alter: fn(&mut Answer, &Context<'_>) -> bool,
}

/// The two fields of the item of an explaining form.
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
    /// The lie's name.
    pub name: &'static str,
    /// A short description.
    pub what: &'static str,
    /// The error names that a verifier may report.
    pub expected: &'static [&'static str],
    /// The schemes to which the lie applies.
    pub schemes: Schemes,
    /// Returns the lie that replaces the honest explaining form of a seal; `None` if the cloud
    /// withholds the explaining form.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lie_has_the_schemes_and_the_names_that_its_table_states() {
        let general = lie("bent", "what it does", &["NotAuthentic"], |_, _| true);
        assert_eq!((general.name, general.what, general.heavy), ("bent", "what it does", false));
        assert_eq!((general.schemes, general.explained), (Schemes::Both, None));
        let special = general.explained("Block", "Leaf").only(Schemes::Tree);
        let explains: fn(Explains, Scheme) -> &'static str = Explains::of;
        let names = special
            .explained
            .map(|names| [Scheme::Star, Scheme::Tree].map(|scheme| explains(names, scheme)));
        assert_eq!(names, Some(["Block", "Leaf"]));
        let include: fn(Schemes, Scheme) -> bool = Schemes::include;
        for (schemes, star, tree) in [
            (Schemes::Both, true, true),
            (Schemes::Star, true, false),
            (special.schemes, false, true),
        ] {
            assert_eq!(
                (include(schemes, Scheme::Star), include(schemes, Scheme::Tree)),
                (star, tree)
            );
        }
    }
}
