//! The HTTP contract: paths, queries, problem codes; no sockets.
