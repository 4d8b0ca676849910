//! Vectors of encodings, hashes and formulas: CBOR, levels, stars, trees, permutations, and
//! formulas of selections.

use moteseal_core::Digest;
use moteseal_core::record::DeviceId;
use moteseal_seal::tree;
use serde_json::json;

use super::{File, Files};
use moteseal_fixtures::world::{self, FIXED, schema};

pub fn make(files: &mut Files) {
    files.add(cbor());
    files.add(level());
    files.add(star());
    files.add(tree_shapes());
    files.add(permutation());
    files.add(rates());
}

fn cbor() -> File {
    let mut file = File::new("cbor/items.json", "Deterministic CBOR: objects.md, section 1.2.");
    let deep = |containers: usize, inside: &str| format!("{}{inside}", "81".repeat(containers));
    for (name, bytes) in [
        ("zero", "00".to_owned()),
        ("the largest one-byte integer", "17".into()),
        ("24 takes two bytes", "1818".into()),
        ("1000", "1903e8".into()),
        ("65536", "1a00010000".into()),
        ("2^32", "1b0000000100000000".into()),
        ("2^64-1", "1bffffffffffffffff".into()),
        ("-1", "20".into()),
        ("-2^64", "3bffffffffffffffff".into()),
        ("an empty byte string", "40".into()),
        ("bytes", "43010203".into()),
        ("24 bytes", format!("5818{}", "ab".repeat(24))),
        ("text in UTF-8", "64c3a4c3b6".into()),
        ("a character outside the basic plane", "64f09f8cb1".into()),
        ("an empty array", "80".into()),
        ("an array of arrays", "8201820203".into()),
        ("a map with sorted keys", "a301000200200a".into()),
        ("keys sort by their bytes: a shorter integer first", "a21818001901000a".into()),
        ("false, true and null", "83f4f5f6".into()),
        ("a tag", "d28440a0f640".into()),
        ("twelve arrays around an integer", deep(12, "00")),
    ] {
        file.valid(name, "cbor.item", json!({ "bytes": bytes }));
    }
    for (name, bytes, error) in [
        ("nothing", String::new(), "Truncated"),
        ("a head without its argument", "18".into(), "Truncated"),
        ("half an argument", "1901".into(), "Truncated"),
        ("bytes cut short", "420a".into(), "Truncated"),
        ("a byte string longer than any input", "5bffffffffffffffff".into(), "Truncated"),
        ("an array without its element", "81".into(), "Truncated"),
        ("an array longer than any input", "9bffffffffffffffff00".into(), "Truncated"),
        ("a map without its value", "a101".into(), "Truncated"),
        ("a map longer than any input", "bbffffffffffffffff".into(), "Truncated"),
        ("a tag without its content", "d2".into(), "Truncated"),
        ("half a float", "f9".into(), "Truncated"),
        ("two items", "0000".into(), "TrailingBytes"),
        ("a break behind an item", "00ff".into(), "TrailingBytes"),
        ("23 in two bytes", "1817".into(), "NonCanonical"),
        ("255 in three bytes", "1900ff".into(), "NonCanonical"),
        ("65535 in five bytes", "1a0000ffff".into(), "NonCanonical"),
        ("2^32-1 in nine bytes", "1b00000000ffffffff".into(), "NonCanonical"),
        ("a negative integer in too many bytes", "3817".into(), "NonCanonical"),
        ("a byte string's length in too many bytes", "580141".into(), "NonCanonical"),
        ("a text's length in too many bytes", "780161".into(), "NonCanonical"),
        ("an array's length in too many bytes", "980100".into(), "NonCanonical"),
        ("a map's length in too many bytes", "b8010000".into(), "NonCanonical"),
        ("a tag in too many bytes", "d80200".into(), "NonCanonical"),
        ("a reserved head", "1c".into(), "NonCanonical"),
        ("a reserved head of an array", "9e".into(), "NonCanonical"),
        ("an indefinite byte string", "5f4100ff".into(), "NonCanonical"),
        ("an indefinite text", "7f6161ff".into(), "NonCanonical"),
        ("an indefinite array", "9f00ff".into(), "NonCanonical"),
        ("an indefinite map", "bf0000ff".into(), "NonCanonical"),
        ("a break alone", "ff".into(), "NonCanonical"),
        ("undefined", "f7".into(), "NonCanonical"),
        ("a simple value", "f0".into(), "NonCanonical"),
        ("a simple value in two bytes", "f8ff".into(), "NonCanonical"),
        ("true in two bytes", "f815".into(), "NonCanonical"),
        ("a half float", "f93c00".into(), "NonCanonical"),
        ("a float", "fa3f800000".into(), "NonCanonical"),
        ("a double", "fb3ff0000000000000".into(), "NonCanonical"),
        ("text that is not UTF-8", "62c328".into(), "NonCanonical"),
        ("an overlong UTF-8 sequence", "62c080".into(), "NonCanonical"),
        ("a surrogate in UTF-8", "63eda080".into(), "NonCanonical"),
        ("a UTF-8 sequence cut short", "61c3".into(), "NonCanonical"),
        ("keys out of order", "a202000100".into(), "NonCanonical"),
        ("a key twice", "a201000101".into(), "NonCanonical"),
        ("keys sorted by their length only", "a2200018180a".into(), "NonCanonical"),
        ("a key out of order before a value that is missing", "a2020001".into(), "NonCanonical"),
        ("thirteen arrays around an integer", deep(13, "00"), "NonCanonical"),
        ("a thousand arrays", deep(1000, ""), "NonCanonical"),
        ("a non-canonical item inside", "82001817".into(), "NonCanonical"),
    ] {
        file.invalid(name, "cbor.item", json!({ "bytes": bytes }), error);
    }
    file
}

