#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("grant"), |data: &[u8]| moteseal_fuzz::grant::run(data));
