//! DTLS sessions between the client and the server of this crate, over datagrams in memory, and
//! with OpenSSL and libcoap over UDP.

pub(crate) mod certificates;
mod faults;
mod handshakes;
pub(crate) mod hostile;
mod libcoap;
mod openssl;
pub(crate) mod world;
