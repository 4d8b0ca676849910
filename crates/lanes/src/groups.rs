//! Column groups: copies the cells of a group out of the records of a block.

use moteseal_core::record::Framing;
use moteseal_core::schema::Cells;

/// The records that are copied before the next run of cells, so that they stay in the cache.
const RECORDS: usize = 256;

/// Appends the records with only these cells, as they are encoded in a block. `framing` delimits
/// the records in `records`.
pub fn copy_cells(out: &mut Vec<u8>, cells: Cells<'_>, framing: Framing, records: &[u8]) {
    let (Framing::Fixed(from), Framing::Fixed(to), Some(runs)) =
        (framing, cells.framing(), cells.runs())
    else {
        return cells.frame_all(framing, records, |bytes| out.extend_from_slice(bytes));
    };
    let (from, to) = (usize::from(from.get()), usize::from(to.get()));
    let first = out.len();
    out.resize(first + records.len() / from * to, 0);
    let runs: Vec<(usize, usize)> = runs.collect();
    let blocks = out[first..].chunks_mut(RECORDS * to).zip(records.chunks(RECORDS * from));
    for (out, records) in blocks {
        let mut at = 0;
        for &(start, width) in &runs {
            let (out, records) = (out.chunks_exact_mut(to), records.chunks_exact(from));
            let pairs = out.zip(records).map(|(out, record)| (&mut out[at..], &record[start..]));
            match width {
                1 => copy_width::<1>(pairs),
                2 => copy_width::<2>(pairs),
                4 => copy_width::<4>(pairs),
                8 => copy_width::<8>(pairs),
                _ => pairs.for_each(|(out, cell)| out[..width].copy_from_slice(&cell[..width])),
            }
            at += width;
        }
    }
}

/// Returns the number of bytes that [`copy_cells`] appends.
#[must_use]
pub fn copied_length(cells: Cells<'_>, framing: Framing, records: &[u8]) -> usize {
    if let (Framing::Fixed(from), Framing::Fixed(to)) = (framing, cells.framing()) {
        return records.len() / usize::from(from.get()) * usize::from(to.get());
    }
    let mut length = 0;
    cells.frame_all(framing, records, |bytes| length += bytes.len());
    length
}

/// Copies the first `W` bytes of each pair.
fn copy_width<'a, const W: usize>(pairs: impl Iterator<Item = (&'a mut [u8], &'a [u8])>) {
    for (out, cell) in pairs {
        out[..W].copy_from_slice(&cell[..W]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::schema::{Field, GroupLayout, Groups, MAX_SCHEMA, Projection, Schema};

    use super::*;

    #[test]
    fn cells_are_copied_as_they_are_one_by_one() {
        let schemas: [&[&str]; 3] = [
            &["a::u8", "b::u16!@1", "c::u32!@2", "d::u64!@1", "e::u8", "f::i16!@3"],
            &["a::u32", "b::u32!@1", "c::u32!@2", "d::u32!@3"],
            &["a::u8", "b::text9!@1", "c::u32!@2", "d::u16!@2"],
        ];
        for names in schemas {
            let fields: Vec<_> = names.iter().map(|name| Field::parse(name).unwrap()).collect();
            let mut buffer = [0; MAX_SCHEMA];
            let schema = Schema::encode(&fields, &mut buffer).unwrap();
            let layout = GroupLayout::new(&schema, schema.groups()).unwrap();
            let size = [18, 16].into_iter().zip(schemas).find(|(_, of)| *of == names);
            for count in [0, 1, 255, 256, 257, 1000_usize] {
                let mut records = Vec::new();
                for at in 0..count * size.map_or(12, |(size, _)| size) {
                    records.push(((at * 167) >> 3) as u8);
                }
                let framing = match size {
                    Some((size, _)) => Framing::fixed(size).unwrap(),
                    // The record has a text of 2 bytes: 1 + 4 + 2 + 3 bytes, and 2 for the length.
                    None => {
                        for record in records.chunks_mut(12) {
                            record[..2].copy_from_slice(&[0, 10]);
                            record[9] = 2;
                        }
                        Framing::Prefixed
                    }
                };
                for bits in 0..16 {
                    let kept = Groups::from_bits(bits);
                    let projection = Projection::new(&layout, kept);
                    let (mut one_by_one, mut copied) = (vec![7], vec![7]);
                    let cells = projection.cells();
                    cells.frame_all(framing, &records, |bytes| one_by_one.extend_from_slice(bytes));
                    copy_cells(&mut copied, cells, framing, &records);
                    assert_eq!(copied, one_by_one, "{names:?}, groups {bits:#b}, {count} records");
                    assert_eq!(copied_length(cells, framing, &records), copied.len() - 1);
                }
            }
        }
    }
}
