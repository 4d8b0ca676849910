//! Passes the JWT of an account to running servers, which then end the connections of revoked users.

use async_nats::Client;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::timeout;

use crate::authority::UPDATE;
use crate::connection;
use crate::error::StreamError;
use crate::settings::Settings;

/// Passes the JWT of an account to each server of the settings, whose credentials are those of
/// [`Authority::system_user`](crate::Authority::system_user). When it returns, these servers have ended the
/// connections of the users that the JWT revokes. Other servers of the cluster receive the JWT from them.
///
/// # Errors
/// [`StreamError`] of the first server that cannot be reached or does not accept the JWT. The servers before
/// it have accepted it, and it is safe to repeat the call.
pub async fn push_account(settings: Settings, jwt: &str) -> Result<(), StreamError> {
    let settings = settings.checked()?;
    for server in &settings.servers {
        let one = Settings { servers: vec![server.clone()], ..settings.clone() };
        let client = connection::client(&one, |_| {}).await?;
        push(&client, &one, jwt).await?;
    }
    Ok(())
}

async fn push(client: &Client, settings: &Settings, jwt: &str) -> Result<(), StreamError> {
    let servers = settings.servers.join(", ");
    let failed = |what: String| StreamError::Unreachable {
        servers: connection::without_user(&servers),
        what,
    };
    let inbox = client.new_inbox();
    let answers = client.subscribe(inbox.clone()).await;
    let mut answers = answers.map_err(|error| failed(error.to_string()))?;
    let sent = client.publish_with_reply(UPDATE, inbox, jwt.to_owned().into()).await;
    sent.map_err(|error| failed(error.to_string()))?;
    // Each server of a cluster answers.
    let id = client.server_info().server_id;
    let own = async {
        while let Some(answer) = answers.next().await {
            let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
            if answer["server"]["id"] == id.as_str() {
                return Some(answer);
            }
        }
        None
    };
    let answer = timeout(settings.request_time, own).await.ok().flatten();
    let answer = answer.ok_or_else(|| {
        failed(
            "it does not answer to a JWT; check that it runs with the lines of this policy"
                .to_owned(),
        )
    })?;
    match answer.get("error") {
        None if answer["data"]["code"] == 200 => Ok(()),
        None => Err(StreamError::StreamFailed { what: answer.to_string() }),
        Some(error) => Err(StreamError::StreamFailed {
            what: error["description"].as_str().unwrap_or("an error").to_owned(),
        }),
    }
}
