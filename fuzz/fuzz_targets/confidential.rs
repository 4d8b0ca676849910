#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("confidential"), |data: &[u8]| moteseal_fuzz::confidential::run(data));
