#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("provision"), |data: &[u8]| moteseal_fuzz::provision::run(data));
