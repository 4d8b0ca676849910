//! The client's side of a request: its body and the body of its response go in blocks (RFC 7959), and
//! an observation receives later versions of the representation (RFC 7641).

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::exchange::{Request, RequestError, Response};
use super::message::{Block, Code, Kind, Message, Number, Token};

/// How often a transfer starts again because the server lost its blocks, or because the
/// representation changed.
const MAX_RESTARTS: u8 = 4;
/// A notification that is older than the newest one is fresh again after this time (RFC 7641, section
/// 3.4).
const REORDERING: Duration = Duration::from_secs(128);
/// How long an observer waits after the end of a representation's freshness before it registers again.
const GRACE: Duration = Duration::from_secs(10);

/// A request and the state of its transfer.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) number: u64,
    request: Request,
    /// The token of the newest message of the transfer.
    pub(super) token: Token,
    /// Identifies the body to the server, so that a transfer can continue after a new handshake.
    tag: [u8; 8],
    /// The exponent of the blocks of the request's body.
    exponent: u8,
    /// The number of bytes of the body that the server has acknowledged.
    sent: usize,
    response: Option<Assembly>,
    restarts: u8,
    /// How long the same block is sent again and again without a response.
    patience: Duration,
    /// When the last block was acknowledged.
    progress: Instant,
    pub(super) observation: Option<Observation>,
    /// When the transfer is given up because the peer acknowledged the request but did not respond.
    pub(super) deadline: Instant,
}

/// A response whose blocks arrive.
#[derive(Debug)]
struct Assembly {
    head: Response,
    body: BytesMut,
    exponent: u8,
    notification: bool,
}

/// A registration at the server.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) token: Token,
    /// The number of the newest notification and when it arrived.
    newest: Option<(u32, Instant)>,
    /// When to register again.
    pub(super) again: Option<Instant>,
}

/// What to do after a response has arrived.
#[derive(Debug)]
pub(super) enum Progress {
    /// Ignore the response: it is old or belongs to another block.
    Ignored,
    /// Send the next message of the transfer, under a new token.
    Next,
    /// The observation has a new version.
    Notified(Response),
    /// The request has ended.
    Done(Result<Response, RequestError>),
}

impl Transfer {
    pub(super) fn new(
        number: u64,
        request: Request,
        exponent: u8,
        tag: [u8; 8],
        (patience, now): (Duration, Instant),
    ) -> Self {
        let token = Token::default();
        let observation =
            request.observes.then_some(Observation { token, newest: None, again: None });
        Self {
            number,
            request,
            token,
            tag,
            exponent,
            sent: 0,
            response: None,
            restarts: 0,
            patience,
            progress: now,
            observation,
            deadline: now,
        }
    }

