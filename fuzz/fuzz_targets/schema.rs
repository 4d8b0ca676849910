#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("schema"), |data: &[u8]| moteseal_fuzz::schema::run(data));
