//! Draws figures: `tiny-skia` strokes the lines, and `ab_glyph` provides the shapes of letters.

use ab_glyph::{Font, FontRef, ScaleFont};
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, Stroke as Pen, StrokeDash,
    Transform,
};

use super::{DrawError, Figure, Panel, Series, Stroke};

/// The size of a figure in pixels.
const WIDTH: u32 = 1600;
const HEIGHT: u32 = 1000;

const REGULAR: &[u8] = include_bytes!("../../fonts/DejaVuSans.subset.ttf");
const BOLD: &[u8] = include_bytes!("../../fonts/DejaVuSans-Bold.subset.ttf");

type Rgb = (u8, u8, u8);
const INK: Rgb = (30, 30, 30);
const FAINT_INK: Rgb = (90, 90, 90);
const GRID: Rgb = (226, 226, 226);

/// The margins around the panels.
const MARGIN: f32 = 28.0;
const LEFT: f32 = 130.0;
const RIGHT: f32 = 56.0;
const BOTTOM: f32 = 100.0;
/// The height of the line of text above a panel, which contains the panel's label.
const HEADING: f32 = 60.0;
/// The length of a stroke in the legend, and the space after a name.
const SAMPLE: f32 = 46.0;
const GAP: f32 = 40.0;

fn failed(error: impl std::fmt::Display) -> DrawError {
    DrawError(error.to_string())
}

pub(super) fn png(figure: &Figure) -> Result<Vec<u8>, DrawError> {
    let mut canvas = Canvas {
        pixels: Pixmap::new(WIDTH, HEIGHT).ok_or_else(|| failed("no memory"))?,
        regular: FontRef::try_from_slice(REGULAR).map_err(failed)?,
        bold: FontRef::try_from_slice(BOLD).map_err(failed)?,
    };
    canvas.pixels.fill(Color::WHITE);
    canvas.figure(figure);
    canvas.encode()
}

struct Canvas {
    pixels: Pixmap,
    regular: FontRef<'static>,
    bold: FontRef<'static>,
}

/// The size, weight and colour of a text.
#[derive(Clone, Copy)]
struct Face {
    size: f32,
    is_bold: bool,
    colour: Rgb,
}

const TITLE: Face = Face { size: 32.0, is_bold: true, colour: INK };
const SUBTITLE: Face = Face { size: 22.0, is_bold: false, colour: FAINT_INK };
const NAME: Face = Face { size: 22.0, is_bold: false, colour: INK };
const MEASURE: Face = Face { size: 21.0, is_bold: true, colour: FAINT_INK };
const TICK: Face = Face { size: 21.0, is_bold: false, colour: FAINT_INK };

/// The alignment of a text: whether it starts at, is centred at, or ends at its point.
#[derive(Clone, Copy)]
enum Along {
    From,
    Around,
    To,
}

/// The area of a panel's plot, in pixels.
#[derive(Clone, Copy)]
struct Frame {
    left: f32,
    top: f32,
    right: f32,
    bottom: f32,
}

impl Frame {
    /// Maps positions along the axes, 0 to 1, to pixels.
    #[allow(clippy::cast_possible_truncation)]
    fn at(&self, x: f64, y: f64) -> (f32, f32) {
        (
            self.left + (self.right - self.left) * x as f32,
            self.bottom - (self.bottom - self.top) * y as f32,
        )
    }
}

