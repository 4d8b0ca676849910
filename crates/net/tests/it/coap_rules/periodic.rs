//! Observers of representations whose new versions follow at intervals (RFC 7641, section 4.5).

use moteseal_net::coap::endpoint::{CONFIRMED, PERIODIC_OBSERVERS};

use super::*;

fn periodic(body: impl Into<Bytes>) -> Response {
    Response { is_periodic: true, ..observable(body) }
}

impl Bench {
    fn register_periodic(&mut self, from: Peer, message: &Message) -> Vec<Message> {
        self.receive(from, message);
        let (id, _) = self.requested();
        self.respond(id, periodic("first"))
    }

    fn notify_periodic(&mut self, path: &str) -> Vec<Message> {
        self.endpoint.notify(self.now, path, &mut |_| Some(periodic("next")));
        self.sent()
    }

    /// Notifies, and acknowledges. Returns the kind of the notification.
    fn kind(&mut self, of: Peer) -> Kind {
        let sent = self.notify_periodic("/h");
        let kind = sent[0].kind;
        if kind == Kind::Confirmable {
            self.receive(of, &ack(&sent[0]));
        }
        kind
    }
}

#[test]
fn the_first_and_every_20th_notification_is_confirmable() {
    let mut bench = Bench::new();
    bench.register_periodic(peer(1), &observe("h", 1, 0));
    let kinds: Vec<bool> = (0..60).map(|_| bench.kind(peer(1)) == Kind::Confirmable).collect();
    let confirmed: Vec<usize> = (0..60).filter(|at| kinds[*at]).collect();
    let every = usize::from(CONFIRMED);
    assert_eq!(confirmed, [0, every, 2 * every]);
}

#[test]
fn a_notification_is_confirmable_at_least_once_in_24_hours() {
    let mut bench = Bench::new();
    bench.register_periodic(peer(1), &observe("h", 1, 0));
    assert_eq!(bench.kind(peer(1)), Kind::Confirmable);
    let hours: Vec<bool> = (0..13)
        .map(|_| {
            bench.pass(2.0 * 3600.0);
            bench.kind(peer(1)) == Kind::Confirmable
        })
        .collect();
    assert_eq!(hours.iter().position(|is_confirmable| *is_confirmable), Some(11), "{hours:?}");
}

#[test]
fn a_reset_of_a_notification_that_is_not_confirmable_ends_the_observation() {
    let mut bench = Bench::new();
    bench.register_periodic(peer(1), &observe("h", 1, 0));
    bench.kind(peer(1));
    let sent = bench.notify_periodic("/h");
    assert_eq!(sent[0].kind, Kind::NonConfirmable);
    bench.receive(peer(1), &Message::new(Kind::Reset, Code::EMPTY, sent[0].id.wrapping_add(1)));
    assert_eq!(bench.endpoint.observers(), 1, "it names another message");
    bench.receive(peer(1), &Message::new(Kind::Reset, Code::EMPTY, sent[0].id));
    assert_eq!((bench.endpoint.observers(), bench.notify_periodic("/h")), (0, vec![]));
}

#[test]
fn a_ninth_observer_is_refused_and_an_observer_may_register_again() {
    let mut bench = Bench::new();
    let most = u8::try_from(PERIODIC_OBSERVERS).unwrap();
    for of in 1..=most {
        let sent = bench.register_periodic(peer(of), &observe("h", 1, 0));
        assert_eq!(sent[0].code, Code::CONTENT);
    }
    let sent = bench.register_periodic(peer(most + 1), &observe("h", 1, 0));
    assert_eq!(sent[0].code, Code::TOO_MANY_REQUESTS);
    assert_eq!(sent[0].options.uint(Number::MAX_AGE), Some(60));
    // The limit is one of each path, and reading is not limited.
    assert_eq!(bench.register_periodic(peer(most + 1), &observe("i", 2, 0))[0].code, Code::CONTENT);
    assert_eq!(bench.register_periodic(peer(most + 1), &get("h", 3))[0].code, Code::CONTENT);
    let sent = bench.register_periodic(peer(1), &observe("h", 2, 0));
    assert!(sent[0].options.uint(Number::OBSERVE).is_some());
}

#[test]
fn observers_with_forged_addresses_do_not_keep_others_out() {
    let mut bench = Bench::new();
    for number in 1..=u32::try_from(PERIODIC_OBSERVERS).unwrap() {
        let forged = Peer::plain(SocketAddr::from((number.to_be_bytes(), 5683)));
        let mut message = observe("h", 1, 0);
        message.options.add(Number::URI_QUERY, "a longer request");
        bench.register_periodic(forged, &message);
    }
    assert_eq!(bench.endpoint.observers(), PERIODIC_OBSERVERS);
    let sent = bench.register_periodic(peer(1), &observe("h", 1, 0));
    assert!(sent[0].options.uint(Number::OBSERVE).is_some());
    assert_eq!(bench.endpoint.observers(), PERIODIC_OBSERVERS);
}

#[test]
fn clients_of_one_network_without_dtls_leave_two_places_to_others() {
    let mut bench = Bench::new();
    let plain = |host: u8, port: u16| Peer::plain(SocketAddr::from(([203, 0, 113, host], port)));
    let observes = |bench: &mut Bench, from: Peer| {
        let mut message = observe("h", 1, 0);
        message.options.add(Number::URI_QUERY, "a longer request");
        let sent = bench.register_periodic(from, &message);
        // The answer to the server's ping validates the address.
        let is_ping = |of: &&Message| of.kind == Kind::Confirmable && of.code == Code::EMPTY;
        for ping in sent.iter().filter(is_ping) {
            bench.receive(from, &Message::new(Kind::Reset, Code::EMPTY, ping.id));
        }
        bench.endpoint.observers()
    };
    for port in 1..=6 {
        assert_eq!(observes(&mut bench, plain(1, port)), usize::from(port));
    }
    assert_eq!(observes(&mut bench, plain(1, 7)), 6);
    assert_eq!([2, 3].map(|host| observes(&mut bench, plain(host, 1))), [7, 8]);
}
