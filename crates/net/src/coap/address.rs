//! The addresses of CoAP servers (RFC 7252, section 6): `coap://host[:5683]` and
//! `coaps://host[:5684]`, with a path and arguments for resources.

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;

use super::exchange::Request;
use super::message::Code;
use crate::link::LinkError;

/// The address of a server or of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    url: String,
    /// The name or the address of the server's host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether the server uses DTLS.
    pub is_secure: bool,
    path: String,
    query: Vec<String>,
}

impl Address {
    /// The maximum number of addresses of a host that are used.
    pub const MOST_ADDRESSES: usize = 8;

    /// Parses an address. Does not contact the server.
    ///
    /// # Errors
    /// `BadAddress`.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let bad = |cause: &str| LinkError::BadAddress {
            url: text.to_owned(),
            cause: cause.to_owned(),
            example: "coaps://gateway.example:5684",
        };
        let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        let is_secure = match url.scheme() {
            "coap" => false,
            "coaps" => true,
            _ => return Err(bad("its scheme is neither coap nor coaps")),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| bad("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(bad("it must contain neither a user nor a fragment"));
        }
        let port = url.port().unwrap_or(if is_secure { 5684 } else { 5683 });
        let decoded = |part: &str| decode(part).ok_or_else(|| bad("its path is not text"));
        let path = decoded(url.path())?;
        let query = url.query().unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let query = query.map(decoded).collect::<Result<_, _>>()?;
        Ok(Self { url: text.to_owned(), host, port, is_secure, path, query })
    }

    /// Returns the address as it was given.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the name of the host, or `None` if the host is an IP address. A client's requests carry
    /// the name (RFC 7252, section 6.4, step 5).
    #[must_use]
    pub fn server_name(&self) -> Option<String> {
        let name = decode(&self.host)?.to_lowercase();
        let is_name = name.parse::<IpAddr>().is_err() && name.len() <= 255;
        is_name.then_some(name)
    }

    /// Returns the path of the resource, without percent-encoding.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether the address names a server and no resource.
    #[must_use]
    pub fn is_server(&self) -> bool {
        matches!(&*self.path, "" | "/") && self.query.is_empty()
    }

    /// Returns a GET request for the resource.
    #[must_use]
    pub fn request(&self) -> Request {
        Request { query: self.query.clone(), ..Request::new(Code::GET, self.path.clone()) }
    }

    /// Resolves the host, and returns its addresses: at least one, and no more than
    /// [`MOST_ADDRESSES`](Self::MOST_ADDRESSES).
    ///
    /// # Errors
    /// `Unreachable` if the host has no address.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, LinkError> {
        let unreachable = |cause: String| LinkError::Unreachable { url: self.url.clone(), cause };
        let found = tokio::net::lookup_host((&*self.host, self.port)).await;
        let found = found.map_err(|error| unreachable(error.to_string()))?;
        let mut addresses = Vec::new();
        for address in found {
            if !addresses.contains(&address) && addresses.len() < Self::MOST_ADDRESSES {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(unreachable("the name has no address".to_owned()));
        }
        Ok(addresses)
    }
}

/// Decodes the percent-encoding of a part of an address.
fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            bytes.push(u8::try_from(high << 4 | low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_has_a_default_port_and_its_path_and_arguments_are_decoded() {
        let address = Address::parse("coap://[::1]/sensors/chip%20temp?sig=cose&x=%C3%A4").unwrap();
        assert_eq!((&*address.host, address.port, address.is_secure), ("::1", 5683, false));
        let request = address.request();
        assert_eq!((&*request.path, request.argument("sig")), ("/sensors/chip temp", Some("cose")));
        assert_eq!(request.argument("x"), Some("ä"));
        let server = Address::parse("coaps://gateway.example").unwrap();
        assert_eq!((server.port, server.is_server()), (5684, true));
    }

    #[test]
    fn requests_carry_the_name_of_the_host_and_no_ip_address() {
        for (url, name) in [
            ("coap://Gateway.Example:5683", Some("gateway.example")),
            ("coaps://x%2Dy.example/a", Some("x-y.example")),
            ("coap://192.0.2.1/a", None),
            ("coap://[2001:db8::1]/a", None),
        ] {
            assert_eq!(Address::parse(url).unwrap().server_name().as_deref(), name, "{url}");
        }
    }

    #[test]
    fn another_address_is_refused() {
        for url in [
            "",
            "gateway",
            "mqtt://host",
            "coap://",
            "coap://u@host",
            "coap://host/%ff",
            "coap://h/#f",
        ] {
            assert_eq!(Address::parse(url).unwrap_err().name(), "BadAddress", "{url}");
        }
    }
}
