#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("health"), |data: &[u8]| moteseal_fuzz::health::run(data));
