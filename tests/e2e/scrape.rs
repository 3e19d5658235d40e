//! The other way out: a scrape of the gateway's exporter. What survives is what `otel-collector/README.md` says.

use std::collections::BTreeMap;

use crate::promql::Labels;
use crate::scene::Scene;
use crate::service::until;
use crate::stack::Store;

/// What a store knows of memprov's metrics by one way: values by name and labels.
fn known(scene: &Scene, prefix: &str) -> Result<BTreeMap<String, f64>, String> {
    let matcher = format!("{{__name__=~\"{prefix}memprov_memory_.*\"}}");
    let found = scene.stack.api.query(&matcher)?;
    let named = found.iter().filter_map(|series| {
        let name = series.labels.get("__name__")?.strip_prefix(prefix)?;
        // A book grows older between a pane and a scrape.
        let still = !name.starts_with("memprov_memory_book_age");
        let value = series.samples.last()?.1;
        still.then(|| (format!("{name} {:?}", own(&series.labels)), value))
    });
    Ok(named.collect())
}

/// The labels that memprov gave: those of the scope and of the scrape are not.
fn own(labels: &Labels) -> Labels {
    let mut labels = labels.clone();
    labels.retain(|key, _| key != "__name__" && !key.starts_with("otel_scope_"));
    labels
}

#[test]
fn names_labels_and_values_survive_a_scrape_and_so_does_the_end_of_a_series() {
    let set = Scene::set("scrape", "cut_and_cover", Store::Prometheus);
    let Some((mut scene, first)) = set else { return };
    let mut phase = Some(first);
    while let Some(now) = phase {
        scene.agrees(&now);
        until("a scrape shows what came by OTLP", || {
            let (pushed, scraped) = (known(&scene, "")?, known(&scene, "scraped_")?);
            let only = |these: &BTreeMap<String, f64>, others: &BTreeMap<String, f64>| {
                let apart =
                    these.iter().filter(|(series, value)| others.get(*series) != Some(*value));
                apart.map(|(series, value)| format!("{series} = {value}")).collect::<Vec<_>>()
            };
            let (lost, made) = (only(&pushed, &scraped), only(&scraped, &pushed));
            if pushed.is_empty() || !lost.is_empty() || !made.is_empty() {
                return Err(format!("{} series; lost {lost:#?}; made {made:#?}", pushed.len()));
            }
            Ok(())
        });
        phase = scene.next();
    }
    scene.keeps_to_the_registry();
    // Times and resource attributes don't survive: the sample's time is the scrape's.
    let apart = scene.stack.api.query(
        "timestamp(scraped_memprov_memory_control_bytes) == timestamp(memprov_memory_control_bytes)",
    );
    assert_eq!(apart.expect("a query").len(), 0);
    let exposed = scene.stack.scraped();
    assert!(exposed.contains("target_info{"), "{exposed}");
}