fn level() -> File {
    let mut file = File::new(
        "level/levels.json",
        "Ids, salts, levels and counters: objects.md, sections 1.4 and 6.2.",
    );
    file.valid("ids", "level.ids", json!({ "group": "home", "device": "dev1" }));
    file.valid(
        "ids of names outside ASCII",
        "level.ids",
        json!({ "group": "Zürich", "device": "Fühler 1" }),
    );
    let device = DeviceId::of("home", "dev1");
    for index in [0, 1, u32::MAX] {
        let input =
            json!({ "key": hex::encode([0x5a; 32]), "device": device.to_string(), "index": index });
        file.valid(format!("the salt of index {index}"), "level.salt", input);
    }
    let seqs = [0u32, 1, 2, 3, 4, 5, 6, 7, 100, 65_535, 65_536, 0xffff_fffe];
    for (name, salt) in [
        ("of zeros", [0; 16]),
        ("of ones", [0xff; 16]),
        ("of the SipHash paper", std::array::from_fn(|i| i as u8)),
    ] {
        for levels in [1, 2, 8, 16, 32] {
            let input = json!({ "salt": hex::encode(salt), "levels": levels, "seqs": seqs });
            file.valid(format!("a salt {name}, {levels} levels"), "level.level", input);
        }
        file.valid(
            format!("counters under a salt {name}"),
            "level.counters",
            json!({ "salt": hex::encode(salt), "levels": 8, "n": 298 }),
        );
    }
    file.valid(
        "counters of nothing",
        "level.counters",
        json!({ "salt": hex::encode([7; 16]), "levels": 4, "n": 0 }),
    );
    file
}

fn records(count: usize, length: impl Fn(usize) -> usize) -> Vec<String> {
    (0..count)
        .map(|i| hex::encode((0..length(i)).map(|j| (i * 31 + j * 7) as u8).collect::<Vec<u8>>()))
        .collect()
}

fn star() -> File {
    let mut file = File::new(
        "star/seals.json",
        "The star of an epoch: blocks, their digests, the root. Section 3.",
    );
    let device = DeviceId::of(world::GROUP, "ed").to_string();
    let mut case = |name: &str, schema: &[u8], index: u32, records: Vec<String>| {
        let input = json!({
            "device": device, "index": index, "levels": 8, "salt": hex::encode([index as u8 + 1; 16]),
            "schema": hex::encode(schema), "records": records,
        });
        file.valid(name, "star.seal", input);
    };
    let (fixed, opaque) = (schema(FIXED), schema(&[]));
    case("no events", &fixed, 0, Vec::new());
    case("one event", &fixed, 1, records(1, |_| 4));
    case("an epoch of 4-byte records", &fixed, 2, records(298, |_| 4));
    case("equal records", &fixed, 3, vec!["01020304".to_owned(); 40]);
    case("opaque records of every length", &opaque, 4, records(70, |i| i));
    case("empty opaque records", &opaque, 5, records(9, |_| 0));
    case("a long opaque record", &opaque, 6, vec![hex::encode(vec![0xa5; 1000])]);
    file
}

