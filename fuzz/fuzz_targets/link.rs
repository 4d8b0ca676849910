#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("link"), |data: &[u8]| moteseal_fuzz::link::run(data));
