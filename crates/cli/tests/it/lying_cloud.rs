//! Applies every lie of the adversary's table in a server that is between an honest cloud and a
//! client that verifies.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::testbed::{Checked, Field, Honest, Key, client};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use moteseal_adversary::{
    Answer, BUDGET_LIES, Context, EXPLAIN_LIES, ExplainLie, Explanation, Item, LIES, Lie, Question,
    find,
};
use moteseal_api::{CBOR_SEQ, JSON, NamedError as _, PROBLEM_JSON, Query, paths};
use moteseal_client::{DeviceReport, Disagreement, Rejection, Report, Standing};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_net::{Client, NetError};
use moteseal_seal::sample::Choice;
use moteseal_verify::explain::Finding as Difference;

/// How the server between cloud and client alters answers.
#[derive(Clone, Copy, Default)]
struct Task {
    lie: Option<&'static Lie>,
    explain: Option<&'static ExplainLie>,
    question: Option<Question>,
    /// Whether the lie could be applied to the answer.
    done: bool,
}

struct Liar {
    field: Field,
    honest: Client,
    task: Mutex<Task>,
}

impl Liar {
    async fn serve(self: Arc<Self>) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(move |request: Request| {
            let liar = Arc::clone(&self);
            async move { liar.respond(request).await }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    async fn respond(&self, request: Request) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let answer = if body.is_empty() {
            self.honest.get(&path).await
        } else {
            self.honest.post(&path, JSON, body).await
        };
        let honest = match answer {
            Ok(answer) => answer.bytes(80 << 20).await.unwrap(),
            Err(NetError::Refused { status, name, detail, .. }) => {
                let problem = format!(
                    r#"{{"type":"urn:moteseal:problem:{name}","status":{status},"detail":{detail:?}}}"#
                );
                return reply(
                    StatusCode::from_u16(status).unwrap(),
                    PROBLEM_JSON,
                    problem.into_bytes(),
                );
            }
            Err(error) => panic!("{path}: {error}"),
        };
        if path == paths::QUERY {
            return reply(StatusCode::OK, CBOR_SEQ, self.lie(&honest));
        }
        let place: Vec<&str> = path.split('/').collect();
        if let [.., device, "seals", index, "explain"] = place[..] {
            let device = *self.field.devices.iter().find(|id| id.to_string() == device).unwrap();
            return match self.explain(&honest, device, SealIndex(index.parse().unwrap())) {
                Some(bytes) => reply(StatusCode::OK, CBOR_SEQ, bytes),
                None => reply(
                    StatusCode::NOT_FOUND,
                    PROBLEM_JSON,
                    br#"{"type":"urn:moteseal:problem:NotFound"}"#.to_vec(),
                ),
            };
        }
        reply(StatusCode::OK, CBOR_SEQ, honest)
    }

    fn lie(&self, honest: &[u8]) -> Vec<u8> {
        let mut task = self.task.lock().unwrap();
        let (Some(lie), Some(question)) = (task.lie, task.question) else { return honest.to_vec() };
        let mut answer = Answer::decode(honest).unwrap();
        assert_eq!(answer.encode(), honest);
        let accomplice = |device: DeviceId, message: &[u8]| self.field.sign(device, message);
        let context =
            Context { holdings: &self.field.holdings, question, accomplice: Some(&accomplice) };
        task.done = (lie.alter)(&mut answer, &context);
        answer.encode()
    }

    fn explain(&self, honest: &[u8], device: DeviceId, index: SealIndex) -> Option<Vec<u8>> {
        let task = *self.task.lock().unwrap();
        let (Some(lie), Some(question)) = (task.explain, task.question) else {
            return Some(honest.to_vec());
        };
        let mut answer = Answer::decode(honest).unwrap();
        let Item::Explain { seal, digests } = answer.items[0].clone() else {
            panic!("no explanation: {answer:?}")
        };
        let context = Context { holdings: &self.field.holdings, question, accomplice: None };
        let Explanation { seal, digests } =
            (lie.alter)(&Explanation { seal, digests }, device, index, &context)?;
        answer.items[0] = Item::Explain { seal, digests };
        Some(answer.encode())
    }
}

fn reply(status: StatusCode, media_type: &str, body: Vec<u8>) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", media_type)
        .body(Body::from(body))
        .unwrap()
}

