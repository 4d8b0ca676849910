//! Column groups, checked with a slow oracle that is written from spec/groups.md alone: every subset
//! of the groups verifies to exactly the cells that it shows, and nothing else is in the bytes.

use std::sync::LazyLock;

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{Framing, Level, Scheme, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{ColumnError, Field, GroupLayout, Groups, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_core::{DeviceId, Digest, EpochNumber, SealIndex};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::star::GroupedStar;
use moteseal_seal::stream::{Item, Open, Select, Selection};
use moteseal_seal::{MAX_MESSAGE, Seal, Statement, Unverified};
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::redaction::{Content, hide, hide_verified, merge, redact};
use moteseal_verify::{Event, Proven, ReadError, Roster, SchemaEntry, StreamReader, write};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

mod sanitised;

const LEVELS: u8 = 4;
const INDEX: u32 = 3;

/// A column: its group, and the width of its cells, or `None` for a text.
#[derive(Clone, Copy, Debug)]
struct Column {
    group: u8,
    width: Option<usize>,
}

/// What a device seals.
#[derive(Clone, Debug)]
struct World {
    columns: Vec<Column>,
    /// The cells of each row, as encoded.
    rows: Vec<Vec<Vec<u8>>>,
    scheme: Scheme,
    salt_key: [u8; 32],
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

fn padded(tag: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out[..tag.len()].copy_from_slice(tag.as_bytes());
    out
}

fn hash_of_tree(leaves: &[[u8; 32]]) -> [u8; 32] {
    match leaves {
        [] => sha256(&[]),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            sha256(&[&[1], &hash_of_tree(left), &hash_of_tree(right)])
        }
    }
}

/// The roots of the maximal subtrees without a selected leaf.
fn siblings(leaves: &[[u8; 32]], selected: &[bool]) -> Vec<u8> {
    if leaves.is_empty() || selected.iter().all(|selected| *selected) {
        return Vec::new();
    }
    if !selected.contains(&true) {
        return hash_of_tree(leaves).to_vec();
    }
    let half = leaves.len().next_power_of_two() / 2;
    let left = siblings(&leaves[..half], &selected[..half]);
    [left, siblings(&leaves[half..], &selected[half..])].concat()
}

impl World {
    fn groups(&self) -> Vec<u8> {
        (0..8).filter(|group| self.columns.iter().any(|column| column.group == *group)).collect()
    }

    fn schema(&self) -> Vec<u8> {
        let texts: Vec<String> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let kind =
                    column.width.map_or("text20".to_owned(), |width| format!("u{}", width * 8));
                let suite = if column.group == 0 { "" } else { "!" };
                format!("c{at}::{kind}{suite}@{}", column.group)
            })
            .collect();
        let fields: Vec<_> = texts.iter().map(|text| Field::parse(text).unwrap()).collect();
        Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
    }

    /// The record of a row with only the columns of some groups.
    fn record(&self, row: usize, shown: &[u8]) -> Vec<u8> {
        let cells = |texts: bool| {
            let cells = self.columns.iter().zip(&self.rows[row]);
            cells
                .filter(move |(column, _)| column.width.is_none() == texts)
                .filter(|(column, _)| shown.contains(&column.group))
                .flat_map(|(_, cell)| cell.clone())
        };
        cells(false).chain(cells(true)).collect()
    }

    fn framed(&self, row: usize, shown: &[u8]) -> Vec<u8> {
        let record = self.record(row, shown);
        let is_text = |column: &Column| column.width.is_none() && shown.contains(&column.group);
        if self.columns.iter().any(is_text) {
            let length = u16::try_from(record.len()).unwrap().to_be_bytes();
            return [&length[..], &record].concat();
        }
        record
    }

    fn device() -> DeviceId {
        DeviceId::of("home", "dev1")
    }

    fn level(&self, row: usize) -> u8 {
        let salt = SaltKey::new(self.salt_key).salt(Self::device(), SealIndex(INDEX));
        salt.level(Sequence(row as u64), LEVELS).0
    }

    fn rows_of(&self, level: u8) -> Vec<usize> {
        (0..self.rows.len()).filter(|row| self.level(*row) == level).collect()
    }

    /// `D_ig`
    fn group_digest(&self, level: u8, group: u8) -> [u8; 32] {
        let cells: Vec<u8> =
            self.rows_of(level).iter().flat_map(|row| self.framed(*row, &[group])).collect();
        sha256(&[
            &padded("moteseal/2/star/group"),
            &Self::device().0,
            &INDEX.to_be_bytes(),
            &u32::from(level).to_be_bytes(),
            &u32::from(group).to_be_bytes(),
            &[0; 12],
            &[0; 64],
            &cells,
        ])
    }

    /// `D_i`
    fn level_digest(&self, level: u8) -> [u8; 32] {
        if self.rows_of(level).is_empty() {
            return [0; 32];
        }
        let digests: Vec<u8> =
            self.groups().iter().flat_map(|group| self.group_digest(level, *group)).collect();
        sha256(&[&padded("moteseal/2/star/level"), &digests])
    }

    fn chain(&self, levels: u8) -> [u8; 32] {
        (0..levels).fold(padded("moteseal/1/star/root"), |above, level| {
            let count = u32::try_from(self.rows_of(level).len()).unwrap();
            sha256(&[&above, &count.to_be_bytes(), &self.level_digest(level)])
        })
    }

    fn leaves(&self, group: u8) -> Vec<[u8; 32]> {
        (0..self.rows.len()).map(|row| sha256(&[&[0], &self.record(row, &[group])])).collect()
    }

    fn root(&self) -> [u8; 32] {
        match self.scheme {
            Scheme::Star => self.chain(LEVELS),
            Scheme::Tree => {
                let roots: Vec<u8> = self
                    .groups()
                    .iter()
                    .flat_map(|group| hash_of_tree(&self.leaves(*group)))
                    .collect();
                sha256(&[&padded("moteseal/2/tree/groups"), &roots])
            }
        }
    }

    fn seal(&self, roster: &Roster, key: &SecretKey) -> (Seal<Unverified>, Vec<u8>) {
        let device = Self::device();
        let salt = SaltKey::new(self.salt_key).salt(device, SealIndex(INDEX));
        let mut statement =
            Statement::new(self.scheme, roster.group(), roster.digest(), device, LEVELS);
        statement.prev = roster.first_prev(device).unwrap();
        statement.index = SealIndex(INDEX);
        statement.epoch = EpochNumber(7);
        (statement.last_in_epoch, statement.restart) = (true, true);
        statement.schema = Schema::decode(&self.schema()).unwrap().digest();
        statement.salt = salt;
        statement.counters = Counters::of(&salt, LEVELS, u32::try_from(self.rows.len()).unwrap());
        let encrypted = self.columns.iter().filter(|column| column.group > 0).count();
        statement.keys = KeyCommitments::decode(&vec![9; 12 + 16 * encrypted]);
        statement.groups =
            self.groups().into_iter().fold(Groups::NONE, |groups, group| groups.with(group));
        let seal = Seal::new(statement, Digest(self.root()), key.algorithm());
        let signature = key.signature(seal.message(&mut [0; MAX_MESSAGE])).unwrap().to_vec();
        (seal, signature)
    }

    /// The stream with one part, which shows some groups of the rows in `mask`. With `single`, the part
    /// of a tree names its events.
    fn stream(&self, shown: &[u8], mask: u32, single: bool) -> Vec<u8> {
        let (roster, key) = roster();
        let (seal, signature) = self.seal(roster, key);
        let mask = mask & seal.statement().surviving();
        let selected: Vec<bool> =
            (0..self.rows.len()).map(|row| mask >> self.level(row) & 1 == 1).collect();
        let hidden = |group: &u8| !shown.contains(group);
        let (mut digests, mut events) = (Vec::new(), Vec::new());
        match self.scheme {
            Scheme::Star => {
                let lowest = (0..LEVELS).find(|level| mask >> level & 1 == 1).unwrap_or(LEVELS);
                if (0..lowest).any(|level| !self.rows_of(level).is_empty()) {
                    digests.extend(self.chain(lowest));
                }
                for level in lowest..LEVELS {
                    if mask >> level & 1 == 0 && !self.rows_of(level).is_empty() {
                        digests.extend(self.level_digest(level));
                    }
                }
                for level in (0..LEVELS).filter(|level| mask >> level & 1 == 1) {
                    for group in self.groups().into_iter().filter(hidden) {
                        digests.extend(self.group_digest(level, group));
                    }
                }
                for level in (0..LEVELS).rev().filter(|level| mask >> level & 1 == 1) {
                    let rows = self.rows_of(level);
                    events.extend(rows.iter().flat_map(|row| self.framed(*row, shown)));
                }
            }
            Scheme::Tree => {
                for group in self.groups() {
                    let leaves = self.leaves(group);
                    if !selected.contains(&true) {
                        digests = if leaves.is_empty() { Vec::new() } else { self.root().to_vec() };
                    } else if hidden(&group) {
                        digests.extend(hash_of_tree(&leaves));
                    } else {
                        digests.extend(siblings(&leaves, &selected));
                    }
                }
                let rows = (0..self.rows.len()).filter(|row| selected[*row]);
                events.extend(rows.flat_map(|row| self.framed(row, shown)));
            }
        }
        let seqs: Vec<Sequence> = (0..self.rows.len())
            .filter(|row| selected[*row])
            .map(|row| Sequence(row as u64))
            .collect();
        let selection = if single && !seqs.is_empty() {
            Selection::Events(&seqs)
        } else {
            Selection::Levels(mask)
        };
        let mut stream = Vec::new();
        write::schema(&mut stream, &self.schema());
        let open = Open { device: Self::device(), roster_version: 0, prev: None, last: None };
        write::open(&mut stream, &open);
        let set = shown.iter().fold(Groups::NONE, |set, group| set.with(*group));
        write::part_head_showing(&mut stream, &seal, set, selection, &digests, events.len());
        stream.extend(events);
        write::part_tail(&mut stream, Some(&signature));
        stream
    }

    fn expected(&self, shown: &[u8], mask: u32) -> Vec<(u64, Vec<u8>)> {
        (0..self.rows.len())
            .filter(|row| mask >> self.level(*row) & 1 == 1)
            .map(|row| (row as u64, self.record(row, shown)))
            .collect()
    }
}

