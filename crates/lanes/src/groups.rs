//! Column groups: copies the cells of a group out of the records of a block.

use moteseal_core::record::Framing;
use moteseal_core::schema::Cells;

/// Appends the records with only these cells, as they are encoded in a block. `framing` delimits
/// the records in `records`.
pub fn copy_cells(out: &mut Vec<u8>, cells: Cells<'_>, framing: Framing, records: &[u8]) {
    if let (Framing::Fixed(size), Some((start, width))) = (framing, cells.stride()) {
        let records = records.chunks_exact(size.get().into());
        match width {
            1 => copy_width::<1>(out, records, start),
            2 => copy_width::<2>(out, records, start),
            4 => copy_width::<4>(out, records, start),
            8 => copy_width::<8>(out, records, start),
            _ => {
                out.reserve(records.len() * width);
                records.for_each(|record| out.extend_from_slice(&record[start..start + width]));
            }
        }
        return;
    }
    cells.frame_all(framing, records, |bytes| out.extend_from_slice(bytes));
}

/// Appends `W` bytes of each record, from `start` on.
fn copy_width<const W: usize>(
    out: &mut Vec<u8>,
    records: std::slice::ChunksExact<'_, u8>,
    start: usize,
) {
    let first = out.len();
    out.resize(first + records.len() * W, 0);
    let (places, _) = out[first..].as_chunks_mut::<W>();
    for (place, record) in places.iter_mut().zip(records) {
        place.copy_from_slice(&record[start..start + W]);
    }
}
