//! Tests of uTESLA under attack: forged packets that try to displace rows, keys that a sender with
//! a wrong clock has disclosed too early, and floods of forged keys.

use moteseal_research::tesla::receiver::{
    FrameError, KeyError, Losses, PacketError, Receiver, ReceiverError, Settings,
};
use moteseal_research::tesla::sender::{MAX_LEAP, Sender, SenderError};
use moteseal_research::tesla::wire::TeslaFrame;
use moteseal_research::tesla::{KEY, TAG};

use crate::tesla::whole_chain::{
    OFFSET, SECRET, START, Table, amid, receiver, schedule, settings, taken,
};

/// Returns the intervals of the delivered messages, and the losses. The sender sends a packet in
/// every interval. The attacker sends forged packets of the newest interval that the receiver
/// accepts, each as soon as the receiver accepts it.
fn delivered_under_forgery<const ROWS: usize>(
    delay: u8,
    ahead: u64,
) -> Result<(Vec<u32>, Losses), ReceiverError> {
    let schedule = schedule(100, delay, 50);
    let table = Table::new(schedule, SECRET);
    let mut receiver = Receiver::<ROWS, 2, 32>::new(table.parameters(), settings())?;
    let mut delivered = Vec::new();
    // `now` is the sender's clock, in steps of one millisecond.
    for now in START..START + 100 * (u64::from(schedule.last) + u64::from(delay) + 1) {
        let at = now + ahead;
        if (at + OFFSET - START).is_multiple_of(100)
            && let newest @ 1..=50 = (at + OFFSET - START) / 100
        {
            let interval = u32::try_from(newest).unwrap();
            let forged = TeslaFrame::Packet {
                chain: schedule.reference(),
                interval,
                message: b"forged",
                tag: [0; TAG],
            };
            assert_eq!(receiver.receive(at, &forged), Ok(()));
        }
        // The sender sends a packet early in the interval and discloses a key late in it.
        let (interval, within) = (u32::try_from((now - START) / 100).unwrap(), (now - START) % 100);
        if within == 10 && (1..=schedule.last).contains(&interval) {
            assert_eq!(receiver.receive(at, &table.packet(interval, b"genuine")), Ok(()));
        }
        if within == 90 && interval > u32::from(delay) {
            assert_eq!(receiver.receive(at, &table.key(interval - u32::from(delay))), Ok(()));
            for (of, message) in taken(&mut receiver) {
                assert_eq!(message, b"genuine");
                delivered.push(of);
            }
        }
    }
    Ok((delivered, receiver.losses()))
}

#[test]
fn forged_packets_of_newer_intervals_do_not_displace_the_due_row() {
    let all = (1..=50).collect::<Vec<_>>();
    let losses = Losses { forged: 50, ..Losses::default() };
    // The receiver's clock is either exact or ahead by the offset.
    for ahead in [0, OFFSET] {
        assert_eq!(delivered_under_forgery::<3>(1, ahead), Ok((all.clone(), losses)));
        assert_eq!(delivered_under_forgery::<4>(2, ahead), Ok((all.clone(), losses)));
        assert_eq!(delivered_under_forgery::<6>(4, ahead), Ok((all.clone(), losses)));
    }
    assert_eq!(delivered_under_forgery::<2>(1, 0), Err(ReceiverError::TooFewRows));
    assert_eq!(delivered_under_forgery::<3>(2, 0), Err(ReceiverError::TooFewRows));
    assert_eq!(delivered_under_forgery::<2>(2, 0), Err(ReceiverError::TooFewRows));
}

#[test]
fn rejects_settings_with_too_few_rows() {
    // (delay, offset, whether four rows suffice for intervals of 100 ms)
    for (delay, offset_ms, enough) in [
        (3, 0, true),
        (3, 1, false),
        (2, 100, true),
        (2, 101, false),
        (1, 200, true),
        (1, 201, false),
        (4, 0, false),
        (255, 0, false),
        (1, u64::MAX, false),
    ] {
        let parameters = Table::new(schedule(100, delay, 8), SECRET).parameters();
        let made = Receiver::<4, 1, 32>::new(parameters, Settings { offset_ms, ..settings() });
        let expected = if enough { Ok(()) } else { Err(ReceiverError::TooFewRows) };
        assert_eq!(made.map(|_| ()), expected, "delay {delay}, offset {offset_ms} ms");
    }
}