fn roster() -> &'static (Roster, SecretKey) {
    static ROSTER: LazyLock<(Roster, SecretKey)> = LazyLock::new(issue);
    &ROSTER
}

fn issue() -> (Roster, SecretKey) {
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
    let draft = FirstRoster {
        group: "home",
        epoch_ms: 1000,
        levels: LEVELS,
        budget: None,
        devices: &[("dev1", key.public())],
    };
    (Roster::open(&draft.issue(&operator).unwrap(), &operator.public()).unwrap(), key)
}

/// Verifies a stream and returns the rows, and the names of the shown and of the hidden columns.
type Read = (Vec<(u64, Vec<u8>)>, Vec<String>, Vec<String>);

fn read(stream: &[u8]) -> Result<Read, &'static str> {
    let (roster, _) = roster();
    let mut reader = StreamReader::new(roster, Limits::default());
    let (mut rows, mut shown, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            check_hiding(&proven);
            proven.sample.for_each(&Scalar, |seq, _, record| rows.push((seq.0, record.to_vec())));
            for column in proven.schema.columns() {
                let name = column.name().to_owned();
                match proven.schema.column(&name) {
                    Ok(_) => shown.push(name),
                    Err(ColumnError::ColumnHidden) => hidden.push(name),
                    Err(_) => unreachable!("the column is one of the schema"),
                }
            }
        }
        Ok::<_, ReadError>(())
    };
    reader.feed(stream, &mut visit).map_err(|error| error.name())?;
    reader.finish(&mut visit).map_err(|error| error.name())?;
    Ok((rows, shown, hidden))
}

