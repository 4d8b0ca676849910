#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("proof"), |data: &[u8]| moteseal_fuzz::proof::run(data));
