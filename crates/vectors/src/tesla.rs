//! Runs the operations of the uTESLA vectors (spec/tesla.md) with the product's code.

use moteseal_broadcast::tesla::receiver::{Receiver, Settings};
use moteseal_broadcast::tesla::sender::Sender;
use moteseal_broadcast::tesla::wire::TeslaFrame;
use moteseal_broadcast::tesla::{MAX_PARAMETERS, Parameters, Schedule};
use moteseal_broadcast::{ChainId, ChainNumber};
use moteseal_core::DeviceId;
use moteseal_core::record::NetworkId;
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, hex_of, list, name, number};

/// The receiver that runs the vectors. It has more rows and places than any case needs, but a
/// message may be too long for it.
type Roomy = Receiver<16, 16, 32>;

fn id(input: &Value) -> ChainId {
    let (network, sender) = (NetworkId(fixed(input, "network")), DeviceId(fixed(input, "sender")));
    ChainId { network, sender, number: ChainNumber(number(input, "chain")) }
}

fn at(entry: &Value) -> (u64, Option<Vec<u8>>) {
    (entry[0].as_u64().unwrap(), entry[1].as_str().map(|text| hex::decode(text).unwrap()))
}

/// Decodes the parameters of a chain and returns their contents.
pub fn parameters(input: &Value) -> Verdict {
    let Parameters { schedule, committed, key } =
        Parameters::decode(&bytes(input, "bytes"), id(input)).map_err(name)?;
    let Schedule { start_ms, interval_ms, delay, last, .. } = schedule;
    Ok(json!({
        "start": start_ms, "interval": interval_ms, "delay": delay, "last": last, "committed": committed, "key": hex_of(key),
        "reference": hex_of(schedule.reference().0),
    }))
}

/// Returns the output of a sender at given times: the packet of a message or, for null, the frame
/// of the key that may be disclosed.
pub fn send(input: &Value) -> Verdict {
    let schedule = Schedule {
        id: id(input),
        start_ms: number(input, "start"),
        interval_ms: number(input, "interval"),
        delay: number(input, "delay"),
        last: number(input, "last"),
    };
    let mut sender = Sender::new(schedule, fixed(input, "secret")).map_err(name)?;
    let mut parameters = [0; MAX_PARAMETERS];
    let parameters = hex_of(sender.parameters().encode(&mut parameters).unwrap());
    let mut buffer = [0; 8192];
    let mut outputs = Vec::new();
    for entry in list(input, "says") {
        outputs.push(match at(entry) {
            (now, Some(message)) => {
                Some(hex_of(sender.packet(now, &message, &mut buffer).map_err(name)?))
            }
            (now, None) => sender.disclosure(now, &mut buffer).map_err(name)?.map(hex_of),
        });
    }
    Ok(json!({ "parameters": parameters, "said": outputs }))
}

/// Passes frames to a receiver at given times. Returns the verdict for each frame and the messages
/// that the frame proves.
pub fn receive_all(input: &Value) -> Verdict {
    let parameters = Parameters::decode(&bytes(input, "parameters"), id(input)).map_err(name)?;
    let settings = Settings {
        offset_ms: number(input, "offset"),
        steps: number(input, "steps"),
        budget: number(input, "budget"),
        seed: 0,
    };
    let mut receiver = Roomy::new(parameters, settings).map_err(name)?;
    let mut results = Vec::new();
    for entry in list(input, "heard") {
        let (now, frame) = at(entry);
        let frame = frame.unwrap();
        let verdict = match TeslaFrame::decode(&frame) {
            Ok(frame) => receiver.receive(now, &frame).map_or_else(name, |()| "taken".to_owned()),
            Err(error) => name(error),
        };
        let mut outputs = Vec::new();
        while let Some(message) = receiver.take() {
            outputs.push(json!([message.interval, hex_of(message.message)]));
        }
        results.push(json!([verdict, outputs]));
    }
    Ok(json!({ "heard": results, "committed": receiver.parameters().committed }))
}
