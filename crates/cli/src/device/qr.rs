//! QR codes of provisioning blobs (ISO/IEC 18004; spec/mote.md, section 2), as SVG or PNG.
//!
//! A code contains exactly the bytes of the blob, as one segment in byte mode.

use std::fmt::Write as _;

use clap::ValueEnum;
use qrcodegen::{QrCode, QrCodeEcc, QrSegment, Version};
use zeroize::Zeroizing;

use crate::failure::{Exit, Failure};
use crate::progress::thousands;

/// The error correction levels, from the highest, each with the maximum number of bytes in a code of
/// the largest version.
const LEVELS: [(usize, QrCodeEcc); 4] = [
    (1273, QrCodeEcc::High),
    (1663, QrCodeEcc::Quartile),
    (2331, QrCodeEcc::Medium),
    (2953, QrCodeEcc::Low),
];
/// The width of the light border in modules, which the standard requires.
const BORDER: i32 = 4;
/// The width of a module in pixels.
const PIXELS: i32 = 8;

/// The format of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Svg,
    Png,
}

impl Format {
    /// Returns the extension of a file with this format.
    pub(super) const fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
        }
    }

    /// Returns the image of the code that contains `bytes`.
    ///
    /// # Errors
    /// The failure of [`check_length`].
    pub(super) fn image(self, bytes: &[u8]) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let code = encode(bytes)?;
        match self {
            Self::Svg => Ok(svg(&code)),
            Self::Png => png(&code).map_err(|error| Failure::new(Exit::Internal, error)),
        }
    }
}

/// Checks that a QR code can contain this number of bytes.
///
/// # Errors
/// A usage failure that states the number of bytes and what to do.
pub(super) fn check_length(bytes: usize) -> Result<(), Failure> {
    level(bytes).map(|_| ())
}

/// Returns the highest error correction level with which this number of bytes fits into a code.
fn level(bytes: usize) -> Result<QrCodeEcc, Failure> {
    LEVELS.iter().find(|(most, _)| bytes <= *most).map(|(_, level)| *level).ok_or_else(|| {
        Failure::usage(format_args!(
            "the blob has {} bytes, and a QR code contains at most {}; name fewer columns, or shorter ones, or leave --qr out",
            thousands(bytes as u64),
            thousands(LEVELS[LEVELS.len() - 1].0 as u64)
        ))
    })
}

/// Returns the smallest code that contains `bytes` with the highest level.
fn encode(bytes: &[u8]) -> Result<QrCode, Failure> {
    let level = level(bytes.len())?;
    let segments = [QrSegment::make_bytes(bytes)];
    QrCode::encode_segments_advanced(&segments, level, Version::MIN, Version::MAX, None, false)
        .map_err(|error| Failure::new(Exit::Internal, error))
}

/// Returns the dark runs of each line: line, first column and length. Columns and lines include the
/// border.
fn runs(code: &QrCode) -> impl Iterator<Item = (i32, i32, i32)> + '_ {
    (0..code.size()).flat_map(move |y| {
        let mut x = 0;
        std::iter::from_fn(move || {
            let first = (x..code.size()).find(|x| code.get_module(*x, y))?;
            x = (first..code.size()).find(|x| !code.get_module(*x, y)).unwrap_or(code.size());
            Some((y + BORDER, first + BORDER, x - first))
        })
    })
}

fn svg(code: &QrCode) -> Zeroizing<Vec<u8>> {
    let size = code.size() + 2 * BORDER;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{0}\" viewBox=\"0 0 {size} {size}\" shape-rendering=\"crispEdges\">\n\
         <rect width=\"{size}\" height=\"{size}\" fill=\"#fff\"/>\n<path fill=\"#000\" d=\"",
        size * PIXELS
    );
    for (y, x, length) in runs(code) {
        let _ = write!(text, "M{x} {y}h{length}v1h-{length}z");
    }
    text += "\"/>\n</svg>\n";
    Zeroizing::new(text.into_bytes())
}

fn png(code: &QrCode) -> Result<Zeroizing<Vec<u8>>, png::EncodingError> {
    let size = (code.size() + 2 * BORDER) * PIXELS;
    // A bit for each pixel, the first one in the highest bit; 1 is white. A module is a byte wide.
    let width = size.unsigned_abs() as usize / 8;
    let mut pixels = Zeroizing::new(vec![0xff; width * size.unsigned_abs() as usize]);
    for (y, x, length) in runs(code) {
        for line in y * PIXELS..(y + 1) * PIXELS {
            let first = line.unsigned_abs() as usize * width + x.unsigned_abs() as usize;
            pixels[first..first + length.unsigned_abs() as usize].fill(0);
        }
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let mut encoder = png::Encoder::new(&mut *bytes, size.unsigned_abs(), size.unsigned_abs());
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_the_highest_level_that_fits() {
        let mut lower = 0;
        for (most, level) in LEVELS {
            for length in [lower + 1, most] {
                let code = encode(&vec![0xa5; length]).unwrap();
                assert_eq!(code.error_correction_level(), level, "{length}");
            }
            assert_eq!(encode(&vec![0; most]).unwrap().version(), Version::MAX);
            lower = most;
        }
    }

    #[test]
    fn a_blob_that_does_not_fit_is_an_error_with_its_length() {
        let error = Format::Svg.image(&vec![0; 2954]).unwrap_err();
        assert!(error.to_json()["message"].as_str().unwrap().contains("2,954 bytes"));
        assert!(check_length(2953).is_ok() && check_length(2954).is_err());
    }
}
