//! Divides the parts of a response into runs. A run is a sequence of consecutive parts that one
//! signature proves.

use moteseal_api::{RUN_BYTES, RUN_PARTS};
use moteseal_seal::stream::{MAX_RUN_BYTES, MAX_RUN_EVENTS};

/// The size of the current run: the parts since the last signature.
#[derive(Debug, Default)]
pub(super) struct Run {
    parts: usize,
    bytes: u64,
    events: u64,
}

impl Run {
    /// Returns whether the run has no parts.
    pub(super) const fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Adds a part of at most `bytes` bytes that covers `events` events. Returns whether this part
    /// must carry the signature, which ends the run.
    ///
    /// `next` is an upper bound on the size of the next part's records in bytes, or `None` if the
    /// next part cannot be in the same run. If the next part would make the run exceed the limits
    /// of a reader (`spec/answers.md`, section 1.4), the run ends before it.
    pub(super) fn ends(&mut self, bytes: usize, events: u64, next: Option<u64>) -> bool {
        self.parts += 1;
        self.bytes += bytes as u64;
        self.events += events;
        let is_full = self.parts >= RUN_PARTS
            || self.bytes >= RUN_BYTES as u64
            || self.events > MAX_RUN_EVENTS;
        let ends = is_full || next.is_none_or(|next| self.bytes + next > MAX_RUN_BYTES as u64);
        if ends {
            *self = Self::default();
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moteseal_seal::stream::MAX_RUN_PARTS;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_part_that_would_exceed_the_limit_of_a_run_begins_a_new_one() {
        let mut run = Run::default();
        assert!(run.ends(15 * MIB, 10, Some(52 * MIB as u64)), "the run would have 67 MiB");
        assert!(!run.ends(11 * MIB, 10, Some(52 * MIB as u64)));
        assert!(run.ends(52 * MIB, 10, Some(0)), "the run has more than RUN_BYTES");
        assert!(run.ends(1, 1, None), "no part follows");
    }

    #[test]
    fn no_run_exceeds_the_limits_of_spec_formats() {
        let lengths = [
            0,
            1,
            100,
            MIB,
            12 * MIB,
            15 * MIB,
            16 * MIB - 1,
            17 * MIB,
            48 * MIB,
            49 * MIB,
            52 * MIB,
            64 * MIB,
        ];
        let mut seed = 1_u64;
        let mut draw = |most: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap_or(0) % most
        };
        let parts: Vec<(usize, u64)> =
            (0..20_000).map(|_| (lengths[draw(lengths.len())], draw(1 << 24) as u64)).collect();
        let mut run = Run::default();
        let (mut records, mut claimed, mut count) = (0, 0, 0);
        for (i, &(bytes, events)) in parts.iter().enumerate() {
            assert!(claimed <= MAX_RUN_EVENTS, "after parts of {claimed} events");
            (records, claimed, count) = (records + bytes, claimed + events, count + 1);
            assert!(
                records <= MAX_RUN_BYTES && count <= MAX_RUN_PARTS,
                "{records} bytes, {count} parts"
            );
            if run.ends(bytes, events, parts.get(i + 1).map(|&(bytes, _)| bytes as u64)) {
                (records, claimed, count) = (0, 0, 0);
            }
        }
        assert_eq!(count, 0, "the last part is signed");
    }
}
