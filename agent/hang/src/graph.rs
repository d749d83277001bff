//! Directed graph of waits, and the nodes at which chains of waits end.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Node of the graph. A rank waits for all ranks behind in an operation, which the node of the
/// operation stands for: edges between all pairs of ranks would be millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    /// Rank of the job.
    Rank(u32),
    /// All ranks that have not joined the operation of the group with this index.
    Behind(usize),
    /// Operation of the group with this index that all its ranks have joined.
    Joined(usize),
}

/// Directed graph.
#[derive(Debug, Default)]
pub(crate) struct Graph(BTreeMap<Node, BTreeSet<Node>>);

impl Graph {
    /// Adds an edge; returns whether it is new.
    pub(crate) fn add(&mut self, from: Node, to: Node) -> bool {
        self.0.entry(from).or_default().insert(to)
    }

    /// Replaces the edges that begin at a node.
    pub(crate) fn replace(&mut self, from: Node, to: BTreeSet<Node>) {
        self.0.insert(from, to);
    }

    /// Returns whether an edge begins at the node.
    pub(crate) fn has_edges(&self, node: Node) -> bool {
        self.next(node).next().is_some()
    }

    fn next(&self, node: Node) -> impl Iterator<Item = Node> {
        self.0.get(&node).into_iter().flatten().copied()
    }

    /// Returns the nodes to which a path leads back from every node that they reach: those without
    /// edges, and circles that no path leaves.
    pub(crate) fn ends(&self) -> BTreeSet<Node> {
        let components = self.components();
        let leaves = |node: &Node, of: usize| {
            self.next(*node)
                .any(|next| components.get(&next) != Some(&of))
        };
        let left: BTreeSet<usize> = components
            .iter()
            .filter(|(node, of)| leaves(node, **of))
            .map(|(_, of)| *of)
            .collect();
        let ends = components.into_iter().filter(|(_, of)| !left.contains(of));
        ends.map(|(node, _)| node).collect()
    }

    /// Returns the strongly connected component of each node, by Kosaraju's algorithm.
    fn components(&self) -> BTreeMap<Node, usize> {
        let mut reversed = Self::default();
        for (from, all) in &self.0 {
            reversed.0.entry(*from).or_default();
            for to in all {
                reversed.add(*to, *from);
            }
        }
        let mut components = BTreeMap::new();
        for (number, root) in self
            .by_end_of_visit(&reversed)
            .into_iter()
            .rev()
            .enumerate()
        {
            let mut next = vec![root];
            while let Some(node) = next.pop() {
                if let Entry::Vacant(vacant) = components.entry(node) {
                    vacant.insert(number);
                    next.extend(reversed.next(node));
                }
            }
        }
        components
    }

    /// Returns all nodes in the order in which a search in depth leaves them. `all` has every node.
    fn by_end_of_visit(&self, all: &Self) -> Vec<Node> {
        let (mut seen, mut left) = (BTreeSet::new(), Vec::new());
        for root in all.0.keys() {
            if !seen.insert(*root) {
                continue;
            }
            let mut path = vec![(*root, self.next(*root))];
            while let Some((node, edges)) = path.last_mut() {
                match edges.next() {
                    Some(next) if seen.insert(next) => path.push((next, self.next(next))),
                    Some(_) => {}
                    None => {
                        left.push(*node);
                        path.pop();
                    }
                }
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(edges: &[(u32, u32)]) -> Vec<Node> {
        let mut graph = Graph::default();
        for (from, to) in edges {
            graph.add(Node::Rank(*from), Node::Rank(*to));
        }
        graph.ends().into_iter().collect()
    }

    #[test]
    fn chains_end_at_nodes_without_edges() {
        assert_eq!(
            ends(&[(0, 1), (1, 2), (3, 2), (3, 4)]),
            [Node::Rank(2), Node::Rank(4)]
        );
    }

    #[test]
    fn a_circle_is_an_end_unless_a_path_leaves_it() {
        let circle = [(0, 1), (1, 0), (2, 1)];
        assert_eq!(ends(&circle), [Node::Rank(0), Node::Rank(1)]);
        assert_eq!(ends(&[(0, 1), (1, 0), (1, 2)]), [Node::Rank(2)]);
    }
}
