//! The data of the report on latency, as CSV.

use serde::Serialize;

use super::super::{Out, ReportError};
use super::KEPT;
use crate::latency::Study;
use crate::latency::wired::Run;

#[derive(Serialize)]
struct WirelessRow {
    medium: &'static str,
    qos: u8,
    protection: &'static str,
    payload_bytes: usize,
    trial: usize,
    per_message_ms: f64,
}

#[derive(Serialize)]
struct WirelessLatencyRow {
    medium: &'static str,
    qos: u8,
    protection: &'static str,
    strings: u64,
    mean_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

#[derive(Serialize)]
struct WiredRow {
    configuration: u8,
    message_bytes: u32,
    rate: &'static str,
    messages: u64,
    per_second: f64,
    upload_bytes: f64,
    sealing_ms: f64,
    first_ms: f64,
    mean_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    transmission_mean_ms: f64,
    transmission_p50_ms: f64,
    transmission_p90_ms: f64,
    transmission_p99_ms: f64,
    transmission_max_ms: f64,
    processing_mean_ms: f64,
    processing_p50_ms: f64,
    processing_p90_ms: f64,
    processing_p99_ms: f64,
    processing_max_ms: f64,
}

impl WiredRow {
    fn of(run: &Run) -> Self {
        Self {
            configuration: run.configuration.number(),
            message_bytes: run.message.bytes(),
            rate: run.rate.name(),
            messages: run.total.count,
            per_second: run.per_second,
            upload_bytes: run.upload_bytes,
            sealing_ms: run.sealing_ms,
            first_ms: run.first,
            mean_ms: run.total.mean,
            p50_ms: run.total.p50,
            p90_ms: run.total.p90,
            p99_ms: run.total.p99,
            max_ms: run.total.max,
            transmission_mean_ms: run.transmission.mean,
            transmission_p50_ms: run.transmission.p50,
            transmission_p90_ms: run.transmission.p90,
            transmission_p99_ms: run.transmission.p99,
            transmission_max_ms: run.transmission.max,
            processing_mean_ms: run.processing.mean,
            processing_p50_ms: run.processing.p50,
            processing_p90_ms: run.processing.p90,
            processing_p99_ms: run.processing.p99,
            processing_max_ms: run.processing.max,
        }
    }
}

/// The number of times from this time on, up to the next row of the same run.
#[derive(Serialize)]
struct BinRow {
    what: String,
    from_ms: f64,
    count: u64,
}

#[derive(Serialize)]
struct PointRow {
    configuration: u8,
    message_bytes: u32,
    rate: &'static str,
    /// Which latency is the longest of the interval: `total` or `processing`.
    longest: &'static str,
    at_s: f64,
    total_ms: f64,
    processing_ms: f64,
}

pub(super) fn write(study: &Study, out: &Out<'_>) -> Result<(), ReportError> {
    // All values are finite numbers, and all keys are texts, so they can be encoded.
    out.text(KEPT, &serde_json::to_string(study).unwrap_or_default())?;
    let mut bins = Vec::new();
    if !study.wireless.is_empty() {
        let trials = study.wireless.iter().flat_map(|of| {
            of.per_message.iter().enumerate().map(|(trial, time)| WirelessRow {
                medium: of.medium.name(),
                qos: of.qos,
                protection: of.protection.name(),
                payload_bytes: of.payload,
                trial: trial + 1,
                per_message_ms: *time,
            })
        });
        out.rows("table1.csv", &trials.collect::<Vec<_>>())?;
        let latencies = study.wireless.iter().map(|of| WirelessLatencyRow {
            medium: of.medium.name(),
            qos: of.qos,
            protection: of.protection.name(),
            strings: of.latency.count,
            mean_ms: of.latency.mean,
            p50_ms: of.latency.p50,
            p90_ms: of.latency.p90,
            p99_ms: of.latency.p99,
            max_ms: of.latency.max,
        });
        out.rows("wireless.csv", &latencies.collect::<Vec<_>>())?;
        bins.extend(study.wireless.iter().flat_map(|of| {
            let what = format!("{}, QoS {}, {}", of.medium.name(), of.qos, of.protection);
            of.histogram.bins().map(move |(from_ms, count)| BinRow {
                what: what.clone(),
                from_ms,
                count,
            })
        }));
    }
    if !study.wired.is_empty() {
        out.rows("wired.csv", &study.wired.iter().map(WiredRow::of).collect::<Vec<_>>())?;
        for run in &study.wired {
            let name = format!("{}, {}, {}", run.configuration.number(), run.message, run.rate);
            for (what, histogram) in
                [("total", &run.histogram), ("processing", &run.processing_histogram)]
            {
                bins.extend(histogram.bins().map(|(from_ms, count)| BinRow {
                    what: format!("{name}, {what}"),
                    from_ms,
                    count,
                }));
            }
        }
        let points = study.wired.iter().flat_map(|run| {
            let of_total = run.timeline.iter().map(|point| ("total", point));
            let of_processing = run.processing_timeline.iter().map(|point| ("processing", point));
            of_total.chain(of_processing).map(|(longest, point)| PointRow {
                configuration: run.configuration.number(),
                message_bytes: run.message.bytes(),
                rate: run.rate.name(),
                longest,
                at_s: point.at_s,
                total_ms: point.total,
                processing_ms: point.processing,
            })
        });
        out.rows("timeline.csv", &points.collect::<Vec<_>>())?;
    }
    out.rows("histograms.csv", &bins)
}
