//! Figures as PNG: lines over time, days or loads, in panels that share the horizontal axis.
//!
//! The same bytes on every machine: the font is ours (`fonts/`), nothing of the system is used. Colours are those of Okabe and Ito,
//! which people tell apart whatever colours they see; lines of one figure also differ in their strokes where they could cross.

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
    /// Grey: for what is there to compare with. Not of the palette.
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
    /// The same, dashed.
    Dashed,
    /// The same, thin and dotted: a bound or a theory.
    Dotted,
    /// Dots alone.
    Dots,
    /// A line with a dot at each point.
    Marked,
    /// A bar from the axis to each point.
    Bars,
}

/// Points that belong together, and what they are.
#[derive(Clone, Debug)]
pub struct Series {
    /// For the legend; empty for none.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// Its stroke.
    pub stroke: Stroke,
    /// The points, in the axes' units; what is not finite interrupts the line.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A series.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        colour: Colour,
        stroke: Stroke,
        points: Vec<(f64, f64)>,
    ) -> Self {
        Self { name: name.into(), colour, stroke, points }
    }

    /// A horizontal line, dotted: a bound.
    #[must_use]
    pub fn level(name: impl Into<String>, colour: Colour, across: &Axis, at: f64) -> Self {
        let (from, to) = across.range();
        Self::new(name, colour, Stroke::Dotted, vec![(from, at), (to, at)])
    }
}

/// One plot above the others' horizontal axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The vertical axis.
    pub y: Axis,
    /// Its part of the height, against the other panels'.
    pub height: u32,
    /// What is plotted; later series lie above.
    pub series: Vec<Series>,
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it shows, in a line.
    pub title: String,
    /// On what data, in a line or two.
    pub subtitle: String,
    /// The horizontal axis of all panels.
    pub x: Axis,
    /// From the top.
    pub panels: Vec<Panel>,
}

impl Figure {
    /// Draws it: the bytes of a PNG of 1,600 by 1,000 pixels.
    ///
    /// # Errors
    /// [`DrawError`], which on a machine with memory does not happen.
    pub fn png(&self) -> Result<Vec<u8>, DrawError> {
        draw::png(self)
    }
}

/// A figure could not be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawError(String);

impl fmt::Display for DrawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot draw the figure: {}", self.0)
    }
}

impl std::error::Error for DrawError {}
