//! A cloud that lies: a proxy that forwards requests to an honest cloud and alters its responses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use moteseal_adversary::{
    Accomplice, Answer, Context, ExplainLie, Explanation, Holdings, Item, Lie, Question,
};
use moteseal_api::{CBOR_SEQ, JSON, Query, paths};
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::signature::SecretKey;
use moteseal_net::{Client, NetError};
use tokio::net::TcpListener;

use crate::fleet::sign;

/// The maximum size of an honest response in the demo, in bytes.
const MOST: usize = 256 << 20;

/// The alterations that the proxy makes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tale {
    /// The lie in the response to a query.
    pub lie: Option<&'static Lie>,
    /// The lie in the explaining form.
    pub explanation: Option<&'static ExplainLie>,
}

/// How a lie altered a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alteration {
    pub honest_bytes: usize,
    pub bytes: usize,
    /// The index of the first item that differs from the honest response.
    pub item: usize,
}

/// A cloud that lies.
pub(crate) struct Liar {
    honest: Client,
    holdings: Holdings,
    keys: BTreeMap<DeviceId, SecretKey>,
    tale: Mutex<(Tale, Option<Alteration>)>,
}

impl Liar {
    pub(crate) fn new(
        honest: Client,
        holdings: Holdings,
        keys: BTreeMap<DeviceId, SecretKey>,
    ) -> Arc<Self> {
        Arc::new(Self { honest, holdings, keys, tale: Mutex::default() })
    }

    /// Sets the lies for all following responses.
    pub(crate) fn set_lies(&self, tale: Tale) {
        *self.tale.lock().unwrap_or_else(PoisonError::into_inner) = (tale, None);
    }

    /// Returns how the lie altered the last response; `None` if the lie was not possible.
    pub(crate) fn alteration(&self) -> Option<Alteration> {
        self.tale.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Serves on a free loopback port until the runtime ends. Returns the URL.
    pub(crate) async fn serve(self: Arc<Self>) -> std::io::Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route(paths::QUERY, post(query))
            .route("/v1/devices/{device}/seals/{index}/explain", get(explain))
            .fallback(forward)
            .with_state(self);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(format!("http://{address}"))
    }

    fn alter(&self, query: &[u8], honest: Vec<u8>) -> Vec<u8> {
        let mut tale = self.tale.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(lie), Ok(query), Ok(answer)) =
            (tale.0.lie, Query::from_json(query), Answer::decode(&honest))
        else {
            return honest;
        };
        let accomplice = |device: DeviceId, message: &[u8]| sign(&self.keys, device, message);
        let mut altered = answer.clone();
        if !(lie.alter)(&mut altered, &self.context(&query, &accomplice)) {
            return honest;
        }
        let item =
            answer.items.iter().zip(&altered.items).take_while(|(one, other)| one == other).count();
        let bytes = altered.encode();
        tale.1 = Some(Alteration { honest_bytes: honest.len(), bytes: bytes.len(), item });
        bytes
    }

    fn context<'a>(&'a self, query: &Query, accomplice: &'a Accomplice<'a>) -> Context<'a> {
        let question = Question { since: query.since, until: query.until, choice: query.choice };
        Context { holdings: &self.holdings, question, accomplice: Some(accomplice) }
    }

    /// Alters the explaining form of a seal. Returns `None` if the lie is to withhold it.
    fn explanation(&self, device: DeviceId, index: SealIndex, honest: Vec<u8>) -> Option<Vec<u8>> {
        let tale = self.tale.lock().unwrap_or_else(PoisonError::into_inner).0;
        let (Some(lie), Ok(answer)) = (tale.explanation, Answer::decode(&honest)) else {
            return Some(honest);
        };
        let Some(Item::Explain { seal, digests }) = answer.items.into_iter().next() else {
            return Some(honest);
        };
        let none = |_: DeviceId, _: &[u8]| None;
        let question = Question {
            since: moteseal_core::EpochNumber(0),
            until: None,
            choice: moteseal_seal::sample::Choice::Rate(moteseal_seal::sample::Rate::ALL),
        };
        let context = Context { holdings: &self.holdings, question, accomplice: Some(&none) };
        let altered = (lie.alter)(&Explanation { seal, digests }, device, index, &context)?;
        let mut bytes = Vec::new();
        Item::Explain { seal: altered.seal, digests: altered.digests }.encode(&mut bytes);
        Some(bytes)
    }
}

fn sequence(bytes: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, CBOR_SEQ)], Body::from(bytes)).into_response()
}

fn unavailable(error: &NetError) -> Response {
    (StatusCode::BAD_GATEWAY, error.to_string()).into_response()
}

async fn fetch(
    answer: Result<moteseal_net::Response, NetError>,
) -> Result<(String, Vec<u8>), NetError> {
    let answer = answer?;
    let media_type = answer.media_type().to_owned();
    Ok((media_type, answer.bytes(MOST).await?))
}

async fn query(State(liar): State<Arc<Liar>>, body: Bytes) -> Response {
    match fetch(liar.honest.post(paths::QUERY, JSON, body.clone()).await).await {
        Ok((_, honest)) => sequence(liar.alter(&body, honest)),
        Err(error) => unavailable(&error),
    }
}

async fn explain(
    State(liar): State<Arc<Liar>>,
    Path((device, index)): Path<(String, u32)>,
    uri: Uri,
) -> Response {
    let mut id = [0; 8];
    let named = hex::decode_to_slice(&device, &mut id).is_ok();
    match fetch(liar.honest.get(uri.path()).await).await {
        Ok((_, honest)) if named => {
            match liar.explanation(DeviceId(id), SealIndex(index), honest) {
                Some(bytes) => sequence(bytes),
                None => StatusCode::NOT_FOUND.into_response(),
            }
        }
        Ok(_) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => unavailable(&error),
    }
}

async fn forward(State(liar): State<Arc<Liar>>, uri: Uri) -> Response {
    match fetch(liar.honest.get(uri.path()).await).await {
        Ok((media_type, bytes)) => {
            ([(CONTENT_TYPE, media_type)], Body::from(bytes)).into_response()
        }
        Err(error) => unavailable(&error),
    }
}
