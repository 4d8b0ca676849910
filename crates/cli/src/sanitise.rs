//! `moteseal sanitise`: replaces columns of a proof by coarser ones, in the name of a sanitiser.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use moteseal_client::redact::{NewColumn, Sanitisation, sanitise};

use crate::client_error;
use crate::failure::Failure;
use crate::files;
use crate::key_files::KeyFiles;
use crate::redact::Common;

/// Replace columns of a proof by coarser ones, and sign that you did. The device's signature still proves
/// everything else. Readers refuse the new proof unless they accept you by name
/// (`moteseal verify --accept-sanitised NAME`).
///
/// The roster must name you as a sanitiser of the columns' group (`moteseal roster sanitiser`), and the
/// keys must open the columns. All columns of a column group are replaced together.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                  moteseal sanitise p.mproof --to temperature:Cel:i8 --key sanitiser.key.pem \\\n      \
                  --stream-secret dev1=keys/dev1.stream.key -o q.mproof \\\n      \
                  --roster roster.cbor --operator keys/op.pub.pem\n  \
                  moteseal sanitise p.mproof --to temperature:Cel:i16/10 --step temperature=0.5 \\\n      \
                  --policy 'half degrees' --key sanitiser.key.pem \\\n      \
                  --grant g.mgrant --identity me.txt -o q.mproof \\\n      \
                  --roster roster.cbor --operator keys/op.pub.pem\n\n\
                  Exit codes: 0 written, 2 the columns cannot or must not be replaced, 3 the proof is rejected.")]
pub(crate) struct Arguments {
    /// The proof (.mproof)
    proof: PathBuf,
    /// A column to replace and its new type, as for `moteseal seal --column`: NAME:UNIT:TYPE[/DIVISOR].
    /// Numbers are rounded to the resolution of the type. Repeat it for every column of the column group
    #[arg(long = "to", value_name = "COLUMN", required = true)]
    columns: Vec<String>,
    /// Round the numbers of a column to the nearest multiple of a step, in the unit of the column
    #[arg(long = "step", value_name = "NAME=STEP", value_parser = step)]
    steps: Vec<(String, f64)>,
    /// What you do, as a text for people; by default the new types and steps
    #[arg(long, value_name = "TEXT")]
    policy: Option<String>,
    /// Your secret key, which signs the statements
    #[arg(long, value_name = "KEY")]
    key: PathBuf,
    #[command(flatten)]
    keys: KeyFiles,
    #[command(flatten)]
    common: Common,
}

fn step(text: &str) -> Result<(String, f64), String> {
    let parse = || {
        let (name, step) = text.rsplit_once('=')?;
        let step: f64 = step.parse().ok()?;
        (step.is_finite() && step > 0.0).then(|| (name.to_owned(), step))
    };
    parse().ok_or_else(|| "a column and a positive number, such as temperature=0.5".to_owned())
}

/// Returns the first name that occurs twice.
fn repeated<'n>(names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { proof, columns, steps, policy, key, keys, common } = arguments;
    let also_read: Vec<&PathBuf> = keys.read().chain([key]).collect();
    let (roster, mut streams) = common.open(std::slice::from_ref(proof), &also_read)?;
    let columns = columns
        .iter()
        .map(|text| {
            let column = NewColumn::parse(text)
                .map_err(|error| Failure::usage(format_args!("--to {text}: {}", error.named())))?;
            let step = steps.iter().find(|(name, _)| name == column.field.name);
            Ok(NewColumn { step: step.map(|(_, step)| *step), ..column })
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let names = columns.iter().map(|column| column.field.name);
    let stepped = steps.iter().map(|(name, _)| name.as_str());
    for (option, twice) in [("--to", repeated(names)), ("--step", repeated(stepped))] {
        if let Some(name) = twice {
            return Err(Failure::usage(format_args!("{option}: {name} is given twice")));
        }
    }
    let is_replaced = |name: &str| columns.iter().any(|column| column.field.name == name);
    if let Some((name, _)) = steps.iter().find(|(name, _)| !is_replaced(name)) {
        return Err(Failure::usage(format_args!("--step {name}: no --to replaces this column")));
    }
    let secret = files::secret_key(key)?;
    let opened = keys.open(&roster)?;
    let Some(mut opened) = opened.set() else {
        return Err(Failure::usage(
            "the columns to replace are encrypted: give --grant or --stream-secret",
        ));
    };
    let Some(stream) = streams.pop() else { return Ok(()) };
    let with = Sanitisation { columns: &columns, policy: policy.as_deref(), key: &secret };
    let report = sanitise((stream, proof), &roster, &mut opened, &with, &common.out);
    let report = report.map_err(|error| client_error::failure(&roster, &error).about(proof))?;
    common.report(&roster, &report)
}
