//! Tests updates of the firmware on simulated flash whose power fails at every word. A host cannot
//! execute the images: the tests look which image is in the run slot, and act as this image.

use std::ops::Range;

use crate::faulty_flash::{Chance, Simulated};
use moteseal_broadcast::firmware::{FirmwareDraft, UPDATE_PART, UpdateError, UpdateReport};
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, KeyId, Kind, MAX_HEAD, MAX_SENDER_CERTIFICATE, MAX_SINGLE,
    OutgoingChain, SenderCertificateDraft, SingleDraft, Window,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::participation::Participation;
use moteseal_core::provision::{Audience, SharedKey};
use moteseal_core::record::{DeviceId, NetworkId, Scheme};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::signed_time::TimeRange;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::journal::JournalError;
use moteseal_mote::listener::{Listener, Shelf, broadcast_node};
use moteseal_mote::notice::Notice;
use moteseal_mote::receipt::receiver_key;
use moteseal_mote::slots::Slots;
use moteseal_mote::updates::Updates;

const NETWORK: NetworkId = NetworkId([13; 8]);
const SENDER: DeviceId = DeviceId([7; 8]);
const BOARD: &str = "test-board";
const NOW: u64 = 1_700_000_000;
/// A time after which every image has failed its self-test.
const LATE_MS: u64 = 1_000_000;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn encoded(frame: &BroadcastFrame<'_>) -> Vec<u8> {
    let mut out = [0; MAX_BROADCAST_FRAME];
    let mut writer = Writer::new(&mut out);
    frame.encode(&mut writer).unwrap();
    writer.finish().to_vec()
}

fn certificate() -> Vec<u8> {
    let (base, public) = (key(14), key(20).public());
    let draft = SenderCertificateDraft {
        network: NETWORK,
        base: KeyId::of(&base.public()),
        serial: 3,
        sender: SENDER,
        key: &public,
        not_before: 0,
        not_after: u64::MAX,
    };
    encoded(&BroadcastFrame::Certificate(
        draft.issue(&base, &mut [0; MAX_SENDER_CERTIFICATE]).unwrap(),
    ))
}

/// Returns an image of a version. Its content determines its version.
fn image(version: u32, length: usize) -> Vec<u8> {
    let mut chance = Chance(u64::from(version));
    (0..length).map(|_| chance.next() as u8).collect()
}

/// Returns the messages of an update file.
fn update_file(board: &str, version: u32, image: &[u8]) -> Vec<Vec<u8>> {
    let draft = FirmwareDraft {
        network: NETWORK,
        base: KeyId::of(&key(14).public()),
        board,
        version,
        length: image.len() as u32,
        digest: Digest::of(&[image]).0,
    };
    let manifest = draft.issue_part(&key(14)).unwrap().to_vec();
    std::iter::once(manifest).chain(image.chunks(UPDATE_PART).map(<[u8]>::to_vec)).collect()
}

/// Returns the frames of a chain: its head, and its leaves in order.
fn chain(number: u64, label: &str, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let id = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(number) };
    let draft = ChainDraft {
        id,
        key: KeyId::of(&key(20).public()),
        messages: messages.len() as u32,
        per_block: 1,
        kind: Kind::File,
        label,
        window: Window { not_before: 0, not_after: u64::MAX },
        previous: None,
        is_addressed: false,
    };
    let (mut digests, mut tags) =
        (vec![Digest::NULL; messages.len()], vec![[0; 8]; messages.len()]);
    let mut scratch = [0; 9000];
    let chain = OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, |at, out| {
        let message = &messages[at as usize];
        out[..message.len()].copy_from_slice(message);
        Ok::<_, std::convert::Infallible>(message.len())
    })
    .unwrap();
    let mut frames = vec![encoded(&BroadcastFrame::Head(
        chain.head(&key(20), &mut [0; 2048], &mut [0; MAX_HEAD]).unwrap(),
    ))];
    for (block, message) in (1..).zip(messages) {
        let mut out = [0; 9000];
        let leaf = chain.leaf(block, 0, message, &mut out).unwrap();
        let of = id.reference(KeyId::of(&key(20).public()));
        frames.push(encoded(&BroadcastFrame::Fragment { chain: of, block, index: 0, leaf }));
    }
    frames
}

