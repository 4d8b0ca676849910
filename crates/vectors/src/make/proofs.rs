//! Vectors of proofs: the text of their query, and which failure counts if an answer has several
//! (spec/answers.md, section 4).

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::signature::Algorithm;
use moteseal_seal::sample::Rate;
use moteseal_verify::write;
use serde_json::{Value as Json, json};

use super::coordinator::{file_within, group_within, id, manifest};
use super::pruned::{device, item};
use super::within::{ROUNDS, World, at_most, case, course, course_of, ended};
use super::{File, Files, of};
use moteseal_fixtures::cbor_tree::{NULL, Value, bytes, encode_sequence, sequence};
use moteseal_fixtures::world::{Epoch, FIXED, LEVELS, Pick, Sealed, schema};

const ED: Algorithm = Algorithm::Ed25519;
const OP: &str = "proof.open";

pub fn make(files: &mut Files) {
    files.add(queries());
    files.add(order());
    files.add(named());
    files.add(redacted());
}

/// Returns a proof with this query and this answer.
fn proof(query: &str, answer: &[u8]) -> Json {
    let mut out = Vec::new();
    write::proof(&mut out, query);
    of(&[&out, answer].concat())
}

fn queries() -> File {
    let mut file = file_within(
        "proof/queries.json",
        "The text of a proof's query: answers.md, sections 3.1 and 3.2. The answers are empty, except those to a rate.",
        ED,
    );
    let (north, south) = (id("north").to_string(), id("south").to_string());
    let roster = group_within(ED).digest().to_string();
    let empty = ended(&[]);
    let seed = "77".repeat(32);
    let base = format!(r#""devices":["{north}"],"since":10,"until":13"#);
    let valid = [
        ("a rate", format!(r#"{{{base},"rate":"1/8"}}"#)),
        ("the rate 1", format!(r#"{{{base},"rate":"1"}}"#)),
        (
            "the longest rates",
            format!(r#"{{{base},"rate":"000000000000000001.000000000000000000"}}"#),
        ),
        ("the lowest rate", format!(r#"{{{base},"rate":"1/2147483648"}}"#)),
        ("at most", format!(r#"{{{base},"at_most":0}}"#)),
        ("at most 2^64-1", format!(r#"{{{base},"at_most":18446744073709551615}}"#)),
        ("a sample", format!(r#"{{{base},"sample":{{"count":1,"seed":"{seed}"}}}}"#)),
        (
            "a sample of 2^32-1",
            format!(r#"{{{base},"sample":{{"seed":"{seed}","count":4294967295}}}}"#),
        ),
        ("the digest of the roster", format!(r#"{{{base},"rate":"1","roster":"{roster}"}}"#)),
        (
            "the digest of the version before",
            format!(r#"{{{base},"rate":"1","roster":"{}"}}"#, Digest::of(&[b"version 0"])),
        ),
        (
            "upper case",
            format!(
                r#"{{"devices":["{}"],"since":10,"until":13,"rate":"1","roster":"{}"}}"#,
                north.to_uppercase(),
                roster.to_uppercase()
            ),
        ),
        (
            "columns",
            format!(r#"{{{base},"rate":"1","columns":["temperature","{}"]}}"#, "x".repeat(64)),
        ),
        ("columns of null", format!(r#"{{{base},"rate":"1","columns":null}}"#)),
        ("no end", format!(r#"{{"devices":["{north}"],"since":10,"rate":"1"}}"#)),
        (
            "an end of null",
            format!(r#"{{"devices":["{north}"],"since":10,"until":null,"rate":"1"}}"#),
        ),
        ("choices of null", format!(r#"{{{base},"rate":null,"at_most":7,"sample":null}}"#)),
        ("the last epoch", {
            format!(
                r#"{{"devices":["{north}"],"since":18446744073709551614,"until":18446744073709551615,"rate":"1"}}"#
            )
        }),
        (
            "white space and escapes",
            format!("\n{{\t{base} ,\r\n \"r\\u0061te\" : \"1\\u002f8\" }} "),
        ),
        ("two devices", {
            format!(r#"{{"devices":["{south}","{north}"],"since":10,"until":13,"rate":"1"}}"#)
        }),
        (
            "a device that the roster does not have",
            r#"{"devices":["0011223344556677"],"since":10,"until":13,"rate":"1"}"#.to_owned(),
        ),
    ];
    for (name, query) in valid {
        file.valid(name, OP, proof(&query, &empty));
    }
    let World { north: sealed, .. } = World::new(Scheme::Star, 0);
    for text in ["1/8", "0.125", "02/16", "0.2", "1/3", "1", "1.000", "7/7", "0.999", "127/128"] {
        let mask = text.parse::<Rate>().unwrap().levels(LEVELS).unwrap();
        let answer = ended(&[course(&sealed, &[mask, mask, mask, mask, 0])]);
        let query = format!(r#"{{{base},"rate":"{text}"}}"#);
        file.valid(format!("a rate of {text}, with readings"), OP, proof(&query, &answer));
    }
    let all = ended(&[course(&sealed, &[0xff, 0xff, 0xff, 0xff, 0])]);
    let columns = |names: &str| format!(r#"{{{base},"rate":"1","columns":[{names}]}}"#);
    let both = proof(&columns(r#""humidity","temperature""#), &all);
    file.valid("all columns, with readings", OP, both);
    file.valid("one column, with readings", OP, proof(&columns(r#""humidity""#), &all));
    let attic = proof(&columns(r#""humidity","attic""#), &all);
    file.invalid("a column that the seals do not have", OP, attic, "UnknownColumn");
    let low = ended(&[course(&sealed, &[0; 5])]);
    file.invalid(
        "a rate that rounds to 0, with readings",
        OP,
        proof(&format!(r#"{{{base},"rate":"1/256"}}"#), &low),
        "RateUnavailable",
    );
    for text in [
        "",
        "0",
        "0/8",
        "0.0",
        "9/8",
        "1.5",
        "2",
        "-1",
        "+1",
        "1/0",
        "1/",
        "/2",
        "0.",
        ".5",
        "1e-3",
        " 1",
        "1 ",
        "1/2/4",
        "0.5.5",
        "1/2.0",
        "0x1",
        "½",
        "１",
        "1/2147483649",
        "0.0000000001",
        "0000000000000000001",
        "1/1000000000000000000",
        "0.0000000000000000001",
    ] {
        let query = format!(r#"{{{base},"rate":"{text}"}}"#);
        file.invalid(format!("a rate of \"{text}\""), OP, proof(&query, &empty), "NotAProof");
    }
    let with = |fields: &str| format!("{{{fields}}}");
    let invalid = [
        ("nothing", String::new()),
        ("a text that is no JSON", "rate".to_owned()),
        ("more after it", format!(r#"{{{base},"rate":"1"}} {{}}"#)),
        ("a comma too many", format!(r#"{{{base},"rate":"1",}}"#)),
        ("an array", format!(r#"[["{north}"],10,13,"1",null,null]"#)),
        ("null", "null".to_owned()),
        ("no devices", with(r#""since":10,"until":13,"rate":"1""#)),
        ("an empty list of devices", with(r#""devices":[],"since":10,"until":13,"rate":"1""#)),
        ("devices that are a text", {
            with(&format!(r#""devices":"{north}","since":10,"until":13,"rate":"1""#))
        }),
        ("a device twice", {
            let upper = north.to_uppercase();
            with(&format!(r#""devices":["{north}","{upper}"],"since":10,"until":13,"rate":"1""#))
        }),
        ("a device's name", with(r#""devices":["north"],"since":10,"until":13,"rate":"1""#)),
        ("no first epoch", with(&format!(r#""devices":["{north}"],"until":13,"rate":"1""#))),
        ("a first epoch of null", {
            with(&format!(r#""devices":["{north}"],"since":null,"until":13,"rate":"1""#))
        }),
        ("a negative epoch", {
            with(&format!(r#""devices":["{north}"],"since":-1,"until":13,"rate":"1""#))
        }),
        ("minus zero", {
            with(&format!(r#""devices":["{north}"],"since":-0,"until":13,"rate":"1""#))
        }),
        ("an epoch with a fraction", {
            with(&format!(r#""devices":["{north}"],"since":10.0,"until":13,"rate":"1""#))
        }),
        ("an epoch with an exponent", {
            with(&format!(r#""devices":["{north}"],"since":1e1,"until":13,"rate":"1""#))
        }),
        ("epoch 2^64", {
            with(&format!(
                r#""devices":["{north}"],"since":10,"until":18446744073709551616,"rate":"1""#
            ))
        }),
        ("an empty range", {
            with(&format!(r#""devices":["{north}"],"since":13,"until":13,"rate":"1""#))
        }),
        ("a name twice", with(&format!(r#"{base},"rate":"x","rate":"1""#))),
        ("a name twice, with the same value", with(&format!(r#"{base},"rate":"1","rate":"1""#))),
        ("a name twice in a sample", {
            with(&format!(r#"{base},"sample":{{"count":1,"count":1,"seed":"{seed}"}}"#))
        }),
        ("no readings", with(&format!(r#"{base},"readings":[]"#))),
        ("nine runs of readings", {
            let runs: Vec<String> = (0..9).map(|index| format!("[{index},0,1]")).collect();
            with(&format!(r#"{base},"readings":[{}]"#, runs.join(",")))
        }),
        ("an empty run of readings", with(&format!(r#"{base},"readings":[[0,0,0]]"#))),
        ("reading 2^32-1", with(&format!(r#"{base},"readings":[[0,4294967295,1]]"#))),
        ("a seal of index 2^32", with(&format!(r#"{base},"readings":[[4294967296,0,1]]"#))),
        ("runs that overlap", with(&format!(r#"{base},"readings":[[0,0,2],[0,1,1]]"#))),
        ("runs in descending order", with(&format!(r#"{base},"readings":[[1,0,1],[0,0,1]]"#))),
        ("a run of two numbers", with(&format!(r#"{base},"readings":[[0,0]]"#))),
        ("readings that are an object", with(&format!(r#"{base},"readings":{{}}"#))),
        ("readings of two devices", {
            with(&format!(
                r#""devices":["{south}","{north}"],"since":10,"until":13,"readings":[[0,0,1]]"#
            ))
        }),
        ("no choice", with(&base)),
        ("two choices", with(&format!(r#"{base},"rate":"1","at_most":1"#))),
        ("a rate that is a number", with(&format!(r#"{base},"rate":1"#))),
        ("at most -1", with(&format!(r#"{base},"at_most":-1"#))),
        ("at most a text", with(&format!(r#"{base},"at_most":"1""#))),
        ("a sample of nothing", {
            with(&format!(r#"{base},"sample":{{"count":0,"seed":"{seed}"}}"#))
        }),
        ("a sample of 2^32", {
            with(&format!(r#"{base},"sample":{{"count":4294967296,"seed":"{seed}"}}"#))
        }),
        ("a short seed", {
            with(&format!(r#"{base},"sample":{{"count":1,"seed":"{}"}}"#, &seed[2..]))
        }),
        ("a sample without a seed", with(&format!(r#"{base},"sample":{{"count":1}}"#))),
        ("a sample with more", {
            with(&format!(r#"{base},"sample":{{"count":1,"seed":"{seed}","of":1}}"#))
        }),
        ("a sample that is an array", { with(&format!(r#"{base},"sample":[1,"{seed}"]"#)) }),
        ("no columns", with(&format!(r#"{base},"rate":"1","columns":[]"#))),
        ("a column twice", with(&format!(r#"{base},"rate":"1","columns":["a","b","a"]"#))),
        ("a column without a name", with(&format!(r#"{base},"rate":"1","columns":[""]"#))),
        ("a long name of a column", {
            with(&format!(r#"{base},"rate":"1","columns":["{}"]"#, "x".repeat(65)))
        }),
        ("columns that are a text", with(&format!(r#"{base},"rate":"1","columns":"a""#))),
        ("a redacted proof with columns", {
            with(&format!(r#"{base},"redacted":true,"columns":["a"]"#))
        }),
        ("a name that is unknown", with(&format!(r#"{base},"rate":"1","Roster":"""#))),
        ("a roster of null", with(&format!(r#"{base},"rate":"1","roster":null"#))),
        ("an empty roster", with(&format!(r#"{base},"rate":"1","roster":"""#))),
        ("a roster of 31 bytes", {
            with(&format!(r#"{base},"rate":"1","roster":"{}""#, &roster[2..]))
        }),
    ];
    for (name, query) in invalid {
        file.invalid(name, OP, proof(&query, &empty), "NotAProof");
    }
    let other = "00".repeat(32);
    file.invalid(
        "another roster",
        OP,
        proof(&format!(r#"{{{base},"rate":"1","roster":"{other}"}}"#), &empty),
        "UnknownRoster",
    );
    file.invalid(
        "another roster, and no choice",
        OP,
        proof(&format!(r#"{{{base},"roster":"{other}"}}"#), &empty),
        "NotAProof",
    );
    file
}

fn named() -> File {
    let mut file = file_within(
        "proof/readings.json",
        "Readings that a query names: answers.md, section 4.4.",
        ED,
    );
    let World { north, .. } = World::new(Scheme::Tree, 0);
    let nothing = || vec![Pick::Levels(0); north.len()];
    let with = |picks: &[(usize, &[u64])]| {
        let mut all = nothing();
        for (at, events) in picks {
            all[*at] = Pick::Events(events.to_vec());
        }
        ended(&[course_of(&north, &all)])
    };
    let index = |at: usize| north[at].seal.statement().index.0;
    let asked = |runs: &[(usize, u32, u32)]| {
        let runs: Vec<_> =
            runs.iter().map(|(at, first, count)| json!([index(*at), first, count])).collect();
        json!({ "readings": runs })
    };
    for (name, runs, picks) in [
        ("one reading", &[(0, 7, 1)][..], &[(0, &[7][..])][..]),
        ("the first and the last reading", &[(0, 0, 1), (0, 49, 1)], &[(0, &[0, 49])]),
        ("adjacent runs", &[(1, 3, 2), (1, 5, 1)], &[(1, &[3, 4, 5])]),
        ("readings of two epochs", &[(0, 9, 1), (2, 11, 1)], &[(0, &[9]), (2, &[11])]),
        ("a whole seal", &[(2, 0, 12)], &[(2, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])]),
    ] {
        file.valid(name, OP, proof_of(&with(picks), &["north"], &asked(runs)));
    }
    for (name, runs, picks, error) in [
        ("another reading", &[(0, 7, 1)][..], &[(0, &[8][..])][..], "NotAsAsked"),
        ("a reading of another seal", &[(0, 7, 1)], &[(1, &[7])], "NotAsAsked"),
        ("one reading more", &[(0, 7, 1)], &[(0, &[7, 8])], "NotAsAsked"),
        ("one reading less", &[(0, 7, 2)], &[(0, &[7])], "NotAsAsked"),
        ("none of the readings", &[(0, 7, 1)], &[], "NotAsAsked"),
        ("a reading after the range", &[(4, 0, 1)], &[(4, &[0])], "NotAsAsked"),
        ("a seal that is not in the range", &[(0, 7, 1), (4, 0, 1)], &[(0, &[7])], "NotAsAsked"),
    ] {
        file.invalid(name, OP, proof_of(&with(picks), &["north"], &asked(runs)), error);
    }
    let World { north: stars, .. } = World::new(Scheme::Star, 0);
    let levels = ended(&[course(&stars, &[0xff, 0, 0, 0, 0])]);
    let of_star = proof_of(&levels, &["north"], &asked(&[(0, 7, 1)]));
    file.invalid("a reading of a star", OP, of_star, "SchemeMismatch");
    file
}

/// Returns the proof of an answer to a query for the readings of these devices.
fn proof_of(answer: &[u8], names: &[&str], choice: &Json) -> Json {
    proof(&case(&[], names, Some(13), choice)["query"].to_string(), answer)
}

/// Returns a redacted proof of epochs 10 to 12 with this answer.
fn redacted_proof(answer: &[u8], names: &[&str]) -> Json {
    proof_of(answer, names, &json!({ "redacted": true }))
}

fn redacted() -> File {
    let mut file = file_within(
        "proof/redacted.json",
        "Redacted proofs, whose parts show what a redactor left: answers.md, section 7.1.",
        ED,
    );
    let (mut trees, mut stars) = (Vec::new(), Vec::new());
    for (scheme, out) in [(Scheme::Tree, &mut trees), (Scheme::Star, &mut stars)] {
        let World { north, south } = World::new(scheme, 0);
        *out = vec![north, south];
    }
    // The seals of epochs 10 (twice), 11, 12 and 13.
    let (tree, star) = (&trees[0], &stars[0]);
    let shown = |sealed: &[Sealed], picks: &[Pick]| course_of(sealed, picks);
    let (all, none) = (|| Pick::Levels(0xff), || Pick::Levels(0));
    let one = || Pick::Events(vec![7]);
    for (name, courses, names) in [
        ("everything", vec![shown(tree, &[all(), all(), all(), all(), none()])], &["north"][..]),
        ("single readings", vec![shown(tree, &[one(), none(), one(), all(), none()])], &["north"]),
        (
            "levels of a star",
            vec![shown(star, &[Pick::Levels(9), none(), all(), none(), none()])],
            &["north"],
        ),
        ("seals left out at both ends", vec![shown(&tree[1..3], &[one(), all()])], &["north"]),
        (
            "a seal left out between",
            vec![shown(&tree[..1], &[one()]), shown(&tree[2..3], &[one()])],
            &["north"],
        ),
        (
            "seals after the range that lead to a signature",
            vec![shown(tree, &[all(), none(), none(), none(), none()])],
            &["north"],
        ),
        (
            "two devices",
            vec![shown(&tree[..1], &[one()]), shown(&trees[1][2..3], &[one()])],
            &["north", "south"],
        ),
        ("a device without seals", vec![shown(&tree[..1], &[one()])], &["north", "south"]),
        ("no seal", vec![], &["north"]),
    ] {
        file.valid(name, OP, redacted_proof(&ended(&courses), names));
    }
    let twice = [shown(&tree[..1], &[one()]), shown(&tree[..1], &[all()])];
    let back = [shown(&tree[2..3], &[one()]), shown(&tree[..1], &[one()])];
    let beyond = [shown(&tree[4..5], &[one()])];
    let other = [shown(&trees[1][..1], &[one()])];
    let manifests = [World::new(Scheme::Tree, 0).manifests().concat(), shown(&tree[..1], &[one()])];
    for (name, courses, error) in [
        ("a seal twice", &twice[..], "NotAsAsked"),
        ("a seal before the one before it", &back, "NotAsAsked"),
        ("a reading after the range", &beyond, "NotAsAsked"),
        ("another device", &other, "NotAsAsked"),
        ("a manifest", &manifests, "NotAsAsked"),
    ] {
        file.invalid(name, OP, redacted_proof(&ended(courses), &["north"]), error);
    }
    // A second history of the device, which leaves out a seal of the first one.
    let mut forked = device("north");
    let fork: Vec<Sealed> = [(10, 50, false), (11, 12, true), (12, 30, true)]
        .map(|(epoch, count, last_in_epoch)| {
            forked.seal(&Epoch { last_in_epoch, ..Epoch::new(Scheme::Tree, epoch, count) })
        })
        .into();
    for (name, courses) in [
        ("two seals of one index", [shown(&tree[1..2], &[one()]), shown(&fork[1..2], &[one()])]),
        (
            "a seal that names another predecessor",
            [shown(&tree[1..2], &[one()]), shown(&fork[2..3], &[one()])],
        ),
    ] {
        file.invalid(name, OP, redacted_proof(&ended(&courses), &["north"]), "Equivocation");
    }
    let answer = ended(&[shown(&tree[..1], &[one()])]);
    for (name, choice) in [
        ("false", json!({ "redacted": false })),
        ("a number", json!({ "redacted": 1 })),
        ("a rate too", json!({ "redacted": true, "rate": "1" })),
        ("null, without a choice", json!({ "redacted": null })),
    ] {
        file.invalid(name, OP, proof_of(&answer, &["north"], &choice), "NotAProof");
    }
    let claims_all = proof_of(&answer, &["north"], &json!({ "rate": "1" }));
    file.invalid("the same items as the answer to a rate", OP, claims_all, "NotAsAsked");
    file
}

/// Returns the items of a device's section of an answer after a change of its parts. The first two
/// items are the schema and the open item.
fn changed(sealed: &[Sealed], masks: &[u32], change: impl FnOnce(&mut Vec<Value>)) -> Vec<u8> {
    let mut items = sequence(&course(sealed, masks));
    change(&mut items);
    encode_sequence(&items)
}

fn order() -> File {
    let mut file = file_within(
        "proof/order.json",
        "What an answer may contain, and which failure counts: answers.md, section 6.3.",
        ED,
    );
    let world = World::new(Scheme::Star, 0);
    let (north, south) = (&world.north, &world.south);
    let manifests = world.manifests().concat();
    let both = ["north", "south"];
    let most = json!({ "at_most": 1000 });
    let (to_north, to_south) = (at_most(north, 1000, &ROUNDS), at_most(south, 1000, &ROUNDS));
    let (of_north, of_south) = (course(north, &to_north), course(south, &to_south));
    let good = ended(&[manifests.clone(), of_north.clone(), of_south.clone()]);
    file.valid("the proof that the others are made of", OP, proof_of(&good, &both, &most));
    let refused = |file: &mut File, name: &str, pieces: &[&[u8]], error| {
        file.invalid(name, OP, proof_of(&pieces.concat(), &both, &most), error);
    };
    let (mut schema_item, mut end) = (Vec::new(), Vec::new());
    write::schema(&mut schema_item, &schema(FIXED));
    write::end(&mut end);
    let explanation = north[0].explain(false);
    let (mut query_item, mut problem) = (Vec::new(), Vec::new());
    write::proof(&mut query_item, "{}");
    write::problem(&mut problem, "StoreFailed", "the disk");

    // Finding F1 of the review: what follows the end item.
    let unsigned = north[0].part(&Pick::Levels(0xff), false);
    for (name, tail) in [
        ("a schema", &schema_item[..]),
        ("an open", &north[0].open(true)),
        ("a schema and an open", &[schema_item.clone(), north[0].open(true)].concat()),
        ("a part", &unsigned),
        ("a device again", &of_north),
        ("an end", &end),
        ("a problem", &problem),
        ("a query", &query_item),
        ("an explanation", &explanation),
        ("an unknown item", &[0x81, 8]),
        ("an item cut short", &[0x82]),
        ("a byte that no item starts with", &[0xff]),
    ] {
        refused(&mut file, &format!("{name} after the end"), &[&good, tail], "TrailingBytes");
    }

    // Finding F4 of the review: the error of a part comes before that of the item after it.
    let strange = [
        ("an explanation", &explanation, "NotAsAsked"),
        ("a query", &query_item, "NotAsAsked"),
        ("a problem", &problem, "StoreFailed"),
    ];
    let at_north = &[schema_item.clone(), north[0].open(true)].concat();
    let empty = changed(&north[..1], &[0], |items| {
        items[2] = items[2].with(13, NULL).with(11, bytes(&[]));
    });
    let altered = changed(&north[..1], &[0xff], |items| {
        let Value::Array(fields) = &items[2] else { panic!() };
        let Value::Bytes(mut records) = fields[12].clone() else { panic!() };
        records[0] ^= 1;
        items[2] = items[2].with(12, Value::Bytes(records));
    });
    for (what, item, error) in strange {
        for (name, part, first) in [
            ("no open", &unsigned, "NoOpen"),
            ("no schema", &[north[0].open(true), unsigned.clone()].concat(), "SchemaUnknown"),
            ("no digest", &empty, "DigestCount"),
            ("another record", &altered, "NotAuthentic"),
            ("no fault", &[at_north.clone(), unsigned.clone()].concat(), error),
        ] {
            let name = format!("a part of {name}, then {what}");
            refused(&mut file, &name, &[part, item, &end], first);
        }
    }
    for name in ["", "Two words", "\u{1b}[2J", "Ä", &"N".repeat(65)] {
        let mut nameless = Vec::new();
        write::problem(&mut nameless, name, "");
        refused(&mut file, &format!("a problem named {name:?}"), &[&nameless, &end], "Problem");
    }
    let mut long = Vec::new();
    write::problem(&mut long, "Closed", &"text ".repeat(200));
    refused(&mut file, "a problem with a longer text", &[&long], "Closed");
    refused(&mut file, "a part of a run, then the end", &[at_north, &unsigned, &end], "Unsigned");

    // The end item ends the checks of all devices, before anything after it.
    refused(
        &mut file,
        "a device that is not shown, and a byte after the end",
        &[&manifests, &of_north, &end, &[0]],
        "Missing",
    );
    refused(
        &mut file,
        "a device that is shown in part, and a byte after the end",
        &[&manifests, &of_north, &course(&south[..2], &to_south), &end, &[0]],
        "Missing",
    );
    refused(&mut file, "no end, and a device not shown", &[&manifests, &of_north], "Truncated");

    // The parts are checked as they come: the first failure counts.
    let levels = |sealed: &[Sealed], masks: &[u32], at: usize, mask: u32| {
        let mut masks = masks.to_vec();
        masks[at] = mask;
        course(sealed, &masks)
    };
    let short = levels(north, &to_north, 0, 0x80);
    refused(
        &mut file,
        "an epoch that is not as asked, then no item",
        &[&manifests, &short, &[0xff]],
        "NotAsAsked",
    );
    refused(
        &mut file,
        "the last epoch of a device that is not as asked, then no item",
        &[&manifests, &levels(&north[..4], &to_north, 3, 0x80), &[0xff]],
        "NonCanonical",
    );
    let after = [north[3].open(true), north[3].part(&Pick::Levels(0), true)].concat();
    let skipping = [course(&north[..2], &[0x80, 0x80]), after].concat();
    refused(
        &mut file,
        "an epoch that is not as asked, then a seal after one that is missing",
        &[&manifests, &skipping, &end],
        "Missing",
    );
    refused(
        &mut file,
        "listed seals that are not shown, then a device that was not asked",
        &[&manifests, &course(&north[..3], &to_north), &{
            let mut east = device("east");
            let sealed = [east.seal(&Epoch::new(Scheme::Star, 10, 5))];
            course(&sealed, &[0xff])
        }],
        "Missing",
    );
    refused(
        &mut file,
        "a device that is passed over, then a level less of the next",
        &[&manifests, &levels(south, &to_south, 0, 0x80), &end],
        "Missing",
    );
    let elsewhere = vec![(id("north"), vec![Digest([0x78; 32])])];
    refused(
        &mut file,
        "a listed seal that is not shown, then an epoch that is not as asked",
        &[&item(&manifest(10, 2, &elsewhere)), &levels(north, &to_north, 0, 0xff), &end],
        "NotAsAsked",
    );

    // What is no proof.
    file.invalid("nothing", OP, of(&[]), "NotAProof");
    file.invalid("an answer", OP, of(&good), "NotAProof");
    file.invalid("a schema first", OP, of(&[schema_item, good.clone()].concat()), "NotAProof");
    file.invalid("an item that is not a stream item", OP, of(&[0x80]), "UnexpectedType");
    file.invalid("half of the query", OP, of(&[0x83, 0x05, 0x01]), "Truncated");
    refused(&mut file, "nothing after the query", &[], "Truncated");
    file
}
