#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("cast"), |data: &[u8]| moteseal_fuzz::cast::run(data));
