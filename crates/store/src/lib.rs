//! Epoch stores behind one trait, and the durable journal.