/// Returns the frame of a command.
fn command(number: u64, text: &str, window: Range<u64>) -> Vec<u8> {
    let id = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(number) };
    let draft = SingleDraft {
        id,
        kind: Kind::Command,
        label: "firmware",
        window: Window { not_before: window.start, not_after: window.end },
        previous: None,
        message: text.as_bytes(),
    };
    draft.seal(&key(20), &mut [0; MAX_SINGLE], &mut [0; MAX_SINGLE]).unwrap().to_vec()
}

fn install(number: u64, version: u32) -> Vec<u8> {
    command(number, &format!("install {version}"), NOW - 60..NOW + 600)
}

/// A mote with slots whose pages have `PAGE` bytes.
struct Mote<const PAGE: usize> {
    journal: Simulated,
    slots: Simulated<PAGE>,
    /// The images that may be in the run slot, by version.
    images: Vec<(u32, Vec<u8>)>,
    /// What the mote has reported.
    reports: Vec<UpdateReport>,
    /// The receipts that the mote has sent.
    receipts: Vec<Vec<u8>>,
    /// The number of the broadcasts that the mote has refused because of their chains' numbers.
    gone_back: usize,
    now_ms: u64,
}

/// What a mote did in one life, until it restarts or has processed all frames.
#[derive(Debug, PartialEq, Eq)]
enum End {
    PowerFailed,
    Restart,
    AllFrames,
}

impl<const PAGE: usize> Mote<PAGE> {
    /// Returns a mote of `pages` pages with version 1 in its run slot.
    fn new(pages: usize, images: Vec<(u32, Vec<u8>)>) -> Self {
        let journal = Simulated::new();
        let mut slots = Simulated::pages(pages);
        let start = Slots::new(&mut slots).run_slot();
        slots.bytes[start..start + images[0].1.len()].copy_from_slice(&images[0].1);
        let slots = slots.powered_as(&journal);
        let (reports, receipts) = (Vec::new(), Vec::new());
        Self { journal, slots, images, reports, receipts, gone_back: 0, now_ms: 0 }
    }

    /// Returns the version of the image in the run slot, which must be whole.
    fn running(&mut self) -> u32 {
        let slots = Slots::new(&mut self.slots);
        let found = self.images.iter().find(|(_, image)| slots.running(image.len()) == image);
        found.expect("the run slot has a whole image").0
    }

    fn power_returns(&mut self) {
        self.journal = self.journal.repowered();
        self.slots = self.slots.repowered().powered_as(&self.journal);
    }

    /// Starts the mote and passes the frames to it.
    fn live(&mut self, frames: &[&[u8]], is_in_contact: bool) -> End {
        match Slots::new(&mut self.slots).boot() {
            Ok(_) => {}
            Err(_) => return End::PowerFailed,
        }
        let version = self.running();
        self.live_as(version, frames, is_in_contact).unwrap_or_else(|error| {
            assert_eq!(error, JournalError::Flash);
            End::PowerFailed
        })
    }

