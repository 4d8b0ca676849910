#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("cose"), |data: &[u8]| moteseal_fuzz::cose::run(data));
