//! Tests the journal with power failures at every word of a long history. A change that was
//! reported as durable survives. An interrupted change is either complete or absent. No other state
//! ever appears.

use crate::faulty_flash::{Chance, Simulated};
use moteseal_broadcast::{ChainNumber, KeyId, Revoked};
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_mote::durable::{Durable, Memory, Settings};
use moteseal_mote::flash::{Flash, FlashFailed};
use moteseal_mote::journal::JournalError;
use moteseal_seal::{Answers, Position};
use moteseal_sum::policy::Ledger;
use moteseal_sum::query::QueryId;

const DEVICE: DeviceId = DeviceId([7; 8]);
const CERTIFICATE: Digest = Digest([8; 32]);
const SETTINGS: Settings = Settings { interval_ms: 1000, led: false, scheme: Scheme::Star };
/// More queries than the epoch guard remembers.
const QUERIES: u8 = 10;
const KEYS: u8 = 3;

fn open<F: Flash>(flash: F) -> Result<Durable<F>, JournalError> {
    Durable::open(flash, DEVICE, CERTIFICATE, SETTINGS)
}

/// The whole state of a mote, except the number of starts.
#[derive(Debug, PartialEq)]
struct View {
    position: Position,
    next_index: SealIndex,
    epoch: Option<EpochNumber>,
    resume: u32,
    sealed: Option<(SealIndex, Vec<u8>, Vec<u8>)>,
    unstated: Answers,
    answers: Vec<Option<u64>>,
    schedule: Option<(u64, Digest)>,
    floors: Vec<Option<ChainNumber>>,
    revoked: Revoked,
    settings: Settings,
    policy: Option<Vec<u8>>,
    spent: Option<Ledger>,
}

fn view(memory: &Memory) -> View {
    View {
        position: memory.position(),
        next_index: memory.next_index(),
        epoch: memory.epoch(),
        resume: memory.resume(),
        sealed: memory
            .sealed()
            .map(|sealed| (sealed.index, sealed.open().to_vec(), sealed.part().to_vec())),
        unstated: memory.unstated(),
        answers: (0..QUERIES).map(|query| memory.last_answer(QueryId([query; 16]))).collect(),
        schedule: memory.schedule(),
        floors: (0..KEYS).map(|key| memory.floor(KeyId([key; 8]))).collect(),
        revoked: *memory.revoked(),
        settings: memory.settings(),
        policy: memory.policy().map(<[u8]>::to_vec),
        spent: memory.ledger(),
    }
}

/// A change of a mote's state.
#[derive(Clone, Debug)]
enum Step {
    Open(u64),
    Skip,
    Keep(Vec<u8>, u32),
    Done,
    GiveUp,
    Answer(u8, u64),
    QuerySchedule(u64),
    Raise(u8, u64),
    Revoke(u64),
    Set(u32),
    Sense(u32),
    Policy(Vec<u8>),
    Charge(u64),
    Reboot,
}

fn step(chance: &mut Chance, time: u64) -> Step {
    match chance.below(16) {
        0..4 => Step::Open(time),
        4 => Step::Skip,
        5..8 => {
            Step::Keep(vec![chance.next() as u8; 100 + chance.below(400) as usize], time as u32)
        }
        8 | 9 => Step::Done,
        10 => Step::GiveUp,
        11 | 12 => Step::Answer(chance.below(QUERIES.into()) as u8, time + chance.below(3)),
        13 => Step::QuerySchedule(time),
        14 => match chance.below(6) {
            0 => Step::Raise(chance.below(KEYS.into()) as u8, time),
            1 => Step::Revoke(time),
            2 => Step::Sense(time as u32 / 16),
            3 => Step::Policy(vec![time as u8; 1 + chance.below(512) as usize]),
            // Several charges fall on the same day.
            4 => Step::Charge(time / 100),
            _ => Step::Set(time as u32),
        },
        _ => Step::Reboot,
    }
}

