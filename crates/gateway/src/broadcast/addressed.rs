//! Makes the content of chains for named receivers (spec/broadcast.md, section 8).

use std::io;

use hmac::{Hmac, KeyInit as _, Mac as _};
use moteseal_broadcast::address::{
    ADDRESS_ENTRY, AddressStart, CONTENT_KEY, ContentKey, MAX_ADDRESS_START,
};
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::{ChainId, KeyId, MAX_MESSAGE};
use moteseal_core::cbor::Writer;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::content::{Content, ContentError};
use super::error::SendError;
use super::receivers::Receivers;

/// The maximum length of a message of an address, unless the messages of the content are shorter.
const LONGEST: usize = 1024;
/// The maximum length of a message of an address is at least this, the length for which motes have
/// memory.
const SHORTEST: usize = 256;

/// How the address of a chain is divided into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressForm {
    /// Into messages of at most this many bytes. If the content is one message and fits, too, it is
    /// in the address.
    Divided(usize),
    /// Into one message, which has the content, too.
    Single,
}

impl AddressForm {
    /// Returns the form for content whose messages have at most `size` bytes, if that is limited.
    #[must_use]
    pub fn divided(size: Option<usize>) -> Self {
        Self::Divided(size.map_or(LONGEST, |size| size.clamp(SHORTEST, LONGEST)))
    }
}

/// The addressed receivers, by their positions in the sender's list.
#[derive(Clone, Debug)]
pub struct Addressees<'l> {
    list: &'l Receivers,
    positions: Vec<u32>,
}

impl<'l> Addressees<'l> {
    /// Addresses the receivers at these positions. Removed receivers are left out.
    #[must_use]
    pub fn new(list: &'l Receivers, mut positions: Vec<u32>) -> Self {
        positions.sort_unstable();
        positions.dedup();
        positions.retain(|position| list.key(*position).is_some());
        Self { list, positions }
    }

    /// Returns the positions of the receivers.
    #[must_use]
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Returns a new key for content. `random` are 32 new random bytes. The key also depends on the
    /// list's secret and on the content, so that two different contents have different keys even if
    /// random bytes repeat, for example in two copies of a virtual machine.
    ///
    /// # Errors
    /// The errors of reading the content.
    pub fn content_key(
        &self,
        random: &Zeroizing<[u8; 32]>,
        label: &str,
        content: &Content,
    ) -> io::Result<ContentKey> {
        let mut digest = Sha256::new();
        digest.update((label.len() as u64).to_be_bytes());
        digest.update(label);
        let mut message = Zeroizing::new(vec![0; MAX_MESSAGE]);
        for number in 0..content.messages() {
            let length = content.read(number, &mut message)?;
            digest.update((length as u64).to_be_bytes());
            digest.update(message.get(..length).unwrap_or_default());
        }
        Ok(derive(self.list.secret(), random, &digest.finalize()))
    }

    /// Returns the messages of the chain `id` under the sender's key `key_id` with this label and
    /// content.
    ///
    /// # Errors
    /// `TooManyMessages`, `AddressTooLong`, and the errors of reading the content.
    pub fn encrypt(
        &self,
        key: &ContentKey,
        (id, key_id): (&ChainId, KeyId),
        label: &str,
        content: &Content,
        form: AddressForm,
    ) -> Result<Content, SendError> {
        let receivers = self.positions.iter().filter_map(|position| self.list.key(*position));
        let entry = |receiver: &ReceiverKey| key.entry(id, key_id, receiver);
        let mut entries: Vec<[u8; ADDRESS_ENTRY]> = receivers.map(entry).collect();
        entries.sort_unstable();
        let cipher = key.cipher(id, key_id);
        let mut label = label.as_bytes().to_vec();
        cipher.apply_to_label(&mut label);
        let commitment = key.commitment(id, key_id);
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let start = |first: &[u8], content: Option<&[u8]>| {
            let start = AddressStart { commitment, entries: count, label: &label, first, content };
            let mut out = vec![0; 2 * MAX_MESSAGE];
            let mut writer = Writer::new(&mut out);
            start.encode(&mut writer).ok()?;
            let length = writer.position();
            out.truncate(length);
            Some(out)
        };
        let most = match form {
            AddressForm::Divided(most) => most,
            AddressForm::Single => MAX_MESSAGE,
        };
        if content.messages() == 1 {
            let mut message = Zeroizing::new(vec![0; MAX_MESSAGE]);
            let length = content.read(0, &mut message).map_err(SendError::Read)?;
            message.truncate(length);
            cipher.apply(0, &mut message);
            let single = start(entries.as_flattened(), Some(&message));
            if let Some(single) = single.filter(|single| single.len() <= most) {
                return Ok(Content::addressed(vec![single], content, None)?);
            }
        }
        if form == AddressForm::Single {
            return Err(ContentError::AddressTooLong { receivers: entries.len() }.into());
        }
        let in_first = (most.saturating_sub(MAX_ADDRESS_START) / ADDRESS_ENTRY).max(1);
        let (first, others) = entries.split_at(in_first.min(entries.len()));
        let mut address: Vec<Vec<u8>> = start(first.as_flattened(), None).into_iter().collect();
        let each = (most / ADDRESS_ENTRY).max(1);
        address.extend(others.chunks(each).map(|part| part.as_flattened().to_vec()));
        Ok(Content::addressed(address, content, Some(cipher))?)
    }
}

