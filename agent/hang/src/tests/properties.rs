//! Properties of the analysis on simulated jobs.
//!
//! The ranks form a mesh. Each has a communicator per dimension and one of all ranks, and runs the
//! same program: a list of dimensions, in each of which it joins one operation. An operation ends
//! when all its ranks have enqueued it and their GPUs have ended what they enqueued before.

use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::named;
use crate::{Group, Job, Kind, LastOperation, Operation, Process, Progress, analyse};

/// Simulated job.
#[derive(Debug, Clone)]
struct Mesh {
    /// Number of ranks in each dimension.
    sizes: Vec<u32>,
    /// Dimension of each operation; the number of dimensions stands for all ranks.
    program: Vec<usize>,
    /// Number of operations that the host of each rank runs ahead of its GPU.
    run_ahead: Vec<usize>,
    /// Number of each rank in the job, by its place in the mesh.
    numbers: Vec<u32>,
}

/// Operations that a rank has enqueued and completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Steps {
    enqueued: usize,
    completed: usize,
}

impl Mesh {
    /// Returns the key of the group of a rank in a dimension: its place with that dimension at 0.
    fn group(&self, rank: usize, dimension: usize) -> (usize, u32) {
        let rank = u32::try_from(rank).unwrap();
        let Some(size) = self.sizes.get(dimension) else {
            return (dimension, 0);
        };
        let stride: u32 = self.sizes[..dimension].iter().product();
        (dimension, rank - rank / stride % size * stride)
    }

    /// Runs the job until nothing advances any more; `limit` is the number of operations that the
    /// host of each rank enqueues.
    fn run(&self, limit: &[usize]) -> Vec<Steps> {
        let n = self.numbers.len();
        let mut steps = vec![
            Steps {
                enqueued: 0,
                completed: 0
            };
            n
        ];
        loop {
            let before = steps.clone();
            for rank in 0..n {
                let ahead = steps[rank].completed + self.run_ahead[rank];
                steps[rank].enqueued = ahead.min(limit[rank]).min(self.program.len());
            }
            let mut slowest: BTreeMap<((usize, u32), usize), usize> = BTreeMap::new();
            for (at, dimension) in self.program.iter().enumerate() {
                for (rank, own) in steps.iter().enumerate() {
                    let is_ready = own.enqueued > at && own.completed >= at;
                    let group = self.group(rank, *dimension);
                    *slowest.entry((group, at)).or_default() += usize::from(!is_ready);
                }
            }
            for rank in 0..n {
                let at = steps[rank].completed;
                if let Some(dimension) = self.program.get(at)
                    && slowest[&(self.group(rank, *dimension), at)] == 0
                {
                    steps[rank].completed += 1;
                }
            }
            if steps == before {
                return steps;
            }
        }
    }

    /// Returns the observation of the ranks; with `is_counted`, of the numbers of operations only.
    fn observe(&self, steps: &[Steps], is_counted: bool) -> Job {
        let mut groups: BTreeMap<(usize, u32), Group> = BTreeMap::new();
        for (rank, own) in steps.iter().enumerate() {
            let number = self.numbers[rank];
            for dimension in (0..=self.sizes.len()).filter(|own| self.program.contains(own)) {
                let key = self.group(rank, dimension);
                let group = groups.entry(key).or_default();
                // Groups of one dimension have one name.
                group.name = dimension.to_string();
                group.members.insert(number);
                group
                    .progress
                    .insert(number, self.progress(*own, dimension, is_counted));
            }
        }
        let (keys, groups): (Vec<_>, Vec<Group>) = groups.into_iter().unzip();
        let mut job = Job {
            groups,
            ..Job::default()
        };
        for (rank, own) in steps.iter().enumerate() {
            let is_pending = own.enqueued > own.completed;
            if is_counted && is_pending {
                job.processes.insert(self.numbers[rank], Process::Waits);
            }
            if !is_counted && own.enqueued > 0 {
                let key = self.group(rank, self.program[own.enqueued - 1]);
                let group = keys.iter().position(|other| *other == key);
                job.last
                    .insert(self.numbers[rank], LastOperation { group, is_pending });
            }
        }
        job
    }