    fn live_as(
        &mut self,
        version: u32,
        frames: &[&[u8]],
        is_in_contact: bool,
    ) -> Result<End, JournalError> {
        let shared = SharedKey { sender: SENDER, position: 5, key: [7; 32].into() };
        let audience = Audience { network: NETWORK, base: key(14).public(), shared: Some(shared) };
        let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
        let mut durable =
            Durable::open(&mut self.journal, DeviceId([1; 8]), Digest([8; 32]), settings)?;
        let mut shelf = Shelf::new();
        let keys = receiver_key(&audience);
        self.now_ms += 10_000;
        let mut node = broadcast_node(&audience, keys.as_slice(), 1, self.now_ms);
        let mut updates = Updates::new(&mut self.slots, &audience, BOARD, version);
        let mut listener = Listener::new(&mut node, &mut shelf, Some(&mut updates), self.now_ms);
        let mut reports = Vec::new();
        let mut gone_back = 0;
        let mut notify = |notice| match notice {
            Notice::Update(report) => reports.push(report),
            Notice::Refused(RefusedBroadcast::ChainGoesBack) => gone_back += 1,
            _ => {}
        };
        let time = TimeRange { earliest_ms: NOW * 1000, latest_ms: NOW * 1000 };
        let mut live = || {
            listener.start(self.now_ms, &mut durable, &mut notify)?;
            let mut out = [0; 2048];
            for frame in std::iter::once(&[][..]).chain(frames.iter().copied()) {
                if !frame.is_empty() {
                    listener.receive(self.now_ms, Some(time), frame, &mut durable, &mut notify)?;
                }
                listener.supervise(self.now_ms, is_in_contact, &mut durable, &mut notify)?;
                for _ in 0..15 {
                    self.now_ms += 200;
                    if listener.wants_restart(self.now_ms) {
                        return Ok(End::Restart);
                    }
                    while let Some(length) =
                        listener.next_body(self.now_ms, Some(time), &mut out, &mut durable)?
                    {
                        if let Ok(BroadcastFrame::Receipts { .. }) =
                            BroadcastFrame::decode(&out[..length])
                        {
                            self.receipts.push(out[..length].to_vec());
                        }
                    }
                }
            }
            self.now_ms += LATE_MS;
            listener.supervise(self.now_ms, false, &mut durable, &mut notify)?;
            let is_over = listener.wants_restart(self.now_ms);
            Ok(if is_over { End::Restart } else { End::AllFrames })
        };
        let end = live();
        self.reports.extend(reports);
        self.gone_back += gone_back;
        end
    }

    /// Lives until the mote has processed all frames in one life, or for at most `lives` lives.
    fn settle(&mut self, frames: &[&[u8]], is_in_contact: bool) {
        for _ in 0..8 {
            match self.live(frames, is_in_contact) {
                End::AllFrames => return,
                End::Restart => {}
                End::PowerFailed => self.power_returns(),
            }
        }
        panic!("the mote restarts again and again: {:?}", self.reports);
    }
}

fn frames_of<'f>(parts: &[&'f [Vec<u8>]]) -> Vec<&'f [u8]> {
    parts.iter().flat_map(|part| part.iter().map(Vec::as_slice)).collect()
}

/// Updates from version 1 to 2, with two images of these lengths.
struct Scene {
    images: Vec<(u32, Vec<u8>)>,
    certificate: Vec<Vec<u8>>,
    file: Vec<Vec<u8>>,
}

impl Scene {
    fn new(one: usize, two: usize) -> Self {
        let images = vec![(1, image(1, one)), (2, image(2, two))];
        let file = chain(10, "test-board-2.firmware", &update_file(BOARD, 2, &images[1].1));
        Self { images, certificate: vec![certificate()], file }
    }
}