#[test]
fn keys_disclosed_by_a_leap_cannot_forge_later_messages() {
    let schedule = schedule(100, 2, 64);
    let table = Table::new(schedule, SECRET);
    let mut receiver = receiver::<4, 4>(table.parameters());
    receiver.receive(START + 350, &table.packet(3, b"three")).unwrap();
    // The sender's clock wrongly jumps to interval 42, so the sender discloses the key of interval
    // 40. Then the clock is corrected.
    assert_eq!(
        receiver.receive(START + 360, &table.key(40)),
        Err(FrameError::Key(KeyError::ClockTooFarOff))
    );
    assert_eq!(receiver.parameters().committed, 40);
    assert_eq!(receiver.losses(), Losses { given_up: 1, ..Losses::default() });
    // According to the clock each of these packets is safe, but anyone who has the disclosed key
    // can forge them.
    for interval in 3..=40 {
        let forged = table.packet(interval, b"forged with a key that follows from it");
        let result = receiver.receive(amid(&schedule, interval), &forged);
        assert_eq!(result, Err(FrameError::Packet(PacketError::NotSafe)), "interval {interval}");
    }
    assert_eq!(taken(&mut receiver), []);
    // Messages are verified again from the first interval whose key was not disclosed too early.
    receiver.receive(amid(&schedule, 41), &table.packet(41, b"safe again")).unwrap();
    receiver.receive(amid(&schedule, 43), &table.key(41)).unwrap();
    assert_eq!(taken(&mut receiver), [(41, b"safe again".to_vec())]);
}

#[test]
fn a_forged_key_of_an_interval_that_has_not_begun_changes_nothing() {
    let schedule = schedule(100, 2, 64);
    let table = Table::new(schedule, SECRET);
    let limited = Settings { steps: 20, ..settings() };
    let mut receiver = Receiver::<4, 4, 32>::new(table.parameters(), limited).unwrap();
    receiver.receive(START + 350, &table.packet(3, b"three")).unwrap();
    let before = receiver.clone();
    let forged = |interval| TeslaFrame::Key {
        chain: schedule.reference(),
        interval,
        key: table.keys[interval as usize + 1],
    };
    for (now, interval, error) in [
        (START + 360, 20, KeyError::ForgedKey),
        (START + 360, 21, KeyError::TooManySteps),
        // A genuine key that is too far ahead cannot be distinguished from a forged one.
        (START + 360, 63, KeyError::TooManySteps),
        // The key arrives before the start of the chain.
        (0, 5, KeyError::ForgedKey),
    ] {
        assert_eq!(
            receiver.receive(now, &forged(interval)),
            Err(FrameError::Key(error)),
            "interval {interval} at {now}"
        );
    }
    assert_eq!(
        receiver.receive(START + 360, &table.key(21)),
        Err(FrameError::Key(KeyError::TooManySteps))
    );
    assert_eq!((receiver.parameters(), receiver.losses()), (before.parameters(), before.losses()));
    receiver.receive(amid(&schedule, 5), &table.key(3)).unwrap();
    assert_eq!(taken(&mut receiver), [(3, b"three".to_vec())]);
    // A genuine key that arrives before the start of the chain is treated like any other early key.
    assert_eq!(
        before.clone().receive(0, &table.key(5)),
        Err(FrameError::Key(KeyError::ClockTooFarOff))
    );
}