#[allow(clippy::cast_precision_loss)]
impl Canvas {
    fn figure(&mut self, figure: &Figure) {
        let mut base = 52.0;
        self.text(&figure.title, (MARGIN, base), TITLE, Along::From);
        base += 12.0;
        for line in figure.subtitle.lines() {
            base += 29.0;
            self.text(line, (MARGIN, base), SUBTITLE, Along::From);
        }
        let top = self.legend(figure, base + 42.0) + 16.0;

        let parts = figure.panels.iter().map(|panel| panel.height).sum::<u32>().max(1) as f32;
        let free = HEIGHT as f32 - BOTTOM - top - HEADING * figure.panels.len() as f32;
        let mut above = top;
        for (i, panel) in figure.panels.iter().enumerate() {
            let top = above + HEADING;
            let frame = Frame {
                left: LEFT,
                top,
                right: WIDTH as f32 - RIGHT,
                bottom: top + free * panel.height as f32 / parts,
            };
            self.panel(figure, panel, frame, i + 1 == figure.panels.len());
            above = frame.bottom;
        }
    }

    /// Draws a stroke and a name for each series, with the base line of the first text at `base`.
    /// Returns the base line of the last text.
    fn legend(&mut self, figure: &Figure, base: f32) -> f32 {
        let mut named: Vec<&Series> = Vec::new();
        for series in figure.panels.iter().flat_map(|panel| &panel.series) {
            if !series.name.is_empty() && !named.iter().any(|other| other.name == series.name) {
                named.push(series);
            }
        }
        let (mut left, mut base) = (MARGIN, base);
        for series in named {
            let width = SAMPLE + 12.0 + self.width(&series.name, NAME);
            if left > MARGIN && left + width > WIDTH as f32 - MARGIN {
                (left, base) = (MARGIN, base + 34.0);
            }
            let middle = base - 0.36 * NAME.size;
            self.series(series, &[(left, middle), (left + SAMPLE, middle)]);
            self.text(&series.name, (left + SAMPLE + 12.0, base), NAME, Along::From);
            left += width + GAP;
        }
        base
    }

    fn panel(&mut self, figure: &Figure, panel: &Panel, frame: Frame, is_last: bool) {
        self.text(panel.y.label(), (MARGIN, frame.top - 20.0), MEASURE, Along::From);
        for (value, label) in panel.y.ticks() {
            let Some(place) = panel.y.place(*value) else { continue };
            let (x, y) = frame.at(0.0, place);
            self.line(&[(x, y), frame.at(1.0, place)], GRID, 1.5, None);
            self.text(label, (x - 14.0, y + 0.36 * TICK.size), TICK, Along::To);
        }
        for (value, label) in figure.x.ticks() {
            let Some(place) = figure.x.place(*value) else { continue };
            let (x, y) = frame.at(place, 0.0);
            self.line(&[(x, y), frame.at(place, 1.0)], GRID, 1.5, None);
            if is_last {
                self.text(label, (x, y + 32.0), TICK, Along::Around);
            }
        }
        if is_last {
            self.text(
                figure.x.label(),
                (f32::midpoint(frame.left, frame.right), frame.bottom + 74.0),
                MEASURE,
                Along::Around,
            );
        }
        // Draw the axis at zero if the range extends below zero, and otherwise at the bottom.
        let zero = if panel.y.range().0 < 0.0 { panel.y.place(0.0).unwrap_or(0.0) } else { 0.0 };
        self.line(&[frame.at(0.0, zero), frame.at(1.0, zero)], FAINT_INK, 2.0, None);
        for series in &panel.series {
            if series.stroke == Stroke::Bars {
                for &(x, y) in &series.points {
                    if let (Some(x), Some(y)) = (figure.x.place(x), panel.y.place(y)) {
                        self.series(series, &[frame.at(x, zero), frame.at(x, y)]);
                    }
                }
                continue;
            }
            let mut run = Vec::new();
            for &(x, y) in &series.points {
                match (figure.x.place(x), panel.y.place(y)) {
                    (Some(x), Some(y)) => run.push(frame.at(x, y)),
                    _ => self.series(series, &std::mem::take(&mut run)),
                }
            }
            self.series(series, &run);
        }
    }

