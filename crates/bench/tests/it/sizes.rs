//! Regenerates the size tables of `docs/sizes.md`, compares them with the page, and checks them
//! against their bars (upper limits).
//!
//! `MOTESEAL_BLESS=1 cargo test -p moteseal-bench --test it sizes` writes the page.

use std::fmt::Write as _;
use std::path::Path;

use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::participation::Participation;
use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_device::seal::{Bundle, Chain, Profile, Sealer};
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::Rate;
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::tree::Tree;
use moteseal_seal::{MAX_MESSAGE, Star};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::close_share;
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};

const EVENTS: u32 = 298;
const FIRST_EPOCH: u64 = 480_000;

struct Fixture {
    roster: Roster,
    secret: SecretKey,
    schema: Vec<u8>,
}

fn fixture(algorithm: Algorithm) -> Fixture {
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
    let secret = SecretKey::from_seed(algorithm, &[2; 32]).unwrap();
    let devices = [("dev1", secret.public())];
    let group = FirstRoster {
        group: "home",
        epoch_ms: 3_600_000,
        levels: 16,
        budget: None,
        devices: &devices,
    };
    let roster = Roster::open(&group.issue(&operator).unwrap(), &operator.public()).unwrap();
    let fields = [
        Field::parse("temperature:Cel:i16/100").unwrap(),
        Field::parse("humidity:%RH:u16/100").unwrap(),
    ];
    let mut buffer = [0; 512];
    let schema = Schema::encode(&fields, &mut buffer).unwrap().as_bytes().to_vec();
    Fixture { roster, secret, schema }
}

/// Returns the number of bytes of a share's frame, for an epoch of 30 s in 2026.
fn share(participation: &[u8], records: usize) -> usize {
    let epoch = 1_795_000_000_000 / 30_000;
    let mut frame = [0; 1024];
    close_share(
        0x0102_0304,
        epoch,
        participation,
        &vec![Psr::ZERO; records],
        &LinkKey::new(&[4; 32]),
        &mut frame,
    )
    .unwrap()
    .len()
}

/// Seals `epochs` consecutive epochs of 298 readings of 4 bytes.
fn seal(fixture: &Fixture, scheme: Scheme, epochs: u64) -> Vec<Bundle> {
    let schema = Schema::decode(&fixture.schema).unwrap();
    let profile = Profile::new(&fixture.roster, "dev1", scheme, &schema).unwrap();
    let chain = Chain::start(profile.certificate);
    let mut sealer = Sealer::new(profile, fixture.secret.clone(), SaltKey::new([3; 32]), chain);
    let mut bundles = Vec::new();
    for epoch in 0..epochs {
        for reading in 0..EVENTS {
            bundles.extend(
                sealer.push(EpochNumber(FIRST_EPOCH + epoch), &reading.to_be_bytes()).unwrap(),
            );
        }
    }
    bundles.extend(sealer.close(true).unwrap());
    bundles
}

/// Returns the number of bytes and of events in a response with all of these epochs at this rate.
/// The response has one run, as the cloud serves it.
fn answer(fixture: &Fixture, bundles: &[Bundle], rate: Rate) -> (usize, usize) {
    let mut out = Vec::new();
    write::schema(&mut out, &fixture.schema);
    let first = bundles[0].seal.statement();
    write::open(
        &mut out,
        &Open { device: first.device, roster_version: 0, prev: Some(first.prev), last: first.last },
    );
    for (i, bundle) in bundles.iter().enumerate() {
        let statement = bundle.seal.statement();
        let mask = rate.levels(16).unwrap() & statement.surviving();
        let events: Vec<u8> = (0..16u8)
            .rev()
            .filter(|level| mask >> level & 1 == 1)
            .flat_map(|wanted| {
                let seqs = (0..EVENTS).filter(move |&seq| {
                    statement.salt.level(moteseal_core::Sequence(seq.into()), 16).0 == wanted
                });
                seqs.flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
            })
            .collect();
        let digests = write::star_evidence(&bundle.seal, &bundle.blocks, mask);
        let mut message = [0; MAX_MESSAGE];
        let mut signature = [0; 2420];
        let length =
            fixture.secret.sign(bundle.seal.message(&mut message), &mut signature).unwrap();
        let signature = (i + 1 == bundles.len()).then_some(&signature[..length]);
        write::part(&mut out, &bundle.seal, Selection::Levels(mask), &digests, &events, signature);
    }
    write::end(&mut out);
    let mut events = 0;
    let mut reader = StreamReader::new(&fixture.roster, Limits::default());
    let mut count = |event: Event<'_>| -> Result<(), ReadError> {
        if let Event::Proven(proven) = event {
            events += proven.sample.len() as usize;
        }
        Ok(())
    };
    reader.feed(&out, &mut count).unwrap();
    reader.finish(&mut count).unwrap();
    (out.len(), events)
}

struct Table {
    text: String,
}

impl Table {
    fn row(&mut self, what: &str, value: &str, bar: &str) {
        writeln!(self.text, "| {what} | {value} | {bar} |").unwrap();
    }
}