    /// Returns whether the transfer may send its last message again, because it is patient.
    pub(super) fn may_repeat(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.progress) < self.patience
    }

    /// Returns the next message of the transfer, without its id. Its token is `token`.
    pub(super) fn message(&mut self, token: Token) -> Message {
        self.token = token;
        let mut message = Message::new(Kind::Confirmable, self.request.code, 0);
        self.request.write(&mut message.options);
        // The tag relates the blocks of a body, and those of the response to a request that is not
        // safe, of which several may be in progress.
        let is_in_blocks = self.request.body.len() > 16 << self.exponent;
        if is_in_blocks || (self.request.code != Code::GET && self.request.no_response == 0) {
            message.options.add(Number::REQUEST_TAG, Bytes::copy_from_slice(&self.tag));
        }
        if let Some(assembly) = &self.response {
            message.token = token;
            message.options.remove(Number::CONTENT_FORMAT);
            let number = block_number(assembly.body.len(), assembly.exponent);
            let block = Block { number, more: false, exponent: assembly.exponent };
            message.options.add_block(Number::BLOCK2, block);
            return message;
        }
        if let Some(observation) = &mut self.observation {
            // A registration is renewed under the same token.
            if observation.token == Token::default() {
                observation.token = token;
            }
            self.token = observation.token;
            message.options.add_uint(Number::OBSERVE, 0);
        }
        message.token = self.token;
        let (body, size) = (&self.request.body, 16 << self.exponent);
        if is_in_blocks {
            let end = body.len().min(self.sent + size);
            let (number, more) = (block_number(self.sent, self.exponent), end < body.len());
            let block = Block { number, more, exponent: self.exponent };
            message.options.add_block(Number::BLOCK1, block);
            if self.sent == 0 {
                message
                    .options
                    .add_uint(Number::SIZE1, u32::try_from(body.len()).unwrap_or(u32::MAX));
            }
            message.payload = body.slice(self.sent..end);
        } else {
            message.payload = body.clone();
        }
        message
    }

    /// Returns whether an empty acknowledgement of the last message ends the transfer, because the
    /// server does not send a response that reports success (RFC 7967). The code of the response is
    /// then assumed to be 2.04.
    pub(super) fn ends_with_acknowledgement(&self) -> bool {
        const SUCCESS: u8 = 2;
        let size = 16 << self.exponent;
        let is_last = self.request.body.len().saturating_sub(self.sent) <= size;
        self.request.no_response & SUCCESS != 0 && is_last && self.observation.is_none()
    }

    /// Returns the message that ends an observation.
    pub(super) fn cancellation(&self) -> Option<Message> {
        let observation = self.observation.as_ref()?;
        let mut message = Message::new(Kind::Confirmable, Code::GET, 0);
        self.request.write(&mut message.options);
        message.options.add_uint(Number::OBSERVE, 1);
        message.token = observation.token;
        Some(message)
    }

    /// Starts the request again under its registration's token, after its representation has become
    /// stale.
    pub(super) fn renew(&mut self) {
        self.response = None;
        if let Some(observation) = &mut self.observation {
            observation.again = None;
            observation.newest = None;
        }
    }

    /// Registers again after a while, because the message could not be sent.
    pub(super) fn renew_later(&mut self, now: Instant) {
        if let Some(observation) = &mut self.observation {
            observation.again = Some(now + GRACE);
        }
    }

    /// Returns whether the server has registered this observer.
    pub(super) fn is_registered(&self) -> bool {
        self.observation.as_ref().is_some_and(|observation| observation.again.is_some())
    }

    /// Returns whether a response with this token belongs to the transfer.
    pub(super) fn has_token(&self, token: Token) -> bool {
        self.token == token
            || self.observation.as_ref().is_some_and(|observation| observation.token == token)
    }

    /// Processes a response.
    pub(super) fn receive(&mut self, now: Instant, message: &Message, limit: usize) -> Progress {
        self.progress = now;
        let is_notification =
            self.observation.as_ref().is_some_and(|observation| observation.token == message.token);
        let (Ok(block1), Ok(block2)) =
            (message.options.block(Number::BLOCK1), message.options.block(Number::BLOCK2))
        else {
            return Progress::Done(Err(RequestError::BadBlocks));
        };
        let is_in_blocks = self.request.body.len() > 16 << self.exponent;
        if self.response.is_none() && is_in_blocks {
            match self.uploaded(message.code, block1) {
                Some(progress) => return progress,
                None => self.sent = self.request.body.len(),
            }
        }
        if is_notification && !self.is_fresh(now, message) {
            return Progress::Ignored;
        }
        self.downloaded(message, block2, is_notification, limit)
    }

    /// Processes the response to a block of the request's body. Returns `None` for the final response.
    fn uploaded(&mut self, code: Code, block: Option<Block>) -> Option<Progress> {
        let current = block_number(self.sent, self.exponent);
        match (code, block) {
            (Code::CONTINUE, Some(block)) => {
                if block.number != current || block.exponent > self.exponent {
                    return Some(Progress::Ignored);
                }
                let sent = self.sent + (16 << self.exponent);
                if sent >= self.request.body.len() {
                    return Some(Progress::Done(Err(RequestError::BadBlocks)));
                }
                self.sent = sent;
                self.exponent = block.exponent;
                Some(Progress::Next)
            }
            (Code::CONTINUE, None) => Some(Progress::Done(Err(RequestError::BadBlocks))),
            (Code::REQUEST_ENTITY_TOO_LARGE, Some(block)) if block.exponent < self.exponent => {
                self.exponent = block.exponent;
                Some(self.restart())
            }
            // The server lost the blocks, or a block is missing there.
            (Code::REQUEST_ENTITY_INCOMPLETE, _) if self.sent > 0 => Some(self.restart()),
            _ => None,
        }
    }

    fn restart(&mut self) -> Progress {
        if self.restarts == MAX_RESTARTS {
            return Progress::Done(Err(RequestError::BadBlocks));
        }
        self.restarts += 1;
        self.sent = 0;
        self.response = None;
        Progress::Next
    }

    /// Returns whether a notification is newer than the newest one (RFC 7641, section 3.4).
    fn is_fresh(&mut self, now: Instant, message: &Message) -> bool {
        let (Some(observation), Some(number)) =
            (&mut self.observation, message.options.uint(Number::OBSERVE))
        else {
            return true;
        };
        const HALF: u32 = 1 << 23;
        if let Some((newest, at)) = observation.newest {
            let is_later = (newest < number && number - newest < HALF)
                || (newest > number && newest - number > HALF)
                || now > at + REORDERING;
            if !is_later {
                return false;
            }
        }
        observation.newest = Some((number, now));
        let max_age = message.options.uint(Number::MAX_AGE).unwrap_or(60);
        observation.again = now.checked_add(Duration::from_secs(max_age.into()) + GRACE);
        true
    }

    fn downloaded(
        &mut self,
        message: &Message,
        block: Option<Block>,
        is_notification: bool,
        limit: usize,
    ) -> Progress {
        let head = Response::of(message);
        let is_whole = block.is_none_or(|block| block.number == 0 && !block.more);
        if is_whole && (is_notification || self.response.is_none()) {
            self.response = None;
            if message.payload.len() > limit {
                return Progress::Done(Err(RequestError::ResponseTooLong));
            }
            return self.complete(Response { body: message.payload.clone(), ..head });
        }
        let Some(block) = block else {
            // The response to a request for a block is an error, or the whole representation.
            self.response = None;
            return self.complete(Response { body: message.payload.clone(), ..head });
        };
        if block.number == 0 && (is_notification || self.response.is_none()) {
            self.response = Some(Assembly {
                notification: is_notification,
                body: BytesMut::new(),
                exponent: block.exponent,
                head: head.clone(),
            });
        }
        let Some(assembly) = &mut self.response else { return Progress::Ignored };
        if block.offset() != assembly.body.len() || block.exponent > assembly.exponent {
            return Progress::Ignored;
        }
        if head.etag != assembly.head.etag || head.code != assembly.head.code {
            // The representation changed during the transfer. A new notification or the first block
            // of the new version starts the transfer again.
            self.response = None;
            return self.restart();
        }
        if message.payload.len() > block.size()
            || (block.more && message.payload.len() != block.size())
        {
            return Progress::Done(Err(RequestError::BadBlocks));
        }
        if assembly.body.len() + message.payload.len() > limit {
            return Progress::Done(Err(RequestError::ResponseTooLong));
        }
        assembly.exponent = block.exponent;
        assembly.body.extend_from_slice(&message.payload);
        if block.more {
            return Progress::Next;
        }
        let Some(assembly) = self.response.take() else { return Progress::Ignored };
        let accepts_observer = assembly.notification && assembly.head.accepts_observer;
        self.complete(Response { body: assembly.body.freeze(), accepts_observer, ..assembly.head })
    }

    /// Ends the request, or returns a new version of an observed representation.
    fn complete(&mut self, response: Response) -> Progress {
        // A response without the option Observe, and an error, end the observation.
        if self.observation.is_some() && response.accepts_observer && response.code.is_success() {
            return Progress::Notified(response);
        }
        self.observation = None;
        Progress::Done(Ok(response))
    }
}

/// Returns the number of the block that starts at a position.
fn block_number(offset: usize, exponent: u8) -> u32 {
    u32::try_from(offset >> (exponent + 4)).unwrap_or(u32::MAX)
}