fn tree_shapes() -> File {
    let mut file = File::new(
        "tree/shapes.json",
        "Roots, paths and multiproofs: RFC 9162, and answers.md, section 1.3.",
    );
    for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 31] {
        file.valid(
            format!("the root of {count} records"),
            "tree.root",
            json!({ "records": records(count, |i| i % 9) }),
        );
    }
    for (count, seq) in [(1, 0), (2, 0), (2, 1), (3, 2), (5, 4), (7, 2), (8, 5), (31, 30), (31, 16)]
    {
        let input = json!({ "records": records(count, |i| i % 9), "seq": seq });
        file.valid(format!("the path of {seq} in {count}"), "tree.path", input);
    }
    for (count, selected) in [
        (1, vec![]),
        (1, vec![0]),
        (5, vec![4]),
        (7, vec![0, 1, 2]),
        (8, vec![3, 4]),
        (31, vec![]),
        (31, vec![0, 7, 8, 30]),
    ] {
        let input = json!({ "records": records(count, |i| i % 9), "selected": selected });
        file.valid(format!("the multiproof of {selected:?} in {count}"), "tree.multiproof", input);
    }
    let every: Vec<u64> = (0..13).collect();
    file.valid(
        "the multiproof of everything",
        "tree.multiproof",
        json!({ "records": records(13, |_| 4), "selected": every }),
    );

    let leaves: Vec<Digest> = (0..7u8).map(|i| tree::leaf(&[i])).collect();
    let path: Vec<String> = world::path(&leaves, 4).iter().map(Digest::to_string).collect();
    let leaf = leaves[4].to_string();
    let case = |seq: u64, size: u64, path: &[String]| json!({ "leaf": leaf, "seq": seq, "size": size, "path": path });
    file.valid("a path leads to a root", "tree.path_root", case(4, 7, &path));
    file.valid("in a tree of one the leaf is the root", "tree.path_root", case(0, 1, &[]));
    file.invalid("a position that is not there", "tree.path_root", case(7, 7, &path), "OutOfRange");
    file.invalid("a position in an empty tree", "tree.path_root", case(0, 0, &[]), "OutOfRange");
    file.invalid("a path too short", "tree.path_root", case(4, 7, &path[..2]), "DigestCount");
    file.invalid("no path", "tree.path_root", case(4, 7, &[]), "DigestCount");
    let long = [&path[..], &path[..1]].concat();
    file.invalid("a path too long", "tree.path_root", case(4, 7, &long), "DigestCount");
    file.invalid(
        "a path in a tree of one",
        "tree.path_root",
        case(0, 1, &path[..1]),
        "DigestCount",
    );
    file.invalid(
        "the path of another size",
        "tree.path_root",
        case(4, 1 << 40, &path),
        "DigestCount",
    );
    file
}

fn permutation() -> File {
    let mut file = File::new(
        "permutation/choose.json",
        "The permutation that fixes a sample: answers.md, section 4.3.",
    );
    let device = DeviceId::of(world::GROUP, "ed");
    for (name, seed, epoch, total, m) in [
        ("ten of a hundred", [3; 32], 7, "100", 10),
        ("more than there are", [4; 32], 8, "5", 9),
        ("all, in the order they are drawn", [5; 32], 9, "12", 12),
        ("none", [6; 32], 10, "12", 0),
        ("of an empty epoch", [6; 32], 10, "0", 4),
        ("of a very long epoch", [0xff; 32], u64::MAX >> 11, "18446744073709551615", 16),
        ("where half of all words are rejected", [0x55; 32], 0, "9223372036854775809", 24),
    ] {
        let input = json!({ "seed": hex::encode(seed), "device": device.to_string(), "epoch": epoch, "total": total, "m": m });
        file.valid(name, "permutation.choose", input);
    }
    file
}

fn rates() -> File {
    let mut file = File::new(
        "choice/formulas.json",
        "Which levels a rate or a number of events selects: answers.md, section 4.",
    );
    for (rate, levels) in [
        ("1", 16),
        ("1/2", 16),
        ("1/8", 16),
        ("5/8", 16),
        ("3/4", 16),
        ("1/3", 16),
        ("0.1", 16),
        ("1/32768", 16),
        ("32767/32768", 16),
        ("1", 1),
        ("1/2", 2),
        ("1/128", 8),
        ("127/128", 8),
        ("255/256", 8),
        ("1/2147483648", 32),
        ("0.999999999", 32),
    ] {
        file.valid(
            format!("rate {rate} of {levels} levels"),
            "choice.rate",
            json!({ "rate": rate, "levels": levels }),
        );
    }
    for (rate, levels) in
        [("1/65536", 16), ("1/256", 8), ("1/2", 1), ("999/1000", 1), ("0", 16), ("3/2", 16)]
    {
        let input = json!({ "rate": rate, "levels": levels });
        file.invalid(
            format!("rate {rate} of {levels} levels"),
            "choice.rate",
            input,
            "RateUnavailable",
        );
    }
    let part = |counters: &[u32], own_round: u8, lost: &[u32]| json!({ "counters": counters, "own_round": own_round, "lost": lost });
    let full = [50, 26, 12, 7, 3, 1, 0, 1];
    for (m, name) in [
        (0, "nothing fits"),
        (1, "a fine level fits, coarser ones do not"),
        (62, "50 and 12"),
        (99, "all but one"),
        (100, "all"),
        (51, "50 and the first finer one that fits"),
    ] {
        file.valid(
            format!("at most {m}: {name}"),
            "choice.at_most",
            json!({ "m": m, "parts": [part(&full, 0, &[])] }),
        );
    }
    let parts = [part(&full, 0, &[]), part(&[10, 4, 2, 1, 0, 0, 0, 0], 1, &[])];
    file.valid(
        "two parts, of which one dropped its coarsest level",
        "choice.at_most",
        json!({ "m": 60, "parts": parts }),
    );
    let parts =
        [part(&full, 0, &[0, 0, 2, 0, 0, 0, 0, 0]), part(&[10, 4, 2, 1, 0, 0, 0, 0], 0, &[])];
    file.valid(
        "a level with lost events does not survive",
        "choice.at_most",
        json!({ "m": 1000, "parts": parts }),
    );
    let parts = [part(&[0, 3, 1, 0], 2, &[])];
    file.valid(
        "an empty level below the round survives",
        "choice.at_most",
        json!({ "m": 1000, "parts": parts }),
    );
    file
}
