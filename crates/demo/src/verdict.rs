//! Sends queries to a cloud that lies, and records how the client rejects the responses.

use moteseal_adversary::{EXPLAIN_LIES, ExplainLie, Explains, LIES, Lie};
use moteseal_api::Query;
use moteseal_client::{Disagreement, Error, PinnedSeals, Rejected, Rows};
use moteseal_core::record::Scheme;
use moteseal_net::Client;
use moteseal_verify::{Finding, Roster};

use crate::liar::{Alteration, Liar, Tale};

/// The result of one lie, for one scheme.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub name: &'static str,
    pub what: &'static str,
    pub scheme: Scheme,
    /// The name of the error with which the client rejects the response.
    pub refused: String,
    /// The name of the finding from the explaining form, if the cloud returned one.
    pub named: Option<String>,
    /// If only a client with pinned seals can detect the lie: the name of the error with which this
    /// client rejects the response.
    pub remembered: Option<String>,
    /// The device, seal, level, event or field to which the rejection refers.
    pub place: String,
    /// The complete error message.
    pub detail: String,
    pub caught: bool,
    pub alteration: Alteration,
    pub query: Query,
}

impl Verdict {
    /// Returns the most specific name of an error for the lie.
    pub(crate) fn most_specific(&self) -> &str {
        self.named.as_deref().unwrap_or(&self.refused)
    }
}

/// How the client accepted or rejected a response.
struct Outcome {
    refused: String,
    named: Option<String>,
    place: String,
    detail: String,
}

async fn ask(
    client: &Client,
    roster: &Roster,
    query: &Query,
    pinned: Option<&mut PinnedSeals>,
) -> Outcome {
    let mut sink = |_: &Rows<'_>| Ok(());
    let mut request = moteseal_client::Client::new(client, roster).query(query);
    if let Some(pinned) = pinned {
        request = request.pinned_seals(pinned);
    }
    match request.run(&mut sink).await {
        Ok(verified) => match verified.report.devices.iter().find(|device| !device.is_complete()) {
            None => Outcome {
                refused: "accepted".into(),
                named: None,
                place: String::new(),
                detail: "the response was accepted as complete".into(),
            },
            Some(device) => Outcome {
                refused: "TailUnknown".into(),
                named: None,
                place: format!("{} from epoch {} on", device.name, device.complete_until()),
                detail: format!(
                    "TailUnknown: nothing proves what {} sealed from epoch {} on",
                    device.name,
                    device.complete_until()
                ),
            },
        },
        Err(Error::Rejected(refused)) => Outcome {
            refused: refused.rejection.name().to_owned(),
            named: refused.finding.as_ref().map(|finding| finding.name().to_owned()),
            place: place(roster, &refused),
            detail: refused.to_string(),
        },
        Err(error) => Outcome {
            refused: error.name().to_owned(),
            named: None,
            place: String::new(),
            detail: error.to_string(),
        },
    }
}

/// Returns the place to which a rejection refers, with the device's name.
fn place(roster: &Roster, refused: &Rejected) -> String {
    if let Some(finding) = &refused.finding {
        let name = roster.name(finding.device).unwrap_or_default();
        let what = match &finding.what {
            Disagreement::Differs(Finding::Statement { field }) => format!(": {field}"),
            Disagreement::Differs(Finding::Block { level }) => format!(" level {level}"),
            Disagreement::Differs(Finding::Path { seq: Some(seq) }) => format!(" event {seq}"),
            _ => String::new(),
        };
        return format!("{name} seal {}{what}", finding.index);
    }
    let Some(device) = refused.device() else { return String::new() };
    let name = roster.name(device).map_or_else(|| device.to_string(), str::to_owned);
    let index = refused.index();
    index.map_or_else(|| name.clone(), |index| format!("{name} seal {index}"))
}

/// Queries the proxy before it lies. Returns the seals that a client then pins.
///
/// # Errors
/// The message with which the client rejected the honest response.
pub(crate) async fn honest(
    liar: &Liar,
    client: &Client,
    roster: &Roster,
    query: &Query,
) -> Result<PinnedSeals, String> {
    liar.set_lies(Tale::default());
    let mut pinned = PinnedSeals::new();
    let outcome = ask(client, roster, query, Some(&mut pinned)).await;
    if outcome.refused == "accepted" { Ok(pinned) } else { Err(outcome.detail) }
}

/// Tries a lie: sends the queries in order until the lie is possible in a response.
pub(crate) async fn try_lie(
    liar: &Liar,
    client: &Client,
    roster: &Roster,
    (lie, scheme): (&'static Lie, Scheme),
    queries: &[(Query, PinnedSeals)],
) -> Option<Verdict> {
    for (query, pinned) in queries {
        liar.set_lies(Tale { lie: Some(lie), explanation: None });
        let Outcome { refused, named, place, detail } = ask(client, roster, query, None).await;
        let Some(alteration) = liar.alteration() else { continue };
        let mut caught = lie.expected.contains(&refused.as_str())
            && explained(lie.explained, scheme, &refused, named.as_deref());
        let mut remembered = None;
        if refused == "TailUnknown" {
            let name = ask(client, roster, query, Some(&mut pinned.clone())).await.refused;
            caught &= name == "Missing";
            remembered = Some(name);
        }
        let (name, what, query) = (lie.name, lie.what, query.clone());
        return Some(Verdict {
            name,
            what,
            scheme,
            refused,
            named,
            remembered,
            place,
            detail,
            caught,
            alteration,
            query,
        });
    }
    None
}

/// Returns whether the explaining form gave the expected cause.
fn explained(
    expected: Option<Explains>,
    scheme: Scheme,
    refused: &str,
    named: Option<&str>,
) -> bool {
    if refused != "NotAuthentic" {
        return named.is_none();
    }
    expected.map(|explains| explains.of(scheme)) == named
}

/// Tries a lie in an explaining form, after an altered reading has made the client request it.
pub(crate) async fn try_explanation_lie(
    liar: &Liar,
    client: &Client,
    roster: &Roster,
    (lie, scheme): (&'static ExplainLie, Scheme),
    query: &Query,
) -> Option<Verdict> {
    liar.set_lies(Tale {
        lie: moteseal_adversary::find("altered-reading"),
        explanation: Some(lie),
    });
    let Outcome { refused, named, place, detail } = ask(client, roster, query, None).await;
    let alteration = liar.alteration()?;
    let caught = refused == "NotAuthentic"
        && named.as_deref().is_some_and(|name| lie.expected.contains(&name));
    let (name, what, query) = (lie.name, lie.what, query.clone());
    Some(Verdict {
        name,
        what,
        scheme,
        refused,
        named,
        remembered: None,
        place,
        detail,
        caught,
        alteration,
        query,
    })
}

/// Returns the names of all kinds of lies.
pub(crate) fn kinds() -> Vec<&'static str> {
    LIES.iter().map(|lie| lie.name).chain(EXPLAIN_LIES.iter().map(|lie| lie.name)).collect()
}
