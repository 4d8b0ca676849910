//! Sends alerts to an address.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

/// How long a request may take.
const TIME: Duration = Duration::from_secs(5);

/// An address to which JSON is sent by HTTP POST.
#[derive(Debug)]
pub struct Webhook {
    client: reqwest::Client,
    url: reqwest::Url,
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The address is invalid.
    #[error("{0:?} is not the address of a webhook; an example is https://hooks.example/health")]
    Address(String),
    /// The request failed. The address may contain a secret, so it is not shown.
    #[error("the request failed: {0}")]
    Request(#[source] reqwest::Error),
    /// The server refused the request.
    #[error("the server responded with {0}")]
    Refused(u16),
}

impl Webhook {
    /// Creates a webhook.
    ///
    /// # Errors
    /// `Address`, or `Request` if there is no client.
    pub fn new(url: &str) -> Result<Self, WebhookError> {
        let parsed = reqwest::Url::parse(url).ok();
        let parsed = parsed.filter(|url| matches!(url.scheme(), "http" | "https"));
        let parsed = parsed.ok_or_else(|| WebhookError::Address(url.to_owned()))?;
        let redirects = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().timeout(TIME).redirect(redirects).build();
        let client = client.map_err(|error| WebhookError::Request(error.without_url()))?;
        Ok(Self { client, url: parsed })
    }

    /// Sends a value.
    ///
    /// # Errors
    /// `Request` or `Refused`.
    pub async fn send(&self, value: &Value) -> Result<(), WebhookError> {
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let response = request.body(value.to_string()).send().await;
        let response = response.map_err(|error| WebhookError::Request(error.without_url()))?;
        if response.status().is_success() {
            return Ok(());
        }
        Err(WebhookError::Refused(response.status().as_u16()))
    }
}
