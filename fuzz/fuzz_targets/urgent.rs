#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("urgent"), |data: &[u8]| moteseal_fuzz::urgent::run(data));
