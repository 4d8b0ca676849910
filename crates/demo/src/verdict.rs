//! Asking a cloud that lies, and what the client says to it.

use moteseal_adversary::{EXPLAIN_LIES, ExplainLie, Explains, LIES, Lie};
use moteseal_api::Query;
use moteseal_client::{Disagreement, Error, PinnedSeals, Rejected, Rows};
use moteseal_core::record::Scheme;
use moteseal_net::Client;
use moteseal_verify::{Finding, Roster};

use crate::liar::{Liar, Tale, Told};

/// What became of one lie about one scheme.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub name: &'static str,
    pub what: &'static str,
    pub scheme: Scheme,
    /// By which name the answer was refused as a whole.
    pub refused: String,
    /// What the explaining form then named.
    pub named: Option<String>,
    /// By which name a client refuses it that has seen the withheld seals before, where to others nothing shows them.
    pub remembered: Option<String>,
    /// Which device, seal, level, event or field.
    pub place: String,
    /// All of it, in a sentence.
    pub detail: String,
    pub caught: bool,
    pub told: Told,
    pub query: Query,
}

impl Verdict {
    /// The most telling name.
    pub(crate) fn most_telling(&self) -> &str {
        self.named.as_deref().unwrap_or(&self.refused)
    }
}

/// How an answer was received.
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
                detail: "the answer was accepted as complete".into(),
            },
            Some(device) => Outcome {
                refused: "TailUnknown".into(),
                named: None,
                place: format!("{} from epoch {} on", device.name, device.complete_until()),
                detail: format!(
                    "TailUnknown: nothing shows what {} sealed from epoch {} on",
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

/// Where it was: for people, with the device's name.
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

/// Asks through the liar while it tells the truth, and gives what a client then remembers.
///
/// # Errors
/// Why the honest answer was refused.
pub(crate) async fn honest(
    liar: &Liar,
    client: &Client,
    roster: &Roster,
    query: &Query,
) -> Result<PinnedSeals, String> {
    liar.tell(Tale::default());
    let mut memory = PinnedSeals::new();
    let outcome = ask(client, roster, query, Some(&mut memory)).await;
    if outcome.refused == "accepted" { Ok(memory) } else { Err(outcome.detail) }
}

/// Tells a lie about the first of these queries that gives an occasion.
pub(crate) async fn tell(
    liar: &Liar,
    client: &Client,
    roster: &Roster,
    (lie, scheme): (&'static Lie, Scheme),
    queries: &[(Query, PinnedSeals)],
) -> Option<Verdict> {
    for (query, memory) in queries {
        liar.tell(Tale { lie: Some(lie), explanation: None });
        let Outcome { refused, named, place, detail } = ask(client, roster, query, None).await;
        let Some(told) = liar.told() else { continue };
        let mut caught = lie.expected.contains(&refused.as_str())
            && explained(lie.explained, scheme, &refused, named.as_deref());
        let mut remembered = None;
        if refused == "TailUnknown" {
            let name = ask(client, roster, query, Some(&mut memory.clone())).await.refused;
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
            told,
            query,
        });
    }
    None
}

/// Whether the explaining form named what it had to.
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

/// Alters a reading, and lies about the explanation, too.
pub(crate) async fn tell_explanation(
    liar: &Liar,
    client: &Client,
    roster: &Roster,
    (lie, scheme): (&'static ExplainLie, Scheme),
    query: &Query,
) -> Option<Verdict> {
    liar.tell(Tale { lie: moteseal_adversary::find("altered-reading"), explanation: Some(lie) });
    let Outcome { refused, named, place, detail } = ask(client, roster, query, None).await;
    let told = liar.told()?;
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
        told,
        query,
    })
}

/// Every kind of lie, by name.
pub(crate) fn kinds() -> Vec<&'static str> {
    LIES.iter().map(|lie| lie.name).chain(EXPLAIN_LIES.iter().map(|lie| lie.name)).collect()
}
