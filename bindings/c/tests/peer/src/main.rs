//! The peer of the C tests: a querier, which opens records that sources in C encrypted, and a
//! sender, which makes broadcasts for receivers in C.
//!
//! usage: `moteseal-c-peer open QUERIER_KEY QUERY EPOCH SLOT MOST DEVICE=PSR...`
//!        `moteseal-c-peer broadcast FILE`
//!        `moteseal-c-peer urgent ROSTER OPERATOR_KEY FILE`
//!        `moteseal-c-peer tables ROSTER OPERATOR_KEY DEVICE FILE`
//!
//! `open` reads the querier's key file that `moteseal sum setup` wrote. DEVICE is the name of a
//! device of the group `home`; list the devices in the order of their positions in the roster.
//! Numbers are decimal, QUERY and PSR hexadecimal. `open` prints the sum, or the reason why it was
//! rejected.
//!
//! `broadcast` writes these items, each preceded by its length (two bytes, big-endian): the base
//! station's raw key, a certificate (serial 7), a head (chain 5), its 20 leaves in blocks of 8, a
//! live command (chain 6), a revocation (minimum 8). The keys are fixed and public: they are for
//! tests only.
//!
//! `urgent` verifies an urgent event with the roster and prints its record in hexadecimal digits.
//!
//! `tables` makes the bundles of a file that `random.c` wrote from the same inputs, compares them byte by byte,
//! and prints the number of events.

mod broadcast;
mod tables;

use std::process::ExitCode;

use moteseal_core::DeviceId;
use moteseal_core::identity::decode_public_pem;
use moteseal_core::roster::Roster;
use moteseal_seal::UrgentEvent;
use moteseal_sum::key_file::QuerierKeys;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{KeyTotals, Psr, Slot};

const GROUP: &str = "home";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((what, rest)) if what == "open" => open(rest).map(|sum| println!("{sum}")),
        Some((what, [path])) if what == "broadcast" => {
            broadcast::frames().and_then(|frames| std::fs::write(path, frames).map_err(Into::into))
        }
        Some((what, [roster, operator, path])) if what == "urgent" => {
            urgent(roster, operator, path).map(|record| println!("{record}"))
        }
        Some((what, [roster, operator, device, path])) if what == "tables" => {
            tables::compare(roster, operator, device, path).map(|events| println!("{events}"))
        }
        _ => Err(
            "usage: moteseal-c-peer open ... | broadcast FILE | urgent ROSTER OPERATOR_KEY FILE \
             | tables ROSTER OPERATOR_KEY DEVICE FILE"
                .into(),
        ),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moteseal-c-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(arguments: &[String]) -> Result<u128, Box<dyn std::error::Error>> {
    let [keys, query, epoch, slot, most, shares @ ..] = arguments else {
        return Err(
            "usage: moteseal-c-peer open QUERIER_KEY QUERY EPOCH SLOT MOST DEVICE=PSR...".into()
        );
    };
    let keys = QuerierKeys::decode(&std::fs::read(keys)?)?;
    let query = QueryId(bytes(query)?);
    let (epoch, slot, most) = (epoch.parse()?, Slot(slot.parse()?), most.parse()?);
    let (mut sum, mut totals) = (Psr::ZERO, KeyTotals::default());
    for (position, share) in (0..).zip(shares) {
        let (name, psr) = share.split_once('=').ok_or("a share has the form DEVICE=PSR")?;
        let psr: [u8; 32] = bytes(psr)?;
        sum = sum.merge(&Psr::from_bytes(&psr)?);
        totals.add(
            &keys.source(DeviceId::of(GROUP, name), position).secret.for_query(query),
            slot,
            epoch,
        );
    }
    let key = keys.master.key_group(keys.circle.group, 0).for_query(query);
    totals.open(&sum, &key, slot, epoch, most).map_err(|error| error.named().to_string().into())
}

fn urgent(roster: &str, operator: &str, path: &str) -> Result<String, Box<dyn std::error::Error>> {
    let (roster, operator, object) =
        (std::fs::read(roster)?, std::fs::read(operator)?, std::fs::read(path)?);
    let mut scratch = vec![0; roster.len().max(object.len()) + 64];
    let roster = Roster::open(&roster, &decode_public_pem(&operator)?, &mut scratch)?;
    let mut scratch = vec![0; object.len() + 64];
    let event = UrgentEvent::open(&object, &roster, &mut scratch)?;
    Ok(event.record.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Parses `N` bytes from hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Result<[u8; N], Box<dyn std::error::Error>> {
    let mut out = [0; N];
    if !text.is_ascii() || text.len() != 2 * N {
        return Err(format!("{text}: not {N} bytes in hexadecimal digits").into());
    }
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16)?;
    }
    Ok(out)
}