#[test]
fn installs_an_image_at_a_command_and_confirms_it_and_then_acknowledges_the_command() {
    let scene = Scene::new(900, 1000);
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    mote.settle(&frames_of(&[&scene.certificate, &scene.file]), true);
    assert_eq!(mote.running(), 1, "it is not installed before the command");
    let of_file = mote.receipts.len();
    assert_eq!(of_file, 1, "the file is acknowledged");
    let command = [install(11, 2)];
    assert_eq!(mote.live(&frames_of(&[&scene.certificate, &command]), true), End::Restart);
    assert_eq!(mote.receipts.len(), of_file, "the command is not acknowledged before it is done");
    mote.settle(&frames_of(&[&scene.certificate]), true);
    assert_eq!(mote.running(), 2);
    assert_eq!(mote.receipts.len(), of_file + 1);
    let expected = [
        UpdateReport::Confirmed(1),
        UpdateReport::Received(2),
        UpdateReport::Running(1),
        UpdateReport::Installing(2),
        UpdateReport::Trying(2),
        UpdateReport::Confirmed(2),
    ];
    assert_eq!(mote.reports, expected);
    // The receipt is sent again on request after a restart.
    let mut set = [0; 8];
    let length = Participation::encode_one(5, &mut set).unwrap();
    let chain = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(11) }
        .reference(KeyId::of(&key(20).public()));
    let wanted =
        [encoded(&BroadcastFrame::ReceiptsWanted { chain, most: 1, receivers: &set[..length] })];
    mote.settle(&frames_of(&[&scene.certificate, &wanted]), true);
    assert_eq!(mote.receipts.len(), of_file + 2);
    assert_eq!(mote.receipts[of_file], mote.receipts[of_file + 1]);
}

/// Updates a mote whose power fails after `cut` words. Returns the number of words of the update.
fn update_with_a_cut<const PAGE: usize>(scene: &Scene, pages: usize, cut: Option<u64>) -> u64 {
    let mut mote = Mote::<PAGE>::new(pages, scene.images.clone());
    mote.journal.fuse.set(cut);
    let mut number = 11;
    let mut ended = 0;
    while mote.running_or_torn() != Some(2) || ended < 2 {
        let command = [install(number, 2)];
        let frames = frames_of(&[&scene.certificate, &scene.file, &command]);
        match mote.live(&frames, true) {
            End::PowerFailed => mote.power_returns(),
            End::Restart => {}
            End::AllFrames => ended += 1,
        }
        number += 1;
        assert!(number < 20, "cut {cut:?}: {:?}", mote.reports);
    }
    let failed = UpdateReport::Refused(2, UpdateError::SelfTestFailed);
    let failures = mote.reports.iter().filter(|report| **report == failed).count();
    assert!(failures <= usize::from(cut.is_some()), "cut {cut:?}: {:?}", mote.reports);
    mote.journal.writes.get()
}

impl<const PAGE: usize> Mote<PAGE> {
    /// Returns the version of the image in the run slot; `None` while the slots are exchanged.
    fn running_or_torn(&mut self) -> Option<u32> {
        let slots = Slots::new(&mut self.slots);
        let found = self.images.iter().find(|(_, image)| slots.running(image.len()) == image);
        found.map(|(version, _)| *version)
    }
}

fn survives_a_cut_at_every_word<const PAGE: usize>(pages: usize, lengths: [usize; 2]) {
    let scene = Scene::new(lengths[0], lengths[1]);
    let words = update_with_a_cut::<PAGE>(&scene, pages, None);
    assert!(words > 300, "{words} words");
    for cut in 0..words {
        update_with_a_cut::<PAGE>(&scene, pages, Some(cut));
    }
}

#[test]
fn survives_a_cut_at_every_word_with_pages_of_256_bytes() {
    survives_a_cut_at_every_word::<256>(13, [700, 900]);
}

#[test]
fn survives_a_cut_at_every_word_with_pages_of_512_bytes() {
    survives_a_cut_at_every_word::<512>(8, [1000, 515]);
}

#[test]
fn survives_a_cut_at_every_word_with_pages_of_1024_bytes() {
    survives_a_cut_at_every_word::<1024>(6, [1024, 2048]);
}

