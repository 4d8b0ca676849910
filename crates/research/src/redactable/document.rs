//! Trees to sign: the input of [`mpps14_hashed`](super::mpps14_hashed) and
//! [`mpps14_accumulated`](super::mpps14_accumulated).

/// A node of a tree with its subtrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The content of the node.
    pub content: Vec<u8>,
    /// The subtrees, in order.
    pub children: Vec<Document>,
    /// How far this subtree may move up if nodes above it are redacted: 1 to its parent's parent, 2 to
    /// that node's parent, and so on. Only accumulated trees allow moves.
    pub moves: Vec<usize>,
}

impl Document {
    /// Creates a node whose subtree may not move.
    #[must_use]
    pub fn new(content: impl Into<Vec<u8>>, children: Vec<Self>) -> Self {
        Self { content: content.into(), children, moves: Vec::new() }
    }

    /// Allows that this subtree moves up by these numbers of nodes.
    #[must_use]
    pub fn movable(mut self, moves: impl Into<Vec<usize>>) -> Self {
        self.moves = moves.into();
        self
    }
}
