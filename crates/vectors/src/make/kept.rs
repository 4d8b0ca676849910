//! Vectors of sampling at a coordinator: which of the offered events it keeps, and its rounds
//! (spec/coordinator.md, section 3).

use serde_json::{Value, json};

use super::{File, Files};

pub fn make(files: &mut Files) {
    files.add(offers());
}

fn offer(level: u8) -> Value {
    json!(["offer", level])
}

fn settle(round: u8) -> Value {
    json!(["settle", round])
}

fn withdraw(level: u8, events: u64) -> Value {
    json!(["withdraw", level, events])
}

/// Generates levels with the distribution of events' levels: `i` has the probability `2^-(i+1)`. A
/// level is the number of leading zero bits of a linear congruential generator's state.
fn levels(seed: u32, count: usize, of: u8) -> Vec<Value> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u8::try_from(state.leading_zeros()).unwrap().min(of - 1)
    };
    (0..count).map(|_| offer(next())).collect()
}

fn offers() -> File {
    let mut file = File::new(
        "budget/offers.json",
        "What a coordinator keeps of what it is offered: coordinator.md, section 1.",
    );
    let all = |levels: &[u8]| -> Vec<Value> { levels.iter().copied().map(offer).collect() };
    for (name, of, budget, steps) in [
        ("nothing", 4, 2, vec![]),
        ("as many as the budget", 4, 3, all(&[0, 0, 0])),
        ("one more: the first level goes, the new event with it", 4, 3, all(&[0, 0, 0, 0])),
        ("one more: the first level goes, the new event stays", 4, 3, all(&[0, 0, 0, 1])),
        ("a level below the round", 4, 1, all(&[0, 1, 0])),
        ("an empty level is passed over", 4, 2, all(&[3, 3, 2])),
        ("several levels at once", 6, 3, all(&[5, 5, 2, 4, 5])),
        ("not even the coarsest level fits", 3, 2, all(&[2, 2, 2, 2])),
        ("a budget of one", 4, 1, all(&[0, 0, 1, 2, 2, 3, 3])),
        ("no budget at all", 3, 0, all(&[0, 2, 1])),
        ("one level", 1, 2, all(&[0, 0, 0, 0])),
        ("levels that the group does not have", 4, 2, all(&[4, 31, 255, 3])),
        ("32 levels", 32, 3, all(&[31, 30, 0, 31, 31, 31])),
        (
            "taken back, and room again",
            4,
            3,
            [all(&[0, 1, 2]), vec![withdraw(0, 1)], all(&[0, 0])].concat(),
        ),
        (
            "taken back more than is kept",
            4,
            3,
            [all(&[0, 1, 1]), vec![withdraw(1, 5)], all(&[3, 3])].concat(),
        ),
        (
            "taken back of levels where nothing is",
            4,
            3,
            [all(&[1]), vec![withdraw(0, 1), withdraw(4, 1), withdraw(9, 1)]].concat(),
        ),
        (
            "what is taken back lowers no round",
            4,
            1,
            [all(&[0, 1]), vec![withdraw(1, 1)], all(&[0, 1])].concat(),
        ),
        (
            "settled at a higher round",
            4,
            9,
            [all(&[0, 1, 2, 3]), vec![settle(2)], all(&[1, 2])].concat(),
        ),
        ("settled at a lower round", 4, 1, [all(&[0, 1]), vec![settle(0)], all(&[0])].concat()),
        (
            "settled at as many levels as there are",
            4,
            9,
            [all(&[0, 3]), vec![settle(4)], all(&[3])].concat(),
        ),
        ("settled beyond them", 4, 9, [all(&[0, 3]), vec![settle(31)], all(&[3])].concat()),
    ] {
        file.valid(
            name,
            "coordinator.offers",
            json!({ "levels": of, "budget": budget, "steps": steps }),
        );
    }
    for (of, budget, count) in [(8, 10, 90), (16, 5, 90), (3, 12, 60), (8, 60, 150)] {
        let steps = levels(u32::from(of) + budget, count, of);
        let name = format!("{count} events by chance, {of} levels, a budget of {budget}");
        file.valid(
            name,
            "coordinator.offers",
            json!({ "levels": of, "budget": budget, "steps": steps }),
        );
    }
    file
}
