//! Layout of a job: its mesh, its nodes, and the communicators of a rank.

use std::str::FromStr;

use fleet_agent_core::event::Op;

/// Maximum number of ranks of a simulated job.
pub const MAX_RANKS: u32 = 1 << 20;

/// Sizes of a mesh. Rank = (dp x PP + pp) x TP + tp, the default order of Megatron.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mesh {
    /// Tensor parallel ranks, which share every layer.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Replicas.
    pub dp: u32,
}

impl Mesh {
    /// Returns the number of ranks; none above [`MAX_RANKS`].
    pub fn n_ranks(self) -> Option<u32> {
        let ranks = self.tp.checked_mul(self.pp)?.checked_mul(self.dp)?;
        (ranks <= MAX_RANKS).then_some(ranks)
    }

    /// Returns the pipeline stage of a rank.
    pub fn stage(self, rank: u32) -> u32 {
        rank / self.tp % self.pp
    }
}

impl FromStr for Mesh {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let sizes: Vec<u32> = text
            .split('x')
            .filter_map(|size| size.parse().ok())
            .filter(|size| *size > 0)
            .collect();
        match *sizes {
            [tp, pp, dp] if text.split('x').count() == 3 => Ok(Self { tp, pp, dp }),
            _ => Err("expected three sizes above 0 as TPxPPxDP, such as 8x4x40".to_owned()),
        }
    }
}

/// Kind of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommKind {
    /// Ranks that hold the same part of the model in all replicas.
    Data,
    /// Ranks that share the layers of a stage.
    Tensor,
    /// All ranks.
    Job,
}

impl CommKind {
    /// All kinds, in the order in which a job starts to use them.
    pub const ALL: [Self; 3] = [Self::Data, Self::Tensor, Self::Job];

    /// Returns its operation.
    pub fn op(self) -> Op {
        match self {
            Self::Tensor => Op::AllGather,
            Self::Data | Self::Job => Op::AllReduce,
        }
    }

    /// Returns the operations of a rank in a step.
    pub fn ops(self) -> u32 {
        match self {
            Self::Tensor => 8,
            Self::Data => 4,
            Self::Job => 1,
        }
    }

    /// Returns the number of ranks of a communicator of this kind.
    pub fn size(self, mesh: Mesh) -> u32 {
        match self {
            Self::Tensor => mesh.tp,
            Self::Data => mesh.dp,
            Self::Job => mesh.tp * mesh.pp * mesh.dp,
        }
    }

    /// Returns the index of the communicator of this kind that a rank is in, from 0, and its rank
    /// there.
    pub fn position(self, mesh: Mesh, rank: u32) -> (u32, u32) {
        let replica = mesh.tp * mesh.pp;
        match self {
            Self::Tensor => (rank / mesh.tp, rank % mesh.tp),
            Self::Data => (rank % replica, rank / replica),
            Self::Job => (0, rank),
        }
    }
}

/// Placement of the ranks of a job, and their communicators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The mesh.
    pub mesh: Mesh,
    /// Number of ranks.
    pub n_ranks: u32,
    /// Ranks per node.
    pub ranks_per_node: u32,
    comms: u32,
}

impl Layout {
    /// Creates a layout of `nodes` nodes. Without a mesh the ranks of a node share every layer;
    /// without `comms` all kinds of communicators that the mesh has are used.
    pub fn new(
        nodes: u32,
        ranks_per_node: u32,
        mesh: Option<Mesh>,
        comms: Option<u32>,
    ) -> Result<Self, String> {
        let default = Mesh {
            tp: ranks_per_node,
            pp: 1,
            dp: nodes,
        };
        let Some(n_ranks) = default.n_ranks() else {
            return Err(format!(
                "{nodes} nodes of {ranks_per_node} ranks exceed the maximum of {MAX_RANKS} ranks"
            ));
        };
        if n_ranks < 2 {
            return Err(
                "a job needs at least 2 ranks: raise --nodes or --ranks-per-node".to_owned(),
            );
        }
        let mesh = mesh.unwrap_or(default);
        let Mesh { tp, pp, dp } = mesh;
        if mesh.n_ranks() != Some(n_ranks) {
            let product = u128::from(tp) * u128::from(pp) * u128::from(dp);
            return Err(format!(
                "--mesh {tp}x{pp}x{dp} makes {product} ranks, but {nodes} nodes of {ranks_per_node} have {n_ranks}"
            ));
        }
        let available = Self::kinds(mesh).count();
        let all = u32::try_from(available).unwrap_or(u32::MAX);
        let comms = comms.unwrap_or(all);
        if comms > all {
            return Err(format!(
                "mesh {tp}x{pp}x{dp} gives a rank at most {all} communicators: lower --comms {comms}"
            ));
        }
        Ok(Self {
            mesh,
            n_ranks,
            ranks_per_node,
            comms,
        })
    }

    /// Returns the kinds of communicators that every rank uses.
    pub fn comms(&self) -> impl Iterator<Item = CommKind> + use<> {
        Self::kinds(self.mesh).take(self.comms as usize)
    }

    /// Returns whether the ranks use communicators of this kind.
    pub fn uses(&self, kind: CommKind) -> bool {
        self.comms().any(|used| used == kind)
    }

    // A communicator of one rank has nothing to compare.
    fn kinds(mesh: Mesh) -> impl Iterator<Item = CommKind> {
        CommKind::ALL
            .into_iter()
            .filter(move |kind| kind.size(mesh) > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_is_three_sizes_above_0() {
        let mesh: Mesh = "8x4x40".parse().unwrap();
        assert_eq!((mesh.tp, mesh.pp, mesh.dp), (8, 4, 40));
        assert_eq!(mesh.n_ranks(), Some(1280));
        for wrong in [
            "", "8x4", "8x0x4", "8x4x4x1", "8xfourx4", "8x4x4x", "-1x2x3",
        ] {
            assert!(wrong.parse::<Mesh>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mesh_must_multiply_to_the_ranks_and_the_message_has_both_numbers() {
        let mesh = "8x2x3".parse().ok();
        let error = Layout::new(4, 8, mesh, None).unwrap_err();
        assert_eq!(
            error,
            "--mesh 8x2x3 makes 48 ranks, but 4 nodes of 8 have 32"
        );
        assert!(Layout::new(4, 12, mesh, None).is_ok());
    }

    #[test]
    fn a_rank_has_no_more_communicators_than_its_mesh_gives_it() {
        let layout = Layout::new(4, 8, None, None).unwrap();
        assert_eq!(layout.comms().collect::<Vec<_>>(), CommKind::ALL);
        let replicas = "1x1x32".parse().ok();
        let error = Layout::new(4, 8, replicas, Some(3)).unwrap_err();
        assert!(error.contains("at most 2 communicators"), "{error}");
        assert!(Layout::new(1, 1, None, None).is_err());
        assert!(Layout::new(u32::MAX, 8, None, None).is_err());
    }

    #[test]
    fn every_rank_has_a_distinct_position_in_each_communicator() {
        let mesh = Mesh {
            tp: 2,
            pp: 3,
            dp: 4,
        };
        for kind in CommKind::ALL {
            let places: Vec<(u32, u32)> = (0..24).map(|rank| kind.position(mesh, rank)).collect();
            let distinct: std::collections::BTreeSet<_> = places.iter().collect();
            assert_eq!(distinct.len(), 24, "{kind:?}");
            assert!(places.iter().all(|(_, rank)| *rank < kind.size(mesh)));
        }
        assert_eq!(mesh.stage(2), 1);
    }
}
