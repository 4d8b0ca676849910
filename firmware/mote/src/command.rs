//! The commands that motes receive in broadcasts. Each message is one command, as text
//! (spec/mote.md, section 4).

use core::fmt;

use moteseal_core::record::Scheme;

use crate::durable::Settings;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `interval=MS`: the interval between two readings, in milliseconds.
    Interval(u32),
    /// `led on`, `led off`: switches the LED.
    Led(bool),
    /// `scheme=star`, `scheme=tree`: the scheme of the seals that the mote opens from now on.
    Scheme(Scheme),
    /// `install VERSION`: installs the received image of this version.
    Install(u32),
}

impl Command {
    /// Parses a message. Returns `None` if it is not a command.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(message).ok()?.trim_ascii();
        Some(match text {
            "led on" => Self::Led(true),
            "led off" => Self::Led(false),
            "scheme=star" => Self::Scheme(Scheme::Star),
            "scheme=tree" => Self::Scheme(Scheme::Tree),
            _ => match text.strip_prefix("install ") {
                Some(digits) => Self::Install(number(digits)?),
                None => Self::Interval(number(text.strip_prefix("interval=")?)?),
            },
        })
    }

    /// Returns the settings after this command.
    #[must_use]
    pub const fn applied(self, settings: Settings) -> Settings {
        match self {
            Self::Interval(interval_ms) => Settings { interval_ms, ..settings },
            Self::Led(led) => Settings { led, ..settings },
            Self::Scheme(scheme) => Settings { scheme, ..settings },
            Self::Install(_) => settings,
        }
    }
}

/// Parses a decimal number. Checks the digits first, because `parse` would also accept a plus sign.
fn number(digits: &str) -> Option<u32> {
    let are_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| are_digits)
}

impl fmt::Display for Command {
    /// Writes the command in the form that a message has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval(ms) => write!(f, "interval={ms}"),
            Self::Led(true) => f.write_str("led on"),
            Self::Led(false) => f.write_str("led off"),
            Self::Scheme(scheme) => write!(f, "scheme={}", scheme.as_str()),
            Self::Install(version) => write!(f, "install {version}"),
        }
    }
}
