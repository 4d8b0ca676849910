//! The configurations of docs/recipes, as they are: messages with the fields that each system documents
//! pass through a real broker, the hub, a gateway and a cloud, and become verified rows with units,
//! nulls and times.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::hub_home::Home;
use crate::scene::repository;

const RECIPES: [&str; 5] = ["zigbee2mqtt", "tasmota", "shelly", "home-assistant", "commands"];

/// The messages of the sensors: topic and payload.
const MESSAGES: [(&str, &str); 24] = [
    // https://www.zigbee2mqtt.io/devices/WSDCGQ11LM.html, TS011F_plug_1.html and MCCGQ11LM.html
    (
        "zigbee2mqtt/kitchen",
        r#"{"battery":97,"humidity":45.51,"last_seen":"2026-03-01T07:00:00.123Z","linkquality":120,"power_outage_count":3,"pressure":1013.2,"temperature":21.30,"voltage":3005}"#,
    ),
    (
        "zigbee2mqtt/kitchen",
        r#"{"battery":null,"humidity":null,"last_seen":1772348400000,"linkquality":87,"temperature":-0.05}"#,
    ),
    (
        "zigbee2mqtt/washer",
        r#"{"child_lock":"UNLOCK","current":2.04,"energy":12.34,"indicator_mode":"off/on","linkquality":91,"power":466,"power_outage_memory":"restore","state":"ON","voltage":229}"#,
    ),
    (
        "zigbee2mqtt/door",
        r#"{"battery":100,"contact":false,"device_temperature":25,"linkquality":130,"voltage":3025}"#,
    ),
    // https://tasmota.github.io/docs/BME280/ and /docs/Power-Monitoring-Calibration/
    (
        "tele/balcony/SENSOR",
        r#"{"Time":"2026-03-01T08:00:00","BME280":{"Temperature":-2.4,"Humidity":61.3,"DewPoint":-8.9,"Pressure":998.7},"PressureUnit":"hPa","TempUnit":"C"}"#,
    ),
    (
        "tele/balcony/SENSOR",
        r#"{"Time":"2026-03-01T08:05:00","BME280":{"Temperature":27.7,"Humidity":61.3,"DewPoint":16.0,"Pressure":998.7},"PressureUnit":"hPa","TempUnit":"F"}"#,
    ),
    (
        "tele/heater/SENSOR",
        r#"{"Time":"2026-03-01T08:00:00","ENERGY":{"TotalStartTime":"2025-11-14T16:56:00","Total":11.062,"Yesterday":0.512,"Today":0.120,"Period":4,"Power":1203,"ApparentPower":1210,"ReactivePower":130,"Factor":0.99,"Voltage":231,"Current":5.208}}"#,
    ),
    ("stat/heater/POWER", "OFF"),
    // https://shelly-api-docs.shelly.cloud/gen1/#shelly-h-amp-t-mqtt and #shelly-plug-plugs-mqtt
    ("shellies/shellyht-B6D7F4/sensor/temperature", "21.25"),
    ("shellies/shellyht-B6D7F4/sensor/humidity", "44.5"),
    ("shellies/shellyht-B6D7F4/sensor/battery", "79"),
    ("shellies/shellyplug-s-4A11BC/relay/0", "overpower"),
    ("shellies/shellyplug-s-4A11BC/relay/0/power", "23.41"),
    ("shellies/shellyplug-s-4A11BC/relay/0/energy", "1234"),
    // https://shelly-api-docs.shelly.cloud/gen2/ComponentsAndServices/Switch#status
    (
        "shellyplusplugs-fcb467a6b1c4/status/switch:0",
        r#"{"id":0, "source":"MQTT", "output":true, "apower":8.9, "voltage":237.5, "current":0.105, "aenergy":{"total":6.532,"by_minute":[45.199,47.141,88.397],"minute_ts":1772348400},"temperature":{"tC":33.3, "tF":91.9}}"#,
    ),
    // https://shelly-api-docs.shelly.cloud/gen2/General/Notifications
    (
        "shellyplusht-08b61fcb6e80/events/rpc",
        r#"{"src":"shellyplusht-08b61fcb6e80","dst":"shellyplusht-08b61fcb6e80/events","method":"NotifyFullStatus","params":{"ts":1772348400.12,"ble":{},"devicepower:0":{"id":0,"battery":{"V":5.31,"percent":74},"external":{"present":false}},"humidity:0":{"id":0,"rh":58.4},"temperature:0":{"id":0,"tC":17.3,"tF":63.2}}}"#,
    ),
    (
        "shellyplusht-08b61fcb6e80/events/rpc",
        r#"{"src":"shellyplusht-08b61fcb6e80","dst":"shellyplusht-08b61fcb6e80/events","method":"NotifyEvent","params":{"ts":1772348401.5,"events":[{"component":"sys","event":"sleep","ts":1772348401.5}]}}"#,
    ),
    // https://www.home-assistant.io/integrations/mqtt_statestream/
    ("homeassistant/sensor/bedroom_temperature/state", "19.799999237060547"),
    ("homeassistant/sensor/bedroom_temperature/state", "unavailable"),
    ("homeassistant/binary_sensor/window_contact/state", "on"),
    ("homeassistant/binary_sensor/window_contact/last_changed", "2026-03-01T07:00:00.123456+00:00"),
    ("homeassistant/binary_sensor/window_contact/last_updated", "2026-03-01T07:00:00.123456+00:00"),
    ("homeassistant/sensor/window_battery/state", "88"),
    // https://www.home-assistant.io/integrations/sensor.mqtt/, the example with two values in one topic
    ("home/office/state", r#"{ "temperature": 23.2, "humidity": 43.7 }"#),
];

/// The rows that the devices must have, in any order.
fn rows() -> Vec<(&'static str, Value)> {
    let minute = "2026-03-01T07:00:00Z";
    vec![
        (
            "kitchen",
            json!({"temperature": 21.3, "humidity": 45.51, "pressure": 1013.2, "battery": 97, "linkquality": 120, "last_seen": "2026-03-01T07:00:00.123Z"}),
        ),
        (
            "kitchen",
            json!({"temperature": -0.05, "humidity": null, "pressure": null, "battery": null, "linkquality": 87, "last_seen": minute}),
        ),
        (
            "washer",
            json!({"state": "on", "power": 466, "voltage": 229, "current": 2.04, "energy": 12.34}),
        ),
        ("door", json!({"contact": false, "battery": 100})),
        (
            "balcony",
            json!({"time": minute, "temperature": -2.4, "humidity": 61.3, "pressure": 998.7}),
        ),
        (
            "heater",
            json!({"energy": 11.062, "power": 1203, "voltage": 231, "current": 5.208, "relay": null}),
        ),
        (
            "heater",
            json!({"energy": null, "power": null, "voltage": null, "current": null, "relay": "off"}),
        ),
        ("bath", json!({"temperature": 21.25, "humidity": null, "battery": null})),
        ("bath", json!({"temperature": null, "humidity": 44.5, "battery": null})),
        ("bath", json!({"temperature": null, "humidity": null, "battery": 79})),
        ("lamp", json!({"relay": "overpower", "power": null, "energy": null})),
        ("lamp", json!({"relay": null, "power": 23.41, "energy": null})),
        ("lamp", json!({"relay": null, "power": null, "energy": 74_040})),
        (
            "pump",
            json!({"output": true, "power": 8.9, "voltage": 237.5, "current": 0.105, "energy": 6.532, "minute": minute, "temperature": 33.3}),
        ),
        (
            "cellar",
            json!({"time": "2026-03-01T07:00:00.12Z", "temperature": 17.3, "humidity": 58.4, "battery": 74}),
        ),
        ("bedroom", json!({"temperature": 19.8})),
        ("bedroom", json!({"temperature": null})),
        ("window", json!({"open": "on", "last_changed": null, "battery": null})),
        (
            "window",
            json!({"open": null, "last_changed": "2026-03-01T07:00:00.123Z", "battery": null}),
        ),
        ("window", json!({"open": null, "last_changed": null, "battery": 88})),
        ("office", json!({"temperature": 23.2, "humidity": 43.7})),
        ("meter", json!({"power": -1500, "energy": 123.45})),
        ("boiler", json!({"temperature": 54.187})),
    ]
}

/// Serves the registers of a meter over Modbus TCP. Returns the port.
fn modbus() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 12];
            while stream.read_exact(&mut request).is_ok() {
                // The header: transaction, protocol, length, unit. Then function, first register, count.
                assert_eq!(request[2..], [0, 0, 0, 6, 1, 3, 0, 0, 0, 4]);
                let mut response = vec![request[0], request[1], 0, 0, 0, 11, 1, 3, 8];
                response.extend((-1500_i32).to_be_bytes());
                response.extend(12_345_u32.to_be_bytes());
                stream.write_all(&response).unwrap();
            }
        }
    });
    port
}

