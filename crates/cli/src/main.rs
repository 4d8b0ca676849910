//! The `moteseal` command.
fn main() {}