fn choices(scheme: Scheme) -> Vec<Choice> {
    let rate = |text: &str| Choice::Rate(text.parse().unwrap());
    let mut choices = vec![rate("1/8"), rate("1"), rate("5/8"), Choice::AtMost(40)];
    if scheme == Scheme::Tree {
        choices.push(Choice::Sample { count: 30, seed: [4; 32] });
    }
    choices
}

/// A client, its cloud, and the server between them that alters answers.
struct Scene {
    liar: Arc<Liar>,
    client: Client,
    _honest: Honest,
}

impl Scene {
    async fn new(scheme: Scheme) -> Self {
        Self::of(Field::new(scheme)).await
    }

    async fn of(field: Field) -> Self {
        let honest = Honest::serve(&field, u64::MAX).await;
        let liar = Arc::new(Liar { honest: client(&honest.url), field, task: Mutex::default() });
        let client = client(&Arc::clone(&liar).serve().await);
        Self { liar, client, _honest: honest }
    }

    /// Sends a query while the lie is applied. Returns the outcome, the number of rows that the
    /// sink received, and whether the lie could be applied. The sink asserts that every row is as
    /// sealed.
    async fn ask(
        &self,
        choice: Choice,
        lie: Option<&'static Lie>,
        explain: Option<&'static ExplainLie>,
    ) -> (Result<Report, moteseal_client::Error>, usize, bool) {
        let (outcome, seen, done) =
            self.ask_for(&self.liar.field.query(choice), lie, explain).await;
        (outcome, seen.len(), done)
    }

    /// Like [`Self::ask`], for any query. Returns the rows that the sink received.
    async fn ask_for(
        &self,
        query: &Query,
        lie: Option<&'static Lie>,
        explain: Option<&'static ExplainLie>,
    ) -> (Result<Report, moteseal_client::Error>, BTreeMap<Key, Vec<u8>>, bool) {
        let question = Question { since: query.since, until: query.until, choice: query.choice };
        *self.liar.task.lock().unwrap() =
            Task { lie, explain, question: Some(question), done: false };
        let mut sink = Checked::new(&self.liar.field);
        let outcome = moteseal_client::Client::new(&self.client, &self.liar.field.roster)
            .query(query)
            .run(&mut sink)
            .await
            .map(|verified| verified.report);
        let done = self.liar.task.lock().unwrap().done;
        (outcome, sink.seen, done)
    }
}