/// A reader that has verified a part hides groups without hashing, and leaves the same bytes as a store
/// that hashes.
fn check_hiding(proven: &Proven<'_>) {
    let Some(layout) = proven.schema.groups.as_deref() else { return };
    let (statement, view) = (proven.seal.statement(), (layout, proven.schema.framing));
    let mut sequence = Vec::new();
    proven.sample.for_each(&Scalar, |seq, _, _| sequence.push(seq));
    let content =
        Content { digests: proven.part.digests.into(), events: proven.part.events.into() };
    for kept in (0..=u8::MAX).map(Groups::from_bits).filter(|kept| kept.contains(0)) {
        let (selection, levels) = match proven.part.select {
            Select::Levels(levels) if statement.scheme == Scheme::Star => {
                (Selection::Levels(levels), levels)
            }
            _ => (Selection::Events(&sequence), 0),
        };
        let hashed = hide(statement, view, selection, &content, kept);
        let copied = hide_verified(statement, view, levels, &content, (proven.groups, kept));
        assert_eq!(hashed, copied);
        assert!(copied.is_ok());
    }
}

/// The rows of a stream.
fn stream_rows(stream: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut reader = StreamReader::new(&roster().0, Limits::default());
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            proven.sample.for_each(&Scalar, |seq, _, record| rows.push((seq.0, record.to_vec())));
        }
        Ok::<_, ReadError>(())
    };
    reader.feed(stream, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    rows
}

