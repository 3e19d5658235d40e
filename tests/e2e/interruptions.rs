//! Something on the way is away for a while: nothing is there twice, and all loss is counted.

use std::thread::sleep;
use std::time::Duration;

use crate::scene::Scene;
use crate::stack::Store;

/// A pane of the tests.
const PANE: Duration = Duration::from_secs(1);

#[test]
fn a_restart_of_either_collector_loses_no_pane() {
    let Some((mut scene, first)) =
        Scene::set("collector restart", "cut_and_cover", Store::Prometheus)
    else {
        return;
    };
    scene.agrees(&first);
    for restarted in ["gateway", "agent"] {
        let service = match restarted {
            "gateway" => &mut scene.stack.gateway,
            _ => &mut scene.stack.agent,
        };
        service.stop();
        sleep(3 * PANE);
        service.resume();
        let next = scene.next().expect("a phase");
        scene.agrees(&next);
    }
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}

#[test]
fn a_killed_gateway_loses_nothing_of_what_was_sent() {
    let Some((mut scene, first)) = Scene::set("gateway killed", "cut_and_cover", Store::Prometheus)
    else {
        return;
    };
    scene.agrees(&first);
    scene.stack.gateway.kill();
    sleep(3 * PANE);
    scene.stack.gateway.resume();
    let next = scene.next().expect("a phase");
    scene.agrees(&next);
    scene.books_are_closed();
    assert_eq!(scene.stack.complaints(), Vec::<String>::new());
}

#[test]
fn an_hour_without_a_collector_costs_panes_and_nothing_else() {
    let Some((mut scene, first)) = Scene::set("outage", "cut_and_cover", Store::Prometheus) else {
        return;
    };
    scene.agrees(&first);
    scene.stack.agent.stop();
    let next = scene.next().expect("a phase");
    sleep(60 * PANE);
    scene.stack.agent.resume();
    scene.agrees(&next);
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}