/// Returns the name of the rejection and the name of the explaining form's finding.
fn names(outcome: &Result<Report, moteseal_client::Error>) -> (String, Option<&'static str>) {
    match outcome {
        Ok(report) if report.is_complete() => ("accepted".into(), None),
        Ok(report) => {
            let missing =
                |device: &DeviceReport| matches!(device.standing, Standing::ManifestMissing { .. });
            let name =
                if report.devices.iter().any(missing) { "ManifestMissing" } else { "TailUnknown" };
            (name.into(), None)
        }
        Err(moteseal_client::Error::Rejected(refused)) => (
            refused.rejection.name().to_owned(),
            refused.finding.as_ref().map(|finding| finding.name()),
        ),
        Err(failure) => (format!("not a rejection: {failure}"), None),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_proxy_delivers_everything() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let scene = Scene::new(scheme).await;
        for choice in choices(scheme) {
            let (outcome, rows, _) = scene.ask(choice, None, None).await;
            let report = outcome.unwrap();
            assert!(report.is_complete() && rows > 0, "{scheme:?} {choice:?}: {report:?}");
            assert_eq!(report.rows(), rows as u64);
            let within = |epoch: u64| (102..107).contains(&epoch);
            let sealed =
                scene.liar.field.truth.keys().filter(|(_, epoch, ..)| within(*epoch)).count();
            assert_eq!(report.events(), sealed as u64);
            if choice == choices(scheme)[1] {
                assert_eq!(rows, sealed, "rate 1 must return every row");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lie_is_rejected_by_its_name_without_a_false_row() {
    assert!(LIES.len() >= 25);
    let mut wrong = Vec::new();
    for scheme in [Scheme::Star, Scheme::Tree] {
        let scene = Scene::new(scheme).await;
        for lie in LIES.iter().filter(|lie| lie.schemes.include(scheme)) {
            let mut applied = 0;
            for choice in choices(scheme) {
                let (outcome, _, done) = scene.ask(choice, Some(lie), None).await;
                let (name, finding) = names(&outcome);
                if !done {
                    assert_eq!(
                        name, "accepted",
                        "{} ({scheme:?}, {choice:?}): not applicable",
                        lie.name
                    );
                    continue;
                }
                applied += 1;
                let explained = lie
                    .explained
                    .filter(|_| name == "NotAuthentic")
                    .map(|explains| explains.of(scheme));
                if !lie.expected.contains(&name.as_str()) || finding != explained {
                    wrong.push(format!(
                        "{} ({scheme:?}, {choice:?}): {name}, {finding:?}; {explained:?}",
                        lie.name
                    ));
                }
            }
            if applied == 0 {
                wrong.push(format!("{} ({scheme:?}): never applicable", lie.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_omits_readings_cannot_choose_among_samples() {
    let lie = find("shortened-epoch").unwrap();
    for scheme in [Scheme::Star, Scheme::Tree] {
        let scene = Scene::new(scheme).await;
        let west = scene.liar.field.devices[2];
        for choice in choices(scheme) {
            for until in [None, Some(EpochNumber(107))] {
                let query = Query { until, ..scene.liar.field.query(choice) };
                let newest = EpochNumber(until.map_or(108, |until| until.0 - 1));
                let (honest, all, _) = scene.ask_for(&query, None, None).await;
                let (altered, rows, done) = scene.ask_for(&query, Some(lie), None).await;
                assert!(done, "{scheme:?} {choice:?}: not applicable");
                let (honest, altered) = (honest.unwrap(), altered.unwrap());
                assert!(
                    honest.is_complete()
                        && honest.devices[2].complete_until() == EpochNumber(newest.0 + 1)
                );
                assert_eq!(altered.devices[2].complete_until(), newest);
                assert_eq!(
                    altered.is_complete(),
                    until.is_none(),
                    "no epoch is missing before the one that is left open"
                );
                let within = |key: &&Key| key.0 == west && key.1 == newest.0;
                assert!(all.keys().filter(within).count() > 0);
                match choice {
                    // A rate determines the rows of each part. Rows can be missing, but no row can
                    // be added.
                    Choice::Rate(_) => assert!(rows.keys().all(|key| all.contains_key(key))),
                    _ => assert_eq!(
                        rows.keys().filter(within).count(),
                        0,
                        "{scheme:?} {choice:?} {until:?}"
                    ),
                }
                assert_eq!(altered.rows(), rows.len() as u64);
                let rest = |key: &&Key| !within(key);
                assert!(
                    rows.keys().filter(rest).eq(all.keys().filter(rest)),
                    "the rows of closed epochs must not change"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_explanation_is_named_and_the_response_stays_refused() {
    let altered = find("altered-reading").unwrap();
    let mut wrong = Vec::new();
    for scheme in [Scheme::Star, Scheme::Tree] {
        let scene = Scene::new(scheme).await;
        for lie in EXPLAIN_LIES.iter().filter(|lie| lie.schemes.include(scheme)) {
            for choice in choices(scheme) {
                let (outcome, _, done) = scene.ask(choice, Some(altered), Some(lie)).await;
                assert!(done, "{} ({scheme:?}, {choice:?})", lie.name);
                let (name, finding) = names(&outcome);
                if name != "NotAuthentic"
                    || !finding.is_some_and(|finding| lie.expected.contains(&finding))
                {
                    wrong.push(format!(
                        "{} ({scheme:?}, {choice:?}): {name}, {finding:?}",
                        lie.name
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_located_lie_is_one_line_with_each_name_once() {
    let altered = find("altered-reading").unwrap();
    let withheld = EXPLAIN_LIES.iter().find(|lie| lie.name == "withheld-explanation").unwrap();
    for (scheme, explain) in
        [(Scheme::Star, None), (Scheme::Tree, None), (Scheme::Star, Some(withheld))]
    {
        let scene = Scene::new(scheme).await;
        let rate = Choice::Rate("1".parse().unwrap());
        let (outcome, ..) = scene.ask(rate, Some(altered), explain).await;
        let error = outcome.unwrap_err();
        let moteseal_client::Error::Rejected(rejected) = &error else { panic!("{error}") };
        let finding = rejected.finding.as_ref().unwrap();
        let (device, index, epoch) = (finding.device, finding.index, finding.epoch);
        let located = match &finding.what {
            Disagreement::Differs(Difference::Block { level }) => format!(
                "BlockDigestMismatch: the events of level {level} are not the ones that were sealed"
            ),
            Disagreement::Differs(Difference::Path { seq: Some(seq) }) => {
                format!("PathMismatch: event {seq} is not what was sealed")
            }
            Disagreement::Withheld { cause } => {
                assert!(cause.starts_with("NotFound: http://127.0.0.1:"), "{cause}");
                format!(
                    "ExplanationWithheld: the store does not show what the device signed ({cause})"
                )
            }
            other => panic!("{other:?}"),
        };
        let Rejection::Read(read) = &rejected.rejection else { panic!("{rejected}") };
        let (first, last) = read.run.unwrap();
        let run = if first == last {
            format!("index {first}")
        } else {
            format!("indices {first} to {last}")
        };
        let expected = format!(
            "{located} (device {device}, index {index}, epoch {epoch}); NotAuthentic: {} \
             (item {}, device {device}, {run})",
            read.kind, read.item
        );
        assert_eq!(error.named().to_string(), expected);
    }
}

/// Applies the lies about a group with a budget, and all other lies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lie_about_a_group_with_a_budget_is_rejected_by_its_name() {
    let scene = Scene::of(Field::within_budget(|epoch| 2 + u8::from(epoch % 2 == 0))).await;
    let choices = [Choice::Rate("1/8".parse().unwrap()), Choice::AtMost(40), Choice::AtMost(1000)];
    let mut wrong = Vec::new();
    for choice in choices {
        let (outcome, rows, _) = scene.ask(choice, None, None).await;
        let report = outcome.unwrap();
        assert!(report.is_complete() && rows > 0, "{choice:?}: {report:?}");
        assert_eq!((report.budget, report.rounds.len()), (Some(500), 5));
    }
    let (refused, ..) = scene.ask(Choice::Rate("1/4".parse().unwrap()), None, None).await;
    assert_eq!(refused.unwrap_err().name(), "RateUnavailable");
    for lie in BUDGET_LIES.iter().chain(LIES).filter(|lie| lie.schemes.include(Scheme::Star)) {
        let own = BUDGET_LIES.iter().any(|other| other.name == lie.name);
        let mut applied = 0;
        for choice in choices {
            let (outcome, _, done) = scene.ask(choice, Some(lie), None).await;
            let (name, finding) = names(&outcome);
            if !done {
                assert_eq!(name, "accepted", "{} ({choice:?}): not applicable", lie.name);
                continue;
            }
            applied += 1;
            // If a seal is listed by a manifest, it is reported as missing before the tail is
            // reported as unknown, even if the seal's device is skipped.
            let passed =
                lie.expected.contains(&"TailUnknown") || lie.name == "devices-out-of-order";
            let listed = !own && passed && name == "Missing";
            let explained = lie
                .explained
                .filter(|_| name == "NotAuthentic")
                .map(|explains| explains.of(Scheme::Star));
            if !(lie.expected.contains(&name.as_str()) || listed) || finding != explained {
                wrong
                    .push(format!("{} ({choice:?}): {name}, {finding:?}; {explained:?}", lie.name));
            }
        }
        if own && applied == 0 {
            wrong.push(format!("{}: never applicable", lie.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