#[test]
fn survives_many_cuts_during_one_update() {
    let scene = Scene::new(1500, 1900);
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let mut mote = Mote::<512>::new(11, scene.images.clone());
        for number in 11..200 {
            let cut = if number < 60 { Some(chance.below(700)) } else { None };
            mote.journal.fuse.set(cut);
            let command = [install(number, 2)];
            let frames = frames_of(&[&scene.certificate, &scene.file, &command]);
            match mote.live(&frames, true) {
                End::PowerFailed => mote.power_returns(),
                End::Restart => {}
                End::AllFrames if number >= 60 => break,
                End::AllFrames => {}
            }
        }
        assert_eq!(mote.running(), 2, "{seed}: {:?}", mote.reports);
    }
}

#[test]
fn falls_back_if_the_new_image_is_not_confirmed_in_time() {
    let scene = Scene::new(900, 1000);
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    let frames = [&scene.certificate[..], &scene.file, &[install(11, 2)]];
    assert_eq!(mote.live(&frames_of(&frames), true), End::Restart);
    assert_eq!(mote.live(&frames_of(&[&scene.certificate]), false), End::Restart);
    assert_eq!(mote.running(), 2, "the trial");
    assert_eq!(mote.live(&frames_of(&[&scene.certificate]), true), End::AllFrames);
    assert_eq!(mote.running(), 1);
    let failed = UpdateReport::Refused(2, UpdateError::SelfTestFailed);
    assert_eq!(mote.reports.last(), Some(&failed));
    assert_eq!(mote.receipts.len(), 1, "only the file is acknowledged");
    // The image is still there: a new command tries it again.
    mote.settle(&frames_of(&[&scene.certificate, &[install(12, 2)]]), true);
    assert_eq!(mote.running(), 2);
    assert_eq!(mote.reports.last(), Some(&UpdateReport::Confirmed(2)));
}

#[test]
fn falls_back_if_the_new_image_restarts_before_it_is_confirmed() {
    let scene = Scene::new(900, 1000);
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    let frames = [&scene.certificate[..], &scene.file, &[install(11, 2)]];
    assert_eq!(mote.live(&frames_of(&frames), true), End::Restart);
    assert_eq!(Slots::new(&mut mote.slots).boot(), Ok(true), "the trial");
    assert_eq!(Slots::new(&mut mote.slots).boot(), Ok(false), "it happens once");
    assert_eq!(mote.running(), 1);
    mote.settle(&frames_of(&[&scene.certificate]), true);
    let failed = UpdateReport::Refused(2, UpdateError::SelfTestFailed);
    assert_eq!(mote.reports.last(), Some(&failed));
}

#[test]
fn an_image_that_was_damaged_after_its_check_is_never_started() {
    let scene = Scene::new(900, 1000);
    for place in (0..1000).step_by(97) {
        let mut mote = Mote::<512>::new(8, scene.images.clone());
        let frames = [&scene.certificate[..], &scene.file, &[install(11, 2)]];
        assert_eq!(mote.live(&frames_of(&frames), true), End::Restart);
        let staged = mote.slots.bytes.len() - Slots::new(&mut mote.slots).length();
        mote.slots.bytes[staged + place] ^= 4;
        assert_eq!(Slots::new(&mut mote.slots).boot(), Ok(false), "{place}");
        assert_eq!(mote.running(), 1);
    }
}

/// Returns what a mote with version 1 reports when it receives these frames in one life.
fn reports_of(scene: &Scene, frames: &[Vec<u8>]) -> Vec<UpdateReport> {
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    mote.live(&frames_of(&[&scene.certificate, frames]), true);
    assert_eq!(mote.running(), 1);
    assert_eq!(mote.reports.remove(0), UpdateReport::Confirmed(1));
    mote.reports
}

