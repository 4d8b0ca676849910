#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("broadcast"), |data: &[u8]| moteseal_fuzz::broadcast::run(data));
