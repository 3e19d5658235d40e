//! Which NUMA node a CPU and a physical frame belong to, as whoever sampled knows it.

use std::collections::BTreeMap;

/// CPUs and frames by node. Empty where nothing is known: then every answer is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Node of each CPU.
    pub cpus: BTreeMap<u32, u32>,
    /// Frames: first number, behind the last, node; in order, without overlap.
    frames: Vec<(u64, u64, u32)>,
}

impl Nodes {
    /// Nodes with these ranges of frames: first, behind the last, node. What two nodes claim belongs to neither.
    #[must_use]
    pub fn new(cpus: BTreeMap<u32, u32>, mut ranges: Vec<(u64, u64, u32)>) -> Self {
        ranges.sort_unstable();
        let mut frames: Vec<(u64, u64, u32)> = Vec::new();
        // All frames below this one are decided.
        let mut decided = 0;
        for (first, end, node) in ranges {
            let contested = match frames.last_mut() {
                Some(last) if last.1 > first && last.2 != node => {
                    let contested = last.1.min(end);
                    last.1 = first;
                    contested
                }
                _ => first,
            };
            let begin = contested.max(decided);
            decided = decided.max(end);
            if begin < end {
                frames.push((begin, end, node));
            }
        }
        frames.retain(|(first, end, _)| first < end);
        Self { cpus, frames }
    }

    /// The node of a CPU.
    #[must_use]
    pub fn of_cpu(&self, cpu: u32) -> Option<u32> {
        self.cpus.get(&cpu).copied()
    }

    /// The node of a frame.
    #[must_use]
    pub fn of_frame(&self, frame: u64) -> Option<u32> {
        let behind = self.frames.partition_point(|(first, _, _)| *first <= frame);
        let (_, end, node) = self.frames.get(behind.checked_sub(1)?)?;
        (frame < *end).then_some(*node)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Nodes;

    #[test]
    fn a_frame_belongs_to_the_one_range_that_holds_it() {
        let ranges = vec![(100, 200, 1), (0, 50, 0), (50, 80, 0), (300, 300, 2)];
        let nodes = Nodes::new(BTreeMap::from([(3, 1)]), ranges);
        let told = [0, 79, 80, 99, 100, 199, 200, 300, u64::MAX].map(|frame| nodes.of_frame(frame));
        assert_eq!(told, [Some(0), Some(0), None, None, Some(1), Some(1), None, None, None]);
        assert_eq!((nodes.of_cpu(3), nodes.of_cpu(0)), (Some(1), None));
    }

    #[test]
    fn a_frame_that_two_nodes_claim_belongs_to_neither() {
        let nodes = Nodes::new(BTreeMap::new(), vec![(0, 100, 0), (50, 150, 1)]);
        let told = [0, 49, 50, 99, 100, 149].map(|frame| nodes.of_frame(frame));
        assert_eq!(told, [Some(0), Some(0), None, None, Some(1), Some(1)]);
    }
}