#[test]
fn refuses_images_that_are_not_for_it_before_it_erases_anything() {
    let scene = Scene::new(900, 1000);
    let image = &scene.images[1].1;
    let refused = |version, error| vec![UpdateReport::Refused(version, error)];
    let reports = |messages: &[Vec<u8>]| reports_of(&scene, &chain(10, "x.firmware", messages));

    assert_eq!(reports(&update_file("other", 2, image)), refused(2, UpdateError::WrongBoard));
    let old = image_of_version_one(&scene);
    assert_eq!(reports(&old), refused(1, UpdateError::VersionNotAbove), "another image");
    // Three pages of 512 bytes are a slot.
    let long = update_file(BOARD, 2, &image_bytes(1537));
    assert_eq!(reports(&long), refused(2, UpdateError::ImageTooLong));
    let mut short = update_file(BOARD, 2, image);
    short.pop();
    assert_eq!(reports(&short), refused(2, UpdateError::WrongLength));
    let mut uneven = update_file(BOARD, 2, image);
    uneven[2].pop();
    assert_eq!(reports(&uneven), refused(2, UpdateError::WrongLength));
    let mut changed = update_file(BOARD, 2, image);
    changed[3][7] ^= 1;
    assert_eq!(reports(&changed), refused(2, UpdateError::ImageDamaged), "the sender's fault");
    // The sender of the broadcast is certified, but is no base station.
    let mut forged = update_file(BOARD, 2, image);
    forged[0] = FirmwareDraft {
        network: NETWORK,
        base: KeyId::of(&key(14).public()),
        board: BOARD,
        version: 2,
        length: image.len() as u32,
        digest: Digest::of(&[image]).0,
    }
    .issue_part(&key(20))
    .unwrap()
    .to_vec();
    assert_eq!(reports(&forged), refused(0, UpdateError::ManifestRefused));
    // A file with another label is not for motes.
    let other = chain(10, "notes.txt", &update_file(BOARD, 2, image));
    assert_eq!(reports_of(&scene, &other), []);

    // None of the first four erases a page.
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    let before = mote.slots.bytes.clone();
    for file in [update_file("other", 2, image), old, long, short] {
        mote.settle(&frames_of(&[&scene.certificate, &chain(10, "x.firmware", &file)]), true);
        assert!(mote.slots.bytes == before);
    }
}

fn image_bytes(length: usize) -> Vec<u8> {
    image(2, length)
}

/// Returns an update file with version 1 that is not the image that runs.
fn image_of_version_one(scene: &Scene) -> Vec<Vec<u8>> {
    update_file(BOARD, 1, &scene.images[1].1)
}

#[test]
fn refuses_commands_without_an_image_after_their_end_and_for_old_versions() {
    let scene = Scene::new(900, 1000);
    let refused = |version, error| UpdateReport::Refused(version, error);
    let not_received = [refused(2, UpdateError::NotReceived)];
    assert_eq!(reports_of(&scene, &[install(11, 2)]), not_received);
    assert_eq!(reports_of(&scene, &scene.file[..4]), [], "a part of the image");
    let part = [&scene.file[..4], &[install(11, 2)]].concat();
    assert_eq!(reports_of(&scene, &part), not_received);
    let late = command(11, "install 2", NOW - 600..NOW);
    let received = UpdateReport::Received(2);
    assert_eq!(reports_of(&scene, &[&scene.file[..], &[late]].concat()), [received]);
    let another = [&scene.file[..], &[install(11, 3)]].concat();
    let expected = [received, refused(3, UpdateError::NotReceived)];
    assert_eq!(reports_of(&scene, &another), expected);
    // After an update, neither the old version nor the same one is installed.
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    mote.settle(&frames_of(&[&scene.certificate, &scene.file, &[install(11, 2)]]), true);
    assert_eq!(mote.running(), 2);
    let before = mote.slots.bytes.clone();
    let old = chain(12, "old.firmware", &update_file(BOARD, 1, &scene.images[0].1));
    let (receipts, from) = (mote.receipts.len(), mote.reports.len());
    let commands = [install(13, 1), install(14, 2)];
    mote.settle(&frames_of(&[&scene.certificate, &old, &commands]), true);
    let expected = [
        UpdateReport::Running(2),
        refused(1, UpdateError::VersionNotAbove),
        refused(1, UpdateError::VersionNotAbove),
    ];
    assert_eq!(mote.reports[from..], expected);
    assert!(mote.running() == 2 && mote.slots.bytes == before);
    assert_eq!(mote.receipts.len(), receipts + 1, "the repeated command is acknowledged");
}