fn take<F: Flash>(durable: &mut Durable<F>, step: &Step) -> Result<(), JournalError> {
    match step {
        Step::Open(epoch) => durable.open_seal(EpochNumber(*epoch)).map(|_| ()),
        Step::Skip => durable.skip_index(),
        Step::Keep(bytes, resume) => {
            let memory = durable.memory();
            let (Some(epoch), index) =
                (memory.epoch(), SealIndex(memory.next_index().0.wrapping_sub(1)))
            else {
                return Ok(());
            };
            let answers = memory.unstated();
            let position = Position {
                prev: Digest::of(&[bytes]),
                last: Some((index, epoch)),
                epoch_closed: bytes.len() % 2 == 0,
            };
            durable.keep_seal(&position, *resume, &answers, bytes.split_at(60))
        }
        Step::Done | Step::GiveUp => {
            match (durable.memory().sealed().map(|sealed| sealed.index), step) {
                (Some(index), Step::Done) => durable.seal_done(index),
                (Some(index), _) => durable.give_up_seal(index),
                (None, _) => Ok(()),
            }
        }
        Step::Answer(query, epoch) => {
            // Some queries have ended, so that the guard forgets them first.
            let is_running = |known: QueryId| known.0[0] % 2 == 0;
            durable.answer(QueryId([*query; 16]), (1000, *epoch), &is_running).map(|_| ())
        }
        Step::QuerySchedule(number) => {
            durable.accept_schedule(*number, Digest([*number as u8; 32]))
        }
        Step::Policy(payload) => durable.accept_policy(payload),
        Step::Charge(day) => {
            let mut ledger = durable.memory().ledger().unwrap_or_default();
            ledger.charge(*day * 86_400_000, 5, 1000).unwrap();
            durable.spend(ledger)
        }
        Step::Sense(first) => durable.sense_from(*first, 7),
        Step::Raise(key, number) => durable
            .raise(KeyId([*key; 8]), ChainNumber(*number))
            .map(|raised| assert_eq!(raised, Ok(()))),
        Step::Revoke(time) => {
            let known = *durable.memory().revoked();
            let next = known.and(time + 3).unwrap_or_else(|_| known.and_below(*time));
            durable.revoke(&next)
        }
        Step::Set(interval_ms) => {
            let scheme = if interval_ms % 2 == 0 { Scheme::Star } else { Scheme::Tree };
            durable.set(Settings { interval_ms: *interval_ms, led: interval_ms % 3 == 0, scheme })
        }
        Step::Reboot => Ok(()),
    }
}

#[test]
fn a_power_failure_at_any_word_leaves_the_state_before_or_after_the_change() {
    let (mut chance, mut flash, mut cuts, mut swaps) = (Chance(42), Simulated::new(), 0, 0);
    let mut forgotten = 0;
    for time in 0..600 {
        let step = step(&mut chance, time);
        // Execute the step without a power failure, and count its writes, including those of the
        // start.
        let whole = flash.repowered();
        let (writes, mut durable) = (whole.writes.clone(), open(whole).unwrap());
        let before = view(durable.memory());
        take(&mut durable, &step).unwrap();
        let (after, boots) = (view(durable.memory()), durable.memory().boots());
        let (taken, next) = (writes.get(), durable.into_flash());
        swaps += u32::from(taken > 60);
        let is_forgotten = |(before, after): (&Option<u64>, &Option<u64>)| before > after;
        forgotten +=
            before.answers.iter().zip(&after.answers).filter(|of| is_forgotten(*of)).count();
        for at in 0..taken {
            let mut cut = flash.repowered();
            cut.fuse.set(Some(at));
            let ended = open(&mut cut).and_then(|mut durable| take(&mut durable, &step));
            assert_eq!(ended, Err(JournalError::Flash), "the power failed");
            let again = open(cut.repowered()).unwrap_or_else(|error| {
                panic!("{step:?} cut at {at} of {taken}: {}", error.name())
            });
            let found = view(again.memory());
            assert!(
                found == before || found == after,
                "{step:?} cut at {at} of {taken}: {found:#?}\n{before:#?}\n{after:#?}"
            );
            assert!((boots - 1..=boots + 1).contains(&again.memory().boots()));
            // A second start must find the same state.
            let again = open(again.into_flash().repowered()).unwrap();
            assert_eq!(view(again.memory()), found, "{step:?} cut at {at}");
            cuts += 1;
        }
        // A completed step must survive a restart.
        let again = open(next.repowered()).unwrap();
        assert_eq!(view(again.memory()), after, "{step:?}");
        flash = next;
    }
    println!("{cuts} power failures, {swaps} of 600 steps moved to the other page");
    assert!(cuts > 10_000 && swaps > 20, "{cuts} cuts, {swaps} swaps");
    assert!(forgotten > 5, "the guard has forgotten {forgotten} queries");
}

