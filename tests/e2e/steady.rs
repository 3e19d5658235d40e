//! Nothing breaks.

use crate::scene::Scene;
use crate::stack::Store;

/// Plays all phases in which anybody holds anything.
fn play(scene: &mut Scene, first: memprov_tests::truth::Phase) {
    let mut phase = Some(first);
    while let Some(now) = phase {
        scene.agrees(&now);
        phase = scene.next();
    }
}

#[test]
fn a_query_says_what_the_oracle_says_and_every_book_is_closed_at_every_second() {
    let set = Scene::set("steady", "cut_and_cover", Store::Prometheus);
    let Some((mut scene, first)) = set else { return };
    scene.agrees(&first);
    scene.agrees_with_the_kernel(&[scene.workload.pid()]);
    play(&mut scene, first);
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}

#[test]
fn memory_of_two_processes_is_there_once() {
    let set = Scene::set("shared", "memfd", Store::Prometheus);
    let Some((mut scene, first)) = set else { return };
    play(&mut scene, first);
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}

#[test]
fn books_are_closed_while_memory_moves() {
    let set = Scene::set("churn", "churn", Store::Prometheus);
    let Some((mut scene, first)) = set else { return };
    play(&mut scene, first);
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}

#[test]
fn victoriametrics_says_the_same() {
    let set = Scene::set("victoriametrics", "cut_and_cover", Store::VictoriaMetrics);
    let Some((mut scene, first)) = set else { return };
    play(&mut scene, first);
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}