fn redacted(stream: &[u8], shown: &[u8]) -> Vec<u8> {
    let (roster, _) = roster();
    let set = shown.iter().fold(Groups::NONE, |set, group| set.with(*group));
    let mut out = Vec::new();
    redact(&mut out, stream, (roster, Limits::default()), &mut |_| set).unwrap();
    out
}

fn merged(first: &[u8], second: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (roster, _) = roster();
    let mut out = Vec::new();
    merge(&mut out, (first, second), (roster, Limits::default())).map_err(|error| error.name())?;
    Ok(out)
}

/// All subsets of the groups that have group 0.
fn subsets(groups: &[u8]) -> Vec<Vec<u8>> {
    (0..1_u32 << (groups.len() - 1))
        .map(|bits| {
            let picked = |(place, group): (usize, &u8)| {
                (place == 0 || bits >> (place - 1) & 1 == 1).then_some(*group)
            };
            groups.iter().enumerate().filter_map(picked).collect()
        })
        .collect()
}

fn worlds(scheme: Scheme) -> impl Strategy<Value = World> {
    let column = (0..5_u8, prop_oneof![Just(Some(1)), Just(Some(2)), Just(Some(8)), Just(None)])
        .prop_map(|(group, width)| Column { group, width });
    let columns = prop::collection::vec(column, 1..8).prop_map(|mut columns| {
        columns[0].group = 0;
        columns.push(Column { group: 3, width: Some(4) });
        columns
    });
    (columns, 0..40_usize, any::<[u8; 32]>()).prop_flat_map(move |(columns, count, salt_key)| {
        let cells: Vec<_> = columns
            .iter()
            .map(|column| match column.width {
                Some(width) => prop::collection::vec(any::<u8>(), width..=width).boxed(),
                None => prop::collection::vec(b'a'..=b'z', 0..20)
                    .prop_map(|text| [&[u8::try_from(text.len()).unwrap()][..], &text].concat())
                    .boxed(),
            })
            .collect();
        prop::collection::vec(cells, count..=count).prop_map(move |rows| World {
            columns: columns.clone(),
            rows,
            scheme,
            salt_key,
        })
    })
}

fn check_every_subset(world: &World, mask: u32, single: bool) {
    let groups = world.groups();
    let subsets = subsets(&groups);
    let streams: Vec<Vec<u8>> =
        subsets.iter().map(|shown| world.stream(shown, mask, single)).collect();
    for (at, (shown, stream)) in subsets.iter().zip(&streams).enumerate() {
        let (rows, columns, hidden) = read(stream).unwrap();
        assert_eq!(rows, world.expected(shown, mask));
        assert!(columns.iter().all(|name| shown.contains(&group_of(world, name))));
        assert!(hidden.iter().all(|name| !shown.contains(&group_of(world, name))));
        assert_eq!(columns.len() + hidden.len(), world.columns.len());
        // The bits of a subset's place are its groups.
        for (other, second) in streams.iter().enumerate() {
            assert_eq!(redacted(stream, &subsets[other]), streams[at & other]);
            assert_eq!(merged(stream, second).as_deref(), Ok(&streams[at | other][..]));
        }
    }
}

