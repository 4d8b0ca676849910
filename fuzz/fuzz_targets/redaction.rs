#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("redaction"), |data: &[u8]| moteseal_fuzz::redaction::run(data));
