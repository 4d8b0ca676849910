//! The end of a hub whose device does not record the lines of an agent.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use moteseal_hub::agents::Agents;
use moteseal_hub::line::{Line, Lines, MAX_WAITING};
use tokio::sync::{mpsc, oneshot};

use crate::agents::{Hub, agent, limits};

/// A receiver that keeps lines without recording them, as while a disk is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_stops_although_a_device_records_no_line() {
    let hub = Hub::new();
    hub.install(&agent("counter", 1, &["count", "first"], limits())).unwrap();
    let agents = Agents::open(&hub.state(), hub.store.clone(), hub.settings.clone(), None);
    let agents = Arc::new(agents.unwrap());
    let kept = Arc::new(Mutex::new(Vec::new()));
    let receivers = {
        let kept = Arc::clone(&kept);
        move |_: &str| -> Vec<Lines> {
            let (lines, mut received) = mpsc::channel::<Line>(MAX_WAITING);
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                while let Some(line) = received.recv().await {
                    kept.lock().unwrap().push(line);
                }
            });
            vec![lines]
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let runs = Arc::clone(&agents);
    let task = tokio::spawn(async move {
        runs.run(&receivers, async { drop(stopped.await) }).await;
    });
    let start = Instant::now();
    while kept.lock().unwrap().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "no lines");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(stop);
    tokio::time::timeout(Duration::from_secs(15), task).await.expect("it does not stop").unwrap();
    let status = agents.statuses().remove(0);
    assert!(status.lines_refused > 0, "lost lines are counted: {status:?}");
}