#[test]
fn goes_on_with_an_image_after_a_restart_and_after_another_command() {
    let scene = Scene::new(900, 1400);
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    // The head, the manifest and three of the six parts of the image.
    let part = &scene.file[..5];
    mote.settle(&frames_of(&[&scene.certificate, part]), true);
    // The mote continues at the page that it was writing, and needs no earlier message.
    let (head, rest) = (&scene.file[..1], &scene.file[4..6]);
    mote.settle(&frames_of(&[&scene.certificate, head, rest]), true);
    // A command takes the place of the chain; the mote then goes on where it was.
    let lamp = [command(11, "led on", NOW - 60..NOW + 600)];
    let rest = &scene.file[6..];
    let frames = frames_of(&[&scene.certificate, head, &scene.file[4..6], &lamp, head, rest]);
    mote.settle(&frames, true);
    assert_eq!(mote.reports.last(), Some(&UpdateReport::Received(2)), "{:?}", mote.reports);
    assert_eq!(mote.receipts.len(), 2, "the command, and the whole image");
    // The earlier number of the image's chain does not revive the command, also after a restart.
    let gone_back = mote.gone_back;
    mote.settle(&frames_of(&[&scene.certificate, &lamp]), true);
    assert_eq!((mote.gone_back, mote.receipts.len()), (gone_back + 1, 2));
    mote.settle(&frames_of(&[&scene.certificate, &[install(12, 2)]]), true);
    assert_eq!(mote.running(), 2);
}

#[test]
fn a_later_image_replaces_one_that_waits_and_the_same_image_is_acknowledged_again() {
    let mut scene = Scene::new(900, 1000);
    scene.images.push((3, image(3, 800)));
    let third = chain(12, "c.firmware", &update_file(BOARD, 3, &scene.images[2].1));
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    mote.settle(&frames_of(&[&scene.certificate, &scene.file]), true);
    let before = (mote.slots.bytes.clone(), mote.reports.len());
    let again = chain(11, "b.firmware", &update_file(BOARD, 2, &scene.images[1].1));
    mote.settle(&frames_of(&[&scene.certificate, &again]), true);
    assert_eq!(mote.receipts.len(), 2, "it has the image");
    assert!(mote.slots.bytes == before.0, "nothing is written again");
    assert_eq!(mote.reports[before.1..], [UpdateReport::Running(1)]);
    // Now the third image, and a command for the second one, which is gone.
    mote.settle(&frames_of(&[&scene.certificate, &third, &[install(13, 2)]]), true);
    let gone = UpdateReport::Refused(2, UpdateError::NotReceived);
    assert_eq!(mote.reports.last(), Some(&gone));
    mote.settle(&frames_of(&[&scene.certificate, &[install(14, 3)]]), true);
    assert_eq!(mote.running(), 3);
}

#[test]
fn a_word_of_the_staging_slot_that_fails_drops_the_image_and_nothing_else() {
    let scene = Scene::new(900, 1400);
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    let broken = mote.slots.bytes.len() - 512;
    mote.slots.broken = Some(broken);
    let frames = frames_of(&[&scene.certificate, &scene.file]);
    assert_eq!(mote.live(&frames, true), End::AllFrames);
    let damaged = UpdateReport::Refused(2, UpdateError::ImageDamaged);
    assert_eq!(mote.reports.last(), Some(&damaged));
    // After a restart, the mote neither fails again nor asks for the chain, and obeys commands.
    let lamp = [command(11, "led on", NOW - 60..NOW + 600)];
    assert_eq!(
        mote.live(&frames_of(&[&scene.certificate, &scene.file, &lamp]), true),
        End::AllFrames
    );
    assert_eq!(mote.receipts.len(), 1, "the command");
    // Without the fault, a new chain brings the image.
    mote.slots.broken = None;
    let again = chain(12, "b.firmware", &update_file(BOARD, 2, &scene.images[1].1));
    mote.settle(&frames_of(&[&scene.certificate, &again]), true);
    assert_eq!(mote.reports.last(), Some(&UpdateReport::Received(2)));
}

