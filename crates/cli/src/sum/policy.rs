//! `moteseal sum policy`: signs the policy that states which queries the devices of a group answer,
//! and prints one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use moteseal_client::sum::{PolicyFile, sign_policy};
use moteseal_core::schema::Decimal;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::client_error;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::count;
use crate::terminal::report_lines;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sign a policy: which querier may ask the devices of a group which queries. The devices refuse
    /// all other queries.
    #[command(after_help = "Example, policy.toml:\n  \
                            version   = 1\n  \
                            min_count = 5\n  \
                            [[querier]]\n  \
                            key       = \"keys/q.pub.pem\"\n  \
                            trusted   = false\n  \
                            epoch     = \"30s\"\n  \
                            [querier.columns]\n  \
                            \"temperature:Cel:i16/100\" = \"-40..85\"\n\n\
                            moteseal sum policy sign policy.toml --roster roster.cbor --operator-key keys/op.key.pem \\\n      \
                            --out policy.cbor\n\n\
                            A querier with trusted = true may ask any query about its columns, or about all columns if there\n\
                            are none. Any other querier gets exact sums over whole key groups only.")]
    Sign(Sign),
    /// Verify a policy and print it
    Show(Show),
}

#[derive(Args, Debug)]
pub(crate) struct Sign {
    /// The description of the policy
    #[arg(value_name = "POLICY_TOML")]
    text: PathBuf,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's secret key
    #[arg(long, value_name = "KEY")]
    operator_key: PathBuf,
    /// The file for the signed policy; an existing file is replaced
    #[arg(long, value_name = "FILE", default_value = "policy.cbor")]
    out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The signed policy
    policy: PathBuf,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Sign(arguments) => sign(arguments),
        Command::Show(arguments) => show(arguments),
    }
}

fn sign(arguments: &Sign) -> Result<(), Failure> {
    let operator = files::secret_key(&arguments.operator_key)?;
    let bytes = files::read(&arguments.roster)?;
    let roster = Roster::open(&bytes, &operator.public())
        .map_err(|error| Failure::named(Exit::Refused, error.named()).about(&arguments.roster))?;
    let signed = sign_policy(&arguments.text, &roster, &operator)
        .map_err(|error| client_error::input(&error))?;
    moteseal_files::replace(&arguments.out, &signed, 0o644)
        .map_err(|error| Failure::file("write", &arguments.out, &error))?;
    let out = arguments.out.display().to_string();
    report_lines(vec![format!("policy     {out}")], || json!({ "policy": out }))
}

fn show(arguments: &Show) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let file = PolicyFile::read(&arguments.policy, &roster, &arguments.operator)
        .map_err(|error| client_error::input(&error))?;
    let policy = file.policy().map_err(|error| client_error::input(&error))?;
    let mut lines = vec![
        format!("group      {}", roster.group_name()),
        format!("version    {}", policy.version),
        format!(
            "minimum    {} in a key group, {} for VARIANCE and STDDEV",
            count(policy.min_count.into(), "device"),
            policy.min_count_squares
        ),
    ];
    let mut queriers = Vec::<Value>::new();
    policy.for_each_querier(|terms| {
        let key = hex::encode(terms.key.0);
        let (trust, epochs) = if terms.is_trusted {
            ("trusted with readings", "at least")
        } else {
            ("sums of whole key groups only", "exactly")
        };
        lines.push(format!("querier    {key}: {trust}, epochs of {epochs} {} ms", terms.epoch_ms));
        let budget = Decimal { numerator: terms.budget.into(), divisor: 1000 }.to_string();
        if !terms.is_trusted {
            lines.push(format!("  budget   epsilon {budget} a day for answers with noise"));
        }
        let mut columns = Vec::<Value>::new();
        for column in terms.columns {
            let shown = |numerator: i64| {
                Decimal { numerator: numerator.into(), divisor: column.divisor }.to_string()
            };
            let range = column.range.map(|(low, high)| format!("{}..{}", shown(low), shown(high)));
            lines.push(format!(
                "  column   {}, {}",
                column.name,
                range.as_deref().unwrap_or("every range")
            ));
            columns.push(json!({ "name": column.name, "divisor": column.divisor, "range": range }));
        }
        queriers.push(json!({
            "key": key,
            "trusted": terms.is_trusted,
            "epoch_ms": terms.epoch_ms,
            "budget": budget,
            "columns": columns,
        }));
    });
    report_lines(lines, || {
        json!({
            "group": roster.group_name(),
            "version": policy.version,
            "min_count": policy.min_count,
            "min_count_squares": policy.min_count_squares,
            "queriers": queriers,
        })
    })
}
