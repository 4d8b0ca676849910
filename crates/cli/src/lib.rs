//! Moteseal's command-line program. This library is empty: the program is in `main.rs`.
