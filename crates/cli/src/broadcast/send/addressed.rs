//! Chains for named receivers: `moteseal broadcast send --only`.

use moteseal_broadcast::address::ContentKey;
use moteseal_broadcast::{ChainId, KeyId};
use moteseal_gateway::broadcast::{AddressForm, Addressees, Content, SendError};
use zeroize::Zeroizing;

use crate::failure::{Exit, Failure};

/// The content of a chain as it is sent, and the key with which it is encrypted.
pub(super) struct Prepared {
    pub(super) content: Content,
    pub(super) key: Option<ContentKey>,
}

/// Encrypts the content of a chain for `to`. If `to` is `None`, the chain is for all receivers, and
/// its content is sent as it is. `begun` is the key of a chain that is resumed.
pub(super) fn prepare(
    to: Option<&Addressees<'_>>,
    begun: Option<&ContentKey>,
    (id, key_id): (&ChainId, KeyId),
    (label, content): (&str, &Content),
    form: AddressForm,
) -> Result<Prepared, Failure> {
    let Some(to) = to else { return Ok(Prepared { content: content.clone(), key: None }) };
    let key = match begun {
        Some(key) => key.clone(),
        None => {
            let mut random = Zeroizing::new([0; 32]);
            getrandom::fill(&mut *random).map_err(|error| {
                Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
            })?;
            to.content_key(&random, label, content).map_err(SendError::Read)?
        }
    };
    let content = to.encrypt(&key, (id, key_id), label, content, form)?;
    Ok(Prepared { content, key: Some(key) })
}
