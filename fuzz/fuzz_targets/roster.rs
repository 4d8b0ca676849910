#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("roster"), |data: &[u8]| moteseal_fuzz::roster::run(data));
