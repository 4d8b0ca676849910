//! The protocols of Moteseal, explained to a user. This module has no code.
//!
//! Moteseal is for networks in which small devices (motes) take measurements, an untrusted cloud
//! stores them, and applications read them. Three protocols share identities, rosters and
//! signatures:
//!
//! | you want to | protocol | crate | chapter |
//! |---|---|---|---|
//! | read stored readings and know that the devices made them | sealing | `moteseal-seal` | [`sealing`], [`sampling`] |
//! | learn the sum or average of many readings, but no single reading | private sums | `moteseal-sum` | [`sums`] |
//! | send commands or firmware to many motes at once | broadcast | `moteseal-broadcast` | [`broadcast`] |
//!
//! Start with [`trust`]: it explains who signs what, and what each party can and cannot do.
//!
//! # Words
//!
//! An *event* is one reading (or any other record) of a device. Time is divided into *epochs* of
//! equal length, for example an hour. A *seal* is a device's signature over all its events of an
//! epoch. A *group* is a set of devices with a common *roster*, the signed list of their keys.
//! ARCHITECTURE.md has the full glossary, and `spec/` defines every byte.

pub mod trust {
    //! Who signs what, and what follows from it.
    //!
    //! - The **operator** runs a group. The operator's key is the root of trust: it certifies the
    //!   key of each device and signs the roster. Every reader needs the operator's public key,
    //!   obtained over a channel that the reader trusts. Keep the private key offline; it is needed
    //!   only when devices change.
    //! - A **device** signs its seals with its own key. An attacker with this key can invent
    //!   readings of this device, but not of others, and cannot change what was sealed and stored
    //!   before.
    //! - The **coordinator** is a gateway near the devices. If the group has a budget, it decides
    //!   per epoch how many events are kept, and signs that decision. Readers recompute the
    //!   decision from numbers that the devices have signed, so a coordinator that keeps too much
    //!   or too little is detected.
    //! - The **cloud** stores and serves. It signs nothing and is not trusted: it can refuse
    //!   service, but the reader detects and rejects data that the cloud has altered, invented,
    //!   reordered or left out.
    //! - A **reader** verifies. It needs only the operator's public key, the roster, and a
    //!   connection to the cloud.
    //! - A **base station** signs broadcasts, or certifies the senders that do.
    //!
    //! # What is checked where
    //!
    //! [`Roster::open`](crate::roster::Roster::open) checks the operator's signature, every
    //! certificate, and the consistency of the whole roster, once. After that, reading from the
    //! roster cannot fail.
    //!
    //! Trust is part of the type. A seal that has been decoded is a `Seal<Unverified>`; only a
    //! valid signature, or the hash chain from a later valid signature, turns it into a
    //! `Seal<Authentic>`. Events can be read only from an authentic sample.
    //!
    //! # What is not protected
    //!
    //! Moteseal authenticates what a device reports. It cannot tell whether a sensor measures
    //! correctly. It does not encrypt stored events: use transport and disk encryption for that.
    //! Private sums hide single readings from the aggregators; see [`sums`](super::sums).
}

pub mod sealing {
    //! How a device signs once per epoch, and how a reader verifies any part of the epoch.
    //!
    //! # The device
    //!
    //! Signing every event is too expensive for a mote. A device instead folds each event into a
    //! running hash state and signs the result when the epoch ends:
    //!
    //! 1. The device numbers its events 0, 1, 2, ... and computes the *level* of each number with a
    //!    keyed hash. Half of the events have level 0, a quarter level 1, and so on.
    //! 2. It adds the event to its state. The state is a **star** (one running digest per level) or
    //!    a **tree** (a Merkle tree as in RFC 9162). A star needs the least memory and lets the
    //!    cloud serve any set of levels; a tree also lets it serve single events.
    //! 3. At the end of the epoch it signs a *statement*: device, epoch, number of events per
    //!    level, the digest of its previous seal, and the root of the star or tree.
    //!
    //! The secret salt of the hash is different for each seal and becomes public with the
    //! signature. No one, not even an attacker who influences the sensor, can choose the level of
    //! an event.
    //!
    //! # The reader
    //!
    //! A reader that receives some events of an epoch, with the digests of the others, recomputes
    //! the root and the statement. If the device's signature matches the result, then every event
    //! is authentic, and the reader also knows how many events it did not receive.
    //!
    //! # The chain
    //!
    //! Each seal contains the digest of its predecessor. One signature therefore proves a *run* of
    //! up to 256 consecutive seals, and a missing seal is detected: the cloud cannot leave out an
    //! epoch without a visible gap. A device that has restarted states this in its next seal, so a
    //! reader can distinguish an outage from withheld data. Two different seals with the same index
    //! prove that the device's key is used in two places.
    //!
    //! # Urgent events
    //!
    //! An event that cannot wait for the end of the epoch is signed individually and sent at once.
    //! It is also part of the epoch's seal.
}

