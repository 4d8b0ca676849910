//! Error enums for crates without a heap. One macro defines an error enum, the stable names of its
//! variants (`spec/errors.md`), and the sentences that `Display` writes.

use core::fmt;

/// An error together with its stable name, displayed as `Name: sentence`.
///
/// The `Display` of an error writes only the sentence. Print this type where the name should also
/// appear, for example on stderr or in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Named<'n, E> {
    /// The stable name of `spec/errors.md`.
    pub name: &'n str,
    /// The error.
    pub error: E,
}

impl<E: fmt::Display> fmt::Display for Named<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.error)
    }
}

/// Defines an error enum: each variant's name is the stable name of `spec/errors.md`, and the text
/// after `=>` is the sentence that `Display` writes.
///
/// - A variant may have fields, with or without names. The sentence is a format string and may use
///   them: `Late { epoch: EpochNumber } => "epoch {epoch} has ended"`,
///   `TooLong(bytes: usize) => "{bytes} bytes are too long"`. Arguments follow in parentheses:
///   `Late { by: Duration } => ("late by {} s", by.as_secs())`.
/// - `Variant(error: Inner) => forward` has the name and the sentence of the inner error. The inner
///   error needs a `const fn name(self)`, as every error that this macro defines has.
/// - `Variant(error: Inner) => from` does the same, and also implements `From<Inner>` for the enum.
///
/// The enum is `Copy` and `#[non_exhaustive]`. Its method `name()` returns the stable name, and
/// `named()` returns a value that displays as `Name: sentence`.
///
/// ```
/// moteseal_core::named_errors! {
///     /// Why a lid stays closed.
///     LidError {
///         /// It is locked.
///         Locked => "the lid is locked; unlock it",
///         /// Something heavy is on it.
///         Blocked { kilograms: u32 } => "{kilograms} kg are on the lid; take them away",
///     }
/// }
///
/// moteseal_core::named_errors! {
///     /// Why a box cannot be used.
///     BoxError {
///         /// It does not open.
///         Lid(error: LidError) => from,
///     }
/// }
///
/// let error = BoxError::from(LidError::Blocked { kilograms: 7 });
/// assert_eq!(error.name(), "Blocked");
/// assert_eq!(error.to_string(), "7 kg are on the lid; take them away");
/// assert_eq!(error.named().to_string(), "Blocked: 7 kg are on the lid; take them away");
/// ```
#[macro_export]
macro_rules! named_errors {
    (
        $(#[$doc:meta])*
        $error:ident {
            $(
                $(#[$variant_doc:meta])*
                $variant:ident
                $(( $($inner:ident: $inner_type:ty),+ ))?
                $({ $($(#[$field_doc:meta])* $field:ident: $field_type:ty),+ $(,)? })?
                => $text:tt,
            )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $error {
            $(
                $(#[$variant_doc])*
                $variant
                $(( $($inner_type),+ ))?
                $({ $($(#[$field_doc])* $field: $field_type),+ })?,
            )+
        }

        impl $error {
            /// Returns the stable name of the error (spec/errors.md).
            #[must_use]
            #[allow(unused_variables)]
            pub const fn name(self) -> &'static str {
                match self {
                    $(
                        Self::$variant $(( $($inner),+ ))? $({ $($field),+ })? =>
                            $crate::named_errors!(
                                @name $variant, $text, ($($($inner)+)?)
                            ),
                    )+
                }
            }

            /// Returns the error with its name, displayed as `Name: sentence`.
            #[must_use]
            pub const fn named(self) -> $crate::error::Named<'static, Self> {
                $crate::error::Named { name: self.name(), error: self }
            }
        }

        impl ::core::fmt::Display for $error {
            #[allow(unused_variables)]
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self {
                    $(
                        Self::$variant $(( $($inner),+ ))? $({ $($field),+ })? =>
                            $crate::named_errors!(@text f, $text, ($($($inner)+)?)),
                    )+
                }
            }
        }

        impl ::core::error::Error for $error {}

        $(
            $crate::named_errors!(
                @from $error, $variant, $text, ($($($inner_type),+)?)
            );
        )+
    };

    (@name $variant:ident, forward, ($inner:ident)) => { $inner.name() };
    (@name $variant:ident, from, ($inner:ident)) => { $inner.name() };
    (@name $variant:ident, $text:tt, ($($inner:ident)*)) => { stringify!($variant) };

    (@text $f:ident, forward, ($inner:ident)) => { ::core::fmt::Display::fmt($inner, $f) };
    (@text $f:ident, from, ($inner:ident)) => { ::core::fmt::Display::fmt($inner, $f) };
    (@text $f:ident, ($($text:tt)+), ($($inner:ident)*)) => { ::core::write!($f, $($text)+) };
    (@text $f:ident, $text:literal, ($($inner:ident)*)) => { ::core::write!($f, $text) };

    (@from $error:ident, $variant:ident, from, ($inner:ty)) => {
        impl From<$inner> for $error {
            fn from(error: $inner) -> Self {
                Self::$variant(error)
            }
        }
    };
    (@from $error:ident, $variant:ident, forward, ($inner:ty)) => {};
    (@from $error:ident, $variant:ident, $text:tt, ($($inner:ty),*)) => {};
}