#[test]
fn documented_messages_of_each_system_become_verified_rows_with_units_nulls_and_times() {
    let rows = rows();
    let mut devices: Vec<String> = rows.iter().map(|(device, _)| (*device).to_owned()).collect();
    devices.dedup();
    let home = Home::new(&devices, "3s");
    std::fs::copy(repository("docs/recipes/modbus.py"), home.path("modbus.py")).unwrap();
    home.write("w1", "54187\n");
    let port = modbus().to_string();
    let mut hubs = Vec::new();
    for recipe in RECIPES {
        let text = std::fs::read_to_string(repository(&format!("docs/recipes/{recipe}.toml")));
        let changed = text
            .unwrap()
            .replace("coaps://gateway.example", home.gateway_url())
            .replace(
                "url = \"mqtt://127.0.0.1:1883\"",
                &format!("url = \"{}\"\nclient = \"{recipe}\"", home.broker_url()),
            )
            .replace(
                "state    = \"hub\"",
                &format!("state = \"{recipe}\"\nlisten = \"127.0.0.1:0\""),
            )
            .replace("\"192.0.2.7\", \"502\"", &format!("\"127.0.0.1\", \"{port}\""))
            .replace("/sys/bus/w1/devices/28-0316a2790fff/temperature", "w1");
        let file = format!("{recipe}.toml");
        home.write(&file, &changed);
        let check = home.told(&["hub", "run", &file, "--check"]);
        assert!(check.contains("the configuration is valid"), "{check}");
        hubs.push(home.hub_with(&file));
    }
    for (topic, payload) in MESSAGES {
        home.publish(topic, payload);
    }
    for device in &devices {
        let expected: Vec<&Value> =
            rows.iter().filter(|(of, _)| of == device).map(|(_, row)| row).collect();
        let found = home.wait_for_rows(device, expected.len());
        for row in &expected {
            let is_same = |found: &&serde_json::Map<String, Value>| {
                row.as_object().unwrap().iter().all(|(name, value)| {
                    found.get(name).is_some_and(|found| match (found.as_f64(), value.as_f64()) {
                        (Some(found), Some(value)) => found == value,
                        _ => found == value,
                    })
                })
            };
            // The programs may have run more than once.
            let count = found.iter().filter(is_same).count();
            let is_right = count == 1 || count > 1 && matches!(&**device, "meter" | "boiler");
            assert!(is_right, "{device}: {count} times {row} in {found:?}");
        }
        if device != "meter" && device != "boiler" {
            assert_eq!(found.len(), expected.len(), "{device}: {found:?}");
        }
    }
}