#[test]
fn a_flood_of_forged_keys_costs_one_budget_per_interval_and_suppresses_no_due_key() {
    let schedule = schedule(100, 2, 64);
    let table = Table::new(schedule, SECRET);
    let metered = Settings { steps: 20, budget: 50, ..settings() };
    let mut receiver = Receiver::<6, 4, 32>::new(table.parameters(), metered).unwrap();
    let forged =
        |interval| TeslaFrame::Key { chain: schedule.reference(), interval, key: [0; KEY] };
    for interval in 1..=12 {
        let now = amid(&schedule, interval);
        receiver.receive(now, &table.packet(interval, b"genuine")).unwrap();
        // The budget suffices for two keys at the maximum distance and one key at ten steps.
        // Further keys are rejected until the next interval.
        let known = receiver.parameters().committed;
        for (steps, error) in [
            (20, KeyError::ForgedKey),
            (20, KeyError::ForgedKey),
            (11, KeyError::BudgetSpent),
            (10, KeyError::ForgedKey),
            (4, KeyError::BudgetSpent),
            (20, KeyError::BudgetSpent),
            (3, KeyError::ForgedKey),
        ] {
            assert_eq!(
                receiver.receive(now, &forged(known + steps)),
                Err(FrameError::Key(error)),
                "{steps} steps in {interval}"
            );
        }
        assert_eq!(
            receiver.receive(now, &table.key(known + 4)),
            Err(FrameError::Key(KeyError::BudgetSpent))
        );
        // Two of three disclosures are lost, and the third arrives after the flood.
        if interval > 2 && (interval - 2) % 3 == 0 {
            receiver.receive(now, &table.key(interval - 2)).unwrap();
            let proven: Vec<_> =
                (interval - 4..=interval - 2).map(|of| (of, b"genuine".to_vec())).collect();
            assert_eq!(taken(&mut receiver), proven);
        }
    }
}

#[test]
fn a_sender_skips_many_intervals_only_on_request() {
    let schedule = schedule(100, 2, 5000);
    let (table, mut sender) =
        (Table::new(schedule, SECRET), Sender::new(schedule, SECRET).unwrap());
    let mut buffer = [0; 64];
    let far = amid(&schedule, MAX_LEAP + 8);
    sender.packet(amid(&schedule, 7), b"", &mut buffer).unwrap();
    assert_eq!(sender.packet(far, b"", &mut buffer), Err(SenderError::LeapTooLong));
    assert_eq!(sender.disclosure(far, &mut buffer), Err(SenderError::LeapTooLong));
    assert_eq!(sender.parameters_at(far), Err(SenderError::LeapTooLong));
    // The rejected call changed nothing, so the sender continues when its clock is corrected.
    let packet = sender.packet(amid(&schedule, 8), b"on", &mut buffer).unwrap();
    assert_eq!(TeslaFrame::decode(packet).unwrap(), table.packet(8, b"on"));
    // A skip of MAX_LEAP intervals is allowed.
    let packet = sender.packet(far, b"on", &mut buffer).unwrap();
    assert_eq!(TeslaFrame::decode(packet).unwrap(), table.packet(MAX_LEAP + 8, b"on"));
    let further = amid(&schedule, 4000);
    assert_eq!(sender.packet(further, b"", &mut buffer), Err(SenderError::LeapTooLong));
    assert_eq!(sender.leap_to(amid(&schedule, 8)), Err(SenderError::ClockWentBack));
    sender.leap_to(further).unwrap();
    let packet = sender.packet(further, b"on", &mut buffer).unwrap();
    assert_eq!(TeslaFrame::decode(packet).unwrap(), table.packet(4000, b"on"));
    // The last interval of the chain is within MAX_LEAP of the current one, so the sender may skip
    // to it, even if it ended long ago.
    let disclosed = sender.disclosure(u64::MAX, &mut buffer).unwrap().unwrap();
    assert_eq!(TeslaFrame::decode(disclosed).unwrap(), table.key(5000));
}

#[test]
fn debug_output_of_settings_hides_the_seed() {
    let printed = format!("{:?}", Settings { seed: 987_654_321, ..settings() });
    assert!(printed.contains("offset_ms") && printed.contains("steps"), "{printed}");
    assert!(!printed.contains("987654321") && !printed.contains("987_654_321"), "{printed}");
}
