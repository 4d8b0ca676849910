//! DTLS sessions between the client and the server of this crate, over datagrams in memory, and
//! with OpenSSL over UDP.

mod certificates;
mod faults;
mod handshakes;
mod hostile;
mod openssl;
mod world;