/// Derives the key of a content with this digest (spec/broadcast.md, section 8.1).
#[allow(clippy::expect_used)]
fn derive(secret: &[u8; 32], random: &[u8; 32], digest: &[u8]) -> ContentKey {
    let mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    let mac = mac.chain_update(b"moteseal/1/receiver/content-key\0");
    let mac = mac.chain_update(random).chain_update(digest);
    let derived: Zeroizing<[u8; 32]> = Zeroizing::new(mac.finalize().into_bytes().into());
    let mut key = Zeroizing::new([0; CONTENT_KEY]);
    key.copy_from_slice(&derived[..CONTENT_KEY]);
    ContentKey::new(&key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_broadcast::address::{AddressRead, AddressReader};
    use moteseal_broadcast::{ChainNumber, Kind, Outline};
    use moteseal_core::record::{DeviceId, NetworkId};

    use super::*;

    const ID: ChainId = ChainId {
        network: NetworkId(*b"network1"),
        sender: DeviceId(*b"sender 1"),
        number: ChainNumber(7),
    };
    const KEY: KeyId = KeyId(*b"key of 1");

    fn list(count: u32) -> Receivers {
        let mut list = Receivers::new(ID.network, ID.sender, Zeroizing::new([7; 32]));
        (0..count).for_each(|at| _ = list.add(&format!("r{at}")).unwrap());
        list
    }

    fn messages(content: &Content) -> Vec<Vec<u8>> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let read = |number| {
            let length = content.read(number, &mut buffer).unwrap();
            buffer[..length].to_vec()
        };
        (0..content.messages()).map(read).collect()
    }

    fn lines(lines: &[&str]) -> Content {
        Content::lines(lines.iter().map(|line| line.as_bytes().to_vec()).collect()).unwrap()
    }

    #[test]
    fn an_addressed_receiver_reads_the_content_whatever_the_form() {
        let list = list(120);
        for (content, of, form, count) in [
            (lines(&["a", "", "long line"]), 1, AddressForm::divided(None), 4),
            (lines(&["a", "", "long line"]), 100, AddressForm::divided(None), 6),
            (lines(&["a"]), 100, AddressForm::divided(Some(1)), 12),
            (lines(&["a"]), 6, AddressForm::divided(Some(1)), 1),
            (lines(&["a"]), 100, AddressForm::Single, 1),
        ] {
            let to = Addressees::new(&list, (0..of).rev().collect());
            let key = to.content_key(&Zeroizing::new([1; 32]), "label", &content).unwrap();
            let sealed = to.encrypt(&key, (&ID, KEY), "label", &content, form).unwrap();
            let sent = messages(&sealed);
            assert_eq!(sent.len(), count, "{of} receivers, {form:?}");
            if let AddressForm::Divided(most) = form {
                assert!(sent.iter().all(|message| message.len() <= most));
            }
            let outline = Outline {
                id: ID,
                key: KEY,
                messages: sealed.messages(),
                per_block: 1,
                longest: 8192,
                kind: Kind::Announcement,
                is_addressed: true,
            };
            for at in [0, of - 1, of] {
                let (mut reader, own) = (AddressReader::new(&outline), list.key(at));
                let mut sent = sent.iter();
                while reader.take(own, sent.next().unwrap()).unwrap() == AddressRead::More {}
                let Ok(opened) = reader.open() else {
                    assert_eq!(at, of, "an addressed receiver cannot read the chain");
                    continue;
                };
                assert!(at < of, "another receiver can read the chain");
                let mut read: Vec<_> = sent.cloned().collect();
                if opened.address == 0 {
                    let only = &messages(&sealed)[0];
                    let start = AddressStart::decode(only, 1).unwrap();
                    read = vec![start.content.unwrap().to_vec()];
                }
                (0..)
                    .zip(&mut read)
                    .for_each(|(number, message)| opened.cipher.apply(number, message));
                assert_eq!(read, messages(&content));
            }
            assert_eq!(sealed.bytes(), content.bytes());
        }
    }

    #[test]
    fn different_contents_have_different_keys_even_if_random_bytes_repeat() {
        let list = list(2);
        let to = Addressees::new(&list, vec![0]);
        let random = Zeroizing::new([1; 32]);
        let key = |label, content| *to.content_key(&random, label, &content).unwrap().secret();
        let keys = [
            key("label", lines(&["ab", "c"])),
            key("label", lines(&["a", "bc"])),
            key("label", lines(&["abc"])),
            key("labe", lines(&["ab", "c"])),
        ];
        for (place, key) in keys.iter().enumerate() {
            assert!(!keys[..place].contains(key), "{place}");
        }
        assert_eq!(key("label", lines(&["ab", "c"])), keys[0]);
    }

    #[test]
    fn content_that_does_not_fit_in_one_message_with_its_address_is_refused() {
        let list = list(400);
        let to = Addressees::new(&list, (0..400).collect());
        let key = ContentKey::new(&[1; 16]);
        let refused = to.encrypt(&key, (&ID, KEY), "", &lines(&["a"]), AddressForm::Single);
        assert_eq!(refused.unwrap_err().name(), "AddressTooLong");
    }
}
