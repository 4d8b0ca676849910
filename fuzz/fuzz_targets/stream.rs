#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("stream"), |data: &[u8]| moteseal_fuzz::stream::run(data));
