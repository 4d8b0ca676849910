//! Measures table II of Papadopoulos et al. (2011) on this machine: the costs of the primitives in
//! the paper's equations.
//!
//! Each operation uses the result of the previous one, so that operations cannot overlap.

use std::hint::black_box;

use moteseal_lab::sums::Primitives;
use moteseal_research::cmt::Ciphertext;
use moteseal_research::prf::{hm1, hm256};
use moteseal_research::secoa::{Seal, Sketch};
use moteseal_research::sies_paper::field;

use crate::measure::{median, thread_time};

/// Number of repetitions over which the median is taken.
const REPETITIONS: usize = 15;

/// Measures all primitives; `work` scales the measuring time.
pub(super) fn measure(work: u32) -> Primitives {
    let seal = Seal::of(&[7; 20], 3);
    let (a, b) = (field::residue(&[0xa5; 32]), field::residue(&[0x5a; 32]));
    let ciphertext = Ciphertext::from_bytes(&[0xc3; 20]);
    Primitives {
        sketch: micros(work * 10_000, |times| {
            drop(black_box(Sketch::of(1, 3, 5, black_box(u64::from(times)))));
        }),
        rsa: micros(work * 100, |times| {
            black_box(black_box(seal).roll(times));
        }),
        hm1: micros(work * 100, |times| {
            let mut key = [1; 20];
            (0..times).for_each(|_| key = hm1(black_box(&key), &[9; 8]));
            black_box(key);
        }),
        hm256: micros(work * 100, |times| {
            let mut key = [1; 20];
            for _ in 0..times {
                let digest = hm256(black_box(&key), &[9; 8]);
                key.copy_from_slice(&digest[..20]);
            }
            black_box(key);
        }),
        add20: micros(work * 10_000, |times| {
            let mut sum = ciphertext;
            (0..times).for_each(|_| sum = black_box(sum).merge(ciphertext));
            black_box(sum);
        }),
        add32: micros(work * 10_000, |times| {
            let mut sum = a;
            (0..times).for_each(|_| sum = field::add(&black_box(sum), &b));
            black_box(sum);
        }),
        multiply32: micros(work * 10_000, |times| {
            let mut product = a;
            (0..times).for_each(|_| product = field::multiply(&black_box(product), &b));
            black_box(product);
        }),
        multiply128: micros(work * 100, |times| {
            let mut product = seal;
            (0..times).for_each(|_| product = black_box(product).fold(seal));
            black_box(product);
        }),
        invert32: micros(work * 10, |times| {
            let mut number = a;
            (0..times).for_each(|_| {
                number = field::add(&field::invert(&black_box(number)).unwrap_or(b), &b);
            });
            black_box(number);
        }),
    }
}

/// Returns the time of one operation in microseconds. `run` performs this many operations.
fn micros(times: u32, run: impl Fn(u32)) -> f64 {
    run(times);
    let once = || {
        let start = thread_time();
        run(times);
        (thread_time() - start).as_secs_f64() * 1e6 / f64::from(times)
    };
    median((0..REPETITIONS).map(|_| once()).collect())
}
