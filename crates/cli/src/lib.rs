//! Moteseal on the command line: every role and tool as a subcommand.
