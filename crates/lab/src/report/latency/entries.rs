//! The entries of the lab's page for the kept results of the study of latency.

use super::super::page::{Entry, Shown, missing};
use super::super::text::LATENCY;
use super::{averages, bars, batches, ms, stages, table1, wired_latencies, wireless_latencies};
use crate::latency::wired::{Configuration, Message, Rate};
use crate::latency::wireless::{Medium, Protection};
use crate::latency::{Study, paper};

/// The command that measures. The page shows the results that it has kept.
const COMMAND: &str = "moteseal-lab latency --out DIRECTORY";

const TABLE_1: (&str, &str) = ("cloud-table-1", "Table I: time per message of 24 bytes over MQTT");
const FIGURE_4: (&str, &str) = ("cloud-figure-4", "Figure 4: latency over MQTT, by medium");
const FIGURE_5: (&str, &str) =
    ("cloud-figure-5", "Figure 5, and tables III and IV with configuration 4: latency of uploads");
const FIGURE_6: (&str, &str) =
    ("cloud-figure-6", "Figure 6: processing latency of configuration 4, 24 bytes");

/// Returns the paper's numbers of table I.
fn theirs(medium: Medium) -> String {
    let [plain, once, twice] = [Protection::Plain, Protection::Once, Protection::Twice]
        .map(|protection| paper::per_message(medium, protection).unwrap_or_default());
    format!("no encryption {plain} ms, AES-CBC once {once} ms, twice {twice} ms")
}

fn papers() -> [String; 4] {
    let [low_short, low_long, short, long] = paper::TOTAL[3];
    [
        format!(
            "medians: router {}; hotspot {}",
            theirs(Medium::Loopback),
            theirs(Medium::Hotspot)
        ),
        "a hotspot takes 0.05 to 0.07 ms longer than a router".to_owned(),
        format!(
            "configuration 4 on average, 24 and 1,024 bytes: {low_short} and {low_long} ms at the low rate, {short} \
             and {long} ms at the maximum rate"
        ),
        format!("varies between nearly zero and {} s, as a sawtooth", paper::SAWTOOTH / 1e3),
    ]
}

/// Returns the entries without results. `absent` states what is missing.
#[must_use]
pub fn absent(absent: &str) -> Vec<Entry> {
    [TABLE_1, FIGURE_4, FIGURE_5, FIGURE_6]
        .into_iter()
        .zip(papers())
        .map(|((id, title), paper)| missing(id, title, &paper, absent))
        .collect()
}

/// Returns the entries. The files that they show must be in their folder.
pub(super) fn entries(study: &Study) -> Vec<Entry> {
    let median = |medium: Medium, qos: u8| {
        let of = study.wireless.iter().filter(|of| (of.medium, of.qos) == (medium, qos));
        let of = of.map(|of| format!("{} {} ms", of.protection, ms(of.median())));
        of.collect::<Vec<_>>().join(", ")
    };
    let spread = |medium: Medium| {
        let plain = study
            .wireless
            .iter()
            .find(|of| (of.medium, of.qos, of.protection) == (medium, 1, Protection::Plain));
        plain.map_or_else(String::new, |of| {
            let latency = &of.latency;
            format!("median {} ms, 99 % {} ms", ms(latency.p50), ms(latency.p99))
        })
    };
    let four = |message, rate| {
        study.wired_run(Configuration::Four, message, rate).map_or_else(String::new, |run| {
            format!("mean {} ms, 99 % {} ms", ms(run.total.mean), ms(run.total.p99))
        })
    };
    let processing = |rate| {
        let run = study.wired_run(Configuration::Four, Message::Short, rate);
        run.map_or_else(String::new, |run| {
            let longest = run.batches.map_or(0, |batches| batches.max);
            format!(
                "{rate}: 99 % {} ms, at most {longest} messages a batch",
                ms(run.processing.p99)
            )
        })
    };
    let [table1_paper, figure4_paper, figure5_paper, figure6_paper] = papers();
    let new = |(id, title): (&str, &str)| Entry::new(id, title, COMMAND);
    vec![
        new(TABLE_1)
            .paper(table1_paper)
            .ours(format!(
                "QoS 0: loopback: {}; hotspot: {}",
                median(Medium::Loopback, 0),
                median(Medium::Hotspot, 0)
            ))
            .why(LATENCY.get("table 1 why"))
            .replacement("no ESP8266, router and telephone: the loopback interface, and a link shaped in user space")
            .show(Shown::Table(table1(study)))
            .show(Shown::Text(LATENCY.get("media")))
            .data("table1.csv"),
        new(FIGURE_4)
            .paper(figure4_paper)
            .ours(format!(
                "QoS 1, no encryption: loopback {}; hotspot {}",
                spread(Medium::Loopback),
                spread(Medium::Hotspot)
            ))
            .why(LATENCY.get("figure 4 why"))
            .show(Shown::Figure("fig4.png".to_owned()))
            .show(Shown::Figure("histogram_wireless.png".to_owned()))
            .show(Shown::Table(wireless_latencies(study)))
            .data("wireless.csv")
            .data("histograms.csv"),
        new(FIGURE_5)
            .paper(figure5_paper)
            .ours(format!(
                "configuration 4, 24 and 1,024 bytes: {} and {} at the low rate, {} and {} at the maximum rate",
                four(Message::Short, Rate::Low),
                four(Message::Long, Rate::Low),
                four(Message::Short, Rate::Maximum),
                four(Message::Long, Rate::Maximum)
            ))
            .why(LATENCY.get("figure 5 why"))
            .replacement("a NATS JetStream, a worker and a Cassandra on this machine, in the place of Kinesis, Lambda and DynamoDB")
            .show(Shown::Table(averages(study, &paper::TOTAL, |run| run.total)))
            .show(Shown::Table(averages(study, &paper::PROCESSING, |run| run.processing)))
            .show(Shown::Figure("fig5.png".to_owned()))
            .show(Shown::Figure("histogram_wired.png".to_owned()))
            .show(Shown::Table(wired_latencies(study)))
            .show(Shown::Table(bars(study)))
            .data("wired.csv")
            .data("timeline.csv"),
        new(FIGURE_6)
            .paper(figure6_paper)
            .ours([Rate::Low, Rate::Maximum, Rate::Parallel].map(processing).join("; "))
            .why(LATENCY.get("figure 6 why"))
            .show(Shown::Figure("fig6.png".to_owned()))
            .show(Shown::Figure("fig6_detail.png".to_owned()))
            .show(Shown::Table(batches(study)))
            .show(Shown::Table(stages(study)))
            .show(Shown::Text(LATENCY.get("teeth")))
            .data("timeline.csv"),
    ]
}