#[test]
fn the_size_tables_are_up_to_date_and_within_their_bars() {
    let mut table = Table { text: String::new() };
    table.text.push_str(
        "# Sizes\n\n\
         `cargo test -p moteseal-bench --test it sizes` measures these sizes again. The test\n\
         fails if a number has changed, or exceeds the upper limit in the column *bar*. With\n\
         `MOTESEAL_BLESS=1`, it writes this page.\n\n\
         An epoch has 298 readings of 4 bytes, as in the paper's section VIII, and 16 levels.\n\n\
         ## On the wire\n\n| what | bytes | bar |\n|---|---|---|\n",
    );
    for (algorithm, name, bar) in [
        (Algorithm::Ed25519, "Ed25519", Some(128)),
        (Algorithm::Esp256, "ESP256", None),
        (Algorithm::MlDsa44, "ML-DSA-44", None),
    ] {
        let fixture = fixture(algorithm);
        for scheme in [Scheme::Star, Scheme::Tree] {
            // Measure the second seal, after the receiver has acknowledged the first one.
            let bundles = seal(&fixture, scheme, 2);
            let overhead = bundles[1].uplink_overhead();
            let bar_text = bar.map_or(String::new(), |bar| format!("{bar}"));
            let per_event = overhead as f64 / f64::from(EVENTS);
            table.row(
                &format!(
                    "upload of one epoch without its readings, {} and {name}",
                    scheme.as_str()
                ),
                &format!("{overhead} per seal, {per_event:.2} per reading"),
                &bar_text,
            );
            assert!(bar.is_none_or(|bar| overhead <= bar), "{overhead} bytes per seal");
        }
    }
    let fixture = fixture(Algorithm::Ed25519);
    let bundles = seal(&fixture, Scheme::Star, 30);
    for (rate, bar) in [("1", None), ("1/2", Some(0.6)), ("1/8", None), ("1/64", None)] {
        let (bytes, events) = answer(&fixture, &bundles, rate.parse().unwrap());
        let overhead = (bytes - events * 4) as f64 / events as f64;
        table.row(
            &format!(
                "answer for 30 epochs at rate {rate} without its {events} readings, star and \
                 Ed25519"
            ),
            &format!("{overhead:.2} per reading"),
            &bar.map_or(String::new(), |bar| format!("{bar}")),
        );
        assert!(
            bar.is_none_or(|bar| overhead <= bar),
            "{overhead} bytes per reading at rate {rate}"
        );
    }
    table.text.push_str("\n## An edge of a private sum\n\n");
    table.text.push_str(
        "A frame has one record of 32 bytes for each slot of the query and each key group,\n\
         regardless of the number of sources. The table has the sizes of the frames that a\n\
         gateway above 1,024 sources sends, including the link tag. The silent sources are\n\
         distributed evenly. The last line is the frame of a single source. The bar is\n\
         1,024 / 8 + 32 bytes, plus 34 bytes per record.\n\n",
    );
    table.text.push_str("| what | bytes | bar |\n|---|---|---|\n");
    for (percent, silent) in [("none", 0_u32), ("1 %", 10), ("10 %", 102), ("50 %", 512)] {
        let step = 1024_u32.checked_div(silent).unwrap_or(u32::MAX);
        let mut set = [0_u64; 16];
        (0..1024_u32)
            .filter(|n| n % step != step / 2 || n / step >= silent)
            .for_each(|n| set[n as usize / 64] |= 1 << (n % 64));
        assert_eq!(set.iter().map(|word| word.count_ones()).sum::<u32>(), 1024 - silent);
        let mut participation = [0; 256];
        let length = Participation::encode(&set, &mut participation).unwrap();
        for records in [1, 3] {
            let size = share(&participation[..length], records);
            let bar = 1024 / 8 + 32 + 34 * records;
            table.row(
                &format!("{percent} of the sources silent, records: {records}"),
                &size.to_string(),
                &bar.to_string(),
            );
            assert!(size <= bar, "{percent}, {records}: {size}");
        }
    }
    let mut one = [0; 8];
    let length = Participation::encode_one(1023, &mut one).unwrap();
    table.row("a single source, records: 1", &share(&one[..length], 1).to_string(), "");
    table.text.push_str("\n## In a device's memory\n\n| what | bytes | bar |\n|---|---|---|\n");
    for (levels, size) in
        [(8, size_of::<Star<8>>()), (16, size_of::<Star<16>>()), (32, size_of::<Star<32>>())]
    {
        let bar = 112 * levels + 256;
        table.row(&format!("star of {levels} levels"), &size.to_string(), &format!("{bar}"));
        assert!(size <= bar);
    }
    for (height, size) in
        [(10, size_of::<Tree<10>>()), (20, size_of::<Tree<20>>()), (32, size_of::<Tree<32>>())]
    {
        let bar = 33 * height + 256;
        table.row(
            &format!("tree of up to 2^{height} readings"),
            &size.to_string(),
            &format!("{bar}"),
        );
        assert!(size <= bar);
    }
    assert_ne!(bundles[0].blocks[0], Digest::NULL);

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sizes.md");
    if std::env::var_os("MOTESEAL_BLESS").is_some() {
        std::fs::write(&page, &table.text).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&page).unwrap_or_default(),
        table.text,
        "docs/sizes.md is out of date; MOTESEAL_BLESS=1 writes it"
    );
}
