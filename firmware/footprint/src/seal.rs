//! The end of an epoch on a mote: makes the statement and the message to sign, calls the signer,
//! and writes the part item to send.

use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::signature::Algorithm;
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::stream::{Selection, encode_part_head, encode_part_tail};
use moteseal_seal::{MAX_MESSAGE, Seal, Statement, star};

use crate::{Input, failed};

/// The state of a mote that a seal needs, apart from the star.
pub struct Chain {
    group: GroupId,
    roster: Digest,
    schema: Digest,
    prev: Digest,
}

impl Chain {
    /// Reads the state from the input.
    pub fn of(input: &mut Input) -> Self {
        let group = GroupId(input.fixed());
        let [roster, schema, prev] = core::array::from_fn(|_| Digest(input.fixed()));
        Self { group, roster, schema, prev }
    }

    /// Makes the seal's statement from the counters and digests of a closed star, calls the signer,
    /// and writes the part item without its events. Returns the length of the item in bytes.
    #[inline(never)]
    pub fn seal<const L: usize>(
        &self,
        (device, index, salt): (DeviceId, SealIndex, Salt),
        (counters, digests): &(Counters, [Digest; L]),
        sign: &mut dyn FnMut(&[u8], &mut [u8; 64]),
        out: &mut [u8],
    ) -> usize {
        let mut statement = Statement::new(Scheme::Star, self.group, self.roster, device, L as u8);
        (statement.index, statement.prev, statement.epoch) =
            (index, self.prev, EpochNumber(480_000));
        (statement.last, statement.last_in_epoch) =
            (Some((SealIndex(index.0 - 1), EpochNumber(479_999))), true);
        (statement.schema, statement.salt, statement.counters) = (self.schema, salt, *counters);
        let seal = Seal::new(statement, star::root(counters, digests), Algorithm::Ed25519);
        let mut signature = [0; 64];
        {
            let mut message = [0; MAX_MESSAGE];
            sign(seal.message(&mut message), &mut signature);
        }
        let mut out = Writer::new(out);
        let written = encode_part_head(
            &mut out,
            &seal,
            Selection::Levels(seal.statement().surviving()),
            &[],
            0,
        )
        .and_then(|()| encode_part_tail(&mut out, Some(&signature)));
        if written.is_err() {
            failed("part");
        }
        out.finish().len()
    }
}