fn group_of(world: &World, name: &str) -> u8 {
    world.columns[name[1..].parse::<usize>().unwrap()].group
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_subset_of_a_star_shows_exactly_its_cells(
        world in worlds(Scheme::Star),
        mask in 0..16_u32,
    ) {
        check_every_subset(&world, mask, false);
        check_every_subset(&world, 15, false);
    }

    #[test]
    fn every_subset_of_a_tree_shows_exactly_its_cells(
        world in worlds(Scheme::Tree),
        mask in 0..16_u32,
        single: bool,
    ) {
        check_every_subset(&world, mask, single);
        check_every_subset(&world, 15, false);
    }

    #[test]
    fn the_star_of_a_device_has_the_digests_of_the_oracle(world in worlds(Scheme::Star)) {
        let bytes = world.schema();
        let schema = Schema::decode(&bytes).unwrap();
        let layout = GroupLayout::new(&schema, schema.groups()).unwrap();
        let framing = SchemaEntry::decode(&bytes).unwrap().framing;
        let device = World::device();
        let salt = SaltKey::new(world.salt_key).salt(device, SealIndex(INDEX));
        let mut star = GroupedStar::<8, 5>::new(
            device, SealIndex(INDEX), &salt, (layout, framing), LEVELS,
        ).unwrap();
        for row in 0..world.rows.len() {
            let level = star.push(&world.record(row, &world.groups())).unwrap();
            prop_assert_eq!(level, Level(world.level(row)));
        }
        let (counters, digests) = star.close();
        for level in 0..LEVELS {
            let count = u32::try_from(world.rows_of(level).len()).unwrap();
            prop_assert_eq!(counters.at(Level(level)), count);
            prop_assert_eq!(digests[usize::from(level)], Digest(world.level_digest(level)));
        }
    }
}

/// Eight groups of one column of 8 bytes each, and rows whose cells are all different.
fn wide(scheme: Scheme, rows: u64) -> World {
    let columns = (0..8).map(|group| Column { group, width: Some(8) }).collect();
    let cell = |row: u64, column: u64| sha256(&[&(row * 8 + column).to_be_bytes()])[..8].to_vec();
    let rows = (0..rows).map(|row| (0..8).map(|column| cell(row, column)).collect()).collect();
    World { columns, rows, scheme, salt_key: [5; 32] }
}

#[test]
fn no_hidden_cell_is_in_the_bytes() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = wide(scheme, 100);
        let stream = redacted(&world.stream(&world.groups(), 15, false), &[0, 2, 7]);
        for row in &world.rows {
            for (group, cell) in row.iter().enumerate() {
                let is_there = stream.windows(8).any(|window| window == cell);
                assert_eq!(is_there, [0, 2, 7].contains(&group));
            }
        }
    }
}

#[test]
fn one_of_eight_columns_takes_a_quarter_of_the_bytes() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = wide(scheme, 1000);
        let whole = world.stream(&world.groups(), 15, false);
        assert!(redacted(&whole, &[0]).len() * 4 <= whole.len());
    }
}

/// Replaces the part of a stream by one with other groups, digests and events.
fn altered(stream: &[u8], alter: impl FnOnce(&mut Groups, &mut Vec<u8>, &mut Vec<u8>)) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), stream);
    let mut alter = Some(alter);
    while let Ok((item, length)) = Item::decode(rest) {
        match item {
            Item::Part(part) => {
                let (mut groups, mut digests, mut events) =
                    (part.groups, part.digests.to_vec(), part.events.to_vec());
                if let Some(alter) = alter.take() {
                    alter(&mut groups, &mut digests, &mut events);
                }
                write::part_showing(&mut out, &part, groups, &digests, &events);
            }
            _ => out.extend_from_slice(&rest[..length]),
        }
        rest = &rest[length..];
    }
    out
}

