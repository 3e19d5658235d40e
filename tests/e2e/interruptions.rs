//! Something on the way is away for a while: nothing is there twice, and all loss is counted.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use crate::promql::seconds;
use crate::scene::Scene;
use crate::service::until;
use crate::stack::Store;

/// A pane of the tests.
const PANE: Duration = Duration::from_secs(1);

#[test]
fn a_restart_of_memprov_leaves_no_book_open_and_nothing_twice() {
    let Some((mut scene, first)) =
        Scene::set("memprov restart", "cut_and_cover", Store::Prometheus)
    else {
        return;
    };
    scene.agrees(&first);
    let pid = scene.workload.pid();
    scene.agrees_with_the_kernel(&[pid]);
    scene.memprov.again().expect("memprov starts again");
    scene.agrees_with_the_kernel(&[pid]);
    sleep(10 * PANE);
    scene.agrees_with_the_kernel(&[pid]);
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}

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
    let killed = seconds(SystemTime::now());
    // However slowly panes come: three are on the agent's disk before anybody takes them.
    let (mut accepted, mut rises) = (scene.stack.accepted(), 0);
    until("the agent takes panes that it cannot pass on", || {
        let now = scene.stack.accepted();
        rises += usize::from(now > accepted);
        accepted = now;
        (rises >= 3).then_some(()).ok_or(format!("{rises} panes, {now} points"))
    });
    let resumed = seconds(SystemTime::now());
    scene.stack.gateway.resume();
    let next = scene.next().expect("a phase");
    scene.agrees(&next);
    scene.books_are_closed();
    assert_eq!(scene.stack.complaints(), Vec::<String>::new());
    scene.keeps_to_the_registry();
    scene.no_request_was_refused();
    // The Collector beside memprov kept what came meanwhile.
    let panes = scene.stack.api.query("memprov_build_info[10m]").expect("a query");
    let meanwhile = |sample: &&(f64, f64)| sample.0 > killed && sample.0 < resumed;
    let kept = panes.iter().flat_map(|series| &series.samples).filter(meanwhile).count();
    // The first of the three may have ended before the gateway did, and a pane may have two requests.
    assert!(kept >= 1, "{kept} panes between {killed} and {resumed}");
}

#[test]
fn an_hour_without_a_collector_costs_panes_and_nothing_else() {
    let started = Instant::now();
    let Some((mut scene, first)) = Scene::set("outage", "cut_and_cover", Store::Prometheus) else {
        return;
    };
    scene.agrees(&first);
    let before = scene.stack.witness().panes("memprov.build_info").len();
    scene.stack.agent.stop();
    let next = scene.next().expect("a phase");
    sleep(60 * PANE);
    scene.stack.agent.resume();
    scene.agrees(&next);
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
    // Nothing was made up for the time in between: each pane that arrived was one of memprov's.
    let panes = scene.stack.witness().panes("memprov.build_info").len();
    let most = started.elapsed() - 60 * PANE;
    let most = 1 + usize::try_from(most.as_secs()).unwrap();
    assert!(before > 0 && (before + 1..=most).contains(&panes), "{before}, then {panes} panes");
}
