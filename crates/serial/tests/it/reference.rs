//! A slow reference implementation of spec/serial.md, which works on whole byte strings and divides
//! polynomials bit by bit.

/// Encodes a packet with COBS, without the surrounding zeros. Appends a zero to the packet, divides
/// the bytes before each zero into pieces of at most 254 bytes, and puts a code byte, the length
/// plus 1, before each piece.
pub(crate) fn stuffed(packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for run in packet.split(|byte| *byte == 0) {
        let mut rest = run;
        while rest.len() >= 254 {
            out.push(255);
            out.extend(&rest[..254]);
            rest = &rest[254..];
        }
        out.push(u8::try_from(rest.len()).unwrap() + 1);
        out.extend(rest);
    }
    // A full run at the end of the packet is not followed by an empty run.
    let ends_full = packet
        .rsplit(|byte| *byte == 0)
        .next()
        .is_some_and(|run| !run.is_empty() && run.len().is_multiple_of(254));
    if ends_full {
        out.pop();
    }
    out
}

/// Decodes COBS without the surrounding zeros.
pub(crate) fn unstuffed(mut stuffed: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let Some((&code, rest)) = stuffed.split_first() {
        let (run, rest) = rest.split_at_checked(usize::from(code).checked_sub(1)?)?;
        if run.contains(&0) {
            return None;
        }
        out.extend(run);
        if code < 255 && !rest.is_empty() {
            out.push(0);
        }
        stuffed = rest;
    }
    Some(out)
}

/// Computes CRC-32 of IEEE 802.3. The bits of the message, lowest bit of each byte first, are a
/// polynomial. The function inverts its first 32 bits, multiplies it by x^32, divides it by the
/// polynomial of the CRC, and inverts and reverses the remainder.
pub(crate) fn crc32(message: &[u8]) -> u32 {
    let mut bits: Vec<bool> =
        message.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect();
    bits.extend([false; 32]);
    bits.iter_mut().take(32).for_each(|bit| *bit = !*bit);
    let polynomial: Vec<bool> =
        (0..33).map(|bit| 0x1_04c1_1db7_u64 >> (32 - bit) & 1 == 1).collect();
    for at in 0..bits.len() - 32 {
        if bits[at] {
            bits[at..].iter_mut().zip(&polynomial).for_each(|(bit, term)| *bit ^= term);
        }
    }
    let remainder = &bits[bits.len() - 32..];
    !remainder.iter().enumerate().fold(0, |value, (at, bit)| value | u32::from(*bit) << at)
}

/// Returns an encoded packet with the surrounding zeros. `binding` consists of the sender's
/// session, the receiver's session and the sequence number.
pub(crate) fn packet(kind: u8, binding: Option<(u64, u64, u32)>, body: &[u8]) -> Vec<u8> {
    let (sender, receiver, number) = binding.unwrap_or_default();
    let mut covered = Vec::new();
    if binding.is_some() {
        covered.extend(sender.to_be_bytes());
        covered.extend(receiver.to_be_bytes());
        covered.extend(number.to_be_bytes());
    }
    let mut packet = vec![kind, number.to_be_bytes()[3]];
    packet.extend(body);
    covered.extend(&packet);
    packet.extend(crc32(&covered).to_be_bytes());
    [vec![0], stuffed(&packet), vec![0]].concat()
}