#[test]
fn an_image_that_the_mote_has_does_not_end_the_reception_of_another_one() {
    let mut scene = Scene::new(900, 1000);
    scene.images.push((3, image(3, 800)));
    let third = chain(12, "c.firmware", &update_file(BOARD, 3, &scene.images[2].1));
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    mote.settle(&frames_of(&[&scene.certificate, &scene.file, &[install(11, 2)]]), true);
    assert_eq!(mote.running(), 2);
    // Version 3 is partly received when version 2 is sent to others.
    let again = chain(13, "b.firmware", &update_file(BOARD, 2, &scene.images[1].1));
    let parts = [&scene.certificate[..], &third[..3], &again, &third[..1], &third[2..]];
    mote.settle(&frames_of(&parts), true);
    assert_eq!(mote.reports.last(), Some(&UpdateReport::Received(3)), "{:?}", mote.reports);
}

#[test]
fn an_image_that_arrives_during_a_trial_is_refused() {
    let mut scene = Scene::new(900, 1000);
    scene.images.push((3, image(3, 800)));
    let third = chain(12, "c.firmware", &update_file(BOARD, 3, &scene.images[2].1));
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    let frames = [&scene.certificate[..], &scene.file, &[install(11, 2)]];
    assert_eq!(mote.live(&frames_of(&frames), true), End::Restart);
    // The old image must stay in the staging slot until the new one is confirmed.
    let more = [install(13, 2)];
    assert_eq!(mote.live(&frames_of(&[&scene.certificate, &third, &more]), false), End::Restart);
    let busy = |version| UpdateReport::Refused(version, UpdateError::NotConfirmed);
    assert!(mote.reports.ends_with(&[busy(3), busy(2)]), "{:?}", mote.reports);
    mote.settle(&frames_of(&[&scene.certificate]), true);
    assert_eq!(mote.running(), 1);
}

#[test]
fn an_image_with_another_version_than_its_manifest_fails_at_once() {
    let scene = Scene::new(900, 1000);
    let file = chain(10, "x.firmware", &update_file(BOARD, 9, &scene.images[1].1));
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    mote.settle(&frames_of(&[&scene.certificate, &file, &[install(11, 9)]]), true);
    assert_eq!(mote.running(), 1);
    let failed = UpdateReport::Refused(9, UpdateError::SelfTestFailed);
    assert!(mote.reports.contains(&failed), "{:?}", mote.reports);
}

#[test]
fn an_old_copy_of_the_journal_permits_no_old_image() {
    let scene = Scene::new(900, 1000);
    let mut mote = Mote::<512>::new(8, scene.images.clone());
    mote.settle(&frames_of(&[&scene.certificate]), true);
    let old_journal = mote.journal.bytes.clone();
    mote.settle(&frames_of(&[&scene.certificate, &scene.file, &[install(11, 2)]]), true);
    assert_eq!(mote.running(), 2);
    mote.journal.bytes = old_journal;
    let from = mote.reports.len();
    let old = chain(12, "old.firmware", &update_file(BOARD, 1, &scene.images[0].1));
    mote.settle(&frames_of(&[&scene.certificate, &old, &[install(13, 1)]]), true);
    let refused = UpdateReport::Refused(1, UpdateError::VersionNotAbove);
    assert_eq!(mote.reports[from..], [UpdateReport::Confirmed(2), refused, refused]);
    assert_eq!(mote.running(), 2);
}
