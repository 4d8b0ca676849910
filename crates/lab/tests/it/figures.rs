//! Reads figures and tables that a report has written.

use std::fs;
use std::path::Path;

/// The colours of series: the palette of Okabe and Ito, and grey.
const PALETTE: [(&str, [u8; 3]); 7] = [
    ("black", [0, 0, 0]),
    ("blue", [0, 114, 178]),
    ("vermillion", [213, 94, 0]),
    ("green", [0, 158, 115]),
    ("purple", [204, 121, 167]),
    ("orange", [230, 159, 0]),
    ("grey", [120, 120, 120]),
];
/// The colour of the lines of the grid, which is only within the plots.
const GRID: [u8; 3] = [226, 226, 226];
/// The size of every figure, in pixels.
const SIZE: (u32, u32) = (1600, 1000);
/// The first and the last point of a series are further apart than this, in pixels.
const SPREAD: usize = 200;

/// Returns the colours of the series that are drawn in the plots of a figure. The legend, which is
/// above the plots, does not count. Texts and axes have other colours. A
/// series of which only one point is drawn does not count either.
pub(crate) fn drawn(png: &Path) -> Vec<&'static str> {
    let file = std::io::BufReader::new(fs::File::open(png).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), SIZE, "{}", png.display());
    let pixels = pixels.as_chunks::<3>().0;
    let top = pixels.iter().position(|pixel| *pixel == GRID);
    let top = top.unwrap_or_else(|| panic!("{} has no plot", png.display()));
    let plots = &pixels[top..];
    let is_drawn = |colour: [u8; 3]| {
        let places = (0..).zip(plots).filter(|(_, pixel)| **pixel == colour);
        let columns = places.map(|(at, _): (usize, _)| (at + top) % info.width as usize);
        let (first, last) = (columns.clone().min(), columns.max());
        first.zip(last).is_some_and(|(first, last)| last - first > SPREAD)
    };
    PALETTE.iter().filter(|(_, colour)| is_drawn(*colour)).map(|(name, _)| *name).collect()
}

/// Returns the number of rows of a table. Asserts that each row has a cell for each column, and that
/// all numbers are finite.
pub(crate) fn rows(csv: &Path) -> usize {
    let mut reader = csv::Reader::from_path(csv).unwrap();
    let rows = reader.records().map(|row| {
        for cell in &row.unwrap_or_else(|error| panic!("{}: {error}", csv.display())) {
            let number = cell.parse().unwrap_or(0.0_f64);
            assert!(number.is_finite(), "{}: {cell}", csv.display());
        }
    });
    rows.count()
}
