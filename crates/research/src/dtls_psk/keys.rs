//! The keys of a connection: the pseudo-random function (RFC 5246, section 5), the extended master
//! secret (RFC 7627, section 4), and the protection of records by AES-128-CCM with tags of 8 bytes
//! (RFC 6655, section 3).

use aes::Aes128;
use ccm::aead::AeadInOut as _;
use ccm::consts::{U8, U12};
use ccm::{Ccm, KeyInit as _};
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};

use super::record::{Datagram, EXPLICIT_NONCE, HEADER, Record, TAG, VERSION};
use super::{DtlsError, MAX_KEY};

/// The length of the contents of Finished in bytes.
pub(super) const VERIFY_DATA: usize = 12;

const KEY: usize = 16;
/// The length of the part of the nonce that follows from the keys, in bytes.
const IMPLICIT_NONCE: usize = 4;

/// Fills `out` with `PRF(secret, label, seed)`. The seed has two parts. Returns `None` never, but
/// the interface of HMAC does not show that it accepts keys of every length.
fn prf(secret: &[u8], label: &[u8], seed: [&[u8]; 2], out: &mut [u8]) -> Option<()> {
    let keyed = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    let with_seed = |code: Hmac<Sha256>| {
        seed.iter().fold(code.chain_update(label), |code, part| code.chain_update(part))
    };
    let mut a = with_seed(keyed.clone()).finalize().into_bytes();
    for part in out.chunks_mut(32) {
        let block = with_seed(keyed.clone().chain_update(a)).finalize().into_bytes();
        let (block, _) = block.split_at_checked(part.len())?;
        part.copy_from_slice(block);
        a = keyed.clone().chain_update(a).finalize().into_bytes();
    }
    Some(())
}

/// The master secret.
pub(super) struct Master([u8; 48]);

impl Master {
    /// Computes the extended master secret of a shared key. The transcript ends with the
    /// ClientKeyExchange. The premaster secret is that of RFC 4279, section 2.
    pub(super) fn extended(key: &[u8], transcript: &Sha256) -> Option<Self> {
        let mut premaster = [0; 2 * (2 + MAX_KEY)];
        let length = u16::try_from(key.len()).ok()?.to_be_bytes();
        premaster.get_mut(..2)?.copy_from_slice(&length);
        premaster.get_mut(2 + key.len()..4 + key.len())?.copy_from_slice(&length);
        premaster.get_mut(4 + key.len()..4 + 2 * key.len())?.copy_from_slice(key);
        let premaster = premaster.get(..4 + 2 * key.len())?;
        let hash = transcript.clone().finalize();
        let mut master = [0; 48];
        prf(premaster, b"extended master secret", [&hash, &[]], &mut master)?;
        Some(Self(master))
    }

    /// Returns the protection of the client's and of the server's records.
    pub(super) fn directions(&self, server: &[u8; 32], client: &[u8; 32]) -> [Direction; 2] {
        let mut block = [0; 2 * (KEY + IMPLICIT_NONCE)];
        let _ = prf(&self.0, b"key expansion", [server, client], &mut block);
        let (keys, nonces) = block.split_at(2 * KEY);
        let (keys, nonces) = (keys.as_chunks::<KEY>().0, nonces.as_chunks::<IMPLICIT_NONCE>().0);
        [0, 1].map(|side| Direction {
            cipher: Ccm::new(&keys.get(side).copied().unwrap_or_default().into()),
            nonce: nonces.get(side).copied().unwrap_or_default(),
        })
    }

    /// Returns the contents of Finished after this transcript.
    pub(super) fn verify_data(&self, label: &[u8], transcript: &Sha256) -> [u8; VERIFY_DATA] {
        let hash = transcript.clone().finalize();
        let mut data = [0; VERIFY_DATA];
        let _ = prf(&self.0, label, [&hash, &[]], &mut data);
        data
    }
}

/// The protection of records in one direction.
pub(super) struct Direction {
    cipher: Ccm<Aes128, U8, U12>,
    nonce: [u8; IMPLICIT_NONCE],
}

impl Direction {
    fn nonce(&self, explicit: &[u8]) -> [u8; 12] {
        let mut nonce = [0; 12];
        let (implicit, rest) = nonce.split_at_mut(IMPLICIT_NONCE);
        implicit.copy_from_slice(&self.nonce);
        rest.copy_from_slice(explicit);
        nonce
    }

    /// Appends a protected record to a datagram.
    pub(super) fn seal(
        &self,
        content: u8,
        sequence: u64,
        data: &[u8],
        datagram: &mut Datagram<'_>,
    ) -> Result<(), DtlsError> {
        datagram.record_header(content, sequence, EXPLICIT_NONCE + data.len() + TAG)?;
        let explicit = sequence.to_be_bytes();
        datagram.put(&explicit)?;
        let aad = additional_data(content, sequence, data.len());
        let place = datagram.put(data)?;
        let tag = self
            .cipher
            .encrypt_inout_detached(&self.nonce(&explicit).into(), &aad, place.into())
            .map_err(|_| DtlsError::BufferTooSmall)?;
        datagram.put(&tag)?;
        Ok(())
    }

    /// Decrypts a record into `out`. Returns the length of its content.
    pub(super) fn open(&self, record: &Record<'_>, out: &mut [u8]) -> Result<usize, DtlsError> {
        let (explicit, rest) =
            record.fragment.split_at_checked(EXPLICIT_NONCE).ok_or(DtlsError::Malformed)?;
        let (data, tag) = rest.split_last_chunk::<TAG>().ok_or(DtlsError::Malformed)?;
        let out = out.get_mut(..data.len()).ok_or(DtlsError::BufferTooSmall)?;
        out.copy_from_slice(data);
        let aad = additional_data(record.content, record.sequence, data.len());
        self.cipher
            .decrypt_inout_detached(&self.nonce(explicit).into(), &aad, out.into(), &(*tag).into())
            .map_err(|_| DtlsError::WrongTag)?;
        Ok(data.len())
    }
}

/// Returns what the tag of a record covers in addition to the content: the header with the length of
/// the content (RFC 5246, section 6.2.3.3).
fn additional_data(content: u8, sequence: u64, length: usize) -> [u8; HEADER] {
    let [a, b, c, d, e, f, g, h] = sequence.to_be_bytes();
    let [.., high, low] = length.to_be_bytes();
    [a, b, c, d, e, f, g, h, content, VERSION[0], VERSION[1], high, low]
}
