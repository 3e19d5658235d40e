//! A watch that ends and begins anew: what is remembered never becomes a false claim.

use memprov_ledger::evidence::Evidence;
use memprov_ledger::identity::SpaceId;
use memprov_ledger::pieces::Traits;
use memprov_ledger::recall::Recall;
use memprov_ledger::space::Space;
use memprov_ledger::time::MonoTime;
use proptest::prelude::proptest;

use crate::call::Call;
use crate::long::{Next, cases, history, next};
use crate::watch::{Watch, World};

impl World {
    /// Ends the watch and begins another one, which is told what the first one knew of processes that still live.
    fn restart(&mut self, unseen: Vec<[u8; 5]>) -> Vec<Recall> {
        let known: Vec<Recall> = self.watch.ledger.remembered(self.now()).collect();
        for bytes in unseen {
            match next(&self.kernel, bytes) {
                // That two processes share a space is known by the call alone.
                Next::Call(_, Call::Share { .. }) | Next::Scan(_) => {}
                Next::Call(tgid, call) => drop(self.run(tgid, call)),
            }
        }
        self.watch = Watch::since(MonoTime(self.kernel.now));
        let mut known = known;
        for recall in &mut known {
            let layout = recall.layout;
            recall.tgids.retain(|(tgid, began)| {
                self.kernel.live.get(&tgid.0).is_some_and(|process| {
                    let now = Some((1, self.kernel.mm(tgid.0).layout));
                    process.start == began.0 && layout.is_none_or(|layout| now == Some(layout))
                })
            });
        }
        known.retain(|recall| !recall.tgids.is_empty());
        for recall in &known {
            self.watch.apply(&Evidence::Recall(Box::new(recall.clone())));
        }
        known
    }
}

fn spaces(world: &World) -> Vec<SpaceId> {
    world.watch.ledger.spaces().map(|space| space.id).collect()
}

proptest! {
    #![proptest_config(cases(400, 20_000))]

    #[test]
    fn after_a_restart_no_answer_is_wrong(
        before in history(60),
        unseen in history(12),
        after in history(40),
    ) {
        let mut world = World::new();
        for bytes in before {
            world.step(next(&world.kernel, bytes));
        }
        // Who shares a space that was never scanned is not remembered.
        world.scan_all();
        world.restart(unseen);
        let live: Vec<u32> = world.kernel.live.keys().copied().collect();
        for tgid in &live {
            world.check_no_wrong_answer(*tgid, world.now());
            assert!(world.asks(*tgid), "what is remembered is to be held against a list");
        }
        for bytes in after {
            world.step(next(&world.kernel, bytes));
            for tgid in world.kernel.live.clone().into_keys() {
                world.check_no_wrong_answer(tgid, world.now());
            }
        }
        world.scan_all();
        for tgid in world.kernel.live.clone().into_keys() {
            assert!(!world.asks(tgid));
            world.check_no_wrong_answer(tgid, world.now());
        }
    }

    #[test]
    fn what_nobody_changed_keeps_space_interval_and_call_as_inferred(before in history(60)) {
        let mut world = World::new();
        for bytes in before {
            world.step(next(&world.kernel, bytes));
        }
        world.scan_all();
        let old = world.watch.ledger.clone();
        let known = world.restart(Vec::new());
        world.scan_all();
        for recall in &known {
            let space = world.watch.ledger.space(recall.tgids[0].0).expect("it is known again");
            let before = old.space(recall.tgids[0].0).expect("it was known");
            assert_eq!((space.id, space.family, &space.tgids), (before.id, before.family, &before.tgids));
            let seen = |space: &Space| -> Vec<_> {
                let made = space.pieces().filter(|p| !p.traits.has(Traits::UNSEEN));
                made.map(|p| (p.extent, p.id, p.stack, p.offset)).collect()
            };
            assert_eq!(seen(space), seen(before));
            for piece in space.pieces().filter(|p| !p.traits.has(Traits::UNSEEN)) {
                assert!(!space.proven(piece) && piece.traits.has(Traits::PREDATES), "{piece:?}");
            }
        }
    }

    #[test]
    fn what_this_run_knows_is_newer_than_what_is_remembered(before in history(40), after in history(20)) {
        let mut world = World::new();
        for bytes in before {
            world.step(next(&world.kernel, bytes));
        }
        let known: Vec<Recall> = world.watch.ledger.remembered(world.now()).collect();
        for bytes in after {
            world.step(next(&world.kernel, bytes));
        }
        world.scan_all();
        let (ids, pieces) = (spaces(&world), world.watch.pieces(1));
        for recall in known {
            world.watch.apply(&Evidence::Recall(Box::new(recall)));
        }
        if world.kernel.live.contains_key(&1) {
            assert_eq!(world.watch.pieces(1), pieces);
        }
        assert!(ids.iter().all(|id| spaces(&world).contains(id)));
    }
}

#[test]
fn a_child_has_its_own_part_of_an_object_where_its_parent_has_another() {
    let mut world = World::new();
    world.scan(1);
    let unseen = vec![
        [0, 15, 0, 3, 1], // attaches a segment of four pages
        [0, 19, 1, 0, 0], // forks 2
        [1, 6, 0, 0, 0],  // 2 ends the first page
        [1, 11, 1, 0, 0], // and has the second one there, too
    ];
    world.restart(unseen);
    world.scan_all();
    assert_eq!(world.kernel.mm(2).cells.get(&0), world.kernel.mm(2).cells.get(&1));
    world.call(2, Call::Detach { at: 0 });
    world.check_no_wrong_answer(2, world.now());
}
