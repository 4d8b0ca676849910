//! From a figure to pixels. Everything is drawn at twice the size and averaged down, so that lines are smooth at any slope.

use std::sync::OnceLock;

use plotters::backend::BitMapBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, register_font};

use super::{DrawError, Figure, Panel, Series, Stroke};

/// The size of a figure in pixels.
const WIDTH: u32 = 1600;
const HEIGHT: u32 = 1000;
/// How many times larger it is drawn.
const SCALE: i32 = 2;

const FONT: &str = "figure";
const REGULAR: &[u8] = include_bytes!("../../fonts/DejaVuSans.subset.ttf");
const BOLD: &[u8] = include_bytes!("../../fonts/DejaVuSans-Bold.subset.ttf");

const INK: RGBColor = RGBColor(30, 30, 30);
const FAINT_INK: RGBColor = RGBColor(95, 95, 95);
const GRID: RGBColor = RGBColor(226, 226, 226);

/// Margins in pixels of the figure: what stands beside the panels.
const LEFT: i32 = 130;
const RIGHT: i32 = 50;
const TOP: i32 = 24;
const BOTTOM: i32 = 96;
/// The line above a panel that says what it shows.
const HEADING: i32 = 52;

type Canvas<'a> = DrawingArea<BitMapBackend<'a>, Shift>;

fn failed(error: impl std::fmt::Display) -> DrawError {
    DrawError(error.to_string())
}

pub(super) fn png(figure: &Figure) -> Result<Vec<u8>, DrawError> {
    static FONTS: OnceLock<bool> = OnceLock::new();
    let register = |style, bytes| register_font(FONT, style, bytes).is_ok();
    if !*FONTS.get_or_init(|| register(FontStyle::Normal, REGULAR) && register(FontStyle::Bold, BOLD)) {
        return Err(failed("its font is damaged"));
    }
    let (width, height) = (WIDTH * SCALE.unsigned_abs(), HEIGHT * SCALE.unsigned_abs());
    let mut pixels = vec![255; width as usize * height as usize * 3];
    {
        let canvas = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        Painter { canvas }.figure(figure)?;
    }
    encode(&averaged(&pixels, width as usize))
}

/// Each square of `SCALE * SCALE` pixels as their mean.
fn averaged(pixels: &[u8], width: usize) -> Vec<u8> {
    let scale = SCALE.unsigned_abs() as usize;
    let mut out = Vec::with_capacity(pixels.len() / (scale * scale));
    for rows in pixels.chunks_exact(width * 3 * scale) {
        for x in 0..width / scale {
            for channel in 0..3 {
                let at = |row: usize, column: usize| u32::from(rows[(row * width + x * scale + column) * 3 + channel]);
                let sum: u32 =
                    (0..scale).flat_map(|row| (0..scale).map(move |column| (row, column))).map(|(r, c)| at(r, c)).sum();
                #[allow(clippy::cast_possible_truncation)]
                out.push((sum / (scale * scale) as u32) as u8);
            }
        }
    }
    out
}

fn encode(pixels: &[u8]) -> Result<Vec<u8>, DrawError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

struct Painter<'a> {
    canvas: Canvas<'a>,
}

/// A rectangle of the figure, in its pixels.
#[derive(Clone, Copy)]
struct Frame {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Frame {
    #[allow(clippy::cast_possible_truncation)]
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let along =
            |from: i32, to: i32, place: f64| (f64::from(from * SCALE) + f64::from((to - from) * SCALE) * place).round() as i32;
        (along(self.left, self.right, x), along(self.bottom, self.top, y))
    }
}

