//! `moteseal owner show`: what an owner's file has, without its secrets.

use moteseal_client::start_text;
use moteseal_grant::Stream;
use moteseal_verify::Roster;
use serde_json::json;

use super::Group;
use crate::device_name::name_of;
use crate::failure::Failure;
use crate::progress::count;
use crate::terminal::{Stdout, is_json, report_lines};

/// Prints the owner, and a line for each secret, sorted by the names of the devices.
pub(super) fn show(group: &Group) -> Result<(), Failure> {
    let (file, roster) = group.read()?;
    let owner = &file.owner;
    let is_listed = roster.owner(owner.id()).is_some_and(|of| of.key == owner.public_key());
    let key = owner.public_key();
    let (algorithm, key) = (key.algorithm().name(), hex::encode(&*key.to_bytes()));
    let mut streams: Vec<(String, &Stream)> =
        owner.streams().iter().map(|stream| (name_of(&roster, stream.device()), stream)).collect();
    streams
        .sort_by(|one, other| (&one.0, one.1.generation()).cmp(&(&other.0, other.1.generation())));
    let mut out = Stdout::lock();
    if is_json() {
        return out.line(json!({
            "name": owner.name(),
            "group": owner.group_name(),
            "algorithm": algorithm,
            "public_key": key,
            "listed": is_listed,
            "secrets": streams.iter().map(|of| to_json(&roster, of)).collect::<Vec<_>>(),
        }));
    }
    let listed = if is_listed { "" } else { ", which the roster does not list for this owner" };
    let mut lines = vec![
        format!("owner      {} of group {}", owner.name(), owner.group_name()),
        format!("key        {algorithm} {key}{listed}"),
    ];
    let width = streams.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, stream) in &streams {
        let from = start_text(&roster, stream.forgotten().unwrap_or(stream.base()));
        let what = if stream.forgotten().is_some() { " (earlier keys are forgotten)" } else { "" };
        let columns = columns(stream).join(", ");
        lines.push(format!("secret     {name:<width$}  {columns}  from {from}{what}"));
    }
    lines.into_iter().try_for_each(|line| out.line(line))?;
    report_lines([count(streams.len() as u64, "secret")], || json!(null))
}

/// Returns the names of the columns, sorted.
fn columns(stream: &Stream) -> Vec<&str> {
    let mut names: Vec<&str> = stream.columns().iter().map(|column| &*column.name).collect();
    names.sort_unstable();
    names
}

fn to_json(roster: &Roster, (name, stream): &(String, &Stream)) -> serde_json::Value {
    let forgotten = stream.forgotten();
    json!({
        "device": name,
        "generation": stream.generation(),
        "columns": columns(stream),
        "first_epoch": stream.base().0,
        "first": start_text(roster, stream.base()),
        "forgotten_before_epoch": forgotten.map(|epoch| epoch.0),
        "forgotten_before": forgotten.map(|epoch| start_text(roster, epoch)),
    })
}
