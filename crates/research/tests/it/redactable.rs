//! Malleable signatures: against slow models, for all redactions of small messages, and against
//! attacks.

mod accumulated;
mod bps12;
mod hashed;
mod ps14;
mod sd_jwt;

use chacha20::ChaCha12Rng;
use moteseal_research::redactable::accumulator::Trapdoor;
use rand_core::SeedableRng as _;

/// Returns a generator with a fixed seed.
fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

/// Returns a short modulus with its factors.
fn trapdoor() -> Trapdoor {
    Trapdoor::generate(&mut rng(1), 160).unwrap()
}

/// Returns all orders of some items.
fn orders<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in items.iter().enumerate() {
        let mut rest = items.to_vec();
        rest.remove(at);
        for order in orders(&rest) {
            all.push([vec![first.clone()], order].concat());
        }
    }
    all
}

/// Returns all subsets of some items.
fn subsets<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    (0..1_u32 << items.len())
        .map(|set| {
            let members = items.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            members.map(|(_, item)| item.clone()).collect()
        })
        .collect()
}