impl Painter<'_> {
    fn figure(&self, figure: &Figure) -> Result<(), DrawError> {
        let mut top = TOP;
        self.text(&figure.title, (28, top), 30, Weight::Bold, INK, (HPos::Left, VPos::Top))?;
        top += 46;
        for line in figure.subtitle.lines() {
            self.text(line, (28, top), 20, Weight::Regular, FAINT_INK, (HPos::Left, VPos::Top))?;
            top += 28;
        }
        top = self.legend(figure, top + 14)?;

        let (width, height) = (WIDTH.cast_signed(), HEIGHT.cast_signed());
        let parts = figure.panels.iter().map(|panel| panel.height.cast_signed()).sum::<i32>().max(1);
        let free = height - BOTTOM - top - HEADING * i32::try_from(figure.panels.len()).unwrap_or(1);
        for (i, panel) in figure.panels.iter().enumerate() {
            let frame = Frame {
                left: LEFT,
                top: top + HEADING,
                right: width - RIGHT,
                bottom: top + HEADING + free * panel.height.cast_signed() / parts,
            };
            self.panel(figure, panel, frame, i + 1 == figure.panels.len())?;
            top = frame.bottom;
        }
        self.canvas.present().map_err(failed)
    }

    /// One line with a stroke and a name for each series; where it ends.
    fn legend(&self, figure: &Figure, top: i32) -> Result<i32, DrawError> {
        let mut named: Vec<&Series> = Vec::new();
        for series in figure.panels.iter().flat_map(|panel| &panel.series) {
            if !series.name.is_empty() && !named.iter().any(|other| other.name == series.name) {
                named.push(series);
            }
        }
        let (mut left, mut top) = (28, top);
        for series in named {
            let width = self.width(&series.name, 20)?;
            if left + 60 + width > WIDTH.cast_signed() - 28 {
                (left, top) = (28, top + 32);
            }
            let middle = top + 12;
            self.stroke(
                series,
                &[(left * SCALE, middle * SCALE), ((left + 23) * SCALE, middle * SCALE), ((left + 46) * SCALE, middle * SCALE)],
            )?;
            self.text(&series.name, (left + 58, middle), 20, Weight::Regular, INK, (HPos::Left, VPos::Center))?;
            left += 58 + width + 40;
        }
        Ok(top + 32)
    }

    fn panel(&self, figure: &Figure, panel: &Panel, frame: Frame, is_last: bool) -> Result<(), DrawError> {
        let grid = ShapeStyle { color: GRID.to_rgba(), filled: false, stroke_width: 2 };
        self.text(panel.y.label(), (28, frame.top - 18), 20, Weight::Bold, FAINT_INK, (HPos::Left, VPos::Bottom))?;
        for (value, label) in panel.y.ticks() {
            let Some(y) = panel.y.place(*value) else { continue };
            self.canvas.draw(&PathElement::new([frame.at(0.0, y), frame.at(1.0, y)], grid)).map_err(failed)?;
            let (x, y) = frame.at(0.0, y);
            self.text(label, (x / SCALE - 12, y / SCALE), 20, Weight::Regular, FAINT_INK, (HPos::Right, VPos::Center))?;
        }
        for (value, label) in figure.x.ticks() {
            let Some(x) = figure.x.place(*value) else { continue };
            self.canvas.draw(&PathElement::new([frame.at(x, 0.0), frame.at(x, 1.0)], grid)).map_err(failed)?;
            if is_last {
                let (x, y) = frame.at(x, 0.0);
                self.text(label, (x / SCALE, y / SCALE + 12), 20, Weight::Regular, FAINT_INK, (HPos::Center, VPos::Top))?;
            }
        }
        if is_last {
            let middle = (frame.left + frame.right) / 2;
            self.text(figure.x.label(), (middle, frame.bottom + 50), 20, Weight::Bold, FAINT_INK, (HPos::Center, VPos::Top))?;
        }
        let axis = ShapeStyle { color: FAINT_INK.to_rgba(), filled: false, stroke_width: 3 };
        let zero = panel.y.place(0.0).filter(|_| panel.y.range().0 < 0.0).unwrap_or(0.0);
        self.canvas.draw(&PathElement::new([frame.at(0.0, zero), frame.at(1.0, zero)], axis)).map_err(failed)?;
        for series in &panel.series {
            let mut run = Vec::new();
            for &(x, y) in &series.points {
                match (figure.x.place(x), panel.y.place(y)) {
                    (Some(x), Some(y)) => run.push(frame.at(x, y)),
                    _ => self.stroke(series, &std::mem::take(&mut run))?,
                }
            }
            self.stroke(series, &run)?;
        }
        Ok(())
    }

    /// A run of points, in the canvas's pixels.
    fn stroke(&self, series: &Series, points: &[(i32, i32)]) -> Result<(), DrawError> {
        let (red, green, blue) = series.colour.rgb();
        let colour = RGBColor(red, green, blue);
        let line = |width| ShapeStyle { color: colour.to_rgba(), filled: true, stroke_width: width };
        // A point where the line already is adds nothing, and a join of no length is drawn wrongly.
        let mut path: Vec<_> = points.to_vec();
        path.dedup();
        if path.len() > 1 {
            match series.stroke {
                Stroke::Solid | Stroke::Marked => self.canvas.draw(&PathElement::new(path, line(5))).map_err(failed)?,
                Stroke::Dashed => self.dashes(&path, line(5), (22.0, 12.0))?,
                Stroke::Dotted => self.dashes(&path, line(4), (6.0, 9.0))?,
                Stroke::Dots => {}
            }
        }
        if matches!(series.stroke, Stroke::Dots | Stroke::Marked) {
            // In the legend's short stroke one dot is enough.
            for &point in points {
                self.canvas.draw(&Circle::new(point, 7, line(1))).map_err(failed)?;
            }
        }
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation)]
    fn dashes(&self, path: &[(i32, i32)], style: ShapeStyle, (dash, gap): (f64, f64)) -> Result<(), DrawError> {
        let mut phase = 0.0;
        for ends in path.windows(2) {
            let &[(x0, y0), (x1, y1)] = ends else { continue };
            let (dx, dy) = (f64::from(x1 - x0), f64::from(y1 - y0));
            let length = dx.hypot(dy);
            let at = |along: f64| {
                ((f64::from(x0) + dx * along / length).round() as i32, (f64::from(y0) + dy * along / length).round() as i32)
            };
            let mut along = 0.0;
            while along < length {
                let inked = phase < dash;
                let until = if inked { dash } else { dash + gap };
                let end = (along + until - phase).min(length);
                if inked && at(along) != at(end) {
                    self.canvas.draw(&PathElement::new([at(along), at(end)], style)).map_err(failed)?;
                }
                phase += end - along;
                if phase >= dash + gap - 1e-9 {
                    phase = 0.0;
                }
                // What rounding leaves of a dash is no dash.
                along = if end > along { end } else { length };
            }
        }
        Ok(())
    }

    fn width(&self, text: &str, size: i32) -> Result<i32, DrawError> {
        let style = TextStyle::from((FONT, size * SCALE).into_font());
        let (width, _) = self.canvas.estimate_text_size(text, &style).map_err(failed)?;
        Ok(width.cast_signed() / SCALE)
    }

    fn text(
        &self,
        text: &str,
        (x, y): (i32, i32),
        size: i32,
        weight: Weight,
        colour: RGBColor,
        (h, v): (HPos, VPos),
    ) -> Result<(), DrawError> {
        let font = (FONT, size * SCALE).into_font().style(weight.style());
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(h, v));
        self.canvas.draw(&Text::new(text, (x * SCALE, y * SCALE), style)).map_err(failed)
    }
}

#[derive(Clone, Copy)]
enum Weight {
    Regular,
    Bold,
}

impl Weight {
    const fn style(self) -> FontStyle {
        match self {
            Self::Regular => FontStyle::Normal,
            Self::Bold => FontStyle::Bold,
        }
    }
}
