#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("sanitised"), |data: &[u8]| moteseal_fuzz::sanitised::run(data));
