//! Sanitised column groups, checked with an oracle that is written from spec/sanitised.md: honest cells
//! are returned with their sanitiser, and everything else is refused by name.

use moteseal_core::Digest;
use moteseal_core::roster::sanitiser_id;
use moteseal_core::schema::FieldType;
use moteseal_verify::issue::NextRoster;
use moteseal_verify::sanitised::{self, WaitingStatements};
use moteseal_verify::{Sanitised, SanitiserRight};

use super::*;

/// The group that is sanitised: column c2, a `u32`.
const GROUP: u8 = 3;
/// The epoch of the seal.
const EPOCH: u64 = 7;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn right() -> SanitiserRight {
    SanitiserRight {
        devices: None,
        groups: Groups::NONE.with(GROUP),
        first_epoch: EpochNumber(0),
        end_epoch: None,
    }
}

/// The roster's next version, with the sanitiser `gw` (key 9) and this right.
fn roster_with(right: SanitiserRight) -> Roster {
    changed(&roster().0, |next| next.set_sanitiser("gw", Some(&key(9).public()), right).unwrap())
}

fn changed(before: &Roster, change: impl FnOnce(&mut NextRoster<'_>)) -> Roster {
    let operator = key(1);
    let mut next = NextRoster::after(before.bytes(), &operator, &operator.public()).unwrap();
    change(&mut next);
    Roster::open(&next.issue().unwrap(), &operator.public()).unwrap()
}

fn world(scheme: Scheme) -> World {
    let columns = [(0, 2), (1, 1), (GROUP, 4)];
    let columns = columns.map(|(group, width)| Column { group, width: Some(width) }).to_vec();
    let rows = (0..50_u8)
        .map(|row| vec![vec![row, 1], vec![row.wrapping_mul(7)], vec![row, row, 2, 3]])
        .collect();
    World { columns, rows, scheme, salt_key: [5; 32] }
}

/// The new cells: one byte instead of four.
fn schema() -> Vec<u8> {
    let field = Field::new("c2", "", FieldType::U8).with_id(3);
    Schema::encode(&[field], &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

fn cells(world: &World, mask: u32) -> Vec<u8> {
    let rows = (0..world.rows.len()).filter(|row| mask >> world.level(*row) & 1 == 1);
    rows.map(|row| world.rows[row][2][0] / 10).collect()
}

/// `D'_ig`
fn block(world: &World, level: u8, group: u8) -> Digest {
    let cells: Vec<u8> =
        world.rows_of(level).iter().map(|row| world.rows[*row][2][0] / 10).collect();
    Digest(sha256(&[
        &padded("moteseal/1/sanitised"),
        &World::device().0,
        &INDEX.to_be_bytes(),
        &u32::from(level).to_be_bytes(),
        &u32::from(group).to_be_bytes(),
        &[0; 12],
        &cells,
    ]))
}

fn statement(world: &World, roster: &Roster, mask: u32) -> sanitised::Statement {
    let (seal, _) = world.seal(&super::roster().0, &super::roster().1);
    sanitised::Statement {
        group: roster.group(),
        roster: roster.digest(),
        sanitiser: sanitiser_id("home", "gw"),
        device: World::device(),
        index: SealIndex(INDEX),
        seal: seal.digest(),
        schema: seal.statement().schema,
        column_group: GROUP,
        mask,
        fields: schema(),
        policy: "tens".to_owned(),
        blocks: (0..LEVELS)
            .filter(|level| mask >> level & 1 == 1)
            .map(|level| block(world, level, GROUP))
            .collect(),
    }
}

/// A stream with sanitised items before its part, which shows the groups 0 and 1.
fn stream(world: &World, mask: u32, items: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    stream_showing(world, &[0, 1], mask, items)
}

fn stream_showing(world: &World, shown: &[u8], mask: u32, items: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    with_items(&world.stream(shown, mask, false), items)
}

fn with_items(stream: &[u8], items: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = stream;
    while let Ok((item, length)) = Item::decode(rest) {
        if matches!(item, Item::Part(_)) {
            for (signed, cells) in items {
                write::sanitised(&mut out, signed, cells);
            }
        }
        out.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

/// Verifies a stream and its sanitised items.
fn read_sanitised(stream: &[u8], roster: &Roster) -> Result<Vec<Sanitised>, &'static str> {
    enum Stop {
        Read(ReadError),
        Sanitised(sanitised::SanitisedError),
    }
    impl From<ReadError> for Stop {
        fn from(error: ReadError) -> Self {
            Self::Read(error)
        }
    }
    let (mut waiting, mut found) = (WaitingStatements::default(), Vec::new());
    let mut visit = |event: Event<'_>| {
        match event {
            Event::Sanitised(signed, cells) => waiting.push((signed, cells), roster),
            Event::Proven(proven) => waiting.take(&proven, roster).map(|taken| found.extend(taken)),
            _ => Ok(()),
        }
        .map_err(Stop::Sanitised)
    };
    let mut reader = StreamReader::new(roster, Limits::default());
    let result = reader.feed(stream, &mut visit).and_then(|()| reader.finish(&mut visit));
    result.map_err(|stop| match stop {
        Stop::Read(error) => error.name(),
        Stop::Sanitised(error) => error.name(),
    })?;
    waiting.finish().map_err(|error| error.name())?;
    Ok(found)
}

/// The result for one statement, which is changed before it is signed.
fn refused(change: impl FnOnce(&mut sanitised::Statement)) -> Option<&'static str> {
    let (world, roster) = (world(Scheme::Star), roster_with(right()));
    let mut statement = statement(&world, &roster, 15);
    change(&mut statement);
    let item = (statement.sign(&key(9)).unwrap(), cells(&world, 15));
    read_sanitised(&stream(&world, 15, &[item]), &roster).err()
}

#[test]
fn sanitised_cells_are_returned_with_their_sanitiser() {
    let roster = roster_with(right());
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = world(scheme);
        for mask in 1..16 {
            let item =
                (statement(&world, &roster, mask).sign(&key(9)).unwrap(), cells(&world, mask));
            let stream = stream(&world, mask, &[item]);
            let found = read_sanitised(&stream, &roster).unwrap();
            let [of] = &found[..] else { panic!("{} groups", found.len()) };
            assert_eq!((of.by(), of.group(), of.cells()), ("gw", GROUP, &cells(&world, mask)[..]));
            assert_eq!(of.statement().policy, "tens");
            // The device's signature proves the other columns, with or without the statement.
            let stripped = stream_rows(&world.stream(&[0, 1], mask, false));
            assert_eq!(stream_rows(&stream), stripped);
            assert!(
                read_sanitised(&world.stream(&[0, 1], mask, false), &roster).unwrap().is_empty()
            );
        }
    }
}

#[test]
fn a_statement_about_something_else_is_refused_by_name() {
    assert_eq!(refused(|_| {}), None);
    let other = Digest([8; 32]);
    type Change = fn(&mut sanitised::Statement);
    let cases: [(&str, Change); 16] = [
        ("WrongGroup", |of| of.group.0[0] ^= 1),
        ("UnknownRoster", |of| of.roster = Digest([8; 32])),
        ("UnknownSanitiser", |of| of.sanitiser = sanitiser_id("home", "gw2")),
        ("SealMismatch", |of| of.device = DeviceId::of("home", "dev2")),
        ("SealMismatch", |of| of.index = SealIndex(INDEX + 1)),
        ("SealMismatch", |of| of.seal = Digest([8; 32])),
        ("SchemaMismatch", |of| of.schema = Digest([8; 32])),
        ("GroupsOutOfRange", |of| of.column_group = 0),
        ("GroupsOutOfRange", |of| of.column_group = 2),
        ("GroupShown", |of| of.column_group = 1),
        ("MaskMismatch", |of| of.mask = 7),
        ("DigestCount", |of| _ = of.blocks.pop()),
        ("CellsMismatch", |of| of.blocks.swap(0, 1)),
        ("CellsMismatch", |of| of.blocks[2] = Digest([8; 32])),
        ("InvalidPolicy", |of| of.policy = "a\nb".to_owned()),
        ("InvalidPolicy", |of| of.policy = String::new()),
    ];
    for (name, change) in cases {
        assert_eq!(refused(change), Some(name));
    }
    assert_ne!(statement(&world(Scheme::Star), &roster_with(right()), 15).seal, other);
}

#[test]
fn new_fields_that_are_not_the_columns_of_the_group_are_refused() {
    let with = |fields: &[Field<'_>]| {
        let encoded = Schema::encode(fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec();
        refused(|of| of.fields = encoded)
    };
    let field = Field::new("c2", "", FieldType::U8).with_id(3);
    assert_eq!(with(&[field]), None);
    assert_eq!(with(&[field.with_id(4)]), Some("FieldMismatch"));
    assert_eq!(with(&[Field::new("c3", "", FieldType::U8).with_id(3)]), Some("FieldMismatch"));
    assert_eq!(with(&[Field::new("c2", "Cel", FieldType::U8).with_id(3)]), Some("FieldMismatch"));
    let two = [field, Field::new("c4", "", FieldType::U8).with_id(5)];
    assert_eq!(with(&two), Some("FieldMismatch"));
    assert_eq!(with(&[Field::new("c2", "", FieldType::U16).with_id(3)]), Some("EventsLength"));
    assert_eq!(with(&[Field::new("c2", "", FieldType::Bool).with_id(3)]), Some("RecordValue"));
    assert_eq!(refused(|of| of.fields = vec![0x80]), Some("UnexpectedType"));
}

#[test]
fn changed_cells_and_signatures_are_refused() {
    let (world, roster) = (world(Scheme::Star), roster_with(right()));
    let signed = statement(&world, &roster, 15).sign(&key(9)).unwrap();
    let cells = cells(&world, 15);
    let result = |signed: &[u8], cells: &[u8]| {
        let item = (signed.to_vec(), cells.to_vec());
        read_sanitised(&stream(&world, 15, &[item]), &roster).err()
    };
    assert_eq!(result(&signed, &cells), None);
    for at in 0..cells.len() {
        let mut changed = cells.clone();
        changed[at] ^= 1;
        assert_eq!(result(&signed, &changed), Some("CellsMismatch"));
    }
    assert_eq!(result(&signed, &cells[1..]), Some("EventsLength"));
    assert_eq!(result(&signed, &[&cells[..], &[0]].concat()), Some("EventsLength"));
    for at in 0..signed.len() {
        let mut changed = signed.clone();
        changed[at] ^= 1;
        assert!(result(&changed, &cells).is_some(), "byte {at}");
    }
    let other = statement(&world, &roster, 15).sign(&key(8)).unwrap();
    assert_eq!(result(&other, &cells), Some("NotAuthentic"));
}

#[test]
fn a_sanitiser_without_the_right_is_refused() {
    let world = world(Scheme::Star);
    let result = |roster: &Roster| {
        let item = (statement(&world, roster, 15).sign(&key(9)).unwrap(), cells(&world, 15));
        read_sanitised(&stream(&world, 15, &[item]), roster).err()
    };
    let device = |name| Some(vec![DeviceId::of("home", name)]);
    for (right, expected) in [
        (right(), None),
        (SanitiserRight { devices: device("dev1"), ..right() }, None),
        (SanitiserRight { devices: device("dev2"), ..right() }, Some("SanitiserNotPermitted")),
        (SanitiserRight { groups: Groups::NONE.with(1), ..right() }, Some("SanitiserNotPermitted")),
        (SanitiserRight { first_epoch: EpochNumber(EPOCH), ..right() }, None),
        (
            SanitiserRight { first_epoch: EpochNumber(EPOCH + 1), ..right() },
            Some("SanitiserNotPermitted"),
        ),
        (SanitiserRight { end_epoch: Some(EpochNumber(EPOCH + 1)), ..right() }, None),
        (
            SanitiserRight { end_epoch: Some(EpochNumber(EPOCH)), ..right() },
            Some("SanitiserNotPermitted"),
        ),
    ] {
        assert_eq!(result(&roster_with(right.clone())), expected, "{right:?}");
    }
    // A later version of the roster ends the right, takes it away or gives the sanitiser another key.
    let before = roster_with(right());
    let item = (statement(&world, &before, 15).sign(&key(9)).unwrap(), cells(&world, 15));
    let stream = stream(&world, 15, &[item]);
    let later = |change: &dyn Fn(&mut NextRoster<'_>)| {
        read_sanitised(&stream, &changed(&before, |next| change(next))).err()
    };
    assert_eq!(later(&|_| {}), None);
    assert_eq!(later(&|next| next.end_sanitiser("gw", EpochNumber(8)).unwrap()), None);
    let ended = later(&|next| next.end_sanitiser("gw", EpochNumber(7)).unwrap());
    assert_eq!(ended, Some("SanitiserNotPermitted"));
    let removed = later(&|next| next.remove_sanitiser("gw").unwrap());
    assert_eq!(removed, Some("UnknownSanitiser"));
    let replaced = later(&|next| {
        next.set_sanitiser("gw", Some(&key(8).public()), right()).unwrap();
    });
    assert_eq!(replaced, Some("NotAuthentic"));
    // The first version does not name the roster of the statement.
    assert_eq!(read_sanitised(&stream, &roster().0).err(), Some("UnknownRoster"));
}

#[test]
fn two_statements_about_one_group_are_refused() {
    let (world, before) = (world(Scheme::Star), roster_with(right()));
    let roster = changed(&before, |next| {
        next.set_sanitiser("gw2", Some(&key(8).public()), right()).unwrap();
    });
    let statement = statement(&world, &roster, 15);
    let item = |of: &sanitised::Statement, by: u8| (of.sign(&key(by)).unwrap(), cells(&world, 15));
    let both = |second: (Vec<u8>, Vec<u8>)| {
        let items = [item(&statement, 9), second];
        read_sanitised(&stream(&world, 15, &items), &roster).err()
    };
    let differs = sanitised::Statement { policy: "others".to_owned(), ..statement.clone() };
    assert_eq!(both(item(&differs, 9)), Some("SanitiserEquivocation"));
    assert_eq!(both(item(&statement, 9)), Some("DuplicateSanitised"));
    let by_other =
        sanitised::Statement { sanitiser: sanitiser_id("home", "gw2"), ..statement.clone() };
    assert_eq!(both(item(&by_other, 8)), Some("DuplicateSanitised"));
}

#[test]
fn a_statement_is_before_its_part_and_its_group_is_hidden() {
    let (world, roster) = (world(Scheme::Star), roster_with(right()));
    let item = (statement(&world, &roster, 15).sign(&key(9)).unwrap(), cells(&world, 15));
    let shown = stream_showing(&world, &[0, 1, GROUP], 15, std::slice::from_ref(&item));
    assert_eq!(read_sanitised(&shown, &roster).err(), Some("GroupShown"));
    let mut after = world.stream(&[0, 1], 15, false);
    write::sanitised(&mut after, &item.0, &item.1);
    assert_eq!(read_sanitised(&after, &roster).err(), Some("SanitisedWithoutPart"));
    // The part selects single events of a tree.
    let world = World { scheme: Scheme::Tree, ..world };
    let signed = statement(&world, &roster, 15).sign(&key(9)).unwrap();
    let single = with_items(&world.stream(&[0, 1], 15, true), &[(signed, cells(&world, 15))]);
    assert_eq!(read_sanitised(&single, &roster).err(), Some("MaskMismatch"));
}
