//! Chains of one message, for live commands: the head and the message are sent in one frame
//! (spec/broadcast.md, section 4).

use crate::chain::{BuildError, ChainDraft, DraftError, MAX_HEAD, OutgoingChain};
use crate::head::{Head, HeadError};
use crate::incoming::{Incoming, LeafError, Taken};
use crate::wire::BroadcastFrame;
use crate::{ChainId, ChainNumber, KeyId, Kind, MAX_MESSAGE, Outline, Window};
use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::identity::IssueError;
use moteseal_core::named_errors;
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{KeyPair, PublicKey};

/// Maximum length of the frame of a chain of one message, in bytes.
pub const MAX_SINGLE: usize = MAX_HEAD + MAX_MESSAGE + 16;

named_errors! {
    /// Why signing a chain of one message failed.
    SealError {
        /// The draft is invalid.
        Draft(error: DraftError) => forward,
        /// Signing failed, or a buffer is too small.
        Issue(error: IssueError) => from,
    }
}

/// The content of a chain of one message, before it is signed.
#[derive(Clone, Copy, Debug)]
pub struct SingleDraft<'a> {
    /// The chain's id. Its number must be higher than the number of every earlier chain that the
    /// same key signed.
    pub id: ChainId,
    /// The kind of the message.
    pub kind: Kind,
    /// The chain's label; may be empty. The label of a command is its topic.
    pub label: &'a str,
    /// When the message may be delivered.
    pub window: Window,
    /// The number of the last chain that the same key signed before this one; `None` if it is
    /// unknown or there is none.
    pub previous: Option<ChainNumber>,
    /// The message, at most [`MAX_MESSAGE`] bytes.
    pub message: &'a [u8],
}

impl SingleDraft<'_> {
    /// Signs the chain and writes its frame to `out`.
    ///
    /// [`MAX_SINGLE`] bytes suffice for each of `scratch` and `out`. For a short message, smaller
    /// buffers suffice: `scratch` needs [`MAX_HEAD`] bytes or the length of the message, whichever
    /// is more. `out` needs the length of the message plus [`MAX_HEAD`] plus 16 bytes.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal<'o>(
        &self,
        signer: &dyn KeyPair,
        scratch: &mut [u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], SealError> {
        let draft = ChainDraft {
            id: self.id,
            key: KeyId::of(&signer.public_key()),
            messages: 1,
            per_block: 1,
            kind: self.kind,
            label: self.label,
            window: self.window,
            previous: self.previous,
            is_addressed: false,
        };
        let mut digests = [Digest::NULL];
        let copy = |_, buffer: &mut [u8]| -> Result<usize, core::convert::Infallible> {
            if let Some(place) = buffer.get_mut(..self.message.len()) {
                place.copy_from_slice(self.message);
            }
            Ok(self.message.len())
        };
        let chain =
            OutgoingChain::build(draft, &mut digests, &mut [], scratch, copy).map_err(|error| {
                match error {
                    BuildError::Draft(error) => SealError::Draft(error),
                    BuildError::Read(never) => match never {},
                }
            })?;
        let mut head = [0; MAX_HEAD];
        let head = chain.head(signer, scratch, &mut head)?;
        let mut out = Writer::new(out);
        let frame = BroadcastFrame::Single { head, leaf: self.message };
        frame.encode(&mut out).map_err(IssueError::from)?;
        Ok(out.finish())
    }
}

named_errors! {
    /// Why the frame of a chain of one message was rejected.
    SingleError {
        /// The bytes are not a frame.
        Decode(error: DecodeError) => from,
        /// The frame is of another kind, or its head belongs to a chain with several messages.
        NotSingle => "the frame is not a chain of one message",
        /// The head was rejected.
        Head(error: HeadError) => forward,
        /// The message was rejected.
        Leaf(error: LeafError) => forward,
    }
}

/// A verified chain of one message. Only [`open_single`] creates this type, after it has checked
/// the signature.
#[derive(Clone, Copy, Debug)]
pub struct OpenedSingle<'a> {
    head: Head<'a>,
    message: &'a [u8],
}

impl<'a> OpenedSingle<'a> {
    /// Returns the chain's id.
    #[must_use]
    pub const fn id(&self) -> ChainId {
        self.head.id()
    }

    /// Returns the id of the sender's key that signed the chain.
    #[must_use]
    pub const fn key(&self) -> KeyId {
        self.head.key()
    }

    /// Returns the chain's parameters. If the chain is addressed, the message is its
    /// [address](crate::address) with the encrypted content.
    #[must_use]
    pub const fn outline(&self) -> &Outline {
        self.head.outline()
    }

    /// Returns the chain's label, which may be empty. It contains no control characters.
    #[must_use]
    pub const fn label(&self) -> &'a str {
        self.head.label()
    }

    /// Returns when the message may be delivered.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.head.window()
    }

    /// Returns the message.
    #[must_use]
    pub const fn message(&self) -> &'a [u8] {
        self.message
    }

    /// Returns the digest of the chain's only block.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.head.first()
    }
}

/// Reads the frame of a chain of one message and checks that `sender` signed it with `key` for this
/// network. `scratch` needs [`MAX_HEAD`] bytes. The caller must check that the chain's number is
/// higher than the numbers of the sender's earlier chains, and the [window](OpenedSingle::window).
///
/// # Errors
/// [`SingleError`].
pub fn open_single<'a>(
    frame: &'a [u8],
    network: NetworkId,
    sender: DeviceId,
    key: &PublicKey,
    scratch: &mut [u8],
) -> Result<OpenedSingle<'a>, SingleError> {
    let BroadcastFrame::Single { head, leaf } = BroadcastFrame::decode(frame)? else {
        return Err(SingleError::NotSingle);
    };
    if Head::peek(head).map_err(HeadError::from).map_err(SingleError::Head)?.messages() != 1 {
        return Err(SingleError::NotSingle);
    }
    let head = Head::open(head, network, sender, key, scratch).map_err(SingleError::Head)?;
    let mut chain = Incoming::<1>::new(&head).map_err(|_| SingleError::NotSingle)?;
    match chain.take(1, 0, leaf).map_err(SingleError::Leaf)? {
        Taken::Verified { message, .. } => Ok(OpenedSingle { head, message }),
        Taken::Pending { .. } | Taken::Repeated => Err(SingleError::NotSingle),
    }
}
