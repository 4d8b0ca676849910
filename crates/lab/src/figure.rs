//! Draws figures as PNG: lines over time, days or loads, in panels that share the horizontal axis.
//!
//! The PNG bytes are the same on every machine: the font is part of the crate (`fonts/`), and
//! drawing uses no resource of the system. The colours are from the palette of Okabe and Ito, which
//! people with impaired colour vision can distinguish. Lines that may cross also differ in their
//! strokes.

mod axis;
mod draw;

use std::fmt;

pub use axis::Axis;

/// A colour of Okabe and Ito's palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Black.
    Black,
    /// Blue.
    Blue,
    /// Vermillion.
    Vermillion,
    /// Bluish green.
    Green,
    /// Reddish purple.
    Purple,
    /// Orange.
    Orange,
    /// Grey, for reference values. It is not in the palette.
    Grey,
}

impl Colour {
    const fn rgb(self) -> (u8, u8, u8) {
        match self {
            Self::Black => (0, 0, 0),
            Self::Blue => (0, 114, 178),
            Self::Vermillion => (213, 94, 0),
            Self::Green => (0, 158, 115),
            Self::Purple => (204, 121, 167),
            Self::Orange => (230, 159, 0),
            Self::Grey => (120, 120, 120),
        }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A line from point to point.
    Solid,
    /// A dashed line.
    Dashed,
    /// A thin dotted line, for a bound or a theory.
    Dotted,
    /// Dots without a line.
    Dots,
    /// A line with a dot at each point.
    Marked,
    /// A bar from the axis to each point.
    Bars,
}

/// A named sequence of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the legend; empty if the series is not in the legend.
    pub name: String,
    /// The colour of the series.
    pub colour: Colour,
    /// The stroke of the series.
    pub stroke: Stroke,
    /// The points, in the axes' units. A value that is not finite interrupts the line.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Creates a series.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        colour: Colour,
        stroke: Stroke,
        points: Vec<(f64, f64)>,
    ) -> Self {
        Self { name: name.into(), colour, stroke, points }
    }

    /// Creates a dotted horizontal line that shows a bound.
    #[must_use]
    pub fn level(name: impl Into<String>, colour: Colour, across: &Axis, at: f64) -> Self {
        let (from, to) = across.range();
        Self::new(name, colour, Stroke::Dotted, vec![(from, at), (to, at)])
    }
}

/// One plot; all panels of a figure share the horizontal axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The vertical axis.
    pub y: Axis,
    /// The height of the panel, relative to the heights of the other panels.
    pub height: u32,
    /// The plotted series; later series cover earlier ones.
    pub series: Vec<Series>,
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The title, one line.
    pub title: String,
    /// The subtitle, one or two lines, which describes the data.
    pub subtitle: String,
    /// The horizontal axis of all panels.
    pub x: Axis,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
}

impl Figure {
    /// Draws the figure and returns a PNG of 1,600 by 1,000 pixels.
    ///
    /// # Errors
    /// [`DrawError`] if memory is exhausted.
    pub fn png(&self) -> Result<Vec<u8>, DrawError> {
        draw::png(self)
    }
}

/// The error if a figure cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawError(String);

impl fmt::Display for DrawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot draw the figure: {}", self.0)
    }
}

impl std::error::Error for DrawError {}