/// Returns flash whose journal has just moved to its other page, and the number and the previous
/// content of the old page.
fn after_page_change() -> (Simulated, usize, Vec<u8>) {
    let mut flash = Simulated::new();
    let is_erased = |flash: &Simulated, page: usize| {
        flash.bytes[page * 4096..][..4096].iter().all(|byte| *byte == 0xff)
    };
    for epoch in 0.. {
        let before = flash.bytes.clone();
        let left = if is_erased(&flash, 0) { 1 } else { 0 };
        open(&mut flash).unwrap().open_seal(EpochNumber(epoch)).unwrap();
        if epoch > 0 && is_erased(&flash, left) {
            return (flash, left, before[left * 4096..][..4096].to_vec());
        }
    }
    unreachable!()
}

#[test]
fn never_uses_an_old_page_whatever_an_interrupted_erasure_leaves_of_it() {
    let (flash, left, old) = after_page_change();
    let expected = open(flash.repowered()).unwrap().memory().next_index();
    let generation = |page: &[u8]| u32::from_be_bytes(*page.first_chunk().unwrap());
    let in_force = generation(&flash.bytes[(1 - left) * 4096..]);
    // An interrupted erasure may set bits that are zero in both words of the old page's head. The
    // head then has a later generation and is still valid. The loop skips the bit that would make
    // the old page's generation exactly one later than the generation in force: that page would be
    // accepted, which is why the journal destroys the head before it begins the erasure.
    let bits = (0..32).filter(|bit| 0x4d6f_7465_u32 >> bit & 1 == 0);
    for bit in bits.filter(|bit| generation(&old) | 1 << bit != in_force + 1) {
        let mut torn = flash.repowered();
        let page = &mut torn.bytes[left * 4096..][..4096];
        page.copy_from_slice(&old);
        for byte in [3 - bit / 8, 7 - bit / 8] {
            page[byte] |= 1 << (bit % 8);
        }
        match open(torn) {
            Ok(durable) => assert_eq!(durable.memory().next_index(), expected, "bit {bit}"),
            Err(error) => assert_eq!(error, JournalError::Damaged, "bit {bit}"),
        }
    }
    // If the power fails before the head of the old page is destroyed, both pages are complete.
    let mut both = flash.repowered();
    both.bytes[left * 4096..][..4096].copy_from_slice(&old);
    assert_eq!(open(both).unwrap().memory().next_index(), expected);
}

/// Flash that fails if a page is erased while its head is still valid.
struct Strict(Simulated);

impl Flash for Strict {
    const PAGE: usize = <Simulated>::PAGE;

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn erase(&mut self, page: usize) -> Result<(), FlashFailed> {
        let word = |at: usize| {
            u32::from_be_bytes(*self.bytes()[page * Self::PAGE + at..].first_chunk().unwrap())
        };
        assert_ne!(word(0) ^ 0x4d6f_7465, word(4), "a page with a valid head was erased");
        self.0.erase(page)
    }

    fn program(&mut self, offset: usize, word: [u8; 4]) -> Result<(), FlashFailed> {
        self.0.program(offset, word)
    }
}

#[test]
fn destroys_the_head_of_a_page_before_erasing_it() {
    let (flash, left, old) = after_page_change();
    // If the power fails before the head is destroyed, the next start erases the page.
    let mut both = flash.repowered();
    both.bytes[left * 4096..][..4096].copy_from_slice(&old);
    let mut durable = open(Strict(both)).unwrap();
    for epoch in 1000..1500 {
        durable.open_seal(EpochNumber(epoch)).unwrap();
    }
    assert!(durable.into_flash().0.writes.get() > 3000);
}
