//! The rates at which devices seal bundles and a cloud stores them durably, with encrypted and with
//! plaintext readings.

use moteseal_core::record::Scheme;
use moteseal_device::seal::Bundle;

use crate::load::{Failed, Fleet, Service, requests, upload};
use crate::measure::{Report, Spread, median, thread_time};

/// The number of devices. Each uploads over a connection of its own.
const DEVICES: u8 = 4;
/// The seals of each device in a repetition, the readings of a seal, and the bundles of a request.
const SEALS: u64 = 32;
const READINGS: u32 = 4_800;
const BUNDLES: usize = 16;
const RUNS: usize = 9;

/// Measures both fleets in turn. Every upload is verified by the cloud, which is a process of its own, and
/// is on disk when the cloud acknowledges it.
pub(super) fn measure(report: &mut Report) -> Result<(), Failed> {
    // Use the disk of the target directory: syncs on a temporary file system take no time.
    let program = std::env::current_exe()?;
    let folder = program.parent().ok_or("this program is in no folder")?;
    let mut fleets = [
        Fleet::new(DEVICES.into(), Scheme::Star)?,
        Fleet::encrypting(DEVICES.into(), Scheme::Star)?,
    ];
    let folders = [tempfile::tempdir_in(folder)?, tempfile::tempdir_in(folder)?];
    let mut services = Vec::new();
    for (fleet, folder) in fleets.iter().zip(&folders) {
        fleet.write(folder.path())?;
        services.push(Service::start(folder.path(), true)?);
    }
    let readings = f64::from(DEVICES) * SEALS as f64 * f64::from(READINGS);
    let (mut sealing, mut storing) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for run in 0..=RUNS {
        for (at, (fleet, service)) in fleets.iter_mut().zip(&services).enumerate() {
            let start = thread_time();
            let bundles = fleet.seal(SEALS, READINGS)?;
            let sealed = (thread_time() - start).as_secs_f64();
            let single = |bundles: &Vec<Bundle>| requests(bundles, BUNDLES);
            let stored = upload(&service.address, &bundles.iter().map(single).collect::<Vec<_>>())?;
            // The first repetition only warms caches and grows files.
            if run > 0 {
                sealing[at].push(sealed);
                storing[at].push(stored.as_secs_f64());
            }
        }
    }
    let title = format!("{DEVICES} devices, {READINGS} readings a seal");
    for (name, times) in [
        ("sealing by the crate moteseal-device", &sealing),
        ("storing in a cloud, synced and verified", &storing),
    ] {
        let ratios = times[1].iter().zip(&times[0]).map(|(hidden, plain)| hidden / plain);
        let name = format!("{title}: {name}, encrypted / plaintext");
        report.add_spread(name, Spread::of(ratios.collect()), "x", None);
    }
    let millions = |seconds: &Vec<f64>| readings / median(seconds.clone()) / 1e6;
    for (at, kind) in ["plaintext", "encrypted"].into_iter().enumerate() {
        let name = format!("{title}: readings sealed by the crate moteseal-device, {kind}");
        report.add(name, millions(&sealing[at]), "M/s", None);
        let name = format!("{title}: readings stored in a cloud, {kind}");
        report.add(name, millions(&storing[at]), "M/s", None);
    }
    Ok(())
}