pub mod sampling {
    //! How to read or keep only some of the events, without letting anyone choose which ones.
    //!
    //! # Samples
    //!
    //! Level `i` contains an event with probability `2^-(i+1)`, independent of its content. The
    //! levels from `j` on are therefore a uniform sample at rate `2^-j`, which the cloud can serve
    //! with a proof that is smaller than the events. A reader can also request another rate, or for
    //! example at most 1,000 events per epoch; the cloud then serves a combination of levels. A
    //! reader checks that exactly the levels of its query were served: the cloud has no choice, so
    //! it cannot select events to its advantage.
    //!
    //! A star serves whole levels. A tree serves any events; for a sample of an exact size the
    //! reader gives a random seed, from which both sides compute the same positions.
    //!
    //! # Budgets
    //!
    //! A group may have a *budget*: the largest number of events per epoch that its uplink or its
    //! cloud can accept. The coordinator then announces *rounds*. Round `j` means that only levels
    //! from `j` on are kept. The coordinator raises the round when more events arrive than the
    //! budget allows. Every device then drops the events of lower levels that it still stores. What
    //! remains at the end of the epoch is a uniform sample of the events of all devices, and it
    //! fits the budget.
    //!
    //! The coordinator signs a *manifest* of each epoch: the final round and the digests of all
    //! seals. The audit compares the round with the round that the counters in the seals require.
}

pub mod sums {
    //! How a querier learns a sum over many motes without anyone learning a single reading.
    //!
    //! Every mote shares a secret with the querier. For each epoch both derive a fresh key from it.
    //! A mote adds its key to its reading and sends the result, a *partial state record*, to its
    //! parent in a tree of aggregators. An aggregator adds the records of its children and passes
    //! one record on. It sees only values that are masked by unknown keys. The querier subtracts
    //! the keys of all motes that took part and obtains the sum.
    //!
    //! A secret share in each record makes the sum verifiable: if a record was changed, added twice
    //! or left out, the querier detects that the sum is wrong. The querier then asks for the
    //! records of smaller subtrees until it finds where the fault occurred (fault localisation).
    //!
    //! # What keeps single readings private
    //!
    //! - A query states a *floor*, the smallest number of participants for which a sum may be
    //!   shown. A mote rejects a query whose floor is below the permitted minimum. The querier
    //!   shows no sum with fewer participants than the floor.
    //! - A mote answers each epoch of a query at most once, even after a restart. Two answers for
    //!   one epoch would let the querier subtract them.
    //! - Each seal states which query epochs the device has answered. An audit can compare this
    //!   statement with the participants that the querier reports.
    //!
    //! Counts, sums, averages, variances and histograms of a column are sums of suitable values, so
    //! one mechanism computes all of them.
}

pub mod broadcast {
    //! How motes accept commands from a base station over a link that anyone can write to.
    //!
    //! A base station sends messages to all motes at once, for example the parts of a firmware
    //! image or a query schedule. It arranges the messages into *blocks*, one after the other in a
    //! *chain*, and signs only the *head* of the chain. The head has the digest of the first block
    //! and a tag of 8 bytes for each message of that block. The last packet of each block has the
    //! digest and the tags of the next block. When a packet arrives, the mote computes one hash,
    //! compares it with the packet's tag, and stores the packet only if they match. It acts on the
    //! messages of a block after it has verified the block's digest. Lost packets are requested
    //! again by *negative acknowledgement*.
    //!
    //! A base station may certify *senders*, each for a range of time, and revoke them. A mote
    //! accepts only increasing chain numbers from each sender, even after a restart, so an old
    //! broadcast cannot be replayed.
}
