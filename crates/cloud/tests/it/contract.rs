//! The OpenAPI document, the router and the operator's documentation page agree.

use std::collections::BTreeSet;

use crate::testbed::{Running, group};
use moteseal_api::paths;
use moteseal_cloud::{Config, OPENAPI};
use serde_json::Value;

#[tokio::test]
async fn every_route_is_documented_and_every_documented_route_exists() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let documented: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone()))
        })
        .collect();
    let listed: BTreeSet<_> = paths::ALL
        .iter()
        .map(|(path, method)| ((*path).to_owned(), (*method).to_owned()))
        .collect();
    assert_eq!(documented, listed);

    let (roster, motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    let cloud = Running::start(directory.path(), Config::new(roster)).await;
    for (path, method) in paths::ALL {
        let filled = path.replace("{device}", &motes[0].id.to_string()).replace("{index}", "0");
        let method: reqwest::Method = method.to_uppercase().parse().unwrap();
        let response = cloud.http.request(method.clone(), cloud.at(&filled)).send().await.unwrap();
        // The query is invalid and the store has no bundles, so many responses are errors. The
        // document must list the status of each response, and the route must exist.
        let status = response.status().as_u16();
        let documented = &document["paths"][path][method.as_str().to_lowercase()]["responses"];
        assert!(
            documented.get(status.to_string()).is_some(),
            "{method} {path}: {status} is not documented"
        );
        if status == 404 {
            let problem = crate::testbed::problem(response).await;
            assert!(problem.detail.contains("has no seal"), "{method} {path}: {}", problem.detail);
        }
        let other = cloud.http.delete(cloud.at(&filled)).send().await.unwrap();
        let allowed = paths::ALL
            .iter()
            .filter(|(other, _)| *other == path)
            .map(|(_, method)| method.to_uppercase());
        assert_eq!(other.headers()["allow"], allowed.collect::<Vec<_>>().join(", ").as_str());
        assert_eq!(crate::testbed::problem(other).await.name(), "MethodNotAllowed");
    }
    let served: Value = cloud.get(paths::OPENAPI).await.json().await.unwrap();
    assert_eq!(served, document);
    assert_eq!(crate::testbed::problem(cloud.get("/v2/devices").await).await.name(), "NotFound");
    cloud.stop().await;
}

#[test]
fn every_reference_in_the_document_resolves() {
    fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match value.as_str() {
                        Some(target) if key == "$ref" => found.push(target),
                        _ => references(value, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for target in found {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{target}");
    }
}

/// Returns the first two cells of each row of the table that begins with `head` in the operator's
/// documentation page.
fn cells(page: &str, head: &str) -> Vec<(String, String)> {
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with(head))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cell = |text: &str| text.trim().trim_matches('`').to_owned();
    rows.map(|row| (cell(row.split('|').nth(1).unwrap()), cell(row.split('|').nth(2).unwrap())))
        .collect()
}

const PAGE: &str = include_str!("../../../../docs/cloud.md");

#[tokio::test]
async fn the_operators_page_lists_exactly_the_metrics() {
    let (roster, mut motes) = group(&["a"]);
    let directory = tempfile::tempdir().unwrap();
    // The metrics of a followed cloud exist only if there is one.
    let cloud = crate::follow::following(directory.path(), &roster, &["http://127.0.0.1:1"]).await;
    let bundle = motes[0].seal(moteseal_core::record::Scheme::Star, 1, true, &[1]);
    assert_eq!(cloud.put(bundle[1..].to_vec()).await.status(), 422);
    assert_eq!(cloud.put(bundle).await.status(), 200);
    let text = cloud.get(paths::METRICS).await.text().await.unwrap();
    let served: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let documented: BTreeSet<_> =
        cells(PAGE, "| metric").into_iter().map(|(name, _)| name).collect();
    assert_eq!(documented, served);
    for name in &served {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} is not described");
    }
    cloud.stop().await;
}

#[test]
fn the_operators_page_lists_every_limit_with_its_default() {
    let rows = cells(PAGE, "| limit");
    assert_eq!(
        rows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        moteseal_cloud::limits::NAMES
    );
    let defaults = format!("{:?}", moteseal_cloud::Limits::default());
    for (name, default) in rows {
        let mut limits = moteseal_cloud::Limits::default();
        limits.set(&format!("{name}={default}")).unwrap();
        assert_eq!(format!("{limits:?}"), defaults, "{name}");
    }
}
