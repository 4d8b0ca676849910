#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("agent"), |data: &[u8]| moteseal_fuzz::agent::run(data));
