#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("serial"), |data: &[u8]| moteseal_fuzz::serial::run(data));