    /// Draws an uninterrupted section of a series.
    fn series(&mut self, series: &Series, run: &[(f32, f32)]) {
        let colour = series.colour.rgb();
        match series.stroke {
            Stroke::Solid => self.line(run, colour, 3.0, None),
            Stroke::Marked => self.line(run, colour, 2.5, None),
            Stroke::Dashed => self.line(run, colour, 3.0, Some([12.0, 8.0])),
            Stroke::Dotted => self.line(run, colour, 2.5, Some([2.5, 6.0])),
            Stroke::Bars => self.line(run, colour, 15.0, None),
            Stroke::Dots => {}
        }
        if matches!(series.stroke, Stroke::Dots | Stroke::Marked) {
            for &(x, y) in run {
                if let Some(dot) = PathBuilder::from_circle(x, y, 4.5) {
                    self.pixels.fill_path(
                        &dot,
                        &paint(colour),
                        FillRule::Winding,
                        Transform::identity(),
                        None,
                    );
                }
            }
        }
    }

    fn line(&mut self, points: &[(f32, f32)], colour: Rgb, width: f32, dash: Option<[f32; 2]>) {
        let mut path = PathBuilder::new();
        for (i, &(x, y)) in points.iter().enumerate() {
            if i == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
        }
        let pen = Pen {
            width,
            line_cap: LineCap::Butt,
            line_join: LineJoin::Round,
            dash: dash.and_then(|dash| StrokeDash::new(dash.to_vec(), 0.0)),
            ..Pen::default()
        };
        // A path needs at least one point.
        if let Some(path) = path.finish() {
            self.pixels.stroke_path(&path, &paint(colour), &pen, Transform::identity(), None);
        }
    }

    const fn font(&self, face: Face) -> &FontRef<'static> {
        if face.is_bold { &self.bold } else { &self.regular }
    }

    fn width(&self, text: &str, face: Face) -> f32 {
        let font = self.font(face).as_scaled(face.size);
        text.chars().map(|letter| font.h_advance(font.glyph_id(letter))).sum()
    }

    /// Draws a text whose base line goes through a point.
    fn text(&mut self, text: &str, (x, y): (f32, f32), face: Face, along: Along) {
        let mut x = match along {
            Along::From => x,
            Along::Around => x - self.width(text, face) / 2.0,
            Along::To => x - self.width(text, face),
        };
        let mut inked = Vec::new();
        let font = self.font(face).as_scaled(face.size);
        for letter in text.chars() {
            let id = font.glyph_id(letter);
            let glyph = id.with_scale_and_position(face.size, ab_glyph::point(x, y));
            if let Some(outline) = font.outline_glyph(glyph) {
                let corner = outline.px_bounds().min;
                outline.draw(|dx, dy, cover| {
                    inked.push((corner.x + dx as f32, corner.y + dy as f32, cover));
                });
            }
            x += font.h_advance(id);
        }
        for (x, y, cover) in inked {
            self.ink(x, y, cover, face.colour);
        }
    }

    /// Blends a colour into a pixel.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn ink(&mut self, x: f32, y: f32, cover: f32, (red, green, blue): Rgb) {
        if x < 0.0 || y < 0.0 || x >= WIDTH as f32 || y >= HEIGHT as f32 {
            return;
        }
        let at = 4 * (y as usize * WIDTH as usize + x as usize);
        let cover = cover.clamp(0.0, 1.0);
        // All pixels are opaque, so alpha stays unchanged.
        for (under, over) in self.pixels.data_mut()[at..].iter_mut().zip([red, green, blue]) {
            *under = (f32::from(*under) * (1.0 - cover) + f32::from(over) * cover).round() as u8;
        }
    }

    fn encode(&self) -> Result<Vec<u8>, DrawError> {
        let pixels: Vec<_> = self
            .pixels
            .data()
            .chunks_exact(4)
            .flat_map(|pixel| [pixel[0], pixel[1], pixel[2]])
            .collect();
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, WIDTH, HEIGHT);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(bytes)
    }
}

fn paint((red, green, blue): Rgb) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, 255);
    paint
}