#[test]
fn lies_about_groups_are_refused() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = wide(scheme, 50);
        let whole = world.stream(&world.groups(), 15, false);
        let part = redacted(&whole, &[0, 1]);
        let refused = |stream: Vec<u8>| read(&stream).unwrap_err();
        assert_eq!(read(&part).unwrap().0.len(), 50);

        let swapped_cells = altered(&whole, |_, _, events| {
            for record in events.chunks_exact_mut(64) {
                let (first, second) = record.split_at_mut(8);
                first.swap_with_slice(&mut second[..8]);
            }
        });
        assert_eq!(refused(swapped_cells), "NotAuthentic");

        let swapped_digests = altered(&part, |_, digests, _| {
            let at = digests.len() - 64;
            let (first, second) = digests[at..].split_at_mut(32);
            first.swap_with_slice(second);
        });
        assert_eq!(refused(swapped_digests), "NotAuthentic");

        // Another group is said to be shown than the one whose cells are there.
        let other_group = altered(&part, |groups, _, _| *groups = Groups::from_bits(0b101));
        assert_eq!(refused(other_group), "NotAuthentic");
        let more_groups = altered(&part, |groups, _, _| *groups = Groups::from_bits(0b111));
        assert_eq!(refused(more_groups), "DigestCount");
        let fewer_groups = altered(&part, |groups, _, _| *groups = Groups::FIRST);
        assert_eq!(refused(fewer_groups), "DigestCount");
        let no_groups = altered(&whole, |groups, _, _| *groups = Groups::NONE);
        assert_eq!(refused(no_groups), "GroupsOutOfRange");
        let no_first = altered(&whole, |groups, _, _| *groups = Groups::from_bits(0b10));
        assert_eq!(refused(no_first), "FieldOutOfRange");

        let missing_digest = altered(&part, |_, digests, _| digests.truncate(digests.len() - 32));
        assert_eq!(refused(missing_digest), "DigestCount");
        let missing_cells = altered(&part, |_, _, events| events.truncate(events.len() - 1));
        assert_eq!(refused(missing_cells), "EventsLength");

        // Cells that are moved to a record of another level, and to another seal of the device.
        let levels: Vec<u8> = (0..50).map(|row| world.level(row)).collect();
        let higher = levels.iter().position(|level| *level != levels[0]).unwrap();
        let exchanged = altered(&whole, |_, _, events| {
            let at = |row| {
                let record = world.record(row, &world.groups());
                events.chunks_exact(64).position(|of| of == record).unwrap() * 64 + 8
            };
            let (one, other) = (at(0), at(higher));
            (0..8).for_each(|byte| events.swap(one + byte, other + byte));
        });
        assert_eq!(refused(exchanged), "NotAuthentic");
        let mut later = world.clone();
        later.rows.iter_mut().for_each(|row| row[1][0] ^= 1);
        let mut cells = Vec::new();
        altered(&later.stream(&world.groups(), 15, false), |_, _, of| cells.clone_from(of));
        assert_eq!(refused(altered(&whole, |_, _, events| *events = cells)), "NotAuthentic");

        // Digests of another seal, and a hidden group that somebody restores from a guess.
        let mut other = world.clone();
        other.rows[7][5][0] ^= 1;
        let other_part = redacted(&other.stream(&world.groups(), 15, false), &[0, 1]);
        let mut foreign = Vec::new();
        altered(&other_part, |_, digests, _| foreign.clone_from(digests));
        let foreign = altered(&part, |_, digests, _| *digests = foreign);
        assert_eq!(refused(foreign), "NotAuthentic");
        let guessed = other.stream(&[0, 5], 15, false);
        let original = world.stream(&[0, 1], 15, false);
        let seal_of = |stream: &[u8]| stream[stream.len() - 64..].to_vec();
        let mut guess = guessed;
        let length = guess.len();
        guess[length - 64..].copy_from_slice(&seal_of(&original));
        assert_eq!(refused(guess), "NotAuthentic");
        assert_eq!(merged(&part, &other_part), Err("NotOneOriginal"));
    }
}

#[test]
fn parts_of_other_selections_or_seals_do_not_merge() {
    let world = wide(Scheme::Star, 50);
    let all = world.stream(&[0, 1], 15, false);
    let some = world.stream(&[0, 2], 14, false);
    assert_eq!(merged(&all, &some), Err("NotOneOriginal"));
    let mut other = wide(Scheme::Star, 50);
    other.salt_key = [6; 32];
    assert_eq!(merged(&all, &other.stream(&[0, 2], 15, false)), Err("NotOneOriginal"));
}

#[test]
fn a_schema_without_groups_keeps_its_bytes() {
    let fields = [Field::parse("a::u8!").unwrap(), Field::parse("b::u8@0").unwrap()];
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    assert_eq!(schema.groups(), Groups::NONE);
    assert!(GroupLayout::new(&schema, schema.groups()).is_none());
    let entry = SchemaEntry::decode(schema.as_bytes()).unwrap();
    assert_eq!((entry.groups(), entry.framing), (Groups::NONE, Framing::fixed(2).unwrap()));
}
