//! Fuzzes queries, and the redaction and merging of proof files. What is written must verify, and must
//! not show more than the proofs. An input is a byte of flags, a set of columns, the length of the first
//! proof (2 bytes, big-endian), and two proofs.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use moteseal_api::Query;
use moteseal_client::redact::{Keep, KeptReadings, Redacted, merge, redact};
use moteseal_core::EpochNumber;
use moteseal_fixtures::world::Pick;
use moteseal_verify::write;

use crate::grouped;

/// A folder for the files of this process, in memory where the system has one.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("moteseal-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Reads the bytes as a query, and redacts and merges them as proofs.
pub fn run(bytes: &[u8]) {
    if let Ok(query) = Query::from_json(bytes) {
        let text = query.to_json();
        assert_eq!(Query::from_json(text.as_bytes()), Ok(query.clone()), "it is read back");
        assert_eq!(query.clone().check(), Ok(query), "what is read is valid");
    }
    let Some((&[flags, columns, high, low], rest)) = bytes.split_first_chunk() else { return };
    let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    let (first, second) = rest.split_at(length);
    let names = ["t", "p", "note", "q", "other"];
    let columns = (0..5).filter(|place| columns >> place & 1 == 1).map(|place: usize| names[place]);
    let keep = Keep {
        since: EpochNumber(if flags & 1 == 1 { 8 } else { 0 }),
        until: (flags & 2 == 2).then_some(EpochNumber(8)),
        readings: if flags & 4 == 4 {
            vec![KeptReadings { index: None, first: u32::from(flags >> 3 & 3), last: 4 }]
        } else {
            Vec::new()
        },
        columns: columns.map(str::to_owned).collect(),
        ..Keep::default()
    };
    let (out, path) = (folder().join("out.mproof"), Path::new("proof"));
    let mut written = Vec::new();
    for proof in [first, second] {
        if let Ok(Redacted { report, .. }) = redact(proof, path, grouped::roster(), &keep, &out) {
            let redacted = std::fs::read(&out).unwrap();
            assert!(!report.is_complete(), "a redaction is never complete");
            check(&redacted);
            // Nothing is left to omit, so that a second redaction keeps everything.
            let everything = Keep::default();
            redact(&redacted[..], path, grouped::roster(), &everything, &out).expect("a proof");
            assert_eq!(std::fs::read(&out).unwrap(), redacted);
            written.push(redacted);
        }
    }
    if merge(vec![(first, path), (second, path)], grouped::roster(), &out).is_ok() {
        check(&std::fs::read(&out).unwrap());
    }
    if let [one, other] = &written[..] {
        let sources = vec![(&one[..], path), (&other[..], path)];
        if merge(sources, grouped::roster(), &out).is_ok() {
            check(&std::fs::read(&out).unwrap());
        }
    }
}

/// Checks that a written proof verifies. [`grouped::read`] compares its rows with those that were
/// sealed.
fn check(proof: &[u8]) {
    grouped::read(proof).expect("a written proof verifies");
}

/// Returns queries and pairs of proofs.
pub fn seeds() -> Vec<Vec<u8>> {
    let ids = grouped::sealed().each_ref().map(|seals| seals[0].seal.statement().device);
    let query = |device: usize, choice: &str| {
        format!("{{\"devices\":[\"{}\"],\"since\":0,\"until\":9,{choice}}}", ids[device])
    };
    let mut seeds: Vec<Vec<u8>> = [
        r#""rate":"1""#,
        r#""rate":"1/8","columns":["t","q"]"#,
        r#""at_most":7"#,
        r#""sample":{"count":3,"seed":"0000000000000000000000000000000000000000000000000000000000000007"}"#,
        r#""readings":[[0,1,2],[1,0,1]]"#,
    ]
    .map(|choice| query(1, choice).into_bytes())
    .to_vec();
    let proof = |text: &str, stream: &[u8]| {
        let mut out = Vec::new();
        write::proof(&mut out, text);
        out.extend_from_slice(stream);
        write::end(&mut out);
        out
    };
    let whole = [0, 1].map(|device| {
        proof(&query(device, r#""rate":"1""#), &grouped::stream(device, &Pick::Levels(0xff)))
    });
    let columns = query(1, r#""rate":"1","columns":["t"]"#);
    let part = proof(&columns, &grouped::stream(1, &Pick::Levels(0xff)));
    let sources = [(&whole[0], &whole[1]), (&whole[1], &whole[1]), (&whole[1], &part)];
    for (flags, columns) in [(0, 0), (0, 0b1), (0, 0b1000), (1, 0), (2, 0b10), (12, 0), (4, 1)] {
        for (one, other) in sources {
            let length = u16::try_from(one.len()).expect("a short proof").to_be_bytes();
            seeds.push([&[flags, columns][..], &length, one, other].concat());
        }
    }
    seeds
}