    fn progress(&self, own: Steps, dimension: usize, is_counted: bool) -> Progress {
        let of_group = || {
            self.program
                .iter()
                .enumerate()
                .filter(|(_, other)| **other == dimension)
        };
        let before = |end: usize| of_group().take_while(|(at, _)| *at < end).count() as u64;
        let numbered = (0..).zip(of_group());
        let pending = numbered.filter(|(_, (at, _))| (own.completed..own.enqueued).contains(at));
        let operation = |at: usize| Operation {
            name: "all_reduce".to_owned(),
            position: Some(at as u64),
            ..Operation::default()
        };
        let mut progress = Progress {
            enqueued: before(own.enqueued).checked_sub(1),
            ..Progress::default()
        };
        if !is_counted {
            progress.completed = before(own.completed).checked_sub(1);
            progress.operations = pending
                .map(|(number, (at, _))| (number, operation(at)))
                .collect();
        }
        progress
    }
}

fn meshes() -> impl Strategy<Value = Mesh> {
    let sizes = prop::collection::vec(2_u32..=8, 1..=3);
    sizes.prop_flat_map(|sizes| {
        let n = sizes.iter().product::<u32>();
        let length = usize::try_from(n).unwrap();
        let program = prop::collection::vec(0..=sizes.len(), 2..14);
        let run_ahead = prop::collection::vec(1_usize..8, length);
        let numbers = Just((0..n).collect::<Vec<u32>>()).prop_shuffle();
        (Just(sizes), program, run_ahead, numbers).prop_map(
            |(sizes, program, run_ahead, numbers)| Mesh {
                sizes,
                program,
                run_ahead,
                numbers,
            },
        )
    })
}

proptest! {
    #[test]
    fn a_missing_rank_is_named_alone(
        mesh in meshes(),
        missing in any::<prop::sample::Index>(),
        stop in any::<prop::sample::Index>(),
        is_counted in any::<bool>(),
    ) {
        let missing = missing.index(mesh.numbers.len());
        let stop = stop.index(mesh.program.len());
        let mut limit = vec![usize::MAX; mesh.numbers.len()];
        limit[missing] = stop;
        let job = mesh.observe(&mesh.run(&limit), is_counted);
        prop_assert_eq!(named(&job), [(Kind::DidNotJoin, vec![mesh.numbers[missing]])]);
    }

    #[test]
    fn ranks_that_ran_ahead_by_different_amounts_are_not_named(
        mesh in meshes(),
        at in any::<prop::sample::Index>(),
    ) {
        let completed = at.index(mesh.program.len());
        let end = mesh.program.len();
        let steps = mesh.run_ahead.iter().map(|ahead| Steps {
            enqueued: end.min(completed + ahead),
            completed,
        });
        let job = mesh.observe(&steps.collect::<Vec<_>>(), false);
        let named = named(&job);
        prop_assert!(named.iter().all(|(kind, ranks)| *kind == Kind::DoesNotEnd && ranks.is_empty()), "{named:?}");
    }

    #[test]
    fn observations_of_a_healthy_job_at_moments_far_apart_show_no_hang(
        mesh in meshes(),
        moments in prop::collection::vec(any::<prop::sample::Index>(), 512),
        first in any::<prop::sample::Index>(),
    ) {
        // Operations of all ranks connect them, and more of them follow than a host runs ahead.
        let mut mesh = mesh;
        mesh.program.insert(0, mesh.sizes.len());
        mesh.program.extend([mesh.sizes.len(); 8]);
        let end = mesh.program.len();
        let n = mesh.numbers.len();
        let (first, last) = (first.index(n), (first.index(n) + 1) % n);
        let steps = (0..n).map(|rank| {
            let completed = match rank {
                _ if rank == first => 0,
                _ if rank == last => end,
                _ => moments[rank].index(end),
            };
            Steps { enqueued: end.min(completed + mesh.run_ahead[rank]), completed }
        });
        let hang = analyse(&mesh.observe(&steps.collect::<Vec<_>>(), false));
        prop_assert!(!hang.is_found() && hang.advance.is_some(), "{hang:?}");
    }
}
