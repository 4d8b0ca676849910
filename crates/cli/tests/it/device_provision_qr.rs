//! `moteseal device provision --qr`: an independent reader gets exactly the blob from the code, and
//! the code's file is as protected as the blob.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use moteseal_core::provision::Provisioning;

use crate::device_provision::{CONFIG, moteseal, site};

/// The width of the border in modules, and of a module in pixels.
const BORDER: usize = 4;
const PIXELS: usize = 8;

/// Runs `device provision` with `--qr` and returns whether it succeeded, and what it printed.
fn provision(folder: &Path, out: &str, format: &str) -> (Option<i32>, String) {
    let output = moteseal(
        folder,
        &["device", "provision", "--config", "mote.toml", "--out", out, "--qr", format],
    );
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Returns the bytes of the only code in a square image, and its error correction level.
fn read_code(size: usize, is_dark: impl Fn(usize, usize) -> bool) -> (Vec<u8>, u16) {
    let mut image = rqrr::PreparedImage::prepare_from_greyscale(size, size, |x, y| {
        if is_dark(x, y) { 0 } else { 255 }
    });
    let grids = image.detect_grids();
    assert_eq!(grids.len(), 1);
    let mut bytes = Vec::new();
    let meta = grids[0].decode_to(&mut bytes).unwrap();
    (bytes, meta.ecc_level)
}

/// Returns the bytes of the code in a PNG file, and its error correction level.
pub fn read_png(path: &Path) -> (Vec<u8>, u16) {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(fs::read(path).unwrap()));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.color_type), (info.height, png::ColorType::Grayscale));
    let size = info.width as usize;
    let is_dark = |x: usize, y: usize| pixels[y * info.line_size + x] == 0;
    assert!((0..BORDER * PIXELS).all(|y| (0..size).all(|x| !is_dark(x, y) && !is_dark(y, x))));
    read_code(size, is_dark)
}

/// Returns the bytes of the code in an SVG file. Draws only the kind of path that the command
/// writes: rectangles of one line.
fn read_svg(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap();
    let between = |start: &str, end: &str| {
        let rest = text.split_once(start).unwrap().1;
        rest.split_once(end).unwrap().0.to_owned()
    };
    let size: usize = between("viewBox=\"0 0 ", " ").parse().unwrap();
    let mut dark = vec![false; size * size];
    for run in between(" d=\"M", "z\"").split("zM") {
        let (place, rest) = run.split_once('h').unwrap();
        let (length, back) = rest.split_once("v1h-").unwrap();
        assert_eq!(length, back);
        let (x, y) = place.split_once(' ').unwrap();
        let first = y.parse::<usize>().unwrap() * size + x.parse::<usize>().unwrap();
        dark[first..first + length.parse::<usize>().unwrap()].fill(true);
    }
    read_code(size * PIXELS, |x, y| dark[y / PIXELS * size + x / PIXELS]).0
}

#[test]
fn a_reader_gets_exactly_the_blob_from_the_code() {
    let site = site();
    let at = |name: &str| site.path().join(name);
    for (format, out) in [("png", "a.bin"), ("svg", "b.bin")] {
        let (code, printed) = provision(site.path(), out, format);
        assert_eq!(code, Some(0), "{printed}");
        let image = at(out).with_extension(format);
        assert!(printed.contains(&format!("{} and {}", out, out.replace("bin", format))));
        assert_eq!([mode(&at(out)), mode(&image)], [0o600; 2], "{format}");
        let blob = fs::read(at(out)).unwrap();
        let read = if format == "png" { read_png(&image).0 } else { read_svg(&image) };
        assert_eq!(read, blob, "{format}");
        Provisioning::decode(&read).unwrap();
    }
    // The number in the code of level H, the highest one.
    assert_eq!(read_png(&at("a.png")).1, 2);
}

#[test]
fn a_long_blob_has_a_lower_level_and_too_long_ones_are_refused() {
    let site = site();
    // Columns whose names have a number of letters and three digits.
    let columns = |count: usize, letters: usize| {
        let columns: Vec<_> = (0..count)
            .map(|at| format!("\"{}{at:03}:Cel:i16/100\"", "x".repeat(letters)))
            .collect();
        let from = "columns = [\"humidity:%RH:u16/100\"]";
        CONFIG.replacen(from, &format!("columns = [{}]", columns.join(",")), 1)
    };
    fs::write(site.path().join("mote.toml"), columns(30, 20)).unwrap();
    let (code, printed) = provision(site.path(), "long.mote", "png");
    assert_eq!(code, Some(0), "{printed}");
    let blob = fs::read(site.path().join("long.mote")).unwrap();
    let (read, level) = read_png(&site.path().join("long.png"));
    assert_eq!(read, blob);
    // The numbers in the code are 2 for H, 3 for Q, 0 for M and 1 for L.
    let expected = match blob.len() {
        0..=1273 => 2,
        1274..=1663 => 3,
        1664..=2331 => 0,
        _ => 1,
    };
    assert_eq!(level, expected, "{}", blob.len());
    assert!(blob.len() > 1273, "{}", blob.len());
    fs::write(site.path().join("mote.toml"), columns(60, 40)).unwrap();
    let (code, printed) = provision(site.path(), "longer.mote", "png");
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("a QR code contains at most 2,953; name fewer columns"), "{printed}");
    assert!(!site.path().join("longer.mote").exists());
}

#[test]
fn an_existing_file_or_another_format_is_refused_and_nothing_is_written() {
    let site = site();
    let at = |name: &str| site.path().join(name);
    fs::write(at("mote.svg"), "kept").unwrap();
    let (code, printed) = provision(site.path(), "mote.bin", "svg");
    assert_eq!(code, Some(2));
    assert!(printed.contains("mote.svg already exists"), "{printed}");
    assert!(!at("mote.bin").exists());
    assert_eq!(fs::read(at("mote.svg")).unwrap(), b"kept");
    fs::write(at("mote.bin"), "kept").unwrap();
    let (code, printed) = provision(site.path(), "mote.bin", "png");
    assert_eq!(code, Some(2));
    assert!(printed.contains("mote.bin already exists"), "{printed}");
    assert!(!at("mote.png").exists());
    let (code, printed) = provision(site.path(), "new.png", "png");
    assert_eq!(code, Some(2));
    assert!(printed.contains("this is the name of the QR code"), "{printed}");
    assert!(!at("new.png").exists());
    let (code, printed) = provision(site.path(), "new.bin", "gif");
    assert_eq!(code, Some(2));
    assert!(printed.contains("svg, png"), "{printed}");
    assert!(!at("new.bin").exists());
}
