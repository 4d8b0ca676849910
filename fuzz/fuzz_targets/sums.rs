#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("sums"), |data: &[u8]| moteseal_fuzz::sums::run(data));
